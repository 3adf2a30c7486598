"""Operations with several inputs, and results that several ranks need: further rows of a graph's arrays.

Each row of `numbering.Arrays` has one input, and sends at most one message. So an operation's further inputs are rows
that take no time and start and end with it, and a result's further messages are sent by rows that take no time and come
right after it on its rank. Each rank receives a result once, when the first of its operations needs it.
"""

import numpy as np

from ppmodel.tables import NO_OPERATION, by_keys

OPERATION, INPUT, RELAY, MEETING, COPY = range(5)
"""What a row is: an operation, one of its further inputs, what sends its result to a further rank, a transfer that
waits for both ends, or a copy to the host or back."""


def with_inputs(arrays, takers, makers, num_ranks):
    """Add the rows of further inputs to arrays, and number links anew.

    Parameters
    ----------
    arrays : numbering.Arrays
        With one input for each operation, in an order that suits all.
    takers, makers : ndarray of int
        Operations, as numbered there, and a further result that each needs.
    num_ranks : int

    Returns
    -------
    Arrays
        With `row`: what each is.
    """
    count, stream = len(arrays.index), arrays.stream
    group = np.repeat(np.arange(len(arrays.group_start) - 1), np.diff(arrays.group_start))
    first = np.flatnonzero(arrays.source != NO_OPERATION)
    takers, makers = np.append(first, takers), np.append(arrays.source[first], makers)
    order = by_keys(makers, takers)
    takers, makers = takers[order], makers[order]
    remote = stream[makers] % num_ranks != stream[takers] % num_ranks
    # each rank receives a result once: of the takers on one stream, the first
    receiver = np.where(remote, makers * 2 * num_ranks + stream[takers], -1 - np.arange(len(takers)))
    received = np.sort(np.unique(receiver, return_index=True)[1])
    takers, makers, remote = takers[received], makers[received], remote[received]
    messages = np.flatnonzero(remote)
    again = np.diff(makers[messages], prepend=-1) == 0
    relayed = makers[messages[again]]
    by_taker = by_keys(takers, stream[makers] >= num_ranks)  # messages are received before gathers are waited for
    further = by_taker[np.diff(takers[by_taker], append=-1) == 0]

    # rows in order: inputs and their operation, a group after the other, each followed by what sends its results on
    op = np.concatenate((takers[further], np.arange(count), relayed))
    row = np.repeat((INPUT, OPERATION, RELAY), (len(further), count, len(relayed)))
    order = by_keys(group[op], row == RELAY, op, row == OPERATION)
    place = np.empty(len(op), dtype=np.int64)
    place[order] = np.arange(len(op))
    taken_by = place[len(further) + takers]
    taken_by[further] = place[: len(further)]
    sent_by = place[len(further) + makers]
    sent_by[messages[again]] = place[len(further) + count :]
    op, row = op[order], row[order]
    (source, link), arrives = np.full((2, len(op)), NO_OPERATION), np.zeros(len(op), dtype=bool)
    source[taken_by], arrives[taken_by] = sent_by, remote
    ends = stream[makers[messages]] * 2 * num_ranks + stream[takers[messages]]
    used, link[sent_by[messages]] = np.unique(ends, return_inverse=True)
    start = np.append(np.flatnonzero((np.diff(group[op], prepend=-1) != 0) | (row == RELAY)), len(op))
    columns = arrays.index[op], arrays.cost_class[op], stream[op], source
    columns = [column.astype(np.int32) for column in (*columns, link, start)]
    return type(arrays)(*columns[:4], arrives, *columns[4:], len(used), row)
