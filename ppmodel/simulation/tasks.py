"""Tasks: what the loops run, made of a graph's operations and of transfers that are not part of them.

Unless a transfer waits for both its ends, it is fused into the operation that sends: its link and its costs say the
rest, and tasks are operations. Under ``rendezvous`` and ``streams``, what posts, transfers and takes in are tasks of
their own. Each has a stream, a class of duration and at most one further predecessor; those between two entries of
`group_start` start and end together, so that a task with several predecessors is a group. They are in an order that
does not depend on costs, deadlocks included.

Under ``rendezvous``, a transfer starts when both ranks are through with what precedes the batches in which they
exchange it, and the message sent before it has arrived; a rank is through with a batch when all of its messages are.

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

from typing import NamedTuple

import numpy as np

from ppmodel.simulation.rendezvous import refuse_endless
from ppmodel.tables import NO_OPERATION, by_keys
from ppmodel.tables.dependencies import in_levels


class Tasks(NamedTuple):
    """The tasks of a graph in topological order; names that `numbering.Arrays` has, too, mean the same of tasks.

    Attributes
    ----------
    overlaps : ndarray of bool, shape (num_groups,)
        Groups that are a cell with a forward and a backward.
    reduces : ndarray of bool, shape (num_tasks,)
        Reductions.
    num_streams : int
        Number of streams.
    at : ndarray of int, shape (num_operations,)
        The task that each operation is.
    transfer : ndarray of int, shape (num_operations,), or None
        The task that transfers each operation's result, or ``NO_OPERATION``; None if transfers are no tasks.
    op, part : ndarray of int, shape (num_tasks,), or None
        The operation to which each task belongs, and what it is of it: one of ``_COMPUTE``, ``_TRANSFER``, ``_POST``
        and ``_NOTHING``. None if tasks are operations.
    """

    stream: np.ndarray
    source: np.ndarray
    remote: np.ndarray
    link: np.ndarray
    group_start: np.ndarray
    overlaps: np.ndarray
    reduces: np.ndarray
    num_streams: int
    at: np.ndarray
    transfer: np.ndarray | None = None
    op: np.ndarray | None = None
    part: np.ndarray | None = None

    def classes(self, of_operations, num_classes):
        """The class of each task in `task_tables`, from those of operations."""
        return of_operations if self.op is None else self.part * num_classes + of_operations[self.op]


def tasks_of(graph):
    """Make the `Tasks` of a graph.

    Raises
    ------
    TableError
        If ranks deadlock under ``rendezvous``; no table does under ``streams``.
    """
    if graph.needs_handshake:
        return _of_exchanges(graph) if graph.p2p == "rendezvous" else _of_kernels(graph)
    columns = graph.stream, graph.source, graph.remote, graph.link, graph.group_start
    op, num_streams = np.arange(graph.num_operations, dtype=np.int32), 2 * graph.schedule.num_ranks
    parts = () if graph.row is None else (op, _part(graph))
    return Tasks(*columns, graph.overlaps, graph.reduces, num_streams, op, None, *parts)


_COMPUTE, _TRANSFER, _POST, _NOTHING = range(4)


def task_tables(graph, compute, occupancy, latency, delay=0.0):
    """Durations, occupancies and latencies of the classes of tasks, from those of operations.

    If there are other tasks than operations, durations are those of operations, of transfers, of what the sender's end
    waits for because of its link's delay, and 0.
    """
    if graph.tasks.op is None:
        return compute, occupancy, latency
    nothing, transfer = np.zeros_like(compute), occupancy + (latency - delay)
    durations = np.concatenate((compute, transfer, nothing + delay, nothing))
    return durations, *(np.concatenate((table,) * 4) for table in (occupancy, latency))


def _part(graph):
    """What each operation of a graph is as a task; further inputs of `inputs` take no time."""
    return np.where(graph.is_operation, _COMPUTE, _NOTHING).astype(np.int32)


def _gathered(graph, columns, group, at, transfer, num_streams):
    """`Tasks` from operation, part, stream and source of all, and the group of each, in a topological order."""
    op, part, stream, source = (column.astype(np.int32) for column in columns)
    begins = np.diff(group, prepend=-1) != 0
    overlaps, reduces = np.zeros(begins.sum(), dtype=bool), np.zeros(len(group), dtype=bool)
    reduces[at] = graph.reduces
    overlaps[(np.cumsum(begins) - 1)[at]] = graph.overlaps[graph.group]
    starts = np.append(np.flatnonzero(begins), len(group)).astype(np.int32)
    local, stays = np.zeros(len(group), dtype=bool), np.full(len(group), NO_OPERATION, dtype=np.int32)
    columns = stream, source, local, stays, starts, overlaps, reduces, num_streams, at, transfer, op, part
    return Tasks(*columns)


def _needed(graph, at, transfer):
    """The task that each operation needs, of those that are not before it on its stream anyway."""
    needed = np.where(graph.remote, transfer[graph.source], at[graph.source])
    return np.where(graph.source == NO_OPERATION, NO_OPERATION, needed)


def _of_kernels(graph):
    """Tasks under ``streams``: for each message, both ends that are posted, and a transfer that follows both."""
    issued, pair, num_pairs = graph.issued
    num_streams, sends = 2 * graph.schedule.num_ranks, issued < 0
    makers, bounds = -1 - issued[sends], graph.group_start
    sizes = np.full(len(issued), 4)
    sizes[~sends] = np.diff(bounds)[issued[~sends]]
    first = np.cumsum(sizes) - sizes
    at, transfer = np.empty(graph.num_operations, dtype=np.int64), np.full(graph.num_operations, NO_OPERATION)
    begin = np.empty(len(bounds) - 1, dtype=np.int64)
    begin[issued[~sends]], post = first[~sends], first[sends]
    at[:], transfer[makers] = begin[graph.group] + np.arange(len(at)) - bounds[graph.group], post + 3
    op, part, stream, source, group = np.empty((5, sizes.sum()), dtype=np.int64)
    op[at], part[at], stream[at] = np.arange(len(at)), _part(graph), graph.stream
    source[at], group[at] = _needed(graph, at, transfer), begin[graph.group]
    by_pair = by_keys(pair[makers])
    before = np.full(len(makers), NO_OPERATION)
    follows = np.diff(pair[makers][by_pair], prepend=-1) == 0
    before[by_pair[follows]] = post[by_pair[np.flatnonzero(follows) - 1]] + 3
    ends = (
        (_POST, graph.stream[makers], before),
        (_NOTHING, graph.receivers[makers], before),
        (_NOTHING, num_streams + pair[makers], post),
        (_TRANSFER, num_streams + pair[makers], post + 1),
    )
    for place, end in enumerate(ends):
        part[post + place], stream[post + place], source[post + place] = end
        op[post + place], group[post + place] = makers, post + min(place, 2)
    return _gathered(graph, (op, part, stream, source), group, at, transfer, num_streams + num_pairs)


def _of_exchanges(graph):
    """Tasks under ``rendezvous``: a transfer that follows what each end did before, and each end's end of a batch."""
    phase_start, _, first_batch, batch_start, message, taken_in = graph.exchanges
    num_ranks, count = graph.schedule.num_ranks, graph.num_operations
    num_streams, num_groups = 2 * num_ranks, len(graph.group_start) - 1
    batch = np.repeat(np.arange(len(batch_start) - 1), np.diff(batch_start))
    phase = np.searchsorted(first_batch, batch, "right") - 1
    end_of = np.searchsorted(phase_start, phase, "right") - 1
    # what each stream comes to, in order: messages taken in or sent, then operations
    streams = np.append(graph.stream, end_of)
    phases = np.append(graph.programs[2] + graph.stream, phase)
    order = by_keys(phases, np.append(np.ones(count, dtype=int), np.zeros(len(message), dtype=int)))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    begins = place[count + batch_start[:-1]]  # of each batch
    before = np.where((begins > 0) & (streams[order[begins - 1]] == streams[order[begins]]), begins - 1, NO_OPERATION)
    sends = graph.stream[message] == end_of
    makers, posted = message[sends], batch[sends]
    transfer = np.full(count, NO_OPERATION)
    transfer[makers] = len(order) + 1 + 2 * np.arange(len(makers))
    op = np.append(np.arange(count), message)[order]
    part = np.append(_part(graph), np.full(len(message), _NOTHING))[order]
    source = np.append(np.where(graph.remote, NO_OPERATION, _needed(graph, place[:count], transfer)), transfer[message])
    group = np.append(graph.group, num_groups + batch)[order]
    links = np.repeat(num_streams + graph.stream[makers], 2)
    meets = np.tile((_NOTHING, _TRANSFER), len(makers))
    after = np.stack((before[posted], before[taken_in[makers]]), axis=1).ravel()
    groups = np.repeat(num_groups + len(begins) + np.arange(len(makers)), 2)
    columns = (op, part, streams[order], source[order], group), (np.repeat(makers, 2), meets, links, after, groups)
    op, part, stream, source, group = map(np.concatenate, zip(*columns, strict=True))
    level, order = in_levels(source, group, stream, num_streams + num_ranks)
    at, ends = place[:count], transfer != NO_OPERATION
    if (level == NO_OPERATION).any():
        refuse_endless(graph, level[at] >= 0, level[transfer] >= 0)
    now = np.empty(len(order), dtype=np.int64)
    now[order] = np.arange(len(order))
    source = np.where(source == NO_OPERATION, NO_OPERATION, now[source])[order]
    transfer[ends] = now[transfer[ends]]
    columns = op[order], part[order], stream[order], source
    return _gathered(graph, columns, group[order], now[at], transfer, num_streams + num_ranks)
