"""Dependencies: derived from a table once, used by every level of evaluation."""

from typing import NamedTuple

import numpy as np

from ppmodel.loops.tables import dependencies, ordered
from ppmodel.ops import OpKind
from ppmodel.tables.further import OF_SHARDS, barriers, waits_for_gathers, with_barriers, with_inputs
from ppmodel.tables.levels import NO_OPERATION, by_keys, levels_of

_COMPUTE_KINDS = int(OpKind.R)  # kinds below this belong to a microbatch


class Dependencies(NamedTuple):
    """The dependencies of a table, derived once and used by every level of evaluation.

    Attributes
    ----------
    source : ndarray of int, shape (num_operations,)
        The operation that produces each operation's input, or ``NO_OPERATION``.
    remote : ndarray of bool, shape (num_operations,)
        Whether that input is a message from another rank. What a shard of the output layer needs or gives is none: its
        collectives run beside the ranks.
    group : ndarray of int, shape (num_operations,)
        Operations in a group start and end together: those of a cell, or the replicas of a reduction.
    order : ndarray of int
        The operations by level of their group, then by group, so each comes after everything it needs; without
        optimizer steps, since all other operations end before the first of them starts.
    further : ndarray of int, shape (2, num_further_inputs), or None
        Operations that need more than one result, and those that produce what they need beside that of `source`.
        Numbers from num_operations on are of barriers; see `tables.further.barriers`.
    """

    source: np.ndarray
    remote: np.ndarray
    group: np.ndarray
    order: np.ndarray
    further: np.ndarray | None = None


def frozen(value):
    """Make an array, or all arrays of a tuple, read-only: whoever asks for them later gets the same ones.

    >>> frozen(np.zeros(2)).flags.writeable
    False
    """
    for array in value if isinstance(value, tuple) else (value,):
        if isinstance(array, np.ndarray):
            array.setflags(write=False)
    return value


def dependencies_of(schedule):
    """Compute the `Dependencies` of a table and each operation's level, ``NO_OPERATION`` if it waits forever."""
    group = np.arange(schedule.num_operations, dtype=np.int32) if not schedule.joined.any() else schedule.cell.copy()
    sums, further = np.flatnonzero(schedule.kind == OpKind.R), None
    first = np.full(schedule.num_stages, schedule.num_operations)
    np.minimum.at(first, schedule.stage[sums], group[sums])
    group[sums] = first[schedule.stage[sums]]
    fast = dependencies.compiled(schedule.num_operations)
    if fast and not schedule.has_shards:
        sizes = (schedule.num_replicas, schedule.num_stages, schedule.table_microbatches)
        operations = (schedule.kind, schedule.stage, schedule.microbatch, schedule.replica, schedule.rank)
        source, remote, level, order = fast(*operations, schedule.rank_start, group, shares_groups(schedule), sizes)
    else:
        source, further = sources(schedule)
        remote = (source != NO_OPERATION) & (schedule.rank[source] != schedule.rank)
        remote &= np.isin(schedule.kind, OF_SHARDS) == np.isin(schedule.kind[source], OF_SHARDS)
        level, order = in_levels(source, group, schedule.rank, schedule.num_ranks, further)
        order = order[(schedule.kind[order] != OpKind.O) & (level[order] != NO_OPERATION)].astype(np.int32)
    if schedule.gathers:
        gathers = waits_for_gathers(schedule, source)
        further = gathers if further is None else np.append(further, gathers, axis=1)
    return frozen(Dependencies(source, remote, group, order, further)), level


def in_levels(source, group, rank, num_ranks, further=None):
    """Compute the level of each operation, and their order, from dependencies; operations are sorted by rank."""
    if further is not None:  # each further input is one of the operations of its group
        rows, needed, own = with_inputs(source, further)
        group, rank, num_ranks = with_barriers(group, rank, num_ranks, len(own))
        level, order = in_levels(needed, group[rows], rank[rows], num_ranks)
        return level[own[: len(source)]], rows[order][np.isin(order, own[: len(source)])]
    columns = [column.astype(np.int32) for column in (source, group, rank)]
    start = np.searchsorted(rank, np.arange(num_ranks + 1))
    fast = ordered.compiled(len(rank))
    if fast:
        return fast(*columns, start)
    level = levels_of(rank, source, group)
    return level, by_keys(level + 1, group)


def index_of(schedule):
    """The index of each compute operation, shape (kinds, replicas, stages, microbatches)."""
    shape = (_COMPUTE_KINDS, schedule.num_replicas, schedule.num_stages, schedule.table_microbatches)
    index = np.full(shape, NO_OPERATION, dtype=np.int32)
    computing = np.flatnonzero(schedule.computes)
    where = (schedule.kind, schedule.replica, schedule.stage, schedule.microbatch)
    index[tuple(a[computing] for a in where)] = computing
    return index


def sources(schedule):
    """The operation whose result each operation needs, and the `Dependencies.further` of barriers."""
    index = index_of(schedule)
    gradient = np.where(index[OpKind.B] == NO_OPERATION, index[OpKind.I], index[OpKind.B])
    needed = np.full_like(index, NO_OPERATION)
    needed[OpKind.F, :, 1:] = index[OpKind.F, :, :-1]
    for kind in (OpKind.B, OpKind.I):
        needed[kind, :, :-1] = gradient[:, 1:]
        needed[kind, :, -1] = index[OpKind.F, :, -1]
    needed[OpKind.W] = index[OpKind.I]
    source = np.full(schedule.num_operations, NO_OPERATION, dtype=np.int32)
    exists = index != NO_OPERATION
    source[index[exists]] = needed[exists]
    finished = last_gradients(schedule)
    for kind in (OpKind.R, OpKind.O):  # a step needs the stage's reduction or, without one, its gradients
        operations = np.flatnonzero(schedule.kind == kind)
        source[operations] = finished[schedule.replica[operations], schedule.stage[operations]]
        finished[schedule.replica[operations], schedule.stage[operations]] = operations
    return source, barriers(schedule, source, index[:, 0], gradient[0, -1]) if schedule.has_shards else None


def last_gradients(schedule):
    """The operation that finishes the gradients of each stage: its last backward, or T; shape (replicas, stages)."""
    last, kind = np.full(schedule.placement.size, NO_OPERATION, dtype=np.int32), schedule.kind
    gradients = np.flatnonzero((kind == OpKind.B) | (kind == OpKind.W) | (kind == OpKind.T))
    home = schedule.replica * schedule.num_stages + schedule.stage
    last[home[gradients]] = gradients  # the last one of each remains
    return last.reshape(schedule.placement.shape)


def shares_groups(schedule):
    """Check if operations may share a group: in a cell, or as replicas of a reduction."""
    return bool(schedule.joined.any() or schedule.reduces)
