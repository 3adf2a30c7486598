"""Orders written in rounds, with one operation of each kind in turn; used by 1F1B, Zero Bubble and the like.

Shared by several schedules; registers nothing.
"""

import numpy as np

from ppmodel.loops.rounds import rounds
from ppmodel.tables import Schedule


def in_rounds(count, kinds, first):
    """Build each rank's program in rounds: each kind runs one operation per round, starting from its own first round.

    Forwards that start some rounds before the backwards form the warm-up; weight gradients that start some rounds after
    the input gradients are delayed by that many, and those left at the end form the cool-down.

    Parameters
    ----------
    count : int
        Operations of each kind on a rank.
    kinds : sequence of OpKind
        In order within a round.
    first : array of int, shape (len(kinds), S)
        The round in which each kind starts on each rank; only differences matter.

    Returns
    -------
    kind, number : ndarray of int, shape (S, len(kinds) count)
        Each rank's program: the kind of each operation, and its index among the rank's operations of that kind.

    Examples
    --------
    >>> from ppmodel.ops import OpKind
    >>> kind, number = in_rounds(3, (OpKind.F, OpKind.I, OpKind.W), [[-1], [0], [1]])
    >>> " ".join(f"{OpKind(k).name}{n}" for k, n in zip(kind[0], number[0]))
    'F0 F1 I0 F2 I1 W0 I2 W1 W2'
    """
    kind, number = np.empty((2, len(first[0]), len(kinds) * count), np.int32)
    rounds.run(kind.size, count, np.array(kinds, dtype=np.int64), np.array(first, dtype=np.int64), kind, number)
    return kind, number


def on_own_ranks(name, num_microbatches, kinds, first):
    """Build a schedule with stage s on rank s and microbatches in order.

    Parameters
    ----------
    name : str
    num_microbatches : int
    kinds, first
        As for `in_rounds`.

    Returns
    -------
    Schedule

    Examples
    --------
    >>> from ppmodel.ops import OpKind
    >>> print(*on_own_ranks("mine", 2, (OpKind.F, OpKind.B), [[-1, 0], [0, 0]]).table(backward=1)[0])
    0F0 0F1 . 0B0 . 0B1
    """
    kind, microbatch = in_rounds(num_microbatches, kinds, first)
    stage = np.arange(len(kind), dtype=np.int32)
    return Schedule.from_programs(name, stage, num_microbatches, kind, stage[:, None], microbatch)
