"""Activations that go to the memory of the host and come back: which, when, and what a rank waits for.

A rank has a copy stream in either direction; each serves one copy after the other. After its forward's cell has ended,
a microbatch's activations are copied out as soon as that stream is free, in the order of the forwards; their memory is
given back when the copy has ended. Those that the very next cell needs again stay.

Copies in run in the order of the backwards. Each is planned from the durations of the rank's cells alone, as if these
followed one another without a gap: it begins with the last cell that leaves it the time it takes, and those behind it
theirs, but not before the cell after its forward. It begins when its rank comes to that cell, its copy out has ended
and the stream is free; memory is taken again at that moment. A cell whose activations are not there yet waits for them.
"""

from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ppmodel.costs.offload import LATER, WARM_UP
from ppmodel.ops import OpKind
from ppmodel.tables import NO_OPERATION

_BACKWARDS = (OpKind.B, OpKind.I)

STAYS = -1.0
"""In place of the seconds of a copy: what is not copied."""


class Copies(NamedTuple):
    """What is copied; all operations in the order of the graph.

    Parameters
    ----------
    seconds : ndarray of float, shape (num_operations,)
        Of a forward, how long the copy of its activations takes; ``STAYS`` for all others.
    share : ndarray of float, shape (num_operations,)
        Of its activations, 0 where they stay.
    needs : ndarray of int, shape (num_operations,)
        Of a backward, the forward whose activations it needs back, or ``NO_OPERATION``.
    fetch_start, fetch : ndarray of int, shape (num_operations + 1,) and (num_copies,)
        The forwards whose copies in begin, at the earliest, when the rank comes to an operation: from its place in
        `fetch_start` to the next.
    """

    seconds: np.ndarray
    share: np.ndarray
    needs: np.ndarray
    fetch_start: np.ndarray
    fetch: np.ndarray

    @property
    def compiled(self):
        """What compiled code reads of it."""
        columns = (column.astype(np.int32) for column in (self.needs, self.fetch_start, self.fetch))
        return (self.seconds, *columns)


def plan_copies(graph, costs, compute):
    """Plan the copies of a graph under some costs.

    Parameters
    ----------
    graph : ExecutionGraph
    costs : OpCosts
        Says what is offloaded.
    compute : ndarray of float, shape (num_operations,)
        Durations of the operations, in the graph's order, without noise.

    Returns
    -------
    Copies
    """
    count = graph.num_operations
    seconds, share = np.full(count, STAYS), np.zeros(count)
    needs, begun_by = np.full(count, NO_OPERATION), np.full(count, NO_OPERATION)
    order = []
    for cells in _cells(graph):
        begins = _begins(graph, costs, compute, cells)
        trips = _round_trips(graph, costs, cells)
        for trip, cell in zip(trips, _first_cells(trips, begins), strict=True):
            forward = trip.forward
            seconds[forward], share[forward], needs[trip.backward] = trip.seconds, trip.share, forward
            begun_by[forward] = min(cells[cell])
            order.append(forward)
    fetch = np.array(sorted(order, key=lambda forward: begun_by[forward]), dtype=np.int64)  # stable: by backwards
    fetch_start = np.searchsorted(begun_by[fetch], np.arange(count + 1))
    return Copies(seconds, share, needs, fetch_start, fetch)


class _Trip(NamedTuple):
    """A microbatch's activations on their way out and back: both operations, their cells, and what is copied."""

    forward: int
    begun: int
    backward: int
    needed: int
    share: float
    seconds: float


def _cells(graph):
    """The computing cells of each rank, in its order: the operations of each, as the graph numbers them."""
    schedule = graph.schedule
    place = np.full(schedule.num_operations, NO_OPERATION)
    place[graph.index] = np.arange(graph.num_operations)
    computing = schedule.kind < OpKind.R
    for first, last in pairwise(schedule.rank_start.tolist()):
        own = slice(first, last)
        cells = []
        for op, joined in zip(
            place[own][computing[own]].tolist(), schedule.joined[own][computing[own]].tolist(), strict=True
        ):
            if joined:
                cells[-1].append(op)
            else:
                cells.append([op])
        yield cells


def _begins(graph, costs, compute, cells):
    """When each cell of a rank begins if none waits."""
    begins, now, overlaps, compute = [], 0.0, graph.overlaps, compute.tolist()
    for cell in cells:
        begins.append(now)
        now += sum(compute[op] for op in cell) * (costs.overlap_factor if overlaps[cell[0]] else 1.0)
    return begins


def _round_trips(graph, costs, cells):
    """What a rank copies, in the order of the backwards."""
    schedule, ops = graph.schedule, [op for cell in cells for op in cell]
    columns = [
        getattr(schedule, name)[graph.index[ops]].tolist() for name in ("kind", "replica", "stage", "microbatch")
    ]
    said = iter(zip(*columns, strict=True))
    shares, seconds = (column.tolist() for column in costs.offload)
    forwards, when, trips = {}, WARM_UP, []
    for number, cell in enumerate(cells):
        operations = [(op, *next(said)) for op in cell]
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


def _first_cells(trips, begins):
    """The cell with which each copy in begins: as late as may be, but none before one that is needed earlier."""
    latest, found = np.inf, []
    for trip in reversed(trips):
        latest = min(latest, begins[trip.needed]) - trip.seconds
        cell = bisect_right(begins, latest) - 1
        found.append(min(max(cell, trip.begun + 1), trip.needed))
    return np.maximum.accumulate(found[::-1]).tolist() if found else []


class CopyStreams:
    """Both copy streams of every rank, as a run goes on.

    Parameters
    ----------
    plan : Copies
    num_streams : int

    Attributes
    ----------
    times_s : ndarray of float, shape (4, num_operations)
        Begin and end of each copy out, begin and end of each copy in; NaN where nothing is copied.
    """

    def __init__(self, plan, num_streams):
        self.plan, self.out_free, self.in_free, self.ended = plan, *np.zeros((3, num_streams)).tolist()
        self.times_s = np.full((4, len(plan.seconds)), np.nan)

    def end(self, stream, ops, now):
        """A cell of a stream ends: the copies out of its forwards begin as soon as the stream for them is free."""
        self.ended[stream] = now
        for op in ops:
            if self.plan.seconds[op] != STAYS:
                begin = max(now, self.out_free[stream])
                self.out_free[stream] = begin + self.plan.seconds[op]
                self.times_s[:2, op] = begin, self.out_free[stream]

    def reach(self, stream, ops):
        """A stream comes to a cell; returns the forwards whose copies in begin with it."""
        start, fetch = self.plan.fetch_start, self.plan.fetch
        begun = [forward for op in ops for forward in fetch[start[op] : start[op + 1]].tolist()]
        for forward in begun:
            begin = max(self.ended[stream], self.times_s[1, forward], self.in_free[stream])
            self.in_free[stream] = begin + self.plan.seconds[forward]
            self.times_s[2:, forward] = begin, self.in_free[stream]
        return begun

    def there_s(self, ops):
        """When all activations are back that some operations need; 0 if they never left."""
        needed = [self.plan.needs[op] for op in ops if self.plan.needs[op] != NO_OPERATION]
        return float(max((self.times_s[3, forward] for forward in needed), default=0.0))
