"""Sign changes of a curve, and the largest number up to which a condition holds."""

from bisect import bisect_left
from itertools import pairwise

import numpy as np

from ppmodel.studies.noise import TIE


def crossings(ratios, apart):
    """Find where a curve changes sign, interpolated on a logarithmic axis.

    Parameters
    ----------
    ratios : array of float, shape (n,)
        Positive and increasing, such as transfer times over a forward, c/F.
    apart : array of float, shape (n,)
        The curve, such as the logarithm of one time over another; values below a billionth count as 0, without a
        sign; between two signs, the first of them is where the curve changes.

    Returns
    -------
    list of float

    Examples
    --------
    >>> [round(ratio, 6) for ratio in crossings([1.0, 100.0, 1000.0], [-1.0, 1.0, 2.0])]
    [10.0]
    """
    logs = np.log(np.asarray(ratios, dtype=float))
    values = np.where(np.abs(apart) < TIE, 0.0, apart)
    roots = []
    for before, after in pairwise(np.flatnonzero(values)):
        if values[before] * values[after] < 0:
            share = values[before] / (values[before] - values[before + 1])
            roots.append(float(np.exp(logs[before] + share * (logs[before + 1] - logs[before]))))
    return roots


def largest_share(holds):
    """Find by bisection the largest number from 0 to 1 at which a condition holds that holds at all smaller ones.

    Parameters
    ----------
    holds : callable
        Maps a number to whether the condition holds there.

    Returns
    -------
    float
        Exact to 1/4096; NaN if the condition holds at no number tried.

    Examples
    --------
    >>> largest_share(lambda share: share <= 0.75), largest_share(lambda share: False)
    (0.75, nan)
    """
    steps = 2**12
    return bisect_left(range(1, steps), True, key=lambda step: not holds(step / steps)) / steps or float("nan")
