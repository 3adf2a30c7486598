"""The model compared with training runs that others measured, each predicted by a fit that had not seen it."""

import numpy as np
import pandas as pd

from ppbook.measured.baseline import constant_utilization
from ppbook.measured.certainty import SIZE, every_two
from ppbook.measured.refits import unseen
from ppbook.measured.unfitted import MEASURED
from ppmodel.clusters.specs import DATA, load_system
from ppmodel.studies.measured import read_rows
from ppmodel.studies.measured.predict import GB
from ppmodel.studies.measured.rows import is_healthy

_NUMBERS = (
    "gpus", "hidden", "layers", "sequence", "chunks", "tp", "cp", "dp", "pp", "microbatch_size", "global_batch",
    "iteration_s", "memory_gb",
)  # fmt: skip
_COLUMNS = {"time": "iteration_s", "memory": "memory_gb"}


def files_of(system):
    """The files of runs that a packaged system states it was fitted to.

    Parameters
    ----------
    system : SystemSpec
        One of `fitted_systems`.

    Returns
    -------
    list of Path

    Examples
    --------
    >>> [path.stem for path in files_of(load_system("a100_vtrain"))]
    ['vtrain_single', 'vtrain_multi']
    """
    return [MEASURED / f"{name}.csv" for name in system.framework.range_sources.split(", ")]


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
        ``predicted_iteration_s``, ``predicted_memory_gb`` and ``predicted_fits``; ``error`` and ``memory_error``, of
        time and memory, predicted over measured minus 1; ``baseline_s``, from a constant utilization per file. Empty
        where there is no measurement to compare with.
    """
    frames = []
    for name in names:
        system = load_system(name)
        frame = pd.DataFrame(fitted_rows(name)).assign(system=name).set_index("id", drop=False)
        frame[[*_NUMBERS]] = frame[[*_NUMBERS]].apply(pd.to_numeric)
        frame[["predicted_iteration_s", "predicted_memory_gb"]] = np.nan
        for kind, predictions in _unseen(name).items():
            ids = [row["id"] for row in predictions.rows]
            frame.loc[ids, f"predicted_{_COLUMNS[kind]}"] = predictions.values / (GB if kind == "memory" else 1)
        fits = frame.predicted_memory_gb * GB <= system.memory_capacity_bytes
        frame["predicted_fits"] = fits.where(frame.predicted_memory_gb.notna())
        timed = pd.Series({row["id"]: row for row in timed_rows(name)})
        frame["baseline_s"] = timed.groupby(frame.runs).transform(constant_utilization, system)
        frames.append(frame)
    runs = pd.concat(frames, ignore_index=True)
    off = {what: runs[f"predicted_{column}"] / runs[column] - 1 for what, column in _COLUMNS.items()}
    return runs.assign(error=off["time"], memory_error=off["memory"])


def fitted_rows(name):
    """The rows of runs that a packaged system was fitted to, with ``runs``, the stem of their file."""
    return [row | {"runs": path.stem} for path in files_of(load_system(name)) for row in read_rows(path)[1]]


def timed_rows(name):
    """`fitted_rows` that have a measured time, of healthy runs."""
    return [row for row in fitted_rows(name) if row["iteration_s"] and is_healthy(row)]


def start_of(name):
    """The system that a packaged one was fitted from."""
    return load_system(DATA / "starts" / f"{name}.yaml")


def _unseen(name, **how):
    """`unseen` on the files of runs that a packaged system was fitted to."""
    system = load_system(name)
    return unseen(files_of(system), start_of(name), system, **how)


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
        frame = pd.DataFrame(predictions.rows).astype({"iteration_s": float})
        error = predictions.values / frame.iteration_s - 1
        frames.append(frame.assign(runs=frame.file.str.removesuffix(".csv"), system=name, error=error))
    return pd.concat(frames, ignore_index=True)[["id", "runs", "system", *SIZE, "iteration_s", "error"]]


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
    published["predicted_memory_gb"] = published.predicted_memory_gib * 2**30 / GB
    whole = published[published.id.isna()]
    frames = [whole.assign(what="time", rows=0, theirs=whole.mean_error)]
    for what, column in _COLUMNS.items():
        joined = published.merge(runs[["id", column]], on="id")
        joined["theirs"] = (joined[f"predicted_{column}"] / joined[column] - 1).abs()
        groups = joined[joined.theirs.notna()].groupby(["simulator", "runs"], sort=False).theirs
        frames.append(groups.agg(theirs="mean", rows="size").reset_index().assign(what=what))
    errors = pd.concat(frames, ignore_index=True).sort_values("rows", ascending=False, kind="stable")
    errors = errors.drop_duplicates(["simulator", "runs", "what"])
    model = runs[["error", "memory_error"]].abs().set_axis(list(_COLUMNS), axis=1)
    model = model.groupby(runs.runs).mean().rename_axis(columns="what").stack(future_stack=True).rename("ours")
    columns = ["simulator", "runs", "what", "rows", "theirs", "ours"]
    return errors.merge(model.reset_index(), on=["runs", "what"])[columns]


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
    pairs = every_two(runs[[*by, measured, predicted]].dropna(), by)
    apart = np.log(pairs[measured] / pairs[f"{measured}_other"])
    clear = apart.abs() > np.log1p(over)
    wrong = clear & (apart * (pairs[predicted] - pairs[f"{predicted}_other"]) < 0)
    return int(wrong.sum()), int(clear.sum())


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
    with_limit = runs.status.isin(["measured", "oom"]) & runs.runs.isin(runs[runs.status == "oom"].runs)
    for what, column in _COLUMNS.items():
        reason = np.select(
            [runs[column].notna(), runs.status == "failed", with_limit & (what == "memory"), runs.status == "oom"],
            ["compared", "failed, the source does not say why", "known is only whether it fits: see below",
             "ran out of memory"], "the source does not say it",
        )  # fmt: skip
        frames.append(runs.assign(what=what, reason=reason))
    return pd.concat(frames).groupby(["runs", "what", "reason"], sort=False).size().rename("rows").reset_index()
