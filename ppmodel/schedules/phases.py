"""Device orders that are phases of a repeated pattern; what the schedules on the V placement are written in.

On the V placement a device holds two stages, chunk 0 on the way down and chunk 1 on the way up; where there are two
replicas instead, they take the place of the chunks. A pattern names kinds and chunks, ``F0 I1 W1``; microbatches are
counted, and cells of two are joined by ``&``.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ppmodel.ops import OpKind

OLDEST = 2
"""The chunk of a weight gradient that is whichever has waited longest: a ``W`` without a number."""

_COUNTERS = 9


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


def programs(orders):
    """All devices' operations, each device's of phases that repeat a pattern.

    Parameters
    ----------
    orders : list of lists of (str, int), one a device
        Pattern and how often it runs. A number after a kind is the chunk; a ``W`` without one is the oldest
        input gradient's that is still owed; where there are such, all weight gradients are.

    Returns
    -------
    kind, chunk, microbatch : ndarray of int, shape (num_operations,)
        A chunk's forwards, backwards (whole or input gradients) and weight gradients each count from 0.
    joined : ndarray of bool, shape (num_operations,)
        Whether an operation shares the cell of the one before it.
    device_start : ndarray of int, shape (num_devices + 1,)
        Where each device's operations begin.

    Examples
    --------
    >>> kind, chunk, microbatch, joined, _ = programs([[("F0", 2), ("F1&B0", 2)]])
    >>> kind.tolist(), microbatch.tolist(), joined.tolist()
    ([0, 0, 0, 1, 0, 1], [0, 1, 0, 0, 1, 1], [False, False, False, True, False, True])
    """
    lengths = [sum(len(_pattern(text).counter) * times for text, times in phases) for phases in orders]
    device_start = np.cumsum([0, *lengths])
    columns = np.empty((4, device_start[-1]), dtype=np.int32)
    for first, phases in zip(device_start, orders, strict=False):
        _write(columns[:, first:], phases)
    kind, chunk, joined, microbatch = columns
    paid = np.flatnonzero(chunk == OLDEST)
    if len(paid):
        owed = np.flatnonzero(kind == OpKind.I)  # device by device as many, and in the same order
        chunk[paid], microbatch[paid] = chunk[owed], microbatch[owed]
    return kind, chunk, microbatch, joined.astype(bool), device_start


def _write(columns, phases):
    """One device's phases, from the beginning of the columns on."""
    done, place = np.zeros(_COUNTERS, dtype=np.int32), 0
    for text, times in phases:
        pattern = _pattern(text)
        until = place + times * len(pattern.counter)
        stretch = columns[:, place:until].reshape(4, times, len(pattern.counter))
        stretch[:3] = pattern.operations[:, None]
        stretch[3] = np.arange(times, dtype=np.int32)[:, None] * pattern.step[pattern.counter]
        stretch[3] += done[pattern.counter] + pattern.rank
        done += pattern.step * times
        place = until


class _Pattern(NamedTuple):
    """A pattern's operations, shape (3, n): kind, chunk, whether joined; and what they count.

    A chunk has a counter of its forwards, one of its backwards and one of its weight gradients: each operation's own,
    its rank among those of the pattern, and how far a run of the pattern moves each counter.
    """

    operations: np.ndarray
    counter: np.ndarray
    rank: np.ndarray
    step: np.ndarray


@lru_cache
def _pattern(text):
    cells = [cell.split("&") for cell in text.split()]
    ops = [(OpKind[op[0]], int(op[1:] or OLDEST), position > 0) for cell in cells for position, op in enumerate(cell)]
    counter = np.array([3 * chunk + (0, 1, 1, 2)[kind] for kind, chunk, _ in ops])
    rank = np.array([(counter[:place] == own).sum() for place, own in enumerate(counter)], dtype=np.int32)
    step = np.bincount(counter, minlength=_COUNTERS).astype(np.int32)
    return _Pattern(np.array(ops, dtype=np.int32).T, counter, rank, step)
