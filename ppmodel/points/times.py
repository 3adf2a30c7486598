"""Simulated times for long studies: within a process, nothing is simulated twice."""

from functools import cache, lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from ppmodel.metrics import computing_s
from ppmodel.points.change import UNCHANGED
from ppmodel.points.point import Point
from ppmodel.schedules.cases import as_case
from ppmodel.simulation import graph_of
from ppmodel.simulation.longest_path import iterations

_KEPT = 256


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


@cache
def times(case, num_ranks, num_microbatches, model, systems, p2p, allreduce="excluded", changes=(UNCHANGED,)):
    """Simulated times of one schedule on some systems under some changes; the same question is answered once.

    Parameters
    ----------
    case : Case or str
        The schedule.
    num_ranks, num_microbatches : int
        Ranks S and microbatches B.
    model : ModelSpec
        The model.
    systems : tuple of SystemSpec
        The systems, each with its topology.
    p2p, allreduce : str
        Communication semantics.
    changes : tuple of Change
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
    >>> systems = load_system("mid_cp_mid_nw"), load_system("mid_cp_slow_nw")
    >>> changes = UNCHANGED, WITHOUT_NETWORK
    >>> both = times("1f1b", 4, 8, load_model("paper"), systems, "overlapped", changes=changes)
    >>> both.makespan_s.shape, bool(both.makespan_s[1, 0] == both.makespan_s[1, 1])
    ((2, 2), True)
    """
    columns = np.empty((2, len(changes) * len(systems)))
    groups = _priced(as_case(case), (num_ranks, num_microbatches), model, systems, changes)
    for table, places, costs, computed_s in groups:
        ends = iterations(graph_of(table, p2p, allreduce), costs, spans=False)
        columns[:, places] = ends.makespan_s, 1 - computed_s / (num_ranks * ends.reduced_s)
    columns[1] = np.maximum(0, columns[1])
    columns.flags.writeable = False
    return Times(*columns.reshape(2, len(changes), len(systems)))


@lru_cache(_KEPT)
def _priced(case, size, model, systems, changes):
    """The tables of points with their places, costs and computing times, which are the same for all semantics."""
    groups = {}
    for place, (change, system) in enumerate(product(changes, systems)):
        point = Point(case, size, model=model, system=system, change=change)
        groups.setdefault(point.table, []).append((place, point.costs))
    tables = [(table, *zip(*priced, strict=True)) for table, priced in groups.items()]
    return [(table, list(places), costs, computing_s(table, costs)) for table, places, costs in tables]
