"""Errors of predicted times: of runs, by source, and of choices among layouts."""

from ppbook.measured.certainty import SIZE

_CELL = ["runs", *SIZE]
_FEWEST = 5


def with_errors(runs, *names):
    """Runs with what predicted times are off by.

    Parameters
    ----------
    runs : DataFrame
        With ``iteration_s``, and for each name a column such as ``constant_s``.
    *names : str

    Returns
    -------
    DataFrame
        The runs, with a column for each name, the magnitude of predicted over measured minus 1.

    Examples
    --------
    >>> import pandas as pd
    >>> with_errors(pd.DataFrame({"iteration_s": [2.0], "constant_s": [1.0]}), "constant").constant.tolist()
    [0.5]
    """
    return runs.assign(**{name: (runs[f"{name}_s"] / runs.iteration_s - 1).abs() for name in names})


def summary(rows, error):
    """Errors by source: their mean, median, ninth decile, the worst, and the bias.

    Parameters
    ----------
    rows : DataFrame
        With ``runs`` and ``system``.
    error : str
        Column of predicted over measured minus 1.

    Returns
    -------
    DataFrame
        One row per source and system: ``runs, system, rows, mean, median, ninety, worst, bias``, all but the last of
        magnitudes.

    Examples
    --------
    >>> import pandas as pd
    >>> runs = pd.DataFrame({"runs": "mine", "system": "a100", "error": [-0.1, 0.3]})
    >>> summary(runs, "error")[["mean", "bias"]].to_numpy().round(2).tolist()
    [[0.2, 0.1]]
    """
    groups = rows.assign(off=rows[error].abs()).groupby(["runs", "system"], sort=False)
    parts = groups.off.agg(rows="size", mean="mean", median="median", ninety=lambda off: off.quantile(0.9), worst="max")
    return parts.assign(bias=groups[error].mean()).reset_index()


def chosen_over_best(timed):
    """How much slower the layout predicted to be fastest was than the fastest, of one model on one number of GPUs.

    Parameters
    ----------
    timed : DataFrame
        Runs with ``iteration_s`` and ``predicted_iteration_s``.

    Returns
    -------
    DataFrame
        One row per group of at least five runs; ``behind`` is 0 if the choice was right.
    """
    ran = timed[timed.status.eq("measured") & (timed.groupby(_CELL).id.transform("size") >= _FEWEST)]
    best = ran.loc[ran.groupby(_CELL).predicted_iteration_s.idxmin()].set_index(_CELL).iteration_s
    return (best / ran.groupby(_CELL).iteration_s.min() - 1).rename("behind").reset_index()
