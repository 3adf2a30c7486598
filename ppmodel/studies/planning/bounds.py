"""Lower bounds on the time of candidates, below which no simulation can come."""

from functools import cache

import numpy as np

from ppmodel.clusters.costs.pairs import contention
from ppmodel.clusters.memory import on_ranks
from ppmodel.schedules import names, small

_ROUNDING = 1 - 1e-12


@cache
def _has_pairs(name):
    """Return whether a schedule has cells of two operations."""
    return bool(small(name).joined.any())


def _paired_s(computing_s, exchanged_s, system):
    """The least seconds of cells of two operations: neither stream has less work, and each slows the other down."""
    shorter, longer = np.sort([computing_s, exchanged_s], axis=0)
    return longer + (contention(system) - 1) * shorter


def mean_bounds(whole, split, system):
    """Lower bounds on the seconds of a microbatch through a whole model: in general, and in cells of two operations.

    The most loaded rank computes at least as long as the mean of all ranks, without recomputation.

    Parameters
    ----------
    whole, split : Stages
        The model as one stage, with whole and with split backwards.
    system : SystemSpec

    Returns
    -------
    ndarray of float, shape (2, num_candidates)
    """
    both_s = np.minimum(*(of_stages.parts_s.sum(axis=(1, 2, 3)) for of_stages in (whole, split)))
    computing_s = split.parts_s[..., 0].sum(axis=(1, 2))
    return np.array([both_s, _paired_s(computing_s, both_s - computing_s, system)])


@cache
def bound_of(case):
    """The place of a schedule's bound in `mean_bounds`; None if it has none."""
    if case.name not in names() or case.user_entry or "concat" in dict(case.options):  # two microbatches
        return None
    return int(_has_pairs(case.name))


def busy_bounds(placement, of_stages, microbatches, slices, is_split, is_paired, system):
    """Lower bounds on the seconds of an iteration.

    Parameters
    ----------
    placement : ndarray of int, shape (num_replicas, num_stages)
    of_stages : Stages
        Of many candidates with this placement.
    microbatches : ndarray of float, shape (num_candidates,)
        Of each replica of the table.
    slices : ndarray of int, shape (num_candidates,)
        Of each microbatch.
    is_split, is_paired : ndarray of bool, shape (num_candidates,)
        Whether backwards are split, and whether some cells hold two operations.
    system : SystemSpec

    Returns
    -------
    ndarray of float, shape (num_candidates,)

    Notes
    -----
    All work of a rank comes after the forwards of the stages before its first one. A whole backward is followed by
    those of the stages before it, then every rank has its optimizer step; split backwards may leave the weight
    gradients for last. Cells of two operations may hide collectives.
    """
    computing_s, whole_s = of_stages.parts_s[..., 0], of_stages.parts_s.sum(axis=-1)
    split, paired = is_split[:, None], is_paired[:, None]
    columns = computing_s.sum(axis=-1), (whole_s - computing_s).sum(axis=-1), whole_s[..., 2] * split
    computing, exchanged, late = (microbatches[:, None] * on_ranks(placement, column) for column in columns)
    work = np.where(paired, _paired_s(computing, exchanged, system), computing + exchanged)
    forward_s, input_s, weight_s = np.moveaxis(np.where(paired[..., None], computing_s, whole_s), -1, 0)
    first = on_ranks(placement, np.arange(placement.shape[1]), np.minimum)
    before_s, after_s = (
        (np.cumsum(column, axis=-1)[:, first] - column[:, first]) / slices[:, None]
        for column in (forward_s, input_s + weight_s * ~split)
    )
    step = on_ranks(placement, of_stages.optimizer_s)
    return _ROUNDING * (before_s + np.maximum(work + step, work - late + after_s)).max(axis=-1)
