"""How far off predictions of systems that nobody fitted are, by framework.

``python -m ppbook.measured.ranges`` writes it into the frameworks' files.
"""

import re

import numpy as np
import pandas as pd

from ppbook.measured.by_source import AIM, anchors
from ppbook.measured.unfitted import EXPERTS, FILES, unfitted_experts, unfitted_runs
from ppmodel.clusters.specs import DATA, load_model, packaged
from ppmodel.studies.measured.ranges import unseen_range

GROUP = "runs", "device", "precision", "hidden", "layers"
"""What tells groups of runs apart: the source, the machine, the format and the model."""

_FEWEST = 5
"""A precision of fewer runs counts as not measured."""


def healthy(runs):
    """Runs that were not held up, with ``log``, that of measured over predicted time, and their ``group``.

    Parameters
    ----------
    runs : DataFrame
        From `unfitted_by_source`.

    Returns
    -------
    DataFrame
    """
    runs = runs[runs.is_healthy]
    group = runs[[*GROUP]].astype(str).agg(" ".join, axis=1)
    return runs.assign(log=np.log(runs.iteration_s / runs.predicted_s), group=group)


def covered_when_left_out(runs):
    """How many runs of each framework are within a range to which they did not contribute.

    Parameters
    ----------
    runs : DataFrame
        From `healthy`; its column ``framework`` may as well have the names of fitted systems.

    Returns
    -------
    DataFrame
        One row per framework: ``framework, groups, rows``, ``error``, the mean magnitude of theirs, the ends of its
        range, ``fastest`` and ``slowest``, and for each column of `GROUP` with several values, for ``release``, and for
        ``group``, the share of runs that are within the range of the runs that differ in it: each value is left out in
        turn.
    """
    rows = []
    for framework, known in runs.groupby("framework", sort=False):
        row = {"framework": framework, "groups": known.group.nunique(), "rows": len(known)}
        row["error"] = np.expm1(-known.log).abs().mean()
        row |= dict(zip(("fastest", "slowest"), unseen_range(known.log, known.group), strict=True))
        for column in ("group", "runs", "release", "device", "precision", "hidden"):
            inside = []
            for value, left_out in known.groupby(column):
                rest = known[known[column] != value]
                ends = unseen_range(rest.log, rest.group) if len(rest) else unseen_range([0.0], [""])
                inside.append(np.exp(left_out.log).between(*ends))
            if len(inside) > 1 or column == "group":
                row[column] = pd.concat(inside).mean()
        rows.append(row)
    return pd.DataFrame(rows)


def _most_published(framework):
    """The most GPUs of a published run without experts that is as predicted, to `AIM`: see `by_source.anchors`."""
    runs = [
        run.gpus for run in anchors().itertuples() if run.framework.split()[0].partition("@")[0] == framework
        and abs(run.error) <= AIM and not load_model(run.model.split()[0]).experts
    ]  # fmt: skip
    return max(runs, default=0)


def written(framework):
    """The text of a framework's file with its range, and the runs that it is from.

    Parameters
    ----------
    framework : str

    Returns
    -------
    str
        Unchanged if no runs are known.
    """
    text = (DATA / "frameworks" / f"{framework}.yaml").read_text(encoding="utf-8")
    if framework not in FILES:
        return text
    text = re.sub(r"^(fastest|slowest|range_\w+|experts_\w+):\n  \{[^}]*\}\n", "", text, flags=re.MULTILINE)
    text, releases, listed = text.partition("\n# What a release changed.")
    text += "\n" * bool(releases)
    runs = healthy(pd.concat(map(unfitted_runs, FILES[framework])))
    formats = runs.format.value_counts()
    ends = unseen_range(runs.log, runs.group)
    source = (
        f"{len(runs)} runs in {runs.group.nunique()} groups (source, GPU, format, model), as measured.ranges has it"
    )
    of_gpus = source + "; and published runs (anchors.csv)"
    stated = dict(zip(("fastest", "slowest"), (round(end, 2) for end in ends), strict=True)) | {
        "range_runs": len(runs), "range_gpus": max(int(runs.gpus.max()), _most_published(framework)),
        "range_precisions": f'"{" ".join(sorted(formats[formats >= _FEWEST].index))}"',
        "range_sources": f'"{", ".join(FILES[framework])}"',
    }  # fmt: skip
    if framework in EXPERTS:
        known = healthy(unfitted_experts())
        of_experts = f"{len(known)} runs in {known.group.nunique()} groups, as measured.ranges has it"
        least, most = (round(end, 2) for end in unseen_range(known.log, known.group))
        stated |= {"experts_fastest": least, "experts_slowest": most}
        stated["experts_runs"] = f'"{len(known)} runs of models with experts ({", ".join(EXPERTS[framework])})"'
    for name, value in stated.items():
        of = of_gpus if name == "range_gpus" else of_experts if name.startswith("experts_") else source
        text += f'{name}:\n  {{value: {value}, kind: fitted,\n   source: "{of}"}}\n'
    return text + (releases + listed).removeprefix("\n")


if __name__ == "__main__":
    for framework in packaged("frameworks"):
        (DATA / "frameworks" / f"{framework}.yaml").write_text(written(framework), encoding="utf-8")
