"""Splits and placements of Chimera: proofs that hold, fast counts that equal plain ones, and known answers."""

from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from math import comb

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppbook.pages.asymmetric import peaks, placements
from ppbook.pages.asymmetric.peaks import EVEN, FRONT_BACK, OWN
from ppmodel import build
from ppmodel.clusters.costs import model_costs, stage_blocks
from ppmodel.clusters.specs import load_model, load_system
from ppmodel.errors import PPModelError, ScheduleError
from ppmodel.metrics import peak_activations
from ppmodel.ops import OpKind
from ppmodel.schedules.chimera import placed_chimera
from ppmodel.simulation import compile_graph, run_events, run_graph, uniform_costs


@pytest.fixture(scope="module")
def model():
    return load_model("paper")


@pytest.fixture(scope="module")
def system():
    return load_system("mid_cp_fast_nw")


def points_of(model, system, num_ranks, *grid, **more):
    return placements.split_points(placements.split_rates(model, system, num_ranks), num_ranks, *grid, **more)


@pytest.fixture(scope="module")
def points(model, system):
    four, six = points_of(model, system, 4, 16, placed_parts=8), points_of(model, system, 6, 12)
    return pd.concat([four, six], ignore_index=True)


@pytest.fixture(scope="module")
def frontier(points):
    return placements.frontier(points)


@st.composite
def placed(draw):
    """A placement of the second pipeline, one or two units long, and a split in whole parts."""
    num_ranks = draw(st.sampled_from([2, 4, 6]))
    second = draw(st.permutations(range(num_ranks)))
    split = draw(st.lists(st.integers(1, 9), min_size=num_ranks, max_size=num_ranks))
    return placed_chimera(num_ranks, num_ranks * draw(st.integers(1, 2)), second), np.array(split)


# ---- placements ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(2, 2), (4, 8), (6, 18), (8, 16)])
def test_the_mirrored_placement_is_chimera(size):
    """Against the first pipeline the second makes the table of Chimera, cell by cell."""
    assert placed_chimera(*size, range(size[0])[::-1]).rows() == build("chimera", *size).rows()


def test_every_placement_is_a_schedule_in_slot_order():
    """All permutations are legal tables; no two operations share a cell; the first pipeline goes first on ties."""
    for second in permutations(range(4)):
        schedule = placed_chimera(4, 8, second)
        schedule.validate()
        assert not schedule.joined.any()
        assert schedule.placement[1].tolist() == list(second)
    shared = [str(op) for cell in placed_chimera(2, 2, (0, 1)).rows()[0] for op in cell]
    assert shared == ["0F0", "0F1@1", "0B0", "0B1@1", "0R", "0R@1"]


@pytest.mark.parametrize("second", [(0, 1, 2), (0, 1, 2, 2), (1, 2, 3, 4), ()])
def test_what_is_no_permutation_is_refused(second):
    """The second pipeline names every rank once."""
    with pytest.raises(ScheduleError, match="must name each of the ranks 0 to 3 exactly once"):
        placed_chimera(4, 4, second)


# ---- peaks ---------------------------------------------------------------------------------------


@given(placed())
def test_fast_peaks_are_plain_peaks(case):
    """Rows times shares give what the plain count over the table's operations gives."""
    schedule, split = case
    assert peaks.split_peaks(schedule, split[None])[0] == peak_activations(schedule, split).max()


def assert_proven(lowest, schedule, family):
    """Check a lowest peak from both sides, operation by operation and in fractions."""
    recounted = []  # what each rank holds in each cell of its row
    for row in schedule.rows():
        in_flight, cells = [0] * schedule.num_stages, []
        for cell in row:
            for op in cell:
                in_flight[op.stage] += op.kind == OpKind.F
            cells.append(tuple(in_flight))
            for op in cell:
                in_flight[op.stage] -= op.kind in (OpKind.B, OpKind.W)
        recounted.append(cells)
    assert all(recounted[row.rank][row.cell] == row.in_flight for row in lowest.certificate)
    weights = np.array([row.weight for row in lowest.certificate])
    in_flight = np.array([row.in_flight for row in lowest.certificate], dtype=object)
    assert weights.sum() == 1
    assert weights.min() >= 0
    assert min(peaks.extreme_splits(family, schedule.num_stages).astype(object) @ (weights @ in_flight)) == lowest.peak
    assert max(np.vstack(recounted).astype(object) @ np.array(lowest.shares, dtype=object)) == lowest.peak
    assert sum(lowest.shares) == schedule.num_stages
    assert min(lowest.shares) >= 0


@given(placed())
def test_no_split_is_below_the_lowest_peak(case):
    """The exact optimum is proven, bounds every split, and its own shares have it."""
    schedule, split = case
    lowest = peaks.lowest_peak(schedule)
    assert_proven(lowest, schedule, OWN)
    peak = Fraction(int(peaks.split_peaks(schedule, split[None])[0]) * len(split), int(split.sum()))
    assert peak >= lowest.peak
    assert peak_activations(schedule, [float(share) for share in lowest.shares]).max() == pytest.approx(lowest.peak)


@given(placed())
def test_even_work_never_lowers_the_bound(case):
    """On any placement the splits that leave ranks even work stay at or above their bound, the peak of Chimera."""
    schedule, _ = case
    num_ranks = schedule.num_stages
    splits = peaks.compositions(2 * num_ranks, num_ranks)
    work = splits + splits[:, np.argsort(schedule.placement[1])]
    even = splits[(work == work[:, :1]).all(axis=1)]
    bound = peaks.even_work_bound(schedule)
    assert len(even)
    assert peaks.split_peaks(schedule, even).min() >= 2 * bound
    assert bound == peak_activations(build("chimera", num_ranks, num_ranks)).max()


@pytest.mark.parametrize("num_ranks", [4, 6, 8])
@pytest.mark.parametrize("units", [1, 2])
def test_the_certificate_agrees_with_brute_force(num_ranks, units):
    """On a fine grid of splits a : b none is below the certified peak, by the game's solution as well."""
    schedule = build("chimera", num_ranks, units * num_ranks)
    proof = peaks.lowest_peak(schedule, FRONT_BACK)
    splits = peaks.front_back_splits(400, num_ranks)
    assert peaks.split_peaks(schedule, splits).min() == 200 * proof.peak == 200 * num_ranks
    assert_proven(proof, schedule, FRONT_BACK)
    assert_proven(lowest := peaks.lowest_peak(schedule, EVEN), schedule, EVEN)
    assert lowest.peak == proof.peak
    assert sum(proof.certificate[0].in_flight[: num_ranks // 2]) == num_ranks // 2


def test_a_minimum_between_a_rising_and_a_falling_row():
    """Where no row is level two rows prove the minimum, with weights that make their mean level."""
    proof = peaks.lowest_peak(build("gpipe", 2, 3), FRONT_BACK)
    assert [(row.in_flight, row.weight) for row in proof.certificate] == [
        ((3, 0), Fraction(1, 2)),
        ((0, 3), Fraction(1, 2)),
    ]


def test_an_even_split_may_have_a_higher_peak():
    """A placement with two front stages on one rank has a lower peak off the even split, and its proof says so."""
    schedule = placed_chimera(4, 4, (0, 1, 3, 2))
    assert peaks.split_peaks(schedule, np.array([[6, 6, 8, 8], [7, 7, 7, 7]])).tolist() == [24, 28]
    assert peaks.lowest_peak(schedule, FRONT_BACK).peak <= Fraction(24, 7)


@pytest.mark.parametrize(
    "change",
    [
        lambda proof: {"peak": proof.peak + 1},
        lambda proof: {"certificate": (proof.certificate[0]._replace(in_flight=(9, 9, 9, 9)),)},
        lambda proof: {"certificate": (proof.certificate[0]._replace(weight=Fraction(1, 2)),)},
        lambda _: {"shares": (Fraction(1), Fraction(2), Fraction(1), Fraction(0))},
    ],
)
def test_the_check_of_proofs_notices_false_ones(change):
    """A wrong peak, rows that are not in the table, weights that are no mean, a split with a higher peak."""
    schedule = placed_chimera(4, 4, (3, 2, 1, 0))
    proof = peaks.lowest_peak(schedule, FRONT_BACK)
    with pytest.raises(AssertionError):
        assert_proven(proof._replace(**change(proof)), schedule, FRONT_BACK)


def test_known_lowest_peaks():
    """8/3, 36/11 and 96/25 on the mirrored placement; no other placement of four stages has less."""
    own = [peaks.lowest_peak(build("chimera", num_ranks, num_ranks)).peak for num_ranks in (4, 6, 8)]
    assert own == [Fraction(8, 3), Fraction(36, 11), Fraction(96, 25)]
    every = placements.every_placement(4)
    assert len(every) == 24
    assert min(peaks.lowest_peak(placed_chimera(4, 4, second)).peak for second in every) == own[0]
    bounds = [peaks.even_work_bound(placed_chimera(6, 6, second)) for second in placements.every_placement(6)]
    assert (len(bounds), min(bounds)) == (720, 6)


# ---- grids ---------------------------------------------------------------------------------------


def test_grids_hold_every_split_once():
    """As many compositions as there are, each of the whole and without an empty stage."""
    splits = peaks.compositions(12, 6)
    assert len(np.unique(splits, axis=0)) == len(splits) == comb(11, 5)
    assert (splits.sum(axis=1) == 12).all()
    assert splits.min() == 1


@pytest.mark.parametrize(
    "refused",
    [
        lambda: peaks.compositions(3, 4), lambda: peaks.compositions(10, 4),
        lambda: peaks.front_back_splits(5, 4),
    ],
)  # fmt: skip
def test_grids_without_the_even_split_are_refused(refused):
    """Too few parts, parts that do not divide, and an odd number of them."""
    with pytest.raises(PPModelError, match="must be"):
        refused()


@pytest.mark.parametrize(("pp", "parts", "placed_parts"), [(10, 10, 10), (12, 48, None), (8, 8, 16)])
def test_more_than_a_machine_holds_is_refused(pp, parts, placed_parts):
    """Ten ranks have 10! placements; before anything of the size is made."""
    with pytest.raises(PPModelError, match="at most"):
        placements.split_points(placements.Rates(1, 2, 0, 0), pp, parts, placed_parts)


# ---- time and memory -----------------------------------------------------------------------------


def test_the_frontier_is_not_dominated(frontier):
    """Nothing is faster with as low a peak, or lower and as fast; all else has something that is."""
    for _, points in frontier.groupby("pp"):
        time, peak = (points[name].to_numpy() for name in ("relative_time", "relative_peak"))
        better = (time[:, None] <= time) & (peak[:, None] <= peak) & ((time[:, None] < time) | (peak[:, None] < peak))
        best = points.frontier.to_numpy()
        assert not better.any(axis=0)[best].any()
        equal = [(t, p) in set(zip(time[best], peak[best], strict=True)) for t, p in zip(time, peak, strict=True)]
        assert (better.any(axis=0) | equal).all()
        assert len(set(zip(time[best], peak[best], strict=True))) == best.sum()


def test_symmetric_chimera_is_on_or_above_the_frontier(frontier):
    """It is the origin, first among the splits a : b of its time, and some point is at least as good as it."""
    for num_ranks, points in frontier.groupby("pp"):
        origin = points[(points.relative_time == 0) & (points.relative_peak == 0)].iloc[0]
        assert (origin.family, origin.split) == (FRONT_BACK, ":".join("1" * num_ranks))
        assert origin.peak == num_ranks
        best = points[points.frontier]
        assert ((best.relative_time <= 0) & (best.relative_peak <= 0)).any()


def test_splits_with_even_work_never_lower_the_peak(points):
    """Neither splits a : b nor any others that leave ranks even work; others do, and some are faster as well."""
    lower, faster = points.relative_peak < 0, points.relative_time < 0
    assert not lower[points.family.isin([FRONT_BACK, EVEN])].any()
    own = points.family == OWN
    assert (lower & faster)[own].groupby(points.pp[own]).any().all()
    assert (points.family == placements.ELSEWHERE).sum() == 23 * comb(7, 3)


def assert_single_simulations(points, model, system, p2p="overlapped"):
    """Time and peak of points equal the event queue's and the plain count's."""
    for point in points.itertuples():
        rates, shares = placements.split_rates(model, system, point.pp), np.array(point.split.split(":"), dtype=int)
        second = [int(rank) for rank in point.second.split()]
        schedule = placed_chimera(point.pp, point.microbatches, second, shares * point.pp / shares.sum())
        schedule.validate()
        costs = uniform_costs(schedule, *rates[:3], latency=rates.latency_s)
        assert point.peak == pytest.approx(peak_activations(schedule).max(), rel=1e-12)
        assert point.makespan_s == pytest.approx(run_events(compile_graph(schedule, p2p), costs).makespan_s, rel=1e-9)


@pytest.mark.parametrize("p2p", ["overlapped", "blocking"])
def test_points_are_single_simulations(model, system, p2p):
    """Points from everywhere."""
    chosen = points_of(model, system, 4, 8, placed_parts=8, units=2, p2p=p2p).iloc[::37]
    assert len(chosen) > 20
    assert_single_simulations(chosen, model, system, p2p)


def test_a_split_in_whole_blocks_is_faster_and_lower(model, system):
    """What the frontier says of 9 : 1 : 13 : 9 holds for 36, 4, 52 and 36 blocks, simulated in both ways."""
    own = points_of(model, system, 4, 32).query("family == @OWN")
    schedule = build("chimera", 4, 4)
    blocks = [36, 4, 52, 36]
    assert peak_activations(schedule, np.array(blocks) / 32).max() == 3.5 < peak_activations(schedule).max()
    split = replace(schedule, stage_shares=np.array(blocks) / 32)
    assert stage_blocks(split, model).tolist() == blocks
    for engine in (run_graph, run_events):
        uneven, even = (
            engine(compile_graph(table), model_costs(table, model, system)).makespan_s for table in (split, schedule)
        )
        assert own.relative_time.min() < uneven / even - 1 < -0.03
    assert ((own.relative_time < 0) & (own.relative_peak < 0)).any()
    assert own[own.relative_time <= 0].relative_peak.min() <= -0.125
