"""The probability that a run of one schedule is faster than a run of another."""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from ppmodel.errors import PPModelError
from ppmodel.studies.noise.draw import TIE


class Comparison(NamedTuple):
    """The probability that one schedule is faster than another, and its confidence interval.

    Attributes
    ----------
    probability : float
        Fraction of the pairs of runs; a tie counts half.
    low, high : float
        Wilson's interval for it.
    """

    probability: float
    low: float
    high: float


def probability_faster(one_s, other_s, confidence=0.95):
    """Estimate the probability that a run of one schedule is faster than a run of another.

    Runs with the same seed are compared in pairs. By the rule in `noise.draw`, the runs of a pair have the same slow
    ranks, and the same jitter only if both are of one table (on two systems, or under two semantics). A schedule
    against itself is a tie in every pair.

    Parameters
    ----------
    one_s, other_s : sequence of float
        Makespans in seconds, for the same seeds in the same order. Differences up to a part in 10^9 count as equal.
    confidence : float
        Confidence of the interval, by Wilson's score (1927); above 0 and below 1.

    Returns
    -------
    Comparison
        The interval counts a tie as half a success, so it is wider than necessary if there are many ties.

    Raises
    ------
    PPModelError
        If there are no runs, or their numbers differ.

    Examples
    --------
    >>> probability_faster([1.0, 1.0, 2.0], [2.0, 1.0, 3.0]).probability
    0.8333333333333334
    """
    one, other = np.array(one_s, dtype=float), np.array(other_s, dtype=float)
    if not one.size == other.size > 0:
        rule = f"must be as many as those compared with, {other.size}, and at least one"
        raise PPModelError("runs", one.size, rule, "give both the same seeds")
    tie = np.isclose(one, other, rtol=TIE, atol=0)
    probability = float(np.where(tie, 0.5, one < other).mean())
    # Wilson's: the fractions that are within z of their own standard errors from the observed one
    z, size = -NormalDist().inv_cdf((1 - confidence) / 2), one.size  # this tail does not round to 1
    middle = (probability + z**2 / (2 * size)) / (1 + z**2 / size)
    half = z / (1 + z**2 / size) * np.sqrt(probability * (1 - probability) / size + z**2 / (4 * size**2))
    low, high = float(middle - half), float(middle + half)  # rounding must not leave the observed one outside
    return Comparison(probability, max(0.0, min(low, probability)), min(1.0, max(high, probability)))
