"""Transfers that occupy sender and receiver at the same time: the path through them, and their deadlocks.

After a cell, a rank sends its results, and receives what its next cell needs, before it continues; see
`exchanges.exchanges_of` for the order. A transfer starts when both ends are ready, and ends for both at the same time.
The messages of a batch, to and from one peer, are in flight concurrently, but those that a rank sends follow one
another. So two ranks that send to each other do so at the same time (``send_forward_recv_backward`` in Megatron-LM);
ranks that wait for each other in any other cycle deadlock.
"""

from itertools import pairwise

import numpy as np

from ppmodel.compiled import kernels
from ppmodel.errors import TableError
from ppmodel.simulation.copies import CopyStreams
from ppmodel.tables import NO_OPERATION

_MOST_SAID = 6


def rendezvous_times(graph, durations, overlap_factor, plan=None):
    """Compute start, end, departure and arrival for every operation, and the times of copies.

    Parameters
    ----------
    graph : ExecutionGraph
        Compiled under ``rendezvous``.
    durations : (ndarray of float, ndarray of float, ndarray of float)
        Duration, occupancy and latency of every operation, in the graph's order.
    overlap_factor : float
        As in `costs.OpCosts`.
    plan : Copies, optional
        What is offloaded; such runs use the plain loop.

    Returns
    -------
    times, copied : ndarray of float, shape (4, num_operations)
        In seconds; NaN if there is no transfer. The second is as in `copies.CopyStreams`, or None.

    Raises
    ------
    TableError
        If ranks deadlock; shows the table and where each rank waits.
    """
    fast = kernels(graph.num_operations)
    if fast and not plan and "_circle" not in graph.__dict__:
        times = fast.rendezvous(*graph.for_rendezvous, durations, float(overlap_factor))
        if not np.isnan(times[1]).any():
            return times, None
    elif "_circle" not in graph.__dict__:
        ranks = _Ranks(graph, durations, overlap_factor, plan)
        if ranks.run():
            return ranks.times, ranks.copies and ranks.copies.times_s
    return refuse_circle(graph)


class _Ranks:
    """How far each stream is in its program of exchanges and groups, and when it is free."""

    def __init__(self, graph, durations, overlap_factor, plan=None):
        self.graph, self.overlap_factor = graph, overlap_factor
        self.copies = plan and CopyStreams(plan, 2 * graph.schedule.num_ranks)
        self.compute, self.occupancy, self.latency = (column.tolist() for column in durations)
        self.source, self.stream, self.remote = graph.source.tolist(), graph.stream.tolist(), graph.remote.tolist()
        self.reduces, self.overlaps = graph.reduces.tolist(), graph.overlaps.tolist()
        plan = graph.exchanges
        self.group_of, self.first_batch = plan.group.tolist(), plan.first_batch.tolist()
        self.receiver, self.taken_in = plan.receiver.tolist(), plan.taken_in.tolist()
        bounds, message = plan.batch_start.tolist(), plan.message.tolist()
        self.messages = [message[first:last] for first, last in pairwise(bounds)]
        self.group_start = graph.group_start.tolist()
        self.phase = plan.phase_start[:-1].tolist()
        self.batch = [self.first_batch[phase] for phase in self.phase]
        self.left = [0] * len(self.phase)  # messages of the batch not yet transferred; 0 if none is posted
        self.free, self.posted, self.sends_next = np.zeros((3, len(self.phase))).tolist()
        self.beside = {}
        for op, needed in enumerate(self.source):
            if needed != NO_OPERATION and not self.remote[op] and self.stream[op] != self.stream[needed]:
                self.beside[needed] = self.stream[op]
        self.times = np.full((4, graph.num_operations), np.nan)

    def run(self):
        """Continue until no stream can; return whether all have reached the end."""
        self.awake = list(range(len(self.phase)))
        while self.awake:
            self.go_on(self.awake.pop())
        return not np.isnan(self.times[1]).any()

    def go_on(self, stream):
        while not self.left[stream]:
            if self.exchanges(stream):
                self.post(stream)
            elif not self.ready(stream):
                return
            else:
                self.execute(self.group_of[self.phase[stream]])

    def exchanges(self, stream):
        """Whether a batch comes before the next group."""
        return self.batch[stream] < self.first_batch[self.phase[stream] + 1]

    def post(self, stream):
        """A stream posts its next batch; what both sides have posted is transferred."""
        batch = self.messages[self.batch[stream]]
        self.left[stream] = len(batch)
        self.posted[stream] = self.sends_next[stream] = self.free[stream]
        self.send(stream)
        if self.left[stream]:
            self.send(self.peer(stream, batch[0]))

    def peer(self, stream, op):
        return self.receiver[op] if self.stream[op] == stream else self.stream[op]

    def send(self, sender):
        """Send what a stream has posted, in order, as long as the receiver is ready."""
        batch = self.messages[self.batch[sender]] if self.left[sender] else ()
        for op in batch:
            taker = self.receiver[op]
            if self.stream[op] != sender or self.times[3, op] >= 0:
                continue
            if not self.left[taker] or self.batch[taker] != self.taken_in[op]:
                return
            self.times[2, op] = max(self.sends_next[sender], self.posted[taker])
            there = self.times[3, op] = self.times[2, op] + (self.occupancy[op] + self.latency[op])
            self.sends_next[sender] = there
            for end in (sender, taker):
                self.free[end] = max(self.free[end], there)
                self.left[end] -= 1
                if not self.left[end]:
                    self.batch[end] += 1
                    self.awake.append(end)

    def ready(self, stream):
        """Whether all streams of the next group have reached it, with the inputs from their own rank."""
        group = self.group_of[self.phase[stream]]
        return group != NO_OPERATION and all(self.waits_for(op, group) is None for op in self.operations(group))

    def waits_for(self, op, group):
        """The stream that an operation waits for before its group can start, or None."""
        own, needed = self.stream[op], self.source[op]
        if self.left[own] or self.exchanges(own) or self.group_of[self.phase[own]] != group:
            return own
        inner = needed != NO_OPERATION and not self.remote[op]
        return self.stream[needed] if inner and not self.times[1, needed] >= 0 else None

    def operations(self, group):
        return range(self.group_start[group], self.group_start[group + 1])

    def execute(self, group):
        ops = self.operations(group)
        inner = [self.source[op] for op in ops if self.source[op] != NO_OPERATION and not self.remote[op]]
        start = max([*(self.free[self.stream[op]] for op in ops), *(self.times[1, needed] for needed in inner)])
        if self.copies:
            self.copies.reach(self.stream[ops[0]], ops)
            start = max(start, self.copies.there_s(ops))
        duration = max(self.compute[op] for op in ops)  # of a collective, the slowest participant's
        if len(ops) > 1 and not self.reduces[ops[0]]:
            factor = self.overlap_factor if self.overlaps[ops[0]] else 1.0
            duration = factor * sum(self.compute[op] for op in ops)
        self.times[0, ops.start : ops.stop], self.times[1, ops.start : ops.stop] = start, start + duration
        for stream in {self.stream[op] for op in ops}:
            if self.copies:
                self.copies.end(stream, [op for op in ops if self.stream[op] == stream], start + duration)
            self.free[stream] = start + duration
            self.phase[stream] += 1
            self.awake.append(stream)
        self.awake += [self.beside[op] for op in ops if op in self.beside]


# ---- deadlocks -----------------------------------------------------------------------------------


def refuse_circle(graph):
    """Refuse a table whose ranks deadlock, which does not depend on costs.

    Raises
    ------
    TableError
        Shows the table, with the cell marked at which each deadlocked rank waits.
    """
    if "_circle" not in graph.__dict__:
        graph.__dict__["_circle"] = _circle(graph)
    field, value, why, grid = graph.__dict__["_circle"]
    remedy = "reorder the marked cells, where the ranks wait, or choose another p2p"
    raise TableError(field, value, "never ends under p2p = rendezvous", remedy, why=why, grid=grid)


def _circle(graph):
    """Field, value, reason and grid of the error for a graph whose ranks deadlock."""
    nothing = np.zeros(graph.num_operations)
    ranks = _Ranks(graph, (nothing, nothing, nothing), 1.0)
    ranks.run()
    ends = graph.exchanges.phase_start[1:] - 1
    stuck = [s for s, end in enumerate(ends.tolist()) if ranks.phase[s] < end or ranks.left[s] or ranks.exchanges(s)]
    waits = {stream: _wait(ranks, stream) for stream in stuck}
    path, at = [], stuck[0]
    while at not in path:
        path.append(at)
        at = waits[at][2]
    circle = path[path.index(at) :]
    said = [waits[stream][1] for stream in circle[:_MOST_SAID]] + ["and so on"] * (len(circle) > _MOST_SAID)
    schedule, first = graph.schedule, waits[circle[0]][0]
    marked = [int(graph.index[waits[stream][0]]) for stream in stuck]
    field = f"rank {schedule.rank[graph.index[first]]}"
    return field, schedule.op(graph.index[first]), f"a deadlock, {', '.join(said)}", schedule.marked(marked)


def _wait(ranks, stream):
    """Where a stream waits: its own operation, what it waits for in words, and the stream that it waits for."""
    schedule, index = ranks.graph.schedule, ranks.graph.index
    rank = stream % schedule.num_ranks
    if ranks.left[stream]:
        op = next(op for op in ranks.messages[ranks.batch[stream]] if not ranks.times[3, op] >= 0)
        peer = ranks.peer(stream, op)
        if ranks.stream[op] == stream:
            return op, f"rank {rank} sends {schedule.op(index[op])} to rank {peer}", peer
        taker = next(other for other, needed in enumerate(ranks.source) if needed == op and ranks.remote[other])
        return taker, f"rank {rank} receives {schedule.op(index[op])} from rank {peer}", peer
    group = ranks.group_of[ranks.phase[stream]]
    ops = ranks.operations(group)
    own = next(op for op in ops if ranks.stream[op] == stream)
    other = next(found for op in ops if (found := ranks.waits_for(op, group)) is not None)
    return own, f"rank {rank} waits for rank {other % schedule.num_ranks} to start {schedule.op(index[own])}", other
