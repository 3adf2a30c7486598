"""Device orders that are phases of a repeated pattern; what the schedules on the V placement are written in.

On the V placement a device holds two stages, chunk 0 on the way down and chunk 1 on the way up; where there are two
replicas instead, they take the place of the chunks. A pattern names kinds and chunks, ``F0 I1 W1``; microbatches are
counted, and cells of two are joined by ``&``.
"""

from functools import lru_cache

import numpy as np

from ppmodel.ops import OpKind

OLDEST = -1
"""The chunk of a weight gradient that is whichever has waited longest: a ``W`` without a number."""


def v_placement(num_devices):
    """The device of each of 2 S stages: down the devices and up again.

    Parameters
    ----------
    num_devices : int
        Devices, S.

    Returns
    -------
    ndarray of int, shape (2 S,)

    Examples
    --------
    >>> v_placement(3).tolist()
    [0, 1, 2, 2, 1, 0]
    """
    down = np.arange(num_devices)
    return np.concatenate((down, down[::-1]))


def program(phases):
    """One device's operations, of phases that each repeat a pattern.

    Parameters
    ----------
    phases : sequence of (str, int)
        Pattern and how often it runs. A number after a kind is the chunk; a ``W`` without one is the oldest
        input gradient's that is still owed.

    Returns
    -------
    kind, chunk, microbatch : ndarray of int, shape (num_operations,)
        A chunk's forwards, backwards (whole or input gradients) and weight gradients each count from 0.
    joined : ndarray of bool, shape (num_operations,)
        Whether an operation shares the cell of the one before it.

    Examples
    --------
    >>> kind, chunk, microbatch, joined = program([("F0", 2), ("F1&B0", 2)])
    >>> kind.tolist(), microbatch.tolist(), joined.tolist()
    ([0, 0, 0, 1, 0, 1], [0, 1, 0, 0, 1, 1], [False, False, False, True, False, True])
    """
    kind, chunk, joined = np.concatenate([np.tile(_pattern(text), times) for text, times in phases], axis=1)
    microbatch, backward = np.empty_like(kind), (kind == OpKind.B) | (kind == OpKind.I)
    for which in (kind == OpKind.F, backward, (kind == OpKind.W) & (chunk != OLDEST)):
        for number in (0, 1):
            mine = np.flatnonzero(which & (chunk == number))
            microbatch[mine] = np.arange(len(mine))
    owed, paid = np.flatnonzero(kind == OpKind.I), np.flatnonzero(chunk == OLDEST)
    if len(paid):
        chunk[paid], microbatch[paid] = chunk[owed], microbatch[owed]
    return kind, chunk, microbatch, joined.astype(bool)


@lru_cache
def _pattern(text):
    """Kind, chunk and whether joined of each operation of a pattern; shape (3, operations)."""
    cells = [cell.split("&") for cell in text.split()]
    ops = [(op, position > 0) for cell in cells for position, op in enumerate(cell)]
    return np.array([(OpKind[op[0]], int(op[1:] or OLDEST), joined) for op, joined in ops], dtype=np.int32).T
