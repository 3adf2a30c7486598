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
    op = np.concatenate((np.arange(count), takers[further], relayed))
    row = np.repeat((OPERATION, INPUT, RELAY), (count, len(further), len(relayed)))
    taken_by, sent_by = takers.copy(), makers.copy()
    taken_by[further], sent_by[messages[again]] = np.flatnonzero(row == INPUT), np.flatnonzero(row == RELAY)
    (source, link), arrives = np.full((2, len(op)), NO_OPERATION), np.zeros(len(op), dtype=bool)
    source[taken_by], arrives[taken_by] = sent_by, remote
    ends = stream[makers[messages]] * 2 * num_ranks + stream[takers[messages]]
    used, link[sent_by[messages]] = np.unique(ends, return_inverse=True)
    order = by_keys(group[op], row == RELAY, op, row == OPERATION)
    begins = (np.diff(group[op][order], prepend=-1) != 0) | (row[order] == RELAY)
    return in_order(arrays, order, begins, op, source, remote=arrives, link=link, row=row, num_links=len(used))


def in_order(arrays, order, begins, op, source, **columns):
    """Arrays with further rows, in an order in which some begin a group.

    Parameters
    ----------
    arrays : numbering.Arrays
    order : ndarray of int
        The rows in their order; those of `arrays` come first in all other parameters.
    begins : ndarray of bool
        In that order.
    op, source : ndarray of int
        The row of `arrays` whose operation, costs and stream each has, and the row that produces its input.
    **columns
        What differs. Further rows neither send nor receive unless columns say so.

    Returns
    -------
    Arrays
    """
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    kept = {name: getattr(arrays, name)[op] for name in ("index", "cost_class", "stream")}
    for name, nothing in (("remote", False), ("link", NO_OPERATION), ("meets", NO_OPERATION)):
        if getattr(arrays, name) is not None:
            kept[name] = np.append(getattr(arrays, name), np.full(len(op) - len(arrays.index), nothing))
    columns = kept | {"source": np.where(source == NO_OPERATION, NO_OPERATION, place[source])} | columns
    for name, column in columns.items():
        if isinstance(column, np.ndarray):
            columns[name] = column[order].astype(np.int32 if column.dtype.kind == "i" else column.dtype)
    return arrays._replace(**columns, group_start=np.append(np.flatnonzero(begins), len(order)).astype(np.int32))
