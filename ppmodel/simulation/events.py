"""Simulated time by discrete events: an event queue, ranks, links and NICs."""

import numpy as np

from ppmodel.loops.events import events
from ppmodel.simulation.checks import (
    check_fit,
    durations,
    group_lengths,
    refuse_overflow,
    shares_of,
    tasks_of,
    timeline_of,
)
from ppmodel.simulation.paths import path_timeline


def run_events(graph, costs, factors=None):
    """Simulate by discrete events: an event queue, ranks, links and NICs; the same timeline as `run_graph`.

    Every stream executes its program in order and knows only the messages that have reached it. Links and NICs serve
    messages in order of arrival. The queue orders events by time; events at the same time are ordered by kind
    (operations that end, links and NICs that become free, arrivals, reductions that reach their links, results sent
    before their cell ends, copies that are back), and those of one kind by their operation's position in the graph.
    Since queues serve first come, first served, less work may take longer where NICs are shared or reductions occupy
    links (Graham, 1969). Where transfers occupy ranks, or wait for both ends, and so nothing queues, it is `run_graph`.

    Parameters
    ----------
    graph : ExecutionGraph
    costs : OpCosts
    factors : ndarray of float, shape (num_operations,), optional
        As in `run_graph`.

    Returns
    -------
    Timeline

    Raises
    ------
    CostError
        As for `run_graph`.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.simulation import uniform_costs
    >>> from ppmodel.simulation import compile_graph
    >>> schedule = build("gpipe", 4, 8)
    >>> costs = uniform_costs(schedule, forward=1, backward=2, comm=1)
    >>> run_events(compile_graph(schedule), costs).makespan_s
    39.0
    >>> run_events(compile_graph(schedule).with_nics((0, 0, 1, 1)), costs).makespan_s
    39.0
    """
    graph = graph.with_nics(costs.nics)
    check_fit(graph, costs, factors)
    if graph.needs_handshake or any(graph.occupied[:2]):
        timeline = path_timeline(graph, costs, factors)
    else:
        tasks, copies = tasks_of(graph, costs)
        compute, *transfers = durations(tasks, costs, factors)
        gates = tasks.gates if graph.reductions_hold_links else np.zeros((2, 0))
        gates = *(column.astype(np.int32) for column in gates), graph.schedule.num_ranks
        sizes = tasks.num_streams, tasks.num_links + (2 * max(graph.nics) + 2 if graph.nics else 0)
        seconds, times = (group_lengths(tasks, costs, compute), *transfers), np.full((4, len(compute)), np.nan)
        how = tasks.routes.astype(np.int32), gates, sizes, seconds, graph.links_queue, shares_of(tasks, costs), times
        events.run(5 * len(compute), tasks.columns, tasks.link, *how)
        timeline = timeline_of(graph, tasks, copies, costs, factors, times)
    refuse_overflow(timeline.makespan_s)
    return timeline
