"""Simulated times for long studies: within a process, nothing is simulated twice."""

from functools import cache
from typing import NamedTuple

import numpy as np

from ppmodel import metrics
from ppmodel.cases import as_case, built, compiled
from ppmodel.change import UNCHANGED
from ppmodel.ordering import left_open, ordered_case
from ppmodel.prices import Price, changed_costs
from ppmodel.simulation import iterations, makespans


class Times(NamedTuple):
    """Simulated time and idle ratio, each with one entry per change and system.

    Parameters
    ----------
    makespan_s : ndarray of float, shape (num_changes, num_systems)
        From the start of the first operation to the end of the last, in seconds.
    idle_ratio : ndarray of float, shape (num_changes, num_systems)
        Fraction of all ranks' time in which they do not compute.
    """

    makespan_s: np.ndarray
    idle_ratio: np.ndarray


def times(case, num_ranks, num_microbatches, model, systems, p2p, allreduce="excluded", changes=(UNCHANGED,)):
    """Simulated times of one schedule on some systems under some changes.

    Results are cached within the process, by values rather than names or files.

    Parameters
    ----------
    case : Case or what `cases.as_case` takes
        The schedule.
    num_ranks, num_microbatches : int
        Ranks S and microbatches B.
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems, each with its topology.
    p2p, allreduce : str
        Communication semantics.
    changes : sequence of Change
        Each is applied to every system.

    Returns
    -------
    Times
        Arrays of shape (len(changes), len(systems)).

    Raises
    ------
    PPModelError
        If the schedule is not defined at the size, the model does not fit it, or a semantics is unknown.

    Examples
    --------
    >>> from ppmodel.change import WITHOUT_NETWORK
    >>> from ppmodel.specs import load_model, load_system
    >>> systems = [load_system("mid_cp_mid_nw"), load_system("mid_cp_slow_nw")]
    >>> changes = [UNCHANGED, WITHOUT_NETWORK]
    >>> both = times("1f1b", 4, 8, load_model("paper"), systems, "overlapped", changes=changes)
    >>> both.makespan_s.shape, bool(both.makespan_s[1, 0] == both.makespan_s[1, 1])
    ((2, 2), True)
    """
    case = as_case(case)
    if left_open(case):
        return _each_times(case, num_ranks, num_microbatches, model, systems, p2p, allreduce, changes)
    table = built(case, num_ranks, num_microbatches)
    graph = compiled(table, p2p, allreduce)
    known, asked = _known(graph, model), (tuple(systems), tuple(changes))
    if asked in known:  # the same question again, which a study asks of schedules that a setting does not touch
        return known[asked]
    of_systems = [known.setdefault(system, {}) for system in systems]
    missing = [(change, n) for change in dict.fromkeys(changes) for n, of in enumerate(of_systems) if change not in of]
    if missing:
        many = [changed_costs(table, model, change, systems[n]) for change, n in missing]
        spans = makespans(graph, many)
        reduced = iterations(graph, many).reduced_s if len(table.steps) else spans
        idle = 1 - metrics.computing_s(table, many) / (num_ranks * reduced)
        for (change, n), *numbers in zip(missing, spans.tolist(), idle.tolist(), strict=True):
            of_systems[n][change] = numbers
    found = np.array([[of[change] for of in of_systems] for change in changes])
    found.flags.writeable = False
    known[asked] = Times(found[..., 0], found[..., 1])
    return known[asked]


def _each_times(case, num_ranks, num_microbatches, model, systems, p2p, allreduce, changes):
    """`times` of a case that needs a new search for an order on every system and change."""
    found = np.empty((2, len(changes), len(systems)))
    for place in np.ndindex(found.shape[1:]):
        change, system = changes[place[0]], systems[place[1]]
        own = ordered_case(case, num_ranks, num_microbatches, Price({}, {}, model, system, change), allreduce)
        one = times(own, num_ranks, num_microbatches, model, [system], p2p, allreduce, [change])
        found[(slice(None), *place)] = one.makespan_s.item(), one.idle_ratio.item()
    return Times(*found)


@cache
def _known(*_):
    """What is known of one graph and model: from system to change to (time, idle ratio), and answers as they were."""
    return {}
