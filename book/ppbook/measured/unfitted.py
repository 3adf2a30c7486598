"""Every measured run, predicted by the packaged system of its device that is not fitted to any run."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
from ruamel.yaml import YAML

from ppbook.measured.baseline import constant_utilization
from ppbook.measured.certainty import SIZE
from ppmodel.clusters.costs import parameters
from ppmodel.clusters.specs import DATA, load_system
from ppmodel.errors import PPModelError
from ppmodel.studies.measured import read_rows
from ppmodel.studies.measured.predict import predicted
from ppmodel.studies.measured.rows import is_healthy, run_of, system_of

MEASURED = DATA / "reference" / "measured"
_SOURCES = YAML(typ="safe").load(MEASURED / "sources.yaml")
SYSTEMS, FILES, EXPERTS, NETWORKS = (_SOURCES[name] for name in ("systems", "frameworks", "experts", "networks"))
"""The system of each device, the files of each framework, also of models with experts, and those with a network."""

RULE_OF_THUMB = 0.4
"""The utilization at which many estimate 6 N D."""
FRAMEWORKS = {
    name: framework
    for files in (FILES, EXPERTS, _SOURCES["later"]) for framework, names in files.items() for name in names
}  # fmt: skip
"""The framework of each file of runs, also of those that are judged alone."""

_MFU = (0, 10, 20, 100), ("below 10 % MFU", "10 to 20 % MFU", "20 % MFU and more")


@cache
def unfitted_system(file, device):
    """The packaged system of a device that is not fitted to any run, with the network that the source of a file states.

    Parameters
    ----------
    file : str
        The stem of a file of runs.
    device : str
        As its rows name it.

    Returns
    -------
    SystemSpec

    Examples
    --------
    >>> systems = [unfitted_system(file, "A100-80GB") for file in ("layouts_a100", "bigscience_a100")]
    >>> [system.network_bandwidth_bytes_per_s for system in systems]
    [25000000000.0, 6250000000.0]
    """
    system = load_system(SYSTEMS[device])
    if file not in NETWORKS:
        return system
    attained = _SOURCES["data_efficiency"].get(file, system.collectives.data_efficiency)
    links = replace(system.collectives, data_efficiency=attained)
    bandwidth = load_system(NETWORKS[file]).network_bandwidth_bytes_per_s
    return replace(system, network_bandwidth_bytes_per_s=bandwidth, collectives=links)


def system_of_row(row, source):
    """`unfitted_system` of a row of a source, under the source's framework, or the one that the row names.

    Raises
    ------
    PPModelError
        If no packaged system describes the row's device.
    """
    if row["device"] not in SYSTEMS:
        raise PPModelError("device", row["device"], f"must be one of {', '.join(SYSTEMS)}", "leave out such rows")
    named = {"framework": FRAMEWORKS[source]} if source in FRAMEWORKS else {}
    return system_of(row | named, unfitted_system(source, row["device"]))


@cache
def unfitted_runs(file):
    """The runs of a file that were measured; all of them can be predicted.

    Parameters
    ----------
    file : str
        Its stem.

    Returns
    -------
    DataFrame
        One row per run: ``id, runs`` (the file), ``source`` (the same, with a range of utilization where some runs
        hardly reach any), ``device, precision, format, framework, release, system``, those of `SIZE`, ``iteration_s,
        predicted_s, error, fastest_s, slowest_s, is_healthy``, and the baselines ``constant_s``, as in
        `constant_utilization` for all runs of a source on a device in a precision, and ``six_n_d_s``, 6 N D at
        `RULE_OF_THUMB` of the bf16 peak, with N the active parameters.

    Examples
    --------
    >>> runs = unfitted_runs("mlperf_h100")
    >>> len(runs), bool(runs.error.abs().mean() < 0.05)
    (12, True)
    """
    records = []
    for row in [row for row in read_rows(MEASURED / f"{file}.csv")[1] if row["iteration_s"]]:
        system = system_of_row(row, file)
        if (seconds := predicted(row, system)["predicted_iteration_s"]) is None:
            continue  # refused; `ppmodel predict` says why
        run = run_of(row, system.framework)
        fastest, slowest = system.framework.ends(run.model.experts is not None) or (np.nan, np.nan)
        batch, gpus = run.layout.global_batch * run.pipeline_runs, run.layout.replica_gpus * run.layout.dp
        size = dict(zip(SIZE, (run.model.hidden, run.model.blocks, gpus, run.model.sequence, batch), strict=True))
        flops = 6 * parameters(run.model).active * run.model.sequence * batch
        records.append({
            "row": row, "id": row.get("id", ""), "runs": file, "device": row["device"], **size,
            "framework": system.framework.name, "release": system.framework.release, "system": system.name,
            "precision": row.get("precision") or system.framework.precision, "format": run.layout.precision,
            "iteration_s": float(row["iteration_s"]), "predicted_s": seconds,
            "fastest_s": fastest * seconds, "slowest_s": slowest * seconds,
            "six_n_d_s": flops / (gpus * RULE_OF_THUMB * system.peak_compute_flops),
            "mfu": float(row.get("mfu_percent") or np.nan), "is_healthy": is_healthy(row),
        })  # fmt: skip
    frame = pd.DataFrame(records).assign(source=file, error=lambda runs: runs.predicted_s / runs.iteration_s - 1)
    if not frame.is_healthy.all():
        bins, names = _MFU
        frame["source"] = f"{file}, " + pd.cut(frame.mfu, bins, labels=names, right=False).astype(str)
    for (system, *_), group in frame.groupby(["system", "source", "device", "precision"]):
        frame.loc[group.index, "constant_s"] = constant_utilization(list(group.row), load_system(system))
    return frame.drop(columns=["row", "mfu"])


def unfitted_by_source():
    """`unfitted_runs` of all `FILES`, one after another."""
    return pd.concat(map(unfitted_runs, sorted(name for names in FILES.values() for name in names)), ignore_index=True)


def unfitted_experts():
    """`unfitted_runs` of all files of `EXPERTS`, under frameworks with ", experts" behind their names."""
    files = sorted(name for names in EXPERTS.values() for name in names)
    runs = pd.concat(map(unfitted_runs, files), ignore_index=True)
    return runs.assign(framework=runs.framework + ", experts")
