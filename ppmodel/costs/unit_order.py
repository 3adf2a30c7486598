"""The order of two operations that ends their cell first."""

import numpy as np

from ppmodel.kernels.units import unit_order

_ROUNDING = 1e-12
_SHARES = (1 / 64, 1 / 16, 1 / 4, 1 / 2, 1)
_WORK = 100
"""Operations of a table that take about as long as one pair of items in the plain search."""


def best_order(ours, theirs, contention, shortest):
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
