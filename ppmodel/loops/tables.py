"""From a table to an execution graph: the twins of `Schedule.dependencies`, `Schedule.slots` and `graph.compile`."""

import numpy as np

from ppmodel.loops.compiled import filled, loop
from ppmodel.ops import OpKind

NONE = -1

ALONE, FIRST, LATER = range(3)
"""Whether an operation is alone in its group, the first of several, or a later one."""
_F, _B, _I, _W, _S, _T, _R, _O, _G, _D = (int(kind) for kind in OpKind)


@loop(price=2**21)
def dependencies(kind, stage, microbatch, replica, rank, rank_start, group, sharing, sizes):
    """Source, remote, level and order of a table; operations that wait forever have level ``NONE``.

    `group` is the group of each operation, `sharing` whether any two may share one, and `sizes` are the numbers of
    replicas, stages and microbatches.
    """
    source = _sources(kind, stage, microbatch, replica, sizes)
    remote = np.empty(len(kind), np.bool_)
    for op in range(len(kind)):
        remote[op] = source[op] != NONE and rank[source[op]] != rank[op]
    share, following, size = _shared(group, sharing)
    level = _levels(source, group, rank, rank_start, share, following, size)
    return source, remote, level, _by_level(level, kind, share, following)


@loop
def ordered(source, group, rank, rank_start):
    """Level and order of operations whose sources are known; see `tables.dependencies.in_levels`."""
    share, following, size = _shared(group, True)
    level = _levels(source, group, rank, rank_start, share, following, size)
    return level, _by_level(level, np.zeros(len(group), np.int32), share, following)


@loop
def _sources(kind, stage, microbatch, replica, sizes):
    """The operation whose result each operation needs."""
    last_stage = sizes[1] - 1
    num_kinds = 2
    for op in range(len(kind)):
        if kind[op] == _I or kind[op] == _W:
            num_kinds = 4
            break
    index = np.full((num_kinds, sizes[0], sizes[1], sizes[2]), NONE, np.int32)
    finished = np.full((sizes[0], sizes[1]), NONE, np.int32)
    for op in range(len(kind)):
        k, r, s, m = np.uint32(kind[op]), np.uint32(replica[op]), np.uint32(stage[op]), np.uint32(microbatch[op])
        if k < _R:
            index[k, r, s, m] = op
        if k in (_B, _W):
            finished[r, s] = op

    source = np.full(len(kind), NONE, np.int32)
    for op in range(len(kind)):
        k, r, s, m = np.uint32(kind[op]), np.uint32(replica[op]), np.uint32(stage[op]), np.uint32(microbatch[op])
        if k > _O:
            continue
        if k >= _R:
            source[op] = finished[r, s]
            finished[r, s] = op  # a step needs the stage's reduction, or its gradients where there is none
        elif k == _W:
            source[op] = index[_I, r, s, m]
        elif k == _F:
            if s > 0:
                source[op] = index[_F, r, np.uint32(s - 1), m]
        elif s == last_stage:
            source[op] = index[_F, r, s, m]
        else:
            source[op] = index[_B, r, np.uint32(s + 1), m]
            if source[op] == NONE and num_kinds == 4:
                source[op] = index[_I, r, np.uint32(s + 1), m]
    return source


@loop
def _shared(group, sharing):
    """Mark each operation as ALONE in its group, its FIRST or a LATER one, and find the next one there, in a circle.

    Also how many operations each group has.
    """
    share, following = np.zeros(len(group), np.uint8), np.empty(len(group), np.int32)
    count = group.max() + 1 if sharing else 0
    latest, size = np.empty(count, np.int32), np.zeros(count, np.int32)
    for op in range(len(group) if sharing else 0):
        current = np.uint32(group[op])
        following[op] = op
        if size[current]:
            before = np.uint32(latest[current])
            share[op], share[before] = LATER, max(share[before], FIRST)
            following[op], following[before] = following[before], op
        latest[current] = op
        size[current] += 1
    return share, following, size


@loop
def _levels(source, group, rank, rank_start, share, following, size):
    """Run each rank on until it must wait; what it waits for wakes it. Levels are those of Kahn's algorithm.

    Until its level is known, an operation that rank d waits for stores ``NONE - 1 - d`` in its place; `behind` has what
    was there before for each rank.
    """
    level = np.full(len(source), NONE, np.int32)
    missing, depth_of = size.copy(), np.zeros(len(size), np.int32)
    head, behind = rank_start[:-1].copy(), np.full(len(rank_start), NONE, np.int32)
    awake, num_awake = np.empty(len(head) + 2 * len(group) + 1, np.int32), len(head)
    for here in range(len(head)):
        awake[here] = len(head) - 1 - here
    while num_awake:
        num_awake -= 1
        here = np.uint32(awake[num_awake])
        place, stop, before = head[here], rank_start[here + 1], np.int32(NONE)
        if rank_start[here] < place < stop:
            before = max(level[place - 1], before)
            if before == NONE and group[place - 1] != group[place]:
                continue  # its group waits for other ranks, and wakes this one
        while place < stop:
            op, depth = np.uint32(place), before + np.int32(1)
            needed, is_alone = np.uint32(source[op]), share[op] == ALONE
            if source[op] != NONE and (is_alone or group[needed] != group[op]):
                if level[needed] <= NONE:
                    behind[here], level[needed] = level[needed], NONE - 1 - here
                    break
                depth = max(depth, level[needed] + np.int32(1))
            place += 1
            if not is_alone:  # its level is known once all operations of the group have been reached
                current = np.uint32(group[op])
                missing[current] -= 1
                depth_of[current] = max(depth_of[current], depth)
                if missing[current]:
                    before = np.int32(NONE)
                    if place < stop and group[place] == current:
                        continue
                    break
                depth = depth_of[current]
            done, before = op, depth
            while True:
                while level[done] < NONE:
                    awake[num_awake] = NONE - 1 - level[done]
                    num_awake, level[done] = num_awake + 1, behind[NONE - 1 - level[done]]
                level[done] = depth
                if is_alone:
                    break
                done = np.uint32(following[done])
                if done == op:
                    break
                if rank[done] != here:
                    awake[num_awake] = rank[done]
                    num_awake += 1
        head[here] = place
    for op in range(len(level)):
        level[op] = max(level[op], NONE)
    return level


@loop
def _by_level(level, kind, share, following):
    """A counting sort: operations by level, then by group, without the optimizer steps."""
    start = np.zeros(level.max() + 2, np.int32)
    for op in range(len(level)):
        if level[op] != NONE and kind[op] != _O:
            start[np.uint32(level[op] + 1)] += 1
    for k in range(len(start) - 1):
        start[k + 1] += start[k]
    order = np.empty(start[-1], np.int32)
    for op in range(len(level)):
        if level[op] == NONE or kind[op] == _O or share[op] == LATER:
            continue
        depth, member = np.uint32(level[op]), np.int32(op)
        order[np.uint32(start[depth])] = op
        start[depth] += 1
        while share[op] == FIRST and following[np.uint32(member)] != op:
            member = following[np.uint32(member)]
            order[np.uint32(start[depth])] = member
            start[depth] += 1
    return order


@loop(fills=("times",))
def group_slots(length, source, late, rank, group, order, num_ranks, times):
    """Fill in start and end of every group in slots, each as early as its ranks and inputs allow.

    `late` says how many slots the input of each operation takes from its source.
    """
    start, end, free = times[0], times[1], filled(0, num_ranks)
    first = 0
    while first < len(order):
        current, last, ready = group[order[first]], first, 0
        while last < len(order) and group[order[last]] == current:
            op = order[last]
            ready = max(ready, free[rank[op]])
            if source[op] != NONE:
                ready = max(ready, end[group[source[op]]] + late[op])
            last += 1
        start[current], end[current] = ready, ready + length[current]
        for place in range(first, last):
            free[rank[order[place]]] = end[current]
        first = last


@loop(price=2**20)
def renumbered(order, kind, replica, stage, rank, source, remote, group, reductions, sizes):
    """The arrays of an `ExecutionGraph`, ordered by level; links are numbered as they first carry a message.

    `order` excludes the optimizer steps. `reductions` is 0 if reductions are left out, 1 if they occupy the ranks, 2 if
    they have streams of their own; `sizes` are the numbers of replicas, stages and ranks.
    """
    num_replicas, num_stages, num_ranks = sizes
    packed = np.empty((len(kind), 4), np.int32)  # one place to read for each operation instead of six
    for op in range(len(kind)):
        sums, beside = kind[op] == _R, kind[op] == _G or (kind[op] == _R and reductions == 2)
        packed[op, 0] = (kind[op] * num_replicas + replica[op]) * num_stages + stage[op]
        if kind[op] == _D or (sums and reductions == 0):
            packed[op, 0] = NONE
        packed[op, 1] = 2 * (rank[op] + (num_ranks if beside else 0)) + remote[op]
        packed[op, 2] = source[op]
        packed[op, 3] = group[op]
    position = np.empty(len(kind), np.int32)
    size = len(order)
    index, class_, stream = np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int32)
    source_, link = np.empty(size, np.int32), np.empty(size, np.int32)
    remote_, group_start = np.empty(size, np.bool_), np.empty(size + 1, np.int32)
    first_link, next_link = np.full(2 * num_ranks, NONE, np.int32), np.empty(len(order), np.int32)
    taker = np.empty(len(order), np.int32)  # of each link; the links of a sender are a chain
    count, num_groups, num_links, previous = 0, 0, 0, NONE
    for place in range(len(order)):
        op = np.uint32(order[place])
        if packed[op, 0] == NONE:
            continue
        at = np.uint32(count)
        position[op] = count
        index[at], class_[at], stream[at], link[at] = op, packed[op, 0], packed[op, 1] >> 1, NONE
        needed = packed[op, 2]
        source_[at] = NONE if needed == NONE else position[np.uint32(needed)]
        remote_[at] = packed[op, 1] & 1
        if remote_[at]:
            sent = np.uint32(source_[at])
            sender, current = np.uint32(stream[sent]), first_link[np.uint32(stream[sent])]
            while current != NONE and taker[np.uint32(current)] != stream[at]:
                current = next_link[np.uint32(current)]
            if current == NONE:
                current, num_links = num_links, num_links + 1
                taker[current], next_link[current] = stream[at], first_link[sender]
                first_link[sender] = current
            link[sent] = current
        if packed[op, 3] != previous:
            group_start[np.uint32(num_groups)], previous = count, packed[op, 3]
            num_groups += 1
        count += 1
    group_start[num_groups] = count
    index, class_, stream, source_, link = index[:count], class_[:count], stream[:count], source_[:count], link[:count]
    return index, class_, stream, source_, remote_[:count], link, group_start[: num_groups + 1], num_links


@loop
def peaks(kind, stage, joined, rank_start, changes):
    """The most that each rank holds in each run, from what operations take and free: see `peak_activations`."""
    num_runs, num_ranks = changes.shape[1], len(rank_start) - 1
    highest = np.full((num_runs, num_ranks), -np.inf)
    for rank in range(num_ranks):
        if not 0 <= rank_start[rank] < rank_start[rank + 1] <= len(kind) or joined[rank_start[rank]]:
            return highest[:0]  # not served here; the plain twin says why
    for op in range(rank_start[num_ranks]):
        if not (0 <= kind[op] <= _D and 0 <= stage[op] < changes.shape[2]):
            return highest[:0]
    for run in range(num_runs):
        total = 0.0  # over all ranks one after the other, as the plain twin adds
        for rank in range(num_ranks):
            op, base = rank_start[rank], 0.0
            while op < rank_start[rank + 1]:
                begun, taken, given = op, 0.0, 0.0
                while op == begun or (op < rank_start[rank + 1] and joined[op]):
                    change = changes[kind[op], run, stage[op]]
                    taken += max(change, 0.0)
                    given += min(change, 0.0)
                    op += 1
                total += taken + given
                before = total - (taken + given)
                if begun == rank_start[rank]:
                    base = before
                highest[run, rank] = max(highest[run, rank], before - base + taken)
    return highest
