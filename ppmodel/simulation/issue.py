"""The order in which ranks issue operations and transfers, if both are kernels on streams."""

import numpy as np

from ppmodel.loops.tables import group_slots
from ppmodel.tables.dependencies import NO_OPERATION, frozen

_PLANNED = np.array((1000, 2000, 1000, 1000, 1000, 1000, 0, 0, 0, 0))
"""Slots of each `OpKind` in the plan by which ranks issue; a message takes one, which decides only between equals."""


def issue_order(graph):
    """Compute the order in which ranks issue groups and both ends of transfers; it does not depend on costs.

    Each rank issues by planned times, see `_PLANNED`: an operation at its start, and a message at its producer's end,
    at equal times before operations and by producer. But a receive that is due while the operation right before it is
    still planned to run, or just ends, is issued before that operation.

    Parameters
    ----------
    graph : ExecutionGraph

    Returns
    -------
    issued : ndarray of int, shape (num_groups + num_messages,)
        In an order that agrees with that of every rank: a group's number, or ``-1 - operation`` for both ends of the
        message with that operation's result.
    pair : ndarray of int, shape (num_operations,)
        The number of the two ranks between which that message goes, or ``NO_OPERATION``.
    num_pairs : int
    """
    count, num_groups, group = graph.num_operations, len(graph.group_start) - 1, graph.group
    planned = _PLANNED[graph.schedule.kind[graph.index]] * graph.is_operation
    length = np.bincount(group, planned, num_groups).astype(np.int64)
    plan = np.zeros((2, num_groups), dtype=np.int64)
    columns = (graph.source, graph.remote, graph.stream, group, np.arange(count))
    columns = (frozen(column.astype(np.int32)) for column in columns)  # as a table's, for which the loop is compiled
    group_slots.run(count, length, *columns, graph.num_streams, plan)
    begin, end = plan[:, group]
    makers, takers = graph.source[graph.remote], np.flatnonzero(graph.remote)
    due, number = end[makers], graph.index[makers]

    # what each rank issues, in order: operations, sends, receives; and what stands before each run of receives
    ranks = np.concatenate((graph.stream, graph.stream[makers], graph.stream[takers]))
    times, ties = np.concatenate((begin, due, due)), np.concatenate((group, number, number))
    order = np.lexsort((ties, np.arange(len(ranks)) < count, times, ranks))
    receives = order >= count + len(makers)
    before = order[np.maximum.accumulate(np.where(receives, 0, np.arange(len(order))))]
    message, operation = order[receives] - count - len(makers), before[receives]
    exchanged = (operation < count) & (ranks[operation] == ranks[order[receives]])
    message, operation = message[exchanged], operation[exchanged]
    running = (due[message] <= end[operation]) & ~graph.reduces[operation]
    message, operation = message[running], group[operation[running]]

    # one order for all ranks: such an operation comes right behind the last receive that is issued before it
    at, behind = plan[0].copy(), np.full(num_groups, graph.schedule.num_operations)
    at[operation], behind[operation] = due[message], number[message]  # of several receives, the last remains
    issued = np.concatenate((np.arange(num_groups), -1 - makers))
    keys = np.maximum(issued, 0), issued >= 0, np.concatenate((behind, number)), np.concatenate((at, due))
    pair = np.full(count, NO_OPERATION)
    ends = np.sort((graph.stream[makers], graph.stream[takers]), axis=0)
    used, pair[makers] = np.unique(ends[0] * graph.schedule.num_ranks + ends[1], return_inverse=True)
    return issued[np.lexsort(keys)].astype(np.int32), pair.astype(np.int32), len(used)
