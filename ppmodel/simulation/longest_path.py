"""Simulated time by the longest path through the compiled graph, in its order."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ppmodel.compiled import kernels
from ppmodel.costs import OpCosts, are_seconds, side_by_side, with_pairs
from ppmodel.ops import OpKind
from ppmodel.simulation.checks import check_fit, durations, plan_of, refuse_overflow, shares_of, step_lengths
from ppmodel.simulation.copies import CopyStreams
from ppmodel.simulation.events import run_events
from ppmodel.simulation.rendezvous import rendezvous_times
from ppmodel.simulation.timeline import Timeline
from ppmodel.tables import NO_OPERATION
from ppmodel.tables.slots import sweep_of
from ppmodel.tables.steps import step_times

_SIDE_BY_SIDE, _FEWER, _MANY_CLASSES = 64, 32, 1000
"""Systems that the compiled engine evaluates on a graph at once; fewer if their costs would not fit in the cache."""

_MAKESPANS, _SPANS, _RANKS = range(3)
"""Levels of detail for many systems; each includes those before it."""


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
    check_fit(graph, costs, factors)
    timeline = _timeline(graph, costs, factors, step_lengths(graph.schedule, costs, factors))
    refuse_overflow(timeline.makespan_s)
    return timeline


def _timeline(graph, costs, factors, steps_s):
    if graph.meets:
        plan = plan_of(graph, costs)
        times, copied = rendezvous_times(graph, durations(graph, costs, factors), costs.overlap_factor, plan)
        return Timeline(graph, times[:2], lambda: times[2:], steps_s, copies=plan and (plan, copied))
    fast = kernels(graph.schedule.num_operations)
    if costs.handed or costs.offload:
        return _in_cells(graph, costs, factors, steps_s, fast)
    if not fast:
        times = _longest_path(graph, *durations(graph, costs, factors), costs.overlap_factor)
        return Timeline(graph, times[:2], lambda: times[2:], steps_s)
    if factors is None and graph.nics is None and graph.first_use():
        times, spans_s = _swept(graph, costs, fast)
        if spans_s[0] >= 0:
            return Timeline(graph, times, lambda: run_graph(graph, costs).transfers(), steps_s, spans_s)
    instructions, tables = _by_class(graph, costs) if factors is None else _by_operation(graph, costs, factors)

    def path(num_columns):
        times = np.empty((num_columns, graph.num_operations))
        fast.longest_path(*instructions, tables, float(costs.overlap_factor), graph.occupied, times, None, None)
        return times

    return Timeline(graph, path(2), lambda: path(4)[2:], steps_s)


def _in_cells(graph, costs, factors, steps_s, fast):
    """`_timeline` if results are sent before their cell ends, or activations are offloaded."""
    shares, plan = shares_of(graph, costs), plan_of(graph, costs)
    if fast:
        instructions, tables = _by_class(graph, costs) if factors is None else _by_operation(graph, costs, factors)
        times, copied = np.empty((4, graph.num_operations)), np.full((4, graph.num_operations), np.nan)
        copies = plan and (*plan.compiled, copied)
        how = float(costs.overlap_factor), graph.occupied, times
        fast.longest_path(*instructions, tables, *how, shares, copies)
    else:
        copies = plan and CopyStreams(plan, 2 * graph.schedule.num_ranks)
        times = _longest_path(graph, *durations(graph, costs, factors), costs.overlap_factor, shares, copies)
        copied = copies and copies.times_s
    return Timeline(graph, times[:2], lambda: times[2:], steps_s, copies=plan and (plan, copied))


def _by_class(graph, costs):
    """Instructions for the compiled engine, and the cost tables that they index."""
    tables = costs.by_class(graph.schedule.num_replicas)
    if not costs.pairs:
        return graph.instructions, tables
    return graph.instructions_by_pair, tuple(with_pairs(tables, graph.schedule, [costs]))


def _by_operation(graph, costs, factors):
    return graph.instructions_by_operation, durations(graph, costs, factors)


def _swept(graph, costs, fast):
    """Times in the table's order, makespan and longest span, directly from the table; None if a graph is needed."""
    table = graph.schedule
    times, tables = np.empty((2, table.num_operations)), costs.by_class(table.num_replicas)
    reduces = graph.allreduce != "excluded"
    how = float(costs.overlap_factor), graph.occupied, reduces, times
    found = sweep_of(table, fast, tables, *how, shares=costs.pair_shares(table) if costs.pairs else None)
    return times, found[:2]


def makespans(graph, many_costs):
    """Compute the makespans of many systems on one graph, in one pass, or one by one if `run_events` takes over.

    Parameters
    ----------
    graph : ExecutionGraph
    many_costs : sequence of OpCosts

    Returns
    -------
    ndarray of float, shape (len(many_costs),)
        In seconds.

    Raises
    ------
    CostError
        As for `run_graph`.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> from ppmodel.simulation import compile_graph
    >>> schedule = build("gpipe", 4, 8)
    >>> many = [uniform_costs(schedule, forward=1, backward=2, comm=c) for c in (0, 1)]
    >>> makespans(compile_graph(schedule), many).tolist()
    [33.0, 39.0]
    """
    return _evaluated(graph, list(many_costs), _MAKESPANS).makespan_s


def stacked_makespans(graph, tables):
    """`makespans` of many systems whose costs stand in one array, as `OpCosts.stacked` has them.

    Parameters
    ----------
    graph : ExecutionGraph
    tables : ndarray of float, shape (n, 3, 6, num_stages)
        Compute, occupancy and latency of each system, in seconds.

    Returns
    -------
    ndarray of float, shape (n,)
        In seconds.

    Raises
    ------
    CostError
        As for `run_graph`.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.simulation import compile_graph
    >>> stacked_makespans(compile_graph(build("gpipe", 4, 8)), np.ones((2, 3, 6, 4))).tolist()
    [34.0, 34.0]
    """
    schedule, fast = graph.schedule, kernels(graph.schedule.num_operations * len(tables))
    fits = tables.shape[-1] == schedule.num_stages and schedule.num_replicas == 1
    if graph.meets or graph.dynamic or not fast or not fits or not are_seconds(tables):
        return makespans(graph, [OpCosts.stacked(np.ascontiguousarray(one)) for one in tables])

    def block(some):
        return graph.instructions, np.ascontiguousarray(some.reshape(len(some), 3, -1).transpose(1, 2, 0)), 1.0

    return _side_by_side(graph, fast, tables, block, _MAKESPANS).makespan_s


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
    computed_s : ndarray of float, shape (num_ranks, n)
        When each rank has ended its last forward or backward.
    """

    makespan_s: np.ndarray
    reduced_s: np.ndarray
    span_s: np.ndarray
    computed_s: np.ndarray

    @property
    def pipeline_s(self):
        """The makespan of the pipeline alone: the end of the last forward or backward of any rank; shape (n,)."""
        return self.computed_s.max(axis=0)


def iterations(graph, many_costs, by_rank=True):
    """Like `makespans`, with the times at which the parts of the iteration end.

    Parameters
    ----------
    graph : ExecutionGraph
    many_costs : sequence of OpCosts
    by_rank : bool
        Whether to compute `computed_s`; a single system is faster without.

    Returns
    -------
    Iterations
        The same times as those of each `Timeline`.

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
    >>> found = iterations(compile_graph(schedule, allreduce="blocking"), many)
    >>> [times.tolist() for times in (found.pipeline_s, found.reduced_s, found.makespan_s)]
    [[33.0, 39.0], [35.0, 41.0], [35.5, 41.5]]
    """
    return _evaluated(graph, list(many_costs), _RANKS if by_rank else _SPANS)


def _evaluated(graph, many_costs, wanted):
    """`Iterations`; unrequested parts are 0."""
    if any(costs.nics is not None for costs in many_costs) and len(many_costs) > 1:
        return _by_nics(graph, many_costs, wanted)
    graph = graph.on(many_costs[0].nics) if many_costs else graph
    for costs in many_costs:
        check_fit(graph, costs)
    fast = kernels(graph.schedule.num_operations * len(many_costs))
    apart = any(costs.handed or costs.offload for costs in many_costs)
    if len(many_costs) == 1 or graph.meets or graph.dynamic or apart or not fast:
        return _one_by_one(graph, many_costs, wanted)
    in_pairs = any(costs.pairs for costs in many_costs)

    def block(some):
        tables, instructions = side_by_side(some, graph.schedule.num_replicas), graph.instructions
        if in_pairs:
            tables, instructions = with_pairs(tables, graph.schedule, some), graph.instructions_by_pair
        return instructions, tables, [float(costs.overlap_factor) for costs in some]

    return _side_by_side(graph, fast, many_costs, block, wanted)


def _side_by_side(graph, fast, systems, block, wanted):
    """`_evaluated` by the compiled engine; `block` gives the instructions, cost tables and overlap factors of some."""
    schedule, found = graph.schedule, _no_iterations(graph, len(systems))
    ends = graph.ends_by_operation if wanted else np.empty(0, dtype=np.uint8)
    at_once = _SIDE_BY_SIDE if len(OpKind) * schedule.placement.size < _MANY_CLASSES else _FEWER
    steps, lengths = schedule.steps, np.empty((len(schedule.steps), len(systems)))
    for first in range(0, len(systems), at_once):
        here = slice(first, first + at_once)
        instructions, tables, factors = block(systems[here])
        factors = np.full(tables.shape[-1], factors)
        times = fast.many_longest_paths(*instructions, tables, factors, graph.occupied, ends)
        found.reduced_s[here], found.span_s[here], found.computed_s[:, here] = times
        if len(steps):
            lengths[:, here] = tables[0, schedule.cost_class[steps]]
    found.makespan_s[:] = found.reduced_s
    if len(steps):
        np.max(step_times(schedule, found.reduced_s, lengths)[1], axis=0, out=found.makespan_s)
    refuse_overflow(found.makespan_s.max(initial=0))
    return found


def _no_iterations(graph, count):
    return Iterations(*np.zeros((3, count)), np.zeros((graph.schedule.num_ranks, count)))


def _one_by_one(graph, many_costs, wanted):
    found = _no_iterations(graph, len(many_costs))
    for place, costs in enumerate(many_costs):  # one after another, in the same memory
        _fill(found, place, run_graph(graph, costs), wanted)
    return found


def _fill(found, place, run, wanted):
    found.makespan_s[place], found.reduced_s[place] = run.makespan_s, run.reduced_s
    if wanted:
        found.span_s[place] = run.longest_span_s
    if wanted == _RANKS:
        found.computed_s[:, place] = run.computed_s


def _by_nics(graph, many_costs, wanted):
    """`_evaluated` for costs on several topologies, with one pass per topology."""
    places = {}
    for place, costs in enumerate(many_costs):
        places.setdefault(costs.nics, []).append(place)
    found = _no_iterations(graph, len(many_costs))
    for nics, some in places.items():
        bare = [replace(many_costs[place], nics=None) for place in some]
        for column, times in zip(found, _evaluated(graph.on(nics), bare, wanted), strict=True):
            column[..., some] = times
    return found


def _longest_path(graph, compute, occupancy, latency, overlap_factor, shares=None, copies=None):
    """Start and end of every operation, departure and arrival of its result, shape (4, num_operations).

    `shares` are the fractions of its cell after which each result can be sent; `copies` are `CopyStreams`.
    """
    compute, occupancy, latency = compute.tolist(), occupancy.tolist(), latency.tolist()
    stream, source, link = graph.stream.tolist(), graph.source.tolist(), graph.link.tolist()
    remote, reduces, overlaps = graph.remote.tolist(), graph.reduces.tolist(), graph.overlaps.tolist()
    sends, receives, queues = graph.occupied
    start, end, sent, arrived = ([math.nan] * graph.num_operations for _ in range(4))
    stream_free = [0.0] * (2 * graph.schedule.num_ranks)
    link_free = [0.0] * graph.num_links

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

        if copies:
            copies.reach(stream[first], range(first, last))
            ready = max(ready, copies.there_s(range(first, last)))
        duration = max(compute[first:last])  # for a collective, the slowest participant's
        if last - first > 1 and not reduces[first]:
            duration = sum(compute[first:last]) * (overlap_factor if overlaps[first] else 1.0)
        finished = ready + duration
        for op in range(first, last):
            start[op], end[op] = ready, finished
            stream_free[stream[op]] = finished
        if copies:
            for here in set(stream[first:last]):
                copies.end(here, [op for op in range(first, last) if stream[op] == here], finished)

        for op in range(first, last):
            if link[op] == NO_OPERATION:
                continue
            there = finished if shares is None else ready + shares[op] * duration
            if sends:
                sent[op] = stream_free[stream[op]]
                arrived[op] = stream_free[stream[op]] = sent[op] + occupancy[op] + latency[op]
            elif receives:  # ready to be fetched; the receiver decides when
                sent[op] = arrived[op] = there
            elif queues:
                sent[op] = max(there, link_free[link[op]])
                link_free[link[op]] = sent[op] + occupancy[op]
                arrived[op] = link_free[link[op]] + latency[op]
            else:
                sent[op] = there
                arrived[op] = there + occupancy[op] + latency[op]
    return np.array([start, end, sent, arrived])
