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

import numpy as np

from ppmodel.loops.building_block import FREE, squeeze
from ppmodel.ops import OpKind
from ppmodel.tables import Schedule, by_keys

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
    cells = np.full((max(placement) + 1, length), FREE, dtype=np.int32)
    begin, last = np.zeros(len(cells), dtype=np.int32), np.full(len(cells), length, dtype=np.int32)
    np.maximum.at(begin, home, slot[:, 0])
    np.minimum.at(last, home, slot[:, -1])
    stable = np.stack([begin + period - 1, last + 1], axis=1).astype(np.int32)  # from a slot until before another
    stable = stable if (stable[:, 0] < stable[:, 1]).all() else np.full_like(stable, length)
    squeeze.run(_WORK * slot.size + cells.size, home, slot, turns, stable, limit, cells)
    return orders_in(cells, (OpKind.F, OpKind.I, OpKind.W), len(placement), num_microbatches)


def orders_in(cells, kinds, num_stages, num_microbatches):
    """Each rank's order, as from `squeezed`, in slots where 0 and more are numbers of operations.

    Operations are numbered kind by kind and, in each kind, along the way of a microbatch.
    """
    taken = cells >= 0
    step, microbatch = np.divmod(cells[taken], num_microbatches)
    part, step = np.divmod(step, num_stages)
    stage = np.where(part == 0, step, num_stages - 1 - step)
    columns = np.array(kinds, dtype=np.int32)[part], stage, microbatch
    ends = np.cumsum(np.count_nonzero(taken, axis=1))[:-1]
    return list(zip(*(np.split(column, ends) for column in columns), strict=True))


def lengthened(name, placement, orders, num_microbatches, short, steady, length):
    """The schedule of `orders` for `short` microbatches, with its steady state repeated for more.

    The `length` operations are repeated that begin with the forward of the microbatch `steady` on each rank's first
    stage.
    """
    if num_microbatches > short:
        for rank, (kind, stage, microbatch) in enumerate(orders):
            cut = np.flatnonzero((kind == OpKind.F) & (stage == rank) & (microbatch == steady))[0]
            orders[rank] = stretched(kind, stage, microbatch, cut, length, num_microbatches - short)
    columns = (np.stack(column) for column in zip(*orders, strict=True))
    return Schedule.from_programs(name, placement, num_microbatches, *columns)


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
