"""Simulated time, by two ways that must agree.

`simulate` takes the longest path through the compiled graph, in its order; `simulate_events` knows each
stream's program and plays it with an event queue, as a discrete-event simulator does. Both take from the
graph what an operation needs and where its result goes. See `graph.compile` for the semantics.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np

from ppmodel.compiled import kernels
from ppmodel.errors import CostError
from ppmodel.graph import ExecutionGraph, programs
from ppmodel.ops import OpKind
from ppmodel.schedule import NO_OPERATION

_SIDE_BY_SIDE = 64
"""Systems that the compiled engine takes through a graph at once: more of them do not fit the nearest cache."""


@dataclass(frozen=True, eq=False)
class Timeline:
    """When everything happens. What is read off it follows the order of the schedule's operations.

    Parameters
    ----------
    graph : ExecutionGraph
        What was simulated.
    times_s : ndarray of float, shape (4, graph.num_operations)
        In seconds, in the graph's order: start and end; when the transfer of the result begins, and when the
        other device has it (NaN where it stays). Operations of one cell share start and end.
    """

    graph: ExecutionGraph
    times_s: np.ndarray

    @cached_property
    def start_s(self):
        """Start of each operation in seconds; NaN for reductions that the graph excludes."""
        return self._in_order_of_the_schedule(0)

    @cached_property
    def end_s(self):
        """End of each operation in seconds."""
        return self._in_order_of_the_schedule(1)

    @cached_property
    def sent_s(self):
        """When the transfer of each result begins, in seconds; NaN where it stays."""
        return self._in_order_of_the_schedule(2)

    @cached_property
    def arrived_s(self):
        """When the other device has each result, in seconds; NaN where it stays."""
        return self._in_order_of_the_schedule(3)

    def _in_order_of_the_schedule(self, row):
        column = np.full(self.graph.schedule.num_operations, np.nan)
        column[self.graph.index] = self.times_s[row]
        return column

    @property
    def makespan_s(self):
        """From the start of the first operation to the end of the last, T_sim."""
        return float(self.times_s[1].max())


def simulate(graph, costs, factors=None):
    """The longest path through the graph: one pass in topological order.

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
        If the costs are for another number of stages, or add up to more than a number can hold.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> from ppmodel.graph import compile
    >>> schedule = build("1f1b", 4, 8)
    >>> simulate(compile(schedule), uniform_costs(schedule, forward=1, backward=2)).makespan_s
    33.0
    """
    _check_fit(graph, costs)
    fast = kernels(graph.num_operations)
    if fast:
        times = np.empty((4, graph.num_operations))
        tables = costs.by_class(graph.schedule.num_replicas) if factors is None else _durations(graph, costs, factors)
        program = graph.program if factors is None else graph.program_by_operation
        fast.longest_path(*program, tables, float(costs.overlap_factor), graph.occupied, times)
    else:
        times = _longest_path(graph, *_durations(graph, costs, factors), costs.overlap_factor)
    timeline = Timeline(graph, times)
    _refuse_overflow(timeline.makespan_s)
    return timeline


def _durations(graph, costs, factors=None):
    """Duration, occupancy and latency of every operation, in the graph's order."""
    compute, occupancy, latency = (table[graph.cost_class] for table in costs.by_class(graph.schedule.num_replicas))
    return (compute if factors is None else compute * factors[graph.index]), occupancy, latency


def makespans(graph, many_costs):
    """Makespans of many systems on one graph, in one pass.

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
    for costs in many_costs:
        _check_fit(graph, costs)
    fast = kernels(graph.num_operations * len(many_costs))
    if not fast:
        return np.array([simulate(graph, costs).makespan_s for costs in many_costs])
    spans = np.empty(len(many_costs))
    for first in range(0, len(many_costs), _SIDE_BY_SIDE):
        some = many_costs[first : first + _SIDE_BY_SIDE]
        tables = np.stack([costs.by_class(graph.schedule.num_replicas) for costs in some], axis=-1)
        factors = np.array([float(costs.overlap_factor) for costs in some])
        spans[first : first + _SIDE_BY_SIDE] = fast.many_longest_paths(*graph.program, tables, factors, graph.occupied)
    _refuse_overflow(spans.max(initial=0))
    return spans


def _refuse_overflow(makespan_s):
    if not np.isfinite(makespan_s):
        raise CostError("makespan", makespan_s, "must be finite", "give smaller durations")


def _check_fit(graph, costs):
    if costs.num_stages != graph.schedule.num_stages:
        rule = f"must have one entry per stage of the schedule, {graph.schedule.num_stages}"
        raise CostError("costs", f"for {costs.num_stages} stages", rule, "make the costs for this schedule")


def _longest_path(graph, compute, occupancy, latency, overlap_factor):
    """Start, end, leaving and arrival of every operation, shape (4, num_operations)."""
    compute, occupancy, latency = compute.tolist(), occupancy.tolist(), latency.tolist()
    stream, source, link = graph.stream.tolist(), graph.source.tolist(), graph.link.tolist()
    remote, reduces = graph.remote.tolist(), (graph.schedule.kind[graph.index] == OpKind.R).tolist()
    sends, receives, queues = graph.send_occupies, graph.receive_occupies, graph.p2p == "overlapped"
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
            duration = overlap_factor * sum(compute[first:last])
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


def simulate_events(graph, costs):
    """The same timeline by discrete-event simulation: an event queue, devices and links.

    Every stream executes its program in order and knows only the messages that have reached it. The
    queue orders events by time; events of one time are taken in the order in which they were made.

    Parameters
    ----------
    graph : ExecutionGraph
    costs : OpCosts

    Returns
    -------
    Timeline
    """
    _check_fit(graph, costs)
    return _EventSimulation(graph, costs).run()


class _EventSimulation:
    """State of one discrete-event run: what each stream and link does, and what has arrived."""

    def __init__(self, graph, costs):
        self.graph = graph
        tables = costs.by_class(graph.schedule.num_replicas)
        self.compute, self.occupancy, self.latency = (table[graph.cost_class] for table in tables)
        self.overlap_factor = costs.overlap_factor
        self.programs = programs(graph)
        self.nodes = [range(first, last) for first, last in pairwise(graph.node_start.tolist())]
        self.consumer = {int(s): op for op, s in enumerate(graph.source) if s != NO_OPERATION and graph.remote[op]}
        self.next_node = [0] * len(self.programs)
        self.idle = [True] * len(self.programs)
        self.received = [set() for _ in self.programs]  # operations whose message the stream has taken in
        self.delivered, self.finished = set(), set()
        self.link_queue = [[] for _ in range(graph.num_links)]
        self.link_idle = [True] * graph.num_links
        self.times = np.full((4, graph.num_operations), np.nan)
        self.events, self.made, self.now = [], 0, 0.0

    def run(self):
        for stream in range(len(self.programs)):
            self.advance(stream)
        while self.events:
            self.now, _, handler, arguments = heappop(self.events)
            handler(*arguments)
        return Timeline(self.graph, self.times)

    def after(self, delay, handler, *arguments):
        heappush(self.events, (self.now + delay, self.made, handler, arguments))
        self.made += 1

    def head(self, stream):
        program = self.programs[stream]
        return program[self.next_node[stream]] if self.next_node[stream] < len(program) else None

    def advance(self, stream):
        """Let a stream do the next thing that it can: receive, or start the node at its head."""
        node = self.head(stream)
        if node is None or not self.idle[stream]:
            return
        for op in self.nodes[node]:
            needed = int(self.graph.source[op])
            if needed == NO_OPERATION or self.graph.stream[op] != stream:
                continue
            if not self.graph.remote[op]:
                if needed not in self.finished:
                    return
            elif needed not in self.received[stream]:
                if needed in self.delivered:
                    self.receive(stream, needed)
                return
        streams = {int(self.graph.stream[op]) for op in self.nodes[node]}
        if all(self.idle[s] and self.head(s) == node and self.inputs_finished(node, s) for s in streams):
            self.begin(node, streams)

    def inputs_finished(self, node, stream):
        """Whether all that other participants of a collective need on a stream is there."""
        ops = [op for op in self.nodes[node] if self.graph.stream[op] == stream]
        local = (int(self.graph.source[op]) for op in ops if not self.graph.remote[op])
        return all(needed in self.finished for needed in local if needed != NO_OPERATION)

    def receive(self, stream, message):
        self.idle[stream] = False
        taken = 0.0
        if self.graph.receive_occupies:
            taken = float(self.occupancy[message] + self.latency[message])
            if not self.graph.send_occupies:
                self.times[2][message] = self.now
            self.times[3][message] = self.now + taken
        self.after(taken, self.end_receive, stream, message)

    def end_receive(self, stream, message):
        self.received[stream].add(message)
        self.idle[stream] = True
        self.advance(stream)

    def begin(self, node, streams):
        ops = self.nodes[node]
        duration = float(max(self.compute[op] for op in ops))
        if len(streams) == 1 and len(ops) > 1:
            duration = self.overlap_factor * float(sum(self.compute[op] for op in ops))
        for stream in streams:
            self.idle[stream] = False
        for op in ops:
            self.times[0][op] = self.now
        self.after(duration, self.end, node, streams)

    def end(self, node, streams):
        ops = self.nodes[node]
        for op in ops:
            self.times[1][op] = self.now
            self.finished.add(op)
        for stream in streams:
            self.next_node[stream] += 1
        outgoing = [op for op in ops if self.graph.link[op] != NO_OPERATION]
        self.send(outgoing, streams)
        for stream in range(self.graph.schedule.num_devices, len(self.programs)):
            self.advance(stream)

    def send(self, outgoing, streams):
        """Send the results of a node: on the link, at once, or by the device itself, one after the other."""
        if self.graph.send_occupies and outgoing:
            op, *others = outgoing
            self.times[2][op] = self.now
            self.after(float(self.occupancy[op] + self.latency[op]), self.end_send, op, others, streams)
            return
        for op in outgoing:
            if self.graph.p2p == "overlapped":
                self.link_queue[self.graph.link[op]].append(op)
                self.serve(int(self.graph.link[op]))
            else:
                self.times[2][op] = self.now
                underway = 0.0 if self.graph.receive_occupies else float(self.occupancy[op] + self.latency[op])
                self.after(underway, self.arrive, op)
        for stream in streams:
            self.idle[stream] = True
            self.advance(stream)

    def end_send(self, op, others, streams):
        self.arrive(op)
        self.send(others, streams)

    def serve(self, link):
        if self.link_idle[link] and self.link_queue[link]:
            op = self.link_queue[link].pop(0)
            self.link_idle[link] = False
            self.times[2][op] = self.now
            self.after(float(self.occupancy[op]), self.leave, link, op)

    def leave(self, link, op):
        self.link_idle[link] = True
        self.after(float(self.latency[op]), self.arrive, op)
        self.serve(link)

    def arrive(self, op):
        self.times[3][op] = self.now
        self.delivered.add(op)
        self.advance(int(self.graph.stream[self.consumer[op]]))
