"""Exchanges of each rank with its peers between two cells, if a transfer occupies both ends at once."""

import numpy as np

from ppmodel.tables import NO_OPERATION


def exchanges_of(graph):
    """Compute the program of every stream under ``rendezvous``: phases of message batches followed by a group.

    Between two cells, a rank sends the results of the first, in order, and then receives what the second needs, in
    order. All messages with the same peer form one batch, at the position of the first of them.

    Parameters
    ----------
    graph : ExecutionGraph

    Returns
    -------
    phase_start : ndarray of 32-bit int, as all others, shape (num_streams + 1,)
        The phases of each stream; its last one has no group.
    first_batch : ndarray of int, shape (num_phases + 1,)
        The batches of each phase.
    batch_start : ndarray of int, shape (num_batches + 1,)
        The messages of each batch.
    message : ndarray of int, shape (2 * num_messages,)
        Operations; the result of each is in a batch of its sender and in one of its receiver.
    taken_in : ndarray of int, shape (num_operations,)
        The receiver's batch that contains it, or ``NO_OPERATION``.
    """
    num_streams, (_, start, place) = 2 * graph.schedule.num_ranks, graph.programs
    phase_of, phase_start = place + graph.stream, start + np.arange(num_streams + 1)  # one more phase than groups each

    takers = np.flatnonzero(graph.remote)
    makers = graph.source[takers]
    receives = np.repeat([False, True], len(takers))
    phase = np.append(phase_of[makers] + 1, phase_of[takers])
    peer = np.append(graph.stream[takers], graph.stream[makers])
    in_order = np.lexsort((np.append(graph.index[makers], graph.index[takers]), receives, phase))
    _, first, alike = np.unique((phase * num_streams + peer)[in_order], return_index=True, return_inverse=True)
    by_batch = np.argsort(first[alike], kind="stable")
    in_order, begins = in_order[by_batch], np.diff(first[alike][by_batch], prepend=-1) != 0
    message, batch = np.append(makers, makers)[in_order], np.cumsum(begins) - 1
    taken_in = np.full(graph.num_operations, NO_OPERATION)
    taken_in[message[receives[in_order]]] = batch[receives[in_order]]
    first_batch = np.searchsorted(phase[in_order][begins], np.arange(phase_start[-1] + 1))
    batch_start = np.append(np.flatnonzero(begins), len(message))
    columns = (phase_start, first_batch, batch_start, message, taken_in)
    return tuple(column.astype(np.int32) for column in columns)
