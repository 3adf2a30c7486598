"""Regret: how much slower than the best measured layout is the one that a rule would have chosen.

A cell is one model on one number of GPUs with one global batch; its runs are the layouts that others measured there. A
rule lists them, best first. Whoever follows it runs the first; where that failed, the next, so a failure costs a try
and no time.
"""

from itertools import product

import numpy as np
import pandas as pd

from ppbook.measured.certainty import SIZE as CELL  # the columns that tell cells apart
from ppbook.measured.refits import unseen
from ppmodel.errors import PPModelError
from ppmodel.studies.measured.batch import Batch
from ppmodel.studies.measured.calibrate import calibrated
from ppmodel.studies.measured.constants import with_values
from ppmodel.studies.measured.predict import GB, predicted
from ppmodel.studies.measured.rows import system_of
from ppmodel.studies.measured.start import start_under
from ppmodel.studies.planning import Question
from ppmodel.studies.points.margin import FITS, memory_margin

SIZES = "tp", "cp", "pp", "dp", "microbatch_size", "zero"
"""The columns of a layout, besides, that a rule may look at."""

_NEAR, _MOST_TP = ("tp", "cp", "microbatch_size"), 8

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


def alternatives(row):
    """Rows with the model, GPUs and batch of a row, and other sizes of its groups, under 1F1B or interleaved 1F1B.

    Parameters
    ----------
    row : dict of str to str
        From `read_rows`.

    Returns
    -------
    list of dict of str to str
        The row itself first; tensor groups, of up to eight, context groups and microbatches are half, as, or twice as
        large, pp as layers divide, with one chunk or as many as the row has. Some may be refused, or not fit.

    Examples
    --------
    >>> row = dict.fromkeys(("tp", "cp", "pp", "microbatch_size", "chunks"), "1") | {"gpus": "2", "dp": "2"}
    >>> near = alternatives(row | {"layers": "4", "global_batch": "2"})
    >>> sorted({(other["tp"], other["cp"], other["pp"], other["dp"]) for other in near})
    [('1', '1', '1', '2'), ('1', '1', '2', '1'), ('1', '2', '1', '1'), ('2', '1', '1', '1')]
    """
    gpus, layers, batch, *near = (int(row[name]) for name in ("gpus", "layers", "global_batch", *_NEAR))
    listed, near = [row], [[size // 2, size, 2 * size] for size in near]
    for pp, tp, cp, size in product(range(1, layers + 1), *near):
        if not 0 < tp <= _MOST_TP or 0 in (cp, size):
            continue
        dp, rest = divmod(gpus, tp * cp * pp)
        whole = next((count for count in (layers, layers + 2) if count % pp == 0), 0)  # as `rows.even_layers`
        if rest or not whole or batch % (dp * size):
            continue
        per_rank, is_whole = whole // pp, batch // (dp * size) % pp == 0
        for count in sorted({1, int(row["chunks"])} if pp > 1 and is_whole else {1}):
            if per_rank % count:
                continue
            name = "interleaved-1f1b" if count > 1 else "1f1b"
            sizes = {"tp": tp, "cp": cp, "pp": pp, "dp": dp, "microbatch_size": size, "chunks": count}
            spread = {"sequence_parallel": str(tp > 1).lower(), "schedule": name}
            listed.append(row | {key: str(value) for key, value in sizes.items()} | spread)
    return listed
