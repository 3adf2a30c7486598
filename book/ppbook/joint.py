"""Systems with the same kind of device fitted together: shared constants, and constants that each has of its own."""

from dataclasses import replace

import numpy as np
import pandas as pd

from ppbook.against import start_of, timed_rows
from ppbook.refits import fitted_values, refitted
from ppmodel.measured.batch import Batch
from ppmodel.measured.calibrate import SCALE, equal_weights
from ppmodel.measured.constants import TIME, chosen, value_of, with_values
from ppmodel.measured.fit import Problem
from ppmodel.specs import load_system


def fitted_together(names, shared):
    """Mean errors of time by packaged systems fitted one by one, and fitted together with some constants in common.

    Parameters
    ----------
    names : sequence of str
        Packaged systems with the same kind of device.
    shared : sequence of str
        Constants that all the systems they were fitted from have, as `constants.TIME` names them.

    Returns
    -------
    errors : DataFrame
        One row per file of runs: ``runs, rows``, and the mean errors of time ``own`` and ``together``, both on the rows
        that were fitted; all files weigh the same.
    values : dict of str to float
        The shared constants.
    """
    starts, rows = [start_of(name) for name in names], [timed_rows(name) for name in names]
    fits = [fitted_values(load_system(name), TIME) for name in names]
    sources = list(zip(names, starts, fits, map(Batch, rows, starts), strict=True))
    frame = pd.concat(map(pd.DataFrame, rows), ignore_index=True)
    measured_s, weights = frame.iteration_s.astype(float).to_numpy(), equal_weights(frame.runs.tolist())

    def name_in(source, name):
        return name if name in shared else f"{source} {name}"

    def seconds(points):
        columns = []
        for source, start, fit, batch in sources:
            of_source = [tuple((name, values[name_in(source, name)]) for name in fit) for values in points]
            distinct = list(dict.fromkeys(of_source))  # points that differ only for other sources are one
            times = batch.seconds([with_values(start, dict(values)) for values in distinct])
            columns.append(times[[distinct.index(values) for values in of_source]])
        return np.concatenate(columns, axis=1)

    values, constants = {}, {}
    for source, start, fit, _ in sources:
        values |= {name_in(source, name): value for name, value in fit.items()}
        for constant in chosen(start, list(fit)):
            name = name_in(source, constant.name)
            constants[name] = replace(constant, name=name)
    for name in shared:  # starts at the geometric mean of the systems' values
        mean = float(np.exp(np.mean([np.log(value_of(load_system(source), name)) for source in names])))
        constants[name], values[name] = replace(constants[name], start=mean), mean
    problem = Problem(
        list(constants.values()), lambda points: weights * np.log(seconds(points) / measured_s), SCALE, 0.5
    )
    values = refitted(problem, values)
    apart_s = [batch.seconds([with_values(start, fit)])[0] for _, start, fit, batch in sources]
    times_s = {"own": np.concatenate(apart_s), "together": seconds([values])[0]}
    frame = frame.assign(**{name: np.abs(predicted_s / measured_s - 1) for name, predicted_s in times_s.items()})
    files = frame.groupby("runs", sort=False, as_index=False)
    errors = files.agg(rows=("own", "size"), own=("own", "mean"), together=("together", "mean"))
    return errors, {name: values[name] for name in shared}
