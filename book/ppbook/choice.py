"""The schedule to choose under a memory limit."""

import pandas as pd

from ppmodel.noise import TIE

CHOICES = ("fastest that fits", "next schedule that fits", "fastest of all", "least memory")
"""What `recommended` picks for each number of ranks, if it exists."""


def recommended(frame, limit_bytes=None, time="makespan_s"):
    """For each number of ranks, pick the fastest schedule within a memory limit, and its alternatives.

    Parameters
    ----------
    frame : DataFrame
        From `ppmodel.compare`, with one model on one system; undefined points are ignored.
    limit_bytes : float, optional
        Memory limit for the most loaded rank, in bytes; by default, all memory of a device.
    time : str
        Column with the time to minimise; for a frame with layouts, ``iteration_s``, the whole iteration.

    Returns
    -------
    DataFrame
        Rows of `frame` with an additional first column ``choice``, one of `CHOICES`: the fastest that fits; the fastest
        other schedule that fits; the fastest of all; the one with least memory. Ties go to less memory, then to the
        first by label, then to the smaller B.

    Examples
    --------
    >>> import ppmodel
    >>> frame = ppmodel.compare(["gpipe", "1f1b"], 32, 256, model="llama3_70b", system="dgx_h100")
    >>> recommended(frame, 1e12)[["choice", "label"]].values.tolist()
    [['fastest that fits', '1F1B'], ['fastest of all', '1F1B'], ['least memory', '1F1B']]
    """
    chosen = [frame[:0].assign(choice="")]
    for _, candidates in frame.dropna(subset=time).groupby("pp", sort=False):
        fits = candidates[
            candidates.peak_memory_bytes <= (candidates.memory_capacity_bytes if limit_bytes is None else limit_bytes)
        ]
        take = _fastest(fits, time)
        others = fits[~fits.label.isin(take.label)]
        least = candidates.sort_values(["peak_memory_bytes", time, "label", "microbatches"])[:1]
        choices = zip(CHOICES, (take, _fastest(others, time), _fastest(candidates, time), least), strict=True)
        chosen += [rows.assign(choice=name) for name, rows in choices]
    columns = ["choice", *frame.columns]
    return pd.concat([rows for rows in chosen if len(rows)] or chosen, ignore_index=True)[columns]


def _fastest(rows, time):
    """The fastest by the rule above: one row or none."""
    equal = rows[rows[time] <= rows[time].min() * (1 + TIE)]
    return equal.sort_values(["peak_memory_bytes", "label", "microbatches"])[:1]
