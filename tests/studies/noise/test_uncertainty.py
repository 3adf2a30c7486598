"""Noise: what is drawn from what, and laws that the makespans of noisy runs obey."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from strategies import allreduces, cases, p2ps
from twin import end_times, named

from ppmodel import build
from ppmodel.errors import PPModelError
from ppmodel.ops import OpKind
from ppmodel.simulation import compile_graph, run_graph, uniform_costs
from ppmodel.studies.noise import Noise, noisy_makespans, noisy_runs
from ppmodel.studies.noise.draw import operation_factors, slow_ranks

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
    if schedule.num_ranks == 1 and not (schedule.gathers or schedule.has_shards):
        assert span == pytest.approx(slowdown * plain)


def test_ranks_straggle_as_often_as_they_should():
    """One rank: the share of slow runs is the probability, within four standard errors of the binomial."""
    schedule, probability, runs = build("1f1b", 1, 2), 0.2, 2000
    noise = Noise(straggling=probability, slowdown=3.0)
    spans = noisy_makespans(compile_graph(schedule), uniform_costs(schedule, 1, 2), noise, range(runs))
    assert set(spans) == {6.0, 18.0}
    assert (spans == 18).mean() == pytest.approx(probability, abs=4 * np.sqrt(probability * (1 - probability) / runs))


@pytest.mark.parametrize(
    ("ask", "field", "rule"),
    [
        (lambda: Noise(jitter=1e200), "jitter", "at most 5"),
        (lambda: Noise(straggling=float("nan")), "straggling", "at least 0 and at most 1"),
        (lambda: Noise(slowdown=0.5), "slowdown", "at least 1 and at most 1000000"),
    ],
)
def test_impossible_noise_is_refused(ask, field, rule):
    """A value out of its range is refused under its name."""
    with refused(PPModelError, field, rule):
        ask()


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
