"""The walk of a cell's items along two streams, and the order of two operations that ends the cell first.

The state after each item is a tuple: the time at which its kernels end, the seconds of work still queued on the
communication stream, and how much of that each kind of item waits for.
"""

import numpy as np

from ppmodel.kernels.units import unit_order

START = (0.0,) * 6
"""The state before the first item."""

_ROUNDING = 1e-12
_SHARES = (1 / 64, 1 / 16, 1 / 4, 1 / 2, 1)
_WORK = 100
"""Operations of a table that take about as long as one pair of items in the plain search."""


def after(state, item, contention):
    """The state after an item.

    Parameters
    ----------
    state : tuple of float
    item : tuple
        Begins with what it waits for, the seconds of its kernels, and those of the collective that it issues.
    contention : float

    Returns
    -------
    tuple of float

    Examples
    --------
    >>> state = after(START, (0, 2.0, 1.0), 1.0)
    >>> state, after(state, (1, 2.0, 1.0), 1.5)
    ((2.0, 1.0, 1.0, 0.0, 0.0, 0.0), (4.5, 1.0, 0.0, 1.0, 0.0, 0.0))
    """
    collective, compute, comm = item[0], item[1], item[2]
    wait, (time, ahead, *left) = state[2 + collective], state
    beside = min(compute, ahead - wait)
    time += wait + beside * contention + (compute - beside)
    done = wait + beside
    ahead -= done
    left = [waits - done if waits > done else 0.0 for waits in left]
    if comm:
        ahead += comm
        left[collective] = ahead
    return time, ahead, *left


def finished(state):
    """The time at which both streams have ended."""
    return state[0] + state[1]


def best_order(ours, theirs, contention, shortest):
    """The order of two operations' items that ends the cell first; each operation keeps its own order.

    The search first tries the few orders that nearly fill one stream, then more.

    Parameters
    ----------
    ours, theirs : list of tuple
    contention : float
    shortest : float
        Seconds that some known order takes.

    Returns
    -------
    list of tuple or None
        None if no order is shorter.
    """
    rest = _remaining(ours), _remaining(theirs)
    least = _least(*map(sum, zip(rest[0][0], rest[1][0], strict=True)), contention)
    bound = shortest * (1 - _ROUNDING)
    search = _searcher(ours, theirs, rest, contention)
    for share in _SHARES:
        turns = search(least + share * (bound - least))
        if turns is not None:
            waiting = iter(ours), iter(theirs)
            return [next(waiting[turn]) for turn in turns]
    return None


def _searcher(ours, theirs, rest, contention):
    """The search, compiled if that is faster."""
    fast = unit_order.compiled(_WORK * len(ours) * len(theirs))
    if not fast:
        return lambda enough: _search(ours, theirs, rest, contention, enough)
    columns = [
        (np.array([item[0] for item in items], np.int64), np.array([item[1:3] for item in items], float).reshape(-1, 2))
        for items in (ours, theirs)
    ]
    remaining = [np.array(sums, float) for sums in rest]

    def search(enough):
        turns = fast(*columns, *remaining, float(contention), float(enough))
        return turns.tolist() if len(turns) else None

    return search


def _search(ours, theirs, rest, contention, enough):
    """Whose turn it is, item by item, in the order that ends first, if it takes less than `enough`; else None.

    After i items of one operation and j of the other, the states kept are those that no other state dominates and from
    which the cell can still become as short. Each comes with the turns that led to it.
    """
    row = {}
    for i in range(len(ours) + 1):
        above, row = row, {}
        for j in range(len(theirs) + 1):
            reached = [(START, None)] if i == j == 0 else []
            if i:
                reached += [(after(state, ours[i - 1], contention), (turns, 0)) for state, turns in above[j]]
            if j:
                reached += [(after(state, theirs[j - 1], contention), (turns, 1)) for state, turns in row[j - 1]]
            compute, comm = rest[0][i][0] + rest[1][j][0], rest[0][i][1] + rest[1][j][1]
            short = [
                (state, turns) for state, turns in reached
                if state[0] + _least(compute, state[1] + comm, contention) < enough
            ]  # fmt: skip
            row[j] = _front(short)
    if not row[len(theirs)]:
        return None
    turns, order = min(row[len(theirs)], key=lambda reached: finished(reached[0]))[1], []
    while turns is not None:
        turns, last = turns
        order.append(last)
    return order[::-1]


def _least(compute, comm, contention):
    """Seconds that both streams take if nothing waits."""
    return max(compute, comm) + (contention - 1) * min(compute, comm)


def _remaining(items):
    """Seconds of kernels and of collectives from each item on."""
    sums = [(0.0, 0.0)]
    for _, compute, comm, *_ in reversed(items):
        sums.append((sums[-1][0] + compute, sums[-1][1] + comm))
    return sums[::-1]


def _front(reached):
    """The states that no other matches or beats in every respect, in ascending order; of equal states, the first."""
    kept = []
    for state, turns in sorted(reached, key=lambda pair: pair[0]):
        if not any(all(a <= b for a, b in zip(other, state, strict=True)) for other, _ in kept):
            kept.append((state, turns))
    return kept
