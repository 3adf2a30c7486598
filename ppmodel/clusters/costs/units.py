"""Cells of one or two operations: how long their units take on two streams, one for compute, one for communication.

The compute stream runs units in the order of the cell; the communication stream runs their collectives in the order in
which they are issued. A unit begins when the compute stream is free and the collective of the preceding unit of the
same operation has ended. Weight gradients wait only for their turn, and for the gathering of those parts of their input
that are not kept. A cell ends when both streams have finished.

While both streams are busy, each runs `contention` times slower than alone: 1 means that they do not disturb each
other, 2 that overlap gains nothing. Kernels and collectives share a GPU's multiprocessors and memory.
"""

from bisect import bisect_left
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np

from ppmodel.loops.units import START, after, alternating, item_at, unit_order

_ROUNDING = 1e-12
_SHARES = (1 / 64, 1 / 16, 1 / 4, 1 / 2, 1)
_WORK = 100
"""Operations of a table that take about as long as one pair of items in the plain search for the best order."""

_RESULTS = "compute_s", "comm_s"
"""The fields of a unit whose result its operation hands on."""


class Unit(NamedTuple):
    """A piece of an operation up to its next collective.

    Parameters
    ----------
    compute_s : float
        Kernels of a forward or of an input gradient, in seconds.
    comm_s : float
        The collective that follows and that the next unit waits for, minus what a kernel of its own operation hides.
    weight_s : float
        Kernels of the weight gradients of the same layers.
    weight_comm_s : float
        Gathering the input that the weight gradients need.
    """

    compute_s: float = 0.0
    comm_s: float = 0.0
    weight_s: float = 0.0
    weight_comm_s: float = 0.0


class Interval(NamedTuple):
    """When a stream runs a piece of a cell.

    Parameters
    ----------
    operation : int
        0 for the first operation of the cell, 1 for the second.
    unit : int
        The unit's index in its operation.
    field : str
        The part of the `Unit` that runs: the name of its field.
    start_s, end_s : float
        Seconds from the start of the cell. Under contention, while both streams are busy, a piece takes longer than the
        unit states.
    """

    operation: int
    unit: int
    field: str
    start_s: float
    end_s: float


class CellStreams(NamedTuple):
    """The two streams of a cell, each a list of `Interval` in order of time."""

    compute: list
    comm: list

    @property
    def end_s(self):
        """The time at which both streams have ended, in seconds from the start of the cell."""
        return max((stream[-1].end_s for stream in self if stream), default=0.0)


def cell_duration(first, second=(), order="alternating", contention=1.0):
    """Seconds of a cell with one or two operations.

    A single operation exposes its collectives. With two, one computes while the other communicates.

    Parameters
    ----------
    first, second : sequence of Unit
        The units of each operation, in its own order; the forward first.
    order : {"alternating", "best"}
        One unit of each in turn, as in STP (Qi et al., 2025), DualPipe and Megatron-LM, starting with the operation
        that makes the cell shorter; or the best of all orders in which both operations keep their own, by dynamic
        programming (as DHelix, 2024, pairs units). Weight gradients come right after the input gradients of their
        unit, and their input is gathered one unit ahead.
    contention : float
        From 1 to 2; see the top of this module.

    Returns
    -------
    float
        In seconds: at least the work of either stream, at most the sum of both.

    Examples
    --------
    >>> forward, backward = [Unit(2.0, 1.0)] * 2, [Unit(2.0, 1.0, 2.0)] * 2
    >>> cell_duration(forward), cell_duration(backward), cell_duration(forward, backward)
    (6.0, 10.0, 12.0)
    """
    return _cell(first, second, order, contention)[1]


def cell_streams(first, second=(), order="alternating", contention=1.0):
    """Walk the two streams of a cell, and note what runs when: the walk whose end `cell_duration` returns.

    Parameters
    ----------
    first, second, order, contention
        As in `cell_duration`.

    Returns
    -------
    CellStreams

    Examples
    --------
    >>> streams = cell_streams([Unit(2.0, 1.0)], [Unit(2.0, 1.0, 2.0)])
    >>> [(piece.operation, piece.field, piece.start_s, piece.end_s) for piece in streams.compute]
    [(0, 'compute_s', 0.0, 2.0), (1, 'compute_s', 2.0, 4.0), (1, 'weight_s', 4.0, 6.0)]
    >>> [(piece.operation, piece.field, piece.start_s, piece.end_s) for piece in streams.comm]
    [(0, 'comm_s', 2.0, 3.0), (1, 'comm_s', 4.0, 5.0)]
    """
    state, compute, pieces, issued = START, [], [], []
    for operation, number, part, *item in _cell(first, second, order, contention)[0]:
        waits_for, compute_s, comm_s = item
        wait, now = state[2 + waits_for], after(state, *item, contention)
        begin = state[0] + wait
        pieces += [(state[0], wait, 1.0), (begin, min(compute_s, state[1] - wait), contention)]
        if compute_s:
            compute.append(Interval(operation, number, Unit._fields[part], begin, now[0]))
        if comm_s:
            issued.append((now[0], comm_s, (operation, number, Unit._fields[2 * part + 1])))
        state = now
    pieces.append((*state[:2], 1.0))
    # collectives one after the other on their stream, without a gap while any are waiting
    least = _ROUNDING * sum(seconds for _, seconds, _ in issued)
    busy, slack = [piece for piece in pieces if piece[1] > least], len(pieces) * least
    done = list(accumulate(work for _, work, _ in busy))
    comm, total, end = [], 0.0, 0.0
    for now, seconds, what in issued:
        total += seconds
        place = min(bisect_left(done, total - slack), len(busy) - 1)
        begin, work, pace = busy[place]
        start = max(now, end)
        end = max(start, begin + (total - done[place] + work) * pace)
        comm.append(Interval(*what, start, end))
    return CellStreams(compute, comm)


def ready_shares(first, second, order="alternating", contention=1.0):
    """When the results of a cell of two operations are available, as shares of its duration.

    A result is available when the last unit of its operation and the collective after it have ended. Weight gradients
    have no result to pass on.

    Parameters
    ----------
    first, second, order, contention
        As in `cell_duration`. If several orders take equally long, that of `cell_streams` counts.

    Returns
    -------
    tuple of float
        For both operations, from 0 to 1; 1 if nothing is passed on.

    Examples
    --------
    >>> forward, backward = [Unit(2.0, 1.0)] * 2, [Unit(2.0, 1.0, 2.0)] * 2
    >>> [12 * share for share in ready_shares(forward, backward)]
    [9.0, 11.0]
    """
    if not (len(first) and len(second)):
        return 1.0, 1.0
    streams = cell_streams(first, second, order, contention)
    whole, results = streams.end_s, ([], [])
    for piece in chain(*streams):
        if piece.field in _RESULTS:
            results[piece.operation].append(piece.end_s)
    return tuple(min(max(ends) / whole, 1.0) if ends else 1.0 for ends in results)


def _cell(first, second, order, contention):
    """The items of the compute stream in order, as `item_at` returns them, and how long the cell takes."""
    units = np.concatenate([np.reshape(each, (-1, len(Unit._fields))) for each in (first, second)], dtype=float)
    num_first, num_places, contention = len(first), 6 * (1 + max(len(first), len(second))), float(contention)
    shortest, swapped = alternating.run(2 * num_places, num_places, units, num_first, contention)
    if order == "best" and 0 < num_first < len(units):
        return _best_order([*_items(num_places, swapped, units, num_first)], contention, shortest)
    return _items(num_places, swapped, units, num_first), shortest


def _items(num_places, swapped, units, num_first):
    """Walk the items of an alternating order."""
    units = units.tolist()
    for place in range(num_places):
        item = item_at(place, swapped, units, num_first)
        if any(item[4:]):
            yield item


def _best_order(items, contention, shortest):
    """The order of two operations' items that ends the cell first, and its end; each operation keeps its own order.

    The search first tries the few orders that nearly fill one stream, then more.

    Parameters
    ----------
    items : list of tuple
        In an order that takes `shortest` seconds, and that is returned if none is shorter.
    contention, shortest : float
    """
    both = [], []
    for item in items:
        both[item[0] == 0 and item[1:3] != (0, 1)].append(item)  # input gathered at the start is ours
    columns = [np.array([*(item[3:] for item in each), (0.0,) * 3]).T.copy() for each in both]
    rest = [np.cumsum(each[1:, ::-1], axis=1)[:, ::-1].copy() for each in columns]
    compute, comm = rest[0][:, 0] + rest[1][:, 0]
    least = max(compute, comm) + (contention - 1) * min(compute, comm)  # if nothing waits
    bound, work = shortest * (1 - _ROUNDING), _WORK * len(both[0]) * len(both[1])
    for share in _SHARES:
        enough = float(least + share * (bound - least))
        turns = unit_order.run(work, *columns, *rest, contention, enough)
        if len(turns):
            waiting, state = [*map(iter, both)], START
            items = [next(waiting[turn]) for turn in turns]
            for item in items:
                state = after(state, *item[3:], contention)
            return items, state[0] + state[1]
    return items, shortest
