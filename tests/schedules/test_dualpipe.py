"""DualPipe and DualPipeV: complete, as their authors publish them, and as long as their closed forms at any cost."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from refusals import refused

from ppmodel import build, formulas
from ppmodel.errors import ScheduleError
from ppmodel.metrics import peak_activations, table_bubble_ratio, table_slots
from ppmodel.ops import OpKind
from ppmodel.simulation import compile_graph, run_graph, uniform_costs

TWO_WAYS = [(stages, count) for stages in (2, 4, 6, 8) for count in range(2 * stages, 26, 2)]
FOLDED = [(stages, count) for stages in range(1, 9) for count in range(2 * stages, 26)]
SIZES = [("dualpipe", *size) for size in TWO_WAYS] + [("dualpipev", *size) for size in FOLDED]
FAMILIES = {
    "dualpipe": (formulas.makespan_dualpipe, formulas.bubble_ratio_dualpipe, formulas.peak_activations_dualpipe),
    "dualpipev": (formulas.makespan_dualpipev, formulas.bubble_ratio_dualpipev, formulas.peak_activations_dualpipev),
}
SMALL = [("dualpipe", 2, 4), ("dualpipe", 8, 16), ("dualpipe", 6, 18), ("dualpipev", 1, 3), ("dualpipev", 4, 9)]


def simulated(schedule, *times):
    """Makespan at times F, I, W and F&B of one microbatch on 1/S of the model."""
    forward, input_grad, weight_grad, pair = times
    costs = uniform_costs(schedule, forward, input_grad=input_grad, weight_grad=weight_grad, pair=pair)
    return run_graph(compile_graph(schedule), costs).makespan_s


def test_makespans_ratios_and_peaks_are_the_published_ones():
    """At F = I = W, to the slot: over all ranks the idle share, on every rank the activations."""
    for name, stages, count in SIZES:
        schedule = build(name, stages, count)
        makespan, ratio, peak = FAMILIES[name]
        assert table_slots(schedule) == makespan(stages, count) * schedule.pieces_per_unit
        assert table_bubble_ratio(schedule) == pytest.approx(float(ratio(stages, count)), abs=1e-12)
        assert 1 - 3 * count / Fraction(makespan(stages, count)) == ratio(stages, count)
        assert peak_activations(schedule).tolist() == peak(stages)


def test_unfused_an_order_is_complete_and_no_slower():
    """No pair is left, each rank keeps its order and its peak, and no operation ends later; most sizes are faster."""
    faster = 0
    for size in SIZES:
        pairs = build(*size)
        apart = pairs.unfused()
        apart.validate()
        assert not apart.overlaps.any()
        assert apart.rows() == [[(op,) for cell in row for op in cell] for row in pairs.rows()]
        assert (peak_activations(apart) <= peak_activations(pairs)).all()
        assert (apart.slots()[1] <= pairs.slots()[1]).all()
        faster += table_slots(apart) < table_slots(pairs)
    assert faster > len(SIZES) / 2
    assert apart.unfused() is apart


@pytest.mark.parametrize(("name", "pairs", "apart"), [("dualpipe", 54, 51), ("dualpipev", 55, 51.5)])
def test_what_pairs_cost_without_a_gain(name, pairs, apart):
    """S = 8, B = 16, F = I = W: three forwards and three and a half; DualPipeV apart takes as long as ZB-V."""
    schedule = build(name, 8, 16)
    times = [simulated(one, 1, 1, 1, None) for one in (schedule, schedule.unfused(), build("zb-v", 8, 16))]
    assert times[:2] == [pairs, apart]
    assert times[2] == 51.5


@pytest.mark.parametrize(("name", "stages", "count"), SMALL)
def test_makespans_hold_for_any_times(name, stages, count):
    """The general form is exact, whichever of F, I and W is longest and however much of the shorter a pair hides."""
    schedule, makespan = build(name, stages, count), FAMILIES[name][0]
    for *times, won in product((1, 4, 9), (2, 4, 7), (0, 3, 8), (0, 0.5, 1)):
        forward, backward = times[0], times[1] + times[2]
        times.append(forward + backward - Fraction(won) * min(forward, backward))
        assert simulated(schedule, *map(float, times)) == pytest.approx(makespan(stages, count, *times))


def test_the_published_bubble_needs_equal_forward_and_input_gradient():
    """At F = I >= W it is exact; a longer W makes it worse, a shorter F better by no more than one forward."""
    published = 3 * (15 + 8 - 9)  # of (S/2-1)(F&B + Bw - 3W)
    computing = 7 * 15 + 9 * 15  # of an innermost rank of 8 with 16 microbatches: pairs, and alone
    bubbles = [formulas.makespan_dualpipe(8, 16, *times) - computing for times in ((7, 5, 3), (5, 7, 3), (7, 4, 4))]
    assert bubbles == [published + 3 * 2, 3 * (15 + 10 - 9) - 5, 3 * (15 + 8 - 12) + 3 * 3]
    assert formulas.makespan_dualpipe(8, 16, 6, 6, 3) - computing == 3 * (15 + 9 - 9)


def test_ranks_at_the_ends_run_fewer_pairs():
    """The innermost run B - S - 1 pairs and their neighbours as many; each rank further out runs one fewer."""
    schedule = build("dualpipe", 8, 20)
    pairs = np.bincount(schedule.rank[schedule.joined], minlength=8)
    assert pairs.tolist() == [9, 10, 11, 11, 11, 11, 10, 9]
    assert pairs[3] == 20 - 8 - 1


@pytest.mark.parametrize("count", [16, 17, 24])
def test_dualpipev_is_dualpipe_folded(count):
    """Device d of S runs what rank d of 2S ranks of DualPipe does, way 1's stages taking the replica's place."""
    folded, whole = build("dualpipev", 4, count), build("dualpipe", 8, 2 * count)
    for row, other in zip(folded.rows(), whole.rows(), strict=False):
        unfolded = [tuple(op._replace(replica=0, microbatch=op.microbatch % count) for op in cell) for cell in other]
        assert row == [cell for cell in unfolded if cell[0].kind != OpKind.R]


def test_pairs_are_a_forward_and_a_whole_backward():
    """The forward is written first; the two are never of one stage, and backwards are split outside pairs alone."""
    for name, stages, count in (("dualpipe", 8, 20), ("dualpipev", 4, 11)):
        schedule = build(name, stages, count)
        second = np.flatnonzero(schedule.joined)
        assert (schedule.kind[second] == OpKind.B).all()
        assert (schedule.kind[second - 1] == OpKind.F).all()
        assert (schedule.stage[second] + schedule.stage[second - 1] == schedule.num_stages - 1).all()
        assert not schedule.joined[second - 1].any()


def test_both_copies_of_the_weights_are_summed():
    """Every stage of either replica has one reduction, after all its backwards; DualPipeV has one copy and none."""
    schedule = build("dualpipe", 6, 12)
    sums = schedule.kind == OpKind.R
    assert len(set(zip(schedule.stage[sums], schedule.replica[sums], strict=True))) == sums.sum() == 12
    for row in schedule.rows():
        assert [cell[0].kind == OpKind.R for cell in row] == [False] * (len(row) - 2) + [True] * 2
    assert not (build("dualpipev", 6, 12).kind == OpKind.R).any()


@pytest.mark.parametrize(
    ("name", "size", "field", "rule"),
    [
        ("dualpipe", (5, 20), "pp", "must be even"),
        ("dualpipe", (1, 4), "pp", "must be even"),
        ("dualpipe", (4, 9), "microbatches", "must be even"),
        ("dualpipe", (4, 6), "microbatches", "at least 8"),
        ("dualpipev", (4, 7), "microbatches", "at least 8"),
    ],
)
def test_illegal_sizes_are_refused(name, size, field, rule):
    """Two directions need even numbers, and the steady state enough microbatches."""
    with refused(ScheduleError, field, rule):
        build(name, *size)
