"""Building blocks with whole backwards packed together: operations move to earlier slots, within the same peak."""

from ppmodel.loops.compiled import grid, loop

FREE, SECOND = -1, -2
"""An empty slot, and the second slot of a backward."""


@loop(fills=("cells",))
def pack(home, slots, turns, cells):
    """Fill in each rank's slots with the operations' numbers; all arguments have 32-bit integers.

    Operations are numbered: step times microbatches plus microbatch. The steps are the forwards, from the first stage
    to the last, then the backwards back. A backward moves to the first two free slots after its inputs; a forward as
    far towards them as its rank holds fewer activations than any rank has held at most before the moves.

    Parameters
    ----------
    home : ndarray of int, shape (num_steps,)
        The rank of each step.
    slots : ndarray of int, shape (num_steps, num_microbatches)
        The first slot of each operation before the moves; what is moved is noted here.
    turns : ndarray of int, shape (num_steps num_microbatches,)
        Their numbers, in the order in which they move.
    cells : ndarray of int, shape (num_ranks, length)
        All ``FREE``.
    """
    num_steps, num_microbatches, limit = len(slots), len(slots[0]), 0
    num_ranks, length = len(cells), len(cells[0])
    held = grid(0, num_ranks, length)  # activations during each slot
    for step in range(num_steps):
        for microbatch in range(num_microbatches):
            at = slots[step][microbatch]
            cells[home[step]][at] = step * num_microbatches + microbatch
            if 2 * step >= num_steps:
                cells[home[step]][at + 1] = SECOND
    for rank in range(num_ranks):
        stored = 0
        for at in range(length):
            number = cells[rank][at]
            if number == SECOND:
                stored -= 1
            elif 0 <= number < num_steps // 2 * num_microbatches:
                stored += 1
            held[rank][at], limit = stored, max(limit, stored)

    for number in turns:
        step, microbatch = number // num_microbatches, number % num_microbatches
        rank, at, here = home[step], slots[step][microbatch], 0
        row, load = cells[rank], held[rank]
        longer = 1 if 2 * step >= num_steps else 0
        if step > 0:
            here = slots[step - 1][microbatch] + (2 if 2 * (step - 1) >= num_steps else 1)
        if microbatch > 0:
            here = max(here, slots[step][microbatch - 1] + 1 + longer)
        if not longer:
            earliest, here = here, at
            while here > earliest and load[here - 1] < limit:
                here -= 1
        while here < at and (row[here] != FREE or row[here + longer] != FREE):
            here += 1
        if here < at:
            row[at], row[at + longer] = FREE, FREE
            if longer:
                row[here + 1] = SECOND
            row[here] = number
            for between in range(here + longer, at + longer):
                load[between] += 1 - 2 * longer
            slots[step][microbatch] = here
