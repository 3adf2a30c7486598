"""Simulated time of one system: the longest path through the compiled graph, in its order."""

from functools import partial

import numpy as np

from ppmodel.loops.single_pass import pass_over
from ppmodel.simulation import checks
from ppmodel.simulation.events import run_events
from ppmodel.simulation.paths import path_timeline
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
    timeline = _from_table(graph, costs, factors) or path_timeline(graph, costs, factors)
    checks.refuse_overflow(timeline.makespan_s)
    return timeline


def _from_table(graph, costs, factors):
    """The timeline of a graph's first run, in one pass over the table; None if it takes the graph's arrays."""
    table, is_first = graph.schedule, not graph.is_used
    graph.is_used = True
    apart = graph.nics is not None or graph.needs_handshake or costs.units
    if not is_first or apart or factors is not None or costs.ready or costs.offload:
        return None
    times, shares = np.empty((2, table.num_operations)), {"shares": costs.pair_shares(table)} if costs.pairs else {}
    how = float(costs.overlap_factor), graph.occupied, graph.allreduce != "excluded"
    passed = pass_over(table, costs.by_class(table.num_replicas), *how, **shares, times=times)
    if not passed:
        return None
    return Timeline(graph, times, partial(_transfers_s, graph, costs), checks.step_lengths(table, costs), passed[:2])


def _transfers_s(graph, costs):
    """Start and end of transfers, from a second run, which takes the graph's arrays."""
    return run_graph(graph, costs).transfers()
