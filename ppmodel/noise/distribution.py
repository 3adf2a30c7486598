"""Statistics of many runs: quantiles, and the probability that one schedule is faster than another."""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from ppmodel.errors import PPModelError
from ppmodel.noise.draw import TIE, require_within

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles that `distribution` takes unless others are named."""


class Distribution(NamedTuple):
    """Statistics of the makespans of many runs.

    Attributes
    ----------
    mean_s : float
        In seconds.
    standard_error_s : float
        Of the mean, in seconds; NaN for a single run.
    quantiles_s : ndarray of float
        In seconds, in the order asked for.
    """

    mean_s: float
    standard_error_s: float
    quantiles_s: np.ndarray


def distribution(makespans_s, quantiles=QUANTILES):
    """Mean, standard error of the mean and quantiles of some runs.

    Parameters
    ----------
    makespans_s : sequence of float
        In seconds, one a run; see `noisy_makespans`.
    quantiles : sequence of float
        From 0 to 1; between two runs they are interpolated.

    Returns
    -------
    Distribution

    Raises
    ------
    PPModelError
        If there are no runs, they are not a list of finite numbers, or a quantile is not from 0 to 1.

    Examples
    --------
    >>> distribution([1.0, 2.0, 3.0, 4.0], quantiles=[0.5])
    Distribution(mean_s=2.5, standard_error_s=0.6454972243679028, quantiles_s=array([2.5]))
    """
    spans = _runs("makespans", makespans_s)
    quantiles = _numbers("quantiles", quantiles, "write, for example, [0.05, 0.5, 0.95]")
    for share in quantiles:
        require_within("quantiles", share, 0, 1, "must be shares, 0 to 1", "write 0.95 for 95 percent")
    error = spans.std(ddof=1) / np.sqrt(spans.size) if spans.size > 1 else np.nan
    return Distribution(float(spans.mean()), float(error), np.quantile(spans, quantiles))


def _runs(field, makespans_s):
    spans = _numbers(field, makespans_s, "give one time a run")
    if not spans.size:
        raise PPModelError(field, "none", "must hold at least one run", "give more seeds")
    if not np.isfinite(spans).all():
        value = spans[~np.isfinite(spans)][0]
        raise PPModelError(field, value, "must be finite", "leave out runs that have no makespan, in pairs")
    return spans


def _numbers(field, values, remedy):
    """One-dimensional, so that nothing is broadcast."""
    rule = "must be a list of numbers"
    try:
        numbers = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise PPModelError(field, values, rule, remedy) from None
    if numbers.ndim != 1:
        raise PPModelError(field, f"an array of shape {numbers.shape}", f"{rule}, in one dimension", remedy)
    return numbers


class Comparison(NamedTuple):
    """The probability that one schedule is faster than another, and its confidence interval.

    Attributes
    ----------
    probability : float
        Share of the pairs of runs; a tie counts half.
    low, high : float
        Wilson's interval for it.
    """

    probability: float
    low: float
    high: float


def probability_faster(one_s, other_s, confidence=0.95):
    """The probability that a run of one schedule is faster than a run of another.

    Runs are compared in pairs of one seed. By the rule at the head of this module a pair has its slow ranks
    in common, and its jitter only where both are of one table (on two systems, or under two semantics).
    A schedule against itself is a tie in every pair.

    Parameters
    ----------
    one_s, other_s : sequence of float
        Makespans in seconds, for the same seeds in the same order. Two are equal where they differ by no more
        than a part in 10^9.
    confidence : float
        Of the interval, by Wilson's score (1927); above 0 and below 1.

    Returns
    -------
    Comparison
        The interval counts a tie as half a success, so that it is wider than necessary where there are many ties.

    Raises
    ------
    PPModelError
        If there are no runs, not as many of one as of the other, they are not lists of finite numbers, or the
        confidence is out of its range.

    Examples
    --------
    >>> probability_faster([1.0, 1.0, 2.0], [2.0, 1.0, 3.0]).probability
    0.8333333333333334
    """
    one, other = _runs("runs", one_s), _runs("runs", other_s)
    if one.size != other.size:
        rule = f"must be as many as those they are compared with, {other.size}"
        raise PPModelError("runs", one.size, rule, "give both the same seeds")
    _require_confidence(confidence)
    tie = np.isclose(one, other, rtol=TIE, atol=0)
    probability = float(np.where(tie, 0.5, one < other).mean())
    return Comparison(probability, *_wilson(probability, one.size, confidence))


def _require_confidence(confidence):
    rule = "must be above 0 and below 1"
    require_within("confidence", confidence, np.nextafter(0, 1), np.nextafter(1, 0), rule, "write, for example, 0.95")


def _wilson(share, size, confidence):
    """The shares that are no further from the observed one than their own standard error times z."""
    z = -NormalDist().inv_cdf((1 - confidence) / 2)  # this tail does not round to 1
    middle = (share + z**2 / (2 * size)) / (1 + z**2 / size)
    half = z / (1 + z**2 / size) * np.sqrt(share * (1 - share) / size + z**2 / (4 * size**2))
    low, high = float(middle - half), float(middle + half)
    return max(0.0, min(low, share)), min(1.0, max(high, share))  # rounding must not leave the share outside
