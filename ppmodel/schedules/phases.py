"""Orders written as phases that repeat a pattern, used by the schedules on the V placement.

On the V placement a rank has two stages, chunk 0 on the way down and chunk 1 on the way up; with two replicas instead,
these replace the chunks. A pattern names kinds and chunks, ``F0 I1 W1``; microbatches are counted automatically, and
two operations in one cell are joined by ``&``.

All ranks are handled at once, because one NumPy call costs as much as a hundred operations.
"""

from functools import lru_cache

import numpy as np

from ppmodel.ops import NO_MICROBATCH, OpKind
from ppmodel.tables import Schedule

_TURN = {OpKind.F: 0, OpKind.B: 2, OpKind.I: 2, OpKind.W: 4, OpKind.S: 6, OpKind.T: 8}
_COUNTED = range(10)
"""Turns: forwards, backwards, weight gradients and so on, of chunk 0 and chunk 1. Each counts microbatches from 0."""

_OLDEST, _NO_TURN = 10, 11
"""Turns of a ``W`` without a number, which takes the microbatch that has waited longest, and of a reduction."""


def v_placement(num_ranks):
    """The rank of each of 2 S stages: down through the ranks and up again.

    Parameters
    ----------
    num_ranks : int
        Ranks, S.

    Returns
    -------
    ndarray of int, shape (2 S,)

    Examples
    --------
    >>> v_placement(3).tolist()
    [0, 1, 2, 2, 1, 0]
    """
    down = np.arange(num_ranks)
    return np.concatenate((down, down[::-1]))


def programs(orders):
    """Expand each rank's phases, which repeat patterns, into operations.

    Parameters
    ----------
    orders : list of lists of (str, int), one a rank
        Pattern and number of repetitions. A number after a kind is the chunk; a ``W`` without one belongs to the
        oldest input gradient that still lacks its own; either all or none are written like this. Every rank has
        the same number of forwards of a chunk, of backwards (whole or input gradients), and so on.

    Returns
    -------
    kind, chunk, microbatch : ndarray of 32-bit int, shape (num_operations,)
        A chunk's forwards, backwards and weight gradients each count from 0; reductions have ``NO_MICROBATCH``.
    joined : ndarray of bool, shape (num_operations,)
        Whether an operation shares a cell with the one before it.
    rank_start : ndarray of int, shape (num_ranks + 1,)
        Where each rank's operations begin.

    Examples
    --------
    >>> kind, chunk, microbatch, joined, _ = programs([[("F0", 2), ("F1&B0", 2)]])
    >>> kind.tolist(), microbatch.tolist(), joined.tolist()
    ([0, 0, 0, 1, 0, 1], [0, 1, 0, 0, 1, 1], [False, False, False, True, False, True])
    """
    longest = {}  # each pattern is expanded once, to its largest number; a rank's phase is the beginning of that
    for text, times in (phase for phases in orders for phase in phases):
        longest[text] = max(times, longest.get(text, 0))
    length = {text: _pattern(text).shape[1] for text in longest}
    repeated = {text: np.tile(_pattern(text), times) for text, times in longest.items()}
    phases = [repeated[text][:, : times * length[text]] for phases in orders for text, times in phases]
    rank_start = np.cumsum([0] + [sum(times * length[text] for text, times in phases) for phases in orders])
    kind, chunk, joined, turn = np.concatenate(phases, axis=1)
    kind, chunk = kind.astype(np.int32), chunk.astype(np.int32)
    microbatch = np.full(len(turn), NO_MICROBATCH, dtype=np.int32)
    for pattern in _COUNTED:
        places = np.flatnonzero(turn == pattern)  # several times as fast as a mask for an index
        microbatch[places] = np.tile(np.arange(len(places) // len(orders), dtype=np.int32), len(orders))
    paid = np.flatnonzero(turn == _OLDEST)
    if len(paid):
        owed = np.flatnonzero(kind == OpKind.I)  # the same number on each rank, in the same order
        chunk[paid], microbatch[paid] = chunk[owed], microbatch[owed]
    return kind, chunk, microbatch, joined.astype(bool), rank_start


def in_a_v(name, num_microbatches, orders, placement=None):
    """Build a schedule on the V placement from each rank's phases; without microbatches beyond `num_microbatches`.

    Another `placement` has stage s on rank s: all operations are then of chunk 0.

    Examples
    --------
    >>> print(*in_a_v("mine", 1, [[("F0 F1 B1 B0", 2)]]).table(backward=1)[0])
    0F0 1F0 1B0 0B0
    """
    num_ranks = len(orders)
    kind, chunk, microbatch, joined, start = programs(orders)
    rank = np.repeat(np.arange(num_ranks, dtype=np.int32), np.diff(start))
    columns = kind, rank + chunk * (2 * num_ranks - 1 - 2 * rank), microbatch, np.zeros_like(kind), joined
    kept = microbatch < num_microbatches
    if not kept.all():
        columns, start = (column[kept] for column in columns), np.searchsorted(rank[kept], np.arange(num_ranks + 1))
    placement = v_placement(num_ranks) if placement is None else placement
    return Schedule(name, placement[None], num_microbatches, *columns, start)


@lru_cache
def _pattern(text):
    """A pattern's operations, shape (4, n): kind, chunk, whether joined to the one before, and turn."""
    operations = []
    for cell in text.split():
        for place, op in enumerate(cell.split("&")):
            kind, chunk = OpKind[op[0]], int(op[1:] or 0)
            turn = _NO_TURN if kind == OpKind.R else _TURN[kind] + chunk if op[1:] else _OLDEST
            operations.append((kind, chunk, place > 0, turn))
    return np.array(operations, dtype=np.uint8).T
