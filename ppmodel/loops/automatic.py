"""Greedy orders with split backwards, and how long they take."""

from ppmodel.loops.compiled import filled, grid, loop
from ppmodel.ops import OpKind

NEVER = 2**62
NOTHING = -1
_F, _I, _W = int(OpKind.F), int(OpKind.I), int(OpKind.W)


@loop(fills=("program",))
def zero_bubble_order(times, memory, rule, program):
    """Fill in the kind of every operation of each rank in order, shape (S, 3B): one candidate.

    The rank that is due first (the lowest of several) decides what to start: an input gradient that is ready, unless
    it is a forward's turn; a forward that fits in memory; a weight gradient in a gap. If it starts nothing, it is due
    again when the next message arrives or a neighbour starts something.

    `times` are those of F, I, W and a transfer; `memory` is the limit, a microbatch and the part that its weight
    gradient needs. All arguments are 64-bit integers, also the choices that `rule` makes where the paper leaves them
    open:

    - `eager`: a rank still waiting for its first input gradient starts a forward even if that may delay it.
    - `skip`: a rank at least two forwards ahead of the next rank skips a forward that may delay an input gradient.
    - `fill`: whether a gap shorter than a weight gradient is filled with one: never (0); if this rank would otherwise
      become the one that has waited longest (1); always (2).
    - `depth`: limit on microbatches in flight on rank d: as memory allows (0); S-d as in 1F1B (1); 2(S-d)-1 as in
      ZB-H2 (2).
    - `free_memory`: at the memory limit, a weight gradient makes room for a waiting forward, however short the gap.
    """
    num_ranks, num_microbatches = len(program), len(program[0]) // 3
    forward, input_grad, weight_grad, comm = times
    limit, whole, kept = memory
    eager, skip, fill, depth, free_memory = rule
    end_f, end_i = grid(NEVER, num_ranks, num_microbatches), grid(NEVER, num_ranks, num_microbatches)
    done = grid(0, num_ranks, 4)
    due, free, idle = filled(NEVER, num_ranks), filled(0, num_ranks), filled(0, num_ranks)
    forward_was_last = filled(False, num_ranks)
    due[0], longest_idle = 0, 0
    while True:
        now = due[0]
        for other in range(1, num_ranks):  # the least, then its place: this order is compiled to few instructions
            if due[other] < now:
                now = due[other]
        rank = 0
        while due[rank] > now:
            rank += 1
        if now >= NEVER:
            return
        forwards, input_grads, weight_grads = done[rank][_F], done[rank][_I], done[rank][_W]

        # what can run next, and when
        forward_there = soonest_forward = input_grad_there = soonest_input_grad = NEVER
        if forwards < num_microbatches:
            if rank == 0:
                forward_there = soonest_forward = 0
            elif end_f[rank - 1][forwards] < NEVER:
                forward_there = soonest_forward = end_f[rank - 1][forwards] + comm
            else:
                soonest_forward = max(now, free[rank - 1]) + forward + comm
        if input_grads < forwards:
            forward_end, hops = end_f[rank][input_grads], num_ranks - 1 - rank
            if hops == 0:
                input_grad_there = soonest_input_grad = forward_end
            elif end_i[rank + 1][input_grads] < NEVER:
                input_grad_there = soonest_input_grad = end_i[rank + 1][input_grads] + comm
            else:
                answered = max(now, free[rank + 1]) + input_grad + comm
                soonest_input_grad = max(answered, forward_end + hops * (forward + input_grad + 2 * comm))
        stored = whole * forwards - (whole - kept) * input_grads - kept * weight_grads
        room = stored + max(whole, kept) <= limit
        if depth > 0 and forwards - input_grads > depth * (num_ranks - 1 - rank):
            room = False

        # which one to start
        kind = NOTHING
        may_forward, may_input_grad = room and forward_there <= now, input_grad_there <= now
        if may_input_grad and stored + kept - whole > limit:
            kind = _W
        elif may_input_grad and (input_grads == 0 or forward_was_last[rank] or not may_forward):
            kind = _I
        elif may_forward:
            if soonest_input_grad >= now + forward:
                kind = _F
            elif input_grads == 0:
                kind = _F if eager else NOTHING
            elif not forward_was_last[rank]:
                ahead = forwards - done[rank + 1][_F] if rank + 1 < num_ranks else 0
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
        due[rank] = free[rank] = now + (forward if kind == _F else input_grad if kind == _I else weight_grad)
        if kind == _F:
            end_f[rank][forwards], forward_was_last[rank] = free[rank], True
        elif kind == _I:
            end_i[rank][input_grads], forward_was_last[rank] = free[rank], False
        program[rank][forwards + input_grads + weight_grads] = kind
        done[rank][kind] += 1
        for neighbour in (rank - 1, rank + 1):
            if 0 <= neighbour < num_ranks:
                due[neighbour] = min(due[neighbour], max(now, free[neighbour]))


@loop
def zero_bubble_span(program, times):
    """Return the longest span of a rank, first to last operation, and the makespan, of an order that ends."""
    forward, input_grad, weight_grad, comm = times
    num_ranks, length = len(program), len(program[0])
    end_f, end_i = grid(NEVER, num_ranks, length // 3), grid(NEVER, num_ranks, length // 3)
    done, at = grid(0, num_ranks, 4), filled(0, num_ranks)
    free, first = filled(0, num_ranks), filled(NEVER, num_ranks)
    left = num_ranks * length
    while left:
        for rank in range(num_ranks):
            while at[rank] < length:
                kind, arrival = program[rank][at[rank]], 0
                number = done[rank][kind]
                if kind == _F and rank > 0:
                    arrival = end_f[rank - 1][number] + comm
                elif kind == _I and rank + 1 < num_ranks:
                    arrival = end_i[rank + 1][number] + comm
                elif kind == _I:
                    arrival = end_f[rank][number]
                if arrival >= NEVER:
                    break
                start = max(free[rank], arrival)
                first[rank] = min(first[rank], start)
                free[rank] = start + (forward if kind == _F else input_grad if kind == _I else weight_grad)
                if kind == _F:
                    end_f[rank][number] = free[rank]
                elif kind == _I:
                    end_i[rank][number] = free[rank]
                done[rank][kind] += 1
                at[rank] += 1
                left -= 1
    span, makespan = 0, 0
    for rank in range(num_ranks):
        span, makespan = max(span, free[rank] - first[rank]), max(makespan, free[rank])
    return span, makespan
