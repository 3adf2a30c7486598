"""Schedules at several levels: published formula, table, simulation without a network and with it."""

from ppmodel.analysis import orders
from ppmodel.cases import legal_cases, published_bubble_ratio
from ppmodel.change import UNCHANGED, WITHOUT_NETWORK
from ppmodel.errors import PPModelError
from ppmodel.evaluate import compare
from ppmodel.metrics import messages_sent
from ppmodel.tables import family

_POINT = ["system", "pp", "microbatches"]
_LEVELS = {
    "formula": (orders.order_of_bubbles, "published_bubble_ratio"),
    "table": (orders.order_of_bubbles, "table_bubble_ratio"),
    "without_network": (orders.order_of_amounts, "without_network_s"),
    "time": (orders.order_of_amounts, "makespan_s"),
}


def levels(schedules, sizes, **options):
    """What the formula, the table and the simulation of every schedule say, without a network and with it.

    Parameters
    ----------
    schedules : list
        As in `ppmodel.compare`.
    sizes : iterable of (int, int)
        Ranks and microbatches. A schedule that is not defined at a size, or does not fit the model there, is left out.
    **options
        Model, system or seconds, and communication semantics, as in `ppmodel.compare`.

    Returns
    -------
    DataFrame
        The columns of `ppmodel.compare`, size by size, and ``without_network_s, idle_without_network``: makespan and
        idle share if transfers and all-reduces took no time; ``family``, see `analysis.family`;
        ``published_bubble_ratio``, NaN where the authors publish none; and ``messages_of_rank``, of the rank that
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
    import pandas as pd

    sizes = list(sizes)
    for pp, _ in sizes:
        if pp < 2:
            rule = "makes a pipeline without transfers, which has no network to ask about"
            raise PPModelError("pp", pp, rule, "take at least 2 ranks")
    frames = [frame for size in sizes if len(frame := _at_size(schedules, size, options))]
    if not frames:
        rule = "leave no size at which a schedule is defined and the model fits"
        raise PPModelError("sizes", sizes, rule, "choose other sizes")
    return pd.concat(frames, ignore_index=True)


def _at_size(schedules, size, options):
    import pandas as pd

    frame = compare(schedules, *size, changes=[UNCHANGED, WITHOUT_NETWORK], **options)
    frame = frame[frame.refused.isna()].drop(columns="refused")
    silent = frame.change == repr(WITHOUT_NETWORK)
    without = frame[silent]
    here = frame[~silent].drop(columns="change").assign(
        without_network_s=without.makespan_s.to_numpy(), idle_without_network=without.idle_ratio.to_numpy()
    )  # fmt: skip
    tables = [
        (case.label, family(table), float(published_bubble_ratio(case, *size)), int(messages_sent(table).max()))
        for case, table in legal_cases(schedules, *size)
    ]
    columns = ["label", "family", "published_bubble_ratio", "messages_of_rank"]
    return here.merge(pd.DataFrame(tables, columns=columns), on="label")


def agreement(frame, clear=0.01):
    """How far one level orders the schedules of a point as another does.

    Parameters
    ----------
    frame : DataFrame
        From `levels`, with a system.
    clear : float
        A reversal is clear where the table promises at least this much less time to the schedule that then takes at
        least this much more.

    Returns
    -------
    DataFrame
        A row a system and size; columns ``system, pp, microbatches, comm_over_forward, schedules, pairs,
        formula_table, table_without_network, table_time, formula_time, reversed, by_network, clear``: c/F as the
        median over the schedules; pairs that the table orders; Kendall's tau-b of two levels each, formulas among the
        schedules that have a published one; and the pairs that time orders against the table, those of them that it
        does not without a network, and the clear ones of these.
    """
    import pandas as pd

    rows = []
    for point, group in frame.groupby(_POINT, sort=False):
        by_table = orders.every_two(orders.order_of_bubbles, group.table_bubble_ratio)
        rows.append({
            **dict(zip(_POINT, point, strict=True)), "comm_over_forward": group.comm_over_forward.median(),
            "schedules": len(group), "pairs": int((by_table < 0).sum()), **_correlations(group),
            **{name: int(pairs.sum()) for name, pairs in _reversals(group, clear).items()},
        })  # fmt: skip
    return pd.DataFrame(rows)


def _correlations(group):
    """Kendall's tau-b of two levels each; where the formula is one, of the schedules that have a published one."""
    known = group[group.published_bubble_ratio.notna()]
    pairs = (("formula", "table"), ("table", "without_network"), ("table", "time"), ("formula", "time"))
    return {f"{one}_{other}": _tau(known if one == "formula" else group, one, other) for one, other in pairs}


def _tau(rows, *levels):
    return orders.kendall_tau(*(orders.every_two(order, rows[column]) for order, column in map(_LEVELS.get, levels)))


def _reversals(group, clear):
    """Which of every two schedules are reversed, which by the network, and which of these clearly."""
    ratios, seconds = group.table_bubble_ratio.to_numpy(), group.makespan_s.to_numpy()
    by_network = orders.reversed_pairs(ratios, seconds, group.without_network_s)
    promised = (1 - ratios)[:, None] / (1 - ratios) - 1
    lost = seconds[:, None] / seconds - 1
    return {
        "reversed": orders.reversed_pairs(ratios, seconds), "by_network": by_network,
        "clear": by_network & (promised >= clear) & (lost >= clear),
    }  # fmt: skip


def advantages(frame, base):
    """What each schedule's table promises over a base schedule, and what is left of it without and with the network.

    Parameters
    ----------
    frame : DataFrame
        From `levels`, with a system.
    base : str
        The schedule to compare with, by its label.

    Returns
    -------
    DataFrame
        A row for each other schedule at each point of the base; columns ``system, pp, microbatches, label, family,
        comm_over_forward``; ``promised, without_network, relative``: time against the base, less 1, by the tables,
        simulated without a network, and with it; and ``smaller_bubble, negated_without_network, negated,
        by_network``: whether the bubble is smaller than the base's, whether it is no shorter time all the same, without
        the network and with it, and whether it is with the network alone.
    """
    numbers = ["table_bubble_ratio", "without_network_s", "makespan_s"]
    bases = frame.loc[frame.label == base, [*_POINT, *numbers]]
    both = frame[frame.label != base].merge(bases, on=_POINT, suffixes=("", "_base"))
    bubbles = both.table_bubble_ratio, both.table_bubble_ratio_base
    without = orders.negated(*bubbles, both.without_network_s, both.without_network_s_base)
    lost = orders.negated(*bubbles, both.makespan_s, both.makespan_s_base)
    return both[[*_POINT, "label", "family", "comm_over_forward"]].assign(
        promised=(1 - both.table_bubble_ratio_base) / (1 - both.table_bubble_ratio) - 1,
        without_network=both.without_network_s / both.without_network_s_base - 1,
        relative=both.makespan_s / both.makespan_s_base - 1,
        smaller_bubble=orders.order_of_bubbles(*bubbles) < 0,
        negated_without_network=without, negated=lost, by_network=lost & ~without,
    )  # fmt: skip


def fronts(frame, by=("system", "pp")):
    """The Pareto fronts of time and memory, and how far behind them all other points are.

    Parameters
    ----------
    frame : DataFrame
        From `ppmodel.compare` with a model, or `levels`.
    by : sequence of str
        Columns that tell the fronts apart; all schedules and microbatches of one compete.

    Returns
    -------
    DataFrame
        The rows of `frame`, front by front, with columns ``front`` and ``behind``: whether no other row is as fast with
        less memory on the most loaded rank, or faster with as much; and its time over that of the fastest that holds
        no more, less 1.

    Examples
    --------
    >>> import ppmodel as pp
    >>> frame = pp.compare(["gpipe", "1f1b", "zb-h2"], 4, 8, model="paper", system="dgx_h100")
    >>> fronts(frame).set_index("label").front.to_dict()
    {'GPipe': False, '1F1B': True, 'ZB-H2': True}
    """
    import pandas as pd

    found = []
    for _, group in frame.groupby(list(by), sort=False):
        both = group.makespan_s.to_numpy(), group.peak_memory_bytes.to_numpy()
        found.append(group.assign(front=orders.pareto_front(*both), behind=orders.behind(*both)))
    return pd.concat(found, ignore_index=True)
