"""Collectives that a table leaves exposed: those of operations alone in their cell."""

import numpy as np

from ppmodel.ops import OpKind


def exposed_passes(schedule):
    """Count each rank's forwards and input gradients that run alone, so nothing hides their collectives.

    A full backward runs its collectives under its own weight gradients, and a weight gradient has none. Multiplied by
    the all-reduces of one pass over a stage, this is the tensor-parallel bubble of Qi et al., 2025 (arXiv:2510.27257).

    Parameters
    ----------
    schedule : Schedule
        The table.

    Returns
    -------
    ndarray of int, shape (num_ranks,)

    Examples
    --------
    >>> from ppmodel import build
    >>> exposed_passes(build("stp", 4, 12)).tolist(), exposed_passes(build("zb-v", 4, 12)).tolist()
    ([9, 10, 11, 12], [48, 48, 48, 48])
    """
    alone = ~schedule.joined & ~np.append(schedule.joined[1:], False)
    exposed = alone & ((schedule.kind == OpKind.F) | (schedule.kind == OpKind.I))
    return np.bincount(schedule.rank[exposed], minlength=schedule.num_ranks)
