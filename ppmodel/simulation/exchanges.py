"""Exchanges of each rank with its peers between two cells, if a transfer occupies both ends at once."""

import numpy as np


def exchanges_of(graph):
    """Compute what every stream sends and receives under ``rendezvous``: phases of message batches before each group.

    Between two cells, a rank sends the results of the first, in order, and then receives what the second needs, in
    order. All messages with the same peer form one batch, at the position of the first of them.

    Parameters
    ----------
    graph : ExecutionGraph

    Returns
    -------
    message, stream, phase, batch : ndarray of int, shape (2 * num_messages,)
        Both ends of each message, batch by batch: the operation with that result, the stream that sends or receives it,
        and the numbers of phase and batch. A stream has one more phase than groups.
    sends : ndarray of bool, shape (2 * num_messages,)
    """
    phase_of, takers = graph.programs[1] + graph.stream.astype(np.int64), np.flatnonzero(graph.remote)
    makers = graph.source[takers]
    receives = np.repeat([False, True], len(takers))
    message, phase = np.append(makers, makers), np.append(phase_of[makers] + 1, phase_of[takers])
    stream = graph.stream[np.append(makers, takers)]
    peer = np.roll(stream, len(takers))
    in_order = np.lexsort((np.append(graph.index[makers], graph.index[takers]), receives, phase))
    joint = (phase * (stream.max(initial=0) + 1) + peer)[in_order]
    _, first, alike = np.unique(joint, return_index=True, return_inverse=True)
    by_batch = np.argsort(first[alike], kind="stable")
    batch = np.cumsum(np.diff(first[alike][by_batch], prepend=-1) != 0) - 1
    in_order = in_order[by_batch]
    return *(column[in_order] for column in (message, stream, phase)), batch, ~receives[in_order]
