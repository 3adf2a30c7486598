"""The order of two operations of a cell, item by item, that ends the cell first.

The state after some items is a tuple: the time at which their kernels end, the seconds of work still queued on the
communication stream, and how much of that each kind of item waits for.
"""

from ppmodel.loops.compiled import filled, inlined, loop

START = (0.0,) * 6
"""The state before the first item."""

_FIRST = (*START, -1.0)


@inlined
def after(state, waits_for, compute, comm, contention):
    """The state after an item: what it waits for, seconds of its kernels and of the collective that it issues.

    >>> state = after(START, 0, 2.0, 1.0, 1.0)
    >>> state, after(state, 1, 2.0, 1.0, 1.5)
    ((2.0, 1.0, 1.0, 0.0, 0.0, 0.0), (4.5, 1.0, 0.0, 1.0, 0.0, 0.0))
    """
    wait, ahead = state[2 + waits_for], state[1]
    beside = min(compute, ahead - wait)
    time, done = state[0] + (wait + beside * contention + (compute - beside)), wait + beside
    ahead = ahead - done + comm
    first, second, third, fourth = state[2] - done, state[3] - done, state[4] - done, state[5] - done
    return (
        time,
        ahead,
        ahead if comm and waits_for == 0 else first if first > 0.0 else 0.0,
        ahead if comm and waits_for == 1 else second if second > 0.0 else 0.0,
        ahead if comm and waits_for == 2 else third if third > 0.0 else 0.0,
        ahead if comm and waits_for == 3 else fourth if fourth > 0.0 else 0.0,
    )


@inlined
def item_at(place, swapped, units, num_first):
    """The item at a place of the alternating order of a cell.

    In each round of six places both operations have their turn: kernels of a unit and their collective (part 0), input
    gathered for weight gradients (1), kernels of weight gradients (2). A pair gathers one unit ahead, and its weight
    gradients wait for nothing else. Units are given by field, those of the first operation first.

    Returns
    -------
    operation, number, part : int
        Of the unit.
    waits_for : int
        Which collectives must have ended before it begins, of which its own is the next: 0 and 1 are those of either
        operation, 2 and 3 the input gathered for every other unit.
    compute, comm : float
        Seconds of its kernels, and of the collective that they issue. Both are 0 if there is no such item.

    >>> [item_at(place, False, [[2.0, 1.0, 0.0, 0.0], [2.0, 1.0, 4.0, 3.0]], 1) for place in (4, 6, 11)]
    [(1, 0, 1, 2, 0.0, 3.0), (0, 0, 0, 0, 2.0, 1.0), (1, 0, 2, 2, 4.0, 0.0)]
    """
    number, part, is_pair = place // 6, place % 3, 0 < num_first < len(units)
    operation = (place // 3 + (swapped and number > 0)) % 2
    number -= is_pair and part != 1
    waits_for = 2 + number % 2 if is_pair and part else operation
    exists = 0 <= number < (len(units) - num_first if operation else num_first)
    row = number + operation * num_first
    compute = units[row][part] if exists and part != 1 else 0.0
    comm = units[row][2 * part + 1] if exists and part != 2 else 0.0
    return operation, number, part, waits_for, compute, comm


@loop
def alternating(num_places, units, num_first, contention):
    """When both streams of a cell end, and whether the operations swap turns: in the shorter of two orders."""
    least, shorter = -1.0, False
    for swapped in (False, True):
        state = START
        for place in range(num_places):
            _, _, _, waits_for, compute, comm = item_at(place, swapped, units, num_first)
            if compute or comm:
                state = after(state, waits_for, compute, comm, contention)
        end = state[0] + state[1]
        if not swapped or end < least:
            least, shorter = end, swapped
    return least, shorter


@loop
def unit_order(ours, theirs, our_rest, their_rest, contention, enough):
    """Whose turn it is, item by item, in the order that ends first; empty if none takes less than `enough`.

    Each operation is given as what its items wait for, their seconds of kernels and of collectives, and as both seconds
    from each item on; an item without seconds comes last. After i items of one and j of the other, the states kept are
    those that no other state matches or beats in every respect and from which the cell can still become as short. With
    each stands what it came from: twice the number of the previous state, plus whose turn it was.
    """
    num_ours, num_theirs = len(ours[0]) - 1, len(theirs[0]) - 1
    came, row, row_first, row_start = [-1][:0], [_FIRST][:0], 0, filled(0, num_theirs + 2)
    for i in range(num_ours + 1):
        above, above_first, above_start = row, row_first, row_start
        row, row_first, row_start = [_FIRST][:0], len(came), filled(0, num_theirs + 2)
        for j in range(num_theirs + 1):
            compute, comm = our_rest[0][i] + their_rest[0][j], our_rest[1][i] + their_rest[1][j]
            reached = [_FIRST] if i == j == 0 else [_FIRST][:0]
            for at in range(above_start[j], above_start[j + 1] if i else 0):
                state = after(above[at], int(ours[0][i - 1]), ours[1][i - 1], ours[2][i - 1], contention)
                reached.append((*state, 2.0 * (above_first + at)))
            for at in range(row_start[j - 1], row_start[j] if j else 0):
                state = after(row[at], int(theirs[0][j - 1]), theirs[1][j - 1], theirs[2][j - 1], contention)
                reached.append((*state, 2.0 * (row_first + at) + 1))
            reached.sort()
            for state in reached:
                ahead = state[1] + comm
                least = max(compute, ahead) + (contention - 1) * min(compute, ahead)  # if nothing waits
                kept = state[0] + least < enough
                for at in range(row_start[j], len(row) if kept else 0):
                    other = row[at]  # not later, since they are sorted
                    beaten = other[1] <= state[1] and other[2] <= state[2] and other[3] <= state[3]
                    if beaten and other[4] <= state[4] and other[5] <= state[5]:
                        kept = False
                        break
                if kept:
                    row.append(state)
                    came.append(int(state[6]))
            row_start[j + 1] = len(row)
    best = -1
    for at in range(row_start[num_theirs], row_start[num_theirs + 1]):
        if best < 0 or row[at][0] + row[at][1] < row[best][0] + row[best][1]:
            best = at
    turns, number = filled(0, num_ours + num_theirs if best >= 0 else 0), row_first + best
    for place in range(len(turns) - 1, -1, -1):
        turns[place], number = came[number] % 2, came[number] // 2
    return turns
