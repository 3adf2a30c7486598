"""Simulated time of many systems: the longest paths through one graph, side by side where that pays."""

from typing import NamedTuple

import numpy as np

from ppmodel.loops.paths import CLASS, longest_paths
from ppmodel.simulation import checks
from ppmodel.simulation.cost_tables import tables_of
from ppmodel.simulation.costs import OpCosts, are_seconds, with_all_kinds
from ppmodel.simulation.run import run_graph
from ppmodel.tables.steps import step_times

_SIDE_BY_SIDE, _FEWER, _MANY_STAGES = 64, 32, 160
"""Systems that the compiled loop takes at once; fewer if their costs would not fit in the cache."""


class Iterations(NamedTuple):
    """When the parts of an iteration end, under many costs, in seconds.

    Parameters
    ----------
    makespan_s : ndarray of float, shape (n,)
        The whole iteration, with included reductions and optimizer steps.
    reduced_s : ndarray of float, shape (n,)
        When all gradients are summed and the optimizer steps start; the makespan if there are no steps.
    span_s : ndarray of float, shape (n,)
        The longest time of a rank from the start of its first to the end of its last forward or backward.
    """

    makespan_s: np.ndarray
    reduced_s: np.ndarray
    span_s: np.ndarray


def makespans(graph, costs):
    """Compute the makespans of many systems on one graph; as `iterations`, without spans.

    Returns
    -------
    ndarray of float, shape (n,)
        In seconds.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.simulation import uniform_costs
    >>> from ppmodel.simulation import compile_graph
    >>> schedule = build("gpipe", 4, 8)
    >>> many = [uniform_costs(schedule, forward=1, backward=2, comm=c) for c in (0, 1)]
    >>> makespans(compile_graph(schedule), many).tolist()
    [33.0, 39.0]
    >>> makespans(compile_graph(schedule), np.ones((2, 3, 6, 4))).tolist()
    [34.0, 34.0]
    """
    return iterations(graph, costs, spans=False).makespan_s


def iterations(graph, costs, spans=True):
    """Compute when the parts of an iteration end, for many systems in one pass, or one by one where that is needed.

    Parameters
    ----------
    graph : ExecutionGraph
    costs : sequence of OpCosts, or ndarray of float, shape (n, 3, 10, num_stages)
        An array has compute, occupancy and latency of each system.
    spans : bool
        Whether to compute `span_s`.

    Returns
    -------
    Iterations
        The same times as those of each `Timeline`; what is not computed is 0.

    Raises
    ------
    CostError
        As for `run_graph`.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.simulation import uniform_costs
    >>> from ppmodel.simulation import compile_graph
    >>> schedule = build("gpipe", 4, 8).with_step()
    >>> many = [uniform_costs(schedule, 1, 2, comm=c, reduction=2, optimizer=0.5) for c in (0, 1)]
    >>> parts = iterations(compile_graph(schedule, allreduce="blocking"), many)
    >>> [times.tolist() for times in (parts.span_s, parts.reduced_s, parts.makespan_s)]
    [[33.0, 39.0], [35.0, 41.0], [35.5, 41.5]]
    """
    schedule = graph.schedule
    if isinstance(costs, np.ndarray):
        costs = np.moveaxis(with_all_kinds(np.moveaxis(costs, 2, 0)), 0, 2)
        fit = costs.shape[-1] == schedule.num_stages and schedule.num_replicas == 1 and are_seconds(costs)
        if fit and (compiled := _for_many(graph, len(costs))):
            return _side_by_side(graph, compiled, costs, spans)
        costs = [OpCosts(*tables) for tables in costs]
    costs, places = list(costs), {}
    parts = Iterations(*np.zeros((3, len(costs))))
    for place, system in enumerate(costs):
        places.setdefault((system.nics, system.num_units), []).append(place)
    if len(places) > 1:  # a pass for each topology
        for some in places.values():
            for column, times in zip(parts, iterations(graph, [costs[at] for at in some], spans), strict=True):
                column[some] = times
        return parts
    apart = any(system.ready or system.offload or system.num_units > schedule.slices for system in costs)
    if len(costs) > 1 and not apart:
        placed = graph.with_nics(costs[0].nics)
        if compiled := _for_many(placed, len(costs)):
            return _side_by_side(placed, compiled, costs, spans)
    for place, system in enumerate(costs):  # one after another, so that they take the same memory
        run = run_graph(graph, system)
        parts.makespan_s[place], parts.reduced_s[place] = run.makespan_s, run.reduced_s
        if spans:
            parts.span_s[place] = run.longest_span_s
    return parts


def _for_many(graph, count):
    """The compiled loop that takes many systems at once; None where it is not worth its loading, or has no path."""
    return None if graph.order_depends_on_costs else longest_paths.compiled(graph.schedule.num_operations * count)


def _side_by_side(graph, compiled, costs, spans):
    """`iterations` by the compiled loop, some systems at once."""
    schedule, parts = graph.schedule, Iterations(*np.zeros((3, len(costs))))
    tasks, occupied = graph.tasks, (*graph.occupied, graph.p2p == "rendezvous")
    ends = np.zeros(tasks.num_operations if spans else 0, dtype=np.uint8)
    for flag, operations in enumerate(tasks.ends if spans else (), 1):  # a first operation, a last one; the only one: 3
        ends[operations] += np.uint8(flag)
    num_units = 1 if isinstance(costs, np.ndarray) else costs[0].num_units
    at_once = _SIDE_BY_SIDE if schedule.placement.size * num_units < _MANY_STAGES else _FEWER
    steps, lengths = schedule.steps, np.empty((len(schedule.steps), len(costs)))
    (rows, sizes), latest = tasks.instructions, tasks.cost_class
    for first in range(0, len(costs), at_once):
        here, some = slice(first, first + at_once), costs[first : first + at_once]
        factors = np.ones(len(some))
        if not isinstance(costs, np.ndarray):
            for system in some:
                checks.check_fit(graph, system)
            factors[:] = [system.overlap_factor for system in some]
        tables, classes = tables_of(tasks, some)
        if classes is not latest:
            rows, latest = rows.copy(), classes
            rows[:, CLASS] = classes
        parts.reduced_s[here], parts.span_s[here] = compiled(rows, sizes, tuple(tables), factors, occupied, ends)
        if len(steps):
            lengths[:, here] = tables[0][schedule.cost_class[steps] * num_units]
    parts.makespan_s[:] = parts.reduced_s
    if len(steps):
        np.max(step_times(schedule, parts.reduced_s, lengths)[1], axis=0, out=parts.makespan_s)
    checks.refuse_overflow(parts.makespan_s.max(initial=0))
    return parts
