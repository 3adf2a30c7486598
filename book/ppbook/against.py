"""The model compared with training runs that others measured, each predicted by a fit that had not seen it."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd

from ppmodel.analysis.certainty import SIZE
from ppmodel.costs import model_flops
from ppmodel.errors import PPModelError
from ppmodel.measured import read_rows
from ppmodel.measured.ablation import PARTS, Part, ablated
from ppmodel.measured.baseline import constant_utilization, scaled_to_others
from ppmodel.measured.batch import Batch
from ppmodel.measured.calibrate import unseen
from ppmodel.measured.joint import FittedRows
from ppmodel.measured.joint import fitted_together as fitted_rows_together
from ppmodel.measured.rows import run_of
from ppmodel.specs import DATA, load_system

MEASURED = DATA / "reference" / "measured"
_FILE = re.compile(r"(\w+\.csv) \(")
_NUMBERS = (
    "gpus", "hidden", "layers", "sequence", "chunks", "tp", "cp", "dp", "pp", "microbatch_size", "global_batch",
    "iteration_s", "memory_gb",
)  # fmt: skip
_GB = 1e9


def files_of(system):
    """The files of runs that a packaged system states it was fitted to.

    Parameters
    ----------
    system : SystemSpec

    Returns
    -------
    list of Path

    Raises
    ------
    PPModelError
        If none of the system's values is fitted.

    Examples
    --------
    >>> [path.stem for path in files_of(load_system("a100_vtrain"))]
    ['vtrain_single', 'vtrain_multi']
    """
    for value in system.provenance:
        if value.kind == "fitted":
            return [MEASURED / name for name in _FILE.findall(value.source)]
    remedy = "choose one that ppmodel calibrate made"
    raise PPModelError("system", system.name, "has no fitted value", remedy)


def runs_of(names):
    """All runs in the sources of some fitted systems, each predicted by a fit that had not seen it.

    Parameters
    ----------
    names : sequence of str
        Packaged systems.

    Returns
    -------
    DataFrame
        One row per run: its own columns, with numbers as numbers; ``runs``, the stem of its file; ``system``;
        ``predicted_iteration_s``, ``predicted_memory_gb`` and ``predicted_fits``; ``baseline_s``, from a constant
        utilization per file; ``unfitted_s``, from the packaged system of the same device that is not fitted to
        anything; and ``scaled_s``, that times one factor, as in `scaled_to_others`. Empty where there is no measurement
        to compare with.
    """
    return pd.concat([_runs_of(name) for name in names], ignore_index=True)


def _runs_of(name):
    system, rows = load_system(name), fitted_rows(name)
    frame = pd.DataFrame(rows).assign(system=name).set_index("id", drop=False)
    for column in _NUMBERS:
        frame[column] = pd.to_numeric(frame[column])
    unseen_rows = _unseen(name)
    frame["predicted_iteration_s"] = _by_id(unseen_rows, "time")
    frame["predicted_memory_gb"] = _by_id(unseen_rows, "memory") / _GB
    fits = frame.predicted_memory_gb * _GB <= system.memory_capacity_bytes
    frame["predicted_fits"] = fits.where(frame.predicted_memory_gb.notna())
    frame["unfitted_s"] = _unfitted(system, _timed(rows))
    for stem in frame.runs.unique():
        timed = [row for row in _timed(rows) if row["runs"] == stem]
        ids = [row["id"] for row in timed]
        frame.loc[ids, "baseline_s"] = constant_utilization(timed, system)
        frame.loc[ids, "scaled_s"] = scaled_to_others(frame.unfitted_s[ids].to_numpy(), timed)
    return frame.reset_index(drop=True)


def _unfitted(system, rows):
    """Seconds of rows, by identifier, on the packaged system of the same device, with the source's framework.

    The system of ``a100_vtrain`` is ``a100``.
    """
    plain = replace(load_system(system.name.split("_")[0]), framework=system.framework)
    return pd.Series(Batch(rows, plain).seconds([plain])[0], [row["id"] for row in rows])


def fitted_rows(name):
    """The rows of runs that a packaged system was fitted to, with ``runs``, the stem of their file."""
    return [row | {"runs": path.stem} for path in files_of(load_system(name)) for row in read_rows(path)[1]]


def timed_rows(name):
    """`fitted_rows` that have a measured time."""
    return _timed(fitted_rows(name))


def _timed(rows):
    return [row for row in rows if row["iteration_s"]]


def start_of(name):
    """The system that a packaged one was fitted from."""
    return load_system(DATA / "starts" / f"{name}.yaml")


def _unseen(name, **how):
    """`unseen` on the files of runs that a packaged system was fitted to."""
    system = load_system(name)
    return unseen(files_of(system), start_of(name), system, **how)


def _by_id(predictions, what):
    """Predictions indexed by their rows' identifiers; empty if there are none."""
    if what not in predictions:
        return pd.Series(dtype=float)
    return pd.Series(predictions[what].values, [row["id"] for row in predictions[what].rows])


def without_parts(names):
    """Mean errors of time, leaving out one part of the model at a time.

    Parameters
    ----------
    names : sequence of str
        Packaged systems.

    Returns
    -------
    DataFrame
        One row per source and part of `PARTS`, and one for the whole model; columns ``runs, part``, and the mean error
        with the constants ``kept`` as they are and ``refitted`` to the same rows; neither is measured on unseen rows.
    """
    frames = []
    for name in names:
        system, start = load_system(name), start_of(name)
        rows = timed_rows(name)
        of_file, measured = [row["runs"] for row in rows], np.array([float(row["iteration_s"]) for row in rows])
        for label, part in {"nothing": Part(), **PARTS}.items():
            both = [np.abs(seconds / measured - 1) for seconds in ablated(rows, of_file, start, system, part)]
            frame = pd.DataFrame({"runs": of_file, "part": label, "kept": both[0], "refitted": both[1]})
            frames.append(frame.groupby(["runs", "part"], sort=False).mean().reset_index())
    return pd.concat(frames, ignore_index=True)


def fitted_together(names, shared):
    """Mean errors of time by packaged systems fitted one by one, and fitted together with some constants in common.

    Parameters
    ----------
    names : sequence of str
        Packaged systems with the same kind of device.
    shared : sequence of str
        Constants, as in `measured.joint.fitted_together`.

    Returns
    -------
    errors : DataFrame
        One row per file of runs: ``runs, rows``, and the mean errors of time ``own`` and ``together``, both on the rows
        that were fitted; all files weigh the same.
    values : dict of str to float
        The shared constants.
    """
    rows = {name: timed_rows(name) for name in names}
    sources = [
        FittedRows(start_of(name), load_system(name), timed, [row["runs"] for row in timed])
        for name, timed in rows.items()
    ]
    apart, together, values = fitted_rows_together(sources, shared)
    frame = pd.DataFrame([row for timed in rows.values() for row in timed])[["runs", "iteration_s"]]
    measured = pd.to_numeric(frame.iteration_s)
    frame = frame.assign(own=(apart / measured - 1).abs(), together=(together / measured - 1).abs())
    errors = frame.groupby("runs", sort=False, as_index=False).agg(
        rows=("own", "size"), own=("own", "mean"), together=("together", "mean")
    )
    return errors, values


def models_left_out(names):
    """Errors of time of all runs, each predicted by a fit that had not seen its model: its hidden size and layers.

    Parameters
    ----------
    names : sequence of str
        Packaged systems.

    Returns
    -------
    DataFrame
        One row per run; columns ``id, runs, system``, those of `SIZE`, ``iteration_s`` and ``error``, predicted over
        measured minus 1, from the fit to all other models in the sources of its system.
    """
    frames = []
    for name in names:
        predictions = _unseen(name, by=("hidden", "layers"), kinds=("time",))["time"]
        frame = pd.DataFrame(predictions.rows).assign(system=name)
        frame["runs"], frame["iteration_s"] = frame.file.str.removesuffix(".csv"), pd.to_numeric(frame.iteration_s)
        frame["error"] = predictions.values / frame.iteration_s - 1
        frames.append(frame[["id", "runs", "system", *SIZE, "iteration_s", "error"]])
    return pd.concat(frames, ignore_index=True)


def unfitted_runs(names):
    """Errors of time of all runs, each predicted by the packaged system of its device that is not fitted to anything.

    Parameters
    ----------
    names : sequence of str
        Packaged systems whose sources have the runs.

    Returns
    -------
    DataFrame
        As `models_left_out` returns it, and ``schedule`` and ``chunks``.

    Examples
    --------
    >>> runs = unfitted_runs(["a100_selene"])
    >>> len(runs), bool(runs.error.abs().max() < 0.2)
    (6, True)
    """
    frames = []
    for name in names:
        rows = timed_rows(name)
        frame = pd.DataFrame(rows).assign(system=name)
        for column in (*SIZE, "iteration_s"):
            frame[column] = pd.to_numeric(frame[column])
        frame["error"] = frame.id.map(_unfitted(load_system(name), rows)) / frame.iteration_s - 1
        frames.append(frame[["id", "runs", "system", *SIZE, "iteration_s", "error", "schedule", "chunks"]])
    return pd.concat(frames, ignore_index=True)


def utilizations(names):
    """Model FLOPs utilization that runs were measured to reach.

    Parameters
    ----------
    names : sequence of str
        Packaged systems.

    Returns
    -------
    DataFrame
        One row per run with a time in the sources of each system; columns ``id, runs, system, gpus, fp8`` and
        ``model_flops_utilization``, relative to the system's bf16 peak even where a run multiplies in FP8.

    Examples
    --------
    >>> runs = utilizations(["a100_selene"])
    >>> len(runs), bool(runs.model_flops_utilization.between(0.3, 0.6).all())
    (6, True)
    """
    rows_reached = []
    for name in names:
        system = load_system(name)
        for row in timed_rows(name):
            run, gpus = run_of(row, system.framework), int(row["gpus"])
            flops = run.flushes * model_flops(run.model, sequences=run.layout.global_batch)
            reached = flops / (gpus * system.peak_compute_flops * float(row["iteration_s"]))
            rows_reached.append((row["id"], row["runs"], name, gpus, "FP8" in row["source"], reached))
    return pd.DataFrame(rows_reached, columns=["id", "runs", "system", "gpus", "fp8", "model_flops_utilization"])


_THEIRS = {"time": "iteration_s", "memory": "memory_gb"}


def others(runs):
    """What other simulators achieve on the same runs.

    Parameters
    ----------
    runs : DataFrame
        From `runs_of`.

    Returns
    -------
    DataFrame
        One row per simulator, source and kind of number; columns ``simulator, runs, what``; ``rows``, how many runs are
        published individually; ``theirs`` and ``ours``, mean errors on these runs. If there are none, ``theirs`` is the
        mean that the authors state for all runs of the source, and ``ours`` that of the runs available here.
    """
    published = pd.read_csv(DATA / "reference" / "simulators.csv")
    published["predicted_memory_gb"] = published.predicted_memory_gib * 2**30 / _GB
    whole = published[published.id.isna()]
    frames = [whole.assign(what="time", rows=0, theirs=whole.mean_error)]
    for what, column in _THEIRS.items():
        joined = published.merge(runs[["id", column]], on="id")
        joined["theirs"] = (joined[f"predicted_{column}"] / joined[column] - 1).abs()
        of_both = joined[joined.theirs.notna()].groupby(["simulator", "runs"], sort=False).theirs
        frames.append(of_both.agg(theirs="mean", rows="size").reset_index().assign(what=what))
    published_errors = pd.concat(frames, ignore_index=True)
    published_errors = published_errors.sort_values("rows", ascending=False, kind="stable").drop_duplicates(
        ["simulator", "runs", "what"]
    )
    ours = {what: error_of(runs, column).abs().groupby(runs.runs).mean() for what, column in _THEIRS.items()}
    published_errors = published_errors[published_errors.runs.isin(ours["time"].index)]
    published_errors["ours"] = [ours[row.what][row.runs] for row in published_errors.itertuples()]
    return published_errors[["simulator", "runs", "what", "rows", "theirs", "ours"]].reset_index(drop=True)


def error_of(runs, column):
    """Predicted over measured values of a column, minus 1.

    Parameters
    ----------
    runs : DataFrame
        From `runs_of`.
    column : {"iteration_s", "memory_gb"}

    Returns
    -------
    Series
        NaN if nothing was measured.
    """
    return runs[f"predicted_{column}"] / runs[column] - 1


def ordered_wrongly(runs, by, measured, predicted, over=0.0):
    """Count pairs of runs of equal size that prediction orders differently from measurement.

    Parameters
    ----------
    runs : DataFrame
    by : list of str
        Columns that define the size.
    measured, predicted : str
        Columns of numbers; rows where one is missing are left out.
    over : float
        Pairs whose measurements differ by no more than this share are left out.

    Returns
    -------
    wrong, pairs : int

    Examples
    --------
    >>> runs = pd.DataFrame({"microbatches": 8, "measured_s": [1.0, 1.1, 1.105], "predicted_s": [2.0, 1.9, 1.8]})
    >>> ordered_wrongly(runs, ["microbatches"], "measured_s", "predicted_s", over=0.01)
    (2, 2)
    """
    wrong = pairs = 0
    for _, group in runs.groupby(by, sort=False):
        ran, ours = group[[measured, predicted]].dropna().to_numpy().T
        first, second = np.triu_indices(len(ran), 1)
        apart = np.log(ran[first] / ran[second])
        clear = np.abs(apart) > np.log1p(over)
        pairs += int(clear.sum())
        wrong += int((apart * (ours[first] - ours[second]) < 0)[clear].sum())
    return wrong, pairs


def left_out(runs):
    """How many runs of each source are compared in time and in memory, and why the others are not.

    Parameters
    ----------
    runs : DataFrame
        From `runs_of`.

    Returns
    -------
    DataFrame
        Columns ``runs, what, reason, rows``; for each source and kind of number, the rows add up to the file's.
    """
    frames = []
    for what, column in (("time", "iteration_s"), ("memory", "memory_gb")):
        asked = runs.status.isin(["measured", "oom"]) & runs.runs.isin(runs[runs.status == "oom"].runs)
        reason = np.select(
            [runs[column].notna(), runs.status == "failed", asked & (what == "memory"), runs.status == "oom"],
            ["compared", "failed, the source does not say why", "known is only whether it fits: see below",
             "ran out of memory"], "the source does not say it",
        )  # fmt: skip
        judged = runs.assign(what=what, reason=reason)
        frames.append(judged.groupby(["runs", "what", "reason"], sort=False).size().rename("rows").reset_index())
    return pd.concat(frames, ignore_index=True)
