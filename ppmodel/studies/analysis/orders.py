"""Orders of schedules by bubble ratio, time and memory; their disagreements; Pareto fronts."""

import numpy as np

from ppmodel.studies.noise import TIE


def order_of_bubbles(first, second):
    """Order bubble ratios; differences up to a billionth count as equal.

    Parameters
    ----------
    first, second : array of float
        Ratios over the total time, with shapes that broadcast.

    Returns
    -------
    ndarray of int
        -1 where the first is smaller, 1 where the second is, and 0 where they are equal or one is missing.

    Examples
    --------
    >>> order_of_bubbles([0.1, 0.2, 0.3], [0.2, 0.2, float("nan")]).tolist()
    [-1, 0, 0]
    """
    apart = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    return np.where(abs(apart) > TIE, np.sign(apart), 0).astype(int)


def order_of_amounts(first, second):
    """Order times or amounts of memory; relative differences up to a billionth count as equal.

    Parameters
    ----------
    first, second : array of float
        In the same unit, with shapes that broadcast.

    Returns
    -------
    ndarray of int
        -1 where the first is smaller, 1 where the second is, and 0 where they are equal.

    Examples
    --------
    >>> order_of_amounts([1.0, 2.0, 3.0], 2.0).tolist()
    [-1, 0, 1]
    """
    first, second = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    return np.where(abs(first - second) > TIE * np.minimum(first, second), np.sign(first - second), 0).astype(int)


def every_two(order, values):
    """Order every pair of schedules.

    Parameters
    ----------
    order : callable
        `order_of_bubbles` or `order_of_amounts`.
    values : array of float, shape (n, ...)
        One value per schedule.

    Returns
    -------
    ndarray of int, shape (n, n, ...)
        The order of the row's value relative to the column's.

    Examples
    --------
    >>> every_two(order_of_amounts, [1.0, 3.0]).tolist()
    [[0, -1], [1, 0]]
    """
    values = np.asarray(values, dtype=float)
    return order(values[:, None], values[None])


def reversed_pairs(bubbles, times, without_network=None):
    """Find pairs whose times are in the opposite order to their bubble ratios; equal values define no order.

    Parameters
    ----------
    bubbles : array of float, shape (n, ...)
        Bubble ratios of n schedules.
    times : array of float, shape (n, ...)
        Their times.
    without_network : array of float, shape (n, ...), optional
        Their times without a network. If given, only pairs reversed by the network count, which are not also reversed
        without it.

    Returns
    -------
    ndarray of bool, shape (n, n, ...)
        Whether the row's schedule has a smaller bubble than the column's, but takes longer.

    Examples
    --------
    >>> reversed_pairs([0.1, 0.2, 0.2], [3.0, 2.0, 4.0]).tolist()
    [[False, True, False], [False, False, False], [False, False, False]]
    """
    opposite = (every_two(order_of_bubbles, bubbles) < 0) & (every_two(order_of_amounts, times) > 0)
    if without_network is None:
        return opposite
    return opposite & (every_two(order_of_amounts, without_network) <= 0)


def negated(bubble, base_bubble, time, base_time):
    """Find where a schedule has a smaller bubble than a base schedule but is not faster.

    Parameters
    ----------
    bubble, base_bubble : array of float
        Bubble ratios, with shapes that broadcast.
    time, base_time : array of float
        The corresponding times.

    Returns
    -------
    ndarray of bool
        False where the bubble is not smaller.

    Examples
    --------
    >>> negated([0.1, 0.1, 0.3], 0.2, [1.0, 2.0, 2.0], 2.0).tolist()
    [False, True, False]
    """
    return (order_of_bubbles(bubble, base_bubble) < 0) & (order_of_amounts(time, base_time) >= 0)


def beats(first, second):
    """Find which points beat which: at least as good in both numbers, and better in one.

    Parameters
    ----------
    first, second : array of float, shape (n,)
        Two numbers to minimise, such as time and memory; relative differences up to a billionth count as equal.

    Returns
    -------
    ndarray of bool, shape (n, n)
        Whether the row's point beats the column's.

    Examples
    --------
    >>> beats([1.0, 2.0, 1.0], [3.0, 3.0, 3.0]).tolist()
    [[False, True, False], [False, False, False], [False, True, False]]
    """
    orders = np.stack([every_two(order_of_amounts, values) for values in (first, second)])
    return (orders <= 0).all(axis=0) & (orders < 0).any(axis=0)


def pareto_front(first, second):
    """Find the Pareto front: points that no other point beats.

    Parameters
    ----------
    first, second : array of float, shape (n,)
        As in `beats`; of equal points, either both are on the front or neither.

    Returns
    -------
    ndarray of bool, shape (n,)

    Examples
    --------
    >>> pareto_front([1.0, 2.0, 2.0, 3.0], [5.0, 3.0, 3.0, 4.0]).tolist()
    [True, True, True, False]
    """
    return ~beats(first, second).any(axis=0)


def behind(time, memory):
    """Compute how much slower each point is than the fastest one that needs no more memory.

    Parameters
    ----------
    time, memory : array of float, shape (n,)

    Returns
    -------
    ndarray of float, shape (n,)
        Time over that of the fastest point that needs no more, minus 1; 0 on the `pareto_front`.

    Examples
    --------
    >>> behind([1.0, 3.0, 2.0], [5.0, 4.0, 3.0]).tolist()
    [0.0, 0.5, 0.0]
    """
    time = np.asarray(time, dtype=float)
    holds_no_more = every_two(order_of_amounts, memory) <= 0
    return time / np.where(holds_no_more, time[:, None], np.inf).min(axis=0) - 1


def places(order, values):
    """Rank values: one more than the number of smaller ones; equal values share a rank.

    Parameters
    ----------
    order : callable
        `order_of_bubbles` or `order_of_amounts`.
    values : array of float, shape (n,)

    Returns
    -------
    ndarray of float, shape (n,)
        NaN if the value is missing.

    Examples
    --------
    >>> places(order_of_amounts, [3.0, 1.0, 1.0, float("nan")]).tolist()
    [3.0, 1.0, 1.0, nan]
    """
    ahead = (every_two(order, values) > 0).sum(axis=1)
    return np.where(np.isnan(np.asarray(values, dtype=float)), np.nan, 1 + ahead)


def kendall_tau(first, second):
    """Rank correlation of two orders, Kendall's tau-b: 1 if they agree, -1 if one is the reverse of the other.

    Parameters
    ----------
    first, second : ndarray of int, shape (n, n)
        From `every_two`; 0 for pairs without an order.

    Returns
    -------
    float
        Pairs in the same order minus pairs in opposite order, over the geometric mean of the numbers of pairs that each
        orders; NaN if one of them orders none. Source: Kendall, 1945.

    Examples
    --------
    >>> values = [0.1, 0.2, 0.3]
    >>> kendall_tau(every_two(order_of_bubbles, values), every_two(order_of_amounts, [1.0, 3.0, 2.0]))
    0.3333333333333333
    """
    ordered = np.count_nonzero(first) * np.count_nonzero(second)
    return float((first * second).sum() / np.sqrt(ordered)) if ordered else float("nan")
