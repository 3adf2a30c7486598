"""Activations offloaded to host memory: which are copied, when, and what ranks wait for.

Each rank has a copy stream in each direction, which serves one copy after another. When its forward's cell has ended, a
microbatch's activations are copied out as soon as that stream is free, in the order of the forwards; their memory is
freed when the copy has ended. Activations that the very next cell needs are not copied.

Copies back run in the order of the backwards. Each is planned only from the durations of the rank's cells, as if these
followed each other without gaps: it starts with the last cell that leaves enough time for it and for the copies after
it, but not before the cell after its forward. It starts when its rank reaches that cell, its copy out has ended and the
stream is free; memory is allocated at that moment. A cell waits if its activations have not arrived yet.
"""

from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ppmodel.ops import OpKind
from ppmodel.simulation.inputs import COPY, INPUT, OPERATION, in_order, timeless
from ppmodel.simulation.numbering import ON_RANKS
from ppmodel.tables.dependencies import by_keys, index_of

_BACKWARDS = (OpKind.B, OpKind.I)

WARM_UP, LATER = range(2)
"""Whether a forward runs before the first backward of its rank; indices of the first axis of `Offload`."""


class Copies(NamedTuple):
    """The copies of a run, all of one entry each; operations are in the order of the schedule's arrays.

    Parameters
    ----------
    forward, backward : ndarray of int, shape (num_copies,)
        The forwards whose activations are copied, and the backwards that need them, in their order on each rank.
    after : ndarray of int, shape (num_copies,)
        The last operation before the cell with which the copy back may start.
    share : ndarray of float, shape (num_copies,)
        The fraction of the activations that is copied.
    cost_class : ndarray of int, shape (num_copies,)
        The index of its time in `Offload.seconds`, flattened.
    rows : ndarray of int, shape (2, num_copies)
        The rows of copies out and back in the graph that has them.
    """

    forward: np.ndarray
    backward: np.ndarray
    after: np.ndarray
    share: np.ndarray
    cost_class: np.ndarray
    rows: np.ndarray | None = None


def plan_copies(graph, costs, lengths):
    """Plan the copies of a graph under some costs.

    Parameters
    ----------
    graph : ExecutionGraph
    costs : OpCosts
        Say what is offloaded.
    lengths : ndarray of float, shape (num_groups,)
        Durations of the groups, without noise.

    Returns
    -------
    Copies
    """
    table, share, seconds = graph.schedule, costs.offload.share, costs.offload.seconds.ravel().tolist()
    length = np.zeros(table.num_operations)
    length[graph.index[graph.is_operation]] = lengths[graph.group[graph.is_operation]]
    # computing cells: the first operation of each, the number of that of each operation, and what runs right before
    heads, number = np.flatnonzero(table.computes & ~table.joined), np.cumsum(table.computes & ~table.joined) - 1
    counts = table.computes | (table.kind == OpKind.R) if graph.reductions == ON_RANKS else table.computes
    running = np.flatnonzero(counts & ~table.joined)
    before = running[np.searchsorted(running, heads) - 1]
    backward = np.flatnonzero(np.isin(table.kind, _BACKWARDS))
    home, rank = (table.replica[backward], table.stage[backward]), table.rank[backward]
    forward = index_of(table)[OpKind.F, *home, table.microbatch[backward]]
    begun, needed = number[forward], number[backward]
    first = needed[np.searchsorted(rank, np.arange(table.num_ranks))]
    where = np.where(begun < first[rank], WARM_UP, LATER), *home
    copied = (share[where] > 0) & (needed > begun + 1)
    cost_class = np.ravel_multi_index(where, share.shape)
    first_cell = np.zeros(len(backward), dtype=int)
    for here, (low, high) in enumerate(pairwise(np.searchsorted(heads, table.rank_start).tolist())):
        begins = [0.0, *np.cumsum(length[heads[low:high]]).tolist()]  # if no cell waits
        trips, latest = np.flatnonzero(copied & (rank == here)), np.inf
        for trip in trips[::-1].tolist():  # each copy back starts as late as possible, but in the order of need
            latest = min(latest, begins[needed[trip] - low]) - seconds[cost_class[trip]]
            cell = low + bisect_right(begins, latest, hi=high - low) - 1
            first_cell[trip] = min(max(cell, begun[trip] + 1), needed[trip])
        first_cell[trips] = np.maximum.accumulate(first_cell[trips])
    columns = forward, backward, before[first_cell], share[where], cost_class
    return Copies(*(column[copied] for column in columns))


def with_copies(tasks, copies):
    """Add copies to a graph of tasks: each out behind its forward's cell, each back behind the cell before its first.

    Returns
    -------
    graph : ExecutionGraph
        Copies out and back have a stream each on every rank.
    copies : Copies
        With `rows`.
    """
    group, count, num_ranks = tasks.group, tasks.num_operations, tasks.schedule.num_ranks
    operations, place = np.flatnonzero(tasks.is_operation), np.empty(tasks.schedule.num_operations, dtype=np.int64)
    place[tasks.index[operations]] = operations
    forward, backward, after = place[np.stack(copies[:3])]
    # a copy back has two inputs: its copy out, and the end of the cell before; its backward has one input more
    op = np.concatenate((np.arange(count), forward, forward, forward, backward))
    out, back, *_ = new = np.arange(count, len(op)).reshape(4, -1)
    stream, source, row, anchor = tasks.stream[op], np.zeros_like(op), np.zeros_like(op), group[op]
    cost_class = tasks.cost_class[op]
    stream[out] += 2 * num_ranks
    stream[new[1:3]] += 3 * num_ranks
    source[:count], source[new] = tasks.source, (forward, out, after, back)
    row[:count], row[new[:3]], row[new[3]] = OPERATION if tasks.row is None else tasks.row, COPY, INPUT
    anchor[new[1:3]], nothing = group[after], timeless(tasks.schedule)
    cost_class[new[:2]], cost_class[new[2:]] = 2 * (nothing + 1) + copies.cost_class, nothing
    phase, turn = np.repeat((0, 1, 2, 2, 0), (count, *[len(forward)] * 4)), op.copy()
    turn[new[1:3]] = np.arange(len(forward))
    order = by_keys(anchor, phase, turn)  # a backward receives its message before it waits
    groups = anchor, phase, np.where(phase > 0, turn, 0)
    arrays = in_order(tasks.arrays, order, groups, op, source, stream=stream, row=row, cost_class=cost_class)
    return tasks.with_arrays(arrays), copies._replace(rows=np.argsort(order)[new[:2]])
