"""The order in which ranks issue operations and transfers, if both are kernels on streams."""

import numpy as np

from ppmodel.tables import NO_OPERATION

_PLANNED = {
    "forward": 1000, "backward": 2000, "input_grad": 1000, "weight_grad": 1000, "reduction": 0, "optimizer": 0,
    "message": 1,
}  # fmt: skip
"""Slots of the plan by which ranks issue: a message takes nearly none, so that it decides only between equals."""


def issue_order(graph):
    """Compute the order in which ranks issue groups and both ends of transfers; it does not depend on costs.

    Each rank issues by the table's planned times, see `_PLANNED`: an operation at its start, and a message at its
    producer's end, at equal times before operations and by producer. But a receive that is due while the operation
    right before it is still planned to run, or just ends, is issued before that operation.

    Parameters
    ----------
    graph : ExecutionGraph

    Returns
    -------
    issued : ndarray of int, shape (num_groups + num_messages,)
        In an order that agrees with that of every rank: a group's number, or ``-1 - operation`` for both ends of the
        message with that operation's result.
    receiver : ndarray of int, shape (num_operations,)
        The rank that receives an operation's result, or ``NO_OPERATION``.
    pair : ndarray of int, shape (num_operations,)
        The number of the two ranks between which that message goes, or ``NO_OPERATION``.
    num_pairs : int
    """
    begin, end = (times[graph.index] for times in graph.schedule.slots(**_PLANNED))
    group = np.repeat(np.arange(len(graph.group_start) - 1), np.diff(graph.group_start))
    makers, takers = graph.source[graph.remote], np.flatnonzero(graph.remote)
    due, number, count = end[makers], graph.index[makers], graph.num_operations

    # what each rank issues, in order: operations, sends, receives; and what stands before each run of receives
    ranks = np.concatenate((graph.stream, graph.stream[makers], graph.stream[takers]))
    times, ties = np.concatenate((begin, due, due)), np.concatenate((group, number, number))
    order = np.lexsort((ties, np.arange(len(ranks)) < count, times, ranks))
    receives = order >= count + len(makers)
    places = np.arange(len(order))
    before = order[np.maximum.accumulate(np.where(receives, 0, places))]
    message, operation = order[receives] - count - len(makers), before[receives]
    exchanged = (operation < count) & (ranks[operation] == ranks[order[receives]])
    message, operation = message[exchanged], operation[exchanged]
    running = (due[message] <= end[operation]) & ~graph.reduces[operation]
    message, operation = message[running], group[operation[running]]

    at, behind = begin[graph.group_start[:-1]], np.full(len(graph.group_start) - 1, len(graph.schedule.kind))
    at[operation], behind[operation] = due[message], number[message]  # of several receives, the last remains
    issued = np.concatenate((np.arange(len(at)), -1 - makers))
    is_group = issued >= 0
    keys = np.maximum(issued, 0), is_group, np.concatenate((behind, number)), np.concatenate((at, due))
    receiver, pair = np.full((2, count), NO_OPERATION)
    receiver[makers] = graph.stream[takers]
    ends = np.sort((graph.stream[makers], graph.stream[takers]), axis=0)
    used, pair[makers] = np.unique(ends[0] * graph.schedule.num_ranks + ends[1], return_inverse=True)
    return issued[np.lexsort(keys)], receiver, pair, len(used)
