"""The range that nine of ten measured runs of a kind that nobody has seen fall into, from groups that are known.

The logarithm of measured over predicted time is taken to be a mean, plus a deviation of the group (a model, a machine,
a source), plus one of the run: a random-effects model, whose prediction interval for one run of one more group is the
range (Higgins et al., 2009, A re-evaluation of random-effects meta-analysis, section 4). With few groups or runs,
both variances are pulled to what is usual.
"""

import numpy as np

NINE_OF_TEN = 0.9

BETWEEN, WITHIN = 0.05, 0.12
"""The usual deviation of groups, and of the runs of a group: of all frameworks that `ppbook.measured.ranges` judges."""

_GROUPS, _RUNS = 3, 5  # as many as the usual deviations count for


def unseen_range(logs, groups):
    """The multiples of a predicted time that nine of ten runs of one more group fall between.

    Parameters
    ----------
    logs : array_like of float, shape (n,)
        Logarithms of measured over predicted times, at least one.
    groups : sequence of hashable, length n
        What tells groups apart; all groups weigh the same.

    Returns
    -------
    (float, float)

    Examples
    --------
    >>> tight, wide = ([0.0, 0.02, 0.01, 0.03] * 5, [-0.2, -0.2, 0.2, 0.2] * 5)
    >>> [[round(end, 2) for end in unseen_range(logs, "aabb" * 5)] for logs in (tight, wide)]
    [[0.89, 1.16], [0.68, 1.47]]
    """
    from scipy.stats import t

    logs = np.asarray(logs, dtype=float)
    names, place = np.unique([str(group) for group in groups], return_inverse=True)
    runs, free = np.bincount(place), len(logs) - len(names)
    means = np.bincount(place, logs) / runs
    within = (np.square(logs - means[place]).sum() + _RUNS * WITHIN**2) / (free + _RUNS)
    seen = max(means.var(ddof=1) - (within / runs).mean(), 0.0) if len(names) > 1 else 0.0
    between = ((len(names) - 1) * seen + _GROUPS * BETWEEN**2) / (len(names) - 1 + _GROUPS)
    between *= 1 + 1 / len(names)  # the mean is that of so many groups
    variance = between + within
    freedom = variance**2 / (between**2 / (len(names) - 1 + _GROUPS) + within**2 / (free + _RUNS))  # Satterthwaite
    half = t.ppf((1 + NINE_OF_TEN) / 2, freedom) * np.sqrt(variance)
    return float(np.exp(means.mean() - half)), float(np.exp(means.mean() + half))
