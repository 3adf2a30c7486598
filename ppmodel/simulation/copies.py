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

from ppmodel.loops.copies import ABSENT
from ppmodel.ops import OpKind
from ppmodel.tables import NO_OPERATION

_BACKWARDS = (OpKind.B, OpKind.I)

WARM_UP, LATER = range(2)
"""Whether a forward runs before the first backward of its rank; indices of the first axis of `Offload`."""

STAYS = -1.0
"""Replaces the seconds of a copy if there is none."""


class Copies(NamedTuple):
    """The copies of a run; all operations are in the order of the graph.

    Parameters
    ----------
    seconds : ndarray of float, shape (num_operations,)
        For a forward, the time to copy its activations; ``STAYS`` for all others.
    needs : ndarray of int, shape (num_operations,)
        For a backward, the forward that provides its copied activations, or ``NO_OPERATION``.
    fetch_start, fetch : ndarray of int, shape (num_operations + 1,) and (num_copies,)
        The forwards whose copies back may start when the rank reaches an operation: those from its entry in
        `fetch_start` to the next.
    share : ndarray of float, shape (num_operations,)
        Fraction of its activations that is copied; 0 if they stay. The loops in `loops` need all others.
    """

    seconds: np.ndarray
    needs: np.ndarray
    fetch_start: np.ndarray
    fetch: np.ndarray
    share: np.ndarray

    def of_tasks(self, tasks):
        """What the loops read: seconds, needs, where `fetch` starts and stops, and `fetch`, of `tasks.Tasks`."""
        seconds, needs = np.full(len(tasks.stream), ABSENT), np.full(len(tasks.stream), NO_OPERATION, dtype=np.int32)
        bounds = np.zeros((2, len(tasks.stream)), dtype=np.int32)
        seconds[tasks.at] = self.seconds
        needs[tasks.at] = np.where(self.needs == NO_OPERATION, NO_OPERATION, tasks.at[self.needs])
        bounds[:, tasks.at] = self.fetch_start[:-1], self.fetch_start[1:]
        return seconds, needs, *bounds, tasks.at[self.fetch].astype(np.int32)


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
    count = graph.num_operations
    seconds, share = np.full(count, STAYS), np.zeros(count)
    needs, begun_by = np.full(count, NO_OPERATION), np.full(count, NO_OPERATION)
    order, lengths = [], lengths[graph.group].tolist()
    for cells in _cells(graph):
        begins = list(accumulate((lengths[cell[0]] for cell in cells), initial=0.0))[:-1]  # if no cell waits
        trips = _round_trips(graph, costs, cells)
        latest, first_cells = np.inf, []  # each copy back starts as late as possible, but in the order of need
        for trip in reversed(trips):
            latest = min(latest, begins[trip.needed]) - trip.seconds
            first_cells.append(min(max(bisect_right(begins, latest) - 1, trip.begun + 1), trip.needed))
        for trip, cell in zip(trips, accumulate(reversed(first_cells), max), strict=True):
            forward = trip.forward
            seconds[forward], share[forward], needs[trip.backward] = trip.seconds, trip.share, forward
            begun_by[forward] = min(cells[cell])
            order.append(forward)
    fetch = np.array(sorted(order, key=lambda forward: begun_by[forward]), dtype=np.int64)  # stable: by backwards
    fetch_start = np.searchsorted(begun_by[fetch], np.arange(count + 1))
    return Copies(seconds, *(column.astype(np.int32) for column in (needs, fetch_start, fetch)), share)


class _Trip(NamedTuple):
    """A microbatch's activations that are copied out and back: both operations, their cells, and the copy."""

    forward: int
    begun: int
    backward: int
    needed: int
    share: float
    seconds: float


def _cells(graph):
    """The computing cells of each rank, in order: the operations of each, as numbered in the graph."""
    groups, start, _ = (column.tolist() for column in graph.programs)
    bounds, computes = graph.group_start.tolist(), graph.is_operation & ~graph.reduces
    for first, last in pairwise(start[: graph.schedule.num_ranks + 1]):
        cells = (range(bounds[group], bounds[group + 1]) for group in groups[first:last])
        yield [ops for cell in cells if (ops := [op for op in cell if computes[op]])]


def _round_trips(graph, costs, cells):
    """The copies of a rank, in the order of the backwards."""
    schedule, index = graph.schedule, graph.index[[op for cell in cells for op in cell]]
    columns = schedule.kind, schedule.replica, schedule.stage, schedule.microbatch
    rows = iter(zip(*(column[index].tolist() for column in columns), strict=True))
    shares, seconds = (column.tolist() for column in costs.offload)
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
                    trips.append(_Trip(forward, begun, op, number, share, seconds[early][replica][stage]))
    return trips
