"""Transfers that occupy sender and receiver at the same time: the path through them, and their deadlocks.

After a cell, a rank sends its results, and receives what its next cell needs, before it continues; see
`exchanges.exchanges_of` for the order. A transfer starts when both ends are ready, and ends for both at the same time.
The messages of a batch, to and from one peer, are in flight concurrently, but those that a rank sends follow one
another. So two ranks that send to each other do so at the same time (``send_forward_recv_backward`` in Megatron-LM);
ranks that wait for each other in any other cycle deadlock.
"""

import numpy as np

from ppmodel.errors import TableError
from ppmodel.kernels.rendezvous import BATCH, LEFT, PHASE, rendezvous
from ppmodel.simulation.checks import durations, filled_timeline, group_lengths
from ppmodel.tables import NO_OPERATION
from ppmodel.tables.validation import limited, shortest_cycle


def rendezvous_timeline(graph, costs, factors=None):
    """Simulate a graph under ``rendezvous``.

    Parameters
    ----------
    graph, costs, factors
        As in `run_graph`.

    Returns
    -------
    Timeline

    Raises
    ------
    TableError
        If ranks deadlock, which does not depend on costs; shows the table, with the cell marked at which each
        deadlocked rank waits.
    """
    state = np.zeros((3, 2 * graph.schedule.num_ranks), dtype=np.int32)
    compute, occupancy, latency = durations(graph, costs, factors)
    seconds = group_lengths(graph, costs, compute), occupancy + latency
    arrays = graph.consumers, tuple(graph.exchanges), seconds, state
    timeline = filled_timeline(graph, costs, factors, rendezvous, 2, *arrays)
    if np.isnan(timeline.times_s[1]).any():
        _Deadlock(graph, np.concatenate((timeline.times_s, timeline.transfers())), state).refuse()
    return timeline


class _Deadlock:
    """Where each stream is when none can go on."""

    def __init__(self, graph, times, state):
        self.graph, self.exchanges, self.times = graph, graph.exchanges, times
        self.phase, self.batch, self.left = (state[row].tolist() for row in (PHASE, BATCH, LEFT))
        ends = (self.exchanges.phase_start[1:] - 1).tolist()
        self.stuck = [s for s, end in enumerate(ends) if self.phase[s] < end or self.left[s] or self.must_post(s)]

    def refuse(self):
        """Raise an error that names a shortest cycle, and marks the cell at which each of these streams waits."""
        schedule, index, waits = self.graph.schedule, self.graph.index, {s: self.wait(s) for s in self.stuck}
        circle = shortest_cycle({stream: [other] for stream, (_, _, other) in waits.items()})
        reasons = limited([waits[stream][1] for stream in circle])
        first, marked = index[waits[circle[0]][0]], [int(index[op]) for op, _, _ in waits.values()]
        remedy = "reorder the marked cells, where the ranks wait, or choose another p2p"
        raise TableError(
            f"rank {schedule.rank[first]}", schedule.op(first), "never ends under p2p = rendezvous", remedy,
            why=f"a deadlock, {', '.join(reasons)}", grid=schedule.marked(marked),
        )  # fmt: skip

    def must_post(self, stream):
        """Whether a batch comes before the next group."""
        return self.batch[stream] < self.exchanges.first_batch[self.phase[stream] + 1]

    def awaited(self, op, group):
        """The stream that an operation waits for before its group can start, or None."""
        graph, stream, needed = self.graph, int(self.graph.stream[op]), self.graph.source[op]
        if self.left[stream] or self.must_post(stream) or self.exchanges.group[self.phase[stream]] != group:
            return stream
        inner = needed != NO_OPERATION and not graph.remote[op]
        return int(graph.stream[needed]) if inner and not self.times[1, needed] >= 0 else None

    def wait(self, stream):
        """What a stream waits for: its own operation, the reason, and the stream that it waits for."""
        graph, schedule, index = self.graph, self.graph.schedule, self.graph.index
        rank = stream % schedule.num_ranks
        if self.left[stream]:
            first, last = self.exchanges.batch_start[self.batch[stream] :][:2]
            op = next(op for op in self.exchanges.message[first:last] if not self.times[3, op] >= 0)
            if graph.stream[op] == stream:
                receiver = int(graph.consumers[0][op])
                return op, f"rank {rank} sends {schedule.op(index[op])} to rank {receiver}", receiver
            taker, sender = np.flatnonzero((graph.source == op) & graph.remote)[0], int(graph.stream[op])
            return taker, f"rank {rank} receives {schedule.op(index[op])} from rank {sender}", sender
        group = self.exchanges.group[self.phase[stream]]
        ops = range(graph.group_start[group], graph.group_start[group + 1])
        op = next(op for op in ops if graph.stream[op] == stream)
        other = next(awaited for each in ops if (awaited := self.awaited(each, group)) is not None)
        reason = f"rank {rank} waits for rank {other % schedule.num_ranks} to start {schedule.op(index[op])}"
        return op, reason, other
