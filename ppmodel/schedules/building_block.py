"""Orders from a building block: one microbatch's slots on every rank, repeated at a fixed period, with squeezed ends.

The framework is that of Qi et al., "Pipeline Parallelism with Controllable Memory" (arXiv:2405.15362): how long a
block holds its activations determines the peak, whatever the number of microbatches; its stable phase determines the
time per additional microbatch; squeezing shortens the warm-up and the cool-down. The rules are ours:

1. Microbatch b has its forwards and input gradients at their offsets in the block plus b periods.
2. Weight gradients take a rank's free slots, oldest first.
3. A slot is in a rank's stable phase if the period that ends with it has every forward and input gradient of the
   block: those from a period, less one slot, after the first microbatch's last one to the last microbatch's first.
   There operations keep their slots. If a rank has no such slot, for few microbatches, no rank has a stable phase.
4. In the order of their slots (of two in one slot the lower rank's), the operations of the warm-up and of the
   cool-down move to the first free slot after what they need, after the same operation of the microbatch before and,
   in the cool-down, after the stable phase, provided that no forward, then or later, exceeds the memory limit. Weight
   gradients then make way, and take the slots that remain.
"""

from collections import deque

import numpy as np

from ppmodel.compiled import kernels
from ppmodel.ops import OpKind
from ppmodel.tables import by_keys

FREE = -1
_WORK = 8
"""Trying one move in plain code takes about as long as handling this many operations of a table elsewhere."""


def squeezed(placement, offsets, period, num_microbatches, limit):
    """Compute each rank's order of the operations of `num_microbatches` blocks.

    Parameters
    ----------
    placement : sequence of int, length num_ranks
        The rank of each stage.
    offsets : sequence of int, length 2 num_ranks
        The slot in the block of each stage's forward, from the first stage to the last, then of each stage's
        input gradient, from the last to the first. On any rank, no two may differ by a whole number of periods.
    period : int
        Slots from one microbatch to the next.
    num_microbatches : int
    limit : int
        Stages' activations that a rank may hold.

    Returns
    -------
    list of (ndarray, ndarray, ndarray), one a rank
        Kind, stage and microbatch in order.

    Examples
    --------
    >>> ((kind, stage, microbatch),) = squeezed([0], [0, 1], 3, 2, limit=1)
    >>> kind.tolist(), microbatch.tolist()
    ([0, 2, 3, 0, 2, 3], [0, 0, 0, 1, 1, 1])
    """
    home = np.array([*placement, *placement[::-1]], dtype=np.int32)
    slot = np.array(offsets, dtype=np.int32)[:, None] + period * np.arange(num_microbatches, dtype=np.int32)
    turns = by_keys(slot.ravel(), np.repeat(home, num_microbatches)).astype(np.int32)
    num_gradients = np.bincount(placement).max() * num_microbatches  # on a rank; each needs a slot
    length = int(slot.max() + num_gradients) + 1
    fast = kernels(_WORK * slot.size + len(placement) * length)
    stable = _stable_phases(home, slot, period, length)
    cells = (fast.squeeze if fast else squeeze)(home, slot, turns, stable, limit, length)
    return _orders(cells, num_microbatches, len(placement))


def _stable_phases(home, slot, period, length):
    """The first slot of each rank's stable phase, and the slot after its last; twice `length` if there is none."""
    begin, last = np.zeros(home.max() + 1, dtype=np.int32), np.full(home.max() + 1, length, dtype=np.int32)
    np.maximum.at(begin, home, slot[:, 0])
    np.minimum.at(last, home, slot[:, -1])
    stable = np.stack([begin + period - 1, last + 1], axis=1).astype(np.int32)
    return stable if (stable[:, 0] < stable[:, 1]).all() else np.full_like(stable, length)


def _orders(cells, num_microbatches, num_ranks):
    """Kind, stage and microbatch of each rank's operations."""
    taken = cells != FREE
    step, microbatch = np.divmod(cells[taken], num_microbatches)
    part, step = np.divmod(step, num_ranks)
    stage = np.where(part == 0, step, num_ranks - 1 - step)
    columns = np.array([OpKind.F, OpKind.I, OpKind.W], dtype=np.int32)[part], stage, microbatch
    ends = np.cumsum(np.count_nonzero(taken, axis=1))[:-1]
    return list(zip(*(np.split(column, ends) for column in columns), strict=True))


def stretched(kind, stage, microbatch, cut, length, times):
    """Repeat a stretch of the steady state, to extend a short order to more microbatches.

    Parameters
    ----------
    kind, stage, microbatch : ndarray of int
        A rank's order, from `squeezed`.
    cut : int
        Start of the stretch.
    length : int
        Operations in one period: those of one microbatch.
    times : int
        Microbatches to add.

    Returns
    -------
    kind, stage, microbatch : ndarray of int

    Examples
    --------
    >>> stretched(np.array([0, 2, 3]), np.zeros(3, int), np.zeros(3, int), 0, 3, 1)[2]
    array([0, 0, 0, 1, 1, 1])
    """
    source = np.arange(len(kind) + length * times)
    added = np.clip((source - cut) // length, 0, times)
    source -= length * added
    return kind[source], stage[source], microbatch[source] + added


# ---- plain twin of the compiled code ---------------------------------------------------------


def squeeze(home, slot, turns, stable, limit, length):
    """Move operations to earlier slots, then fill the remaining slots with weight gradients; twin of compiled code.

    Operations are numbered: step times microbatches plus microbatch. The steps are the forwards, from the first stage
    to the last, then the input gradients back, then their weight gradients.

    Parameters
    ----------
    home : sequence of int, length 2 num_ranks
        The rank of each forward and input gradient.
    slot : ndarray of int, shape (2 num_ranks, num_microbatches)
        The slot of each before the moves.
    turns : ndarray of int, shape (2 num_ranks num_microbatches,)
        Their numbers, in the order in which they move.
    stable : ndarray of int, shape (num_ranks, 2)
        First slot of each rank's stable phase, in which operations stay, and the slot after its last.
    limit : int
        Number of stages' activations that a rank may hold.
    length : int
        Slots per rank, including room for weight gradients that are left at the end.

    Returns
    -------
    ndarray of int, shape (num_ranks, length)
        The number of the operation in each slot, or ``FREE``.
    """
    home, slot, num_microbatches, stable = list(home), slot.tolist(), slot.shape[1], stable.tolist()
    rows = _rows(home, slot, limit, length)
    for number in turns.tolist():
        step, microbatch = divmod(number, num_microbatches)
        needed = max(slot[step - 1][microbatch] if step else -1, slot[step][microbatch - 1] if microbatch else -1)
        at, (first, beyond) = slot[step][microbatch], stable[home[step]]
        earliest = needed + 1 if at < first else at if at < beyond else max(needed + 1, beyond)
        slot[step][microbatch] = rows[home[step]].move_forward(at, earliest)
    return np.array([row.with_weight_grads() for row in rows], dtype=np.int32)


def _rows(home, slot, limit, length):
    num_microbatches, num_ranks = len(slot[0]), len(home) // 2
    cells = [[FREE] * length for _ in range(max(home) + 1)]
    for step, row in enumerate(slot):
        for microbatch, at in enumerate(row):
            cells[home[step]][at] = step * num_microbatches + microbatch
    return [_Row(row, num_ranks * num_microbatches, limit) for row in cells]


class _Row:
    """One rank's slots: each is free or has an operation's number.

    For each slot, keeps the activations held and the weight gradients pending before it, free slots being used for
    these.
    """

    def __init__(self, cells, num_forwards, limit):
        self.cells, self.num_forwards = cells, num_forwards
        self.count, _ = self._recount((0, 0), 0, len(cells), limit=len(cells))
        self.limit = limit
        self.filled = 0  # counts are valid up to here; from here to the next operation to move, all slots are free

    def move_forward(self, at, earliest):
        """Move an operation to the first free slot that the limit allows; return its slot, new or old.

        Operations come in slot order. If a move would break the limit at some slot, so would a move to any slot up to
        there, because the displaced weight gradient has less time until then; these are not tried.
        """
        slot = earliest
        while slot < at:
            self._reach(slot)
            if self.cells[slot] == FREE:
                broken = self._move(slot, at)
                if broken is None:
                    return slot
                slot = broken
            slot += 1
        self._reach(at)
        self.filled = at + 1
        return at

    def _reach(self, slot):
        """Count the free slots up to this one."""
        if slot > self.filled:
            before = self.count[self.filled]
            self.count[self.filled + 1 : slot + 1] = [_paid(before, idle + 1) for idle in range(slot - self.filled)]
            self.filled = slot

    def _move(self, slot, at):
        """Move an operation unless that breaks the limit; if so, return the slot at which it does.

        Slots are recounted from the new one to the last one taken, and from the old one until nothing changes; those
        in between are free.
        """
        cells, count, until, beyond = self.cells, self.count, max(self.filled, slot + 1), at + 1
        cells[slot], cells[at] = cells[at], FREE
        near, broken = self._recount(count[slot], slot, until, self.limit)
        if broken is None:
            far, broken = self._recount(_paid(near[-1], beyond - until), beyond, len(cells), self.limit, count)
        if broken is not None:
            cells[slot], cells[at] = FREE, cells[slot]
            return broken
        count[slot : until + 1], count[beyond : beyond + len(far)], self.filled = near, far, until
        return None

    def _recount(self, before, first, last, limit, old=()):
        """Recount from a slot to another, or until counts equal the old ones; return the slot that breaks the limit."""
        cells, num_forwards, counts, (held, owed) = self.cells, self.num_forwards, [before], before
        for place in range(first, last):
            if old and counts[-1] == old[place]:
                break
            if cells[place] == FREE:
                held, owed = (held - 1, owed - 1) if owed else (held, owed)
            elif cells[place] < num_forwards:
                held += 1
                if held > limit:
                    return None, place
            else:
                owed += 1
            counts.append((held, owed))
        return counts, None

    def with_weight_grads(self):
        """The slots, with pending weight gradients in the free ones."""
        cells, waiting = list(self.cells), deque()
        for slot, number in enumerate(cells):
            if number >= self.num_forwards:
                waiting.append(number + self.num_forwards)
            elif number == FREE and waiting:
                cells[slot] = waiting.popleft()
        return cells


def _paid(count, slots):
    """Activations held and weight gradients pending after free slots."""
    held, owed = count
    paid = min(owed, slots)
    return held - paid, owed - paid
