"""Greedy orders with split backwards: the twins of `schedules.automatic.greedy` and `span_and_makespan`."""

import numpy as np

from ppmodel.kernels.jit import kernel
from ppmodel.ops import OpKind

NEVER = 2**62
NOTHING = -1
_F, _I, _W = int(OpKind.F), int(OpKind.I), int(OpKind.W)


@kernel
def zero_bubble_order(sizes, times, memory, rule):
    """Kind of every operation of each rank in order, shape (S, 3B); arguments as arrays of 64-bit integers."""
    num_ranks, num_microbatches = sizes
    forward, input_grad, weight_grad, comm = times
    limit, whole, kept = memory
    eager, skip, fill, depth, free_memory = rule
    program = np.empty((num_ranks, 3 * num_microbatches), np.int32)
    end_f = np.full((num_ranks, num_microbatches), NEVER)
    end_i = np.full((num_ranks, num_microbatches), NEVER)
    done = np.zeros((num_ranks, 4), np.int64)
    due, free, idle = np.full(num_ranks, NEVER), np.zeros(num_ranks, np.int64), np.zeros(num_ranks, np.int64)
    forward_was_last = np.zeros(num_ranks, np.bool_)
    due[0], longest_idle = 0, 0
    while True:
        rank = 0
        for other in range(1, num_ranks):
            if due[other] < due[rank]:
                rank = other
        now = due[rank]
        if now >= NEVER:
            return program
        forwards, input_grads, weight_grads = done[rank, _F], done[rank, _I], done[rank, _W]

        # what can run next, and when
        forward_there = soonest_forward = input_grad_there = soonest_input_grad = NEVER
        if forwards < num_microbatches:
            if rank == 0:
                forward_there = soonest_forward = 0
            elif end_f[rank - 1, forwards] < NEVER:
                forward_there = soonest_forward = end_f[rank - 1, forwards] + comm
            else:
                soonest_forward = max(now, free[rank - 1]) + forward + comm
        if input_grads < forwards:
            forward_end, hops = end_f[rank, input_grads], num_ranks - 1 - rank
            if hops == 0:
                input_grad_there = soonest_input_grad = forward_end
            elif end_i[rank + 1, input_grads] < NEVER:
                input_grad_there = soonest_input_grad = end_i[rank + 1, input_grads] + comm
            else:
                answered = max(now, free[rank + 1]) + input_grad + comm
                soonest_input_grad = max(answered, forward_end + hops * (forward + input_grad + 2 * comm))
        held = whole * forwards - (whole - kept) * input_grads - kept * weight_grads
        room = held + max(whole, kept) <= limit
        if depth > 0 and forwards - input_grads > depth * (num_ranks - 1 - rank):
            room = False

        # which one to start
        kind = NOTHING
        may_forward, may_input_grad = room and forward_there <= now, input_grad_there <= now
        if may_input_grad and held + kept - whole > limit:
            kind = _W
        elif may_input_grad and (input_grads == 0 or forward_was_last[rank] or not may_forward):
            kind = _I
        elif may_forward:
            if soonest_input_grad >= now + forward:
                kind = _F
            elif input_grads == 0:
                kind = _F if eager else NOTHING
            elif not forward_was_last[rank]:
                ahead = forwards - done[rank + 1, _F] if rank + 1 < num_ranks else 0
                kind = NOTHING if skip and ahead > 1 and weight_grads < input_grads else _F
        if kind == NOTHING and weight_grads < input_grads:
            gap = min(soonest_forward if room else NEVER, soonest_input_grad) - now
            starved = not room and forward_there <= now
            waited = idle[rank] + now - free[rank] + gap
            if gap >= weight_grad or fill == 2 or (free_memory and starved) or (fill == 1 and waited > longest_idle):
                kind = _W
        if kind == NOTHING and may_input_grad:
            kind = _I

        # wait, or start it
        if kind == NOTHING:
            due[rank] = input_grad_there if input_grad_there > now else NEVER
            if room and forward_there > now:
                due[rank] = min(due[rank], forward_there)
            continue
        if forwards:
            idle[rank] += now - free[rank]
            longest_idle = max(longest_idle, idle[rank])
        free[rank] = now + (forward if kind == _F else input_grad if kind == _I else weight_grad)
        due[rank] = free[rank]
        if kind == _F:
            end_f[rank, forwards], forward_was_last[rank] = free[rank], True
        elif kind == _I:
            end_i[rank, input_grads], forward_was_last[rank] = free[rank], False
        program[rank, forwards + input_grads + weight_grads] = kind
        done[rank, kind] += 1
        if rank > 0:
            due[rank - 1] = min(due[rank - 1], max(now, free[rank - 1]))
        if rank + 1 < num_ranks:
            due[rank + 1] = min(due[rank + 1], max(now, free[rank + 1]))


@kernel
def zero_bubble_span(kind, times):
    """The longest span of a rank and the makespan of an order, or twice NEVER where it deadlocks."""
    forward, input_grad, weight_grad, comm = times
    num_ranks, length = kind.shape
    end_f = np.full((num_ranks, length // 3), NEVER)
    end_i = np.full((num_ranks, length // 3), NEVER)
    forwards, input_grads, at = (
        np.zeros(num_ranks, np.int64),
        np.zeros(num_ranks, np.int64),
        np.zeros(num_ranks, np.int64),
    )
    free, first = np.zeros(num_ranks, np.int64), np.full(num_ranks, NEVER)
    left, before = kind.size, NOTHING
    while left != before:
        before = left
        for rank in range(num_ranks):
            while at[rank] < length:
                this, there = kind[rank, at[rank]], 0
                if this == _F and rank > 0:
                    there = end_f[rank - 1, forwards[rank]] + comm
                elif this == _I and rank + 1 < num_ranks:
                    there = end_i[rank + 1, input_grads[rank]] + comm
                elif this == _I:
                    there = end_f[rank, input_grads[rank]]
                if there >= NEVER:
                    break
                start = max(free[rank], there)
                first[rank] = min(first[rank], start)
                if this == _F:
                    free[rank] = start + forward
                    end_f[rank, forwards[rank]] = free[rank]
                    forwards[rank] += 1
                elif this == _I:
                    free[rank] = start + input_grad
                    end_i[rank, input_grads[rank]] = free[rank]
                    input_grads[rank] += 1
                else:
                    free[rank] = start + weight_grad
                at[rank] += 1
                left -= 1
    if left:
        return NEVER, NEVER
    return (free - first).max(), free.max()
