"""Simulated time and idle time on systems, under all semantics (Figs. 2 and 4)."""

import pandas as pd

from ppmodel.costs import model_costs, slowest_transfer_s
from ppmodel.studies.cases import PAPER_SCHEDULES, label, legal_schedules, table_numbers
from ppmodel.studies.times import WITHOUT_NETWORK, times


def runtime_study(
    model, systems, num_ranks, microbatches, cases=PAPER_SCHEDULES, p2p="overlapped", allreduce="excluded"
):
    """Simulated time and idle time of one minibatch, on several systems.

    Parameters
    ----------
    model : ModelSpec
        The model; its global batch is fixed, so that microbatches shrink as B grows.
    systems : sequence of SystemSpec
        The systems.
    num_ranks : int
        Devices, S.
    microbatches : sequence of int
        Values of B. Sizes at which a schedule is not defined are left out.
    cases : iterable of str or (str, dict)
        As in `legal_schedules`.
    p2p, allreduce : str
        Communication semantics, as in `graph.compile`.

    Returns
    -------
    DataFrame
        One row a B, schedule and system; columns ``system, schedule, stages, microbatches, p2p, allreduce,
        t_sim_s, idle_ratio, table_bubble_ratio, comm_over_forward, t_without_network_s``. Times are in seconds,
        idle time and bubble are ratios of the total. The last but one is the time of one transfer over the mean
        forward of 1/S of the model; the last, the time if transfers took none.

    Raises
    ------
    ScheduleError
        If a name is unknown.
    CostError
        If the model does not fit a schedule: too few blocks, or a batch that does not divide.
    PPModelError
        If a semantics is unknown.
    """
    rows = []
    for count in microbatches:
        for name, options, schedule in legal_schedules(cases, num_ranks, count):
            case = (name, tuple(options.items()))
            bubble = table_numbers(name, num_ranks, count, case[1]).bubble_ratio
            size = (case, num_ranks, count, model, systems)
            without_network = times(*size, "latency", changes=[WITHOUT_NETWORK]).t_sim_s[0].tolist()
            simulated = (column[0].tolist() for column in times(*size, p2p, allreduce))
            for system, t_sim, idle, without in zip(systems, *simulated, without_network, strict=True):
                rows.append({
                    "system": system.name, "schedule": label(name, options), "stages": num_ranks,
                    "microbatches": count, "p2p": p2p, "allreduce": allreduce,
                    "t_sim_s": t_sim, "idle_ratio": idle, "table_bubble_ratio": bubble,
                    "comm_over_forward": comm_over_forward(schedule, model, system), "t_without_network_s": without,
                })  # fmt: skip
    return pd.DataFrame(rows)


def comm_over_forward(schedule, model, system):
    """The time of one transfer over the mean forward of 1/S of the model, c/F; with nodes, of the slowest one.

    Parameters
    ----------
    schedule : Schedule
        The table.
    model : ModelSpec
        The model.
    system : SystemSpec
        The system.

    Returns
    -------
    float
        Ratio, without a unit.

    Raises
    ------
    CostError
        If the model does not fit the schedule.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.specs import load_model, load_system
    >>> round(comm_over_forward(build("1f1b", 8, 64), load_model("paper"), load_system("mid_cp_slow_nw")), 2)
    0.18
    """
    costs = model_costs(schedule, model, system)
    return float(slowest_transfer_s(costs) / (costs.compute_s[0].sum() / schedule.num_ranks))


def relative_to(table, base, value="t_sim_s"):
    """Each row's value relative to that of another schedule on the same system and size.

    Parameters
    ----------
    table : DataFrame
        With ``system, stages, microbatches, schedule`` and the column `value`.
    base : str
        The schedule, by its label, to compare with.
    value : str
        The column to compare; simulated time by default.

    Returns
    -------
    DataFrame
        The rows of the other schedules, with a column ``relative``: value / base - 1, negative where
        they are faster.

    Examples
    --------
    >>> table = pd.DataFrame({"schedule": ["GPipe", "Chimera"], "t_sim_s": [4.0, 3.0]})
    >>> table = table.assign(system="mid", stages=4, microbatches=8)
    >>> relative_to(table, "GPipe").relative.tolist()
    [-0.25]
    """
    keys = ["system", "stages", "microbatches"]
    bases = table.loc[table.schedule == base, [*keys, value]].rename(columns={value: "base"})
    merged = table[table.schedule != base].merge(bases, on=keys)
    return merged.assign(relative=merged[value] / merged["base"] - 1)


def operations_table(timelines):
    """Every operation of some timelines with its start and end.

    Parameters
    ----------
    timelines : dict of str to Timeline
        Label to timeline; at least one.

    Returns
    -------
    DataFrame
        One row an operation; columns ``schedule, rank, operation, start_s, end_s``. The last two are in
        seconds, NaN for reductions that a timeline excludes.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> from ppmodel.simulation import run_graph
    >>> from ppmodel.simulation import compile_graph
    >>> schedule = build("gpipe", 1, 1)
    >>> timeline = run_graph(compile_graph(schedule), uniform_costs(schedule, forward=1, backward=2))
    >>> operations_table({"GPipe": timeline}).values.tolist()
    [['GPipe', 0, '0F0', 0.0, 1.0], ['GPipe', 0, '0B0', 1.0, 3.0]]
    """
    tables = []
    for name, timeline in timelines.items():
        schedule = timeline.graph.schedule
        operations = [str(schedule.op(index)) for index in range(schedule.num_operations)]
        tables.append(pd.DataFrame({
            "schedule": name, "rank": schedule.rank, "operation": operations,
            "start_s": timeline.start_s, "end_s": timeline.end_s,
        }))  # fmt: skip
    return pd.concat(tables, ignore_index=True)
