"""Greedy orders with split backwards: the twins of `schedules.automatic.greedy` and `span_and_makespan`."""

import numpy as np

from ppmodel.kernels.jit import kernel
from ppmodel.ops import OpKind

NEVER = 2**62
NOTHING = -1
_F, _I, _W = int(OpKind.F), int(OpKind.I), int(OpKind.W)


@kernel
def zero_bubble_order(sizes, times, memory, rule):
    """Kind of every operation of each device in order, shape (S, 3B); arguments as arrays of 64-bit integers."""
    num_devices, num_microbatches = sizes
    forward, input_grad, weight_grad, comm = times
    limit, whole, kept = memory
    eager, skip, fill, depth, free_memory = rule
    program = np.empty((num_devices, 3 * num_microbatches), np.int32)
    end_f = np.full((num_devices, num_microbatches), NEVER)
    end_i = np.full((num_devices, num_microbatches), NEVER)
    done = np.zeros((num_devices, 4), np.int64)
    due, free, idle = np.full(num_devices, NEVER), np.zeros(num_devices, np.int64), np.zeros(num_devices, np.int64)
    forward_was_last = np.zeros(num_devices, np.bool_)
    due[0], longest_idle = 0, 0
    while True:
        device = 0
        for other in range(1, num_devices):
            if due[other] < due[device]:
                device = other
        now = due[device]
        if now >= NEVER:
            return program
        forwards, input_grads, weight_grads = done[device, _F], done[device, _I], done[device, _W]

        # what may come, and when
        forward_there = soonest_forward = input_grad_there = soonest_input_grad = NEVER
        if forwards < num_microbatches:
            if device == 0:
                forward_there = soonest_forward = 0
            elif end_f[device - 1, forwards] < NEVER:
                forward_there = soonest_forward = end_f[device - 1, forwards] + comm
            else:
                soonest_forward = max(now, free[device - 1]) + forward + comm
        if input_grads < forwards:
            forward_end, hops = end_f[device, input_grads], num_devices - 1 - device
            if hops == 0:
                input_grad_there = soonest_input_grad = forward_end
            elif end_i[device + 1, input_grads] < NEVER:
                input_grad_there = soonest_input_grad = end_i[device + 1, input_grads] + comm
            else:
                answered = max(now, free[device + 1]) + input_grad + comm
                soonest_input_grad = max(answered, forward_end + hops * (forward + input_grad + 2 * comm))
        held = whole * forwards - (whole - kept) * input_grads - kept * weight_grads
        room = held + max(whole, kept) <= limit
        if depth > 0 and forwards - input_grads > depth * (num_devices - 1 - device):
            room = False

        # what to begin
        kind = NOTHING
        may_forward, may_input_grad = room and forward_there <= now, input_grad_there <= now
        if may_input_grad and held + kept - whole > limit:
            kind = _W
        elif may_input_grad and (input_grads == 0 or forward_was_last[device] or not may_forward):
            kind = _I
        elif may_forward:
            if soonest_input_grad >= now + forward:
                kind = _F
            elif input_grads == 0:
                kind = _F if eager else NOTHING
            elif not forward_was_last[device]:
                ahead = forwards - done[device + 1, _F] if device + 1 < num_devices else 0
                kind = NOTHING if skip and ahead > 1 and weight_grads < input_grads else _F
        if kind == NOTHING and weight_grads < input_grads:
            gap = min(soonest_forward if room else NEVER, soonest_input_grad) - now
            starved = not room and forward_there <= now
            waited = idle[device] + now - free[device] + gap
            if gap >= weight_grad or fill == 2 or (free_memory and starved) or (fill == 1 and waited > longest_idle):
                kind = _W
        if kind == NOTHING and may_input_grad:
            kind = _I

        # wait, or begin it
        if kind == NOTHING:
            due[device] = input_grad_there if input_grad_there > now else NEVER
            if room and forward_there > now:
                due[device] = min(due[device], forward_there)
            continue
        if forwards:
            idle[device] += now - free[device]
            longest_idle = max(longest_idle, idle[device])
        free[device] = now + (forward if kind == _F else input_grad if kind == _I else weight_grad)
        due[device] = free[device]
        if kind == _F:
            end_f[device, forwards], forward_was_last[device] = free[device], True
        elif kind == _I:
            end_i[device, input_grads], forward_was_last[device] = free[device], False
        program[device, forwards + input_grads + weight_grads] = kind
        done[device, kind] += 1
        if device > 0:
            due[device - 1] = min(due[device - 1], max(now, free[device - 1]))
        if device + 1 < num_devices:
            due[device + 1] = min(due[device + 1], max(now, free[device + 1]))


@kernel
def zero_bubble_span(kind, times):
    """The longest span of a device and the makespan of an order, or twice NEVER where it deadlocks."""
    forward, input_grad, weight_grad, comm = times
    num_devices, length = kind.shape
    end_f = np.full((num_devices, length // 3), NEVER)
    end_i = np.full((num_devices, length // 3), NEVER)
    forwards, input_grads, at = (
        np.zeros(num_devices, np.int64),
        np.zeros(num_devices, np.int64),
        np.zeros(num_devices, np.int64),
    )
    free, first = np.zeros(num_devices, np.int64), np.full(num_devices, NEVER)
    left, before = kind.size, NOTHING
    while left != before:
        before = left
        for device in range(num_devices):
            while at[device] < length:
                this, there = kind[device, at[device]], 0
                if this == _F and device > 0:
                    there = end_f[device - 1, forwards[device]] + comm
                elif this == _I and device + 1 < num_devices:
                    there = end_i[device + 1, input_grads[device]] + comm
                elif this == _I:
                    there = end_f[device, input_grads[device]]
                if there >= NEVER:
                    break
                start = max(free[device], there)
                first[device] = min(first[device], start)
                if this == _F:
                    free[device] = start + forward
                    end_f[device, forwards[device]] = free[device]
                    forwards[device] += 1
                elif this == _I:
                    free[device] = start + input_grad
                    end_i[device, input_grads[device]] = free[device]
                    input_grads[device] += 1
                else:
                    free[device] = start + weight_grad
                at[device] += 1
                left -= 1
    if left:
        return NEVER, NEVER
    return (free - first).max(), free.max()
