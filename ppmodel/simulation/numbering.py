"""The arrays of an execution graph: its operations renumbered in topological order, and what engines read of them."""

from typing import NamedTuple

import numpy as np

from ppmodel.loops.paths import COLUMNS, fill_instructions
from ppmodel.loops.tables import renumbered
from ppmodel.ops import OpKind
from ppmodel.simulation.inputs import INPUT, with_inputs
from ppmodel.tables import NO_OPERATION, by_keys

ON_RANKS, BESIDE_RANKS = 1, 2
"""Reductions occupy the ranks, or have streams of their own; 0 if they are left out."""


class Arrays(NamedTuple):
    """The operations of a graph in topological order; all but `group_start` have one entry per operation.

    Attributes
    ----------
    index : ndarray of int, shape (num_operations,)
        The operation's index in the schedule's arrays.
    cost_class : ndarray of int, shape (num_operations,)
        ``(kind * num_replicas + replica) * num_stages + stage``: the index of its costs in a flattened cost table.
    stream : ndarray of int, shape (num_operations,)
        What executes it: rank d, or num_ranks + d for a gather, or a reduction that overlaps computation.
    source : ndarray of int, shape (num_operations,)
        The operation (in this order) that produces its input, or ``NO_OPERATION``.
    remote : ndarray of bool, shape (num_operations,)
        Whether that input is transferred from another rank.
    link : ndarray of int, shape (num_operations,)
        The directed link on which its own result leaves, or ``NO_OPERATION`` if it stays.
    group_start : ndarray of int, shape (num_groups + 1,)
        Operations between two entries start and end together.
    num_links : int
        Number of directed links that carry messages.
    row : ndarray of int, shape (num_operations,), or None
        What each is, of those of `inputs`; None if all are operations.
    meets : ndarray of int, shape (num_operations,), or None
        For a transfer that waits for both ends, 4 times its receiver's stream plus the ends that open a batch with it,
        see `tasks`; ``NO_OPERATION`` for all others. None if there are none.
    """

    index: np.ndarray
    cost_class: np.ndarray
    stream: np.ndarray
    source: np.ndarray
    remote: np.ndarray
    link: np.ndarray
    group_start: np.ndarray
    num_links: int
    row: np.ndarray | None = None
    meets: np.ndarray | None = None


def arrays_of(schedule, reductions):
    """Compute the `Arrays` of a table's graph, with reductions left out, `ON_RANKS` or `BESIDE_RANKS`."""
    arrays, further = _of_first_inputs(schedule, reductions), schedule.dependencies.further
    if further is None:
        return arrays
    count, place = len(arrays.index), np.arange(max(schedule.num_operations, further.max() + 1))
    place += count - schedule.num_operations  # barriers
    place[arrays.index] = np.arange(count)
    return with_inputs(arrays, *place[further], schedule)


def _of_first_inputs(schedule, reductions):
    """The `Arrays` of a graph in which each operation has one input."""
    source, remote, group, order, _ = schedule.dependencies
    fast = renumbered.compiled(schedule.num_operations // 4)
    if fast:
        columns = (order, schedule.kind, schedule.replica, schedule.stage, schedule.rank, source, remote, group)
        return Arrays(*fast(*columns, reductions, (schedule.num_replicas, schedule.num_stages, schedule.num_ranks)))
    order = order[~np.isin(schedule.kind[order], (OpKind.D,) if reductions else (OpKind.R, OpKind.D))]
    position = np.full(schedule.num_operations, NO_OPERATION)
    position[order] = np.arange(len(order))
    source, remote, stream = source[order], remote[order], schedule.rank[order]
    source = np.where(source == NO_OPERATION, NO_OPERATION, position[source])
    beside = (OpKind.R, OpKind.G) if reductions == BESIDE_RANKS else (OpKind.G,)
    stream = stream + schedule.num_ranks * np.isin(schedule.kind[order], beside)
    link = np.full(len(order), NO_OPERATION)
    senders, receivers = source[remote], np.flatnonzero(remote)
    ends = stream[senders] * schedule.num_ranks + stream[receivers]
    used, first, number = np.unique(ends, return_index=True, return_inverse=True)
    link[senders] = np.argsort(np.argsort(first))[number]  # as they first carry a message
    group_start = np.flatnonzero(np.diff(group[order], prepend=-1, append=-1))
    columns = (order, schedule.cost_class[order], stream, source, remote, link, group_start)
    columns = (column if column.dtype == bool else column.astype(np.int32, copy=False) for column in columns)
    return Arrays(*columns, len(used))  # of the same types as compiled


def ends_of(graph):
    """Find the first and last operations that each rank computes, without reductions; shape (2, num_ranks)."""
    schedule = graph.schedule
    computing = np.flatnonzero(schedule.computes)
    first = np.searchsorted(schedule.rank[computing], np.arange(schedule.num_ranks + 1))
    place = np.empty(schedule.num_operations, dtype=int)
    place[graph.index[graph.is_operation]] = np.flatnonzero(graph.is_operation)
    return place[computing[[first[:-1], first[1:] - 1]]]


def programs_of(graph):
    """Find where the groups of each stream begin, counted stream by stream, and each operation's place among them."""
    order, place = by_keys(graph.stream), np.empty(graph.num_operations, dtype=np.int32)
    stream, group = graph.stream[order], graph.group[order]
    # a stream executes a group once
    begins = (np.diff(stream, prepend=-1) != 0) | (np.diff(group, prepend=-1) != 0)
    place[order] = np.cumsum(begins) - 1
    return np.searchsorted(stream[begins], np.arange(2 * graph.schedule.num_ranks + 1)), place


def receivers_of(graph):
    """Find the rank that receives each result's message; ``NO_OPERATION`` where there is none."""
    receivers = np.full(graph.num_operations, NO_OPERATION, dtype=np.int32)
    receivers[graph.source[graph.remote]] = graph.stream[graph.remote]
    return receivers


def routes_of(graph):
    """List the places at which the messages of each link queue, shape (num_links, 2): at the link, or at two NICs.

    Link l is place l; the outgoing side of NIC k is place ``num_links + 2 k``, the incoming side the next.
    """
    routes = np.stack((np.arange(graph.num_links), np.full(graph.num_links, NO_OPERATION)), axis=1)
    if graph.nics is not None:
        link = graph.link[graph.source[graph.remote]]
        nics = np.array(graph.nics)
        ends = np.stack((nics[graph.stream[graph.source[graph.remote]]], nics[graph.stream[graph.remote]]), axis=1)
        apart = ends[:, 0] != ends[:, 1]
        routes[link[apart]] = graph.num_links + 2 * ends[apart] + [0, 1]
    return routes


def gates_of(graph):
    """List the places of `routes_of` at which the messages of each rank leave, and where each rank's begin.

    This includes a rank's links within a node, and its NIC, whether or not it sends messages through it.
    """
    sent = graph.source[graph.remote]
    ranks = np.arange(graph.schedule.num_ranks if graph.nics is not None else 0)
    rank = np.concatenate((graph.stream[sent], ranks))
    nics = graph.num_links + 2 * np.array(graph.nics or [], dtype=int)
    place = np.concatenate((graph.routes[graph.link[sent], 0], nics))
    rank, place = np.unique(np.stack((rank, place)), axis=1)
    return place, np.searchsorted(rank, np.arange(graph.schedule.num_ranks + 1))


def overlaps_of(graph):
    """Mask of groups that are a cell with a forward and a backward; shape (num_groups,)."""
    if not graph.schedule.joined.any():
        return np.zeros(len(graph.group_start) - 1, dtype=bool)
    first = graph.group_start[:-1]
    overlaps = graph.schedule.overlaps[graph.index[first]]
    if graph.row is None:
        return overlaps
    return overlaps & (graph.row[first] <= INPUT) & (graph.stream[first] < graph.schedule.num_ranks)


def columns_of(graph):
    """The arrays of rows that all loops over them read, whatever a transfer occupies."""
    stream, group_start = graph.stream.astype(np.uint32), graph.group_start.astype(np.uint32)  # never below 0
    return stream, graph.source, group_start, graph.remote, graph.reduces


def pair_class_of(graph):
    """The class of each row if classes of `Schedule.pairs` are put before those of copies."""
    pairs, num_classes = graph.schedule.pairs, len(OpKind) * graph.schedule.placement.size
    classes = pairs.cost_class[graph.index]
    if graph.row is None:
        return classes
    further = graph.cost_class + len(pairs.base) * (graph.cost_class >= num_classes)
    return np.where(graph.is_operation, classes, further)


def instructions_of(graph):
    """Fill in the rows of `loops.paths` for many systems at once; also the numbers of registers, streams and links."""
    rows = np.empty((graph.num_operations, len(COLUMNS)), np.uint32)  # NumPy asks for large pages
    meets = np.zeros(0, dtype=np.int32) if graph.meets is None else graph.meets
    how = graph.num_links, graph.reductions == BESIDE_RANKS or graph.schedule.dependencies.further is not None
    num_registers = fill_instructions.dispatcher(
        rows, graph.columns, graph.cost_class, graph.link, graph.overlaps, meets, *how
    )
    return rows, (num_registers, graph.num_streams, graph.num_links)
