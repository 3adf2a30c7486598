"""Fits to rows, made again: to the rows of the other folds, of the other models, or without a part of the model."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ppmodel.studies.measured.calibrate import FOLDS, INTERVAL, SCALE, SEED, Data, measured_data
from ppmodel.studies.measured.constants import CONSTANTS, TIME, chosen, value_of
from ppmodel.studies.measured.fit import Regression, parted, refitted

_FASTEST, _PRIOR = 1e30, 0.5
_SHAPES = "kernels.product_half_rows", "kernels.product_half_width"
_FIXED = (
    "kernels.block_host", "kernels.tensor_host", "kernels.softmax_host", "kernels.stage_overhead",
    "kernels.iteration_overhead", "collectives.message_overhead",
)  # fmt: skip


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
            problem = Regression(chosen(start, list(values)) if values else [], data.residuals, SCALE, _PRIOR)
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


# ---- without a part of the model -----------------------------------------------------------------


class Part(NamedTuple):
    """A part of the model.

    Parameters
    ----------
    without : tuple of str
        What a `Batch` leaves out.
    values : dict of str to float
        Values of constants with which a system has no such part, by the names in `constants`.
    """

    without: tuple = ()
    values: Mapping = MappingProxyType({})


PARTS = {
    "GEMMs by their shape": Part((), dict.fromkeys(_SHAPES, 0.0)),
    "kernels that memory bounds": Part((), {"memory_bandwidth_bytes_per_s": _FASTEST}),
    "host and fixed costs": Part((), dict.fromkeys(_FIXED, 0.0)), "recomputation": Part(("recomputation",)),
    "tensor-parallel collectives": Part(("tensor",)), "data-parallel collectives": Part(("data",)),
    "transfers between stages": Part(("transfers",)), "waiting in the pipeline": Part(("bubble",)),
}  # fmt: skip
"""The parts of the model that can be taken away, by the names that tables give them."""


def ablated(rows, files, start, system, part):
    """Iteration times of rows, predicted without one part of the model.

    Parameters
    ----------
    rows : sequence of dict of str to str
        With a number in ``iteration_s``.
    files : sequence of str
        The file of each row; all files weigh the same.
    start, system : SystemSpec
        The system from which the fit started, and the fitted one.
    part : Part

    Returns
    -------
    kept, refitted : ndarray of float, shape (num_rows,)
        In seconds, with the constants of `system`, and with all of them fitted again to the same rows.
    """
    data, values = Data("time", rows, files, system, part.without), fitted_values(system, TIME)

    def without(points):
        return [point | part.values for point in points]

    problem = Regression(chosen(start, list(values)), lambda points: data.residuals(without(points)), SCALE, _PRIOR)
    return tuple(data.predicted(without([point]))[0] for point in (values, refitted(problem, values)))
