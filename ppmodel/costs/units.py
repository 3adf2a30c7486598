"""How long a cell of two operations takes: their units run on two streams, one for computation, one for communication.

The compute stream runs units in the order of the cell; the communication stream runs their collectives in the order in
which they are issued. A unit begins when the compute stream is free and the collective of the preceding unit of the
same operation has ended. Weight gradients wait only for their turn, and for the parts of their input that are gathered
first. A cell ends when both streams have finished.

While both streams are busy, each runs `contention` times slower than alone: 1 means that they do not disturb each
other, 2 that overlap gains nothing. Kernels and collectives share the multiprocessors and the memory of a GPU.
"""

from itertools import chain
from typing import NamedTuple

from ppmodel.errors import CostError

ORDERS = ("alternating", "best")
"""In which order the units of two operations run in a cell; see `cell_duration`."""

_ROUNDING = 1e-12
_SHARES = (1 / 64, 1 / 16, 1 / 4, 1 / 2, 1)
_OWN, _OTHER, _EVEN, _ODD = range(4)
"""What an item waits for: a collective of either operation, or input gathered for weights, of every other unit."""


class Unit(NamedTuple):
    """A piece of an operation up to its next collective.

    Parameters
    ----------
    compute_s : float
        Kernels of a forward or of an input gradient, in seconds.
    comm_s : float
        The collective that follows and that the next unit waits for, as far as no kernel of its operation hides it.
    weight_s : float
        Kernels of the weight gradients of the same layers.
    weight_comm_s : float
        Gathering the input that these need.
    """

    compute_s: float = 0.0
    comm_s: float = 0.0
    weight_s: float = 0.0
    weight_comm_s: float = 0.0


def cell_duration(first, second=(), order="alternating", contention=1.0):
    """Seconds of a cell with one operation or two.

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
        From 1 to 2; see above.

    Returns
    -------
    float
        In seconds: at least the work of either stream, at most the sum of both.

    Raises
    ------
    CostError
        If the order is unknown, or the contention is out of range.

    Examples
    --------
    >>> forward, backward = [Unit(2.0, 1.0)] * 2, [Unit(2.0, 1.0, 2.0)] * 2
    >>> cell_duration(forward), cell_duration(backward), cell_duration(forward, backward)
    (6.0, 10.0, 12.0)
    """
    if order not in ORDERS:
        raise CostError("pairing", order, f"must be one of {', '.join(ORDERS)}", "choose one of them")
    if not 1 <= contention <= 2:
        raise CostError(
            "contention", contention, "must be from 1 to 2", "write 1 where streams do not disturb each other"
        )
    if not (first and second):
        return float(sum(map(sum, (*first, *second))))
    ours, theirs = _turns(first, _OWN), _turns(second, _OTHER)
    turns = _both_ways(first, second, ours, theirs)
    shortest = min(_walk(one, contention) for one in turns)
    if order == "alternating":
        return shortest
    return _best([*_gathers(first, second), *chain(*theirs)], [*chain(*ours)], contention, shortest)


def handed_on(first, second, order="alternating", contention=1.0):
    """When the results of a cell of two operations are there, as shares of its duration.

    A result is there when the last unit of its operation and the collective behind it have ended. Weight gradients
    have no result that is handed on.

    Parameters
    ----------
    first, second, order, contention
        As in `cell_duration`. Where two orders take as long, the first of them counts: of those in turn the one that
        begins with the forward, of the best the one that begins with the other.

    Returns
    -------
    tuple of float
        For both operations, from 0 to 1; 1 where nothing is handed on.

    Examples
    --------
    >>> forward, backward = [Unit(2.0, 1.0)] * 2, [Unit(2.0, 1.0, 2.0)] * 2
    >>> [12 * share for share in handed_on(forward, backward)]
    [9.0, 11.0]
    """
    if not (first and second):
        return 1.0, 1.0
    shortest = cell_duration(first, second, order, contention)
    ours, theirs = _turns(first, _OWN), _turns(second, _OTHER)
    walks = [(_walk(items, contention), items) for items in _both_ways(first, second, ours, theirs)]
    found = next((items for seconds, items in walks if seconds <= shortest), None)
    if found is None:
        found = _best_order([*_gathers(first, second), *chain(*theirs)], [*chain(*ours)], contention, shortest)
    return tuple(_there(found, own, contention, shortest) for own in (_OWN, _OTHER))


def _gathers(first, second):
    """Input for the first weight gradients, which is gathered before all else."""
    return [(_EVEN, 0.0, units[0].weight_comm_s) for units in (first, second) if units[0].weight_comm_s]


def _both_ways(first, second, ours, theirs):
    """The items of a cell in turn, beginning with either operation."""
    start = _gathers(first, second)
    return [[*start, *chain(*turns)] for turns in (_alternate(ours, theirs), _alternate(theirs, ours))]


def _turns(units, own):
    """The items of the compute stream for each unit: what each waits for, its kernels, its own collective."""
    turns = []
    for number, unit in enumerate(units):
        gathered = units[number + 1].weight_comm_s if number + 1 < len(units) else 0.0
        now, then = (_ODD, _EVEN) if number % 2 else (_EVEN, _ODD)
        items = [(own, unit.compute_s, unit.comm_s), (then, 0.0, gathered), (now, unit.weight_s, 0.0)]
        turns.append([item for item in items if item[1] or item[2]])
    return turns


def _alternate(ours, theirs):
    """One turn of each, then the rest of the longer."""
    both = min(len(ours), len(theirs))
    return [*chain(*zip(ours[:both], theirs[:both], strict=True)), *ours[both:], *theirs[both:]]


def _walk(items, contention):
    """Seconds from the first item to the end of both streams.

    The state after each item is the time at which its kernels end, the work that the communication stream still has
    ahead, and how much of that each operation waits for.
    """
    state = _START
    for item in items:
        state = _after(state, item, contention)
    return state[0] + state[1]


def _there(items, own, contention, whole):
    """The share of a cell after which the result of one of its operations is there."""
    last = max((place for place, item in enumerate(items) if item[0] == own), default=None)
    if last is None or not whole:
        return 1.0
    state = _START
    for item in items[: last + 1]:
        state = _after(state, item, contention)
    now, ahead = state[0], state[1] if items[last][2] else 0.0
    for item in items[last + 1 :]:
        if not ahead:
            break
        now, ahead = _ended(state, item, contention, now, ahead)
        state = _after(state, item, contention)
    return min((now + ahead) / whole, 1.0)


def _ended(state, item, contention, now, ahead):
    """How far a collective comes until an item has ended: a time, and the work that it still has ahead after it."""
    own, compute, _ = item
    wait = state[2 + own]
    beside = min(compute, state[1] - wait)
    if ahead <= wait:
        return now + ahead, 0.0
    if ahead <= wait + beside:
        return now + wait + (ahead - wait) * contention, 0.0
    return now + wait + beside * contention + (compute - beside), ahead - wait - beside


_START = (0.0,) * 6


def _after(state, item, contention):
    """The state after an item: time, work ahead of the communication stream, and what of it each waits for."""
    own, compute, comm = item
    wait, (time, ahead, *left) = state[2 + own], state
    beside = min(compute, ahead - wait)
    time += wait + beside * contention + (compute - beside)
    done = wait + beside
    ahead -= done
    left = [one - done if one > done else 0.0 for one in left]
    if comm:
        ahead += comm
        left[own] = ahead
    return time, ahead, *left


def _best(ours, theirs, contention, shortest):
    """The shortest cell over all orders, if it is shorter than one that is known.

    It searches first the few that nearly fill one stream, then more.
    """
    rest = _remaining(ours), _remaining(theirs)
    least = _least(*map(sum, zip(rest[0][0], rest[1][0], strict=True)), contention)
    known = shortest * (1 - _ROUNDING)
    for share in _SHARES:
        found = _search(ours, theirs, rest, contention, least + share * (known - least))
        if found is not None:
            return found
    return shortest


def _search(ours, theirs, rest, contention, enough):
    """The shortest cell that takes less than `enough`, or None.

    After i items of one operation and j of the other, those states are kept that no other dominates, and from which the
    cell can still become as short.
    """
    row = {}
    for i in range(len(ours) + 1):
        above, row = row, {}
        for j in range(len(theirs) + 1):
            found = [_START] if i == j == 0 else []
            if i:
                found += [_after(state, ours[i - 1], contention) for state in above[j]]
            if j:
                found += [_after(state, theirs[j - 1], contention) for state in row[j - 1]]
            compute, comm = rest[0][i][0] + rest[1][j][0], rest[0][i][1] + rest[1][j][1]
            row[j] = _front([one for one in found if one[0] + _least(compute, one[1] + comm, contention) < enough])
    return min((time + ahead for time, ahead, *_ in row[len(theirs)]), default=None)


def _best_order(ours, theirs, contention, shortest):
    """The items of a cell in an order that takes no longer than the shortest: of those, the one found first."""
    rest = _remaining(ours), _remaining(theirs)
    enough, known = shortest * (1 + _ROUNDING), {(0, 0): {_START: None}}
    for i in range(len(ours) + 1):
        for j in range(len(theirs) + 1):
            before = [(i - 1, j, ours[i - 1])] if i else []
            before += [(i, j - 1, theirs[j - 1])] if j else []
            found = known.setdefault((i, j), {})
            for *place, item in before:
                for state in known[tuple(place)]:
                    found.setdefault(_after(state, item, contention), (tuple(place), state, item))
            compute, comm = rest[0][i][0] + rest[1][j][0], rest[0][i][1] + rest[1][j][1]
            kept = [one for one in found if one[0] + _least(compute, one[1] + comm, contention) <= enough]
            known[i, j] = {one: found[one] for one in _front(kept)}
    place = len(ours), len(theirs)
    state, items = min(known[place], key=lambda one: one[0] + one[1]), []
    while known[place][state]:
        place, state, item = known[place][state]
        items.append(item)
    return items[::-1]


def _least(compute, comm, contention):
    """Seconds that both streams take if nothing waits."""
    return max(compute, comm) + (contention - 1) * min(compute, comm)


def _remaining(items):
    """Seconds of kernels and of collectives from each item on."""
    sums = [(0.0, 0.0)]
    for _, compute, comm in reversed(items):
        sums.append((sums[-1][0] + compute, sums[-1][1] + comm))
    return sums[::-1]


def _front(states):
    """The states that no other matches or beats in every respect."""
    kept = []
    for state in sorted(set(states)):
        if not any(all(a <= b for a, b in zip(other, state, strict=True)) for other in kept):
            kept.append(state)
    return kept
