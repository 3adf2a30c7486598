"""Shared by both simulators: copies to the host, durations of optimizer steps, and checks that costs fit the graph."""

from functools import lru_cache
from math import isfinite

import numpy as np

from ppmodel.errors import CostError
from ppmodel.ops import OpKind
from ppmodel.simulation.copies import plan_copies, with_copies
from ppmodel.simulation.costs import TABLES
from ppmodel.simulation.engines import durations, group_lengths


@lru_cache(maxsize=1)  # noisy runs of the same costs share it
def tasks_of(graph, costs):
    """The graph of all that a run executes, and its `Copies`, planned from durations without noise, or None."""
    if not costs.offload:
        return graph.tasks, None
    return with_copies(graph.tasks, plan_copies(graph, costs, group_lengths(graph, costs, durations(graph, costs)[0])))


def step_lengths(schedule, costs, factors=None):
    """Duration of every optimizer step, in the order of `Schedule.steps`."""
    steps = schedule.steps
    if not len(steps):
        return []
    lengths = np.broadcast_to(costs.compute_s[OpKind.O], schedule.placement.shape)
    lengths = lengths[schedule.replica[steps], schedule.stage[steps]]
    with np.errstate(over="ignore"):
        return (lengths if factors is None else lengths * np.asarray(factors)[steps]).tolist()


def refuse_overflow(makespan_s):
    if not isfinite(makespan_s):
        raise CostError("makespan", makespan_s, "must be finite", "use shorter durations")


def check_fit(graph, costs, factors=None):
    """Refuse costs, or factors on operations, of another schedule: compiled code would not notice."""
    schedule = graph.schedule
    replicas = {getattr(costs, name).shape[1] for name in TABLES if getattr(costs, name).ndim == 3}
    if costs.num_stages != schedule.num_stages or not replicas <= {schedule.num_replicas}:
        rule = f"must have {schedule.num_stages} stages and {schedule.num_replicas} replicas, as the schedule"
        raise CostError("costs", f"of {costs.num_stages} stages", rule, "use costs for this schedule")
    if factors is not None and np.shape(factors) != (schedule.num_operations,):
        rule = f"must be one number for each operation, shape ({schedule.num_operations},)"
        raise CostError("factors", f"of shape {np.shape(factors)}", rule, "give them in the order of the schedule")
