"""Activations copied to host memory after their forward, and back before their backward."""

from typing import NamedTuple

import numpy as np

WARM_UP, LATER = range(2)
"""Whether a forward runs before the first backward of its rank; indices of the first axis of `Offload`."""


class Offload(NamedTuple):
    """Which activations of a microbatch are copied, and how long that takes.

    Parameters
    ----------
    share : ndarray of float, shape (2, num_replicas, num_stages)
        Fraction of a stage's activations, by whether the forward runs in the warm-up of its rank or later.
    seconds : ndarray of float, shape (2, num_replicas, num_stages)
        Duration of the copy in each direction.
    """

    share: np.ndarray
    seconds: np.ndarray


def offload_of(schedule, kept_bytes, layout, system):
    """Determine what a layout offloads; None if nothing.

    Parameters
    ----------
    schedule : Schedule
        Provides the placement of the stages.
    kept_bytes : ndarray of float, shape (num_stages,)
        Bytes of a microbatch's activations on one GPU.
    layout : LayoutSpec
        Says what is offloaded.
    system : SystemSpec
        Provides the bandwidth to the host.

    Returns
    -------
    Offload or None

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.specs import LayoutSpec, load_system
    >>> offload = offload_of(build("stp", 2, 5), np.ones(4), LayoutSpec(offload=0.5), load_system("a800"))
    >>> offload.share[:, 0].tolist()
    [[0.5, 0.5, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]]
    """
    if not offloads(layout):
        return None
    shares = np.array([layout.offload if layout.offload_warm_up is None else layout.offload_warm_up, layout.offload])
    chosen = first_chunks(schedule) if layout.offload_chunks == "first" else np.ones_like(schedule.placement, bool)
    share = shares[:, None, None] * (chosen & (kept_bytes > 0))
    return Offload(share, share * kept_bytes / system.host_bandwidth_bytes_per_s)


def offloads(layout):
    """Whether a layout offloads anything."""
    return layout.offload > 0 or (layout.offload_warm_up or 0.0) > 0


def first_chunks(schedule):
    """Whether each stage is the first of its replica on its rank; shape (num_replicas, num_stages).

    Examples
    --------
    >>> from ppmodel import build
    >>> first_chunks(build("zb-v", 2, 4)).tolist()
    [[True, True, False, False]]
    """
    first = np.zeros(schedule.placement.shape, dtype=bool)
    for replica, homes in enumerate(schedule.placement):
        first[replica, np.unique(homes, return_index=True)[1]] = True
    return first
