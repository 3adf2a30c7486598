"""Fits to rows, made again: to the rows of the other folds, or of the other models."""

from typing import NamedTuple

import numpy as np

from ppmodel.studies.measured.calibrate import FOLDS, INTERVAL, SCALE, SEED, measured_data
from ppmodel.studies.measured.constants import CONSTANTS, chosen, value_of
from ppmodel.studies.measured.fit import Regression, parted


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


def unseen(files, start, system, by=(), kinds=("time", "memory")):
    """Predictions of each row by a fit to the rows of the other folds, the way `calibrated` judges its fit.

    Parameters
    ----------
    files : sequence of str or Path
    start : SystemSpec
        The system that `system` was fitted from.
    system : SystemSpec
        A calibrated one: its values of kind ``fitted`` are fitted again for each fold.
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
    predictions = {}
    for what, data in measured_data(files, start).items():
        if what in kinds:
            values = fitted_values(system, CONSTANTS[what])
            problem = Regression(chosen(start, list(values)) if values else [], data.residuals, SCALE, 0.5)
            labels = [tuple(row[column] for column in by) for row in data.rows]
            folds = parted(labels) if by else parted(data.configurations, FOLDS, SEED)
            named = [row | {"file": file} for row, file in zip(data.rows, data.files.tolist(), strict=True)]
            predictions[what] = Unseen(named, *data.of_unseen(problem, values, folds))
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
