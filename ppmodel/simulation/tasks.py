"""Transfers that wait for both ends, as tasks of their own among the operations.

Under all other semantics, a transfer is fused into the operation that sends: its link and its costs say the rest. Under
``rendezvous`` and ``streams``, it is a task that two ranks execute, in an order that does not depend on costs,
deadlocks included. Each end posts it once it is through with what it does before; the transfer starts when both have
posted it and its link is free.

Under ``rendezvous``, a rank is through with a batch of transfers, see `exchanges`, when all of them have ended, and
posts all transfers of the next one at once. A link is a sender, whose messages follow one another.

Under ``streams``, sends and receives are kernels. A rank has a stream for computing and one for each peer, which both
directions share, and its host issues operations and both ends of transfers into one queue, in the order of
`issue.issue_order`. Both ends of a stream have its transfers in one order: by the planned ends of their producers, and
of two that end at once, by their producers' places in the table, rank by rank. So no two ranks wait for each other. A
kernel starts only once all that were issued before it on its rank have started, so that what is behind a waiting
transfer waits, too (head of line). An end of a transfer is posted when the operation issued before it has ended and its
stream is free; a sender's end on a link with a delay, that much later. The transfer starts when both ends are posted,
and occupies both streams from then on for its occupancy and latency, but no rank's computing. An operation also waits
for the one before it and for its inputs. Since no operation ends before it starts, one time for each rank tells when
all issued so far have started, and the last operation has ended.

So a rank waits for a transfer that it does not need if its peer is late, or its link delayed: measured runs of
zero-bubble schedules over a delayed link behave like this, those of 1F1B in Megatron-LM like ``rendezvous``, and those
whose transfers host processes make like ``latency``. Where transfers are short and no link differs, all are alike.
"""

import numpy as np

from ppmodel.simulation.inputs import MEETING, in_order
from ppmodel.simulation.rendezvous import refuse_endless
from ppmodel.tables.dependencies import NO_OPERATION, by_keys, in_levels

BOTH = 3
"""Which ends of a transfer post a batch with it: the sender's (1), the receiver's (2)."""


def with_meetings(graph):
    """Add the transfers of a graph to its `numbering.Arrays`, each as a row of its own.

    Raises
    ------
    TableError
        If ranks deadlock under ``rendezvous``; no table does under ``streams``.
    """
    if graph.p2p == "rendezvous":
        issued, opens = _exchanged(graph)
        link, num_links = graph.stream, graph.schedule.num_ranks
    else:
        (issued, link, num_links), opens = graph.issued, BOTH
    meets, num_groups, count = issued < 0, len(graph.group_start) - 1, graph.num_operations
    makers, turn_of = -1 - issued[meets], np.empty(num_groups, dtype=np.int64)
    turn_of[issued[~meets]] = np.flatnonzero(~meets)
    turn, op = np.append(turn_of[graph.group], np.flatnonzero(meets)), np.append(np.arange(count), makers)
    transfer, nothing = np.empty(count, dtype=np.int64), np.full(len(makers), NO_OPERATION)
    transfer[makers] = np.arange(count, len(op))
    source = np.append(np.where(graph.remote, transfer[graph.source], graph.source), nothing)
    row = np.zeros(count, dtype=int) if graph.row is None else graph.row  # operations
    return in_order(
        graph.arrays, by_keys(turn), (turn,), op, source, row=np.append(row, np.full(len(makers), MEETING)),
        link=np.append(np.full(count, NO_OPERATION), link[makers]), num_links=num_links,
        meets=np.append(np.full(count, NO_OPERATION), 4 * graph.receivers[makers] + opens),
    )  # fmt: skip


def _exchanged(graph):
    """Groups and transfers under ``rendezvous``, as `issue.issue_order` has them, and which batches each opens."""
    message, end_of, phase, batch, sends = graph.exchanges
    num_ranks, count, num_groups = graph.schedule.num_ranks, graph.num_operations, len(graph.group_start) - 1
    # what each stream comes to, in order: messages taken in or sent, then operations
    streams = np.append(graph.stream, end_of)
    phases = np.append(graph.programs[1] + graph.stream, phase)
    order = by_keys(phases, np.append(np.ones(count, dtype=int), np.zeros(len(message), dtype=int)))
    place = by_keys(order)  # of each row
    begins = place[count + np.flatnonzero(np.diff(batch, prepend=-1))]  # of each batch
    before = np.where((begins > 0) & (streams[order[begins - 1]] == streams[order[begins]]), begins - 1, NO_OPERATION)
    makers, (taken_in, transfer) = message[sends], np.full((2, count), NO_OPERATION)
    taken_in[message[~sends]] = batch[~sends]
    batches = np.stack((batch[sends], taken_in[makers]), axis=1)
    # a transfer follows what both ends do before, and each end of a batch the transfers in it
    transfer[makers] = len(order) + 1 + 2 * np.arange(len(makers))
    source = np.where(graph.remote | (graph.source == NO_OPERATION), NO_OPERATION, place[graph.source])
    source = np.append(np.append(source, transfer[message])[order], before[batches])
    group = np.append(graph.group, num_groups + batch)[order]
    group = np.append(group, np.repeat(num_groups + len(begins) + np.arange(len(makers)), 2))
    links, num_streams = np.repeat(graph.num_streams + graph.stream[makers], 2), graph.num_streams + num_ranks
    level, _ = in_levels(source, group, np.append(streams[order], links), num_streams)
    if (level == NO_OPERATION).any():
        done = np.append(level[place[:count]], level[transfer[message]]) >= 0
        stuck = order[~done[order]]
        waiting, first = np.unique(streams[stuck], return_index=True)
        ops = np.append(np.arange(count), message)[stuck[first]]
        places = zip(waiting.tolist(), zip(ops, stuck[first] >= count, strict=True), strict=True)
        refuse_endless(graph, dict(places), done[:count])
    issued = np.append(np.arange(num_groups), -1 - makers)
    order = by_keys(np.append(level[place[graph.group_start[:-1]]], level[transfer[makers]]))
    issued, first = issued[order], np.zeros(batches.size, dtype=np.int64)
    batches = batches[order[issued < 0] - num_groups]
    first[np.unique(batches, return_index=True)[1]] = 1
    return issued, first.reshape(-1, 2) @ (1, 2)
