"""Two opposite 1F1B orders over the same ranks, merged as their operations are ready."""

from ppmodel.loops.compiled import filled, grid, loop


@loop(fills=("kind", "stage", "microbatch", "replica"))
def merged(num_ranks, each, kind, stage, microbatch, replica):
    """Fill in every rank's program; see `schedules.chimera`.

    A forward takes one slot, a backward two. The ends name slots; their line c S + s is stage s of copy c. Turns order
    what is ready: backwards first, then the older microbatch, then the first copy.
    """
    never, slot, left = 16 * num_ranks * each, 0, 4 * num_ranks * each
    forward_end, backward_end = grid(never, 2 * num_ranks, each), grid(never, 2 * num_ranks, each)
    forwards, backwards = filled(0, 2 * num_ranks), filled(0, 2 * num_ranks)
    free, place = filled(0, num_ranks), filled(0, num_ranks)
    while left > 0:
        for rank in range(num_ranks):
            first, chosen = never, 0
            for copy in range(2 if free[rank] <= slot else 0):
                s = rank if copy == 0 else num_ranks - 1 - rank
                line = copy * num_ranks + s
                f, b = forwards[line], backwards[line]
                if f < each and f - b < num_ranks - s:  # as many as 1F1B holds
                    ready, turn = 0 if s == 0 else forward_end[line - 1][f], 2 * (each + f) + copy
                elif b < each:
                    last, turn = s == num_ranks - 1, 2 * b + copy
                    ready = forward_end[line][b] if last else backward_end[line + 1][b]
                else:
                    continue
                if ready <= slot and turn < first:
                    first, chosen = turn, line
            if first < never:
                here, at, copy = place[rank], (first // 2) % each, first % 2
                kind[rank][here], stage[rank][here] = 0 if first >= 2 * each else 1, chosen % num_ranks
                microbatch[rank][here], replica[rank][here] = copy * each + at, copy
                if first >= 2 * each:
                    free[rank], forwards[chosen] = slot + 1, at + 1
                    forward_end[chosen][at] = free[rank]
                else:
                    free[rank], backwards[chosen] = slot + 2, at + 1
                    backward_end[chosen][at] = free[rank]
                place[rank], left = here + 1, left - 1
        slot += 1
