"""Simulated time: two engines that agree, and laws that both obey."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from refusals import refused
from strategies import allreduces, cases, p2ps, random_cases
from twin import end_times, named, order_of, queue_times, rendezvous_times, streams_times

from ppmodel import build
from ppmodel.clusters.specs import Link
from ppmodel.errors import CostError, PPModelError, TableError
from ppmodel.loops.compiled import using
from ppmodel.ops import OpKind
from ppmodel.simulation import (
    APART,
    BUFFERED,
    P2P,
    OpCosts,
    compile_graph,
    makespans,
    receivers,
    run_events,
    run_graph,
    uniform_costs,
)
from ppmodel.simulation.transfers import link_values
from ppmodel.tables import parse_table

COLUMNS = ("start_s", "end_s", "sent_s", "arrived_s")


@settings(max_examples=400)
@given(cases(), p2ps, allreduces)
def test_longest_path_and_discrete_events_agree(case, p2p, allreduce):
    """Four hundred random cases over all schedules and semantics: every time of every operation to 1e-9."""
    schedule, costs = case
    graph = compile_graph(schedule, p2p, allreduce)
    path, events = run_graph(graph, costs), run_events(graph, costs)
    for column in COLUMNS:
        np.testing.assert_allclose(getattr(path, column), getattr(events, column), rtol=0, atol=1e-9, equal_nan=True)


@settings(max_examples=200)
@given(cases() | random_cases(), p2ps, allreduces)
def test_both_agree_with_a_twin_that_knows_only_rows(case, p2p, allreduce):
    """A simulator that derives everything from the rows of the table gives the same ends."""
    schedule, costs = case
    assert_like_twin(schedule, costs, p2p, allreduce)


def times_or_refusal(run, graph, costs):
    """All times of a run, or the error and the grid of a deadlock."""
    try:
        timeline = run(graph, costs)
    except TableError as error:
        return str(error), str(error.grid)
    return np.stack([getattr(timeline, column) for column in COLUMNS])


@settings(max_examples=250)
@given(cases() | random_cases(), allreduces)
def test_both_engines_and_the_twin_agree_on_rendezvous(case, allreduce):
    """Every time of every operation, and which tables never end."""
    schedule, costs = case
    graph = compile_graph(schedule, "rendezvous", allreduce)
    path, events = (times_or_refusal(run, graph, costs) for run in (run_graph, run_events))
    if isinstance(path, tuple) or isinstance(events, tuple):
        assert path == events
    else:
        np.testing.assert_allclose(path, events, rtol=0, atol=1e-9, equal_nan=True)
    twin = rendezvous_times(schedule, costs, allreduce)
    assert (twin is None) == isinstance(path, tuple)
    for column, times_s in zip(path[1:], twin or (), strict=False):
        expected = [times_s.get(op, np.nan) for op in named(schedule)]
        np.testing.assert_allclose(column, expected, rtol=0, atol=1e-9, equal_nan=True)


@st.composite
def delayed_cases(draw):
    """A case and the delays of some directed links; half of all cases have costs of half seconds, which make ties."""
    schedule, costs = draw(cases() | random_cases())
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ends = [(a, b) for a in range(schedule.num_ranks) for b in range(schedule.num_ranks) if a != b]
    delays = {pair: float(random.integers(0, 9)) / 2 for pair in ends if random.random() < 0.3}
    if draw(st.booleans()):
        halves = {name: np.round(2 * getattr(costs, name)) / 2 for name in ("compute_s", "occupancy_s", "latency_s")}
        costs = replace(costs, **halves, overlap_factor=1.0, pairs=None)
    return schedule, costs, delays


def with_delays(schedule, costs, delays):
    """Costs with the delays of links, by sender and receiver."""
    links = [Link(*ends, both_ways=False, delay_s=delay) for ends, delay in delays.items()]
    delay_s, _ = link_values(links, schedule.placement, receivers(schedule))
    latency_s = (costs.latency_s if costs.latency_s.ndim == 3 else costs.latency_s[:, None]) + delay_s
    return replace(costs, latency_s=latency_s, delay_s=delay_s)


@settings(max_examples=250)
@given(delayed_cases(), allreduces)
def test_both_engines_and_the_twin_agree_on_streams(case, allreduce):
    """Every time of every operation, for all schedules and for tables by chance; none of them deadlocks."""
    schedule, costs, delays = case
    graph, delayed = compile_graph(schedule, "streams", allreduce), with_delays(*case)
    with using(True):
        path, events = (np.stack([getattr(run(graph, delayed), c) for c in COLUMNS]) for run in (run_graph, run_events))
    with using(False):
        plain = run_graph(graph, delayed)
    np.testing.assert_array_equal(path, events)
    np.testing.assert_array_equal(path, np.stack([getattr(plain, column) for column in COLUMNS]))
    for column, times_s in zip(path[1:], streams_times(schedule, costs, delays, allreduce), strict=True):
        expected = [times_s.get(op, np.nan) for op in named(schedule)]
        np.testing.assert_allclose(column, expected, rtol=0, atol=1e-9, equal_nan=True)


@given(delayed_cases())
def test_streams_wait_at_least_as_long_as_messages_take(case):
    """They are never faster than `latency`, and never faster with more of anything: their order does not change."""
    schedule, costs, delays = case
    costs = with_delays(schedule, costs, delays)
    base, latency = (run_graph(compile_graph(schedule, p2p), costs).makespan_s for p2p in ("streams", "latency"))
    assert base >= latency - 1e-9
    for name in ("compute_s", "occupancy_s", "latency_s"):
        slower = replace(costs, **{name: getattr(costs, name) + 0.3})
        assert run_graph(compile_graph(schedule, "streams"), slower).makespan_s >= base - 1e-9
    longer = with_delays(schedule, case[1], {ends: delay + 0.5 for ends, delay in delays.items()})
    assert run_graph(compile_graph(schedule, "streams"), longer).makespan_s >= base - 1e-9


def test_a_rendezvous_holds_both_ends_once():
    """One microbatch on two ranks: a transfer counts once, where `blocking` counts it twice."""
    schedule = build("gpipe", 2, 1)
    costs = uniform_costs(schedule, forward=1, backward=2, comm=0.5)
    times = [run_graph(compile_graph(schedule, p2p), costs).makespan_s for p2p in ("rendezvous", "blocking")]
    assert times == [7.0, 8.0]


def test_a_sender_waits_for_its_receiver():
    """A forward that is not awaited yet keeps its rank from the next one; to and fro go at the same time."""
    schedule = parse_table("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1")
    timeline = run_graph(compile_graph(schedule, "rendezvous"), uniform_costs(schedule, 1, 3, comm=0.5))
    assert timeline.start_s.tolist() == [0, 1.5, 6, 10.5, 1.5, 2.5, 6, 7]
    assert timeline.sent_s[[1, 5]].tolist() == [5.5, 5.5]  # 0F1 waits from 2.5 on


DEADLOCKS = {
    "interleaved-1f1b": "rank 0 sends 0F3 to rank 1, rank 1 sends 1F2 to rank 2, rank 2 sends 2F1 to rank 3, "
    "rank 3 sends 3F0 to rank 0",
    "crossed": "rank 0 sends 0F0 to rank 1, rank 1 receives 0F1 from rank 0",
}


@pytest.mark.parametrize("name", DEADLOCKS)
@pytest.mark.parametrize("run", [run_graph, run_events])
def test_ranks_that_wait_in_a_circle_are_shown(run, name):
    """Tables that run where messages wait: one line names the circle, and the grid marks where each rank waits."""
    schedule = parse_table(BY_HAND[name]) if name in BY_HAND else build(name, 4, 4)
    with refused(TableError, "rank 0", "never ends under p2p = rendezvous") as caught:
        run(compile_graph(schedule, "rendezvous"), uniform_costs(schedule, 1, 2))
    assert DEADLOCKS[name] in caught.value.why
    lines = str(caught.value.grid).splitlines()
    assert len(lines) == schedule.num_ranks
    assert all(line.count(">") == 1 for line in lines)


def test_a_deadlock_beside_reductions_is_shown():
    """A reduction waits for its replica on a rank that never comes to it: one of the ranks that wait is shown."""
    schedule = parse_table("2F0 2B0 1F1@1 2R 1B1@1 1R@1\n0F0 0B0 2F1@1 2B1@1 2R@1 0R\n0F1@1 1F0 1B0 1R 0B1@1 0R@1")
    with refused(TableError, "rank 0", "never ends under p2p = rendezvous") as caught:
        run_graph(compile_graph(schedule, "rendezvous", "overlapped"), uniform_costs(schedule, 1, 2))
    assert "rank 0 receives 1F0 from rank 2, rank 2 sends 0F1@1 to rank 0" in caught.value.why


@st.composite
def queueing_cases(draw):
    """A case on links or on NICs that ranks share, most often with costs of half seconds, which make ties."""
    schedule, costs = draw(cases() | random_cases())
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    p2p, nics = (
        draw(st.sampled_from(["overlapped", "overlapped_nic"])),
        random.integers(0, 3, schedule.num_ranks).tolist(),
    )
    if draw(st.booleans()):
        nics = range(schedule.num_ranks) if p2p == "overlapped_nic" else None
    if draw(st.sampled_from([True, True, False])):
        names = "compute_s", "occupancy_s", "latency_s"
        halves = {name: np.round(2 * getattr(costs, name)) / 2 for name in names}
        costs = replace(costs, **halves, overlap_factor=1.0, pairs=None)
    return schedule, replace(costs, nics=nics and tuple(nics)), p2p


@settings(max_examples=200)
@given(queueing_cases(), allreduces, st.booleans())
def test_ties_at_links_and_nics_are_broken_by_the_written_rule(case, allreduce, compiled):
    """The event queue, plain and compiled, and a simulator that knows only rows, places and the rule."""
    schedule, costs, p2p = case
    with using(compiled):
        timeline = run_events(compile_graph(schedule, p2p, allreduce), costs)
    times = queue_times(schedule, costs, order_of(timeline.graph), allreduce)
    for column, times_s in zip(("end_s", "sent_s", "arrived_s"), times, strict=True):
        expected = [times_s.get(op, np.nan) for op in named(schedule)]
        np.testing.assert_allclose(getattr(timeline, column), expected, rtol=0, atol=1e-9, equal_nan=True)


def assert_like_twin(schedule, costs, p2p, allreduce="excluded"):
    timeline = run_graph(compile_graph(schedule, p2p, allreduce), costs)
    holds, order = (p2p, allreduce) == ("overlapped", "overlapped_links"), order_of(timeline.graph)
    ends = (
        queue_times(schedule, costs, order, allreduce)[0] if holds else end_times(schedule, costs, p2p, None, allreduce)
    )
    expected = [ends.get(op, np.nan) for op in named(schedule)]
    np.testing.assert_allclose(timeline.end_s, expected, rtol=0, atol=1e-9, equal_nan=True)


BY_HAND = {
    "pairs and halves": "0F0 0F1 0F2&0I0 0W0&0I1 0W1 0B2\n1F0 1I0 1F1&1W0 1I1 1F2&1W1 1B2",
    "late weights": "0F0 0F1 0F2 0I0 0I1 0I2 0W2 0W0 0W1\n1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2",
    "whole above halves": "0F0 0I0 0F1 0W0 0B1\n1F0 1B0 1F1 1I1 1W1",
    "crossed": "0F0 0F1 0B0 0B1\n1F1 1F0 1B1 1B0",
}


@pytest.mark.parametrize("name", BY_HAND)
@pytest.mark.parametrize("p2p", BUFFERED)
def test_engines_agree_on_tables_by_hand(p2p, name):
    """Cells of two operations with two messages, backwards in halves, weights long after their inputs."""
    schedule = parse_table(BY_HAND[name])
    random = np.random.default_rng(5)
    costs = OpCosts(*(random.uniform(0.1, 2, (6, 2)) for _ in range(3)), overlap_factor=0.7)
    graph = compile_graph(schedule, p2p)
    path, events = run_graph(graph, costs), run_events(graph, costs)
    for column in COLUMNS:
        np.testing.assert_allclose(getattr(path, column), getattr(events, column), atol=1e-12, equal_nan=True)
    assert_like_twin(schedule, costs, p2p)


@pytest.mark.parametrize("p2p", P2P)
def test_transfers_take_their_time(p2p):
    """Every transfer begins when its producer has ended or later, and lasts what it costs, or twice that."""
    schedule = build("1f1b", 4, 6)
    timeline = run_graph(compile_graph(schedule, p2p), uniform_costs(schedule, 1, 2, comm=0.25, latency=0.125))
    source = schedule.dependencies.source[schedule.dependencies.remote]
    sent, arrived = timeline.sent_s[source], timeline.arrived_s[source]
    assert (sent >= timeline.end_s[source] - 1e-12).all()
    assert (arrived <= timeline.start_s[schedule.dependencies.remote] + 1e-12).all()
    least = 2 * 0.375 if p2p == "blocking" else 0.375
    assert (arrived - sent >= least - 1e-12).all()
    if p2p not in ("blocking", "overlapped_nic"):
        np.testing.assert_allclose(arrived - sent, least)


@given(cases(), p2ps, allreduces, st.floats(0.1, 10))
def test_time_scales_with_costs(case, p2p, allreduce, factor):
    """Costs that are k times as large take k times as long."""
    schedule, costs = case
    graph = compile_graph(schedule, p2p, allreduce)
    scaled = replace(
        costs,
        compute_s=factor * costs.compute_s,
        occupancy_s=factor * costs.occupancy_s,
        latency_s=factor * costs.latency_s,
    )
    assert run_graph(graph, scaled).makespan_s == pytest.approx(factor * run_graph(graph, costs).makespan_s)


@given(cases(), p2ps)
def test_higher_costs_never_save_time(case, p2p):
    """A longer operation or a slower link never ends an iteration earlier."""
    schedule, costs = case
    graph = compile_graph(schedule, p2p)
    base = run_graph(graph, costs).makespan_s
    for name in ("compute_s", "occupancy_s", "latency_s"):
        slower = replace(costs, **{name: getattr(costs, name) + 0.3})
        assert run_graph(graph, slower).makespan_s >= base - 1e-9


@given(cases())
def test_semantics_are_ordered(case):
    """A link that is held costs no less than one that is not, and a blocked rank no less than a free one."""
    schedule, costs = case
    time = {p2p: run_graph(compile_graph(schedule, p2p), costs).makespan_s for p2p in BUFFERED}
    assert time["latency"] <= time["overlapped"] + 1e-9
    assert time["latency"] <= time["blocking_send"] + 1e-9
    assert time["latency"] <= time["blocking_recv"] + 1e-9
    assert max(time["blocking_send"], time["blocking_recv"]) <= time["blocking"] + 1e-9


@given(cases())
def test_without_communication_semantics_do_not_matter(case):
    """Free transfers give one time where no sender waits, and the idealised table's where costs are whole."""
    schedule, costs = case
    silent = replace(costs, occupancy_s=0 * costs.occupancy_s, latency_s=0 * costs.latency_s)
    times = [run_graph(compile_graph(schedule, p2p), silent).makespan_s for p2p in BUFFERED]
    assert times == pytest.approx([times[0]] * len(BUFFERED))
    ones = np.repeat([[1.0], [2.0], *[[1.0]] * 4, *[[0.0]] * 4], schedule.num_stages, axis=1)
    plain = OpCosts(ones, 0 * ones, 0 * ones)
    assert run_graph(compile_graph(schedule), plain).makespan_s == schedule.slots(reduction=0, optimizer=0)[1].max()


@given(cases())
def test_allreduces_cost_in_order(case):
    """Leaving the all-reduce out is fastest; beside the computation it costs at most what it costs in front."""
    schedule, costs = case
    assume(not schedule.gathers)  # a gather waits for reductions before it
    times = [run_graph(compile_graph(schedule, allreduce=how), costs).makespan_s for how in APART]
    assert times[0] <= times[1] + 1e-9
    assert times[1] <= times[2] + 1e-9


@given(cases(), p2ps, allreduces)
def test_many_systems_at_once_are_as_one_by_one(case, p2p, allreduce):
    """The makespans of a batch are those of its members."""
    schedule, costs = case
    graph = compile_graph(schedule, p2p, allreduce)
    many = [costs, replace(costs, compute_s=2 * costs.compute_s), replace(costs, overlap_factor=0.5)]
    expected = [run_graph(graph, one).makespan_s for one in many]
    np.testing.assert_allclose(makespans(graph, many), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "p2p"), [("interleaved-1f1b", "overlapped"), ("chimera", "latency"), ("1f1b", "rendezvous")]
)
def test_costs_in_one_array_take_as_long_as_one_by_one(name, p2p):
    """To the last bit, whatever the schedule, with an iteration's end, and for more systems than go side by side."""
    graph = compile_graph(build(name, 4, 8).with_step(), p2p, "blocking")
    tables = np.random.default_rng(1).uniform(0.1, 2, (70, 3, 6, graph.schedule.num_stages))
    expected = [run_graph(graph, OpCosts(*table)).makespan_s for table in tables]
    assert makespans(graph, tables).tolist() == expected


def test_a_transfer_occupies_what_its_semantics_says():
    """Two stages, two forwards of 1 and transfers of 3 + latency 0.5: when the second forward arrives."""
    schedule = build("gpipe", 2, 2)
    costs = uniform_costs(schedule, forward=1, backward=1, comm=3, latency=0.5)
    second = int(np.flatnonzero((schedule.kind == OpKind.F) & (schedule.stage == 1) & (schedule.microbatch == 1))[0])
    starts = {p2p: run_graph(compile_graph(schedule, p2p), costs).start_s[second] for p2p in P2P}
    assert starts == {
        "latency": 2 + 3.5,  # ends at 2, arrives 3.5 later
        "overlapped": 4 + 3.5,  # the link is free again at 1 + 3
        "blocking_send": 1 + 3.5 + 1 + 3.5,  # the rank sends for 3.5 before it computes again
        "blocking_recv": 1 + 3.5 + 1 + 3.5,  # the rank receives for 3.5, computes 1, receives for 3.5
        "blocking": 1 + 3.5 + 1 + 3.5 + 3.5,  # sent at 9, then received
        "overlapped_nic": 4 + 3.5,  # of two ranks, as the link
        "rendezvous": 1 + 3.5 + 1 + 3.5,  # both ranks are held for 3.5, each time
        "streams": 1 + 3.5 + 3.5,  # the first holds both ranks' streams until it has arrived
    }


def test_a_delay_holds_back_what_is_issued_behind_it():
    """Two stages, three forwards: under `streams` the sender's next forward starts when the delayed send is posted."""
    schedule = parse_table("0F0 0F1 0F2 0B0 0B1 0B2\n1F0 1F1 1F2 1B0 1B1 1B2")
    costs = with_delays(schedule, uniform_costs(schedule, 1, 1, comm=0.5), {(0, 1): 4.0})
    timeline = run_graph(compile_graph(schedule, "streams"), costs)
    assert timeline.start_s[:3].tolist() == [0, 5, 10]  # 0F0 is posted at 1 + 4, and 0F1 at 6 + 4
    assert timeline.sent_s[:3].tolist() == [5, 10, 15]
    assert timeline.start_s[6:9].tolist() == [5.5, 10.5, 15.5]
    held = run_graph(compile_graph(schedule, "latency"), costs)
    assert held.start_s[:3].tolist() == [0, 1, 2]


def test_of_two_messages_due_at_once_both_ends_issue_the_lower_ranks_first():
    """The fourth forward and the first backward are planned to end together; there is one order for both ranks."""
    schedule = parse_table("0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3\n1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3")
    graph = compile_graph(schedule, "streams")
    issued = graph.issued[0]
    messages = [str(schedule.op(graph.index[-1 - entry])) for entry in issued if entry < 0]
    assert messages == ["0F0", "0F1", "0F2", "0F3", "1B0", "1B1", "1B2", "1B3"]


def test_overlapped_reductions_run_beside_and_blocking_ones_in_order():
    """The gradient all-reduces of Chimera's two replicas start together, on their own stream or on the ranks."""
    schedule = build("chimera", 4, 4)
    costs = uniform_costs(schedule, 1, 2, reduction=3)
    excluded, overlapped, blocking = (run_graph(compile_graph(schedule, allreduce=how), costs) for how in APART)
    assert np.isnan(excluded.end_s[schedule.kind == OpKind.R]).all()
    assert overlapped.makespan_s == excluded.makespan_s + 3
    compute = schedule.kind != OpKind.R
    np.testing.assert_array_equal(overlapped.end_s[compute], excluded.end_s[compute])
    assert blocking.makespan_s > overlapped.makespan_s
    for stage in range(4):
        starts = blocking.start_s[(schedule.kind == OpKind.R) & (schedule.stage == stage)]
        assert np.ptp(starts) == 0


def test_times_that_no_number_holds_are_refused():
    """Durations beyond what sums and ratios can hold, and factors that take them there, are errors, not answers."""
    schedule = build("gpipe", 4, 4)
    for field, bad in (("forward", 1e31), ("comm", 5e-324), ("backward", float("nan"))):
        with refused(CostError, field, "must be 0, or from 1e-30"):
            uniform_costs(schedule, **{"forward": 1, "backward": 2} | {field: bad})
    costs = uniform_costs(schedule, 1e30, 1e30)
    with refused(CostError, "makespan", "must be finite", value="inf"):
        run_graph(compile_graph(schedule), costs, np.full(schedule.num_operations, 1e300))


@pytest.mark.parametrize(("field", "value"), [("p2p", "telepathy"), ("allreduce", "maybe")])
def test_unknown_semantics_are_refused(field, value):
    """A semantics that does not exist is refused with those that do."""
    with refused(PPModelError, field, "must be one of", value):
        compile_graph(build("gpipe", 2, 2), **{field: value})


@pytest.mark.parametrize("run", [run_graph, run_events])
def test_costs_and_factors_must_fit_the_schedule(run):
    """Those of other stages, replicas or operations would be read from elsewhere."""
    graph, ones = compile_graph(build("gpipe", 2, 2)), np.ones((6, 2))
    for shape, field in (((5, 2), "shape of occupancy_s"), ((6, 3), "shape of occupancy_s"), ((6, 3, 2), "costs")):
        with refused(CostError, field):
            run(graph, OpCosts(ones, np.ones(shape), ones))
    with refused(CostError, "costs", "must have 2 stages"):
        run(graph, OpCosts(*np.ones((3, 6, 3))))
    with refused(CostError, "factors", "one number for each operation"):
        run(graph, OpCosts(ones, ones, ones), np.ones(3))
