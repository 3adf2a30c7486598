"""Operations with several inputs, and what else needs further rows of a graph's arrays.

Each row of `numbering.Arrays` has one input. So an operation's further inputs are rows that take no time, start and end
with it, and carry no message. A barrier holds up all ranks until its collective, which runs beside them, has passed on
the results that it waits for.
"""

import numpy as np

from ppmodel.ops import OpKind
from ppmodel.tables import NO_OPERATION, by_keys

OPERATION, INPUT, MEETING, COPY, COLLECTIVE = range(5)
"""What a row is: an operation, one of its further inputs, a transfer that waits for both ends, a copy to the host or
back, or the collective of a barrier, with the class of the last result that it waits for."""


def with_inputs(arrays, takers, makers, schedule):
    """Add the rows of further inputs to arrays.

    Parameters
    ----------
    arrays : numbering.Arrays
        With one input for each operation, in an order that suits all.
    takers, makers : ndarray of int
        Operations, as numbered there, and a further result that each needs; behind all operations, barriers.
    schedule : Schedule

    Returns
    -------
    Arrays
        With `row`: what each is.
    """
    count, group = len(arrays.index), np.repeat(np.arange(len(arrays.group_start) - 1), np.diff(arrays.group_start))
    # the barrier that takes each further input, and that which makes it: counted from 1, or 0 if an operation does
    taking, making = np.maximum(takers - count + 1, 0), np.maximum(makers - count + 1, 0)
    # a barrier's inputs are a group on a stream of its own, right before the first group that waits for the barrier
    first_waiting = np.full(max(taking.max(), making.max()) + 1, len(arrays.group_start) - 2)
    np.minimum.at(first_waiting, making[making > 0], group[takers[making > 0]])
    anchor = np.where(taking > 0, arrays.group_start[first_waiting[taking]], takers)
    # the last of these inputs is the collective, which others wait for
    collective = np.zeros_like(first_waiting)
    collective[taking] = np.arange(count, count + len(taking))
    row = np.repeat((OPERATION, INPUT), (count, len(taking)))
    row[collective[1:]] = COLLECTIVE
    # all rows: operations, then further inputs
    op, barrier = np.append(np.arange(count), anchor), np.append(np.zeros(count, dtype=int), taking)
    source = np.append(arrays.source, np.where(making > 0, collective[making], makers))
    order = by_keys(2 * op + (barrier == 0), barrier)  # an operation receives its message before it waits
    stream = np.where(barrier > 0, 4 * schedule.num_ranks - 1 + barrier, arrays.stream[op])
    result, nothing = np.where(row == COLLECTIVE, source, op), timeless(schedule)
    of_result = arrays.cost_class[result] + (nothing + 1) * (row == COLLECTIVE)
    columns = {"index": arrays.index[result], "cost_class": np.where(row == INPUT, nothing, of_result)}
    return in_order(arrays, order, (group[op], barrier), op, source, stream=stream, row=row, **columns)


def timeless(schedule):
    """A class of costs that take no time: that of a drop of weights, the last of all operations."""
    return len(OpKind) * schedule.placement.size - 1


def in_order(arrays, order, groups, op, source, **columns):
    """Arrays with further rows, in some order.

    Parameters
    ----------
    arrays : numbering.Arrays
    order : ndarray of int
        The rows in their order; those of `arrays` come first in all other parameters.
    groups : sequence of ndarray of int
        Rows of one group agree in all of these.
    op, source : ndarray of int
        The row of `arrays` whose operation, costs and stream each has, and the row that produces its input.
    **columns
        What differs. Further rows neither send nor receive unless columns say so.

    Returns
    -------
    Arrays
    """
    first = np.flatnonzero(np.any([np.diff(number[order], prepend=-1) != 0 for number in groups], axis=0))
    place = by_keys(order)  # of each row
    kept = {name: getattr(arrays, name)[op] for name in ("index", "cost_class", "stream")}
    for name, nothing in (("remote", False), ("link", NO_OPERATION), ("meets", NO_OPERATION)):
        if getattr(arrays, name) is not None:
            kept[name] = np.append(getattr(arrays, name), np.full(len(op) - len(arrays.index), nothing))
    columns = kept | {"source": np.where(source == NO_OPERATION, NO_OPERATION, place[source])} | columns
    for name, column in columns.items():
        if isinstance(column, np.ndarray):
            columns[name] = column[order].astype(np.int32 if column.dtype.kind == "i" else column.dtype)
    return arrays._replace(**columns, group_start=np.append(first, len(order)).astype(np.int32))
