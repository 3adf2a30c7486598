"""Measured runs of models with experts: by model and release, and what bounds them."""

from functools import cache

import pandas as pd

from ppbook.measured.unfitted import EXPERTS, MEASURED, system_of_row
from ppmodel.clusters.costs.collectives import Collective, collective_s
from ppmodel.clusters.specs import LayoutSpec, load_model, load_system
from ppmodel.studies.measured import read_rows
from ppmodel.studies.measured.predict import point_of
from ppmodel.studies.measured.rows import run_of
from ppmodel.studies.points.rows import rows_of

PARTS = "computing_s", "expert_s", "tensor_s", "context_s", "p2p_s", "bubble_s", "data_s", "optimizer_s"


@cache
def experts_runs():
    """Predict the measured runs of models with experts on systems that nobody fitted.

    Returns
    -------
    DataFrame
        One row per run: ``runs`` (the file), ``id, model, device, format, release`` (empty if the source names none),
        ``layout`` as text, ``dispatcher, schedule, tokens_s`` (tokens per GPU and second), ``iteration_s, predicted_s,
        error``, and the predicted parts, as shares of the iteration.

    Examples
    --------
    >>> runs = experts_runs()
    >>> len(runs), sorted(set(runs.dispatcher))
    (109, ['all-to-all', 'deepep', 'hybridep'])
    """
    records = []
    for file in EXPERTS["nemo"]:
        for row in read_rows(MEASURED / f"{file}.csv")[1]:
            system = system_of_row(row, file)
            try:
                run = run_of(row, system.framework)
            except ValueError:  # a model that we do not have
                continue
            (numbers,), layout = rows_of([point_of(run, system)]), run.layout
            tokens = layout.global_batch * run.model.sequence / (layout.replica_gpus * layout.dp)
            sizes = {name: getattr(layout, name) for name in ("tp", "ep", "pp", "microbatch_size")}
            records.append({
                "runs": file, "id": row["id"], "model": run.model.name, "device": row["device"],
                "format": row["number_format"], "release": system.framework.release if "modelzoo" not in file else "",
                "layout": " ".join(f"{name} {size}" for name, size in sizes.items()), "dispatcher": layout.dispatcher,
                "schedule": run.case.label, "tokens_s": tokens / float(row["iteration_s"]),
                "iteration_s": float(row["iteration_s"]), "predicted_s": numbers["iteration_s"],
                **{name.removesuffix("_s"): numbers[name] / numbers["iteration_s"] for name in PARTS},
            })  # fmt: skip
    return pd.DataFrame(records).assign(error=lambda runs: runs.predicted_s / runs.iteration_s - 1)


def exchanges(model, systems, sizes, dispatchers):
    """Time the four exchanges of a block with experts, of one sequence, alone.

    Parameters
    ----------
    model : str
    systems : list of str
    sizes : list of int
        GPUs over which experts are spread.
    dispatchers : list of str

    Returns
    -------
    DataFrame
        One row per system and size: ``system, ep``, ``nodes`` that the GPUs are on, and a column of milliseconds for
        each dispatcher.

    Examples
    --------
    >>> exchanges("deepseek_v3", ["h100"], [8], ["all-to-all", "deepep"]).round(1).values.tolist()
    [['h100', 8, 1, 5.3, 3.5]]
    """
    spec, rows = load_model(model), []
    volume = spec.element_bytes * spec.sequence * spec.experts.experts_per_token * spec.hidden
    drawn = spec.experts.experts_per_token, spec.experts.number
    exchange = Collective("all-to-all", "expert", volume, drawn)
    for name in systems:
        system = load_system(name)
        for ep in sizes:
            layouts = {way: LayoutSpec(pp=1, dp=ep, ep=ep, dispatcher=way) for way in dispatchers}
            times = {way: 4e3 * collective_s(exchange, layout, system) for way, layout in layouts.items()}
            rows.append({"system": name, "ep": ep, "nodes": -(-ep // system.nodes.devices_per_node)} | times)
    return pd.DataFrame(rows)


def one_known(runs):
    """Errors of runs whose prediction is scaled by another run of the same source, model, GPU and format, in the mean.

    Parameters
    ----------
    runs : DataFrame
        From `experts_runs`.

    Returns
    -------
    Series
        The mean magnitude over all other runs, by row; NaN where there is no other.
    """
    ratios, off = runs.predicted_s / runs.iteration_s, pd.Series(float("nan"), runs.index)
    for _, group in ratios.groupby([runs.runs, runs.model, runs.device, runs.format]):
        for index in group.index if len(group) > 1 else ():
            off[index] = (ratios[index] / group.drop(index) - 1).abs().mean()
    return off
