"""Building blocks moved together: the twin of `schedules.building_block.squeeze`."""

import numpy as np

from ppmodel.kernels.jit import inlined, kernel

FREE = -1
NOWHERE = -1


@kernel
def squeeze(home, slot, turns, limit, length):
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
        _recount(cells, count, trial, device, 0, length, length, num_forwards, limit)

    # each operation to the first free slot that its inputs and the limit allow
    for number in turns:
        step, microbatch = divmod(number, num_microbatches)
        device, at, here = home[step], slot[step, microbatch], 0
        if step > 0:
            here = slot[step - 1, microbatch] + 1
        if microbatch > 0:
            here = max(here, slot[step, microbatch - 1] + 1)
        while here < at:
            if cells[device, here] == FREE:
                cells[device, here], cells[device, at] = number, FREE
                full = max(filled[device], here + 1)
                broken = _recount(cells, count, trial, device, here, at, full, num_forwards, limit)
                if broken == NOWHERE:
                    break
                cells[device, here], cells[device, at] = FREE, number
                here = broken
            here += 1
        slot[step, microbatch] = min(here, at)
        filled[device] = max(filled[device], slot[step, microbatch] + 1)

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
def _recount(cells, count, trial, device, first, last, filled, num_forwards, limit):
    """Count activations held and weight gradients owed again; where the limit is broken, or ``NOWHERE``."""
    held, owed, at, broken = count[device, first, 0], count[device, first, 1], first, NOWHERE
    while at < cells.shape[1]:
        if owed == 0 and filled <= at < last:
            while at < last:
                at += 1
                trial[at, 0], trial[at, 1] = held, 0
        if cells[device, at] == FREE:
            if owed > 0:
                held, owed = held - 1, owed - 1
        elif cells[device, at] < num_forwards:
            held += 1
            if held > limit:
                broken = at
                break
        else:
            owed += 1
        at += 1
        trial[at, 0], trial[at, 1] = held, owed
        if at > last and held == count[device, at, 0] and owed == count[device, at, 1]:
            break
    if broken == NOWHERE:
        for done in range(first + 1, at + 1):
            count[device, done, 0], count[device, done, 1] = trial[done, 0], trial[done, 1]
    return broken
