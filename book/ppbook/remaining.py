"""What the errors that remain consist of: a few runs that are far off, and runs that repeat one another."""

import pandas as pd

from ppmodel.measured import COLUMNS

_KERNEL = "kernel (.*)"

FAR = 0.1
"""From which error on a run counts as far off."""


def remaining(runs, what="iteration_s", predicted="predicted_iteration_s"):
    """How much of each source's error a few runs make, and how much equal runs differ.

    Parameters
    ----------
    runs : DataFrame
        A row for each run, with the columns of its file; ``runs`` names the file.
    what, predicted : str
        Columns of what was measured and predicted; runs without either are left out.

    Returns
    -------
    DataFrame
        A row for each source; columns ``runs, rows, mean``, the mean error; ``far``, how many runs are off by more than
        `FAR`, ``far_share``, which part of the sum of errors is theirs, and ``rest``, the mean error of the others;
        ``equal``, how many runs agree with another in everything that is said of them, and ``floor``, the mean error on
        these of a prediction that knew their mean: no model that is told what their columns say has less.

    Examples
    --------
    >>> row = dict.fromkeys(COLUMNS, 1) | {"runs": "a", "source": "ours", "predicted_iteration_s": 1.0}
    >>> left = remaining(pd.DataFrame([row | {"iteration_s": seconds} for seconds in (0.98, 1.02)]))
    >>> left[["rows", "equal", "floor"]].round(3).values.tolist()
    [[2.0, 2.0, 0.02]]
    """
    known = runs[runs[what].notna() & runs[predicted].notna()]
    known = known.assign(off=(known[predicted].astype(float) / known[what] - 1).abs())
    kernel = known.source.str.extract(_KERNEL, expand=False)
    twins = known.assign(kernel=kernel).groupby(["runs", "kernel", *COLUMNS], dropna=False)[what]
    known = known.assign(equal=twins.transform("size") > 1, spread=(twins.transform("mean") / known[what] - 1).abs())
    return pd.DataFrame([_of(name, group) for name, group in known.groupby("runs", sort=False)])


def _of(name, group):
    far, twins, whole = group[group.off > FAR].off, group[group.equal].spread, group.off.sum()
    return {
        "runs": name, "rows": len(group), "mean": group.off.mean(), "far": len(far),
        "far_share": far.sum() / whole if whole else 0.0, "rest": group[group.off <= FAR].off.mean(),
        "equal": len(twins), "floor": twins.mean(),
    }  # fmt: skip
