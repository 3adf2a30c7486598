"""Simulated time by the longest path through the compiled graph, in its order, for one system or for many."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ppmodel.costs import OpCosts, are_seconds, side_by_side, with_pairs
from ppmodel.kernels.copies import brought_back, copied_out
from ppmodel.kernels.paths import longest_path
from ppmodel.kernels.sweep import sweep
from ppmodel.ops import OpKind
from ppmodel.simulation import checks
from ppmodel.simulation.events import run_events
from ppmodel.simulation.streams import posted_timeline
from ppmodel.simulation.timeline import Timeline
from ppmodel.tables import NO_OPERATION
from ppmodel.tables.slots import sweep_of
from ppmodel.tables.steps import step_times

_SIDE_BY_SIDE, _FEWER, _MANY_CLASSES = 64, 32, 1000
"""Systems that the compiled loop takes at once; fewer if their costs would not fit in the cache."""

_NO_ENDS = np.empty(0, dtype=np.uint8)


def run_graph(graph, costs, factors=None):
    """Simulate by the longest path through the graph, in one pass in topological order.

    If links share a side of a NIC, or reductions occupy links, there is no such path, and `run_events` takes over.

    Parameters
    ----------
    graph : ExecutionGraph
    costs : OpCosts
    factors : ndarray of float, shape (num_operations,), optional
        Factors on the durations of operations, in the order of the schedule's arrays; for jitter and slow ranks.

    Returns
    -------
    Timeline

    Raises
    ------
    CostError
        If the costs are for a different number of stages or replicas, the factors for a different number of operations,
        or times overflow.
    TableError
        If ranks deadlock under ``rendezvous``.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> from ppmodel.simulation import compile_graph
    >>> schedule = build("1f1b", 4, 8)
    >>> run_graph(compile_graph(schedule), uniform_costs(schedule, forward=1, backward=2)).makespan_s
    33.0
    """
    graph = graph.on(costs.nics)
    if graph.dynamic:
        return run_events(graph, costs, factors)
    checks.check_fit(graph, costs, factors)
    if graph.meets:
        timeline = posted_timeline(graph, costs, factors)
    elif factors is None and graph.nics is None and not (costs.handed or costs.offload) and graph.first_use():
        timeline = _swept(graph, costs) or _timeline(graph, costs, factors)
    else:
        timeline = _timeline(graph, costs, factors)
    checks.refuse_overflow(timeline.makespan_s)
    return timeline


def _swept(graph, costs):
    """The timeline directly from the table; None if a graph is needed."""
    table = graph.schedule
    compiled = sweep.compiled(table.num_operations)
    if not compiled:
        return None
    times, tables, reduces = np.empty((2, table.num_operations)), costs.by_class(table.num_replicas), graph.allreduce
    how = float(costs.overlap_factor), graph.occupied, reduces != "excluded", times
    spans = sweep_of(table, compiled, tables, *how, shares=costs.pair_shares(table) if costs.pairs else None)
    if spans[0] < 0:
        return None
    steps_s = checks.step_lengths(table, costs)
    return Timeline(graph, times, lambda: run_graph(graph, costs).transfers(), steps_s, spans[:2])


def _timeline(graph, costs, factors):
    """The timeline of one system, by the compiled loop or its plain twin."""
    shares, compiled = checks.shares_of(graph, costs), longest_path.compiled(graph.schedule.num_operations)
    if not compiled:
        columns = *checks.durations(graph, costs, factors), costs.overlap_factor, shares
        return checks.filled_timeline(
            graph, costs, factors, lambda *filled: plain_longest_path(graph, *columns, *filled)
        )

    plan, steps_s = checks.plan_of(graph, costs), checks.step_lengths(graph.schedule, costs, factors)
    copied = plan and np.full((4, graph.num_operations), np.nan)
    if factors is not None:
        instructions, tables = graph.instructions_by_operation, checks.durations(graph, costs, factors)
    elif costs.pairs:
        tables = costs.by_class(graph.schedule.num_replicas)
        instructions, tables = graph.instructions_by_pair, with_pairs(tables, graph.schedule, [costs])
    else:
        instructions, tables = graph.instructions, costs.by_class(graph.schedule.num_replicas)
    tables = tuple(table.reshape(-1, 1) for table in tables)

    def path(num_columns):
        times, factor = np.empty((num_columns, graph.num_operations)), np.full(1, float(costs.overlap_factor))
        how = graph.occupied, _NO_ENDS, times, shares, plan and plan[:-1], copied
        compiled(*instructions, tables, factor, *how)
        return times

    times = path(4 if plan or shares is not None else 2)
    transfers = (lambda: times[2:]) if len(times) == 4 else (lambda: path(4)[2:])
    return Timeline(graph, times[:2], transfers, steps_s, copies=plan and (plan, copied))


class Iterations(NamedTuple):
    """When the parts of an iteration end, under many costs, in seconds.

    Parameters
    ----------
    makespan_s : ndarray of float, shape (n,)
        The whole iteration, with included reductions and optimizer steps.
    reduced_s : ndarray of float, shape (n,)
        When all gradients are summed and the optimizer steps start; the makespan if there are no steps.
    span_s : ndarray of float, shape (n,)
        The longest time of a rank from the start of its first to the end of its last forward or backward.
    """

    makespan_s: np.ndarray
    reduced_s: np.ndarray
    span_s: np.ndarray


def makespans(graph, costs):
    """Compute the makespans of many systems on one graph; as `iterations`, without spans.

    Returns
    -------
    ndarray of float, shape (n,)
        In seconds.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> from ppmodel.simulation import compile_graph
    >>> schedule = build("gpipe", 4, 8)
    >>> many = [uniform_costs(schedule, forward=1, backward=2, comm=c) for c in (0, 1)]
    >>> makespans(compile_graph(schedule), many).tolist()
    [33.0, 39.0]
    >>> makespans(compile_graph(schedule), np.ones((2, 3, 6, 4))).tolist()
    [34.0, 34.0]
    """
    return iterations(graph, costs, spans=False).makespan_s


def iterations(graph, costs, spans=True):
    """Compute when the parts of an iteration end, for many systems in one pass, or one by one where that is needed.

    Parameters
    ----------
    graph : ExecutionGraph
    costs : sequence of OpCosts, or ndarray of float, shape (n, 3, 6, num_stages)
        An array has compute, occupancy and latency of each system.
    spans : bool
        Whether to compute `span_s`.

    Returns
    -------
    Iterations
        The same times as those of each `Timeline`; what is not computed is 0.

    Raises
    ------
    CostError
        As for `run_graph`.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> from ppmodel.simulation import compile_graph
    >>> schedule = build("gpipe", 4, 8).with_step()
    >>> many = [uniform_costs(schedule, 1, 2, comm=c, reduction=2, optimizer=0.5) for c in (0, 1)]
    >>> parts = iterations(compile_graph(schedule, allreduce="blocking"), many)
    >>> [times.tolist() for times in (parts.span_s, parts.reduced_s, parts.makespan_s)]
    [[33.0, 39.0], [35.0, 41.0], [35.5, 41.5]]
    """
    schedule, stacked = graph.schedule, isinstance(costs, np.ndarray)
    if stacked and not (costs.shape[-1] == schedule.num_stages and schedule.num_replicas == 1 and are_seconds(costs)):
        costs, stacked = [OpCosts(*tables) for tables in costs], False
    if not stacked:
        costs = list(costs)
        if len(costs) > 1 and any(system.nics is not None for system in costs):
            return _by_nics(graph, costs, spans)
        graph = graph.on(costs[0].nics) if costs else graph
        for system in costs:
            checks.check_fit(graph, system)
    apart = not stacked and any(system.handed or system.offload for system in costs)
    if not (apart or graph.meets or graph.dynamic):
        swept = not stacked and len(costs) == 1 and graph.nics is None and graph.first_use() and _swept(graph, *costs)
        if swept:
            return _parts_of([swept], spans)
        compiled = longest_path.compiled(schedule.num_operations * len(costs))
        if compiled:
            return _side_by_side(graph, compiled, costs, spans)
    systems = (OpCosts(*tables) for tables in costs) if stacked else costs
    return _parts_of((run_graph(graph, system) for system in systems), spans, len(costs))


def _side_by_side(graph, compiled, costs, spans):
    """`iterations` by the compiled loop, some systems at once."""
    schedule, parts = graph.schedule, Iterations(*np.zeros((3, len(costs))))
    ends = graph.ends_by_operation if spans else _NO_ENDS
    at_once = _SIDE_BY_SIDE if len(OpKind) * schedule.placement.size < _MANY_CLASSES else _FEWER
    steps, lengths = schedule.steps, np.empty((len(schedule.steps), len(costs)))
    for first in range(0, len(costs), at_once):
        here, some = slice(first, first + at_once), costs[first : first + at_once]
        instructions, factors = graph.instructions, np.ones(len(some))
        if isinstance(costs, np.ndarray):
            tables = np.ascontiguousarray(some.reshape(len(some), 3, -1).transpose(1, 2, 0))
        else:
            tables, factors[:] = side_by_side(some, schedule.num_replicas), [s.overlap_factor for s in some]
            if any(system.pairs for system in costs):
                tables, instructions = with_pairs(tables, schedule, some), graph.instructions_by_pair
        times = compiled(*instructions, tuple(tables), factors, graph.occupied, ends, None, None, None, None)
        parts.reduced_s[here], parts.span_s[here] = times
        if len(steps):
            lengths[:, here] = tables[0][schedule.cost_class[steps]]
    parts.makespan_s[:] = parts.reduced_s
    if len(steps):
        np.max(step_times(schedule, parts.reduced_s, lengths)[1], axis=0, out=parts.makespan_s)
    checks.refuse_overflow(parts.makespan_s.max(initial=0))
    return parts


def _parts_of(runs, spans, count=1):
    """`iterations` of one run after another, so that they take the same memory."""
    parts = Iterations(*np.zeros((3, count)))
    for place, run in enumerate(runs):
        checks.refuse_overflow(run.makespan_s)
        parts.makespan_s[place], parts.reduced_s[place] = run.makespan_s, run.reduced_s
        if spans:
            parts.span_s[place] = run.longest_span_s
    return parts


def _by_nics(graph, costs, spans):
    """`iterations` for costs on several topologies, with one pass per topology."""
    places = {}
    for place, system in enumerate(costs):
        places.setdefault(system.nics, []).append(place)
    parts = Iterations(*np.zeros((3, len(costs))))
    for nics, some in places.items():
        bare = [replace(costs[place], nics=None) for place in some]
        for column, times in zip(parts, iterations(graph.on(nics), bare, spans), strict=True):
            column[some] = times
    return parts


def plain_longest_path(graph, compute, occupancy, latency, overlap_factor, shares, times, copies, copied):
    """Fill in start and end of every operation, departure and arrival of its result, shape (4, num_operations).

    This is the slow twin of `kernels.paths.longest_path`: it reads the graph itself, and no instructions.

    `shares` are the fractions of its cell after which each result can be sent; `copies` and `copied` are as there.
    """
    compute, occupancy, latency = compute.tolist(), occupancy.tolist(), latency.tolist()
    stream, source, link = graph.stream.tolist(), graph.source.tolist(), graph.link.tolist()
    remote, reduces, overlaps = graph.remote.tolist(), graph.reduces.tolist(), graph.overlaps.tolist()
    sends, receives, queues = graph.occupied
    start, end, sent, arrived = ([math.nan] * graph.num_operations for _ in range(4))
    stream_free = [0.0] * (2 * graph.schedule.num_ranks)
    link_free = [0.0] * graph.num_links
    if copies is not None:
        copies = [column.tolist() for column in copies]
        seconds, (ended, out_free, in_free) = copies[0], np.zeros((3, len(stream_free))).tolist()

    for first, last in pairwise(graph.group_start.tolist()):
        ready = 0.0
        for op in range(first, last):
            ready = max(ready, stream_free[stream[op]])
            needed = source[op]
            if needed == NO_OPERATION:
                continue
            if not remote[op]:
                ready = max(ready, end[needed])
                continue
            ready = max(ready, arrived[needed])
            if receives:
                if not sends:
                    sent[needed] = ready
                ready = arrived[needed] = ready + (occupancy[needed] + latency[needed])

        if copies is not None:
            ready = max(ready, brought_back(first, last, stream, ended, *copies, in_free, copied))
        duration = max(compute[first:last])  # for a collective, the slowest participant's
        if last - first > 1 and not reduces[first]:
            duration = sum(compute[first:last]) * (overlap_factor if overlaps[first] else 1.0)
        finished = ready + duration
        for op in range(first, last):
            start[op], end[op] = ready, finished
            stream_free[stream[op]] = finished
            if copies is not None:
                ended[stream[op]] = finished
                copied_out(op, stream[op], finished, seconds, out_free, copied)

        for op in range(first, last):
            if link[op] == NO_OPERATION:
                continue
            sendable = finished if shares is None else ready + shares[op] * duration
            if sends:
                sent[op] = stream_free[stream[op]]
                arrived[op] = stream_free[stream[op]] = sent[op] + occupancy[op] + latency[op]
            elif receives:  # ready to be fetched; the receiver decides when
                sent[op] = arrived[op] = sendable
            elif queues:
                sent[op] = max(sendable, link_free[link[op]])
                link_free[link[op]] = sent[op] + occupancy[op]
                arrived[op] = link_free[link[op]] + latency[op]
            else:
                sent[op] = sendable
                arrived[op] = sendable + occupancy[op] + latency[op]
    times[:] = start, end, sent, arrived
