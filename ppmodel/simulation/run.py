"""Simulated time of one system: the longest path through the compiled graph in its order, or its events in time."""

from functools import partial

import numpy as np

from ppmodel.loops.single_pass import pass_over
from ppmodel.simulation import checks
from ppmodel.simulation.engines import along_path, in_time
from ppmodel.simulation.timeline import Timeline


def run_graph(graph, costs, factors=None):
    """Simulate by the longest path through the graph, in one pass in topological order.

    If links share a side of a NIC, or reductions occupy links, there is no such path, and `run_events` takes over.

    Parameters
    ----------
    graph : ExecutionGraph
    costs : OpCosts
    factors : ndarray of float, shape (num_operations,), optional
        Factors on the durations of operations, in the order of the schedule's arrays; for jitter and slow ranks.

    Returns
    -------
    Timeline

    Raises
    ------
    CostError
        If the costs are for a different number of stages or replicas, the factors for a different number of operations,
        or times overflow.
    TableError
        If ranks deadlock under ``rendezvous``.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.simulation import uniform_costs
    >>> from ppmodel.simulation import compile_graph
    >>> schedule = build("1f1b", 4, 8)
    >>> run_graph(compile_graph(schedule), uniform_costs(schedule, forward=1, backward=2)).makespan_s
    33.0
    """
    graph = graph.with_nics(costs.nics)
    if graph.order_depends_on_costs:
        return run_events(graph, costs, factors)
    checks.check_fit(graph, costs, factors)
    return _checked(_from_table(graph, costs, factors) or _run_tasks(graph, costs, factors, along_path))


def _from_table(graph, costs, factors):
    """The timeline of a graph's first run, in one pass over the table; None if it takes the graph's arrays."""
    table, is_first = graph.schedule, not graph.is_used
    graph.is_used = True
    apart = graph.nics is not None or graph.needs_handshake or costs.units or table.reduces
    if not is_first or apart or factors is not None or costs.ready or costs.offload:
        return None
    times, shares = np.empty((2, table.num_operations)), {"shares": costs.pair_shares(table)} if costs.pairs else {}
    how = float(costs.overlap_factor), graph.occupied
    passed = pass_over(table, costs.by_class(table.num_replicas), *how, **shares, times=times)
    if not passed:
        return None
    return Timeline(graph, times, partial(_transfers_s, graph, costs), checks.step_lengths(table, costs), passed[:2])


def _transfers_s(graph, costs):
    """Start and end of transfers, from a second run, which takes the graph's arrays."""
    return run_graph(graph, costs).transfers()


def _run_tasks(graph, costs, factors, run):
    """The timeline of all that a graph executes, of times that one of the two engines gives."""
    tasks, copies = checks.tasks_of(graph, costs)
    times, steps_s = run(tasks, costs, factors), checks.step_lengths(graph.schedule, costs, factors)
    return Timeline(graph, times[:2], partial(np.asarray, times[2:]), steps_s, tasks=tasks, copies=copies)


def _checked(timeline):
    """A timeline that has not overflowed."""
    checks.refuse_overflow(timeline.makespan_s)
    return timeline


def run_events(graph, costs, factors=None):
    """Simulate by discrete events: an event queue, ranks, links and NICs; the same timeline as `run_graph`.

    Every stream executes its program in order and knows only the messages that have reached it. Links and NICs serve
    messages in order of arrival. The queue orders events by time; events at the same time are ordered by kind
    (operations and copies that end, links and NICs that become free, arrivals, reductions that reach their links,
    results sent before their cell ends), and those of one kind by their operation's position in the graph. Since queues
    serve first come, first served, less work may take longer where NICs are shared or reductions occupy links (Graham,
    1969). Where transfers occupy ranks, or wait for both ends, and so nothing queues, it is `run_graph`.

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
    checks.check_fit(graph, costs, factors)
    no_queues = graph.needs_handshake or any(graph.occupied[:2])
    return _checked(_run_tasks(graph, costs, factors, along_path if no_queues else in_time))
