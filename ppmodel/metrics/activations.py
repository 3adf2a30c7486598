"""Activations that ranks hold for the backward: their peak, and what they hold at every moment."""

import numpy as np

from ppmodel.loops.compiled import VECTORISED
from ppmodel.loops.tables import peaks
from ppmodel.ops import OpKind


def peak_activations(
    schedule, stage_weights=None, held_for_weight_grad=None, unit_weights=None, shard_weights=None
):  # fmt: skip
    """Peak activations of each rank, which depend only on the order of its operations.

    A forward allocates its stage's activations, and the backward frees them. If the backward is split, the input
    gradient leaves a fraction of them, which the weight gradient frees. In a cell with several operations, all
    allocations come before any release.

    Parameters
    ----------
    schedule : Schedule
        The table.
    stage_weights : array of float, shape (num_stages,) or (num_runs, num_stages), optional
        Size of one microbatch's activations on each stage, as the table counts microbatches; by
        default, in units of one microbatch on 1/S of the model.
    held_for_weight_grad : float or array of float, shape (num_stages,), optional
        Fraction of a stage's activations held between the halves (M_W / M_B of Qi et al., 2024); above 1 if gradients
        that are kept outweigh activations that are recomputed. By default, that of the table: 1, unless its order was
        searched for another value.
    unit_weights : ndarray of float, shape (n,), optional
        Size of each unit of work relative to their mean, as `Units.tokens`; all are alike without it.
    shard_weights : ndarray of float, shape (num_stages,), optional
        What each shard of a divided output layer holds from S to T, in the unit of `stage_weights`.

    Returns
    -------
    ndarray of float, shape (num_ranks,) or (num_runs, num_ranks)
        In the unit of `stage_weights`.

    Examples
    --------
    >>> from ppmodel import build
    >>> peak_activations(build("1f1b", 4, 8)).tolist()
    [4.0, 3.0, 2.0, 1.0]
    """
    if unit_weights is None and (fast := peaks.compiled(schedule.num_operations // VECTORISED)):
        changes, unit = _changes(schedule, stage_weights, held_for_weight_grad, shard_weights)
        many = changes.reshape(len(OpKind), -1, schedule.num_stages)
        of_ranks = fast(schedule.kind, schedule.stage, schedule.joined, schedule.rank_start, many)
        if of_ranks.size:
            return of_ranks.reshape(*changes.shape[1:-1], -1) / unit
    if np.ndim(stage_weights) == 2:
        runs = zip(*np.broadcast_arrays(stage_weights, held_for_weight_grad), strict=True)
        return np.array([peak_activations(schedule, *run) for run in runs])
    first_cell = schedule.cell[schedule.rank_start[:-1]]
    in_use = activations_in_use(schedule, stage_weights, held_for_weight_grad, unit_weights, shard_weights)
    return np.maximum.reduceat(in_use[0], first_cell)


def activations_in_use(
    schedule, stage_weights=None, held_for_weight_grad=None, unit_weights=None, shard_weights=None
):  # fmt: skip
    """Activations that a rank holds during and after each of its cells.

    Parameters
    ----------
    schedule, stage_weights, held_for_weight_grad, unit_weights, shard_weights
        As in `peak_activations`.

    Returns
    -------
    during, after : ndarray of float, shape (num_cells,)
        In the unit of `stage_weights`, in the order of `Schedule.cell`.

    Examples
    --------
    >>> from ppmodel import build
    >>> during, after = activations_in_use(build("1f1b", 1, 2))
    >>> during.tolist(), after.tolist()
    ([1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 1.0, 0.0])
    """
    changes, unit = _changes(schedule, stage_weights, held_for_weight_grad, shard_weights)
    change, cell = changes[schedule.kind, schedule.stage], schedule.cell
    if unit_weights is not None:
        change = change * unit_weights[schedule.microbatch % len(unit_weights)]
    taken = np.bincount(cell, np.maximum(change, 0))
    given = np.bincount(cell, np.minimum(change, 0))
    first_cell = cell[schedule.rank_start[:-1]]
    level = np.cumsum(taken + given) - (taken + given)  # ranks one after another; each ends where it began
    before = level - np.repeat(level[first_cell], np.diff(first_cell, append=len(taken)))
    return (before + taken) / unit, (before + taken + given) / unit


def _changes(schedule, stage_weights, held_for_weight_grad, shard_weights):
    """Change that an operation makes, by kind and stage: allocated, or freed if negative; and a divisor of sums.

    Whole stages are summed before dividing, so that units stay exact.
    """
    is_in_units = stage_weights is None
    weights = np.asarray(schedule.stage_shares if is_in_units else stage_weights, dtype=float)
    held = schedule.held_for_weight_grad if held_for_weight_grad is None else held_for_weight_grad
    changes = np.zeros((len(OpKind), *weights.shape))
    changes[OpKind.F], changes[OpKind.B] = weights, -weights
    changes[OpKind.I], changes[OpKind.W] = held * weights - weights, -held * weights
    changes[OpKind.S] = 0.0 if shard_weights is None else shard_weights
    changes[OpKind.T] = -changes[OpKind.S]
    return changes, schedule.pieces_per_unit if is_in_units else 1.0


def gathered_peaks(schedule, stage_bytes=None):
    """Most of the weights that each rank has gathered at a time, which depends only on the order of its operations.

    Parameters
    ----------
    schedule : Schedule
        The table, with gathers.
    stage_bytes : array of float, shape (num_stages,), optional
        Size of each stage's weights; by default, its share of 1/S of the model.

    Returns
    -------
    ndarray of float, shape (num_ranks,)

    Examples
    --------
    >>> from ppmodel import build
    >>> table = build("interleaved-1f1b", 2, 4, chunks=4)
    >>> [gathered_peaks(table.with_gathers(lookahead=count)).tolist() for count in (1, 3)]
    [[0.25, 0.25], [0.75, 0.75]]
    """
    sizes = schedule.stage_shares / schedule.chunks_per_rank if stage_bytes is None else np.asarray(stage_bytes)
    change = sizes[schedule.stage] * ((schedule.kind == OpKind.G) - 1.0 * (schedule.kind == OpKind.D))
    level, first = np.cumsum(change), schedule.rank_start[:-1]
    return np.maximum.reduceat(level, first) - (level[first] - change[first])


def offloaded_peaks(timeline, stage_weights, held_for_weight_grad=None, shard_weights=None):
    """Peak activations of each rank if some are copied to the host, which depend on the times.

    Memory is freed when a copy out ends, and allocated again when the copy back starts: over a slow link, larger copies
    may hold more at the peak. Everything else is as in `peak_activations`, which the peak never exceeds.

    Parameters
    ----------
    timeline : Timeline
        A run that offloads.
    stage_weights, held_for_weight_grad, shard_weights
        As in `peak_activations`.

    Returns
    -------
    ndarray of float, shape (num_ranks,)
        In the unit of `stage_weights`.
    """
    weights = stage_weights, held_for_weight_grad, shard_weights
    return np.array([held.max() for _, held in offloaded_levels(timeline, *weights)])


def offloaded_levels(timeline, stage_weights, held_for_weight_grad=None, shard_weights=None):
    """Follow what each rank holds while it offloads, at every moment at which that changes.

    Parameters
    ----------
    timeline, stage_weights, held_for_weight_grad, shard_weights
        As in `offloaded_peaks`.

    Yields
    ------
    time_s, level : ndarray of float
        For a rank, in order of time: seconds, and what it holds from then on.
    """
    schedule, copies = timeline.graph.schedule, timeline.copies
    during, after = activations_in_use(schedule, stage_weights, held_for_weight_grad, None, shard_weights)
    size = np.zeros(schedule.num_operations)
    size[copies.forward] = copies.share * np.asarray(stage_weights, dtype=float)[schedule.stage[copies.forward]]
    first, (_, gone, back, _) = np.flatnonzero(~schedule.joined), timeline.copied_s
    begin, end = timeline.start_s[first], timeline.end_s[first]
    computing = schedule.computes[first]
    for rank in range(schedule.num_ranks):
        cells = np.flatnonzero(computing & (schedule.rank[first] == rank))
        ops = np.flatnonzero((schedule.rank == rank) & ~np.isnan(gone))
        # on the host when each cell starts; what a cell needs is back, however short the cell
        from_cell = np.searchsorted(begin[cells], gone[ops])
        from_cell = np.maximum(from_cell, np.searchsorted(cells, schedule.cell[ops]) + 1)
        to_cell = np.maximum(np.searchsorted(begin[cells], back[ops]), from_cell)
        changes = [np.bincount(place, size[ops], len(cells) + 1) for place in (from_cell, to_cell)]
        away = np.cumsum(changes[0] - changes[1])[:-1]
        times = np.concatenate([end[cells], gone[ops], back[ops]])
        inside = np.searchsorted(begin[cells], times, side="right") - 1
        level = np.where(times < end[cells][inside], during[cells][inside], after[cells][inside])
        level -= _until(gone[ops], size[ops], times) - _until(back[ops], size[ops], times)
        times, level = np.append(times, begin[cells]), np.append(level, during[cells] - away)
        order = np.argsort(times, kind="stable")  # at equal times: ends of cells and copies, copies back, starts
        yield times[order], level[order]


def _until(times, sizes, when):
    """The sum of the sizes whose times have passed."""
    order = np.argsort(times, kind="stable")
    return np.append(0.0, np.cumsum(sizes[order]))[np.searchsorted(times[order], when, side="right")]
