"""The two engines: times of all tasks of a graph, by the longest path or by events."""

import numpy as np

from ppmodel.loops.events import events
from ppmodel.loops.longest_path import longest_path
from ppmodel.simulation.cost_tables import with_pairs
from ppmodel.simulation.inputs import COLLECTIVE
from ppmodel.simulation.numbering import classes_of, with_further_rows


def durations(graph, costs, factors=None):
    """Duration, occupancy and latency of every row of a graph, in its order."""
    tables, of_class = costs.by_class(graph.schedule.num_replicas), graph.cost_class
    compute, occupancy, latency = (table.take(of_class) for table in tables)  # an index takes twice as long
    if costs.pairs:
        compute = compute * costs.pair_shares(graph.schedule)[graph.index]
    if costs.units:
        longer, larger = costs.unit_factors(graph.schedule)
        compute, occupancy = compute * longer[graph.index], occupancy * larger[graph.index]
    if factors is not None:
        with np.errstate(over="ignore"):  # overflow is refused with the makespan
            compute = compute * np.asarray(factors)[graph.index]
    if graph.row is not None:
        compute = np.where(graph.row == COLLECTIVE, occupancy + latency, compute * graph.is_operation)
    return compute if graph.copy_s is None else compute + graph.copy_s, occupancy, latency


def shares_of(graph, costs):
    """The fraction of its cell after which each result can be sent, in the graph's order; None if that is its end."""
    return costs.ready_shares(graph.schedule)[graph.index] if costs.ready else None


def group_lengths(graph, costs, compute):
    """Duration of each group, given those of its operations: their sum, or in a reduction that of the slowest."""
    if len(graph.group_start) > len(compute):  # each is alone
        return compute
    lengths = np.bincount(graph.group, compute)
    lengths[graph.overlaps] *= costs.overlap_factor
    if graph.allreduce != "excluded":
        sums = np.flatnonzero(graph.reduces)
        lengths[graph.group[sums]] = 0.0
        np.maximum.at(lengths, graph.group[sums], compute[sums])
    return lengths


def along_path(tasks, costs, factors):
    """Start, end, departure and arrival of all tasks, by the longest path."""
    table = tasks.schedule
    tables, cost_class = costs.by_class(table.num_replicas), tasks.cost_class
    delay_s = np.zeros_like(tables[0]) if costs.delay_s is None or tasks.p2p != "streams" else costs.delay_s.ravel()
    if costs.units or tasks.copy_s is not None:  # a class for each row
        tables = *durations(tasks, costs), delay_s[cost_class]
        classes = np.arange(tasks.num_operations)
    else:
        tables = *tables, delay_s
        if costs.pairs:
            tables, cost_class = with_pairs(tables, table, [costs]), table.pairs.cost_class[tasks.index]
        classes, tables = classes_of(tasks, cost_class, len(tables[0])), with_further_rows(tasks, *tables)
    in_order = None
    if factors is not None:
        in_order = np.where(tasks.is_operation, np.asarray(factors, dtype=float)[tasks.index], 1.0)
    num_groups = len(tasks.group_start) - 1
    starts = tasks.columns[2] if num_groups < len(classes) else None
    sizes = tasks.num_streams, tasks.num_links, num_groups
    meetings = None if tasks.meets is None else (tasks.meets, tables[3], tasks.p2p == "rendezvous")
    how = float(costs.overlap_factor), in_order, shares_of(tasks, costs), tasks.occupied, meetings
    arrays = tasks.columns, tasks.overlaps, starts, tasks.link, classes.astype(np.uint32), sizes, tables[:3]
    times = np.empty((4, len(classes)))  # the loop itself writes NaN where nothing is sent
    longest_path.run(len(classes), *arrays, *how, times)
    return times


def in_time(tasks, costs, factors):
    """Start, end, departure and arrival of all tasks, by events."""
    compute, *transfers = durations(tasks, costs, factors)
    gates = tasks.gates if tasks.reductions_hold_links else np.zeros((2, 0))
    gates = *(column.astype(np.int32) for column in gates), tasks.schedule.num_ranks
    sizes = tasks.num_streams, tasks.num_links + (2 * max(tasks.nics) + 2 if tasks.nics else 0)
    places = tasks.columns, tasks.link, tasks.routes.astype(np.int32), gates, sizes
    seconds, times = (group_lengths(tasks, costs, compute), *transfers), np.full((4, len(compute)), np.nan)
    events.run(5 * len(compute), *places, seconds, tasks.links_queue, shares_of(tasks, costs), times)
    return times
