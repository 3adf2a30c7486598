"""Activations that go to the host and back, and results that leave before their cell ends."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import allreduces, cases, p2ps, random_cases
from test_kernels import all_times, both

from ppmodel import build
from ppmodel.costs import Offload, uniform_costs
from ppmodel.simulation import compile_graph, makespans, run_events, run_graph

seeds = st.integers(0, 2**32 - 1)


def offloading(schedule, costs, random, most_s=3.0):
    """Costs with some activations offloaded, of copies that take up to so many seconds."""
    shape = 2, schedule.num_replicas, schedule.num_stages
    share = random.uniform(0, 1, shape) * (random.random(shape) < 0.8)
    return replace(costs, offload=Offload(share, share * random.uniform(0, most_s)))


def handing_on(schedule, costs, random):
    """Costs with results of pairs that are there early, most of them."""
    shares = {key: tuple(random.choice([1.0, 0.0, random.random()], 2)) for key in schedule.pairs.keys}
    return replace(costs, handed={key: one for key, one in shares.items() if random.random() < 0.9})


def with_both(schedule, costs, seed):
    """Either of them, or both."""
    random = np.random.default_rng(seed)
    which = random.integers(1, 4)
    costs = offloading(schedule, costs, random) if which & 1 else costs
    return handing_on(schedule, costs, random) if which & 2 else costs


def whole(timeline):
    """All times of a run, those of copies among them."""
    copied = np.empty((0, timeline.start_s.size)) if timeline.copied_s is None else timeline.copied_s
    return np.concatenate([all_times(timeline), copied])


@settings(max_examples=300, deadline=None)
@given(cases() | random_cases(), p2ps, allreduces, seeds, st.booleans())
@pytest.mark.parametrize("run", [run_graph, run_events])
def test_compiled_and_plain_are_the_same_to_the_last_bit(run, case, p2p, allreduce, seed, noisy):
    """Both engines, with factors on single operations and without, on links and on NICs that ranks share."""
    schedule, costs = case[0], with_both(*case, seed)
    random = np.random.default_rng(seed)
    nics = tuple(random.integers(0, 3, schedule.num_ranks).tolist()) if seed % 2 and p2p == "overlapped" else None
    factors = random.uniform(0.5, 2, schedule.num_operations) if noisy else None
    graph = compile_graph(schedule, p2p, allreduce)
    np.testing.assert_array_equal(*both(lambda: whole(run(graph, replace(costs, nics=nics), factors))))


@settings(max_examples=500, deadline=None)
@given(cases() | random_cases(), p2ps, allreduces, seeds)
def test_longest_path_and_events_agree(case, p2p, allreduce, seed):
    """Every time of every operation, transfer and copy."""
    schedule, costs = case[0], with_both(*case, seed)
    graph = compile_graph(schedule, p2p, allreduce)
    path, events = (whole(run(graph, costs)) for run in (run_graph, run_events))
    np.testing.assert_allclose(path, events, rtol=0, atol=1e-9)
    assert makespans(graph, [costs, case[1]])[0] == run_graph(graph, costs).makespan_s


@settings(max_examples=100, deadline=None)
@given(seeds)
def test_rendezvous_waits_for_copies_too(seed):
    """Where no rank waits in a circle: both engines agree."""
    schedule, costs = build("1f1b", 4, 8), uniform_costs(build("1f1b", 4, 8), 1, 2, 0.1)
    costs = offloading(schedule, costs, np.random.default_rng(seed))
    graph = compile_graph(schedule, "rendezvous")
    path, events = (whole(run(graph, costs)) for run in (run_graph, run_events))
    np.testing.assert_allclose(path, events, rtol=0, atol=1e-9)
