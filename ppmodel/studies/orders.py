"""Who is ahead of whom: orders of schedules by bubble ratio and by time, where they disagree, and how much."""

import numpy as np

from ppmodel.studies.cases import TIE


def order_of_bubbles(first, second):
    """The order of bubble ratios; a difference of a billionth is rounding, and none.

    Parameters
    ----------
    first, second : array of float
        Ratios of the total time, of shapes that fit together.

    Returns
    -------
    ndarray of int
        -1 where the first is the smaller one, 1 where the second is, 0 where they are one or either is missing.

    Examples
    --------
    >>> order_of_bubbles([0.1, 0.2, 0.3], [0.2, 0.2, float("nan")]).tolist()
    [-1, 0, 0]
    """
    apart = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    return np.where(abs(apart) > TIE, np.sign(apart), 0).astype(int)


def order_of_times(first, second):
    """The order of times; a billionth of them is rounding, and none.

    Parameters
    ----------
    first, second : array of float
        Of shapes that fit together, in one unit.

    Returns
    -------
    ndarray of int
        -1 where the first is the shorter one, 1 where the second is, 0 where they are one.

    Examples
    --------
    >>> order_of_times([1.0, 2.0, 3.0], 2.0).tolist()
    [-1, 0, 1]
    """
    first, second = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    return np.where(abs(first - second) > TIE * np.minimum(first, second), np.sign(first - second), 0).astype(int)


def every_two(order, values):
    """The order of every two of some schedules.

    Parameters
    ----------
    order : callable
        `order_of_bubbles` or `order_of_times`.
    values : array of float, shape (n, ...)
        One of each schedule.

    Returns
    -------
    ndarray of int, shape (n, n, ...)
        That of a row's value against a column's.

    Examples
    --------
    >>> every_two(order_of_times, [1.0, 3.0]).tolist()
    [[0, -1], [1, 0]]
    """
    values = np.asarray(values, dtype=float)
    return order(values[:, None], values[None])


def reversed_pairs(bubbles, spans, silent=None):
    """Pairs whose order by bubble ratio is not that by time. Equal bubbles, and equal times, are no order.

    Parameters
    ----------
    bubbles : array of float, shape (n, ...)
        Bubble ratios of n schedules.
    spans : array of float, shape (n, ...)
        Their times.
    silent : array of float, shape (n, ...), optional
        Their times without a network. With it only what the network reverses counts: pairs whose order without it
        is not reversed, too.

    Returns
    -------
    ndarray of bool, shape (n, n, ...)
        Whether a row's schedule has a smaller bubble than a column's, and takes longer.

    Examples
    --------
    >>> reversed_pairs([0.1, 0.2, 0.2], [3.0, 2.0, 4.0]).tolist()
    [[False, True, False], [False, False, False], [False, False, False]]
    """
    found = (every_two(order_of_bubbles, bubbles) < 0) & (every_two(order_of_times, spans) > 0)
    return found if silent is None else found & (every_two(order_of_times, silent) <= 0)


def kendall_tau(first, second):
    """Rank correlation of two orders, Kendall's tau-b: 1 where they are one, -1 where one is the other reversed.

    Parameters
    ----------
    first, second : ndarray of int, shape (n, n)
        From `every_two`; 0 where two are no order.

    Returns
    -------
    float
        Pairs in one order less pairs in opposite order, over the geometric mean of the pairs that each orders at
        all; NaN where one of them orders none. Source: Kendall, 1945.

    Examples
    --------
    >>> values = [0.1, 0.2, 0.3]
    >>> kendall_tau(every_two(order_of_bubbles, values), every_two(order_of_times, [1.0, 3.0, 2.0]))
    0.3333333333333333
    """
    ordered = np.count_nonzero(first) * np.count_nonzero(second)
    return float((first * second).sum() / np.sqrt(ordered)) if ordered else float("nan")
