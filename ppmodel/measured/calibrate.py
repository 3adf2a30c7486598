"""A system whose constants are fitted to rows of training runs, and its errors on them."""

from collections import Counter
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ppmodel.errors import PPModelError, shown
from ppmodel.measured.batch import Batch
from ppmodel.measured.constants import MEMORY, TIME, chosen, value_of, with_values
from ppmodel.measured.fit import Fitted, Problem, cross_validated, fitted, parted, parted_by
from ppmodel.measured.predict import predicted
from ppmodel.measured.rows import read_rows

FOLDS, SEED = 5, 0
"""Fewer rows than folds are too few to judge a fit on rows that it has not seen."""

SCALE = 0.02
STATUS = ("measured", "oom", "failed")
"""What the column ``status`` may say of a row."""

_DIGITS, _COARSE = 4, 1e-3
_GB, _FITS_WIDTH = 1e9, 0.06
_FARTHEST = 10.0
_SCALES = {
    "iteration_s": {1e3: "milliseconds", 1e6: "microseconds", 1 / 60: "minutes", 1 / 3600: "hours"},
    "memory_gb": {1e3: "MB or MiB", 1e9: "bytes", 1e-3: "TB"},
}
_UNITS = {"iteration_s": "seconds", "memory_gb": "1e9 bytes"}


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
    mean, median, nine_tenths, worst : float or None
        The same for rows that the fit had not seen; None if it was fitted to fewer rows than `FOLDS`.
    """

    file: str
    what: str
    rows: int
    fitted: float
    mean: float | None = None
    median: float | None = None
    nine_tenths: float | None = None
    worst: float | None = None


class Calibration(NamedTuple):
    """A calibrated system.

    Parameters
    ----------
    system : SystemSpec
        With the fitted values, rounded to four digits.
    constants : list of Constant
        All constants that were to be fitted.
    fit : Fitted
    sources : list of Source
    rows : dict of str to int
        How many rows each group of constants, time and memory, was fitted to.
    """

    system: object
    constants: list
    fit: Fitted
    sources: list
    rows: dict


def calibrated(files, system, names=None, prior=0.5):
    """Fit constants of a system to rows of training runs.

    Parameters
    ----------
    files : sequence of str or Path
        CSV files; see `read_rows`. Rows with a number in ``iteration_s`` count for time; rows with one in
        ``memory_gb``, or with ``oom`` in ``status``, count for memory. If a file has ``oom`` rows, its measured rows
        count as known to fit. A status is one of `STATUS`, or empty. All files weigh the same: the residuals of a file
        with fewer rows are scaled by the root of the ratio.
    system : SystemSpec
        The starting system, read from a file.
    names : sequence of str, optional
        Constants to fit; by default, all those whose kind in the system's file is not stated.
    prior : float
        Standard deviation of a constant's logarithm around its starting value.

    Returns
    -------
    Calibration

    Raises
    ------
    PPModelError
        If a file, a name or a row is refused, measurements are too far from what the system predicts to be in the right
        unit, or there is nothing to fit.
    """
    constants = chosen(system, names)
    rows = _Rows(files, system)
    parts = [
        _fit_part(rows.of(rows.timed), constants, TIME, _Time, prior, system),
        _fit_part(rows.of(rows.held), constants, MEMORY, _Memory, prior, system),
    ]
    parts = [part for part in parts if part is not None]
    if not any(part.fit.values for part in parts):
        rule = "has no constant that these rows determine"
        raise PPModelError("system", system.name, rule, "choose other rows, or other constants")
    fit = Fitted(
        *(
            {name: one for own in several for name, one in own.items()}
            for several in zip(*(part.fit for part in parts), strict=True)
        )
    )
    sources = [source for part in parts for source in part.sources]
    return Calibration(with_values(system, fit.values), constants, fit, sources, {p.name: p.rows for p in parts})


class Unseen(NamedTuple):
    """What fits that had not seen a row predict for it.

    Parameters
    ----------
    rows : list of dict of str to str
        With their ``file``.
    values : ndarray of float, shape (num_rows,)
        Seconds of an iteration, or bytes of the most loaded GPU.
    """

    rows: list
    values: np.ndarray


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
    rows, found = _Rows(files, start), {}
    for kind, places, names in ((_Time, rows.timed, TIME), (_Memory, rows.held, MEMORY)):
        if places and kind.name in kinds:
            own, of_files = rows.of(places)
            values = fitted_values(system, names)
            data = kind(own, of_files, start)
            problem = Problem(chosen(start, list(values)) if values else [], data.residuals, SCALE, prior)
            tolerance = (_COARSE,) if by else ()
            labels = [tuple(row[column] for column in by) for row in own]
            parts = parted_by(labels) if by else parted(len(own), FOLDS, SEED)
            given = problem, values, parts, len(own), lambda values, data=data: data.predicted([values])[0]
            named = [row | {"file": file} for row, file in zip(own, of_files.tolist(), strict=True)]
            found[kind.name] = Unseen(named, cross_validated(*given, *tolerance))
    return found


def fitted_values(system, names):
    """The values of the constants that a calibrated system's file marks as fitted, in SI units, by name."""
    fitted_ones = [one.field for one in system.provenance if one.kind == "fitted" and one.field in names]
    return {name: value_of(system, name) for name in fitted_ones}


class _Rows:
    """The rows of some files, and which of them hold a measurement."""

    def __init__(self, files, system):
        if system.nodes is not None and system.nodes.shared_nic:
            rule = "is true, but a calibration cannot model queues at a NIC"
            raise PPModelError("nodes.shared_nic", "true", rule, "give each device its share of the NIC")
        self.rows, self.file, self.number = [], [], []
        for file in files:
            found = read_rows(file)[1]
            self.rows += found
            self.file += [Path(file).name] * len(found)
            self.number += range(1, len(found) + 1)
        for place, row in enumerate(self.rows):
            self._require_status(place, row.get("status", ""))
        self.timed = [place for place, row in enumerate(self.rows) if _positive(row, "iteration_s")]
        limited = {self.file[place] for place, row in enumerate(self.rows) if row.get("status") == "oom"}
        self.held = [
            place for place, row in enumerate(self.rows)
            if _positive(row, "memory_gb") or row.get("status") == "oom"
            or (self.file[place] in limited and row.get("status") == "measured")
        ]  # fmt: skip
        if not self.timed and not self.held:
            rule = "have no measurements: no number above 0 in iteration_s or memory_gb, and no oom in status"
            raise PPModelError("rows", " ".join(map(str, files)), rule, "add what was measured")
        self._require_units(system, self._predictions(system))

    def _predictions(self, system):
        """The prediction of each row with a measurement, by its place."""
        found = {}
        for place in sorted({*self.timed, *self.held}):
            found[place] = one = predicted(self.rows[place], system)
            if one["refused"] is not None:
                rule = f"cannot be predicted: {one['refused']}"
                raise PPModelError("row", "refused", rule, "fix it, or leave it out", where=self._where(place))
        return found

    def _where(self, place):
        return f"{self.file[place]}, row {self.rows[place].get('id') or self.number[place]}"

    def _require_status(self, place, word):
        if word and word not in STATUS:
            near = get_close_matches(word.lower(), STATUS, n=1, cutoff=0.5)
            remedy = f"write {near[0]}" if near else "choose one of them"
            rule = f"must be one of {', '.join(STATUS)}, or empty"
            raise PPModelError("status", shown(word), rule, remedy, where=self._where(place))

    def _require_units(self, system, found):
        """Refuse a file whose measurements are, in the median, far from all that a fit could reach."""
        for file, name in product(dict.fromkeys(self.file), _SCALES):
            places = [place for place in found if self.file[place] == file and _positive(self.rows[place], name)]
            ratios = [float(self.rows[place][name]) / found[place][f"predicted_{name}"] for place in places]
            ratio = float(np.median(ratios or [1.0]))
            if not 1 / _FARTHEST <= ratio <= _FARTHEST:
                rule = f"is in the median {ratio:.3g} times what {system.name} predicts, too far to be fitted"
                raise PPModelError(name, self.rows[places[0]][name], rule, _unit_remedy(name, ratio), where=file)

    def of(self, places):
        """Rows and their files."""
        return [self.rows[place] for place in places], np.array([self.file[place] for place in places])


def _positive(row, name):
    try:
        return 0 < float(row.get(name) or 0) < float("inf")
    except ValueError:
        return False


def _unit_remedy(name, ratio):
    """The unit that the measurements seem to have, if one is near."""
    scale = min(_SCALES[name], key=lambda one: abs(np.log(ratio / one)))
    seems = f", not {_SCALES[name][scale]}" if abs(np.log(ratio / scale)) < np.log(_FARTHEST) else ""
    return f"write {_UNITS[name]}{seems}" if seems else f"write {_UNITS[name]}, or start from a system that is nearer"


class _Part(NamedTuple):
    name: str
    rows: int
    fit: Fitted
    sources: list


def _fit_part(given, constants, names, kind, prior, system):
    """Fit the constants of time, or those of memory."""
    rows, files = given
    wanted = [one for one in constants if one.name in names]
    if not rows:
        return None
    data = kind(rows, files, system)
    problem = Problem(wanted, data.residuals, SCALE, prior)
    fit = fitted(problem)
    rounded = {name: float(f"{value:.{_DIGITS}g}") for name, value in fit.values.items()}
    as_fitted = data.predicted([rounded])[0]
    if len(rows) < FOLDS:
        sources = [Source(*one[:4]) for one in data.sources(as_fitted, as_fitted)]
        return _Part(kind.name, len(rows), fit._replace(values=rounded), sources)
    parts = parted(len(rows), FOLDS, SEED)
    unseen = cross_validated(problem, fit.values, parts, len(rows), lambda values: data.predicted([values])[0])
    sources = data.sources(as_fitted, unseen)
    return _Part(kind.name, len(rows), fit._replace(values=rounded), sources)


def equal_weights(files):
    """Weights of rows such that all files weigh the same: the root of the largest row count over the file's own."""
    counts = Counter(files)
    return np.sqrt([max(counts.values()) / counts[name] for name in files])


class _Data:
    """Rows of several files that weigh the same."""

    def __init__(self, files, system):
        self.files, self.system = files, system
        self.weights, self.names = equal_weights(files.tolist()), list(dict.fromkeys(files.tolist()))

    def _systems(self, many):
        return [with_values(self.system, values) for values in many]

    def _source(self, file, what, errors, unseen):
        errors, unseen = np.abs(errors), np.abs(unseen)
        quantiles = np.quantile(unseen, (0.5, 0.9, 1.0)).tolist()
        return Source(file, what, len(errors), float(errors.mean()), float(unseen.mean()), *quantiles)


class _Time(_Data):
    name = "time"

    def __init__(self, rows, files, system):
        super().__init__(files, system)
        self.batch = Batch(rows, system)
        self.measured = np.array([float(row["iteration_s"]) for row in rows])

    def predicted(self, many):
        return self.batch.seconds(self._systems(many))

    def residuals(self, many):
        return self.weights * np.log(self.predicted(many) / self.measured)

    def sources(self, found, unseen):
        errors = found / self.measured - 1, unseen / self.measured - 1
        return [self._source(file, "time", *(error[self.files == file] for error in errors)) for file in self.names]


class _Memory(_Data):
    name = "memory"

    def __init__(self, rows, files, system):
        super().__init__(files, system)
        self.batch = Batch(rows, system)
        self.measured = np.array(
            [float(row["memory_gb"]) * _GB if _positive(row, "memory_gb") else np.nan for row in rows]
        )
        self.known = np.isfinite(self.measured)
        self.out = np.array([row.get("status") == "oom" for row in rows])

    def predicted(self, many):
        return self.batch.bytes(self._systems(many))

    def residuals(self, many):
        """For a row without a number, the root of the logistic loss of what is known: that it fits, or does not."""
        found = self.predicted(many)
        over = np.log(found / self.system.memory_capacity_bytes) / _FITS_WIDTH
        fits = SCALE * np.sqrt(np.logaddexp(0.0, np.where(self.out, -over, over)))
        return self.weights * np.where(self.known, np.log(found / np.where(self.known, self.measured, 1.0)), fits)

    def sources(self, found, unseen):
        sources = []
        for file in self.names:
            of_file = self.files == file
            with_number, without = of_file & self.known, of_file & ~self.known
            if with_number.any():
                errors = (one[with_number] / self.measured[with_number] - 1 for one in (found, unseen))
                sources.append(self._source(file, "memory", *errors))
            if without.any():
                wrong = (
                    (one[without] > self.system.memory_capacity_bytes) != self.out[without] for one in (found, unseen)
                )
                sources.append(self._source(file, "fits", *(one.astype(float) for one in wrong)))
        return sources
