"""Noise: what is drawn from what, and laws that the makespans of noisy runs obey."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from strategies import allreduces, cases, p2ps
from twin import end_times, named

from ppmodel import build
from ppmodel.clusters.costs import model_costs
from ppmodel.clusters.specs import load_model, load_system
from ppmodel.errors import PPModelError
from ppmodel.ops import OpKind
from ppmodel.simulation import compile_graph, run_graph, uniform_costs
from ppmodel.studies.analysis import compare_runs, first_places
from ppmodel.studies.noise import Noise, noisy_makespans, noisy_runs, probability_faster
from ppmodel.studies.noise.draw import operation_factors, slow_ranks
from ppmodel.studies.noise.ranking import VERDICTS

seeds = st.integers(0, 2**64)
noises = st.builds(Noise, st.floats(0, 0.5), st.floats(0, 1), st.floats(1, 3))


@given(cases(), p2ps, allreduces, seeds)
def test_no_noise_is_the_noiseless_makespan(case, p2p, allreduce, seed):
    """Without jitter and stragglers every run is the noiseless one, to the last digit."""
    schedule, costs = case
    graph = compile_graph(schedule, p2p, allreduce)
    expected = run_graph(graph, costs).makespan_s
    assert noisy_makespans(graph, costs, Noise(slowdown=2.0), [seed, seed + 1]).tolist() == [expected] * 2


@given(cases(), noises, st.lists(seeds, min_size=2, max_size=5))
def test_a_run_is_its_seed(case, noise, some):
    """A run gives the same number in any order, alone, and beside any other."""
    schedule, costs = case
    graph = compile_graph(schedule)
    spans = noisy_makespans(graph, costs, noise, some)
    np.testing.assert_array_equal(noisy_makespans(graph, costs, noise, some[::-1]), spans[::-1])
    assert [noisy_makespans(graph, costs, noise, [seed])[0] for seed in some] == spans.tolist()


@given(cases(), noises, st.lists(seeds, min_size=1, max_size=3), st.floats(0.1, 10))
def test_systems_of_one_run_share_its_noise(case, noise, some, factor):
    """Systems together give what they give one by one; one that is k times as slow takes k times as long."""
    schedule, costs = case
    graph = compile_graph(schedule)
    tables = {name: factor * getattr(costs, name) for name in ("compute_s", "occupancy_s", "latency_s")}
    slower = replace(costs, **tables)
    one, other = noisy_runs(graph, [costs, slower], noise, some)[0].makespan_s
    assert one.tolist() == noisy_makespans(graph, costs, noise, some).tolist()
    np.testing.assert_allclose(other, factor * one, rtol=1e-9)


@given(cases(), noises, seeds, allreduces)
def test_reductions_keep_their_time(case, noise, seed, allreduce):
    """The factor on a reduction is 1, and its duration in a noisy run is the nominal one."""
    schedule, costs = case
    factors, reduces = next(operation_factors(schedule, noise, [seed])), schedule.kind == OpKind.R
    assert (factors[reduces] == 1).all()
    assert (factors > 0).all()
    noisy = run_graph(compile_graph(schedule, allreduce=allreduce), costs, factors)
    plain = run_graph(compile_graph(schedule, allreduce=allreduce), costs)
    took, nominal = (timeline.end_s - timeline.start_s for timeline in (noisy, plain))
    np.testing.assert_allclose(took[reduces], nominal[reduces], atol=1e-9, equal_nan=True)


@given(cases(), noises, seeds, p2ps)
def test_noisy_runs_agree_with_the_twin(case, noise, seed, p2p):
    """A simulator that knows only rows gives the same makespan under the same factors."""
    schedule, costs = case
    drawn = next(operation_factors(schedule, noise, [seed]))
    factors = dict(zip(named(schedule), drawn, strict=True))
    span = max(end_times(schedule, costs, p2p, factors).values())
    assert noisy_makespans(compile_graph(schedule, p2p), costs, noise, [seed])[0] == pytest.approx(span, abs=1e-9)


@given(st.integers(0, 2**40), st.floats(0, 1), st.integers(1, 20), st.integers(1, 20))
def test_slow_ranks_follow_from_the_seed_alone(seed, straggling, num_ranks, others):
    """A rank is slow or not whatever the number of ranks; more straggling slows no fewer; a named rank is slow."""
    slow = slow_ranks(Noise(straggling=straggling), num_ranks, seed)
    named = slow_ranks(Noise(straggling=straggling, slow_ranks=(0,)), num_ranks, seed)
    assert named.tolist() == [True, *slow[1:]]
    more = slow_ranks(Noise(jitter=0.1, straggling=straggling, slowdown=2.0), num_ranks + others, seed)
    np.testing.assert_array_equal(slow, more[:num_ranks])
    assert (slow <= slow_ranks(Noise(straggling=min(1, straggling + 0.2)), num_ranks, seed)).all()


def test_tables_of_one_seed_share_slow_ranks_and_not_their_jitter():
    """One table under two names meets one jitter; two tables meet two, without correlation."""
    noise, seed = Noise(jitter=0.2), 5
    same = [next(operation_factors(build(name, 8, 1), noise, [seed])) for name in ("gpipe", "1f1b")]
    np.testing.assert_array_equal(*same)
    one, other = (np.log(next(operation_factors(build(name, 8, 512), noise, [seed]))) for name in ("gpipe", "1f1b"))
    assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(one.size)
    streams = [
        next(operation_factors(build("gpipe", 8, 512), noise, [seed])) for seed in (seed, seed + 1, seed + 2**32)
    ]
    assert (abs(np.corrcoef(np.log(streams)) - np.eye(3)) < 4 / np.sqrt(one.size)).all()


def test_factors_are_lognormal_with_mean_1():
    """Mean 1, and logarithms that are normal: moments, and shares below quantiles, within four standard errors."""
    jitter, schedule = 0.3, build("gpipe", 4, 4096)
    factors = next(operation_factors(schedule, Noise(jitter=jitter), [1]))
    size, logs = factors.size, np.log(factors)
    assert abs(factors.mean() - 1) < 4 * np.sqrt(np.expm1(jitter**2) / size)
    assert logs.mean() == pytest.approx(-(jitter**2) / 2, abs=4 * jitter / np.sqrt(size))
    assert logs.std() == pytest.approx(jitter, abs=4 * jitter / np.sqrt(2 * size))
    for share in (0.05, 0.5, 0.95):
        below = (logs < NormalDist(-(jitter**2) / 2, jitter).inv_cdf(share)).mean()
        assert below == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / size))


@settings(max_examples=25)
@given(cases(max_stages=4, max_microbatches=6), p2ps, st.floats(0.05, 0.5))
def test_noise_of_mean_1_costs_time(case, p2p, jitter):
    """The makespan is convex in durations: its mean is no less than the makespan of the mean (Jensen)."""
    schedule, costs = case
    graph = compile_graph(schedule, p2p)
    spans = noisy_makespans(graph, costs, Noise(jitter=jitter), range(100))
    assert spans.mean() >= run_graph(graph, costs).makespan_s - 4 * spans.std() / 10 - 1e-9


@given(cases(), p2ps, st.floats(1, 4), st.data())
def test_a_straggler_costs_at_most_its_factor(case, p2p, slowdown, data):
    """With one rank slower by f the makespan is between T and f T; on a single rank it is f T."""
    schedule, costs = case
    rank = data.draw(st.integers(0, schedule.num_ranks - 1))
    graph = compile_graph(schedule, p2p)
    plain = run_graph(graph, costs).makespan_s
    span = noisy_makespans(graph, costs, Noise(slowdown=slowdown, slow_ranks=(rank,)), [0])[0]
    assert plain - 1e-9 <= span <= slowdown * plain + 1e-9
    if schedule.num_ranks == 1 and not schedule.gathers:
        assert span == pytest.approx(slowdown * plain)


def test_ranks_straggle_as_often_as_they_should():
    """One rank: the share of slow runs is the probability, within four standard errors of the binomial."""
    schedule, probability, runs = build("1f1b", 1, 2), 0.2, 2000
    noise = Noise(straggling=probability, slowdown=3.0)
    spans = noisy_makespans(compile_graph(schedule), uniform_costs(schedule, 1, 2), noise, range(runs))
    assert set(spans) == {6.0, 18.0}
    assert (spans == 18).mean() == pytest.approx(probability, abs=4 * np.sqrt(probability * (1 - probability) / runs))


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=30), st.floats(0.5, 0.99))
def test_one_is_faster_as_often_as_the_other_is_slower(pairs, confidence):
    """P(a < b) + P(b < a) = 1, intervals mirrored; each holds its probability; a schedule ties with itself."""
    one, other = np.array(pairs, dtype=float).T
    forth, back = probability_faster(one, other, confidence), probability_faster(other, one, confidence)
    assert forth.probability + back.probability == pytest.approx(1)
    assert (forth.low, forth.high) == pytest.approx((1 - back.high, 1 - back.low))
    assert 0 <= forth.low <= forth.probability <= forth.high <= 1
    assert probability_faster(one, one * (1 + 1e-12), confidence).probability == 0.5


def test_wilsons_interval_is_where_the_score_test_ends():
    """The ends are the shares from which the observed one is z standard errors away; 0 of 10 by hand."""
    found = probability_faster([1.0] * 30 + [3.0] * 10, [2.0] * 40)
    z = NormalDist().inv_cdf(0.975)
    for end in (found.low, found.high):
        assert abs(0.75 - end) == pytest.approx(z * np.sqrt(end * (1 - end) / 40))
    never = probability_faster([2.0] * 10, [1.0] * 10)
    assert (never.probability, never.low, never.high) == (0, 0, pytest.approx(z**2 / (10 + z**2)))


@pytest.mark.parametrize(
    ("ask", "field", "rule"),
    [
        (lambda: probability_faster([], []), "runs", "at least one"),
        (lambda: probability_faster([1.0], [1.0, 2.0]), "runs", "as many as"),
        (lambda: Noise(jitter=1e200), "jitter", "at most 5"),
        (lambda: Noise(straggling=float("nan")), "straggling", "at least 0 and at most 1"),
        (lambda: Noise(slowdown=0.5), "slowdown", "at least 1 and at most 1000000"),
    ],
)
def test_impossible_noise_and_runs_without_a_counterpart_are_refused(ask, field, rule):
    """A value out of its range is refused under its name; runs come in pairs."""
    with refused(PPModelError, field, rule):
        ask()


def test_every_confidence_below_1_has_an_interval():
    """Also the largest float below 1, which half a tail away rounds to 1."""
    found = probability_faster([1.0, 3.0], [2.0, 2.0], np.nextafter(1, 0))
    assert 0 <= found.low < 0.1
    assert 0.9 < found.high <= 1


# ---- rankings ------------------------------------------------------------------------------------

SCHEDULES = ["gpipe", "1f1b", "eager-1f1b", "chimera", ("hanayo", {"waves": 2})]
POINTS = {"pp": 4, "microbatches": [4, 8], "model": "paper", "system": ["mid_cp_slow_nw", "slow_cp_fast_nw"]}


@pytest.fixture(scope="module")
def compared():
    return compare_runs(SCHEDULES, noises=[Noise(0.05), Noise(0.3), Noise(0.3, 0.2, 1.5)], seeds=range(30), **POINTS)


def test_rows_are_runs_of_their_seeds(compared):
    """A row holds what its runs give; the winner is the fastest without noise, and illegal sizes are left out."""
    assert len(compared) == 3 * 2 * (5 + 4)
    keys = ["system", "microbatches", "jitter", "straggling", "label"]
    row = compared.set_index(keys).loc["mid_cp_slow_nw", 8, 0.3, 0.2, "1F1B"]
    spans = {}
    for name in ("1f1b", row.winner.lower()):
        table = build(name, 4, 8)
        costs = model_costs(table, load_model("paper"), load_system("mid_cp_slow_nw"))
        spans[name] = noisy_makespans(compile_graph(table), costs, Noise(0.3, 0.2, 1.5), range(30))
    runs = pd.Series(spans["1f1b"])
    assert (row.mean_s, row.standard_error_s) == pytest.approx((runs.mean(), runs.sem()))
    quantiles = runs.quantile([0.05, 0.25, 0.5, 0.75, 0.95])
    assert row[["q5_s", "q25_s", "q50_s", "q75_s", "q95_s"]].tolist() == pytest.approx(quantiles.tolist())
    assert (row.beats_winner, row.low, row.high) == probability_faster(
        spans["1f1b"], spans[row.winner.lower()], 1 - 0.05 / 3
    )
    for _, group in compared.groupby(keys[:-1]):
        assert group.makespan_s.min() == group.makespan_s[group.label == group.winner].item()


@pytest.mark.parametrize(
    ("over_winner", "low", "high", "verdict"),
    [
        (0.1, 0.1, 0.4, "holds"),
        (0.1, 0.4, 0.6, "open"),
        (0.1, 0.6, 0.7, "reversed"),
        (0.0, 0.6, 0.7, "tie decided"),
        (0.0, 0.3, 0.4, "holds"),
    ],
)
def test_a_first_place_holds_where_its_interval_says_so(over_winner, low, high, verdict):
    """The challenger is who beats the winner most often; what is counted is where its interval lies."""
    point = {"system": "x", "pp": 4, "microbatches": 8, "jitter": 0.1, "straggling": 0.0, "slowdown": 1.0}
    rows = [("a", 0, np.nan, np.nan, np.nan), ("b", over_winner, (low + high) / 2, low, high), ("c", 0.2, 0, 0, 0.05)]
    names = ["label", "over_winner", "beats_winner", "low", "high"]
    verdicts = first_places(pd.DataFrame(rows, columns=names).assign(**point, winner="a"))
    assert (verdicts.challenger.item(), verdicts.verdict.item()) == ("b", verdict)
    assert verdict in VERDICTS


def test_a_ranking_of_one_is_refused(compared):
    """A first place needs somebody to hold it against; no points at all are no ranking and no error."""
    with refused(PPModelError, "schedules", "meet no other"):
        first_places(compared[compared.label == compared.winner])
    assert first_places(compared[:0]).empty
    assert first_places(compared[:0][[]]).columns.tolist() == first_places(compared).columns.tolist()


def test_a_slow_rank_passes_on_a_share():
    """Between none and all of the slowdown; Chimera is the same from both ends, and GPipe from everywhere."""
    runs = [
        compare_runs(SCHEDULES, noises=Noise(slowdown=1.5, slow_ranks=(rank,)), seeds=[0], **POINTS)
        for rank in range(4)
    ]
    slow = pd.concat(runs)
    slow["passed_on"] = (slow.mean_s / slow.makespan_s - 1) / 0.5
    assert slow.passed_on.between(0, 1).all()
    shares = slow.query("microbatches == 8 and system == 'slow_cp_fast_nw'").groupby("label").passed_on.agg(list)
    assert shares["Chimera"] == pytest.approx(shares["Chimera"][::-1])
    assert shares["GPipe"] == pytest.approx([8 / 11] * 4, abs=1e-3)


@given(st.sampled_from(["gpipe", "1f1b", "eager-1f1b", "chimera"]), st.integers(1, 4), st.integers(1, 16),
       st.floats(0.5, 3), st.floats(1, 5))  # fmt: skip
def test_places_without_transfers_obey_their_laws(name, half, count, backward, slowdown):
    """GPipe feels a slow rank alike everywhere, Chimera from both ends; 1F1B's first no more than its last."""
    schedule = build(name, 2 * half, 2 * half * (count // 4 + 1) if name == "chimera" else count)
    graph, costs = compile_graph(schedule), uniform_costs(schedule, 1, backward)
    noises = [Noise(slowdown=slowdown, slow_ranks=(rank,)) for rank in range(2 * half)]
    spans = [noisy_makespans(graph, costs, noise, [0])[0] for noise in noises]
    if name in ("gpipe", "chimera"):
        np.testing.assert_allclose(spans, spans[::-1] if name == "chimera" else spans[0], rtol=1e-9)
    assert spans[0] <= spans[-1] * (1 + 1e-9)


def test_schedules_with_more_stages_than_blocks_are_left_out():
    """As in `levels`, so that a page about several schedules holds for a small model, too."""
    small = replace(load_model("paper"), blocks=16)
    schedules = ["gpipe", "1f1b", ("hanayo", {"waves": 2})]
    frame = compare_runs(schedules, 8, 8, Noise(0.1), range(9), model=small, system="dgx_a100")
    assert frame.label.tolist() == ["GPipe", "1F1B"]
