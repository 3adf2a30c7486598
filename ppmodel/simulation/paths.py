"""The longest path through the tasks of a graph, for one system."""

import numpy as np

from ppmodel.loops.longest_path import longest_path
from ppmodel.simulation.checks import durations, shares_of, tasks_of, timeline_of
from ppmodel.simulation.cost_tables import with_pairs


def path_timeline(graph, costs, factors=None):
    """Simulate one system by the longest path through the tasks of a graph.

    Parameters
    ----------
    graph, costs, factors
        As in `run_graph`.

    Returns
    -------
    Timeline

    Raises
    ------
    TableError
        If ranks deadlock under ``rendezvous``.
    """
    (tasks, copies), table = tasks_of(graph, costs), graph.schedule
    tables, cost_class = costs.by_class(table.num_replicas), tasks.cost_class
    delay_s = np.zeros_like(tables[0]) if costs.delay_s is None or graph.p2p != "streams" else costs.delay_s.ravel()
    if costs.units or copies:  # a class for each row
        tables = *durations(tasks, costs), delay_s[cost_class]
        classes = np.arange(tasks.num_operations)
    else:
        tables = *tables, delay_s
        if costs.pairs:
            tables, cost_class = with_pairs(tables, table, [costs]), table.pairs.cost_class[tasks.index]
        classes, tables = tasks.classes(cost_class, len(tables[0])), tasks.with_timeless(*tables)
    in_order = None
    if factors is not None:
        in_order = np.where(tasks.is_operation, np.asarray(factors, dtype=float)[tasks.index], 1.0)
    num_groups = len(tasks.group_start) - 1
    starts = tasks.columns[2] if num_groups < len(classes) else None
    sizes = tasks.num_streams, tasks.num_links, num_groups
    meetings = None if tasks.meets is None else (tasks.meets, tables[3], graph.p2p == "rendezvous")
    how = float(costs.overlap_factor), in_order, shares_of(tasks, costs), graph.occupied, meetings
    arrays = tasks.columns, tasks.overlaps, starts, tasks.link, classes.astype(np.uint32), sizes, tables[:3]
    times = np.empty((4, len(classes)))  # the loop itself writes NaN where nothing is sent
    longest_path.run(len(classes), *arrays, *how, times)
    return timeline_of(graph, tasks, copies, costs, factors, times)
