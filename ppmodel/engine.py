"""Simulated time, by two ways that must agree; where devices share network cards only the second is defined.

`simulate` takes the longest path through the compiled graph, in its order; `simulate_events` knows each
stream's program and plays it with an event queue, as a discrete-event simulator does. Both take from the
graph what an operation needs and where its result goes. See `graph.compile` for the semantics.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np

from ppmodel.compiled import kernels
from ppmodel.costs import side_by_side
from ppmodel.errors import CostError
from ppmodel.graph import ExecutionGraph, programs
from ppmodel.ops import OpKind
from ppmodel.schedule import NO_OPERATION

_SIDE_BY_SIDE, _FEWER, _MANY_CLASSES = 64, 32, 1000
"""Systems that the compiled engine takes through a graph at once; fewer where their costs would not fit the cache."""


@dataclass(frozen=True, eq=False)
class Timeline:
    """When everything happens. What is read off it follows the order of the schedule's operations.

    Parameters
    ----------
    graph : ExecutionGraph
        What was simulated.
    times_s : ndarray of float, shape (2, graph.num_operations)
        Start and end in seconds, in the graph's order. Operations of one cell share both.
    transfers : callable
        Returns, in the same order, when the transfer of each result begins and when the other device has it; NaN where
        it stays. Shape (2, graph.num_operations), in seconds; computed when it is asked for.
    """

    graph: ExecutionGraph
    times_s: np.ndarray
    transfers: Callable

    @cached_property
    def start_s(self):
        """Start of each operation in seconds; NaN for reductions that the graph excludes."""
        return self._in_order_of_the_schedule(self.times_s[0])

    @cached_property
    def end_s(self):
        """End of each operation in seconds."""
        return self._in_order_of_the_schedule(self.times_s[1])

    @cached_property
    def sent_s(self):
        """When the transfer of each result begins, in seconds; NaN where it stays."""
        return self._in_order_of_the_schedule(self._transfers_s[0])

    @cached_property
    def arrived_s(self):
        """When the other device has each result, in seconds; NaN where it stays."""
        return self._in_order_of_the_schedule(self._transfers_s[1])

    @cached_property
    def _transfers_s(self):
        return self.transfers()

    def _in_order_of_the_schedule(self, times_s):
        column = np.full(self.graph.schedule.num_operations, np.nan)
        column[self.graph.index] = times_s
        return column

    @property
    def makespan_s(self):
        """From the start of the first operation to the end of the last, T_sim."""
        return float(self.times_s[1].max())


def simulate(graph, costs, factors=None):
    """The longest path through the graph: one pass in topological order.

    Where links share a side of a network card there is no such path, and `simulate_events` takes over.

    Parameters
    ----------
    graph : ExecutionGraph
    costs : OpCosts
    factors : ndarray of float, shape (num_operations,), optional
        On the duration of each operation, in the order of the schedule's arrays; for jitter and slow devices.

    Returns
    -------
    Timeline

    Raises
    ------
    CostError
        If the costs are for another number of stages or replicas, factors for another number of operations, or
        times add up to more than a number can hold.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> from ppmodel.graph import compile
    >>> schedule = build("1f1b", 4, 8)
    >>> simulate(compile(schedule), uniform_costs(schedule, forward=1, backward=2)).makespan_s
    33.0
    """
    if graph.dynamic:
        return simulate_events(graph, costs, factors)
    _check_fit(graph, costs, factors)
    fast = kernels(graph.num_operations)
    if fast:
        tables = costs.by_class(graph.schedule.num_replicas) if factors is None else _durations(graph, costs, factors)
        instructions = graph.instructions if factors is None else graph.instructions_by_operation

        def path(num_columns):
            times = np.empty((num_columns, graph.num_operations))
            fast.longest_path(*instructions, tables, float(costs.overlap_factor), graph.occupied, times)
            return times

        timeline = Timeline(graph, path(2), lambda: path(4)[2:])
    else:
        times = _longest_path(graph, *_durations(graph, costs, factors), costs.overlap_factor)
        timeline = Timeline(graph, times[:2], lambda: times[2:])
    _refuse_overflow(timeline.makespan_s)
    return timeline


def _durations(graph, costs, factors=None):
    """Duration, occupancy and latency of every operation, in the graph's order."""
    compute, occupancy, latency = (table[graph.cost_class] for table in costs.by_class(graph.schedule.num_replicas))
    if factors is not None:
        with np.errstate(over="ignore"):  # what overflows is refused with the makespan
            compute = compute * np.asarray(factors)[graph.index]
    return compute, occupancy, latency


def makespans(graph, many_costs):
    """Makespans of many systems on one graph, in one pass; one by one where links share a side of a network card.

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
        As `simulate`.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> from ppmodel.graph import compile
    >>> schedule = build("gpipe", 4, 8)
    >>> many = [uniform_costs(schedule, forward=1, backward=2, comm=c) for c in (0, 1)]
    >>> makespans(compile(schedule), many).tolist()
    [33.0, 39.0]
    """
    many_costs = list(many_costs)
    for costs in many_costs:
        _check_fit(graph, costs)
    fast = kernels(graph.num_operations * len(many_costs))
    if graph.dynamic or not fast:
        return np.array([simulate(graph, costs).makespan_s for costs in many_costs])
    spans = np.empty(len(many_costs))
    classes = len(OpKind) * graph.schedule.num_replicas * graph.schedule.num_stages
    at_once = _SIDE_BY_SIDE if classes < _MANY_CLASSES else _FEWER
    for first in range(0, len(many_costs), at_once):
        some = many_costs[first : first + at_once]
        tables = side_by_side(some, graph.schedule.num_replicas)
        factors = np.array([float(costs.overlap_factor) for costs in some])
        spans[first : first + at_once] = fast.many_longest_paths(*graph.instructions, tables, factors, graph.occupied)
    _refuse_overflow(spans.max(initial=0))
    return spans


def _refuse_overflow(makespan_s):
    if not np.isfinite(makespan_s):
        raise CostError("makespan", makespan_s, "must be finite", "give smaller durations")


def _check_fit(graph, costs, factors=None):
    schedule = graph.schedule
    if costs.num_stages != schedule.num_stages:
        rule = f"must have one entry per stage of the schedule, {schedule.num_stages}"
        raise CostError("costs", f"for {costs.num_stages} stages", rule, "make the costs for this schedule")
    for table in (costs.compute_s, costs.occupancy_s, costs.latency_s):
        if table.ndim == 3 and table.shape[1] != schedule.num_replicas:
            rule = f"must have one row per replica of the schedule, {schedule.num_replicas}"
            raise CostError("costs", f"for {table.shape[1]} replicas", rule, "make the costs for this schedule")
    if factors is not None:
        _check_factors(schedule, factors)


def _check_factors(schedule, factors):
    if np.shape(factors) != (schedule.num_operations,) or np.asarray(factors).dtype.kind not in "fiu":
        rule = f"must be one number for each operation, shape ({schedule.num_operations},)"
        raise CostError("factors", f"of shape {np.shape(factors)}", rule, "give them in the order of the schedule")
    factors = np.asarray(factors)
    good = np.isfinite(factors) & (factors >= 0)
    if not good.all():
        raise CostError("factors", factors[~good][0], "must be finite and not negative", "write 1 for no change")


def _longest_path(graph, compute, occupancy, latency, overlap_factor):
    """Start, end, leaving and arrival of every operation, shape (4, num_operations)."""
    compute, occupancy, latency = compute.tolist(), occupancy.tolist(), latency.tolist()
    stream, source, link = graph.stream.tolist(), graph.source.tolist(), graph.link.tolist()
    remote, reduces, overlaps = graph.remote.tolist(), graph.reduces.tolist(), graph.overlaps.tolist()
    sends, receives, queues = graph.occupied
    start, end, sent, arrived = ([math.nan] * graph.num_operations for _ in range(4))
    stream_free = [0.0] * (2 * graph.schedule.num_devices)
    link_free = [0.0] * graph.num_links

    for first, last in pairwise(graph.node_start.tolist()):
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

        duration = max(compute[first:last])  # of a collective, the slowest participant's
        if last - first > 1 and not reduces[first]:
            duration = sum(compute[first:last]) * (overlap_factor if overlaps[first] else 1.0)
        finished = ready + duration
        for op in range(first, last):
            start[op], end[op] = ready, finished
            stream_free[stream[op]] = finished

        for op in range(first, last):
            if link[op] == NO_OPERATION:
                continue
            if sends:
                sent[op] = stream_free[stream[op]]
                arrived[op] = stream_free[stream[op]] = sent[op] + occupancy[op] + latency[op]
            elif receives:  # ready to be fetched; when it is, the receiver decides
                sent[op] = arrived[op] = finished
            elif queues:
                sent[op] = max(finished, link_free[link[op]])
                link_free[link[op]] = sent[op] + occupancy[op]
                arrived[op] = link_free[link[op]] + latency[op]
            else:
                sent[op] = finished
                arrived[op] = finished + occupancy[op] + latency[op]
    return np.array([start, end, sent, arrived])


# ---- discrete events -----------------------------------------------------------------------------


def simulate_events(graph, costs, factors=None):
    """The same timeline by discrete-event simulation: an event queue, devices, links and network cards.

    Every stream executes its program in order and knows only the messages that have reached it. Links and cards
    serve messages in the order in which they come. The queue orders events by time; events of one time are taken
    by kind (ends of operations, links and cards that become free, arrivals, messages taken in, messages sent),
    and those of one kind by their operation's place in the graph.

    Parameters
    ----------
    graph : ExecutionGraph
    costs : OpCosts
    factors : ndarray of float, shape (num_operations,), optional
        As in `simulate`.

    Returns
    -------
    Timeline

    Raises
    ------
    CostError
        As `simulate`.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> from ppmodel.graph import compile
    >>> schedule = build("gpipe", 4, 8)
    >>> costs = uniform_costs(schedule, forward=1, backward=2, comm=1)
    >>> simulate_events(compile(schedule), costs).makespan_s
    39.0
    >>> simulate_events(compile(schedule, cards=[0, 0, 1, 1]), costs).makespan_s
    39.0
    """
    _check_fit(graph, costs, factors)
    durations = _durations(graph, costs, factors)
    fast = kernels(graph.num_operations)
    if fast:
        times = fast.events(*graph.for_events, durations, float(costs.overlap_factor), graph.occupied)
    else:
        times = _EventSimulation(graph, durations, costs.overlap_factor).run()
    timeline = Timeline(graph, times[:2], lambda: times[2:])
    _refuse_overflow(timeline.makespan_s)
    return timeline


_END, _FREE, _ARRIVE, _TAKEN, _SENT = range(5)


class _EventSimulation:
    """State of one discrete-event run: what each stream, link and card does, and what has arrived."""

    def __init__(self, graph, durations, overlap_factor):
        self.graph, self.overlap_factor, self.overlaps = graph, overlap_factor, graph.overlaps
        self.compute, self.occupancy, self.latency = (column.tolist() for column in durations)
        self.source, self.stream, self.link = graph.source.tolist(), graph.stream.tolist(), graph.link.tolist()
        self.remote, self.routes = graph.remote.tolist(), graph.routes.tolist()
        self.nodes = [range(first, last) for first, last in pairwise(graph.node_start.tolist())]
        self.programs = programs(graph)
        self.next_node = [0] * len(self.programs)
        self.idle = [True] * len(self.programs)
        self.consumers = [[] for _ in self.source]  # the streams, other than its own, that wait for an operation
        for op, needed in enumerate(self.source):
            if needed != NO_OPERATION and self.stream[op] != self.stream[needed]:
                self.consumers[needed].append((self.remote[op], self.stream[op]))
        self.delivered, self.taken, self.finished = set(), set(), set()
        self.queue, self.serves = {}, {}
        self.times = np.full((4, graph.num_operations), np.nan)
        self.events, self.now = [], 0.0

    def run(self):
        for stream in range(len(self.programs)):
            self.advance(stream)
        handlers = {_END: self.end, _FREE: self.free, _ARRIVE: self.arrive, _TAKEN: self.take, _SENT: self.sent}
        while self.events:
            self.now, kind, *what = heappop(self.events)
            handlers[kind](*what)
        return self.times

    def after(self, delay, kind, *what):
        heappush(self.events, (self.now + delay, kind, *what))

    # devices

    def head(self, stream):
        program, place = self.programs[stream], self.next_node[stream]
        return program[place] if place < len(program) else None

    def advance(self, stream):
        """Let a stream do the next thing that it can: take a message in, or start the node at its head."""
        node = self.head(stream)
        if node is None or not self.idle[stream]:
            return
        for op in self.nodes[node]:
            if self.stream[op] == stream and self.remote[op] and self.source[op] not in self.taken:
                if self.source[op] in self.delivered:
                    self.receive(stream, self.source[op])
                return
        if all(self.can_start(op, node) for op in self.nodes[node]):
            self.begin(node)

    def can_start(self, op, node):
        stream, needed = self.stream[op], self.source[op]
        there = self.taken if self.remote[op] else self.finished
        return self.idle[stream] and self.head(stream) == node and (needed == NO_OPERATION or needed in there)

    def begin(self, node):
        ops = self.nodes[node]
        own = [self.compute[op] for op in ops]
        together = len(ops) > 1 and not self.graph.reduces[ops.start]
        factor = self.overlap_factor if self.overlaps[ops.start] else 1.0
        for op in ops:
            self.idle[self.stream[op]] = False
        self.times[0, ops.start : ops.stop] = self.now
        self.after(factor * sum(own) if together else max(own), _END, ops.start, node)

    def end(self, _, node):
        ops = self.nodes[node]
        self.times[1, ops.start : ops.stop] = self.now
        self.finished.update(ops)
        for stream in {self.stream[op] for op in ops}:
            self.next_node[stream] += 1
        outgoing = [op for op in ops if self.link[op] != NO_OPERATION]
        if self.graph.send_occupies and outgoing:
            self.send_by_device(outgoing)
        else:
            for op in outgoing:
                self.send(op)
            self.release(ops)
        for stream in (stream for op in ops for remote, stream in self.consumers[op] if not remote):
            self.advance(stream)  # a reduction beside the device

    def release(self, ops):
        """The streams of a node, free again, go on."""
        for op in ops:
            self.idle[self.stream[op]] = True
        for op in ops:
            self.advance(self.stream[op])

    # messages

    def send_by_device(self, outgoing):
        op, *others = outgoing
        self.times[2, op] = self.now
        self.after(self.occupancy[op] + self.latency[op], _SENT, op, others)

    def sent(self, op, others):
        self.arrive(op)
        if others:
            self.send_by_device(others)
        else:
            self.release([op])

    def send(self, op):
        if self.graph.p2p == "overlapped":
            self.join(self.routes[self.link[op]][0], op)
            return
        self.times[2, op] = self.now
        self.after(0.0 if self.graph.receive_occupies else self.occupancy[op] + self.latency[op], _ARRIVE, op)

    def join(self, place, op):
        """Queue at a link or a card, and be served at once where nobody is."""
        self.queue.setdefault(place, deque()).append(op)
        if place not in self.serves:
            self.serve(place)

    def serve(self, place):
        self.serves[place] = op = self.queue[place].popleft()
        first, second = self.routes[self.link[op]]
        if place == first:
            self.times[2, op] = self.now
        self.after(self.occupancy[op], _FREE, op, int(place != first))
        if place == first and second != NO_OPERATION:
            self.join(second, op)  # what leaves one card is at the other at once, and passes through it meanwhile

    def free(self, op, side):
        route = self.routes[self.link[op]]
        place = route[side]
        del self.serves[place]
        if side == 1 or route[1] == NO_OPERATION:
            self.after(self.latency[op], _ARRIVE, op)
        if self.queue[place]:
            self.serve(place)

    def arrive(self, op):
        self.times[3, op] = self.now
        self.delivered.add(op)
        if not self.graph.receive_occupies:
            self.taken.add(op)
        for remote, stream in self.consumers[op]:
            if remote:
                self.advance(stream)

    def receive(self, stream, op):
        """The device takes a message in, which occupies it."""
        self.idle[stream] = False
        seconds = self.occupancy[op] + self.latency[op]
        if not self.graph.send_occupies:
            self.times[2, op] = self.now
        self.times[3, op] = self.now + seconds
        self.after(seconds, _TAKEN, op, stream)

    def take(self, op, stream):
        self.taken.add(op)
        self.idle[stream] = True
        self.advance(stream)
