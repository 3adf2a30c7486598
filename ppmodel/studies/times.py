"""Simulated times of a schedule on many systems, and under many changes of them, in one pass each."""

from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from ppmodel.costs import model_costs
from ppmodel.metrics import computing_s
from ppmodel.simulation import makespans
from ppmodel.studies.cases import built, compiled

_REFERENCE_FLOPS = 1e15
_COSTS_KEPT = 2**17  # the costs of the largest study, the search of `implied`, stay: 65,000 of them take 0.2 GB
_LEAST = dict.fromkeys(("bandwidth", "compute", "memory", "efficiency", "straggler", "backward", "overlap")) | {
    "latency": 0, "collectives": 0,
}  # fmt: skip


from ppmodel.change import *  # noqa
from ppmodel.change import UNCHANGED, WITHOUT_NETWORK, Change  # noqa


class Times(NamedTuple):
    """Simulated and computing time, each of one entry for every change and system.

    Parameters
    ----------
    t_sim_s : ndarray of float, shape (num_changes, num_systems)
        From the start of the first operation to the end of the last, in seconds.
    idle_ratio : ndarray of float, shape (num_changes, num_systems)
        Share of all ranks' time in which they do not compute.
    """

    t_sim_s: np.ndarray
    idle_ratio: np.ndarray


def times(case, num_ranks, num_microbatches, model, systems, p2p, allreduce="excluded", changes=(UNCHANGED,)):
    """Simulated times of one schedule on some systems under some changes.

    What has been simulated before in this process is not simulated again; values decide, not names or files.

    Parameters
    ----------
    case : tuple (str, tuple of pairs)
        Name and options of the schedule.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems; those whose ranks share NICs are simulated with them.
    p2p, allreduce : str
        Communication semantics, as in `graph.compile`.
    changes : sequence of Change
        Each is applied to every system.

    Returns
    -------
    Times
        Arrays of shape (len(changes), len(systems)).

    Raises
    ------
    ScheduleError
        If the schedule is not defined at the size.
    CostError
        If the model does not fit the schedule.
    SpecificationError
        If a system lists the nodes of another number of ranks.
    PPModelError
        If a semantics is unknown.

    Examples
    --------
    >>> from ppmodel.specs import load_model, load_system
    >>> systems = [load_system("mid_cp_mid_nw"), load_system("mid_cp_slow_nw")]
    >>> changes = [UNCHANGED, WITHOUT_NETWORK]
    >>> both = times(("1f1b", ()), 4, 8, load_model("paper"), systems, "overlapped", changes=changes)
    >>> both.t_sim_s.shape, bool(both.t_sim_s[1, 0] == both.t_sim_s[1, 1])
    ((2, 2), True)
    """
    name, options = case
    schedule = built(name, num_ranks, num_microbatches, options)
    if schedule.num_replicas == 1:
        allreduce = "excluded"  # there is nothing to sum
    known = _known(name, options, num_ranks, num_microbatches, p2p, allreduce, model)
    of_systems = [known.setdefault(system, {}) for system in systems]
    missing = [(change, n) for change in dict.fromkeys(changes) for n, of in enumerate(of_systems) if change not in of]
    if missing:
        graph = compiled(name, num_ranks, num_microbatches, options, p2p, allreduce)
        many = [_costs(name, options, num_ranks, num_microbatches, model, change, systems[n]) for change, n in missing]
        spans = makespans(graph, many)
        idle = 1 - computing_s(schedule, many) / (num_ranks * spans)
        for (change, n), *numbers in zip(missing, spans.tolist(), idle.tolist(), strict=True):
            of_systems[n][change] = numbers
    table = np.array([[of[change] for of in of_systems] for change in changes])
    return Times(table[..., 0], table[..., 1])


@lru_cache(_COSTS_KEPT)
def _costs(name, options, num_ranks, num_microbatches, model, change, system):
    """Costs of a schedule on a changed system: the same for all semantics."""
    schedule = built(name, num_ranks, num_microbatches, options)
    return change.costs(model_costs(schedule, model, change.system(system)), schedule)


@cache
def _known(*_):
    """What is known of one schedule, semantics and model: from system to change to (time, idle ratio)."""
    return {}
