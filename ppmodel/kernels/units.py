"""The order of two operations that ends their cell first: the twin of `costs.unit_order._search`."""

import numpy as np

from ppmodel.compiled import loop

_STATE = 6


@loop
def unit_order(ours, theirs, our_rest, their_rest, contention, enough):
    """Whose turn it is, item by item; empty if no order takes less than `enough`.

    Each operation is given as what its items wait for and their seconds of kernels and collectives, and as the seconds
    left from each item on.
    """
    num_ours, num_theirs = len(ours[0]), len(theirs[0])
    above, row = np.empty((64, _STATE)), np.empty((64, _STATE))
    above_start, row_start = np.zeros(num_theirs + 2, np.int64), np.zeros(num_theirs + 2, np.int64)
    came = np.empty(1024, np.int64)  # for every state kept: twice the previous state, plus whose turn it was
    front, from_where = np.empty((64, _STATE)), np.empty(64, np.int64)
    above_first, row_first = 0, 0  # the number of the first state of each row
    state = np.empty(_STATE)
    for i in range(num_ours + 1):
        above, row, above_start, row_start = row, above, row_start, above_start
        above_first, row_first = row_first, row_first + above_start[num_theirs + 1]
        filled = 0
        for j in range(num_theirs + 1):
            row_start[j], kept = filled, 0
            compute, comm = our_rest[i, 0] + their_rest[j, 0], our_rest[i, 1] + their_rest[j, 1]
            if i == 0 and j == 0:
                state[:] = 0.0
                front, from_where, kept = _offer(front, from_where, kept, state, -1, compute, comm, contention, enough)
            if i:
                own, seconds = ours[0][i - 1], ours[1]
                for index in range(above_start[j], above_start[j + 1]):
                    _after(above, index, own, seconds[i - 1, 0], seconds[i - 1, 1], contention, state)
                    before = 2 * (above_first + index)
                    front, from_where, kept = _offer(
                        front, from_where, kept, state, before, compute, comm, contention, enough
                    )
            if j:
                own, seconds = theirs[0][j - 1], theirs[1]
                for index in range(row_start[j - 1], row_start[j]):
                    _after(row, index, own, seconds[j - 1, 0], seconds[j - 1, 1], contention, state)
                    before = 2 * (row_first + index) + 1
                    front, from_where, kept = _offer(
                        front, from_where, kept, state, before, compute, comm, contention, enough
                    )
            _sort(front, from_where, kept)
            row, came = _room(row, filled + kept), _room_for(came, row_first + filled + kept)
            row[filled : filled + kept] = front[:kept]
            came[row_first + filled : row_first + filled + kept] = from_where[:kept]
            filled += kept
            row_start[j + 1] = filled
    best, first, last = -1, row_start[num_theirs], row_start[num_theirs + 1]
    for index in range(first, last):
        if best < 0 or row[index, 0] + row[index, 1] < row[best, 0] + row[best, 1]:
            best = index
    if best < 0:
        return np.empty(0, np.int64)
    turns, state_number = np.empty(num_ours + num_theirs, np.int64), row_first + best
    for place in range(len(turns) - 1, -1, -1):
        turns[place] = came[state_number] % 2
        state_number = came[state_number] // 2
    return turns


@loop
def _after(states, index, own, compute, comm, contention, new):
    wait = states[index, 2 + own]
    beside = min(compute, states[index, 1] - wait)
    done = wait + beside
    new[0] = states[index, 0] + (wait + beside * contention + (compute - beside))
    new[1] = states[index, 1] - done
    for place in range(2, _STATE):
        left = states[index, place]
        new[place] = left - done if left > done else 0.0
    if comm:
        new[1] += comm
        new[2 + own] = new[1]


@loop
def _offer(front, from_where, kept, state, before, compute, comm, contention, enough):
    """Keep a state and drop those that it dominates, unless it is too late or itself dominated."""
    ahead = state[1] + comm
    if not state[0] + (max(compute, ahead) + (contention - 1) * min(compute, ahead)) < enough:
        return front, from_where, kept
    for other in range(kept):
        place = 0
        while place < _STATE and front[other, place] <= state[place]:
            place += 1
        if place == _STATE:
            return front, from_where, kept
    left = 0
    for other in range(kept):
        place = 0
        while place < _STATE and state[place] <= front[other, place]:
            place += 1
        if place < _STATE:
            _copy(front, from_where, other, left)
            left += 1
    front, from_where = _room(front, left + 1), _room_for(from_where, left + 1)
    front[left] = state
    from_where[left] = before
    return front, from_where, left + 1


@loop
def _copy(front, from_where, source, target):
    if source != target:
        for place in range(_STATE):
            front[target, place] = front[source, place]
        from_where[target] = from_where[source]


@loop
def _sort(front, from_where, kept):
    """Sort in ascending order."""
    state = np.empty(_STATE)
    for place in range(1, kept):
        state[:] = front[place]
        before, at = from_where[place], place
        while at and _below(state, front, at - 1):
            _copy(front, from_where, at - 1, at)
            at -= 1
        front[at] = state
        from_where[at] = before


@loop
def _below(state, front, other):
    for place in range(_STATE):
        if state[place] != front[other, place]:
            return state[place] < front[other, place]
    return False


@loop
def _room(states, needed):
    if needed <= len(states):
        return states
    more = np.empty((2 * needed, _STATE))
    more[: len(states)] = states
    return more


@loop
def _room_for(numbers, needed):
    if needed <= len(numbers):
        return numbers
    more = np.empty(2 * needed, np.int64)
    more[: len(numbers)] = numbers
    return more
