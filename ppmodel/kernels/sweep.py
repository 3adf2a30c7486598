"""From a table straight to times, for one system: no graph is made that a single simulation would use once.

Each rank runs on until it must wait for a message, and the message wakes it, as in `kernels.tables._levels`. Every time
is a sum and a maximum of the same numbers, in the same order, as on the longest path through the graph.
"""

import numpy as np

from ppmodel.kernels.jit import kernel
from ppmodel.ops import OpKind

_F, _B, _I, _W, _R = (int(kind) for kind in OpKind)
ABSENT = -1.0  # of a result; that of an operation which rank d waits for is ABSENT - 1 - d
WHOLE, HALF, BOTH_HALVES = 1, 2, 3
MOST_RANKS = 1024
"""With more ranks a link for every pair of them would not fit the cache; `sweep` leaves those to the graph."""


@kernel
def sweep(
    kind, stage, microbatch, replica, joined, rank_start, placement, num_microbatches, compute, occupancy, latency,
    overlap_factor, sends, receives, queues, reduces, times,
):  # fmt: skip
    """Fill `times` with start and end of every operation, in the table's order; return makespan and longest span.

    The three tables are by class, as `ExecutionGraph.cost_class`; `sends`, `receives` and `queues` say whether a
    transfer occupies the sender, the receiver, its link, and `reduces` whether reductions take part. Reductions that
    take none have NaN. A makespan below 0 says that the table is none that this sweep serves: one with reductions that
    take part, or with a mistake, which the graph finds. The longest span is the one of `metrics.longest_span_s`.
    """
    num_replicas, num_stages = placement.shape
    num_ranks, num_ops = len(rank_start) - 1, len(kind)
    by_microbatch, by_kind = num_stages * num_microbatches, num_replicas * num_stages
    whole = len(stage) == len(microbatch) == len(replica) == len(joined) == num_ops
    if num_ranks > MOST_RANKS or not whole or not _sound(rank_start, placement, num_ops):
        return -1.0, 0.0
    there = np.full(2 * num_replicas * by_microbatch, ABSENT)  # of forwards, then of backwards: when a result arrives
    made = np.zeros(num_replicas * by_microbatch, np.uint8)  # of the backward: WHOLE, HALF or BOTH_HALVES
    link_free = np.zeros(num_ranks * num_ranks)
    free, head = np.zeros(num_ranks), rank_start[:-1].copy()
    ends = np.zeros(4, np.int64)  # forwards of the first and last stage, backwards of the last and first
    awake, num_awake = np.empty(num_ranks, np.int32), num_ranks
    for rank in range(num_ranks):
        awake[rank] = num_ranks - 1 - rank
    backwards = num_replicas * by_microbatch
    done, makespan, longest = 0, 0.0, 0.0
    while num_awake:
        num_awake -= 1
        here = awake[num_awake]
        now = free[here]
        op, stop = head[here], rank_start[here + 1]
        while op < stop:
            after = op + 1
            while after < stop and joined[after]:
                after += 1
            # what the cell needs, and how long it takes
            ready, together, forward, backward, waits = now, 0.0, False, False, False
            for one in range(op, after):
                k, s, m, r = kind[one], stage[one], microbatch[one], replica[one]
                if k == _R:
                    if reduces or after - op > 1 or joined[one]:
                        return -1.0, 0.0
                    continue
                bad = k < 0 or k > _W or s < 0 or s >= num_stages or m < 0 or m >= num_microbatches
                if bad or r < 0 or r >= num_replicas or placement[r, s] != here or (joined[one] and one == op):
                    return -1.0, 0.0
                place = (r * num_stages + s) * num_microbatches + m
                needed, source = -1, s
                if k == _W:
                    if made[place] != HALF:
                        return -1.0, 0.0
                elif k == _F:
                    if s > 0:
                        needed, source = place - num_microbatches, s - 1
                elif s == num_stages - 1:
                    needed = place
                else:
                    needed, source = backwards + place + num_microbatches, s + 1
                if needed >= 0:
                    if there[needed] < 0:
                        if placement[r, source] == here:
                            return -1.0, 0.0  # waits for what comes later on its own rank
                        there[needed] = ABSENT - 1 - here
                        waits = True
                        break
                    if placement[r, source] != here:
                        if there[needed] > ready:
                            ready = there[needed]
                        if receives:
                            class_ = r * num_stages + source
                            if k != _F:
                                half = made[place + num_microbatches] >= HALF
                                class_ += by_kind * (_I if half else _B)
                            ready += occupancy[class_] + latency[class_]
                together += compute[k * by_kind + r * num_stages + s]
                if k == _F:
                    forward = True
                else:
                    backward = True
            if waits:
                break
            if kind[op] == _R:
                times[0, op] = times[1, op] = np.nan
                done += 1
                op += 1
                continue
            if after - op > 1 and forward and backward:
                together = overlap_factor * together
            finished = ready + together
            now = finished
            # what the cell gives
            for one in range(op, after):
                k, s, m, r = kind[one], stage[one], microbatch[one], replica[one]
                times[0, one], times[1, one] = ready, finished
                place = (r * num_stages + s) * num_microbatches + m
                if k == _W:
                    if made[place] != HALF:
                        return -1.0, 0.0
                    made[place] = BOTH_HALVES
                    continue
                given, target = place, s + 1
                if k == _F:
                    ends[0] += s == 0
                    ends[1] += s == num_stages - 1
                    if s == num_stages - 1:
                        target = s
                else:
                    made[place] = WHOLE if k == _B else HALF
                    given, target = backwards + place, s - 1
                    ends[2] += s == num_stages - 1
                    ends[3] += s == 0
                    if s == 0:
                        target = 0
                waiting = there[given]
                if waiting >= 0:
                    return -1.0, 0.0  # stands twice in the table
                home = placement[r, target]
                arrives = finished
                if home != here:
                    class_ = k * by_kind + r * num_stages + s
                    if sends:
                        now = now + occupancy[class_] + latency[class_]
                        arrives = now
                    elif queues:
                        link = here * num_ranks + home
                        leaves = link_free[link] if link_free[link] > finished else finished
                        link_free[link] = leaves + occupancy[class_]
                        arrives = link_free[link] + latency[class_]
                    elif not receives:
                        arrives = finished + occupancy[class_] + latency[class_]
                there[given] = arrives
                if waiting < ABSENT:
                    awake[num_awake] = int(ABSENT - 1 - waiting)
                    num_awake += 1
            done += after - op
            op = after
        free[here], head[here] = now, op
    if done < num_ops or ends[0] != ends[1] or ends[2] != ends[3]:
        return -1.0, 0.0
    for rank in range(num_ranks):
        first, last = rank_start[rank], rank_start[rank + 1] - 1
        while last >= first and kind[last] == _R:
            last -= 1
        while first <= last and kind[first] == _R:
            first += 1
        if last >= first:
            makespan = max(makespan, times[1, last])
            longest = max(longest, times[1, last] - times[0, first])
    return makespan, longest


@kernel
def _sound(rank_start, placement, num_ops):
    """Whether every rank has its place in the table's arrays."""
    sound = rank_start[0] == 0 and rank_start[-1] == num_ops
    for rank in range(len(rank_start) - 1):
        sound &= rank_start[rank] < rank_start[rank + 1]
    for homes in placement:
        for home in homes:
            sound &= 0 <= home < len(rank_start) - 1
    return sound
