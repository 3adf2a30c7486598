"""Operations that need several results, and results that several ranks need."""

from dataclasses import replace

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import cases

from ppmodel import build
from ppmodel.errors import TableError
from ppmodel.loops.compiled import using
from ppmodel.ops import OpKind
from ppmodel.simulation import BUFFERED, P2P, compile_graph, makespans, run_events, run_graph, uniform_costs
from ppmodel.tables.dependencies import Dependencies, frozen, in_levels
from ppmodel.tables.further import direct


def with_further(schedule, takers, makers):
    """A table some of whose operations wait for further results, by indices of operations."""
    before, further = schedule.dependencies, np.array([takers, makers])
    if before.further is not None:
        further = np.append(before.further, further, axis=1)
    level, order = in_levels(before.source, before.group, schedule.rank, schedule.num_ranks, further)
    assert level.min() >= 0
    table = replace(schedule)
    table.__dict__["dependencies"] = frozen(Dependencies(*before[:3], order.astype(np.int32), further))
    return table


def graph_of(table, p2p):
    """Its graph, as after a first run, which could take the table itself."""
    graph = compile_graph(table, p2p)
    graph.is_used = True
    return graph


def test_an_operation_waits_for_the_end_of_further_results():
    """The first backward needs each rank's next forward, and these need the last stage's; nothing is sent for that."""
    schedule = build("gpipe", 3, 2)  # forwards of 1, backwards of 2, transfers of 0.5
    index = {str(schedule.op(at)): at for at in range(schedule.num_operations)}
    takers, makers = ("0F1", "1F1", "2B0", "2B0"), ("2F0", "2F0", "0F1", "1F1")
    table = with_further(schedule, *([index[op] for op in ops] for ops in (takers, makers)))
    for p2p in ("latency", "overlapped"):
        start = run_graph(graph_of(table, p2p), uniform_costs(schedule, 1, 2, 0.5)).start_s
        assert [start[index[op]] for op in ("2F0", "0F1", "1F1", "2F1", "2B0", "2B1")] == [3, 4, 5.5, 7, 8, 10]


def end_times(schedule, further, costs, p2p, late):
    """When each operation ends, each rank doing one after the other; receives and sends in the order of the graph.

    Some results reach some operations later than they end, in seconds, by both.
    """
    rank = schedule.rank
    needed = {op: [maker] if maker >= 0 else [] for op, maker in enumerate(schedule.dependencies.source)}
    pairs = list(zip(*further, strict=True))
    awaited = {op: [maker for taker, maker in pairs if taker == op] for op in needed}
    for op in needed:  # a barrier sends no message
        if (rank[op] != rank[needed[op]]).any() and not schedule.dependencies.remote[op]:
            awaited[op], needed[op] = awaited[op] + needed[op], []
    place = {op: place for place, op in enumerate(schedule.dependencies.order.tolist())}
    compute, *transfer = (table[schedule.cost_class] for table in costs.by_class(1))
    whole, end, there, clock, links = sum(transfer), {}, {}, {}, {}
    for op in place:
        here, now = rank[op], clock.get(rank[op], 0.0)
        for maker in sorted(set(needed[op]), key=place.get):
            if rank[maker] == here:
                now = max(now, end[maker])
            elif there.get((maker, here)) is not None:
                now = max(now, there.pop((maker, here))) + (whole[maker] if p2p in ("blocking_recv", "blocking") else 0)
        there_s = [end[maker] + late.get((op, maker), 0.0) for maker in awaited[op]]
        clock[here] = end[op] = max([now, *there_s]) + compute[op]
        takers = sorted((taker for taker in needed if op in needed[taker]), key=place.get)
        for other in dict.fromkeys(rank[taker] for taker in takers if rank[taker] != here):
            leaves = end[op]
            if p2p in ("blocking_send", "blocking"):
                clock[here] = leaves = clock[here] + whole[op]
            elif p2p == "overlapped":
                links[here, other] = max(leaves, links.get((here, other), 0.0)) + transfer[0][op]
                leaves = links[here, other] + transfer[1][op]
            there[op, other] = leaves + whole[op] if p2p == "latency" else leaves
    return np.array([end[op] for op in range(schedule.num_operations)])


@given(cases(), st.sampled_from(P2P), st.data())
def test_operations_wait_for_all_that_they_need(case, p2p, data):
    """By both engines, compiled and plain, of one system and of many, as by a plain simulator."""
    schedule, costs = case
    assume(schedule.num_replicas == 1 and not schedule.joined.any() and schedule.computes.all())
    order = schedule.dependencies.order.tolist()
    pairs = st.lists(st.integers(0, len(order) - 1), min_size=2, max_size=2, unique=True).map(sorted)
    some = data.draw(st.lists(pairs.map(tuple), min_size=1, max_size=12, unique=True))
    makers, takers = ([order[place] for place in places] for places in zip(*some, strict=True))
    table = with_further(schedule, takers, makers)
    graph, times = graph_of(table, p2p), []
    for compiled in (False, True):
        with using(compiled):
            try:
                times.append([run(graph, costs).end_s for run in (run_graph, run_events)])
            except TableError:  # ranks that send to each other deadlock
                assume(p2p != "rendezvous")
                raise
    np.testing.assert_array_equal(*times)
    np.testing.assert_allclose(*times[0], rtol=1e-12)
    with using(True):
        assert makespans(graph, [costs, costs]).tolist() == [times[0][0].max()] * 2
    if p2p in BUFFERED:
        inputs = [(op, maker) for op in order for maker in direct(op, table.dependencies.further, len(order))]
        at_once, taken_s = {*zip(*table.dependencies.further, strict=True)}, costs.occupancy_s + costs.latency_s
        passed = {(op, maker): schedule.op(maker) for op, maker in inputs if (op, maker) not in at_once}
        last = {OpKind.F: schedule.num_stages - 1, OpKind.S: schedule.num_ranks - 1, OpKind.T: schedule.num_ranks - 1}
        late = {pair: taken_s[op.kind, last[op.kind]] for pair, op in passed.items()}
        ends = end_times(table, zip(*inputs, strict=True), costs, p2p, late)
        np.testing.assert_allclose(times[0][0], ends, rtol=1e-12)
