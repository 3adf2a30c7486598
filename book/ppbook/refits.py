"""Fits to rows, made again: to the rows of the other folds, of the other models, or without a part of the model."""

from typing import NamedTuple

import numpy as np

from ppmodel.measured.calibrate import FOLDS, INTERVAL, SCALE, SEED, MeasuredRows
from ppmodel.measured.constants import MEMORY, TIME, chosen, value_of
from ppmodel.measured.fit import Problem, parted, solve


class Unseen(NamedTuple):
    """What fits that had not seen a row predict for it.

    Parameters
    ----------
    rows : list of dict of str to str
        With their ``file``.
    values : ndarray of float, shape (num_rows,)
        Seconds of an iteration, or bytes of the most loaded GPU.
    refits : list of dict of str to float
        The constants of each of these fits.
    """

    rows: list
    values: np.ndarray
    refits: list


def unseen(files, start, system, prior=0.5, by=(), kinds=("time", "memory")):
    """Predictions of each row by a fit to the rows of the other folds, the way `calibrated` judges its fit.

    Parameters
    ----------
    files : sequence of str or Path
    start : SystemSpec
        The system that `system` was fitted from.
    system : SystemSpec
        A calibrated one: its values of kind ``fitted`` are fitted again for each fold.
    prior : float
        The prior that it was fitted with.
    by : sequence of str
        Columns: rows that agree in all of them form one fold, so that ``("hidden", "layers")`` leaves out whole models.
        Without it the folds are those of `calibrated`.
    kinds : sequence of str
        What to predict.

    Returns
    -------
    dict of str to Unseen
        By "time" and "memory".

    Raises
    ------
    PPModelError
        If a file or a row is refused.
    """
    rows, predictions = MeasuredRows(files, start), {}
    for data, names in ((rows.time, TIME), (rows.memory, MEMORY)):
        if data is not None and data.name in kinds:
            values = fitted_values(system, names)
            problem = Problem(chosen(start, list(values)) if values else [], data.residuals, SCALE, prior)
            labels = [tuple(row[column] for column in by) for row in data.rows]
            folds = parted(labels) if by else parted(data.configurations, FOLDS, SEED)
            named = [row | {"file": file} for row, file in zip(data.rows, data.files.tolist(), strict=True)]
            predictions[data.name] = Unseen(named, *data.of_unseen(problem, values, folds))
    return predictions


def fitted_values(system, names):
    """The values of the constants that a calibrated system's file marks as fitted to rows, in SI units, by name.

    Those fitted to timings of kernels, in the system that it was fitted from, are not among them.
    """
    entries = [
        entry.field
        for entry in system.provenance
        if entry.kind == "fitted" and entry.field in names and entry.source.startswith(INTERVAL)
    ]
    return {name: value_of(system, name) for name in entries}


def refitted(problem, values):
    """Fit the constants again, starting from where an earlier fit ended, and return their values.

    Parameters
    ----------
    problem : Problem
        Constants that `values` does not name are left out.
    values : dict of str to float

    Returns
    -------
    dict of str to float
    """
    problem = problem.of([constant for constant in problem.constants if constant.name in values])
    start = np.log([values[constant.name] for constant in problem.constants])
    solution = np.exp(solve(problem, start=start).x).tolist() if len(start) else []
    return dict(zip((constant.name for constant in problem.constants), solution, strict=True))
