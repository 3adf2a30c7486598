"""The two engines: times of all tasks of a graph, by the longest path or by events."""

from functools import lru_cache

import numpy as np

from ppmodel.loops.events import events
from ppmodel.loops.longest_path import longest_path
from ppmodel.simulation.cost_tables import tables_of


@lru_cache(maxsize=1)  # noisy runs of the same costs share it
def priced(graph, costs):
    """Durations, occupancies, latencies and delays by class, behind them further ones, and the class of each row."""
    tables, classes = tables_of(graph, [costs])
    tables = [table[:, 0] for table in tables]
    if costs.offload:
        seconds = costs.offload.seconds.repeat(costs.num_units)
        tables = [np.append(table, seconds if place == 0 else 0 * seconds) for place, table in enumerate(tables)]
    return tables, classes


def factors_of(graph, factors):
    """Factors on the durations of rows, from those of operations; None if there are none."""
    if factors is None:
        return None
    of_rows = np.asarray(factors, dtype=float)[graph.index]
    return of_rows if graph.row is None else np.where(graph.is_operation, of_rows, 1.0)


def durations(graph, costs, factors=None):
    """Duration, occupancy and latency of every row of a graph, in its order."""
    tables, classes = priced(graph, costs)
    compute, *transfers = (table.take(classes) for table in tables[:3])  # an index takes twice as long
    with np.errstate(over="ignore"):  # overflow is refused with the makespan
        return compute if factors is None else compute * factors_of(graph, factors), *transfers


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
    (*tables, delay_s), classes = priced(tasks, costs)
    num_groups = len(tasks.group_start) - 1
    starts = tasks.columns[2] if num_groups < len(classes) else None
    sizes = tasks.num_streams, tasks.num_links, num_groups
    meetings = None if tasks.meets is None else (tasks.meets, delay_s, tasks.p2p == "rendezvous")
    how = float(costs.overlap_factor), factors_of(tasks, factors), shares_of(tasks, costs), tasks.occupied, meetings
    arrays = tasks.columns, tasks.overlaps, starts, tasks.link, classes.astype(np.uint32), sizes, tuple(tables)
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
