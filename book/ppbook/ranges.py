"""How far off predictions of systems that nobody fitted are, by framework: ``python -m ppbook.ranges`` writes it."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from ppmodel.measured import read_rows
from ppmodel.measured.predict import predicted
from ppmodel.measured.rows import is_healthy
from ppmodel.specs import DATA, framework_names, load_system

MEASURED = DATA / "reference" / "measured"
SYSTEMS = {
    "A100-40GB": "a100", "A100-80GB": "a100", "H100-80GB": "h100", "B200-180GB": "b200", "GB200-186GB": "gb200",
    "GB300-284GB": "gb300",
}  # fmt: skip
"""The system of each device; none of them is fitted to runs."""

FILES = {
    "nemo": ("dgxc_h100", "mlperf_h100", "mlperf_b200", "nemo", "megatron_bridge"),
    "fsdp": ("llm_foundry_fsdp",),
    "nanotron": ("playbook_h100", "nanotron_h100"),
    "megatron": ("korthikanti_a100", "simumax_b200"),
    "megatron_deepspeed": ("vtrain_multi", "vtrain_single"),
    "bigscience": ("bigscience_a100",),
    "scaling": ("layouts_a100",),
    "eager": ("internevo_a100",),
}
"""The files with measured runs under each framework."""

KINDS = {
    "NVIDIA's recipes": ("nemo",),
    "other frameworks": ("fsdp", "nanotron", "megatron", "megatron_deepspeed", "bigscience", "scaling", "eager"),
}
"""Frameworks that share a range: it comes from several sources, and can be judged on one that it has not seen."""

NETWORKS = {"vtrain_multi": "a100_vtrain", "vtrain_single": "a100_vtrain", "bigscience_a100": "a100_bigscience"}
"""Files whose source states another network than that of the device's system, and a fitted system that has it."""

NINE_OF_TEN = 0.05, 0.95


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
    return replace(system, network_bandwidth_bytes_per_s=load_system(NETWORKS[file]).network_bandwidth_bytes_per_s)


@cache
def ratios(framework):
    """Measured over predicted times of the runs under a framework.

    Parameters
    ----------
    framework : str

    Returns
    -------
    dict of str to ndarray of float
        By file, for its rows that were measured and can be predicted.
    """
    by_file = {}
    for name in FILES.get(framework, ()):
        _, rows = read_rows(MEASURED / f"{name}.csv")
        rows = [row for row in rows if row["status"] == "measured" and is_healthy(row)]
        times = [predicted(row | {"framework": framework}, unfitted_system(name, row["device"])) for row in rows]
        by_file[name] = np.array([
            float(row["iteration_s"]) / time["predicted_iteration_s"]
            for row, time in zip(rows, times, strict=True) if time["refused"] is None
        ])  # fmt: skip
    return by_file


def ends(by_file):
    """The ends of the range that holds nine of ten runs, if all files weigh the same.

    Parameters
    ----------
    by_file : dict of str to ndarray of float
        From `ratios`.

    Returns
    -------
    (float, float)

    Examples
    --------
    >>> ends({"few": np.array([1.0, 1.1]), "many": np.full(98, 2.0)})
    (1.0, 2.0)
    """
    values = np.concatenate(list(by_file.values()))
    weights = np.concatenate([np.full(len(entries), 1 / len(entries)) for entries in by_file.values()])
    order = values.argsort()
    share = (weights[order].cumsum() - weights[order] / 2) / weights.sum()
    return tuple(float(np.interp(level, share, values[order])) for level in NINE_OF_TEN)


def written(framework):
    """The text of a framework's file with the range of its kind.

    Parameters
    ----------
    framework : str

    Returns
    -------
    str
        Unchanged if no runs are known.
    """
    text = (DATA / "frameworks" / f"{framework}.yaml").read_text(encoding="utf-8")
    text = re.sub(r"^(fastest|slowest):\n  \{[^}]*\}\n", "", text, flags=re.MULTILINE)
    by_file = {}
    for alike in KINDS.values():
        if framework in alike:
            by_file = {file: values for name in alike for file, values in ratios(name).items()}
    if not by_file:
        return text
    count = sum(map(len, by_file.values()))
    source = f"nine of ten of {count} measured runs, all files weighing the same: {', '.join(by_file)}"
    for name, value in zip(("fastest", "slowest"), ends(by_file), strict=True):
        text += f'{name}:\n  {{value: {round(value, 2)}, kind: fitted,\n   source: "{source}"}}\n'
    return text


def main():
    """Write the ranges of all frameworks."""
    for name in framework_names():
        Path(DATA / "frameworks" / f"{name}.yaml").write_text(written(name), encoding="utf-8")


if __name__ == "__main__":
    main()
