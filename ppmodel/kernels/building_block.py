"""Building blocks packed together: the twin of `schedules.building_block.squeeze`."""

import numpy as np

from ppmodel.kernels.jit import inlined, kernel

FREE = -1
NOWHERE = -1


@kernel
def squeeze(home, slot, turns, stable, limit, length):
    """Each rank's slots with the operations' numbers, shape (num_ranks, length); arguments of 32-bit integers."""
    num_steps, num_microbatches = slot.shape
    num_ranks, num_forwards = home.max() + 1, num_steps // 2 * num_microbatches
    slot, filled = slot.copy(), np.zeros(num_ranks, np.int32)
    cells = np.full((num_ranks, length), FREE, np.int32)
    for step in range(num_steps):
        for microbatch in range(num_microbatches):
            cells[home[step], slot[step, microbatch]] = step * num_microbatches + microbatch
    count, trial = np.zeros((num_ranks, length + 1, 2), np.int32), np.empty((length + 1, 2), np.int32)
    for rank in range(num_ranks):
        for at in range(length):
            held, owed = _after(cells[rank, at], count[rank, at, 0], count[rank, at, 1], num_forwards)
            count[rank, at + 1, 0], count[rank, at + 1, 1] = held, owed

    # move each operation of the warm-up and cool-down to the first free slot that its inputs and the limit allow
    for number in turns:
        step, microbatch = divmod(number, num_microbatches)
        rank, at, here = home[step], slot[step, microbatch], 0
        if step > 0:
            here = slot[step - 1, microbatch] + 1
        if microbatch > 0:
            here = max(here, slot[step, microbatch - 1] + 1)
        if at >= stable[rank, 1]:
            here = max(here, stable[rank, 1])
        elif at >= stable[rank, 0]:
            here = at
        while here < at:
            _reach(count, filled, rank, here)
            if cells[rank, here] == FREE:
                broken = _move(cells, count, filled, trial, rank, here, at, num_forwards, limit)
                if broken == NOWHERE:
                    break
                here = broken
            here += 1
        if here >= at:
            here = at
            _reach(count, filled, rank, at)
            filled[rank] = at + 1
        slot[step, microbatch] = here

    # fill the remaining slots with weight gradients, oldest first
    waiting = np.empty(length, np.int32)
    for rank in range(num_ranks):
        first, last = 0, 0
        for at in range(length):
            if cells[rank, at] >= num_forwards:
                waiting[last] = cells[rank, at] + num_forwards
                last += 1
            elif cells[rank, at] == FREE and first < last:
                cells[rank, at] = waiting[first]
                first += 1
    return cells


@inlined
def _after(number, held, owed, num_forwards):
    """Activations held and weight gradients owed after a slot."""
    if number == FREE:
        paid = min(owed, 1)
        held, owed = held - paid, owed - paid
    elif number < num_forwards:
        held += 1
    else:
        owed += 1
    return held, owed


@inlined
def _reach(count, filled, rank, slot):
    """Count the free slots up to this one."""
    for at in range(filled[rank], slot):
        paid = min(count[rank, at, 1], 1)
        count[rank, at + 1, 0], count[rank, at + 1, 1] = count[rank, at, 0] - paid, count[rank, at, 1] - paid
    filled[rank] = max(filled[rank], slot)


@inlined
def _move(cells, count, filled, trial, rank, slot, at, num_forwards, limit):
    """Move an operation unless that breaks the limit; return its new slot, or ``NOWHERE``."""
    until, number, broken = max(filled[rank], slot + 1), cells[rank, at], NOWHERE
    held, owed = _after(number, count[rank, slot, 0], count[rank, slot, 1], num_forwards)
    trial[slot + 1, 0], trial[slot + 1, 1] = held, owed
    if number < num_forwards and held > limit:
        broken = slot
    place = slot + 1
    while place < until and broken == NOWHERE:
        held, owed = _after(cells[rank, place], held, owed, num_forwards)
        if 0 <= cells[rank, place] < num_forwards and held > limit:
            broken = place
        place += 1
        trial[place, 0], trial[place, 1] = held, owed
    paid, place = min(owed, at + 1 - until), at + 1
    held, owed = held - paid, owed - paid
    trial[place, 0], trial[place, 1] = held, owed
    while (
        broken == NOWHERE
        and place < cells.shape[1]
        and not (held == count[rank, place, 0] and owed == count[rank, place, 1])
    ):
        held, owed = _after(cells[rank, place], held, owed, num_forwards)
        if 0 <= cells[rank, place] < num_forwards and held > limit:
            broken = place
        place += 1
        trial[place, 0], trial[place, 1] = held, owed
    if broken == NOWHERE:
        for done in range(slot + 1, until + 1):
            count[rank, done, 0], count[rank, done, 1] = trial[done, 0], trial[done, 1]
        for done in range(at + 1, place + 1):
            count[rank, done, 0], count[rank, done, 1] = trial[done, 0], trial[done, 1]
        cells[rank, slot], cells[rank, at], filled[rank] = number, FREE, until
    return broken
