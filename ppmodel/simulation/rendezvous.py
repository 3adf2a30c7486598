"""Transfers that occupy sender and receiver at the same time: their deadlocks.

After a cell, a rank sends its results, and receives what its next cell needs, before it continues; see
`exchanges.exchanges_of` for the order. A transfer starts when both ends are ready, and ends for both at the same time.
The messages of a batch, to and from one peer, are in flight concurrently, but those that a rank sends follow one
another. So two ranks that send to each other do so at the same time (``send_forward_recv_backward`` in Megatron-LM);
ranks that wait for each other in any other cycle deadlock.
"""

import numpy as np

from ppmodel.errors import TableError
from ppmodel.tables import NO_OPERATION
from ppmodel.tables.validation import limited, shortest_cycle


def refuse_endless(graph, places, ended):
    """Refuse a graph in which ranks deadlock.

    Parameters
    ----------
    graph : ExecutionGraph
    places : dict
        For each stream that never ends, the operation that it does not start, or whose message it exchanges, and
        whether it is a message.
    ended : ndarray of bool, shape (num_operations,)
        Operations that end.

    Raises
    ------
    TableError
        Names a shortest cycle; shows the table, with the cell marked at which each deadlocked rank waits.
    """
    schedule, index = graph.schedule, graph.index
    waits = {stream: _wait(graph, places, ended, stream) for stream in places}
    circle = shortest_cycle({stream: [other] for stream, (_, _, other) in waits.items()})
    reasons = limited([waits[stream][1] for stream in circle])
    first, marked = index[waits[circle[0]][0]], [int(index[op]) for op, _, _ in waits.values()]
    remedy = "reorder the marked cells, where the ranks wait, or choose another p2p"
    raise TableError(
        f"rank {schedule.rank[first]}", schedule.op(first), "never ends under p2p = rendezvous", remedy,
        why=f"a deadlock, {', '.join(reasons)}", grid=schedule.marked(marked),
    )  # fmt: skip


def _wait(graph, places, ended, stream):
    """Find a waiting stream's own operation, the reason, and the stream that it waits for."""
    schedule, index, group, (op, is_message) = graph.schedule, graph.index, graph.group, places[stream]
    rank = stream % schedule.num_ranks
    if is_message and graph.stream[op] == stream:
        receiver = int(graph.receivers[op])
        return op, f"rank {rank} sends {schedule.op(index[op])} to rank {receiver}", receiver
    if is_message:
        taker, sender = np.flatnonzero((graph.source == op) & graph.remote)[0], int(graph.stream[op])
        return taker, f"rank {rank} receives {schedule.op(index[op])} from rank {sender}", sender
    for each in np.flatnonzero(group == group[op]):
        other, awaited, needed = int(graph.stream[each]), each, graph.source[each]
        elsewhere, is_message = places[other]
        if is_message or group[elsewhere] != group[op]:
            break
        if needed != NO_OPERATION and not graph.remote[each] and not ended[needed]:
            other, awaited = int(graph.stream[needed]), needed
            break
    start = schedule.op(index[awaited])
    return op, f"rank {rank} waits for rank {other % schedule.num_ranks} to start {start}", other
