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
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from ppmodel.ops import OpKind
from ppmodel.simulation.inputs import COPY, INPUT, OPERATION, in_order, timeless
from ppmodel.tables import by_keys

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
    planned, lengths, seconds = [], lengths[graph.group].tolist(), costs.offload.seconds.ravel().tolist()
    for before, cells in _cells(graph):
        begins = list(accumulate((lengths[cell[0]] for cell in cells), initial=0.0))[:-1]  # if no cell waits
        trips = _round_trips(graph, costs, cells)
        latest, first_cells = np.inf, []  # each copy back starts as late as possible, but in the order of need
        for *_, kind, begun, needed in reversed(trips):
            latest = min(latest, begins[needed]) - seconds[kind]
            first_cells.append(min(max(bisect_right(begins, latest) - 1, begun + 1), needed))
        for (forward, backward, *trip, _, _), cell in zip(trips, accumulate(reversed(first_cells), max), strict=True):
            planned.append((forward, backward, before[cell], *trip))
    columns = [np.array(column) for column in zip(*planned, strict=True)] or [np.zeros(0, dtype=int)] * 5
    return Copies(*(graph.index[ops] for ops in columns[:3]), *columns[3:])


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
    apart = (np.diff(anchor[order], prepend=-1) != 0) | (np.diff(phase[order], prepend=0) != 0)
    apart |= (phase[order] > 0) & (np.diff(turn[order], prepend=-1) != 0)
    arrays = in_order(tasks.arrays, order, apart, op, source, stream=stream, row=row, cost_class=cost_class)
    return tasks.with_arrays(arrays), copies._replace(rows=np.argsort(order)[new[:2]])


def _cells(graph):
    """The computing cells of each rank, in order, by operations as numbered in the graph; and what runs before each."""
    groups, start, _ = (column.tolist() for column in graph.programs)
    columns = graph.group_start, graph.stream, graph.reduces, graph.is_operation
    bounds, stream, reduces, counts = (column.tolist() for column in columns)
    for rank, (first, last) in enumerate(pairwise(start[: graph.schedule.num_ranks + 1])):
        program = ([op for op in range(bounds[group], bounds[group + 1]) if counts[op]] for group in groups[first:last])
        program = [cell for cell in program if cell]
        before = [None, *(next(op for op in cell if stream[op] == rank) for cell in program)]
        computing = [place for place, cell in enumerate(program) if not reduces[cell[0]]]
        yield [before[place] for place in computing], [program[place] for place in computing]


def _round_trips(graph, costs, cells):
    """The copies of a rank, in the order of the backwards: both operations, share, class, and the cells of both."""
    schedule, index = graph.schedule, graph.index[[op for cell in cells for op in cell]]
    columns = schedule.kind, schedule.replica, schedule.stage, schedule.microbatch
    rows = iter(zip(*(column[index].tolist() for column in columns), strict=True))
    shares, homes = costs.offload.share.tolist(), costs.offload.share[0].size
    forwards, when, trips = {}, WARM_UP, []
    for number, cell in enumerate(cells):
        operations = [(op, *next(rows)) for op in cell]
        if any(kind in _BACKWARDS for _, kind, *_ in operations):
            when = LATER
        for op, kind, replica, stage, microbatch in operations:
            if kind == OpKind.F:
                forwards[replica, stage, microbatch] = op, number, when
            elif kind in _BACKWARDS:
                forward, begun, early = forwards[replica, stage, microbatch]
                share = shares[early][replica][stage]
                if share > 0 and number > begun + 1:
                    cost_class = early * homes + replica * schedule.num_stages + stage
                    trips.append((forward, op, share, cost_class, begun, number))
    return trips
