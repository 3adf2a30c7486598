"""Regret: how much slower than the best measured layout is the one that a rule would have chosen.

A cell is one model on one number of GPUs with one global batch; its runs are the layouts that others measured there. A
rule lists them, best first. Whoever follows it runs the first; where that failed, the next, so a failure costs a try
and no time.
"""

import numpy as np
import pandas as pd

from ppbook.measured.certainty import SIZE as CELL  # the columns that tell cells apart
from ppbook.measured.refits import unseen
from ppbook.measured.unfitted import MEASURED, SYSTEMS, system_of_row, unfitted_runs, unfitted_system
from ppmodel.errors import PPModelError
from ppmodel.studies.measured import read_rows
from ppmodel.studies.measured.batch import Batch
from ppmodel.studies.measured.calibrate import calibrated
from ppmodel.studies.measured.constants import with_values
from ppmodel.studies.measured.predict import GB, predicted
from ppmodel.studies.measured.rows import run_of, system_of
from ppmodel.studies.measured.start import start_under
from ppmodel.studies.planning import Question, plan
from ppmodel.studies.points.margin import FITS, memory_margin

SIZES = "tp", "cp", "pp", "dp", "microbatch_size", "zero"
"""The columns of a layout, besides, that a rule may look at."""

_KIND, _OF_RECIPE = ("device", "hidden", "layers"), {"tp": "tp", "cp": "cp", "pp": "pp", "microbatch_size": "b"}

FITTING = FITS[:2]
"""Layouts that are predicted to fit, tightly or not; rules choose among these."""

FEWEST = 3
"""Cells with fewer measured layouts leave nothing to choose."""


def layouts_of(rows, system):
    """Runs as a frame, each with its prediction on a system that was not fitted to them.

    Parameters
    ----------
    rows : sequence of dict of str to str
        From `read_rows`; a run without ``iteration_s`` failed.
    system : SystemSpec

    Returns
    -------
    DataFrame
        One row per run that can be predicted: ``id``, `CELL`, `SIZES`, ``iteration_s`` (NaN if it failed), ``fit``, one
        of `FITS`, ``predicted_s``, ``order_s``, by which `ppmodel.plan` orders them: longer by its ``within`` where
        memory is tight, or the framework may go on without enough of it, and ``row``, the run as it was given.
    """
    records, capacity_gb = [], system.memory_capacity_bytes / GB
    for row in rows:
        prediction = predicted(row, system)
        if prediction["refused"] is None:
            sizes = {name: int(row[name]) for name in (*CELL, *SIZES)}
            share = system_of(row, system).framework.slow_above_memory_share or 1 - memory_margin()
            is_tight = prediction["predicted_memory_gb"] > share * capacity_gb
            records.append({
                "id": row.get("id", ""), **sizes, "iteration_s": float(row["iteration_s"] or "nan"),
                "fit": prediction["predicted_fit"], "predicted_s": prediction["predicted_iteration_s"], "row": row,
                "order_s": prediction["predicted_iteration_s"] * (1 + Question.within * is_tight),
            })  # fmt: skip
    return pd.DataFrame(records)


def choices(layouts, rules):
    """What each rule would have chosen in each cell, among the layouts that are predicted to fit.

    Parameters
    ----------
    layouts : DataFrame
        From `layouts_of`, with the columns that rules name.
    rules : dict of str to list of str
        Columns by which each rule sorts the layouts of a cell; the least goes first, and ties go to the first listed.

    Returns
    -------
    DataFrame
        One row per cell and rule: ``rule``, `CELL`, ``layouts``, how many were measured, ``best`` and ``best_s``,
        ``chosen`` and ``chosen_s``, the first that ran, ``failed``, how many failed before it, ``regret``, its time
        over the best less 1, and ``best_of_three``, the same for the best of the first three that ran.

    Raises
    ------
    PPModelError
        If no cell has enough measured layouts, and among them one that is predicted to fit.

    Examples
    --------
    >>> runs = pd.DataFrame(dict.fromkeys(CELL, [1] * 4) | {"id": list("abcd"), "fit": "fits", "mine": [1, 2, 3, 4]})
    >>> choices(runs.assign(iteration_s=[float("nan"), 3, 2, 5]), {"mine": ["mine"]})[["failed", "regret"]].values
    array([[1. , 0.5]])
    """
    rows = []
    for cell, group in layouts.groupby(list(CELL)):
        ran = group[group.iteration_s.notna()]
        fitting = group[group.fit.isin(FITTING)]
        if len(ran) < FEWEST or not fitting.iteration_s.notna().any():
            continue
        best = ran.loc[ran.iteration_s.idxmin()]
        for rule, columns in rules.items():
            order = fitting.sort_values(columns, kind="stable")
            times = order.iteration_s.dropna()
            failed = int(order.iteration_s.notna().to_numpy().argmax())
            rows.append({
                "rule": rule, **dict(zip(CELL, cell, strict=True)), "layouts": len(ran), "best": best.id,
                "best_s": best.iteration_s, "chosen": order.id.iloc[failed], "chosen_s": times.iloc[0],
                "failed": failed, "regret": times.iloc[0] / best.iteration_s - 1,
                "best_of_three": times.iloc[:3].min() / best.iteration_s - 1,
            })  # fmt: skip
    if not rows:
        rule = f"have no cell with {FEWEST} measured layouts, one of which is predicted to fit"
        raise PPModelError("layouts", len(layouts), rule, "choose runs of several layouts of one model")
    return pd.DataFrame(rows)


def with_one_run(layouts, system):
    """``order_s`` of each layout once the unfitted choice of its cell ran, and the system is calibrated with that run.

    Parameters
    ----------
    layouts : DataFrame
        From `layouts_of`.
    system : SystemSpec
        Read from a file; not fitted.

    Returns
    -------
    Series
        The run itself, and what is predicted to take as long, has its measured time; NaN where no layout that is
        predicted to fit ran.
    """
    start = start_under(system, None, layouts.row)
    seconds = pd.Series(np.nan, layouts.index)
    for _, group in layouts[layouts.fit.isin(FITTING)].groupby(list(CELL)):
        ran = group[group.iteration_s.notna()].sort_values("order_s", kind="stable")
        if len(ran):
            try:
                fit = calibrated((), start, runs=[("the run", ran.row.iloc[0])], kinds=("time",)).system
            except PPModelError:  # one that hardly depends on any single constant
                fit = start
            predicted_s = pd.Series(Batch(list(group.row), start).seconds([fit])[0], group.index)
            seconds[group.index] = _weights(group) * predicted_s
            seconds[group.index[predicted_s == predicted_s[ran.index[0]]]] = ran.iteration_s.iloc[0]
    return seconds


def of_other_models(layouts, files, start, system):
    """``order_s`` of each layout by a fit to the runs of the other models, the way `refits.unseen` judges fits.

    Parameters
    ----------
    layouts : DataFrame
        From `layouts_of`.
    files : sequence of str or Path
        With these runs.
    start, system : SystemSpec
        A system that was fitted to the files, and the one that the fit started from.

    Returns
    -------
    Series
        NaN for layouts that are not predicted to fit.
    """
    times = unseen(files, start, system, by=CELL[:2], kinds=("time",))["time"]
    models = dict.fromkeys(tuple(row[name] for name in CELL[:2]) for row in times.rows)
    seconds, fitting = pd.Series(np.nan, layouts.index), layouts[layouts.fit.isin(FITTING)]
    for (hidden, blocks), refit in zip(models, times.refits, strict=True):
        group = fitting[(fitting.hidden == int(hidden)) & (fitting.layers == int(blocks))]
        if len(group):
            predicted_s = Batch(list(group.row), start).seconds([with_values(start, refit)])[0]
            seconds[group.index] = _weights(group) * predicted_s
    return seconds


def _weights(layouts):
    """What a plan multiplies times by, before it orders them."""
    return layouts.order_s / layouts.predicted_s


def recipes(file, systems):
    """How much longer than its best `plan` finds the layouts of published recipes.

    Parameters
    ----------
    file : str
        The stem of a file of runs.
    systems : list of str
        Systems on which recipes count, one for each model, GPU and number format: that on the fewest GPUs.

    Returns
    -------
    DataFrame
        One row per recipe: ``runs`` (the file), ``model``, ``device``, ``format``, ``gpus``, sizes of the recipe and of
        the plan's first as text, ``recipe`` and ``best``; ``error`` of the recipe's predicted time; and ``behind``, by
        how much of its time a plan with the recipe's sizes and offloaded layers, which plans do not try, is behind one
        without, both under 1F1B or interleaved 1F1B.

    Examples
    --------
    >>> recipes("nemo", ["gb200"]).query("gpus == 8")[["model", "recipe", "best"]].values.tolist()
    [['LLAMA3-8B', 'tp 1 cp 1 pp 1 b 2', 'tp 1 cp 1 pp 1 b 2']]
    """
    records, errors = [], unfitted_runs(file).set_index("id").error
    rows = sorted(read_rows(MEASURED / f"{file}.csv")[1], key=lambda row: int(row["gpus"]))[::-1]
    kinds = [(*map(row.get, _KIND), row.get("number_format") or row["precision"]) for row in rows]
    for (device, *_), row in dict(zip(kinds, rows, strict=True)).items():
        if SYSTEMS[device] not in systems:
            continue
        framework = system_of_row(row, file).framework
        model, layout = run_of(row, framework)[1:3]
        question = model, unfitted_system(file, device), int(row["gpus"]), layout.global_batch
        how = {"framework": framework, "schedules": ["1f1b", "interleaved-1f1b"]}
        sizes, precision = {name: getattr(layout, name) for name in _OF_RECIPE}, {"precision": layout.precision}
        fixed = {}, sizes | {"offload": layout.offload}
        best, own = (plan(*question, **how, fix=precision | values) for values in fixed)
        texts = (" ".join(f"{_OF_RECIPE[name]} {of[name]}" for name in sizes) for of in (sizes, best.iloc[0]))
        behind = own.iteration_s.min() / best.iteration_s.min() - 1
        named = file, row["source"].split(", ")[1], device, layout.precision, int(row["gpus"])
        records.append((*named, *texts, errors[row["id"]], behind))
    columns = ["runs", "model", "device", "format", "gpus", "recipe", "best", "error", "behind"]
    return pd.DataFrame(records, columns=columns)
