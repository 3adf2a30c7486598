"""From a table straight to times, for one system, without building a graph that a single simulation would use once.

Each rank runs on until it must wait for a message, and that message wakes it, as in `loops.tables._levels`. Every
time is a sum and a maximum of the same numbers, in the same order, as on the longest path through the graph.
"""

import numpy as np

from ppmodel.loops.compiled import loop
from ppmodel.ops import OpKind

_F, _B, _I, _W, _S, _T, _R, _O, _G, _D = (int(kind) for kind in OpKind)
ABSENT, OVER = -1.0, -0.5
"""In place of the time at which a result is there: where it is not yet, and of a half whose other half is done, too.

Where rank d waits for the result, ``ABSENT - 1 - d`` stands there.
"""

NOTHING, OWN, MESSAGE = range(3)
"""What a class of operations needs: nothing, a result of its own rank, or one of another."""

NEEDS, NEEDED, GIVEN, LINK = range(4)
"""What is known of a class: what it needs, how far from its own place that and its own result stand, and its link."""

NOT_SERVED = -1.0, 0.0, 0
_NO_SHARES = np.empty(0)


def pass_over(
    schedule, tables, overlap_factor=1.0, occupied=(False, False, False), shares=_NO_SHARES, times=None,
):  # fmt: skip
    """Run a compiled `single_pass` over a schedule.

    This is what the idealised slots and the first simulation of a table begin with; where it returns None, they derive
    its dependencies, which also say what is wrong with it.

    Returns
    -------
    (float, float, int) or None
        Makespan, longest span and messages; None if compiling does not pay, or this loop does not serve the table.
    """
    compiled = single_pass.compiled(schedule.num_operations)
    if not compiled:
        return None
    result = compiled(
        schedule.kind, schedule.stage, schedule.microbatch, schedule.replica, schedule.joined, schedule.rank_start,
        schedule.placement, schedule.table_microbatches, *tables, shares, overlap_factor, *occupied,
        np.empty((2, schedule.num_operations)) if times is None else times,
    )  # fmt: skip
    return None if result[0] < 0 else result


@loop(price=2**22)
def single_pass(
    kind, stage, microbatch, replica, joined, rank_start, placement, num_microbatches, compute, occupancy, latency,
    shares, overlap_factor, sends, receives, queues, times,
):  # fmt: skip
    """Fill `times` with every operation's start and end in table order; return makespan, longest span and messages.

    The three tables are by class, as `ExecutionGraph.cost_class`; `shares` are factors on the duration of each
    operation, or empty; `sends`, `receives` and `queues` say whether a transfer occupies the sender, the receiver and
    its link. Optimizer steps, which follow when everything else has ended, are NaN. A makespan below 0 means that this
    pass does not serve the table: it has reductions, which may wait for each other in a cycle even where they are left
    out, or a mistake, which the graph reports. The longest span is that of `metrics.longest_span_s`.
    """
    num_replicas, num_stages = placement.shape
    num_homes, num_ranks, begin, end = placement.size, len(rank_start) - 1, times[0], times[1]
    if len(kind) < 2 * num_stages * num_microbatches or not _sound(rank_start, placement, joined):
        return NOT_SERVED
    shared = len(shares) > 0
    size = num_homes * num_microbatches  # of each of: forwards, backwards, and first halves of backwards
    split = False
    for k in kind:
        split |= k > _B
    classes, num_links = _classes(placement, num_ranks, num_microbatches)
    home = placement.reshape(-1)
    results = np.full((3 if split else 2) * size, ABSENT)
    count, link_free = np.zeros(len(classes), np.int32), np.zeros(num_links)
    free, head = np.zeros(num_ranks), rank_start[:-1].copy()
    begun, ended = np.full(num_ranks, np.inf), np.zeros(num_ranks)
    awake, num_awake = np.arange(num_ranks - 1, -1, -1), num_ranks
    while num_awake:
        num_awake -= 1
        here = awake[num_awake]
        now, op, stop = free[here], head[here], rank_start[here + 1]
        while op < stop:
            ready, together, forward, backward, waits, after = now, 0.0, False, False, False, op
            while True:  # what a cell's operations need, and how long they take
                k, s = np.uint32(kind[after]), np.uint32(stage[after])  # unsigned: negative values are too large
                m, r = np.uint32(microbatch[after]), np.uint32(replica[after])
                if k > _W or s >= num_stages or m >= num_microbatches or r >= num_replicas:
                    if k != _O or after > op or (op + 1 < stop and (joined[op + 1] or kind[op + 1] != _O)):
                        return NOT_SERVED
                    break
                at = r * num_stages + s
                class_, place = np.uint64(k * num_homes + at), at * num_microbatches + m
                if home[np.uint64(at)] != here:
                    return NOT_SERVED
                needs = classes[class_, NEEDS]
                if needs != NOTHING:
                    needed = np.uint64(place + classes[class_, NEEDED])
                    arrived = results[needed]
                    if arrived < 0:
                        if needs == OWN:
                            return NOT_SERVED  # waits for something later on its own rank, or has run before
                        results[needed], waits = ABSENT - 1 - here, True
                        break
                    if needs == MESSAGE:
                        if arrived > ready:
                            ready = arrived
                        if receives:
                            source = at - 1
                            if k != _F:
                                half = len(results) > 2 * size and results[needed + np.uint64(size)] != ABSENT
                                source = at + 1 + num_homes * (_I if half else _B)
                            ready += occupancy[source] + latency[source]
                together += compute[class_] * shares[after] if shared else compute[class_]
                forward |= k == _F
                backward |= k != _F
                after += 1
                if after == stop or not joined[after]:
                    break
            if waits:
                break
            if after == op:
                begin[op] = end[op] = np.nan
                op += 1
                continue
            if forward and backward:
                together = overlap_factor * together
            now = finished = ready + together
            begun[here], ended[here] = min(begun[here], ready), finished
            several = after > op + 1
            while op < after:  # what they produce
                if several:
                    k, at = np.uint32(kind[op]), np.uint32(replica[op]) * num_stages + np.uint32(stage[op])
                    class_, place = np.uint64(k * num_homes + at), at * num_microbatches + np.uint32(microbatch[op])
                begin[op], end[op] = ready, finished
                count[class_] += 1
                given, link = np.uint64(place + classes[class_, GIVEN]), classes[class_, LINK]
                waiting = results[given]
                if k == _W:
                    if waiting < 0:
                        return NOT_SERVED  # occurs twice in the table
                    results[given] = OVER
                    op += 1
                    continue
                if waiting >= 0:
                    return NOT_SERVED
                if k == _I:
                    results[given + np.uint64(size)] = 0.0
                if link < 0:
                    results[given] = finished
                elif sends:
                    now = results[given] = now + occupancy[class_] + latency[class_]
                elif queues:
                    leaves = link_free[np.uint64(link)]
                    leaves = (leaves if leaves > finished else finished) + occupancy[class_]
                    link_free[np.uint64(link)] = leaves
                    results[given] = leaves + latency[class_]
                else:
                    results[given] = finished if receives else finished + occupancy[class_] + latency[class_]
                if waiting < ABSENT:
                    awake[num_awake] = int(ABSENT - 1 - waiting)
                    num_awake += 1
                op += 1
        free[here], head[here] = now, op
    for rank in range(num_ranks):
        if head[rank] < rank_start[rank + 1]:
            return NOT_SERVED  # some wait forever
    for first in range(0, num_homes, num_stages):
        last = first + num_stages - 1
        if count[first] != count[last]:
            return NOT_SERVED  # some have no consumer
        if count[_B * num_homes + first] + count[_I * num_homes + first] != (
            count[_B * num_homes + last] + count[_I * num_homes + last]
        ):
            return NOT_SERVED
    messages = 0
    for class_ in range(len(classes)):
        messages += count[class_] if classes[class_, LINK] >= 0 else 0
    return ended.max(), (ended - begun).max(), messages


@loop
def _sound(rank_start, placement, joined):
    """Check that every rank has a place in the table's arrays."""
    if rank_start[0] != 0 or rank_start[-1] != len(joined) or not (np.diff(rank_start) > 0).all():
        return False
    return not joined[rank_start[:-1]].any() and placement.min() >= 0 and placement.max() < len(rank_start) - 1


@loop
def _classes(placement, num_ranks, num_microbatches):
    """Describe every class of operations, shape (4 * replicas * stages, 4), and count links."""
    num_replicas, num_stages = placement.shape
    num_homes = placement.size
    size = num_homes * num_microbatches
    classes = np.zeros((4 * num_homes, 4), np.int64)
    first_link, num_links = np.full(num_ranks, -1), 0  # the links of a sender are a chain
    next_link, taker = np.empty(2 * num_homes, np.int64), np.empty(2 * num_homes, np.int64)
    for k in (_F, _B, _I, _W):
        for r in range(num_replicas):
            for s in range(num_stages):
                at, here = r * num_stages + s, placement[r, s]
                class_ = k * num_homes + at
                before = s - 1 if k == _F else s + 1  # the stages whose result it needs, and that need its own
                after = s + 1 if k == _F else s - 1
                classes[class_, LINK] = -1
                if k == _W:
                    classes[class_, NEEDS], classes[class_, NEEDED], classes[class_, GIVEN] = OWN, 2 * size, 2 * size
                    continue
                if k != _F:
                    classes[class_, NEEDS], classes[class_, GIVEN] = OWN, size
                if 0 <= before < num_stages:
                    classes[class_, NEEDS] = OWN if placement[r, before] == here else MESSAGE
                    classes[class_, NEEDED] = -num_microbatches if k == _F else size + num_microbatches
                if 0 <= after < num_stages and placement[r, after] != here:
                    link = first_link[here]
                    while link >= 0 and taker[link] != placement[r, after]:
                        link = next_link[link]
                    if link < 0:
                        link, num_links = num_links, num_links + 1
                        taker[link], next_link[link], first_link[here] = placement[r, after], first_link[here], link
                    classes[class_, LINK] = link
    return classes, num_links
