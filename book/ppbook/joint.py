"""Systems with the same kind of device fitted together: shared constants, and constants that each has of its own."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ppbook.refits import fitted_values, refitted
from ppmodel.measured.batch import Batch
from ppmodel.measured.calibrate import SCALE, equal_weights
from ppmodel.measured.constants import TIME, chosen, value_of, with_values
from ppmodel.measured.fit import Problem
from ppmodel.specs import SystemSpec


class FittedRows(NamedTuple):
    """The rows that a system was fitted to.

    Parameters
    ----------
    start, system : SystemSpec
        The system from which the fit started, and the fitted one.
    rows : sequence of dict of str to str
        With a number in ``iteration_s``.
    files : sequence of str
        The file of each row; all files weigh the same.
    """

    start: SystemSpec
    system: SystemSpec
    rows: list
    files: list


def fitted_together(sources, shared):
    """Iteration times of rows by systems fitted one by one, and fitted together with some constants in common.

    Parameters
    ----------
    sources : sequence of FittedRows
        Systems with the same kind of device.
    shared : sequence of str
        Constants that all the systems they were fitted from have, as `constants.TIME` names them.

    Returns
    -------
    apart, together : ndarray of float, shape (num_rows,)
        In seconds, of the rows of all sources.
    values : dict of str to float
        The shared constants.
    """
    batches = [Batch(source.rows, source.start) for source in sources]
    measured = np.array([float(row["iteration_s"]) for source in sources for row in source.rows])
    weights = equal_weights([file for source in sources for file in source.files])
    fits = [fitted_values(source.system, TIME) for source in sources]

    def name_in(source, name):
        return name if name in shared else f"{source.system.name} {name}"

    def seconds(points):
        columns = []
        for source, batch, fit in zip(sources, batches, fits, strict=True):
            of_source = [tuple((name, values[name_in(source, name)]) for name in fit) for values in points]
            distinct = list(dict.fromkeys(of_source))  # points that differ only for other sources are one
            rows = batch.seconds([with_values(source.start, dict(values)) for values in distinct])
            columns.append(rows[[distinct.index(values) for values in of_source]])
        return np.concatenate(columns, axis=1)

    values = {name_in(source, name): fit[name] for source, fit in zip(sources, fits, strict=True) for name in fit}
    apart = np.concatenate([
        batch.seconds([with_values(source.start, fit)])[0]
        for source, batch, fit in zip(sources, batches, fits, strict=True)
    ])  # fmt: skip
    constants = {}
    for source, fit in zip(sources, fits, strict=True):
        for constant in chosen(source.start, list(fit)):
            name = name_in(source, constant.name)
            constants[name] = replace(constant, name=name)
    for name in shared:  # starts at the geometric mean of the systems' values
        mean = float(np.exp(np.mean([np.log(value_of(source.system, name)) for source in sources])))
        constants[name], values[name] = replace(constants[name], start=mean), mean
    problem = Problem(list(constants.values()), lambda points: weights * np.log(seconds(points) / measured), SCALE, 0.5)
    values = refitted(problem, values)
    return apart, seconds([values])[0], {name: values[name] for name in shared}
