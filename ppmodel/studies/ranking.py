"""Do formula, table and clock rank the schedules alike? Rank correlations, reversals, and advantages that are lost."""

import numpy as np
import pandas as pd

from ppmodel.analysis.orders import every_two, kendall_tau, negated, order_of_amounts, order_of_bubbles, reversed_pairs
from ppmodel.simulation import P2P
from ppmodel.studies.field import field_study
from ppmodel.studies.reversals import reversal_study

_POINT = ["system", "stages", "microbatches"]
_COUNTS = ["reversed", "by_network", "clear"]
_LEVELS = ["formula", "table", "without network"]


def level_rank_study(study, clear):
    """How far the order of all schedules by one level is that by another, at each size and system.

    Parameters
    ----------
    study : DataFrame
        From `field_study`.
    clear : float
        A reversal counts as clear from here on: the table promises at least so much less time for the schedule that
        then takes at least so much more.

    Returns
    -------
    DataFrame
        One row a system, S and B; columns ``system, stages, microbatches, comm_over_forward, schedules, pairs,
        formula_table, table_without_network, table_time, formula_time, reversed, by_network, clear``: c/F as the
        median over the schedules; pairs that the table orders; Kendall's tau-b of the orders by formula, by table, by
        time without a network and by time, formulas among the schedules that have one; and of the pairs those whose
        order by table the time reverses, those that only the network reverses, and of these the clear ones.
    """
    rows = []
    for point, group in study.groupby(_POINT, sort=False):
        found = _reversals(group, clear)
        rows.append({
            **dict(zip(_POINT, point, strict=True)), "comm_over_forward": group.comm_over_forward.median(),
            "schedules": len(group), "pairs": int((_by_table(group) < 0).sum()), **_correlations(group),
            **{name: int(pairs.sum()) for name, pairs in found.items()},
        })  # fmt: skip
    return pd.DataFrame(rows)


def _by_table(group):
    return every_two(order_of_bubbles, group.table_bubble_ratio)


def _correlations(group):
    """Kendall's tau-b between levels; where a formula is compared, of the schedules that have one."""
    known = group[group.formula.notna()]
    by_formula = every_two(order_of_bubbles, known.formula)
    without_network = every_two(order_of_amounts, group.t_without_network_s)
    return {
        "formula_table": kendall_tau(by_formula, _by_table(known)),
        "table_without_network": kendall_tau(_by_table(group), without_network),
        "table_time": kendall_tau(_by_table(group), every_two(order_of_amounts, group.t_sim_s)),
        "formula_time": kendall_tau(by_formula, every_two(order_of_amounts, known.t_sim_s)),
    }


def _reversals(group, clear):
    """Which of every two are reversed, by the network, and clearly."""
    ratios, seconds = group.table_bubble_ratio.to_numpy(), group.t_sim_s.to_numpy()
    by_network = reversed_pairs(ratios, seconds, group.t_without_network_s)
    promised = (1 - ratios)[:, None] / (1 - ratios) - 1
    lost = seconds[:, None] / seconds - 1
    return {
        "reversed": reversed_pairs(ratios, seconds), "by_network": by_network,
        "clear": by_network & (promised >= clear) & (lost >= clear),
    }  # fmt: skip


def totals_by_system(ranks):
    """What `level_rank_study` counts, added up over the sizes of each system.

    Parameters
    ----------
    ranks : DataFrame
        From `level_rank_study`.

    Returns
    -------
    DataFrame
        One row a system; columns ``system, comm_over_forward, table_time, pairs, reversed, by_network, clear``: medians
        of c/F and of Kendall's tau-b of table and time, and sums of pairs. The shortest transfers first.
    """
    groups = ranks.groupby("system", sort=False)
    middle, sums = groups[["comm_over_forward", "table_time"]].median(), groups[["pairs", *_COUNTS]].sum()
    return middle.join(sums).sort_values("comm_over_forward", kind="stable").reset_index()


def level_rank_text(ranks, short):
    """How far the table's order is that of time, in words.

    Parameters
    ----------
    ranks : DataFrame
        From `level_rank_study`.
    short : float
        Transfers of less of a forward count as short.

    Returns
    -------
    str
    """
    is_short = ranks.comm_over_forward < short
    groups = [("less than", ranks[is_short]), ("more than", ranks[~is_short])]
    parts = [
        f"{group.table_time.median():.2f} where a transfer takes {word} {short:g} of a forward ({len(group)} points)"
        for word, group in groups
        if len(group)
    ]
    return (
        f"Kendall's tau of the orders by table and by time is {', '.join(parts)}; without a network it is "
        f"{ranks.table_without_network.median():.2f}, all as medians. 1 would be the same order, 0 no relation."
    )


def semantics_rank_study(model, systems, num_ranks, multiple, cases, clear):
    """The rank correlation of table and time under every communication semantics.

    Parameters
    ----------
    model, systems, cases
        As in `field_study`.
    num_ranks, multiple : int
        Devices S, and B/S.
    clear : float
        As in `level_rank_study`.

    Returns
    -------
    DataFrame
        One row a semantics; columns ``p2p, lowest, median, highest, by_network, clear``: Kendall's tau-b of the
        orders by table and by time over the systems, and numbers of reversed pairs over all of them.
    """
    rows = []
    for p2p in P2P:
        ranks = level_rank_study(field_study(model, systems, [num_ranks], [multiple], cases, p2p), clear)
        taus = ranks.table_time
        rows.append((p2p, taus.min(), taus.median(), taus.max(), ranks.by_network.sum(), ranks.clear.sum()))
    return pd.DataFrame(rows, columns=["p2p", "lowest", "median", "highest", "by_network", "clear"])


def level_rank_table(study, num_ranks, num_microbatches):
    """The place of every schedule at one size: by formula, by table, by time without a network and on each system.

    Parameters
    ----------
    study : DataFrame
        From `field_study`.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.

    Returns
    -------
    DataFrame
        One row a schedule, in the order of its place by the table, then by time on the system where a transfer is
        shortest; columns ``schedule, family, formula, table, without network`` and one for each system, that with the
        shortest transfer first. A place is 1 more than the number of schedules that are ahead; equals share it. By
        formula those are placed that have one.
    """
    here = study[(study.stages == num_ranks) & (study.microbatches == num_microbatches)]
    weights = here.groupby("system", sort=False).comm_over_forward.median()
    systems = list(weights.sort_values(kind="stable").index)
    first = here[here.system == systems[0]].reset_index(drop=True)
    table = first[["schedule", "family"]].copy()
    levels = [(order_of_bubbles, first.formula), (order_of_bubbles, first.table_bubble_ratio)]
    levels.append((order_of_amounts, first.t_without_network_s))
    levels += [(order_of_amounts, here[here.system == system].t_sim_s) for system in systems]
    for name, (order, values) in zip([*_LEVELS, *systems], levels, strict=True):
        place = 1 + (every_two(order, values) > 0).sum(axis=1)
        table[name] = np.where(pd.isna(values), np.nan, place)
    return table.sort_values(["table", "without network", systems[0], "schedule"], ignore_index=True)


def clear_reversals(study, clear):
    """Every pair at every size and system whose order by table the network reverses, with what it costs.

    Parameters
    ----------
    study : DataFrame
        From `field_study`.
    clear : float
        As in `level_rank_study`.

    Returns
    -------
    DataFrame
        The columns of `reversal_study`, and ``promised, lost, clear``: how much less time the table promises for the
        schedule with the smaller bubble, how much more it takes, both relative to it and to the faster one, and
        whether both are clear and by the network. The costliest first.
    """
    found = reversal_study(study)
    promised = (1 - found.bubble_smaller) / (1 - found.bubble_faster) - 1
    lost = found.t_smaller_s / found.t_faster_s - 1
    sure = found.by_network & (promised >= clear) & (lost >= clear)
    table = found.assign(promised=promised, lost=lost, clear=sure)
    return table.sort_values("lost", ascending=False, kind="stable", ignore_index=True)


def reversal_matrix(study, reversals):
    """At which share of their common points a schedule's smaller bubble is clearly no shorter time, pair by pair.

    Parameters
    ----------
    study : DataFrame
        From `field_study`.
    reversals : DataFrame
        From `clear_reversals` of the same study.

    Returns
    -------
    DataFrame
        One row a pair that has one; columns ``smaller_bubble, faster, reversals, points, share``: clear reversals, of
        how many points (system, S, B) at which the first has the smaller bubble. The most frequent first.
    """
    bubbles = study.pivot_table(index=_POINT, columns="schedule", values="table_bubble_ratio")
    sure = reversals[reversals.clear].groupby(["smaller_bubble", "faster"]).size()
    rows = []
    for (one, other), count in sure.items():
        points = int((order_of_bubbles(bubbles[one], bubbles[other]) < 0).sum())
        rows.append((one, other, count, points, count / points))
    table = pd.DataFrame(rows, columns=["smaller_bubble", "faster", "reversals", "points", "share"])
    keys, up = ["reversals", "smaller_bubble", "faster"], [False, True, True]
    return table.sort_values(keys, ascending=up, ignore_index=True)


def advantage_study(study, base):
    """What each schedule's table promises against a base schedule, and what it keeps on each system.

    Parameters
    ----------
    study : DataFrame
        From `field_study`.
    base : str
        Label of the base schedule.

    Returns
    -------
    DataFrame
        One row of each other schedule for each of the base's points; columns ``system, stages, microbatches,
        schedule, family, comm_over_forward, promised, without_network, relative``: time relative to the base, less 1,
        by the tables, without a network and with it; then ``smaller_bubble, negated_without_network, negated,
        by_network``: whether its bubble is the smaller one; whether that is no shorter time, without a network and
        with it (see `orders.negated`); and whether it is with it alone.
    """
    columns = ["table_bubble_ratio", "t_without_network_s", "t_sim_s"]
    bases = study.loc[study.schedule == base, [*_POINT, *columns]]
    both = study[study.schedule != base].merge(bases, on=_POINT, suffixes=("", "_base"))
    bubbles = both.table_bubble_ratio, both.table_bubble_ratio_base
    without = negated(*bubbles, both.t_without_network_s, both.t_without_network_s_base)
    lost = negated(*bubbles, both.t_sim_s, both.t_sim_s_base)
    return both[[*_POINT, "schedule", "family", "comm_over_forward"]].assign(
        promised=(1 - both.table_bubble_ratio_base) / (1 - both.table_bubble_ratio) - 1,
        without_network=both.t_without_network_s / both.t_without_network_s_base - 1,
        relative=both.t_sim_s / both.t_sim_s_base - 1,
        smaller_bubble=order_of_bubbles(*bubbles) < 0,
        negated_without_network=without,
        negated=lost,
        by_network=lost & ~without,
    )


def advantage_table(advantages, num_ranks, num_microbatches, systems):
    """Time relative to the base at one size, a row a schedule.

    Parameters
    ----------
    advantages : DataFrame
        From `advantage_study`.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.
    systems : sequence of str
        Names of the systems that are to have a column.

    Returns
    -------
    table : DataFrame
        Columns ``schedule, family, smaller_bubble, table, without network`` and one for each system: whether its bubble
        is smaller than that of the base, what the table promises and what comes of it. The greatest promise first.
    lost : DataFrame of bool
        A column for each of these but the first three, with the rows of the table: whether a smaller bubble is no
        shorter time there; in the column of the table nowhere.
    """
    here = advantages[(advantages.stages == num_ranks) & (advantages.microbatches == num_microbatches)]
    fixed = here[here.system == systems[0]].set_index("schedule").assign(none=False)
    by_system = {name: here.pivot(index="schedule", columns="system", values=name) for name in ("relative", "negated")}
    levels = {"promised": "table", "without_network": "without network"}
    table = fixed[["family", "smaller_bubble", *levels]].rename(columns=levels).join(by_system["relative"][[*systems]])
    table = table.reset_index().sort_values(["table", "without network", "schedule"], ignore_index=True)
    lost = fixed[["none", "negated_without_network"]].set_axis(levels.values(), axis=1)
    return table, lost.join(by_system["negated"][[*systems]]).loc[table.schedule].reset_index(drop=True)


def negated_table(advantages):
    """How often the network takes a schedule's advantage, and where.

    Parameters
    ----------
    advantages : DataFrame
        From `advantage_study`.

    Returns
    -------
    DataFrame
        One row a schedule; columns ``schedule, family, smaller_bubble, negated, by_network, least``: at how many points
        its bubble is the smaller one, at how many of these it is not faster, and at how many of these it would be
        without a network; and the smallest c/F among these. The most often negated by the network first.
    """
    rows = []
    counted = ["smaller_bubble", "negated", "by_network"]
    for (name, kind), group in advantages.groupby(["schedule", "family"], sort=False):
        rows.append((name, kind, *group[counted].sum(), group[group.by_network].comm_over_forward.min()))
    table = pd.DataFrame(rows, columns=["schedule", "family", *counted, "least"])
    keys, up = ["by_network", "smaller_bubble", "schedule"], [False, False, True]
    return table.sort_values(keys, ascending=up, ignore_index=True)
