"""The longest path through the tasks of a graph, for one system."""

import numpy as np

from ppmodel.loops.longest_path import longest_path
from ppmodel.simulation.checks import durations, filled_timeline, shares_of
from ppmodel.simulation.cost_tables import with_pairs
from ppmodel.simulation.tasks import task_tables


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
    tasks, table, cost_class = graph.tasks, graph.schedule, graph.cost_class
    tables = costs.by_class(table.num_replicas)
    if costs.delay_s is not None and graph.p2p == "streams":
        tables = *tables, costs.delay_s.ravel()
    if costs.units:  # a class for each operation
        tables = *durations(graph, costs), *(delay_s[cost_class] for delay_s in tables[3:])
        cost_class = np.arange(graph.num_operations)
    elif costs.pairs:
        tables, cost_class = with_pairs(tables, table, [costs]), table.pairs.cost_class[graph.index]
    classes, tables = tasks.classes(cost_class, len(tables[0])).astype(np.uint32), task_tables(graph, *tables)
    in_order = None
    if factors is not None:
        in_order = np.asarray(factors, dtype=float)[graph.index]
    if factors is not None and graph.needs_handshake:
        of_operations, in_order = in_order, np.ones(len(tasks.stream))
        in_order[tasks.at] = of_operations
    num_groups, link = len(tasks.group_start) - 1, None if graph.needs_handshake else tasks.link
    starts = graph.columns[2] if num_groups < len(classes) else None
    arrays = tasks.overlaps, starts, link, classes, (tasks.num_streams, graph.num_links, num_groups), tables
    how = float(costs.overlap_factor), in_order, shares_of(graph, costs), graph.occupied
    times = np.empty((4, len(classes)))  # the loop itself writes NaN where nothing is sent
    return filled_timeline(graph, costs, factors, longest_path, 1, *arrays, *how, times=times)
