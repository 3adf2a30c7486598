"""Comparisons between rows of a frame: times relative to a baseline, the fastest at each point, reversals."""

import numpy as np
import pandas as pd

from ppmodel.errors import PPModelError
from ppmodel.studies.analysis.orders import reversed_pairs
from ppmodel.studies.noise import TIE

_NAMED = ("schedule", "options", "label")


def points_of(frame):
    """List the columns that identify a point, with those of its layout and without those that name the schedule.

    Parameters
    ----------
    frame : DataFrame
        From `ppmodel.compare`.

    Returns
    -------
    list of str
        Including costs given in seconds, and ``links`` and ``change`` if present; ``p2p`` not if each schedule has its
        own.

    Examples
    --------
    >>> import ppmodel as pp
    >>> points_of(pp.compare("1f1b", 4, 8, forward=1, backward=2))
    ['pp', 'microbatches', 'p2p', 'allreduce', 'forward', 'backward']
    """
    from ppmodel.studies.points.columns import column_names

    names = column_names("schedule", "system", "seconds", "links", "change", "layout")
    names = [name for name in names if name in frame]
    others = [name for name in names if name != "p2p"]
    if names != others and frame.p2p.nunique() > 1 == frame.groupby(others, dropna=False).p2p.nunique().max():
        names = others
    return [name for name in names if name not in _NAMED]


def relative_to(frame, base):
    """Compare each schedule's makespan with that of a base schedule at the same point.

    Parameters
    ----------
    frame : DataFrame
        From `ppmodel.compare`.
    base : str
        Label of the schedule to compare with.

    Returns
    -------
    DataFrame
        The rows of the other schedules, with columns ``base`` and ``relative``: the base's makespan, and how much
        longer theirs is, as a share of it; negative if they are faster. Points at which either is undefined are left
        out.

    Raises
    ------
    PPModelError
        If the base is not among the schedules.

    Examples
    --------
    >>> import ppmodel as pp
    >>> frame = pp.compare(["gpipe", "zb-h1"], 4, 8, forward=1, backward=2)
    >>> relative_to(frame, "GPipe")[["label", "relative"]].round(3).values.tolist()
    [['ZB-H1', -0.182]]
    """
    if base not in set(frame.label):
        labels = ", ".join(frame.label.unique())
        raise PPModelError("base", base, "is not among the schedules", f"choose one of {labels}")
    by = points_of(frame)
    bases = frame.loc[frame.label == base, [*by, "makespan_s"]].rename(columns={"makespan_s": "base"})
    rows = frame[frame.label != base].merge(bases, on=by)
    return rows.assign(relative=rows.makespan_s / rows["base"] - 1).dropna(subset="relative", ignore_index=True)


def winners(frame):
    """Find the fastest schedule at each point, and its lead.

    Parameters
    ----------
    frame : DataFrame
        From `ppmodel.compare`.

    Returns
    -------
    DataFrame
        The columns of `points_of`, then ``label, makespan_s, second, lead``. Ties go to the lower peak of activations,
        then to the first row. The second is the fastest schedule that takes longer, and the lead its time over the
        winner's, minus 1; None and NaN if there is no second.

    Examples
    --------
    >>> import ppmodel as pp
    >>> frame = pp.compare(["gpipe", "1f1b", "zb-h1"], 4, 8, forward=1, backward=2, comm=[0, 1])
    >>> winners(frame)[["comm", "label", "lead"]].round(3).values.tolist()
    [[0, 'ZB-H1', 0.222], [1, 'GPipe', 0.051]]
    """
    by, rows = points_of(frame), []
    for point, group in frame.dropna(subset="makespan_s").groupby(by, sort=False, dropna=False):
        fastest = group.makespan_s.min()
        ties = group.makespan_s <= fastest * (1 + TIE)
        winner = group.loc[group.peak_activations[ties].idxmin()]
        slower = group[~ties].nsmallest(1, "makespan_s")
        second = slower.label.iloc[0] if len(slower) else None
        rows.append((*point, winner.label, winner.makespan_s, second, slower.makespan_s.min() / fastest - 1))
    return pd.DataFrame(rows, columns=[*by, "label", "makespan_s", "second", "lead"])


def reversals(frame):
    """Find pairs of schedules ordered differently by bubble ratio and by simulated time.

    Equal bubbles define no order, so GPipe and 1F1B cannot be reversed.

    Parameters
    ----------
    frame : DataFrame
        From `ppmodel.compare`; with a column ``without_network_s``, the time of each row without a network, reversals
        caused by the network are marked.

    Returns
    -------
    DataFrame
        One row per pair and point: the columns of `points_of`; ``smaller_bubble, bubble_smaller, makespan_smaller_s``
        for the schedule with the smaller bubble; ``faster, bubble_faster, makespan_faster_s`` for the one that is
        nevertheless faster; and ``by_network``: whether the pair is in the order of its bubbles if transfers take no
        time. Otherwise, the cause is a backward that is not exactly two forwards long.

    Examples
    --------
    >>> import ppmodel as pp
    >>> frame = pp.compare(["gpipe", "chimera"], 8, 16, model="paper", system="fast_cp_slow_nw")
    >>> reversals(frame)[["smaller_bubble", "faster"]].values.tolist()
    [['Chimera', 'GPipe']]
    """
    by, rows = points_of(frame), []
    frame = frame.dropna(subset="makespan_s")
    without = "without_network_s" if "without_network_s" in frame else "makespan_s"
    for point, group in frame.groupby(by, sort=False, dropna=False):
        bubbles, seconds = group.table_bubble_ratio, group.makespan_s
        by_time, network = reversed_pairs(bubbles, seconds), reversed_pairs(bubbles, seconds, group[without])
        runs = list(zip(group.label, bubbles, seconds, strict=True))
        rows += [(*point, *runs[a], *runs[b], bool(network[a, b])) for a, b in np.argwhere(by_time)]
    columns = [
        *by, "smaller_bubble", "bubble_smaller", "makespan_smaller_s", "faster", "bubble_faster", "makespan_faster_s",
        "by_network",
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=columns).astype({"by_network": bool})
    return table if without != "makespan_s" else table.drop(columns="by_network")
