"""Predictions of all measured runs by systems that nobody fitted, source by source, and who had seen which rows."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
from ruamel.yaml import YAML

from ppbook.baseline import constant_utilization, scaled_to_others
from ppbook.ranges import FILES, KINDS, MEASURED, ends, unfitted_system
from ppmodel.costs import model_flops, parameters
from ppmodel.errors import PPModelError
from ppmodel.measured import read_rows
from ppmodel.measured.predict import predicted
from ppmodel.measured.rows import LEAST_MFU, run_of, system_of
from ppmodel.points import compare
from ppmodel.schedules.cases import case_of_data
from ppmodel.specs import DATA, framework_names, load_framework, load_model, load_system, system_names

RULE_OF_THUMB = 0.4
"""The utilization at which many estimate 6 N D."""
_FRAMEWORKS = {name: framework for framework, names in FILES.items() for name in names}
AIM = 0.08
"""The error of a published anchor that is aimed at."""

_MFU = (0, 10, 20, 100), ("below 10 % MFU", "10 to 20 % MFU", "20 % MFU and more")
_LOOKED_AT = "fitted", "inferred"


def kept_aside():
    """Errors on rows that no choice was made after.

    Returns
    -------
    DataFrame
        One row per source: ``runs, title, system, rows, mean_error`` and, where it is known, ``fits_right``.

    Examples
    --------
    >>> len(kept_aside())
    6
    """
    document = YAML(typ="safe").load((DATA / "reference" / "kept_aside.yaml").read_text(encoding="utf-8"))
    entries = [
        {"runs": name} | {key: value["value"] if isinstance(value, dict) else value for key, value in entry.items()}
        for name, entry in document["sources"].items()
    ]
    return pd.DataFrame(entries)


def unfitted_by_source():
    """All measured runs, each predicted by the packaged system of its device that is not fitted to any run.

    Returns
    -------
    DataFrame
        One row per run that was measured and can be predicted: ``id, runs`` (the stem of its file), ``source`` (the
        same, with a range of utilization where some runs hardly reach any), ``device, precision, framework, system,
        iteration_s, predicted_s, fastest_s, slowest_s``, and the baselines ``constant_s``, as in `constant_utilization`
        for all runs of a source on a device in a precision, and ``six_n_d_s``, 6 N D at `RULE_OF_THUMB` of the bf16
        peak.
    """
    frames = [_unfitted(path.stem) for path in sorted(MEASURED.glob("*.csv"))]
    return pd.concat(frames, ignore_index=True)


def _unfitted(stem):
    _, rows = read_rows(MEASURED / f"{stem}.csv")
    columns = []
    for row in rows:
        if not row["iteration_s"]:
            continue
        system = system_of(row | {"framework": _FRAMEWORKS[stem]}, unfitted_system(stem, row["device"]))
        seconds = predicted(row, system)["predicted_iteration_s"]
        if seconds is None:
            continue
        fastest, slowest = system.range or (np.nan, np.nan)
        run = run_of(row, system.framework)
        flops = 6 * parameters(run.model).total * run.model.sequence * run.layout.global_batch * run.flushes
        gpus = run.layout.replica_gpus * run.layout.dp
        columns.append({
            "row": row, "id": row.get("id", ""), "device": row["device"], "framework": system.framework.name,
            "precision": _precision(row, system), "system": system.name, "iteration_s": float(row["iteration_s"]),
            "predicted_s": seconds,
            "fastest_s": fastest * seconds, "slowest_s": slowest * seconds,
            "six_n_d_s": flops / (gpus * RULE_OF_THUMB * system.peak_compute_flops),
            "mfu": float(row.get("mfu_percent") or np.nan),
        })  # fmt: skip
    frame = pd.DataFrame(columns).assign(runs=stem, source=stem)
    if (frame.mfu < LEAST_MFU).any():
        bins, names = _MFU
        frame["source"] = f"{stem}, " + pd.cut(frame.mfu, bins, labels=names, right=False).astype(str)
    for (system, *_), group in frame.groupby(["system", "source", "device", "precision"]):
        frame.loc[group.index, "constant_s"] = constant_utilization(list(group.row), load_system(system))
    return frame.drop(columns=["row", "mfu"])


def _precision(row, system):
    return row.get("precision") or system.framework.precision


def fitted_by_source(runs):
    """The runs of fitted systems in the form of `unfitted_by_source`, each predicted by a fit that had not seen it.

    Parameters
    ----------
    runs : DataFrame
        From `against.runs_of`.

    Returns
    -------
    DataFrame
    """
    timed = runs[runs.iteration_s.notna() & runs.predicted_iteration_s.notna()]
    systems = {name: load_system(name) for name in timed.system.unique()}
    fastest, slowest = (timed.system.map({name: spec.range[end] for name, spec in systems.items()}) for end in (0, 1))
    frameworks = timed.system.map({name: spec.framework.name or "its own" for name, spec in systems.items()})
    rows = timed.fillna({"precision": ""}) if "precision" in timed else timed
    precisions = [_precision(row, systems[row["system"]]) for row in rows.to_dict("records")]
    return timed.assign(
        source=timed.runs, framework=frameworks, precision=precisions, constant_s=timed.baseline_s,
        predicted_s=timed.predicted_iteration_s,
        fastest_s=fastest * timed.predicted_iteration_s, slowest_s=slowest * timed.predicted_iteration_s,
        six_n_d_s=np.nan,
    )  # fmt: skip


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
    runs = fitted[fitted.iteration_s.notna()].drop(columns=["unfitted_s", "scaled_s"], errors="ignore")
    runs = runs.merge(times, on=["runs", "id"], validate="1:1")
    for _, group in runs.groupby("runs"):
        seconds = scaled_to_others(group.unfitted_s.to_numpy(), group[["iteration_s"]].to_dict("records"))
        runs.loc[group.index, "scaled_s"] = seconds
    return runs


def spread_by_source(runs):
    """How errors spread in each source.

    Parameters
    ----------
    runs : DataFrame
        From `unfitted_by_source`.

    Returns
    -------
    DataFrame
        One row per source, device and precision: ``source``, all in one text, and of predicted over measured minus 1
        the quantiles ``low`` (5 %), ``less`` (25 %), ``middle``, ``more`` (75 %) and ``high`` (95 %).
    """
    gpus = runs.device.str.split("-").str[0]
    labels = runs.source + ", " + gpus + runs.precision.map({"bf16": "", "fp8": ", fp8"})
    groups = (runs.predicted_s / runs.iteration_s - 1).groupby(labels.rename("source"), sort=False)
    levels = {"low": 0.05, "less": 0.25, "middle": 0.5, "more": 0.75, "high": 0.95}
    return pd.DataFrame({name: groups.quantile(level) for name, level in levels.items()}).reset_index()


def errors_by_source(runs):
    """Errors of time by source, device, precision, framework and system.

    Parameters
    ----------
    runs : DataFrame
        From `unfitted_by_source` or `fitted_by_source`.

    Returns
    -------
    DataFrame
        ``runs, source, device, precision, framework, system, rows``; of predicted over measured minus 1, ``mean`` and
        ``median`` (both of its magnitude) and ``bias``; ``covered``, the share of runs within the stated range, NaN
        where none is stated; mean errors of the baselines, ``constant`` and ``six_n_d``; and ``seen``, how many
        constants of system and framework were fitted to rows of the file.
    """
    error = {name: runs[f"{name}_s"] / runs.iteration_s - 1 for name in ("predicted", "constant", "six_n_d")}
    inside = runs.iteration_s.between(runs.fastest_s, runs.slowest_s).astype(float).where(runs.fastest_s.notna())
    columns = {f"{name}_off": value.abs() for name, value in error.items()} | {
        "error": error["predicted"],
        "inside": inside,
    }
    groups = runs.assign(**columns).groupby(
        ["runs", "source", "device", "precision", "framework", "system"], sort=False
    )
    table = groups.agg(
        rows=("error", "size"), mean=("predicted_off", "mean"), median=("predicted_off", "median"),
        bias=("error", "mean"), covered=("inside", "mean"), constant=("constant_off", "mean"),
        six_n_d=("six_n_d_off", "mean"),
    ).reset_index()  # fmt: skip
    seen = constants_seen()
    table["seen"] = [
        int(seen[seen.spec.isin([row.system, row.framework]) & (seen.runs == row.runs)].constant.nunique())
        for row in table.itertuples()
    ]
    return table


def covered_when_left_out(runs):
    """How many runs of each file are within a range from the other files of its kind, which it did not help to set.

    Parameters
    ----------
    runs : DataFrame
        From `unfitted_by_source`; runs below `LEAST_MFU` are left out, as in the ranges that frameworks state.

    Returns
    -------
    DataFrame
        One row per file: ``runs, kind`` (of `KINDS`), ``rows``, the ends of the range, ``fastest`` and ``slowest``, and
        the share ``covered``.
    """
    healthy = runs[~runs.source.str.contains("below")]
    ratios = {
        name: group.to_numpy() for name, group in (healthy.iteration_s / healthy.predicted_s).groupby(healthy.runs)
    }
    rows = []
    for kind, frameworks in KINDS.items():
        names = [name for framework in frameworks for name in FILES[framework]]
        for name in names:
            fastest, slowest = ends({other: ratios[other] for other in names if other != name})
            inside = (ratios[name] >= fastest) & (ratios[name] <= slowest)
            rows.append((name, kind, len(inside), fastest, slowest, inside.mean()))
    return pd.DataFrame(rows, columns=["runs", "kind", "rows", "fastest", "slowest", "covered"])


@cache
def constants_seen():
    """Which constants of packaged systems and frameworks were fitted to, or inferred from, which files of runs.

    Returns
    -------
    DataFrame
        One row per constant and file: ``spec, constant, runs``.

    Examples
    --------
    >>> seen = constants_seen()
    >>> seen[seen.spec == "nemo"].constant.unique().tolist()
    ['fastest', 'slowest']
    """
    stems = [path.stem for path in sorted(MEASURED.glob("*.csv"))]
    specs = [load_system(name) for name in system_names()] + [load_framework(name) for name in framework_names()]
    rows = [
        (spec.name, value.field, stem)
        for spec in specs for value in spec.provenance
        if value.kind in _LOOKED_AT and not value.field.startswith("errors.")
        for stem in stems if stem in value.source.lower().replace("-", "_")
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["spec", "constant", "runs"])


def sharing_rows():
    """`constants_seen` with one row per system or framework and files: ``spec, runs, constants``, as words."""
    seen = constants_seen().assign(constant=lambda rows: rows.constant.str.rpartition(".")[2])
    files = seen.groupby(["spec", "constant"], sort=False).runs.agg(", ".join).reset_index()
    return files.groupby(["spec", "runs"], sort=False).constant.agg(", ".join).rename("constants").reset_index()


def facts_of(runs, errors):
    """What a page says of runs that nobody fitted to, in numbers.

    Parameters
    ----------
    runs : DataFrame
        From `unfitted_by_source`.
    errors : DataFrame
        From `errors_by_source` of these.

    Returns
    -------
    dict of str to float
        Of runs under NVIDIA's recipes, the ``best`` and ``worst`` mean error of a group, their number, ``nvidia``, and
        the share ``covered``; of all, ``groups``, and of how many the baselines have the larger error.
    """
    nvidia, means = runs[runs.framework == "nemo"], errors[errors.framework == "nemo"]["mean"]
    return {
        "best": means.min(), "worst": means.max(), "nvidia": len(nvidia), "groups": len(errors),
        "covered": nvidia.iteration_s.between(nvidia.fastest_s, nvidia.slowest_s).mean(),
        "constant_behind": int((errors.constant > errors["mean"]).sum()),
        "rule_behind": int((errors.six_n_d > errors["mean"]).sum()),
    }  # fmt: skip


def anchors():
    """Published speeds of single large runs beside what is predicted of their layouts.

    Returns
    -------
    DataFrame
        One row per run of ``data/reference/anchors.csv``: its columns, with ``layout`` as text; ``gpus`` and
        ``sequence``; ``published_s``, the time of an iteration from what is published, ``predicted_s``, its ``error``,
        and ``fastest_s`` and ``slowest_s``, the ends of the stated range; ``memory_gib`` and ``fits``.

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
        frame = compare(
            case_of_data(run["schedule"]), model=model, system=run["system"], framework=run["framework"], **given
        )
        (row,) = frame.itertuples()
        if isinstance(row.refused, str):
            raise PPModelError("layout", run["layout"], f"is refused: {row.refused}", "mend the layout")
        sequence = int(row.sequence) if row.sequence == row.sequence and row.sequence else model.sequence
        published_s = _published_s(run, row, replace(model, sequence=sequence))
        rows.append(run | {
            "gpus": int(row.gpus), "sequence": sequence, "published_s": published_s,
            "predicted_s": row.iteration_s, "error": row.iteration_s / published_s - 1, "fastest_s": row.fastest_s,
            "slowest_s": row.slowest_s, "memory_gib": row.peak_memory_bytes / 2**30, "fits": bool(row.fits),
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
    flops = model_flops(model, sequences=int(row.global_batch), **counted)
    unit = load_system(run["system"]).peak_compute_flops / 100 if run["quantity"].startswith("mfu") else 1e12
    return flops / (row.gpus * run["published"] * unit)


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
