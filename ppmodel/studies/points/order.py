"""Orders found by search (zb-1p, zb-2p), for the times and the held fraction of a point."""

from dataclasses import replace
from math import prod

import numpy as np

from ppmodel.clusters.memory import activation_bytes
from ppmodel.errors import CostError
from ppmodel.loops.compiled import prepare
from ppmodel.ops import OpKind
from ppmodel.schedules.cases import built
from ppmodel.schedules.options import option_text

SEARCHED = ("times", "held")
"""The options of a searched schedule that the point determines unless the user sets them."""

_FARTHEST = 1e12
_SEARCH = 720
"""Two searches for an order take about as long as this many passes over each rank's microbatches."""


def open_options(case):
    """List the options in `SEARCHED` that a case has but does not set.

    Parameters
    ----------
    case : Case

    Returns
    -------
    list of str

    Examples
    --------
    >>> from ppmodel.schedules.cases import as_case
    >>> open_options(as_case("zb-1p:held=0.5")), open_options(as_case("1f1b"))
    (['times'], [])
    """
    return [name for name in SEARCHED if name in case.known_options and name not in dict(case.options)]


def ordered_case(point):
    """Set the open options of a point's case so that its order is searched for the point.

    Parameters
    ----------
    point : Point
        Its change applies, except that a network switched off by the change is kept: orders are searched for their
        network.

    Returns
    -------
    Case
        With the options ``times``, of the mean stage and of a transfer, in forwards, and ``held``, the fraction of all
        stages' activations that weight gradients need, which requires a model; both to four digits. Other schedules,
        and options that are set, are unchanged.

    Raises
    ------
    PPModelError
        If the schedule is not defined at the size, it has no costs, or an operation takes no time or far less than
        another, so that there is no order to search for.

    Examples
    --------
    >>> from ppmodel.studies.points.point import Point
    >>> from ppmodel.schedules.cases import as_case
    >>> ordered_case(Point(as_case("zb-1p"), (4, 8), seconds={"forward": 2, "backward": 3, "comm": 0.1})).options
    (('times', (1, 0.75, 0.75, 0.05)),)
    """
    case = point.case
    missing = open_options(case)
    if not missing:
        return case
    table, texts = built(case, *point.size), {}
    costs = replace(point, change=replace(point.change, network=True)).costs_of(table)
    if "times" in missing:
        seconds = costs.compute_s.mean(axis=1)[[OpKind.F, OpKind.I, OpKind.W]]
        transfer_s = (costs.occupancy_s + costs.latency_s)[OpKind.F].mean() * table.pieces_per_unit
        if not (seconds.all() and max(*seconds, transfer_s) < _FARTHEST * seconds.min()):
            rule = f"leave nothing to search an order of {case.name} for, if one is 0 or far above the others"
            field = "times of forward and halves of the backward, and of a transfer"
            value = ", ".join(f"{time_s:.4g}" for time_s in (*seconds, transfer_s))
            raise CostError(field, value, rule, "set the option times")
        texts["times"] = ":".join(f"{time_s / seconds[0]:.4g}" for time_s in (*seconds, transfer_s))
    if "held" in missing and point.model is not None:
        stage_bytes, held_share = activation_bytes(costs.stages)
        total_bytes = stage_bytes.sum()
        texts["held"] = f"{(stage_bytes * held_share).sum() / total_bytes:.4g}" if total_bytes else "1"
    return case.with_options(texts)


def least_activations(case, num_microbatches, kept, held):
    """Lower bounds on the peak activations of each rank, whatever order is found; 0 where none is searched.

    Before its first input gradient can be back, a rank runs at least one forward for itself and for each later rank,
    in any order that is tried within the usual limit; and a weight gradient needs its share from then on.

    Parameters
    ----------
    case : Case
    num_microbatches : int
    kept, held : ndarray of float, shape (..., num_ranks)
        As from `clusters.memory.activation_bytes`.

    Returns
    -------
    ndarray of float, shape (..., num_ranks), or 0.0

    Examples
    --------
    >>> from ppmodel.schedules.cases import as_case
    >>> least_activations(as_case("zb-1p"), 8, np.ones(4), np.array([0.5, 0.5, 1.5, 1.5])).tolist()
    [4.0, 3.0, 2.5, 1.5]
    """
    if not open_options(case) or dict(case.options).keys() & {"limit", "delays"}:
        return 0.0
    later = np.arange(kept.shape[-1])[::-1]
    return kept * (np.minimum(later, num_microbatches - 1) + np.maximum(held, 1))


def prepare_search(points):
    """Load compiled code if some points together need a long search for their orders."""
    prepare(_SEARCH * sum(prod(point.size) for point in points if open_options(point.case)))


def ordered_for(point):
    """Values that an order was searched for, as text: ``times=1:1.16:0.72:0.05 held=0.62``; None if nothing was open.

    Parameters
    ----------
    point : Point

    Returns
    -------
    str or None
    """
    searched = open_options(point.case)
    options = {name: value for name, value in point.ordered_case.options if name in searched}
    return " ".join(f"{name}={option_text(options[name])}" for name in SEARCHED if name in options) or None
