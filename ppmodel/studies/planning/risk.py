"""Risk: the first answers again with jitter and a slow device, and the chance that each is really the first."""

from __future__ import annotations

from itertools import groupby
from math import log
from statistics import NormalDist

import numpy as np

from ppmodel.simulation import makespans
from ppmodel.studies.noise import Noise, noisy_makespans

JITTER, SLOWDOWN = 0.05, 1.1
"""Jitter of operations, as in `noise.Noise`, and the factor on the time of the slow device."""

_RUNS, _DRAWS = 32, 4096
_NINE_OF_TEN = 2 * NormalDist().inv_cdf(0.95)


def disturbed_s(point, iteration_s):
    """Iteration times with jitter and one slow device, which is in another place of the pipeline from run to run.

    Parameters
    ----------
    point : Point
    iteration_s : float
        Without noise; what is beside the pipeline keeps its time.

    Returns
    -------
    ndarray of float, shape (32,)
    """
    graph, ranks = point.graph, point.size[0]
    seconds = []
    for rank, seeds in groupby(range(_RUNS), key=lambda seed: seed * ranks // _RUNS):
        noise = Noise(jitter=JITTER, slowdown=SLOWDOWN, slow_ranks=(rank,))
        seconds.append(noisy_makespans(graph, point.costs, noise, seeds))
    return np.concatenate(seconds) + iteration_s - makespans(graph, [point.costs])[0]


def chances(seconds, ends):
    """The chance of each of several runs to be the fastest.

    Parameters
    ----------
    seconds : ndarray of float, shape (n, num_runs)
        From `disturbed_s`.
    ends : (float, float) or None
        The multiples of a predicted time that nine of ten measured runs fell between; see `SystemSpec.range`.

    Returns
    -------
    ndarray of float, shape (n,)
        They sum to 1; NaN if the range is not known.

    Notes
    -----
    Errors of the predictions are drawn from a lognormal distribution of the range's width, each on its own: what they
    have in common does not change the order, so the chance of the first is rather too low.

    Examples
    --------
    >>> chances(np.array([[1.0, 1.0], [1.3, 1.3]]), (0.95, 1.05)).round(2).tolist()
    [1.0, 0.0]
    """
    if ends is None or not len(seconds):
        return np.full(len(seconds), np.nan)
    generator = np.random.default_rng(0)
    runs = generator.integers(seconds.shape[1], size=_DRAWS)
    error = generator.standard_normal((len(seconds), _DRAWS)) * log(ends[1] / ends[0]) / _NINE_OF_TEN
    return np.bincount((seconds[:, runs] * np.exp(error)).argmin(axis=0), minlength=len(seconds)) / _DRAWS
