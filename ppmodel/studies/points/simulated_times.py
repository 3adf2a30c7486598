"""Simulated times for long studies: within a process, nothing is simulated twice."""

from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from ppmodel.metrics import computing_s, idle_share
from ppmodel.schedules.cases import as_case
from ppmodel.simulation import iterations
from ppmodel.studies.points.change import UNCHANGED
from ppmodel.studies.points.point import Point, places_of


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
    >>> from ppmodel.studies.points.change import WITHOUT_NETWORK
    >>> from ppmodel.clusters.specs import load_model, load_system
    >>> systems = load_system("mid_cp_mid_nw"), load_system("mid_cp_slow_nw")
    >>> changes = UNCHANGED, WITHOUT_NETWORK
    >>> both = times("1f1b", 4, 8, load_model("paper"), systems, "overlapped", changes=changes)
    >>> both.makespan_s.shape, bool(both.makespan_s[1, 0] == both.makespan_s[1, 1])
    ((2, 2), True)
    """
    case, size, columns = as_case(case), (num_ranks, num_microbatches), np.empty((2, len(changes) * len(systems)))
    points = [
        Point(case, size, (p2p, allreduce), model=model, system=system, change=change)
        for change, system in product(changes, systems)
    ]
    for places in places_of(point.graph_key for point in points).values():
        graph, costs = points[places[0]].graph, [points[place].costs for place in places]
        ends, computed_s = iterations(graph, costs, spans=False), computing_s(graph.schedule, costs)
        columns[:, places] = ends.makespan_s, idle_share(num_ranks, computed_s, ends.reduced_s)
    columns.flags.writeable = False
    return Times(*columns.reshape(2, len(changes), len(systems)))
