"""Constants fitted to measurements in log error: robustly, with weak priors, and only those that the data determine.

A residual is the logarithm of predicted over measured. Its loss is scipy's soft L1, 2 (sqrt(1 + z) - 1) with z its
square over a scale, so that rows that the model cannot explain weigh less than under least squares. The logarithm of
each constant has a normal prior around its starting value. A constant keeps its starting value if the data narrow its
prior by less than three tenths; the least determined constant is dropped first, together with all those that the data
hardly touch, and the others are fitted again.
"""

from functools import lru_cache
from itertools import compress
from typing import NamedTuple

import numpy as np

from ppmodel.errors import PPModelError

_STEP, _MOST_PASSES, _FARTHEST, _TOLERANCE = 1e-3, 60, 3.0, 1e-8
_DETERMINED, _CLEARLY_UNDETERMINED, _TOGETHER = 0.7, 0.95, 0.7
_LEVEL, _OUTLIER, _OF_NORMAL = 0.975, 3.0, 1.4826


class Regression(NamedTuple):
    """A regression: the constants to fit and their rows.

    Parameters
    ----------
    constants : list of Constant
    residuals : callable
        Takes a list of dicts of values by name; returns residuals, shape (len(list), num_rows).
    scale : float
        The size of a typical residual.
    prior : float
        Standard deviation of a constant's logarithm around its starting value.
    """

    constants: list
    residuals: object
    scale: float
    prior: float

    @property
    def names(self):
        """Of the constants."""
        return [constant.name for constant in self.constants]

    def values(self, point):
        """The values of the constants by name, from their logarithms."""
        return dict(zip(self.names, np.exp(point).tolist(), strict=True))

    def linear(self, point):
        """Residuals, shape (num_rows,), and slopes by the logarithms of the constants, (num_rows, num_constants)."""
        points = [point, *(point + step for step in _STEP * np.eye(len(point)))]
        residuals = self.residuals([self.values(point) for point in points])
        return residuals[0], ((residuals[1:] - residuals[0]) / _STEP).T

    def covariance(self, slopes, variance):
        """Of the logarithms, from their slopes, the variance of residuals, and the prior."""
        return np.linalg.inv(slopes.T @ slopes / variance + np.eye(len(self.constants)) / self.prior**2)


class Fitted(NamedTuple):
    """Fitted constants.

    Parameters
    ----------
    values : dict of str to float
        By name, in SI units.
    factors : dict of str to float
        The 95 % interval goes from the value divided by its factor to the value times its factor; see `with_spread`.
    undetermined : dict of str to str or None
        Constants that the data do not determine, each with the one that it trades off with most, if there is one.
    """

    values: dict
    factors: dict
    undetermined: dict


def fitted(regression):
    """Fit the constants that the data determine.

    Parameters
    ----------
    regression : Regression

    Returns
    -------
    Fitted
    """
    undetermined, start = {}, None
    while regression.constants:
        result = solve(regression, start=start)
        spread, partners = _spread(regression, result)
        if spread.max() <= _DETERMINED * regression.prior:
            break
        alone = np.array([partner is None for partner in partners])
        dropped = (spread == spread.max()) | (alone & (spread > _CLEARLY_UNDETERMINED * regression.prior))
        undetermined |= dict(compress(zip(regression.names, partners, strict=True), dropped))
        regression = regression._replace(constants=list(compress(regression.constants, ~dropped)))
        start = result.x[~dropped]
    if not regression.constants:
        return Fitted({}, {}, undetermined)
    factors = dict(zip(regression.names, _interval(regression, result).tolist(), strict=True))
    return Fitted(regression.values(result.x), factors, undetermined)


def solve(regression, rows=slice(None), start=None):
    """Scipy's robust least squares on some of the rows, starting from given logarithms of the constants."""
    centre = np.log([constant.start for constant in regression.constants])
    least = np.maximum(centre - _FARTHEST, np.log([constant.least for constant in regression.constants]))
    most = np.minimum(centre + _FARTHEST, np.log([constant.most for constant in regression.constants]))
    weight = regression.scale / regression.prior

    @lru_cache(1)  # scipy asks for residuals and slopes at the same points
    def evaluated(*point):
        return [part[rows] for part in regression.linear(np.array(point))]

    return scipy_optimize().least_squares(
        lambda point: np.concatenate([evaluated(*point)[0], weight * (point - centre)]),
        np.minimum(centre if start is None else start, most - _STEP),
        lambda point: np.vstack([evaluated(*point)[1], weight * np.eye(len(point))]),
        bounds=(least, np.maximum(most, least + _STEP)), loss="soft_l1",
        f_scale=regression.scale, x_scale=0.3, max_nfev=_MOST_PASSES, ftol=_TOLERANCE, xtol=_TOLERANCE,
    )  # fmt: skip


def scipy_optimize():
    """Scipy's module of optimizers, which an extra installs."""
    try:
        from scipy import optimize
    except ImportError:
        remedy = "install the extra calibrate: pip install ppmodel[calibrate]"
        raise PPModelError("scipy", "missing", "is needed to fit constants", remedy) from None
    return optimize


def _spread(regression, result):
    """Standard deviations of the logarithms, and the constant that each trades off with most, if it does."""
    number = len(result.fun) - len(regression.constants)
    variance = max(2 * result.cost / max(number - len(regression.constants), 1), regression.scale**2)
    covariance = regression.covariance(result.jac[:number], variance)
    spread = np.sqrt(np.diag(covariance))
    together = np.abs(covariance / np.outer(spread, spread)) - 2 * np.eye(len(spread))
    return spread, [regression.names[row.argmax()] if row.max() > _TOGETHER else None for row in together]


def _interval(regression, result):
    """Factors of 95 % intervals from the curvature, with Student's t; residuals beyond three deviations count as three.

    The deviation of most residuals is that of a normal distribution with their median.
    """
    from scipy.stats import t

    number = len(result.fun) - len(regression.constants)
    free, residuals = max(number - len(regression.constants), 1), result.fun[:number]
    most = max(_OF_NORMAL * float(np.median(np.abs(residuals))), regression.scale)
    variance = max(np.square(np.minimum(np.abs(residuals), _OUTLIER * most)).sum() / free, regression.scale**2)
    covariance = regression.covariance(regression.linear(result.x)[1], variance)
    return np.exp(t.ppf(_LEVEL, free) * np.sqrt(np.diag(covariance)))


def with_spread(fit, refits):
    """The fit with intervals at least as wide as the fits without one fold each spread: a jackknife, with Student's t.

    Parameters
    ----------
    fit : Fitted
    refits : sequence of dict of str to float
        The constants' values without each fold.

    Returns
    -------
    Fitted

    Examples
    --------
    >>> fit = Fitted({"a": 1.0}, {"a": 1.01}, {})
    >>> round(with_spread(fit, [{"a": 1.1}, {"a": 0.9}, {"a": 1.0}]).factors["a"], 2)
    1.65
    """
    from scipy.stats import t

    if len(refits) < 2:
        return fit
    count, factors = len(refits), {}
    for name, factor in fit.factors.items():
        deviation = np.sqrt((count - 1) * np.log([values[name] for values in refits]).var())
        factors[name] = max(factor, float(np.exp(t.ppf(_LEVEL, count - 1) * deviation)))
    return fit._replace(factors=factors)


def refitted(regression, values, rows=slice(None)):
    """Fit constants again, to some of the rows, starting from where an earlier fit ended.

    Parameters
    ----------
    regression : Regression
        Constants that `values` does not name are left out.
    values : dict of str to float
    rows : ndarray of int or slice

    Returns
    -------
    dict of str to float
    """
    constants = [constant for constant in regression.constants if constant.name in values]
    regression = regression._replace(constants=constants)
    start = np.log([values[name] for name in regression.names])
    return regression.values(solve(regression, rows, start).x if constants else start)


def parted(labels, folds=None, seed=0):
    """The folds of a cross-validation: pairs of the rows that a fit sees and the rows on which it is judged.

    Rows with the same label are in the same fold. The labels are permuted by numpy's default generator and cut into
    parts as equal as possible; without a number of folds each label is one, in order of appearance.

    Examples
    --------
    >>> [held_out.tolist() for _, held_out in parted(["a", "b", "a"], 2, seed=0)]
    [[0, 2], [1]]
    """
    number = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    order = np.arange(len(number)) if folds is None else np.random.default_rng(seed).permutation(len(number))
    of_row = np.array([number[label] for label in labels])
    for held_out in np.array_split(order, min(folds or len(number), len(number))):
        is_held_out = np.isin(of_row, held_out)
        yield np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)
