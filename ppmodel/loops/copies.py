"""Copies to the host and back, as parts of the loops that simulate a run; see `simulation.copies`."""

from ppmodel.loops.compiled import inlined

NONE = -1
ABSENT = -2.0
"""Instead of the seconds of a copy, of a task that is not an operation."""


@inlined
def brought_back(first, last, stream, ended, copies, in_free, copied):
    """Start the copies back that begin with a cell, and return when all that the cell needs is there.

    `ended` is the end of the cell before it on each stream, and `in_free` the time from which each copies back.
    """
    seconds, needs, fetch_start, fetch_stop, fetch = copies
    there = 0.0
    for op in range(first, last):
        for place in range(fetch_start[op], fetch_stop[op]):
            forward, lane = fetch[place], stream[op]
            copied[2][forward] = max(ended[lane], copied[1][forward], in_free[lane])
            copied[3][forward] = in_free[lane] = copied[2][forward] + seconds[forward]
    for op in range(first, last):
        if needs[op] != NONE:
            there = max(there, copied[3][needs[op]])
    return there


@inlined
def copied_out(op, lane, end, seconds, out_free, copied):
    """Start the copy of an operation's activations, if they are copied, once its stream of copies is free."""
    if seconds[op] >= 0:
        copied[0][op] = max(end, out_free[lane])
        copied[1][op] = out_free[lane] = copied[0][op] + seconds[op]
