"""Where the order by bubble ratio is not the order by time."""

import numpy as np
import pandas as pd

from ppmodel.analysis.orders import negated, order_of_bubbles, reversed_pairs
from ppmodel.simulation import ALLREDUCE
from ppmodel.studies.cases import PAPER_SCHEDULES, label
from ppmodel.studies.runtime import runtime_study


def reversal_study(study):
    """Pairs of schedules whose order by bubble ratio is not their order by simulated time.

    Parameters
    ----------
    study : DataFrame
        From `runtime_study`.

    Returns
    -------
    DataFrame
        One row a pair, system, S and B; columns ``system, stages, microbatches, smaller_bubble, bubble_smaller,
        t_smaller_s, faster, bubble_faster, t_faster_s, by_network``, times in seconds. Equal bubbles are no
        order, so GPipe and 1F1B cannot be reversed. The network is the cause where the order without it is
        that of the bubbles; else the cause is that a backward of the model is not exactly two forwards long.
    """
    columns = ["system", "stages", "microbatches", "smaller_bubble", "bubble_smaller", "t_smaller_s",
               "faster", "bubble_faster", "t_faster_s", "by_network"]  # fmt: skip
    rows = []
    for point, group in study.groupby(["system", "stages", "microbatches"], sort=False):
        found = reversed_pairs(group.table_bubble_ratio, group.t_sim_s)
        by_network = reversed_pairs(group.table_bubble_ratio, group.t_sim_s, group.t_without_network_s)
        known = list(group[["schedule", "table_bubble_ratio", "t_sim_s"]].itertuples(index=False, name=None))
        rows += [(*point, *known[a], *known[b], by_network[a, b]) for a, b in np.argwhere(found)]
    return pd.DataFrame(rows, columns=columns).astype({"by_network": bool})


def reversal_counts(study):
    """At how many B of each system an order is reversed, and by the network; see `reversal_study`.

    Parameters
    ----------
    study : DataFrame
        From `runtime_study`.

    Returns
    -------
    DataFrame
        One row a system; columns ``system, comm_over_forward, points, reversed, reversed_by_network``: the
        median over the system's rows, and three numbers of B.
    """
    reversals = reversal_study(study)
    rows = []
    for system, group in study.groupby("system", sort=False):
        mine = reversals[reversals.system == system]
        rows.append({
            "system": system, "comm_over_forward": group.comm_over_forward.median(),
            "points": group.microbatches.nunique(), "reversed": mine.microbatches.nunique(),
            "reversed_by_network": mine[mine.by_network].microbatches.nunique(),
        })  # fmt: skip
    return pd.DataFrame(rows)


def reversals_of_systems(model, systems, stages_list, microbatches, cases=PAPER_SCHEDULES, p2p="overlapped"):
    """Every size and system at which an order by bubble ratio is not the order by time; see `reversal_study`.

    Parameters
    ----------
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems.
    stages_list, microbatches : sequence of int
        Values of S and of B. Sizes at which a schedule is not defined are left out.
    cases : iterable of str or (str, dict)
        As in `legal_schedules`.
    p2p : str
        Communication semantics.

    Returns
    -------
    DataFrame
        The columns of `reversal_study`.

    Raises
    ------
    CostError
        If the model does not fit a schedule: too few blocks, or a batch that does not divide.
    """
    studies = [runtime_study(model, systems, num_ranks, microbatches, cases, p2p) for num_ranks in stages_list]
    return reversal_study(pd.concat(studies))


def reversal_counts_by_size(reversals, systems, stages_list):
    """At how many B of each S and system an order is reversed, and by the network.

    Parameters
    ----------
    reversals : DataFrame
        From `reversals_of_systems`.
    systems : sequence of str
        Names of the systems.
    stages_list : sequence of int
        Values of S.

    Returns
    -------
    DataFrame
        One row a system, one column an S: at how many B by the network, of how many at all, in words.
    """
    rows = []
    for system in systems:
        row = {"system": system}
        for num_ranks in stages_list:
            mine = reversals[(reversals.system == system) & (reversals.stages == num_ranks)]
            by_network = mine[mine.by_network].microbatches.nunique()
            row[f"S = {num_ranks}"] = f"{by_network} of {mine.microbatches.nunique()}"
        rows.append(row)
    return pd.DataFrame(rows)


def worst_reversals(reversals):
    """For each system, the reversal by the network in which the smaller bubble costs most time.

    Parameters
    ----------
    reversals : DataFrame
        From `reversal_study`.

    Returns
    -------
    DataFrame
        One row a system that has such a reversal; columns ``system, microbatches, smaller_bubble, faster,
        time_lost``. The last is the time of the smaller bubble over that of the faster schedule, less 1.
    """
    lost = reversals[reversals.by_network]
    lost = lost.assign(time_lost=lost.t_smaller_s / lost.t_faster_s - 1)
    worst = lost.loc[lost.groupby("system", sort=False).time_lost.idxmax()]
    return worst[["system", "microbatches", "smaller_bubble", "faster", "time_lost"]].reset_index(drop=True)


def negation_study(model, systems, num_ranks, microbatches, bases=("gpipe", "1f1b")):
    """Where Chimera's smaller bubble does not make it faster, with and without its all-reduce.

    Parameters
    ----------
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems.
    num_ranks : int
        Devices, S.
    microbatches : sequence of int
        Values of B. Sizes at which a schedule is not defined are left out.
    bases : iterable of str
        Names of the schedules that Chimera is held against.

    Returns
    -------
    DataFrame
        One row a base and way of `graph.ALLREDUCE`; columns ``against, allreduce, smaller_bubble, not_faster,
        systems``: at how many points (system, B) Chimera has the smaller bubble, at how many of these it takes
        at least as long, and on which systems.

    Raises
    ------
    ScheduleError
        If a name is unknown.
    CostError
        If the model does not fit a schedule: too few blocks, or a batch that does not divide.
    """
    rows = []
    for base in bases:
        for allreduce in ALLREDUCE:
            study = runtime_study(model, systems, num_ranks, microbatches, [base, "chimera"], allreduce=allreduce)
            of_base, others = (study[(study.schedule == label(base)) == same] for same in (True, False))
            both = others.merge(of_base, on=["system", "microbatches"], suffixes=("", "_base"))
            bubbles = both.table_bubble_ratio, both.table_bubble_ratio_base
            lost = both[negated(*bubbles, both.t_sim_s, both.t_sim_s_base)]
            rows.append({
                "against": label(base), "allreduce": allreduce,
                "smaller_bubble": int((order_of_bubbles(*bubbles) < 0).sum()),
                "not_faster": len(lost), "systems": ", ".join(dict.fromkeys(lost.system)),
            })  # fmt: skip
    return pd.DataFrame(rows)
