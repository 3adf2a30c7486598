"""A system whose constants are fitted to rows of training runs, and its errors on them."""

from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ppmodel.clusters.specs import Provenance
from ppmodel.errors import PPModelError, did_you_mean, shown
from ppmodel.studies.measured.batch import Batch
from ppmodel.studies.measured.constants import CONSTANTS, DIGITS, FACTOR, chosen, with_values
from ppmodel.studies.measured.fit import Fitted, Regression, fitted, parted, refitted, with_spread
from ppmodel.studies.measured.predict import GB, predicted
from ppmodel.studies.measured.ranges import unseen_range
from ppmodel.studies.measured.rows import MEASURED, configuration, is_healthy, model_of, read_rows, run_of, system_of
from ppmodel.studies.measured.start import by_block, keeping_stated, start_under

FOLDS, SEED = 5, 0
"""Fewer configurations than folds are too few to judge a fit on unseen rows, or to fit several constants."""

SCALED = {
    "time": ("kernels.sustained_clock", "compute_efficiency", "kernels.piped_tensor_host", "kernels.block_host"),
    "memory": ("memory.activation_factor", "reserve"),
}
"""Of these, the constant that rows depend on most is fitted to few rows; ties go to the first."""

SCALE = 0.02
STATUS = ("measured", "oom", "failed")
"""What the column ``status`` may say of a row."""

INTERVAL = "95 %: "
"""How the source of a constant begins that is fitted to rows."""

_UNSEEN = "nine of ten runs of models that the fit had not seen, as measured.ranges has it"
_FREE, _FITS_WIDTH, _FARTHEST = 1e6, 0.06, 10.0
_UNITS = {
    "iteration_s": ("seconds", {1e3: "milliseconds", 1e6: "microseconds", 1 / 60: "minutes", 1 / 3600: "hours"}),
    "memory_gb": ("1e9 bytes", {1e3: "MB or MiB", 1e9: "bytes", 1e-3: "TB"}),
}
"""The unit of each measurement, and others that it may be in by mistake, with how many of them are one of ours."""


class Source(NamedTuple):
    """The errors of a calibrated system on the rows of one file.

    Parameters
    ----------
    file : str
        The file's name.
    what : {"time", "memory", "fits"}
    rows : int
        Number of rows that state it.
    fitted : float
        Mean of |predicted / measured - 1| on the rows that were fitted; for "fits", the share that is wrong.
    unseen : dict of str to float
        The same for rows that the fit had not seen, by the names that a system's file gives them: the mean, quantiles,
        and the mean of the nine tenths with the smallest errors, which outliers do not spoil; for "fits" the mean
        alone. Empty if it was fitted to fewer configurations than `FOLDS`.
    """

    file: str
    what: str
    rows: int
    fitted: float
    unseen: dict


class Calibration(NamedTuple):
    """A calibrated system.

    Parameters
    ----------
    system : SystemSpec
        With the fitted values, rounded to four digits.
    fit : Fitted
    sources : list of Source
    scaled : list of str
        The constants of groups with too few configurations to fit more than one.
    """

    system: object
    fit: Fitted
    sources: list
    scaled: list = ()


def calibrated(files, system, names=None, prior=0.5, framework=None, runs=(), kinds=("time", "memory")):
    """Fit constants of a system to rows of training runs.

    Parameters
    ----------
    files : sequence of str or Path
        CSV files; see `read_rows`. Rows with a number in ``iteration_s`` count for time, unless they state an
        ``mfu_percent`` below `rows.LEAST_MFU`; rows with one in
        ``memory_gb``, or with ``oom`` in ``status``, count for memory. If a file has ``oom`` rows, its measured rows
        count as known to fit. A status is one of `STATUS`, or empty. All files weigh the same: the residuals of a file
        with fewer rows are scaled by the root of the ratio.
    system : SystemSpec
        The starting system, read from a file.
    names : sequence of str, optional
        Constants to fit; by default, all those whose kind in the system's file is not stated, or with fewer
        configurations than `FOLDS` one of `SCALED`, and what is left of times by `FACTOR`.
    prior : float
        Standard deviation of a constant's logarithm around its starting value.
    framework : FrameworkSpec, optional
        As in `start.start_under`; the calibrated system has it.
    runs : sequence of (str, dict of str to str)
        Rows without a file, each with a name in its place.
    kinds : sequence of str
        What to fit and to judge.

    Returns
    -------
    Calibration

    Raises
    ------
    PPModelError
        If a file, a name or a row is refused, measurements are too far from what the system predicts to be in the right
        unit, or there is nothing to fit.
    """
    rows = [row for row, *_ in rows_with_files(files, runs)]
    around = system_of(rows[0], system, framework).range if rows else None
    system = keeping_stated(start_under(system, framework, rows), rows)
    constants, fit, sources, scaled = chosen(system, names), Fitted({}, {}, {}), [], []
    for what, data in measured_data(files, system, runs).items():
        if what not in kinds:
            continue
        of_kind, factor = [constant for constant in constants if constant.name in CONSTANTS[what]], []
        if names is None and data.num_configurations < FOLDS:
            scales = [constant for name in SCALED[what] for constant in of_kind if constant.name == name]
            if of_kind := scales or of_kind[:1]:
                start = np.log([constant.start for constant in of_kind])
                _, slopes = Regression(of_kind, data.residuals, SCALE, prior).linear(start)
                of_kind = [of_kind[np.abs(slopes).sum(axis=0).round(6).argmax()]]  # on which the rows depend most
            if what == "time":
                system = _to_be_scaled(system, around, data.num_configurations)
                factor = chosen(system, [FACTOR])
            scaled += [constant.name for constant in [*of_kind, *factor]]
        regression = Regression(of_kind, data.residuals, SCALE, prior)
        fit_of_kind, errors, of_unseen = _fitted_and_judged(regression, data, factor)
        if what == "time" and data.num_configurations >= FOLDS:
            system = _with_range(system, *data.range_of_unseen(regression, fit_of_kind.values, of_unseen))
        fit = Fitted(*(entries | before for entries, before in zip(fit_of_kind, fit, strict=True)))
        sources += errors
    if not fit.values:
        rule = "has no constant that these rows determine"
        raise PPModelError("system", system.name, rule, "choose other rows, or other constants")
    scaled = [name for name in scaled if name in fit.values]
    return Calibration(with_values(system, fit.values), fit, sources, scaled)


def _to_be_scaled(system, around, num_runs):
    """A system whose file has a `FACTOR`, and a range, another's, wider by the errors of its few runs."""
    if around is not None:
        slowest = (around[1] / around[0]) ** (np.sqrt(1 + 1 / num_runs) / 2)
        source = f"the range of {system.name} before, around {num_runs} known and wider by their errors"
        system = _with_range(system, (1 / slowest, slowest), {}, "inferred", source)
    entries = [entry for entry in system.provenance if not entry.field.startswith("errors.")]
    entries.append(Provenance(FACTOR, system.time_factor, "", "our choice", "no factor"))
    return replace(system, errors=None, provenance=tuple(by_block(entries)))


def _with_range(system, ends, runs, kind="fitted", source=_UNSEEN):
    """A system whose framework states a range, and the runs that it is from."""
    stated = dict(zip(("fastest", "slowest"), (float(f"{end:.4g}") for end in ends), strict=True)) | runs
    kept = [entry for entry in system.provenance if entry.field.removeprefix("framework.") not in stated]
    kept += [Provenance(f"framework.{name}", value, "", kind, source) for name, value in stated.items()]
    return replace(system, framework=replace(system.framework, **stated), provenance=tuple(by_block(kept)))


def _fitted_and_judged(regression, data, factor):
    """The constants that the data determine, rounded, the errors on rows that no fit had seen, and their predictions.

    What is left of the errors is then fitted by a factor, if it is to be, without a prior.
    """
    fit = fitted(regression)
    rounded = _rounded(fit.values)
    of_unseen, refits = data.of_unseen(regression, fit.values, parted(data.configurations, FOLDS, SEED))
    fit = with_spread(fit, refits)
    if factor:
        scale = fitted(Regression(factor, lambda points: data.residuals([rounded | at for at in points]), SCALE, _FREE))
        rounded |= _rounded(scale.values)
        fit = fit._replace(factors=fit.factors | scale.factors)
    return fit._replace(values=rounded), data.sources(data.predicted([rounded])[0], of_unseen), of_unseen


def _rounded(values):
    """The values of constants as they are written."""
    return {name: float(f"{value:.{DIGITS[name]}g}") for name, value in values.items()}


def measured_data(files, system, runs=()):
    """The `Data` on time and on memory in the rows of some files, by these words; no entry where nothing is known.

    Parameters
    ----------
    files : sequence of str or Path
    system : SystemSpec
    runs : sequence of (str, dict of str to str)
        As in `calibrated`.

    Returns
    -------
    dict of str to Data

    Raises
    ------
    PPModelError
        If a file or a row is refused, or nothing is measured, or in other units.
    """
    entries = rows_with_files(files, runs)
    limited = {file for row, file, _ in entries if row.get("status") == "oom"}
    used, measured = [], {"time": [], "memory": []}
    for row, file, where in entries:
        if (status := row.get("status", "")) and status not in STATUS:
            rule, remedy = f"must be one of {', '.join(STATUS)}, or empty", did_you_mean(status, STATUS)
            raise PPModelError("status", shown(status), rule, remedy or "write one of them", where=where)
        row = row | dict.fromkeys(MEASURED, "") if status in STATUS[1:] else row  # it did not end
        of_time = row.get("iteration_s") and is_healthy(row)
        of_memory = row.get("memory_gb") or (file in limited and status in ("oom", "measured"))
        for what in ["time"] * bool(of_time) + ["memory"] * bool(of_memory):
            measured[what].append((row, file))
        used += [(row, file, where)] * bool(of_time or of_memory)
    if not used:
        rule = "have no measurements: no number above 0 in iteration_s or memory_gb, and no oom in status"
        names = " ".join(dict.fromkeys(file for _, file, _ in entries))
        raise PPModelError("rows", names, rule, "add what was measured")
    _require_units(used, system)
    return {what: Data(what, *zip(*rows, strict=True), system) for what, rows in measured.items() if rows}


def _require_units(entries, system):
    """Refuse a file if the median of its measurements is far from all that a fit could reach."""
    compared = {}
    for row, file, where in entries:
        prediction = predicted(row, system)
        if (refused := prediction["refused"]) is not None:
            rule, remedy = f"cannot be predicted: {refused}", "fix it, or leave it out"
            raise PPModelError("row", "refused", rule, remedy, where=where)
        for name in filter(row.get, MEASURED):
            ratio = float(row[name]) / prediction[f"predicted_{name}"]
            compared.setdefault((file, name), []).append((ratio, row[name]))
    for (file, name), measurements in compared.items():
        ratio = float(np.median([ratio for ratio, _ in measurements]))
        if not 1 / _FARTHEST <= ratio <= _FARTHEST:
            unit, mistaken = _UNITS[name]
            scale = min(mistaken, key=lambda factor: abs(np.log(ratio / factor)))
            is_near = abs(np.log(ratio / scale)) < np.log(_FARTHEST)
            rule = f"is typically {ratio:.3g} times what {system.name} predicts, too far to be fitted"
            hint = f", not {mistaken[scale]}" if is_near else ", or start from a system that is nearer"
            raise PPModelError(name, measurements[0][1], rule, f"write {unit}{hint}", where=file)


def rows_with_files(files, runs=()):
    """The rows of files and of runs without one, each with its file's name and its place for messages."""
    rows = [
        (row, Path(file).name, f"{Path(file).name}, row {row.get('id') or number}")
        for file in files for number, row in enumerate(read_rows(file)[1], start=1)
    ]  # fmt: skip
    return rows + [(row, name, name) for name, row in runs]


class Data:
    """Rows of several files that weigh the same, with their times or their memory, to be fitted.

    Parameters
    ----------
    what : {"time", "memory"}
        Rows have a time; or memory, or are known to fit or not.
    rows : sequence of dict of str to str
    files : sequence of str
        The file of each row.
    system : SystemSpec
    """

    def __init__(self, what, rows, files, system):
        batch = Batch(rows, system)
        column, unit = ("iteration_s", 1.0) if what == "time" else ("memory_gb", GB)
        self.evaluate = batch.seconds if what == "time" else batch.bytes
        self.what, self.rows, self.files, self.system = what, rows, np.array(files), system
        self.configurations, counts = [configuration(row) for row in rows], Counter(files)
        self.weights = np.sqrt([max(counts.values()) / counts[name] for name in files])  # all files weigh the same
        self.num_configurations = len(set(self.configurations))
        self.measured = unit * np.array([float(row.get(column) or "nan") for row in rows])
        self.has_number = np.isfinite(self.measured)
        self.is_out = np.array([row.get("status") == "oom" for row in rows])

    def predicted(self, points):
        """Seconds, or bytes of the most loaded rank, for dicts of constants, shape (len(points), num_rows)."""
        return self.evaluate([with_values(self.system, values) for values in points])

    def residuals(self, points):
        """Weighted logarithms of predicted over measured, shape (len(points), num_rows).

        Without a number, the root of the logistic loss of what is known: that the row fits, or does not.
        """
        predicted = self.predicted(points)
        over = np.log(predicted / self.system.memory_capacity_bytes) / _FITS_WIDTH
        fits = SCALE * np.sqrt(np.logaddexp(0.0, np.where(self.is_out, -over, over)))
        logs = np.log(predicted / np.where(self.has_number, self.measured, 1.0))
        return self.weights * np.where(self.has_number, logs, fits)

    def of_unseen(self, regression, values, folds):
        """Predictions of each row by a fit to the rows of the other folds of `parted`, and these fits' constants."""
        predictions, refits = np.empty(len(self.rows)), []
        for fitted_rows, held_out in folds:
            refits.append(refitted(regression, values, fitted_rows))
            predictions[held_out] = self.predicted(refits[-1:])[0, held_out]
        return predictions, refits

    def range_of_unseen(self, regression, values, of_unseen):
        """The range of times of one more model, from fits that had not seen a row's model, and the runs behind it.

        Of one model alone, the fits had not seen the row's configuration: those of `of_unseen`.
        """
        models = [model_of(row) for row in self.rows]
        if len(set(models)) > 1:
            of_unseen, _ = self.of_unseen(regression, values, parted(models, FOLDS, SEED))
        layouts = [run_of(row, self.system.framework).layout for row in self.rows]
        return unseen_range(np.log(self.measured / of_unseen), list(zip(self.files, models, strict=True))), {
            "range_runs": len(models), "range_gpus": max(layout.replica_gpus * layout.dp for layout in layouts),
            "range_precisions": " ".join(sorted({layout.precision for layout in layouts})),
            "range_sources": ", ".join(dict.fromkeys(file.removesuffix(".csv") for file in self.files.tolist())),
        }  # fmt: skip

    def sources(self, as_fitted, of_unseen):
        """The `Source` of each file: of its rows with a number, and of those without, of which a share is wrong."""
        errors, unseen = self._errors(as_fitted), self._errors(of_unseen)
        kinds, sources = ((self.what, self.has_number), ("fits", ~self.has_number)), []
        for file, (what, of_kind) in product(dict.fromkeys(self.files.tolist()), kinds):
            of_file = (self.files == file) & of_kind
            if of_file.any():
                off = unseen[of_file]
                median, nine_tenths, worst = np.quantile(off, (0.5, 0.9, 1.0)).tolist()
                smallest = np.sort(off)[: max(int(0.9 * len(off)), 1)]
                summary = {"mean": float(off.mean())} if self.num_configurations >= FOLDS else {}
                if summary and what != "fits":
                    summary |= {
                        "median": median, "90 %": nine_tenths, "worst": worst,
                        "mean without the worst tenth": float(smallest.mean()),
                    }  # fmt: skip
                sources.append(Source(file, what, len(off), float(errors[of_file].mean()), summary))
        return sources

    def _errors(self, predictions):
        """Errors of predictions as shares of the measurements; without one, whether a prediction is wrong."""
        is_wrong = (predictions > self.system.memory_capacity_bytes) != self.is_out
        return np.where(self.has_number, np.abs(predictions / self.measured - 1), is_wrong)
