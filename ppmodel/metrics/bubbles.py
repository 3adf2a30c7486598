"""Idle time of tables and timelines, with the three denominators used in the literature."""

from typing import NamedTuple

import numpy as np

from ppmodel.simulation import side_by_side, with_pairs
from ppmodel.tables import brief


def busy_s(timeline):
    """Computing time of each rank, without reductions, optimizer steps and transfers.

    Operations in one cell count once, for the duration of the cell.

    Parameters
    ----------
    timeline : Timeline
        From `simulation.run_graph`.

    Returns
    -------
    ndarray of float, shape (num_ranks,)
        In seconds.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.simulation import uniform_costs
    >>> from ppmodel.simulation import compile_graph, run_graph
    >>> schedule = build("1f1b", 2, 4)
    >>> busy_s(run_graph(compile_graph(schedule), uniform_costs(schedule, 1, 2))).tolist()
    [12.0, 12.0]
    """
    schedule = timeline.graph.schedule
    counted = schedule.computes & ~schedule.joined
    seconds = (timeline.end_s - timeline.start_s)[counted]
    return np.bincount(schedule.rank[counted], seconds, minlength=schedule.num_ranks)


def idle_ratio(timeline):
    """Fraction of all ranks' time in which they do not compute: 1 - (summed computing time) / (S x makespan).

    Parameters
    ----------
    timeline : Timeline
        From `simulation.run_graph`.

    Returns
    -------
    float
        Over the total time, up to the start of the optimizer steps; transfers and reductions that occupy a rank count
        as idle.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.simulation import uniform_costs
    >>> from ppmodel.simulation import compile_graph, run_graph
    >>> schedule = build("1f1b", 8, 8)
    >>> round(idle_ratio(run_graph(compile_graph(schedule), uniform_costs(schedule, 1, 2))), 6)
    0.466667
    """
    return bubble_ratios(timeline).total


def table_slots(schedule, **slots):
    """Length of the idealised table in slots, without reductions and optimizer steps; see `Schedule.slots`.

    Parameters
    ----------
    schedule : Schedule
        The table.
    **slots : int
        Slots per operation, as in `Schedule.slots`; a backward takes 2, reductions and optimizer steps none.

    Returns
    -------
    int
        Slots; by default, a slot is the forward of one stage and one microbatch of the table.

    Raises
    ------
    TableError
        If operations wait for each other in a cycle.

    Examples
    --------
    >>> from ppmodel import build
    >>> table_slots(build("1f1b", 8, 8)), table_slots(build("1f1b", 8, 8), backward=1)
    (45, 30)
    """
    return brief(schedule, **slots).length


def table_bubble_ratio(schedule, **slots):
    """Idle fraction of the idealised table; a backward takes two forward slots unless set otherwise.

    Source: the table level of Barley et al., 2026.

    Parameters
    ----------
    schedule : Schedule
        The table.
    **slots : int
        Slots per operation, as in `Schedule.slots`.

    Returns
    -------
    float
        Over the whole table, ranks times slots.

    Raises
    ------
    TableError
        If operations wait for each other in a cycle.

    Examples
    --------
    >>> from ppmodel import build
    >>> round(table_bubble_ratio(build("chimera", 8, 16)), 4)
    0.2727
    """
    return brief(schedule, **slots).bubble_ratio


def computing_s(schedule, many_costs):
    """Total computing time of all ranks; it depends only on costs, not on who waits for whom.

    Parameters
    ----------
    schedule : Schedule
        The table; a cell with a forward and a backward takes `overlap_factor` times the sum of its operations.
    many_costs : sequence of OpCosts
        Durations by kind and stage, in seconds.

    Returns
    -------
    ndarray of float, shape (len(many_costs),)
        In seconds; reductions, optimizer steps and transfers are left out.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.simulation import uniform_costs
    >>> schedule = build("1f1b", 2, 4)
    >>> computing_s(schedule, [uniform_costs(schedule, 1, 2)]).tolist()
    [24.0]
    """
    alone, together = schedule.class_counts
    (compute,) = side_by_side(many_costs, schedule.num_replicas, ["compute_s"])
    if any(costs.pairs for costs in many_costs):
        alone, together = schedule.pairs.counts
        (compute,) = with_pairs([compute], schedule, many_costs)
    overlap_factor = np.array([costs.overlap_factor for costs in many_costs])
    parts = (alone[:, None] + overlap_factor * together[:, None]) * compute
    return np.add.accumulate(parts, axis=0)[-1]  # always in the same order, however many systems there are


def operations_s(schedule, costs):
    """Contribution of each operation to the computing time of all ranks; `computing_s` is their sum.

    Parameters
    ----------
    schedule : Schedule
        The table; in a cell with a forward and a backward, `overlap_factor` times each operation's duration counts.
    costs : OpCosts
        Durations by kind and stage, in seconds.

    Returns
    -------
    ndarray of float, shape (num_operations,)
        In seconds, in the order of the schedule's arrays; 0 for reductions and optimizer steps.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.simulation import uniform_costs
    >>> schedule = build("gpipe", 2, 1)
    >>> operations_s(schedule, uniform_costs(schedule, 1, 2)).tolist()
    [1.0, 2.0, 1.0, 2.0]
    """
    alone = schedule.computes & ~schedule.overlaps
    compute_s = costs.by_class(schedule.num_replicas)[0][schedule.cost_class]
    if costs.pairs:
        compute_s = compute_s * costs.pair_shares(schedule)
    if costs.units:
        compute_s = compute_s * costs.unit_factors(schedule)[0]
    return compute_s * (alone + costs.overlap_factor * schedule.overlaps)


class BubbleRatios(NamedTuple):
    """One idle time over the three denominators used in the literature, which must never be mixed.

    Parameters
    ----------
    total : float
        Idle time over the makespan (Huang et al., 2019; Li and Hoefler, 2021).
    ideal : float
        Idle time over the computing time (Narayanan et al., 2021).
    span : float
        The same over the longest span from a rank's first to its last operation (Qi et al., 2024).
    """

    total: float
    ideal: float
    span: float


def bubble_ratios(timeline):
    """The three bubble ratios of a timeline, without optimizer steps; computing time is the mean over ranks.

    Parameters
    ----------
    timeline : Timeline
        From `simulation.run_graph`.

    Returns
    -------
    BubbleRatios
        Three dimensionless ratios.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.simulation import uniform_costs
    >>> from ppmodel.simulation import compile_graph, run_graph
    >>> schedule = build("gpipe", 4, 4)
    >>> [round(r, 4) for r in bubble_ratios(run_graph(compile_graph(schedule), uniform_costs(schedule, 1, 2)))]
    [0.4286, 0.75, 0.4286]
    """
    ranks, computing_s = timeline.graph.schedule.num_ranks, busy_s(timeline).sum()
    return BubbleRatios(*map(float, ratios_of(ranks, computing_s, timeline.reduced_s, timeline.longest_span_s)))


def ratios_of(num_ranks, computing_s, reduced_s, span_s):
    """The three bubble ratios that follow from times, of one run or of many at once.

    Parameters
    ----------
    num_ranks : int
    computing_s : float or ndarray of float
        Computing time of all ranks together, in seconds.
    reduced_s : float or ndarray of float
        Start of the optimizer steps, which do not count as bubble.
    span_s : float or ndarray of float
        Longest span of a rank.

    Returns
    -------
    BubbleRatios

    Examples
    --------
    >>> [round(float(ratio), 4) for ratio in ratios_of(4, 48.0, 21.0, 21.0)]
    [0.4286, 0.75, 0.4286]
    """
    total, span = (1 - computing_s / (num_ranks * within_s) for within_s in (reduced_s, span_s))
    # not less by rounding
    return BubbleRatios(*np.maximum(0.0, (total, num_ranks * reduced_s / computing_s - 1, span)))
