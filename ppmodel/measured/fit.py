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


class Problem(NamedTuple):
    """What is to be fitted.

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

    def linear(self, point):
        """Residuals, shape (num_rows,), and slopes by the logarithms of the constants, (num_rows, num_constants)."""
        points = [point, *(point + step for step in _STEP * np.eye(len(point)))]
        residuals = self.residuals([_values(self, values) for values in points])
        return residuals[0], ((residuals[1:] - residuals[0]) / _STEP).T


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


def fitted(problem):
    """Fit the constants that the data determine.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    Fitted
    """
    undetermined, start = {}, None
    while problem.constants:
        result = solve(problem, start=start)
        spread, partners = _spread(problem, result)
        if spread.max() <= _DETERMINED * problem.prior:
            break
        alone = np.array([partner is None for partner in partners])
        gone = (spread == spread.max()) | (alone & (spread > _CLEARLY_UNDETERMINED * problem.prior))
        undetermined |= {problem.constants[place].name: partners[place] for place in np.flatnonzero(gone)}
        problem = problem._replace(constants=list(compress(problem.constants, ~gone)))
        start = result.x[~gone]
    if not problem.constants:
        return Fitted({}, {}, undetermined)
    names = [constant.name for constant in problem.constants]
    values = dict(zip(names, np.exp(result.x).tolist(), strict=True))
    return Fitted(values, dict(zip(names, _interval(problem, result).tolist(), strict=True)), undetermined)


def solve(problem, rows=slice(None), start=None):
    """Scipy's robust least squares on some of the rows, starting from given logarithms of the constants."""
    centre = np.log([constant.start for constant in problem.constants])
    least = np.maximum(centre - _FARTHEST, np.log([constant.least for constant in problem.constants]))
    most = np.minimum(centre + _FARTHEST, np.log([constant.most for constant in problem.constants]))
    weight = problem.scale / problem.prior

    @lru_cache(1)  # scipy asks for residuals and slopes at the same points
    def evaluated(*point):
        return [part[rows] for part in problem.linear(np.array(point))]

    return scipy_optimize().least_squares(
        lambda point: np.concatenate([evaluated(*point)[0], weight * (point - centre)]),
        np.minimum(centre if start is None else start, most - _STEP),
        lambda point: np.vstack([evaluated(*point)[1], weight * np.eye(len(point))]),
        bounds=(least, np.maximum(most, least + _STEP)), loss="soft_l1",
        f_scale=problem.scale, x_scale=0.3, max_nfev=_MOST_PASSES, ftol=_TOLERANCE, xtol=_TOLERANCE,
    )  # fmt: skip


def scipy_optimize():
    """Scipy's module of optimizers, which an extra installs."""
    try:
        from scipy import optimize
    except ImportError:
        remedy = "install the extra calibrate: pip install ppmodel[calibrate]"
        raise PPModelError("scipy", "missing", "is needed to fit constants", remedy) from None
    return optimize


def _values(problem, point):
    return dict(zip((constant.name for constant in problem.constants), np.exp(point).tolist(), strict=True))


def _spread(problem, result):
    """Standard deviations of the logarithms, and the constant that each trades off with most, if it does."""
    number = len(result.fun) - len(problem.constants)
    variance = max(2 * result.cost / max(number - len(problem.constants), 1), problem.scale**2)
    told = result.jac[:number]
    covariance = np.linalg.inv(told.T @ told / variance + np.eye(len(problem.constants)) / problem.prior**2)
    spread = np.sqrt(np.diag(covariance))
    together = np.abs(covariance / np.outer(spread, spread)) - 2 * np.eye(len(spread))
    names = [constant.name for constant in problem.constants]
    partners = [names[row.argmax()] if row.max() > _TOGETHER else None for row in together]
    return spread, partners


def _interval(problem, result):
    """Factors of 95 % intervals from the curvature, with Student's t; residuals beyond three deviations count as three.

    The deviation of most residuals is that of a normal distribution with their median.
    """
    from scipy.stats import t

    number = len(result.fun) - len(problem.constants)
    free, residuals = max(number - len(problem.constants), 1), result.fun[:number]
    most = max(_OF_NORMAL * float(np.median(np.abs(residuals))), problem.scale)
    variance = max(np.square(np.minimum(np.abs(residuals), _OUTLIER * most)).sum() / free, problem.scale**2)
    _, jacobian = problem.linear(result.x)
    covariance = np.linalg.inv(jacobian.T @ jacobian / variance + np.eye(len(problem.constants)) / problem.prior**2)
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
        logs = np.log([values[name] for values in refits])
        deviation = np.sqrt((count - 1) * logs.var())
        factors[name] = max(factor, float(np.exp(t.ppf(_LEVEL, count - 1) * deviation)))
    return fit._replace(factors=factors)


def refitted(problem, values, rows=slice(None)):
    """Fit constants again, to some of the rows, starting from where an earlier fit ended.

    Parameters
    ----------
    problem : Problem
        Constants that `values` does not name are left out.
    values : dict of str to float
    rows : ndarray of int or slice

    Returns
    -------
    dict of str to float
    """
    problem = problem._replace(constants=[constant for constant in problem.constants if constant.name in values])
    start = np.log([values[constant.name] for constant in problem.constants])
    return _values(problem, solve(problem, rows, start).x if len(start) else start)


def parted(labels, folds=None, seed=0):
    """The folds of a cross-validation: pairs of the rows that a fit sees and the rows on which it is judged.

    Rows with the same label are in the same fold. The labels are permuted by numpy's default generator and cut into
    parts as equal as possible; without a number of folds each label is one, in order of appearance.

    Examples
    --------
    >>> [held_out.tolist() for _, held_out in parted(["a", "b", "a"], 2, seed=0)]
    [[0, 2], [1]]
    """
    rows, kept = np.arange(len(labels)), list(dict.fromkeys(labels))
    order = np.arange(len(kept)) if folds is None else np.random.default_rng(seed).permutation(len(kept))
    number = {label: place for place, label in enumerate(kept)}
    of_row = np.array([number[label] for label in labels])
    for held_out in np.array_split(order, min(folds or len(kept), len(kept))):
        is_held_out = np.isin(of_row, held_out)
        yield rows[~is_held_out], rows[is_held_out]
