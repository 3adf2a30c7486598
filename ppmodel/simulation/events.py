"""Simulated time by discrete events: an event queue, ranks, links and NICs."""

from collections import deque
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np

from ppmodel.compiled import kernels
from ppmodel.simulation.checks import check_fit, durations, plan_of, refuse_overflow, shares_of, step_lengths
from ppmodel.simulation.copies import CopyStreams
from ppmodel.simulation.graph import programs
from ppmodel.simulation.rendezvous import refuse_circle
from ppmodel.simulation.timeline import Timeline
from ppmodel.tables import NO_OPERATION


def run_events(graph, costs, factors=None):
    """Simulate by discrete events: an event queue, ranks, links and NICs; the same timeline as `run_graph`.

    Every stream executes its program in order and knows only the messages that have reached it. Links and NICs
    serve messages in order of arrival. The queue orders events by time; events at the same time are ordered by kind
    (operations that end, links and NICs that become free, arrivals, messages taken in, messages sent, reductions that
    reach their links, results sent before their cell ends, copies that are back), and those of one kind by their
    operation's position in the graph.

    Parameters
    ----------
    graph : ExecutionGraph
    costs : OpCosts
    factors : ndarray of float, shape (num_operations,), optional
        As in `run_graph`.

    Returns
    -------
    Timeline

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
    >>> costs = uniform_costs(schedule, forward=1, backward=2, comm=1)
    >>> run_events(compile_graph(schedule), costs).makespan_s
    39.0
    >>> run_events(compile_graph(schedule).on((0, 0, 1, 1)), costs).makespan_s
    39.0
    """
    graph = graph.on(costs.nics)
    check_fit(graph, costs, factors)
    columns, plan = durations(graph, costs, factors), plan_of(graph, costs)
    fast, factor, copied = kernels(graph.num_operations), float(costs.overlap_factor), None
    if graph.meets:
        if fast and not plan:
            times = fast.rendezvous_events(*graph.for_rendezvous, columns, factor)
        else:
            times, copied = _Rendezvous(graph, columns, factor, plan=plan).run()
        if np.isnan(times[1]).any():
            refuse_circle(graph)
    elif fast:
        copied = plan and np.full((4, graph.num_operations), np.nan)
        copies = plan and (*plan.compiled, copied)
        times = fast.events(*graph.for_events, columns, factor, graph.occupied, shares_of(graph, costs), copies)
    else:
        times, copied = _EventSimulation(graph, columns, factor, shares_of(graph, costs), plan).run()
    steps_s = step_lengths(graph.schedule, costs, factors)
    timeline = Timeline(graph, times[:2], lambda: times[2:], steps_s, copies=plan and (plan, copied))
    refuse_overflow(timeline.makespan_s)
    return timeline


_END, _FREE, _ARRIVE, _TAKEN, _SENT, _REDUCE, _EARLY, _BACK = range(8)


class _EventSimulation:
    """State of one discrete-event run: what each stream, link and NIC is doing, and what has arrived."""

    def __init__(self, graph, durations, overlap_factor, shares=None, plan=None):
        self.graph, self.overlap_factor, self.overlaps = graph, overlap_factor, graph.overlaps
        self.shares, self.copies = shares, plan and CopyStreams(plan, 2 * graph.schedule.num_ranks)
        self.awaited, self.back = plan and plan.needs.tolist(), {NO_OPERATION}
        self.early = set()
        self.compute, self.occupancy, self.latency = (column.tolist() for column in durations)
        self.source, self.stream, self.link = graph.source.tolist(), graph.stream.tolist(), graph.link.tolist()
        self.sends, self.receives, self.queues = graph.occupied
        self.remote, self.routes = graph.remote.tolist(), graph.routes.tolist()
        self.groups = [range(first, last) for first, last in pairwise(graph.group_start.tolist())]
        self.programs = programs(graph)
        self.next_group = [0] * len(self.programs)
        self.idle = [True] * len(self.programs)
        self.consumers = [[] for _ in self.source]  # the other streams that wait for an operation
        for op, needed in enumerate(self.source):
            if needed != NO_OPERATION and self.stream[op] != self.stream[needed]:
                self.consumers[needed].append((self.remote[op], self.stream[op]))
        self.delivered, self.taken, self.finished = set(), set(), set()
        self.queue, self.serves, self.held, self.missing = {}, {}, {}, {}
        self.gates = [part.tolist() for part in np.split(graph.gates[0], graph.gates[1][1:-1])] if graph.holds else []
        self.times = np.full((4, graph.num_operations), np.nan)
        self.events, self.now = [], 0.0

    def run(self):
        for stream in range(len(self.programs)):
            self.advance(stream)
        handlers = {
            _END: self.end, _FREE: self.free, _ARRIVE: self.arrive, _TAKEN: self.take, _SENT: self.sent,
            _REDUCE: self.hold, _EARLY: self.send, _BACK: self.come_back,
        }  # fmt: skip
        while self.events:
            self.now, kind, *what = heappop(self.events)
            handlers[kind](*what)
        return self.times, self.copies and self.copies.times_s

    def after(self, delay, kind, *what):
        heappush(self.events, (self.now + delay, kind, *what))

    # ranks

    def head(self, stream):
        program, place = self.programs[stream], self.next_group[stream]
        return program[place] if place < len(program) else None

    def advance(self, stream):
        """Let a stream do the next possible thing: take in a message, or start its next group."""
        group = self.head(stream)
        if group is None or not self.idle[stream]:
            return
        for op in self.groups[group]:
            if self.stream[op] == stream and self.remote[op] and self.source[op] not in self.taken:
                if self.source[op] in self.delivered:
                    self.receive(stream, self.source[op])
                return
        if all(self.can_start(op, group) for op in self.groups[group]):
            self.begin(group)

    def can_start(self, op, group):
        stream, needed = self.stream[op], self.source[op]
        there = self.taken if self.remote[op] else self.finished
        if self.copies and self.awaited[op] not in self.back:
            return False
        return self.idle[stream] and self.head(stream) == group and (needed == NO_OPERATION or needed in there)

    def begin(self, group):
        ops = self.groups[group]
        for op in ops:
            self.idle[self.stream[op]] = False
        if self.gates and self.graph.reduces[ops.start]:
            self.after(0.0, _REDUCE, ops.start, group)
        else:
            self.start(group)

    def start(self, group):
        ops = self.groups[group]
        own = [self.compute[op] for op in ops]
        together = len(ops) > 1 and not self.graph.reduces[ops.start]
        factor = self.overlap_factor if self.overlaps[ops.start] else 1.0
        self.times[0, ops.start : ops.stop] = self.now
        duration = factor * sum(own) if together else max(own)
        self.after(duration, _END, ops.start, group)
        if self.shares is not None and not self.sends:
            self.send_early(ops, duration)

    def send_early(self, ops, duration):
        """Send results that are ready before their cell ends; on the same link, in the order of the cell."""
        links = {}
        for op in ops:
            share = links[self.link[op]] = max(self.shares[op], links.get(self.link[op], 0.0) if self.queues else 0.0)
            if share < 1 and self.link[op] != NO_OPERATION:
                self.early.add(op)
                self.after(share * duration, _EARLY, op)

    def end(self, _, group):
        ops = self.groups[group]
        self.times[1, ops.start : ops.stop] = self.now
        self.finished.update(ops)
        for stream in {self.stream[op] for op in ops}:
            self.next_group[stream] += 1
            self.copy(stream, ops)
        outgoing = [op for op in ops if self.link[op] != NO_OPERATION and op not in self.early]
        if self.sends and outgoing:
            self.send_by_rank(outgoing)
        else:
            for op in outgoing:
                self.send(op)
            self.let_go(group)
            self.release(ops)
        for stream in (stream for op in ops for remote, stream in self.consumers[op] if not remote):
            self.advance(stream)  # a reduction beside the rank

    def release(self, ops):
        """The streams of a group are free again and continue."""
        for op in ops:
            self.idle[self.stream[op]] = True
        for op in ops:
            self.advance(self.stream[op])

    # copies to the host and back

    def copy(self, stream, ops):
        """A cell of a rank has ended: start its copies out, and the copies in that start with the next cell."""
        if not self.copies:
            return
        self.copies.end(stream, [op for op in ops if self.stream[op] == stream], self.now)
        group = self.head(stream)
        for forward in self.copies.reach(stream, self.groups[group]) if group is not None else ():
            there = float(self.copies.times_s[3, forward])
            if there > self.now:
                heappush(self.events, (there, _BACK, forward))
            else:
                self.back.add(forward)

    def come_back(self, forward):
        self.back.add(forward)
        self.advance(self.stream[forward])

    # reductions that occupy links

    def hold(self, _, group):
        """A reduction queues at all links of its ranks at once, and starts when all of them serve it."""
        ranks = [self.stream[op] - self.graph.schedule.num_ranks for op in self.groups[group]]
        places = list(dict.fromkeys(place for rank in ranks for place in self.gates[rank]))
        self.held[group], self.missing[group] = places, len(places)
        for place in places:
            self.queue.setdefault(place, deque()).append(~group)
        for place in places:
            self.serve(place)
        if not places:
            self.start(group)

    def let_go(self, group):
        """The links that a reduction occupied serve what is waiting."""
        places = self.held.pop(group, [])
        for place in places:
            del self.serves[place]
        for place in places:
            self.serve(place)

    # messages

    def send_by_rank(self, outgoing):
        op, *others = outgoing
        self.times[2, op] = self.now
        self.after(self.occupancy[op] + self.latency[op], _SENT, op, others)

    def sent(self, op, others):
        self.arrive(op)
        if others:
            self.send_by_rank(others)
        else:
            self.release([op])

    def send(self, op):
        if self.queues:
            self.join(self.routes[self.link[op]][0], op)
            return
        self.times[2, op] = self.now
        self.after(0.0 if self.receives else self.occupancy[op] + self.latency[op], _ARRIVE, op)

    def join(self, place, op):
        """Queue at a link or NIC, and be served at once if it is free."""
        self.queue.setdefault(place, deque()).append(op)
        self.serve(place)

    def serve(self, place):
        """If a link or NIC is free, serve the first in its queue."""
        if place in self.serves or not self.queue[place]:
            return
        self.serves[place] = op = self.queue[place].popleft()
        if op < 0:  # a reduction
            self.missing[~op] -= 1
            if not self.missing[~op]:
                self.start(~op)
            return
        first, second = self.routes[self.link[op]]
        if place == first:
            self.times[2, op] = self.now
        self.after(self.occupancy[op], _FREE, op, int(place != first))
        if place == first and second != NO_OPERATION:
            self.join(second, op)  # what leaves one NIC reaches the other at once, and passes through it meanwhile

    def free(self, op, side):
        route = self.routes[self.link[op]]
        place = route[side]
        del self.serves[place]
        if side == 1 or route[1] == NO_OPERATION:
            self.after(self.latency[op], _ARRIVE, op)
        self.serve(place)

    def arrive(self, op):
        self.times[3, op] = self.now
        self.delivered.add(op)
        if not self.receives:
            self.taken.add(op)
        for remote, stream in self.consumers[op]:
            if remote:
                self.advance(stream)

    def receive(self, stream, op):
        """The rank takes in a message, which occupies it."""
        self.idle[stream] = False
        seconds = self.occupancy[op] + self.latency[op]
        if not self.sends:
            self.times[2, op] = self.now
        self.times[3, op] = self.now + seconds
        self.after(seconds, _TAKEN, op, stream)

    def take(self, op, stream):
        self.taken.add(op)
        self.idle[stream] = True
        self.advance(stream)


class _Rendezvous(_EventSimulation):
    """The same, for transfers that start when both ends are ready, and occupy both.

    Between two groups, a stream processes batches of messages in turn, each with one peer.
    """

    def __init__(self, graph, durations, overlap_factor, plan=None):
        super().__init__(graph, durations, overlap_factor, plan=plan)
        self.taker = {self.source[op]: self.stream[op] for op, remote in enumerate(self.remote) if remote}
        self.batches = [deque() for _ in self.programs]
        self.sending = set()  # streams with a message in flight

    def run(self):
        for stream in range(len(self.programs)):
            self.meet(stream, [])
        return super().run()

    def end(self, _, group):
        ops = self.groups[group]
        self.times[1, ops.start : ops.stop] = self.now
        self.finished.update(ops)
        streams = {self.stream[op] for op in ops}
        for stream in streams:
            self.next_group[stream] += 1
            self.idle[stream] = True
            self.copy(stream, ops)
        for stream in streams:
            self.meet(stream, [op for op in ops if self.stream[op] == stream and op in self.taker])
        for stream in (stream for op in ops for remote, stream in self.consumers[op] if not remote):
            self.advance(stream)

    def meet(self, stream, ended):
        """A stream collects what it sends from the last group, and what it receives for the next one, by peer."""
        by_peer, group = {}, self.head(stream)
        for op in ended:
            by_peer.setdefault(self.taker[op], []).append(op)
        for op in self.groups[group] if group is not None else ():
            if self.stream[op] == stream and self.remote[op]:
                by_peer.setdefault(self.stream[self.source[op]], []).append(self.source[op])
        self.batches[stream].extend(by_peer.values())
        self.advance(stream)

    def posted(self, stream):
        return self.batches[stream][0] if self.batches[stream] else ()

    def advance(self, stream):
        """Send what both ends have posted, or start the stream's next group."""
        batch = self.posted(stream)
        for sender in {self.stream[op] for op in batch} | {self.taker[op] for op in batch}:
            self.send_next(sender)
        if not batch:
            super().advance(stream)

    def send_next(self, sender):
        op = next((op for op in self.posted(sender) if self.stream[op] == sender), None)
        if op is not None and sender not in self.sending and op in self.posted(self.taker[op]):
            self.sending.add(sender)
            self.times[2, op] = self.now
            self.after(self.occupancy[op] + self.latency[op], _ARRIVE, op)

    def arrive(self, op):
        self.times[3, op] = self.now
        self.taken.add(op)
        self.sending.remove(self.stream[op])
        for end in (self.stream[op], self.taker[op]):
            self.posted(end).remove(op)
            if not self.posted(end):
                self.batches[end].popleft()
        for end in (self.stream[op], self.taker[op]):
            self.advance(end)

    def can_start(self, op, group):
        return not self.batches[self.stream[op]] and super().can_start(op, group)
