"""How often each schedule is on a Pareto front of time and memory, and how near it comes elsewhere."""


def nearest_to_fronts(frame, by=("system", "pp")):
    """How near each schedule comes to each front, at its best number of microbatches.

    Parameters
    ----------
    frame : DataFrame
        From `fronts`.
    by : sequence of str
        As there.

    Returns
    -------
    DataFrame
        A row per front and schedule: columns of `by`, ``label, family``; ``front``, whether it is on it; ``behind``,
        the least; and ``microbatches``, those with which it is on the front, as text.

    Examples
    --------
    >>> import ppmodel as pp
    >>> from ppmodel.analysis import fronts, levels
    >>> frame = fronts(levels(["gpipe", "1f1b"], [(4, 8), (4, 16)], model="paper", system="dgx_h100"))
    >>> nearest_to_fronts(frame)[["label", "front", "microbatches"]].values.tolist()
    [['GPipe', True, '16'], ['1F1B', True, '16']]
    """
    on_front = frame.assign(microbatches=frame.microbatches.where(frame.front))
    groups = on_front.groupby([*by, "label", "family"], sort=False)
    return groups.agg(
        front=("front", "any"), behind=("behind", "min"), microbatches=("microbatches", _listed)
    ).reset_index()


def front_counts(frame, by=("system", "pp")):
    """On how many fronts each schedule is.

    Parameters
    ----------
    frame, by
        As in `nearest_to_fronts`.

    Returns
    -------
    DataFrame
        A row per schedule, those on most fronts first: ``label, family``; ``on_front``; ``of``, the number of fronts
        that it competes for; ``sizes``, the ranks S at which it is on one, as text; and ``behind``, the least.

    Examples
    --------
    >>> import ppmodel as pp
    >>> from ppmodel.analysis import fronts, levels
    >>> frame = fronts(levels(["gpipe", "1f1b"], [(4, 8), (8, 8)], model="paper", system="dgx_h100"))
    >>> front_counts(frame)[["label", "on_front", "of", "sizes"]].values.tolist()
    [['GPipe', 2, 2, '4, 8'], ['1F1B', 1, 2, '4']]
    """
    nearest = nearest_to_fronts(frame, by)
    groups = nearest.assign(sizes=nearest.pp.where(nearest.front)).groupby(["label", "family"], sort=False)
    counts = groups.agg(
        on_front=("front", "sum"), of=("front", "size"), sizes=("sizes", _listed), behind=("behind", "min")
    )
    order = {"by": ["on_front", "behind", "label"], "ascending": [False, True, True]}
    return counts.reset_index().sort_values(**order, ignore_index=True)


def _listed(numbers):
    return ", ".join(f"{number:.0f}" for number in numbers.dropna().drop_duplicates().sort_values())
