"""What the errors that remain consist of: a few runs that are far off, and runs that repeat one another."""

from ppmodel.studies.measured import COLUMNS

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
    >>> import pandas as pd
    >>> row = dict.fromkeys(COLUMNS, 1) | {"runs": "a", "source": "ours", "predicted_iteration_s": 1.0}
    >>> left = remaining(pd.DataFrame([row | {"iteration_s": seconds} for seconds in (0.98, 1.02)]))
    >>> left[["rows", "equal", "floor"]].round(3).values.tolist()
    [[2.0, 2.0, 0.02]]
    """
    both = runs[runs[what].notna() & runs[predicted].notna()]
    off = (both[predicted].astype(float) / both[what] - 1).abs()
    kernel = both.source.str.extract(_KERNEL, expand=False)
    twins = both.assign(kernel=kernel).groupby(["runs", "kernel", *COLUMNS], dropna=False)[what]
    equal, spread = twins.transform("size") > 1, (twins.transform("mean") / both[what] - 1).abs()
    groups = both.assign(
        off=off, equal=equal, floor=spread.where(equal), far=off > FAR, far_off=off.where(off > FAR, 0.0),
        rest=off.where(off <= FAR),
    ).groupby("runs", sort=False)  # fmt: skip
    left = groups.agg(
        rows=("off", "size"), mean=("off", "mean"), far=("far", "sum"), far_share=("far_off", "sum"),
        rest=("rest", "mean"), equal=("equal", "sum"), floor=("floor", "mean"),
    )  # fmt: skip
    return left.assign(far_share=(left.far_share / groups.off.sum()).fillna(0.0)).reset_index()
