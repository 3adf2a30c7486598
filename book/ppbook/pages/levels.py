"""Schedules at several levels: published formula, table, simulation without a network and with it."""

import pandas as pd

from ppmodel.errors import PPModelError
from ppmodel.metrics import messages_sent
from ppmodel.schedules.cases import legal_cases
from ppmodel.schedules.ratios import published_bubble_ratio
from ppmodel.studies.analysis import orders
from ppmodel.studies.points import compare
from ppmodel.studies.points.change import WITHOUT_NETWORK
from ppmodel.tables import family

POINT = ["system", "pp", "microbatches"]
"""The columns that tell points apart."""

_LEVELS = {
    "formula": (orders.order_of_bubbles, "published_bubble_ratio"),
    "table": (orders.order_of_bubbles, "table_bubble_ratio"),
    "without_network": (orders.order_of_amounts, "without_network_s"),
    "time": (orders.order_of_amounts, "makespan_s"),
}


def levels(schedules, sizes, **options):
    """Evaluate every schedule by formula, by table and by simulation, without and with a network.

    Parameters
    ----------
    schedules : list
        As in `ppmodel.compare`.
    sizes : iterable of (int, int)
        Ranks and microbatches. Schedules that are not defined at a size, or do not fit the model there, are left out.
    **options
        Model, system or seconds, and communication semantics, as in `ppmodel.compare`.

    Returns
    -------
    DataFrame
        The columns of `ppmodel.compare`, size by size, plus ``without_network_s, idle_without_network``: makespan and
        idle ratio if transfers and all-reduces took no time; ``family``, see `tables.family`;
        ``published_bubble_ratio``, NaN if the authors publish none; and ``messages_of_rank``, from the rank that
        sends most.

    Raises
    ------
    PPModelError
        If a size has no transfers, no size is left, or an argument is illegal everywhere.

    Examples
    --------
    >>> frame = levels(["1f1b", "chimera"], [(8, 16)], forward=1, backward=2, comm=0.1)
    >>> frame[["label", "published_bubble_ratio", "table_bubble_ratio", "idle_ratio"]].round(3).values.tolist()
    [['1F1B', 0.304, 0.304, 0.342], ['Chimera', 0.158, 0.273, 0.305]]
    """
    sizes = list(sizes)
    for pp, _ in sizes:
        if pp < 2:
            rule = "gives a pipeline without transfers, for which the network does not matter"
            raise PPModelError("pp", pp, rule, "use at least 2 ranks")
    frames = []
    for size in sizes:
        silent = compare(schedules, *size, changes=WITHOUT_NETWORK, **options)
        frame = compare(schedules, *size, **options)
        frame = frame.assign(without_network_s=silent.makespan_s, idle_without_network=silent.idle_ratio)
        frame = frame[frame.refused.isna()].drop(columns="refused")
        tables = [
            (case.label, family(table), float(published_bubble_ratio(case, *size)), int(messages_sent(table).max()))
            for case, table in legal_cases(schedules, *size)
        ]
        columns = ["label", "family", "published_bubble_ratio", "messages_of_rank"]
        frames.append(frame.merge(pd.DataFrame(tables, columns=columns), on="label"))
    frames = [frame for frame in frames if len(frame)]
    if not frames:
        rule = "include no size at which a schedule is defined and the model fits"
        raise PPModelError("sizes", sizes, rule, "choose other sizes")
    return pd.concat(frames, ignore_index=True)


def agreement(frame, clear=0.01):
    """Compare the orders of schedules at each point between levels.

    Parameters
    ----------
    frame : DataFrame
        From `levels`, with a system.
    clear : float
        A reversal is clear if, by the table, the schedule should take at least this fraction less time, but takes at
        least this fraction more.

    Returns
    -------
    DataFrame
        One row per system and size; columns ``system, pp, microbatches, comm_over_forward, schedules, pairs,
        formula_table, table_without_network, table_time, formula_time, reversed, by_network, clear``: c/F as the
        median over schedules; pairs that the table orders; Kendall's tau-b between two levels each, with formulas only
        for schedules with a published one; the number of pairs reversed by time, those among them reversed by the
        network, and the clear ones among these.
    """
    rows = []
    for point, group in frame.groupby(POINT, sort=False):
        by_table = orders.every_two(orders.order_of_bubbles, group.table_bubble_ratio)
        published, correlations = group[group.published_bubble_ratio.notna()], {}
        for levels in (("formula", "table"), ("table", "without_network"), ("table", "time"), ("formula", "time")):
            ranked = published if "formula" in levels else group
            pairs = (orders.every_two(order, ranked[column]) for order, column in map(_LEVELS.get, levels))
            correlations["_".join(levels)] = orders.kendall_tau(*pairs)
        ratios, seconds = group.table_bubble_ratio.to_numpy(), group.makespan_s.to_numpy()
        by_network = orders.reversed_pairs(ratios, seconds, group.without_network_s)
        promised = (1 - ratios)[:, None] / (1 - ratios) - 1
        lost = seconds[:, None] / seconds - 1
        rows.append({
            **dict(zip(POINT, point, strict=True)), "comm_over_forward": group.comm_over_forward.median(),
            "schedules": len(group), "pairs": int((by_table < 0).sum()), **correlations,
            "reversed": int(orders.reversed_pairs(ratios, seconds).sum()), "by_network": int(by_network.sum()),
            "clear": int((by_network & (promised >= clear) & (lost >= clear)).sum()),
        })  # fmt: skip
    return pd.DataFrame(rows)


def advantages(frame, base):
    """Compare the gain over a base schedule that each table promises with the gain without and with a network.

    Parameters
    ----------
    frame : DataFrame
        From `levels`, with a system.
    base : str
        Label of the schedule to compare with.

    Returns
    -------
    DataFrame
        One row for each other schedule at each point of the base; columns ``system, pp, microbatches, label, family,
        comm_over_forward``; ``promised, without_network, relative``: time over the base's, minus 1, by the tables,
        simulated without a network, and with it; and ``smaller_bubble, negated_without_network, negated,
        by_network``: whether the bubble is smaller than the base's; whether the schedule is nevertheless not faster,
        without the network and with it; and whether that is so only with the network.
    """
    numbers = ["table_bubble_ratio", "without_network_s", "makespan_s"]
    bases = frame.loc[frame.label == base, [*POINT, *numbers]]
    both = frame[frame.label != base].merge(bases, on=POINT, suffixes=("", "_base"))
    bubbles = both.table_bubble_ratio, both.table_bubble_ratio_base
    without = orders.negated(*bubbles, both.without_network_s, both.without_network_s_base)
    lost = orders.negated(*bubbles, both.makespan_s, both.makespan_s_base)
    return both[[*POINT, "label", "family", "comm_over_forward"]].assign(
        promised=(1 - both.table_bubble_ratio_base) / (1 - both.table_bubble_ratio) - 1,
        without_network=both.without_network_s / both.without_network_s_base - 1,
        relative=both.makespan_s / both.makespan_s_base - 1,
        smaller_bubble=orders.order_of_bubbles(*bubbles) < 0,
        negated_without_network=without, negated=lost, by_network=lost & ~without,
    )  # fmt: skip


def fronts(frame):
    """Find the Pareto fronts of time and memory, and how far behind them all other points are.

    Parameters
    ----------
    frame : DataFrame
        From `ppmodel.compare` with a model, or `levels`. There is a front for each system and number of ranks, for
        which all schedules and numbers of microbatches compete.

    Returns
    -------
    DataFrame
        The rows of `frame`, front by front, with columns ``front`` and ``behind``: whether no other row is as fast with
        less memory on the most loaded rank, or faster with the same; and the time over that of the fastest row that
        needs no more memory, minus 1.

    Examples
    --------
    >>> import ppmodel as pp
    >>> frame = pp.compare(["gpipe", "1f1b", "zb-h2"], 4, 8, model="paper", system="dgx_h100")
    >>> fronts(frame).set_index("label").front.to_dict()
    {'GPipe': False, '1F1B': True, 'ZB-H2': True}
    """
    groups = []
    for _, group in frame.groupby(["system", "pp"], sort=False):
        both = group.makespan_s.to_numpy(), group.peak_memory_bytes.to_numpy()
        groups.append(group.assign(front=orders.pareto_front(*both), behind=orders.behind(*both)))
    return pd.concat(groups, ignore_index=True)
