"""What operations wait for beside the result that `Dependencies.source` names: gathers of weights, and barriers."""

import numpy as np

from ppmodel.ops import OpKind
from ppmodel.tables.levels import NO_OPERATION, by_keys

OF_SHARDS = [OpKind.S, OpKind.T]


def waits_for_gathers(schedule, source):
    """Let each gather wait for what its rank computes before it, and return which operations wait for which gathers.

    The order of the table suits both.
    """
    computing, homes = schedule.computes, schedule.replica * schedule.num_stages + schedule.stage
    gathers = np.flatnonzero(schedule.kind == OpKind.G)
    before = np.maximum.accumulate(np.where(computing, np.arange(len(computing)), NO_OPERATION))[gathers]
    source[gathers] = np.where(before < schedule.rank_start[schedule.rank[gathers]], NO_OPERATION, before)
    either = np.flatnonzero(computing | (schedule.kind == OpKind.G))
    either = either[by_keys(homes[either])]
    first = np.flatnonzero((schedule.kind[either[:-1]] == OpKind.G) & (np.diff(homes[either]) == 0)) + 1
    return np.stack((either[first], either[first - 1]))


def barriers(schedule, source, index, gradient):
    """Fill in the sources of what an output layer that is divided among the ranks holds up; return further inputs.

    Each shard's S needs the last stage's forward; its T needs S of all shards. The last stage's backward, `gradient`,
    needs T of all shards if its own rank runs T first, as with two barriers; else S, which has computed the gradient.
    """
    first, grad = (index[kind, : schedule.num_ranks] for kind in OF_SHARDS)
    shard = int(np.flatnonzero(schedule.placement[0, : schedule.num_ranks] == schedule.placement[0, -1])[0])
    given = np.where(grad[shard] < gradient, grad, first)  # what the last stage's backward needs
    source[first] = index[OpKind.F, -1]
    source[grad], source[gradient] = first, given[shard]
    taken = [np.delete(first, rank, axis=0) for rank in range(len(first))] + [np.delete(given, shard, axis=0)]
    takers = [np.broadcast_to(op, some.shape) for op, some in zip((*grad, gradient), taken, strict=True)]
    return np.array([np.concatenate(rows, axis=None) for rows in (takers, taken)])


def with_inputs(source, further):
    """List operations with their inputs, one a row, further ones behind its own.

    Returns
    -------
    op, source, own : ndarray of int
        The operation of each row, and the own row of what it needs, or ``NO_OPERATION``; and each operation's own row.
    """
    op = np.append(np.arange(len(source)), further[0])
    order = by_keys(op)
    place = np.empty(len(op), dtype=np.int64)
    place[order] = np.arange(len(op))
    own, needed = place[: len(source)], np.append(source, further[1])[order]
    return op[order], np.where(needed == NO_OPERATION, NO_OPERATION, own[needed]), own


def inputs_in_order(source, further, order):
    """As `with_inputs`, with the rows of the operations of an order, in that order, instead of own rows."""
    op, needed, _ = with_inputs(source, further)
    place = np.full(len(source), len(order))
    place[order] = np.arange(len(order))
    return op, needed, by_keys(place[op])[: int((place[op] < len(order)).sum())]
