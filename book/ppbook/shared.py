"""Systems with the same kind of device fitted together: shared constants, and constants that each has of its own."""

import numpy as np
import pandas as pd

from ppbook.against import start_of, timed_rows
from ppmodel.measured.batch import Batch
from ppmodel.measured.calibrate import SCALE, equal_weights, fitted_values
from ppmodel.measured.constants import TIME, Constant, chosen, value_of, with_values
from ppmodel.measured.fit import Problem, solve
from ppmodel.specs import load_system

_KEPT = 2**8


class _Source:
    """The rows of a packaged system, and the constants that were fitted to them."""

    def __init__(self, name):
        self.name, self.system, self.start = name, load_system(name), start_of(name)
        rows = timed_rows(name)
        self.runs = [row["runs"] for row in rows]
        self.measured = np.array([float(row["iteration_s"]) for row in rows])
        self.values = fitted_values(self.system, TIME)
        self._batch, self._known = Batch(rows, self.start), {}

    def seconds(self, many, shared):
        """Iteration times for many values of a joint fit; values that differ only for other sources run once."""
        asked = [tuple((self._own(values) | {key: values[key] for key in shared}).items()) for values in many]
        new = [items for items in dict.fromkeys(asked) if items not in self._known]
        if len(self._known) > _KEPT:
            self._known = {items: self._known[items] for items in asked if items in self._known}
        if new:
            found = self._batch.seconds([with_values(self.start, dict(items)) for items in new])
            self._known |= zip(new, found, strict=True)
        return np.array([self._known[items] for items in asked])

    def _own(self, values):
        return {key.removeprefix(f"{self.name} "): value for key, value in values.items() if key.startswith(self.name)}

    def constants(self, shared):
        """The constants that are not shared, under names that no other source has."""
        named = chosen(self.start, [name for name in self.values if name not in shared])
        return [Constant(f"{self.name} {one.name}", one.start, one.most) for one in named]


def fitted_together(names, shared, prior=0.5):
    """Errors of systems fitted one by one, and fitted together with some constants in common.

    Parameters
    ----------
    names : sequence of str
        Packaged systems with the same kind of device.
    shared : sequence of str
        Constants that all the systems they were fitted from have, as `constants.TIME` names them.
    prior : float
        As in `calibrated`.

    Returns
    -------
    errors : DataFrame
        One row per file of runs: ``runs, rows``, and the mean errors of time ``own`` and ``together``, both on the rows
        that were fitted; all files weigh the same.
    values : dict of str to float
        The shared constants.
    """
    sources = [_Source(name) for name in names]
    runs = [stem for source in sources for stem in source.runs]
    measured, weights = np.concatenate([source.measured for source in sources]), equal_weights(runs)

    def seconds(many):
        return np.concatenate([source.seconds(many, shared) for source in sources], axis=1)

    def residuals(many):
        return weights * np.log(seconds(many) / measured)

    common = [_common(sources, name) for name in shared]
    problem = Problem(
        [*common, *(one for source in sources for one in source.constants(shared))], residuals, SCALE, prior
    )
    begin = [one.start for one in common]
    begin += [source.values[name] for source in sources for name in source.values if name not in shared]
    point = solve(problem, start=np.log(begin)).x
    values = dict(zip((one.name for one in problem.constants), np.exp(point).tolist(), strict=True))
    alone = np.concatenate([source.seconds([_named(source)], ())[0] for source in sources])
    frame = pd.DataFrame(
        {"runs": runs, "own": np.abs(alone / measured - 1), "together": np.abs(seconds([values])[0] / measured - 1)}
    )
    errors = frame.groupby("runs", sort=False).agg(
        rows=("own", "size"), own=("own", "mean"), together=("together", "mean")
    )
    return errors.reset_index(), {name: values[name] for name in shared}


def _named(source):
    return {f"{source.name} {name}": value for name, value in source.values.items()}


def _common(sources, name):
    """A shared constant, which starts at the geometric mean of the systems' values."""
    start = float(np.exp(np.mean([np.log(value_of(source.system, name)) for source in sources])))
    return Constant(name, start, chosen(sources[0].start, [name])[0].most)
