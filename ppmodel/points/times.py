"""Simulated times for long studies: within a process, nothing is simulated twice."""

from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from ppmodel.metrics import computing_s
from ppmodel.points.change import UNCHANGED
from ppmodel.points.order import open_options
from ppmodel.points.point import Point
from ppmodel.schedules.cases import as_case
from ppmodel.simulation import graph_of
from ppmodel.simulation.longest_path import iterations


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
    case : Case or what `schedules.cases.as_case` takes
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
    >>> from ppmodel.points.change import WITHOUT_NETWORK
    >>> from ppmodel.specs import load_model, load_system
    >>> systems = [load_system("mid_cp_mid_nw"), load_system("mid_cp_slow_nw")]
    >>> changes = [UNCHANGED, WITHOUT_NETWORK]
    >>> both = times("1f1b", 4, 8, load_model("paper"), systems, "overlapped", changes=changes)
    >>> both.makespan_s.shape, bool(both.makespan_s[1, 0] == both.makespan_s[1, 1])
    ((2, 2), True)
    """
    case, size, semantics = as_case(case), (num_ranks, num_microbatches), (p2p, allreduce)
    cached = _cached(case, size, model, semantics)
    asked = tuple(systems), tuple(changes)
    if asked in cached:  # the same question again, which a study asks of schedules that a setting does not touch
        return cached[asked]
    points = _cached(case, size, model, semantics if open_options(case) else "all")  # what is priced once for all
    missing = {}
    for pair in dict.fromkeys(product(systems, changes)):
        if pair not in cached:
            if pair not in points:
                system, change = pair
                points[pair] = Point(case, size, semantics, model=model, system=system, change=change)
            missing.setdefault(points[pair].ordered_case.options, []).append(pair)
    for pairs in missing.values():
        table, costs = points[pairs[0]].table, [points[pair].costs for pair in pairs]
        ends = iterations(graph_of(table, *semantics), costs, spans=False)
        idle = np.maximum(0, 1 - computing_s(table, costs) / (num_ranks * ends.reduced_s))
        cached.update(zip(pairs, zip(ends.makespan_s.tolist(), idle.tolist(), strict=True), strict=True))
    times_s = np.array([[cached[system, change] for system in systems] for change in changes])
    times_s.flags.writeable = False
    cached[asked] = Times(times_s[..., 0], times_s[..., 1])
    return cached[asked]


@cache
def _cached(*_):
    """What is known of a schedule, size and model, by system and change: points, or times, and answers as they were."""
    return {}
