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

    Barriers are numbered behind the operations: each waits for a result of every rank, or for the last stage's forward,
    and others wait for it alone. Each shard's S needs that forward; its T needs S of all shards. The last stage's
    backward, `gradient`, needs T of all shards if its own rank runs T first, as with two barriers; else S, which has
    computed the gradient.
    """
    first, grad = (index[kind, : schedule.num_ranks] for kind in OF_SHARDS)
    shard = int(np.flatnonzero(schedule.placement[0, : schedule.num_ranks] == schedule.placement[0, -1])[0])
    given = np.where(grad[shard] < gradient, grad, first)  # what the last stage's backward needs
    source[first] = index[OpKind.F, -1]
    source[grad], source[gradient] = first, given[shard]
    number, later = np.arange(first.shape[1]), np.flatnonzero(given[shard] != first[shard])
    passed = len(source) + number
    of_shards = passed + len(number)
    of_last = of_shards.copy()
    of_last[later] = len(source) + 2 * len(number) + np.arange(len(later))
    pairs = (
        (passed, index[OpKind.F, -1]), (first, passed), (of_shards, first), (grad, of_shards), (gradient, of_last),
        (of_last[later], grad[:, later]),
    )  # fmt: skip
    return np.concatenate([np.stack(np.broadcast_arrays(*pair)).reshape(2, -1) for pair in pairs], axis=1)


def direct(op, further, count):
    """What an operation waits for by further inputs, of barriers what these wait for, in a list.

    >>> direct(3, np.array([[4, 4, 3, 3], [0, 1, 4, 2]]), 4)
    [2, 0, 1]
    """
    makers = further[1][further[0] == op]
    return [*makers[makers < count].tolist(), *further[1][np.isin(further[0], makers[makers >= count])].tolist()]


def with_inputs(source, further):
    """List operations with their inputs, one a row, further ones behind its own; barriers behind all operations.

    Returns
    -------
    op, source, own : ndarray of int
        The operation of each row, and the own row of what it needs, or ``NO_OPERATION``; and each operation's own row.
    """
    count = max(len(source), further.max() + 1)
    op = np.append(np.arange(count), further[0])
    order = by_keys(op)
    place = by_keys(order)  # of each row
    own, nothing = place[:count], np.full(count - len(source), NO_OPERATION)
    needed = np.concatenate((source, nothing, further[1]))[order]
    return op[order], np.where(needed == NO_OPERATION, NO_OPERATION, own[needed]), own


def with_barriers(group, rank, num_ranks, count):
    """Group and rank of each operation, and of barriers behind them, to a count: each has both of its own."""
    number = np.arange(count - len(group))
    return np.append(group, group.max() + 1 + number), np.append(rank, num_ranks + number), num_ranks + len(number)


def inputs_in_order(source, further, order, group):
    """As `with_inputs`, with the rows of the operations of an order, in that order, instead of own rows.

    A barrier comes right before the first group that waits for it.
    """
    op, needed, own = with_inputs(source, further)
    place, first = np.full(len(own), 2 * len(source)), np.full(len(source), len(order))
    np.minimum.at(first, group[order], np.arange(len(order)))
    place[order] = 2 * np.arange(len(order)) + 1
    waits = further[1] >= len(source)
    np.minimum.at(place, further[1, waits], 2 * first[group[further[0, waits]]])
    return op, needed, by_keys(place[op], op)[: int((place[op] < 2 * len(source)).sum())]
