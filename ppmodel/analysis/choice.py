"""The schedule to choose under a limit of memory."""

from ppmodel.noise import TIE

CHOICES = ("fastest that fits", "next schedule that fits", "fastest of all", "least memory")
"""What `recommended` picks at each number of ranks, where one exists."""


def recommended(frame, limit_bytes=None, time="makespan_s"):
    """For each number of ranks the fastest schedule that fits a limit of memory, and what stands beside it.

    Parameters
    ----------
    frame : DataFrame
        From `ppmodel.compare`, of one model on one system; points that are not defined are no candidates.
    limit_bytes : float, optional
        Bytes that the most loaded rank may hold; by default all memory of a rank of the system.
    time : str
        Column of the time that decides; of a frame with layouts ``iteration_s``, the whole iteration.

    Returns
    -------
    DataFrame
        Rows of `frame` with a column ``choice`` before them, one of `CHOICES`: the fastest that fits; the fastest that
        fits of all other schedules; the fastest, whatever it needs; the one that needs least. Of equally fast ones the
        one that needs fewer bytes is taken, then the first by label, then the smaller B.

    Examples
    --------
    >>> import ppmodel
    >>> frame = ppmodel.compare(["gpipe", "1f1b"], 32, 256, model="llama3_70b", system="dgx_h100")
    >>> recommended(frame, 1e12)[["choice", "label"]].values.tolist()
    [['fastest that fits', '1F1B'], ['fastest of all', '1F1B'], ['least memory', '1F1B']]
    """
    import pandas as pd

    chosen = [frame[:0].assign(choice="")]
    for _, here in frame.dropna(subset=time).groupby("pp", sort=False):
        fits = here[here.peak_memory_bytes <= (here.memory_capacity_bytes if limit_bytes is None else limit_bytes)]
        take = _fastest(fits, time)
        others = fits[~fits.label.isin(take.label)]
        least = here.sort_values(["peak_memory_bytes", time, "label", "microbatches"])[:1]
        found = zip(CHOICES, (take, _fastest(others, time), _fastest(here, time), least), strict=True)
        chosen += [rows.assign(choice=name) for name, rows in found]
    columns = ["choice", *frame.columns]
    return pd.concat([rows for rows in chosen if len(rows)] or chosen, ignore_index=True)[columns]


def _fastest(rows, time):
    """The fastest by the written rule: one row, or none."""
    equal = rows[rows[time] <= rows[time].min() * (1 + TIE)]
    return equal.sort_values(["peak_memory_bytes", "label", "microbatches"])[:1]
