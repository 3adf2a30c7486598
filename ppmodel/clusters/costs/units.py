"""Cells of one or two operations: how long their units take on two streams, one for compute, one for communication.

The compute stream runs units in the order of the cell; the communication stream runs their collectives in the order in
which they are issued. A unit begins when the compute stream is free and the collective of the preceding unit of the
same operation has ended. Weight gradients wait only for their turn, and for the gathering of those parts of their input
that are not kept. A cell ends when both streams have finished.

While both streams are busy, each runs `contention` times slower than alone: 1 means that they do not disturb each
other, 2 that overlap gains nothing. Kernels and collectives share a GPU's multiprocessors and memory.
"""

from bisect import bisect_left
from functools import lru_cache
from itertools import accumulate, chain, zip_longest
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from ppmodel.loops.units import START, after, end_of, unit_order

_ROUNDING = 1e-12
_SHARES = (1 / 64, 1 / 16, 1 / 4, 1 / 2, 1)
_WORK = 100
"""Operations of a table that take about as long as one pair of items in the plain search for the best order."""

_ISSUED = {"compute_s": "comm_s"}
"""By a unit's field, the collective that follows it; other fields are collectives themselves."""

_RESULTS = "compute_s", "comm_s"
"""The fields of a unit whose result its operation hands on."""

_OWN, _OTHER, _EVEN, _ODD = range(4)
"""Causes of waiting: a collective of either operation, or input gathered for weights, of every other unit."""


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
    for item in _cell(first, second, order, contention)[0]:
        waits_for, compute_s, comm_s, *of, field = item
        wait, now = state[2 + waits_for], after(state, *item[:3], contention)
        begin = state[0] + wait
        pieces += [(state[0], wait, 1.0), (begin, min(compute_s, state[1] - wait), contention)]
        if compute_s:
            compute.append(Interval(*of, field, begin, now[0]))
        if comm_s:
            issued.append((now[0], comm_s, (*of, _ISSUED.get(field, field))))
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
    if not (first and second):
        return 1.0, 1.0
    streams = cell_streams(first, second, order, contention)
    whole, results = streams.end_s, ([], [])
    for piece in chain(*streams):
        if piece.field in _RESULTS:
            results[piece.operation].append(piece.end_s)
    return tuple(min(max(ends) / whole, 1.0) if ends else 1.0 for ends in results)


def _cell(first, second, order, contention):
    """The items of the compute stream in order, and how long the cell takes.

    An item is a tuple: the collectives that must have ended before it begins, of which its own is the next; seconds of
    its kernels, and of the collective that they issue; the operation, the unit, and the field of the unit.
    """
    if not (first and second):
        items, operation = [], 0 if first else 1
        for number, unit in enumerate(first or second):
            items += [
                (_OWN, unit.compute_s, unit.comm_s, operation, number, "compute_s"),
                (_OWN, 0.0, unit.weight_comm_s, operation, number, "weight_comm_s"),
                (_OWN, unit.weight_s, 0.0, operation, number, "weight_s"),
            ]
        return _timed([item for item in items if item[1] or item[2]], contention)
    turns = _turns(tuple(first), _OWN), _turns(tuple(second), _OTHER)
    gathered = enumerate(units[0].weight_comm_s for units in (first, second))
    start = [(_EVEN, 0.0, comm_s, operation, 0, "weight_comm_s") for operation, comm_s in gathered if comm_s]
    # one turn of each, then the rest of the longer one
    orders = (chain(*chain(*zip_longest(*pair, fillvalue=()))) for pair in (turns, turns[::-1]))
    shortest = min((_timed([*start, *order], contention) for order in orders), key=itemgetter(1))
    if order == "alternating":
        return shortest
    best = _best_order([*start, *chain(*turns[1])], [*chain(*turns[0])], contention, shortest[1])
    return shortest if best is None else _timed(best, contention)


@lru_cache(2**10)
def _turns(units, operation):
    """The items of the compute stream for each unit: its kernels, what the next one gathers, its weight gradients."""
    turns = []
    for number, unit in enumerate(units):
        gathered = units[number + 1].weight_comm_s if number + 1 < len(units) else 0.0
        now, then = (_ODD, _EVEN) if number % 2 else (_EVEN, _ODD)
        items = [
            (operation, unit.compute_s, unit.comm_s, operation, number, "compute_s"),
            (then, 0.0, gathered, operation, number + 1, "weight_comm_s"),
            (now, unit.weight_s, 0.0, operation, number, "weight_s"),
        ]
        turns.append([item for item in items if item[1] or item[2]])
    return turns


def _timed(items, contention):
    """The items, and the seconds from the first item to the end of both streams."""
    kinds, *seconds = [*zip(*items, strict=True)][:3] or [()] * 3
    columns = np.array(kinds, dtype=int), *(np.array(column, dtype=float) for column in seconds)
    return items, float(end_of.run(len(items), *columns, float(contention)))


def _best_order(ours, theirs, contention, shortest):
    """The order of two operations' items that ends the cell first; each operation keeps its own order.

    The search first tries the few orders that nearly fill one stream, then more.

    Parameters
    ----------
    ours, theirs : list of tuple
        Begin with what an item waits for, the seconds of its kernels, and those of the collective that it issues.
    contention : float
    shortest : float
        Seconds that some known order takes.

    Returns
    -------
    list of tuple or None
        None if no order is shorter.
    """
    columns, rest = [], []
    for items in (ours, theirs):
        kinds, seconds = [item[0] for item in items], np.array([item[1:3] for item in items], float).reshape(-1, 2).T
        columns.append((np.array(kinds, np.int64), *np.ascontiguousarray(seconds)))
        rest.append(tuple(np.append(0.0, np.cumsum(column[::-1]))[::-1].copy() for column in seconds))
    compute, comm = (rest[0][which][0] + rest[1][which][0] for which in (0, 1))
    least = max(compute, comm) + (contention - 1) * min(compute, comm)  # if nothing waits
    bound, work = shortest * (1 - _ROUNDING), _WORK * len(ours) * len(theirs)
    for share in _SHARES:
        enough = float(least + share * (bound - least))
        turns = unit_order.run(work, *columns, *rest, float(contention), enough)
        if len(turns):
            waiting = iter(ours), iter(theirs)
            return [next(waiting[turn]) for turn in turns]
    return None
