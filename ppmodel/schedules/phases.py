"""Orders written as phases that repeat a pattern, used by the schedules on the V placement.

On the V placement a rank has two stages, chunk 0 on the way down and chunk 1 on the way up; with two replicas instead,
these replace the chunks. A pattern names kinds and chunks, ``F0 I1 W1``; microbatches are counted automatically, and
two operations in one cell are joined by ``&``.
"""

from functools import lru_cache

import numpy as np

from ppmodel.loops.rounds import NO_TURN, OLDEST
from ppmodel.loops.rounds import phases as expand
from ppmodel.ops import OpKind
from ppmodel.tables import Schedule

_TURN = {OpKind.F: 0, OpKind.B: 2, OpKind.I: 2, OpKind.W: 4, OpKind.S: 6, OpKind.T: 8}
"""Turns of chunk 0; those of chunk 1 come next. Each counts microbatches from 0."""


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
    patterns = {text: _pattern(text) for text in dict.fromkeys(text for order in orders for text, _ in order)}
    length = [len(pattern) for pattern in patterns.values()]
    place = dict(zip(patterns, zip(np.cumsum([0, *length[:-1]]).tolist(), length, strict=True), strict=True))
    phase = np.array([(*place[text], times) for order in orders for text, times in order])
    first_phase = np.cumsum([0, *map(len, orders)])
    rank_start = np.append(0, np.cumsum(phase[:, 1] * phase[:, 2]))[first_phase]
    columns, joined = np.empty((3, rank_start[-1]), dtype=np.int32), np.empty(rank_start[-1], dtype=bool)
    expand.run(joined.size, np.concatenate([*patterns.values()]), phase, first_phase, *columns, joined)
    return *columns, joined, rank_start


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
    """A pattern's operations, shape (n, 4): kind, chunk, whether joined to the one before, and turn."""
    operations = []
    for cell in text.split():
        for place, op in enumerate(cell.split("&")):
            kind, chunk = OpKind[op[0]], int(op[1:] or 0)
            turn = NO_TURN if kind == OpKind.R else _TURN[kind] + chunk if op[1:] else OLDEST
            operations.append((kind, chunk, place > 0, turn))
    return np.array(operations, dtype=np.int64)
