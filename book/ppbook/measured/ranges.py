"""How far off predictions of systems that nobody fitted are, by framework.

``python -m ppbook.measured.ranges`` writes it.
"""

import re

import numpy as np
import pandas as pd

from ppbook.measured.unfitted import FILES, KINDS, unfitted_runs
from ppmodel.clusters.specs import DATA, framework_names

NINE_OF_TEN = 0.05, 0.95


def ratios(runs):
    """Measured over predicted times of healthy runs.

    Parameters
    ----------
    runs : DataFrame
        From `unfitted_by_source`.

    Returns
    -------
    dict of str to ndarray of float
        By file.
    """
    healthy = runs[runs.is_healthy]
    quotients = healthy.iteration_s / healthy.predicted_s
    return {name: group.to_numpy() for name, group in quotients.groupby(healthy.runs, sort=False)}


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
    by_file = ratios(runs)
    rows = []
    for kind, frameworks in KINDS.items():
        names = [name for framework in frameworks for name in FILES[framework]]
        for name in names:
            fastest, slowest = ends({other: by_file[other] for other in names if other != name})
            inside = (by_file[name] >= fastest) & (by_file[name] <= slowest)
            rows.append((name, kind, len(inside), fastest, slowest, inside.mean()))
    return pd.DataFrame(rows, columns=["runs", "kind", "rows", "fastest", "slowest", "covered"])


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
    alike = next((names for names in KINDS.values() if framework in names), ())
    if not alike:
        return text
    text = re.sub(r"^(fastest|slowest):\n  \{[^}]*\}\n", "", text, flags=re.MULTILINE)
    by_file = ratios(pd.concat([unfitted_runs(file) for name in alike for file in FILES[name]]))
    count = sum(map(len, by_file.values()))
    source = f"nine of ten of {count} measured runs, all files weighing the same: {', '.join(by_file)}"
    for name, value in zip(("fastest", "slowest"), ends(by_file), strict=True):
        text += f'{name}:\n  {{value: {round(value, 2)}, kind: fitted,\n   source: "{source}"}}\n'
    return text


if __name__ == "__main__":
    for framework in framework_names():
        (DATA / "frameworks" / f"{framework}.yaml").write_text(written(framework), encoding="utf-8")
