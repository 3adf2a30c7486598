"""Building blocks packed together: operations move to earlier slots, and weight gradients fill the rest."""

from ppmodel.loops.compiled import filled, grid, inlined, loop

FREE = -1
NOWHERE = -1


@loop(fills=("cells",))
def squeeze(home, slots, turns, stable, limit, cells):
    """Fill in each rank's slots with the operations' numbers, or ``FREE``; all arguments have 32-bit integers.

    Operations are numbered: step times microbatches plus microbatch. The steps are the forwards, from the first stage
    to the last, then the input gradients back, then their weight gradients. Operations move in slot order. If a move
    would break the limit at some slot, so would a move to any slot up to there, because the displaced weight gradient
    has less time until then; these are not tried.

    Parameters
    ----------
    home : ndarray of int, shape (2 num_ranks,)
        The rank of each forward and input gradient.
    slots : ndarray of int, shape (2 num_ranks, num_microbatches)
        The slot of each before the moves; what is moved is noted here.
    turns : ndarray of int, shape (2 num_ranks num_microbatches,)
        Their numbers, in the order in which they move.
    stable : ndarray of int, shape (num_ranks, 2)
        First slot of each rank's stable phase, in which operations stay, and the slot after its last.
    limit : int
        Number of stages' activations that a rank may hold.
    cells : ndarray of int, shape (num_ranks, length)
        All ``FREE``. There is room for weight gradients that are left at the end.
    """
    num_steps, num_microbatches = len(slots), len(slots[0])
    num_ranks, length, num_forwards = len(cells), len(cells[0]), num_steps // 2 * num_microbatches
    for step in range(num_steps):
        for microbatch in range(num_microbatches):
            cells[home[step]][slots[step][microbatch]] = step * num_microbatches + microbatch

    # for each slot, the activations held and the weight gradients owed before it, free slots being used for these
    held, owed = grid(0, num_ranks, length + 1), grid(0, num_ranks, length + 1)
    new_held, new_owed = filled(0, length + 1), filled(0, length + 1)
    counted = filled(0, num_ranks)  # counts are valid up to here; from here to the next operation, all slots are free
    for rank in range(num_ranks):
        for at in range(length):
            held[rank][at + 1], owed[rank][at + 1] = _after(
                cells[rank][at], held[rank][at], owed[rank][at], num_forwards
            )

    # move each operation of the warm-up and cool-down to the first free slot that its inputs and the limit allow
    for number in turns:
        step, microbatch = number // num_microbatches, number % num_microbatches
        rank, at, here = home[step], slots[step][microbatch], 0
        row = cells[rank]
        if step > 0:
            here = slots[step - 1][microbatch] + 1
        if microbatch > 0:
            here = max(here, slots[step][microbatch - 1] + 1)
        if at >= stable[rank][1]:
            here = max(here, stable[rank][1])
        elif at >= stable[rank][0]:
            here = at
        while here < at:
            _count(held[rank], owed[rank], counted, rank, here)
            if row[here] == FREE:
                broken = _move(
                    row, held[rank], owed[rank], counted, new_held, new_owed, rank, here, at, num_forwards, limit
                )
                if broken == NOWHERE:
                    break
                here = broken
            here += 1
        if here >= at:
            here = at
            _count(held[rank], owed[rank], counted, rank, at)
            counted[rank] = at + 1
        slots[step][microbatch] = here

    # fill the remaining slots with weight gradients, oldest first
    waiting = filled(0, length)
    for rank in range(num_ranks):
        first, last = 0, 0
        for at in range(length):
            if cells[rank][at] >= num_forwards:
                waiting[last] = cells[rank][at] + num_forwards
                last += 1
            elif cells[rank][at] == FREE and first < last:
                cells[rank][at] = waiting[first]
                first += 1


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
def _count(held, owed, counted, rank, slot):
    """Count the free slots up to this one."""
    for at in range(counted[rank], slot):
        paid = min(owed[at], 1)
        held[at + 1], owed[at + 1] = held[at] - paid, owed[at] - paid
    counted[rank] = max(counted[rank], slot)


@inlined
def _move(cells, held, owed, counted, new_held, new_owed, rank, slot, at, num_forwards, limit):
    """Move an operation and return ``NOWHERE``; if that breaks the limit, return the slot at which it does.

    Slots are recounted from the new one to the last one taken, and from the old one until nothing changes; those in
    between are free.
    """
    number, until, broken = cells[at], max(counted[rank], slot + 1), NOWHERE
    cells[slot], cells[at] = number, FREE
    stored, pending, place = held[slot], owed[slot], slot
    while place < len(cells) and broken == NOWHERE:
        if place == until:  # up to the old slot, all are free
            paid = min(pending, at + 1 - until)
            stored, pending, place = stored - paid, pending - paid, at + 1
            new_held[place], new_owed[place] = stored, pending
            if place == len(cells):
                break
        if place > at and stored == held[place] and pending == owed[place]:
            break
        stored, pending = _after(cells[place], stored, pending, num_forwards)
        if 0 <= cells[place] < num_forwards and stored > limit:
            broken = place
        place += 1
        new_held[place], new_owed[place] = stored, pending
    if broken != NOWHERE:
        cells[slot], cells[at] = FREE, number
        return broken
    for done in range(slot + 1, until + 1):
        held[done], owed[done] = new_held[done], new_owed[done]
    for done in range(at + 1, place + 1):
        held[done], owed[done] = new_held[done], new_owed[done]
    counted[rank] = until
    return NOWHERE
