"""Building blocks moved together: the twin of `schedules.building_block.squeeze`."""

import numpy as np

from ppmodel.kernels.jit import inlined, kernel

FREE = -1
NOWHERE = -1


@kernel
def squeeze(home, slot, turns, stable, limit, length):
    """Each device's slots with the operations' numbers, shape (num_devices, length); arguments of 32-bit integers."""
    num_steps, num_microbatches = slot.shape
    num_devices, num_forwards = home.max() + 1, num_steps // 2 * num_microbatches
    slot, filled = slot.copy(), np.zeros(num_devices, np.int32)
    cells = np.full((num_devices, length), FREE, np.int32)
    for step in range(num_steps):
        for microbatch in range(num_microbatches):
            cells[home[step], slot[step, microbatch]] = step * num_microbatches + microbatch
    count, trial = np.zeros((num_devices, length + 1, 2), np.int32), np.empty((length + 1, 2), np.int32)
    for device in range(num_devices):
        for at in range(length):
            held, owed = _after(cells[device, at], count[device, at, 0], count[device, at, 1], num_forwards)
            count[device, at + 1, 0], count[device, at + 1, 1] = held, owed

    # each operation of the warm-up and the cool-down to the first free slot that its inputs and the limit allow
    for number in turns:
        step, microbatch = divmod(number, num_microbatches)
        device, at, here = home[step], slot[step, microbatch], 0
        if step > 0:
            here = slot[step - 1, microbatch] + 1
        if microbatch > 0:
            here = max(here, slot[step, microbatch - 1] + 1)
        if at >= stable[device, 1]:
            here = max(here, stable[device, 1])
        elif at >= stable[device, 0]:
            here = at
        while here < at:
            _reach(count, filled, device, here)
            if cells[device, here] == FREE:
                broken = _move(cells, count, filled, trial, device, here, at, num_forwards, limit)
                if broken == NOWHERE:
                    break
                here = broken
            here += 1
        if here >= at:
            here = at
            _reach(count, filled, device, at)
            filled[device] = at + 1
        slot[step, microbatch] = here

    # weight gradients in the slots that remain, the oldest first
    waiting = np.empty(length, np.int32)
    for device in range(num_devices):
        first, last = 0, 0
        for at in range(length):
            if cells[device, at] >= num_forwards:
                waiting[last] = cells[device, at] + num_forwards
                last += 1
            elif cells[device, at] == FREE and first < last:
                cells[device, at] = waiting[first]
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
def _reach(count, filled, device, slot):
    """Count the free slots up to this one."""
    for at in range(filled[device], slot):
        paid = min(count[device, at, 1], 1)
        count[device, at + 1, 0], count[device, at + 1, 1] = count[device, at, 0] - paid, count[device, at, 1] - paid
    filled[device] = max(filled[device], slot)


@inlined
def _move(cells, count, filled, trial, device, slot, at, num_forwards, limit):
    """Move an operation, unless the limit is broken: then where, else ``NOWHERE``."""
    until, number, broken = max(filled[device], slot + 1), cells[device, at], NOWHERE
    held, owed = _after(number, count[device, slot, 0], count[device, slot, 1], num_forwards)
    trial[slot + 1, 0], trial[slot + 1, 1] = held, owed
    if number < num_forwards and held > limit:
        broken = slot
    place = slot + 1
    while place < until and broken == NOWHERE:
        held, owed = _after(cells[device, place], held, owed, num_forwards)
        if 0 <= cells[device, place] < num_forwards and held > limit:
            broken = place
        place += 1
        trial[place, 0], trial[place, 1] = held, owed
    paid, place = min(owed, at + 1 - until), at + 1
    held, owed = held - paid, owed - paid
    trial[place, 0], trial[place, 1] = held, owed
    while (
        broken == NOWHERE
        and place < cells.shape[1]
        and not (held == count[device, place, 0] and owed == count[device, place, 1])
    ):
        held, owed = _after(cells[device, place], held, owed, num_forwards)
        if 0 <= cells[device, place] < num_forwards and held > limit:
            broken = place
        place += 1
        trial[place, 0], trial[place, 1] = held, owed
    if broken == NOWHERE:
        for done in range(slot + 1, until + 1):
            count[device, done, 0], count[device, done, 1] = trial[done, 0], trial[done, 1]
        for done in range(at + 1, place + 1):
            count[device, done, 0], count[device, done, 1] = trial[done, 0], trial[done, 1]
        cells[device, slot], cells[device, at], filled[device] = number, FREE, until
    return broken
