"""Predictions of all measured runs by systems that nobody fitted, source by source, and who had seen which rows."""

from dataclasses import replace
from functools import cache

import pandas as pd
from ruamel.yaml import YAML

from ppbook.measured.baseline import scaled_to_others
from ppbook.measured.fitted_errors import with_errors
from ppbook.measured.unfitted import MEASURED
from ppmodel.clusters.costs import model_flops
from ppmodel.clusters.specs import DATA, load_framework, load_model, load_system, packaged
from ppmodel.schedules.cases import case_of_data
from ppmodel.studies.points import simulate

AIM = 0.08
"""The error of a published anchor that is aimed at."""

_LOOKED_AT = "fitted", "inferred"


@cache
def reported():
    """What was reported of rows that were kept aside: ``data/reference/kept_aside.yaml``, as it is."""
    return YAML(typ="safe").load(DATA / "reference" / "kept_aside.yaml")


def accuracy(shown):
    """Errors of time on rows after which no choice was made, beside those on the rows that are shown.

    Parameters
    ----------
    shown : DataFrame
        From `errors_by_source`.

    Returns
    -------
    DataFrame
        One row per source, device, precision and system: ``runs, device, precision``, ``system``, the fitted one, or
        empty, ``rows``, how many, where it was reported, ``unseen``, their mean error, and, of unfitted systems,
        ``shown``, that of the rows that are shown, and ``constant``, that of a constant utilization on these. The
        largest error first.

    Examples
    --------
    >>> shown = pd.DataFrame(columns=["source", "device", "precision", "mean", "constant"])
    >>> table = accuracy(shown)
    >>> len(table), int(table.system.eq("").sum()), float(table.unseen[0])
    (28, 22, 0.163)
    """
    fitted, unfitted = (pd.DataFrame(reported()[kind]) for kind in ("fitted", "unfitted"))
    beside = shown[["source", "device", "precision", "mean", "constant"]]
    beside = beside.rename(columns={"source": "runs", "mean": "shown"})
    unfitted = unfitted.merge(beside, how="left", on=["runs", "device", "precision"])
    table = pd.concat([unfitted, fitted], ignore_index=True).rename(columns={"mean_error": "unseen"})
    table = table.sort_values("unseen", ascending=False, kind="stable", ignore_index=True).fillna({"system": ""})
    return table[["runs", "device", "precision", "system", "rows", "unseen", "shown", "constant"]]


def beside_unfitted(fitted, unfitted):
    """Times of the runs of fitted systems as nobody fitted them.

    Parameters
    ----------
    fitted : DataFrame
        From `against.runs_of`.
    unfitted : DataFrame
        From `unfitted_by_source`.

    Returns
    -------
    DataFrame
        The runs with a time, with ``unfitted_s``, and ``scaled_s``, that times one factor for each file, as in
        `scaled_to_others`.
    """
    times = unfitted.rename(columns={"predicted_s": "unfitted_s"})[["runs", "id", "unfitted_s"]]
    runs = fitted[fitted.iteration_s.notna()].merge(times, on=["runs", "id"], validate="1:1")
    for _, group in runs.groupby("runs"):
        rows = group.astype(str).fillna("").to_dict("records")
        runs.loc[group.index, "scaled_s"] = scaled_to_others(group.unfitted_s.to_numpy(), rows)
    return runs


def errors_by_source(runs):
    """Errors of time by source, device, precision, framework and system.

    Parameters
    ----------
    runs : DataFrame
        From `unfitted_by_source`.

    Returns
    -------
    DataFrame
        ``runs, source, device, precision, framework, system, rows``; of predicted over measured minus 1, ``mean`` and
        ``median`` (both of its magnitude) and ``bias``; ``covered``, the share of runs within the stated range, NaN
        where none is stated; mean errors of the baselines, ``constant`` and ``six_n_d``; and ``seen``, how many
        constants of system and framework were fitted to rows of the file.
    """
    inside = runs.iteration_s.between(runs.fastest_s, runs.slowest_s).astype(float).where(runs.fastest_s.notna())
    rows = with_errors(runs, "predicted", "constant", "six_n_d")
    rows = rows.assign(error=runs.predicted_s / runs.iteration_s - 1, inside=inside)
    table = rows.groupby(["runs", "source", "device", "precision", "framework", "system"], sort=False).agg(
        rows=("error", "size"), mean=("predicted", "mean"), median=("predicted", "median"), bias=("error", "mean"),
        covered=("inside", "mean"), constant=("constant", "mean"), six_n_d=("six_n_d", "mean"),
    ).reset_index()  # fmt: skip
    seen = constants_seen()
    table["seen"] = [
        seen[seen.spec.isin([row.system, row.framework.split(",")[0]]) & (seen.runs == row.runs)].constant.nunique()
        for row in table.itertuples()
    ]
    return table


@cache
def constants_seen():
    """Which constants of packaged systems and frameworks were fitted to, or inferred from, which files of runs.

    Those of ranges are left out: a framework names their sources itself.

    Returns
    -------
    DataFrame
        One row per constant and file: ``spec, constant, runs``.

    Examples
    --------
    >>> seen = constants_seen()
    >>> sorted(set(seen[seen.spec == "gb300"].constant))
    ['kernels.node_spread', 'kernels.sustained_clock', 'reserve']
    """
    stems = [path.stem for path in sorted(MEASURED.glob("*.csv"))]
    specs = [*map(load_system, packaged("systems")), *map(load_framework, packaged("frameworks"))]
    rows = [
        (spec.name, value.field, stem)
        for spec in specs for value in spec.provenance
        if value.kind in _LOOKED_AT and not value.field.startswith(("errors.", "range_", "framework."))
        for stem in stems if stem in value.source.lower().replace("-", "_")
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["spec", "constant", "runs"])


def sharing_rows():
    """`constants_seen` with one row per system or framework and files: ``spec, runs, constants``, as words."""
    seen = constants_seen().assign(constant=lambda rows: rows.constant.str.rpartition(".")[2])
    files = seen.groupby(["spec", "constant"], sort=False).runs.agg(", ".join).reset_index()
    return files.groupby(["spec", "runs"], sort=False).constant.agg(", ".join).rename("constants").reset_index()


def facts_of(errors):
    """What a page says of runs that nobody fitted to, in numbers.

    Parameters
    ----------
    errors : DataFrame
        From `errors_by_source`.

    Returns
    -------
    dict of str to float
        How many ``groups`` there are, and of how many the baselines have the larger error.
    """
    behind = {name: int((errors[name] > errors["mean"]).sum()) for name in ("constant", "six_n_d")}
    return {"groups": len(errors), "constant_behind": behind["constant"], "rule_behind": behind["six_n_d"]}


def anchors():
    """Published speeds of single large runs beside what is predicted of their layouts.

    Returns
    -------
    DataFrame
        One row per run of ``data/reference/anchors.csv``: its columns, with ``layout`` as text; ``gpus`` and
        ``sequence``; ``published_s``, the time of an iteration from what is published, ``predicted_s``, its ``error``,
        and ``fastest_s`` and ``slowest_s``, the ends of the stated range; ``memory_gib``, ``memory_share`` of a GPU's,
        and ``fits``.

    Raises
    ------
    PPModelError
        If a layout is refused.

    Notes
    -----
    TFLOP/s per GPU and MFU count only the scores that a causal mask leaves: with all of them, neither Llama 3 nor
    Mixtral 8x22B would agree at 131,072 tokens. Those of Narayanan et al. count all, and recomputed forwards.
    """
    rows = []
    for run in pd.read_csv(DATA / "reference" / "anchors.csv").to_dict("records"):
        given = {"layout": run["layout"]} if "=" not in run["layout"] else _values(run["layout"])
        name, _, changes = run["model"].partition(" ")  # a packaged model, with the values that follow its name
        model = replace(load_model(name), name=run["model"], **_values(changes)) if changes else load_model(name)
        name, _, changes = run["framework"].partition(" ")
        framework = replace(load_framework(name), **_values(changes))
        given |= {"model": model, "system": run["system"], "framework": framework}
        row = simulate(case_of_data(run["schedule"]), **given).to_dict()
        sequence = row["sequence"] or model.sequence
        published_s = _published_s(run, row, replace(model, sequence=sequence))
        rows.append(run | {
            "gpus": row["gpus"], "sequence": sequence, "published_s": published_s, "predicted_s": row["iteration_s"],
            "error": row["iteration_s"] / published_s - 1, "fastest_s": row["fastest_s"],
            "slowest_s": row["slowest_s"], "memory_gib": row["peak_memory_bytes"] / 2**30, "fits": row["fits"],
            "memory_share": row["peak_memory_bytes"] / row["memory_capacity_bytes"],
        })  # fmt: skip
    return pd.DataFrame(rows)


def _values(text):
    """The values of a layout, each as YAML reads it."""
    yaml = YAML(typ="safe")
    return {name: yaml.load(value) for name, value in (pair.split("=") for pair in text.split())}


def _published_s(run, row, model):
    """The seconds of an iteration that a published time, TFLOP/s per GPU or MFU in per cent stands for."""
    if run["quantity"] == "iteration_s":
        return run["published"]
    again = run["quantity"].endswith("recomputed")
    counted = {"recompute": "full"} if again else {"causal": True}
    flops = model_flops(model, sequences=row["global_batch"], **counted)
    unit = load_system(run["system"]).peak_compute_flops / 100 if run["quantity"].startswith("mfu") else 1e12
    return flops / (row["gpus"] * run["published"] * unit)


def anchors_by_source(table):
    """Errors of `anchors` by the publication.

    Parameters
    ----------
    table : DataFrame
        From `anchors`.

    Returns
    -------
    DataFrame
        One row per paper: ``publication``, ``rows``, ``mean`` and ``largest`` magnitude of the error, ``within``, how
        many are within `AIM`, ``covered``, how many within the stated range, and ``fit``, how many fit.
    """
    off = table.assign(
        publication=table.source.str.split(", 20").str[0], off=table.error.abs(), within=table.error.abs() <= AIM,
        covered=table.published_s.between(table.fastest_s, table.slowest_s),
    )  # fmt: skip
    return off.groupby("publication", sort=False).agg(
        rows=("off", "size"), mean=("off", "mean"), largest=("off", "max"), within=("within", "sum"),
        covered=("covered", "sum"), fit=("fits", "sum"),
    ).reset_index()  # fmt: skip
