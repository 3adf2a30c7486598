"""The longest path through an execution graph, for many systems at once."""

import numpy as np

from ppmodel.loops.compiled import loop

NONE = -1
WHOLE, JOIN, JOINED, PAIRED, SUM, SUMMED, MEETING = range(7)
"""Steps of an instruction: an operation alone; one of a cell's and the last of them, also where they overlap; one
participant of a reduction and the last of them. With the last, all operations of the cell or the reduction end. Or a
transfer that waits for both ends: then TAKE is the receiver's stream, and KEEP says which ends post it."""


CLASS, STREAM, TAKE, GIVE, LINK, KEEP, STEP = COLUMNS = range(7)
"""Columns of an instruction.

A message occupies a register from when it is sent until it is received, so that only messages under way need one: TAKE
is the register to read and GIVE the one to write; KEEP is a further one for a reduction beside the rank, if there are
any. Register 0 stands for none and holds nothing.
"""


@loop
def fill_instructions(rows, columns, cost_class, link, overlaps, meets, num_links, beside):
    """Fill in a row of `COLUMNS` for each task, and count registers.

    `columns` are those of an `ExecutionGraph`; `overlaps` is by group, `meets` may be empty.
    """
    stream, source, group_start, remote, reduces = columns
    count, num_groups = len(cost_class), len(group_start) - 1
    keep = np.zeros(count if beside else 0, np.uint32)  # how many tasks of other streams still read it
    for op in range(len(keep)):
        if source[op] != NONE and not remote[op] and stream[op] != stream[source[op]]:
            keep[source[op]] += np.uint32(1)
    free, num_free, num_registers = np.empty(count + len(keep), np.uint32), 0, np.uint32(1)
    for group in range(num_groups):
        first, last = group_start[group], group_start[group + 1]
        summing = reduces[first]
        for place in range(first, last):
            op = np.uint32(place)
            needed, take = np.uint32(source[op]), np.uint32(0)
            if remote[op] or (beside and source[op] != NONE and stream[op] != stream[needed]):
                take = rows[needed, GIVE] if remote[op] else rows[needed, KEEP]
                if not remote[op]:
                    keep[needed] -= np.uint32(1)
                if remote[op] or keep[needed] == 0:
                    free[np.uint32(num_free)] = take
                    num_free += 1
            rows[op, CLASS], rows[op, STREAM], rows[op, TAKE] = cost_class[op], stream[op], take
            rows[op, STEP] = SUM if summing else JOIN
        if summing:
            rows[last - 1, STEP] = SUMMED
        elif last - first == 1:
            rows[last - 1, STEP] = WHOLE
        else:
            rows[last - 1, STEP] = PAIRED if overlaps[group] else JOINED
        for place in range(first, last):
            op = np.uint32(place)
            sends = link[op] != NONE
            rows[op, LINK] = link[op] if sends else num_links
            for column, is_used in ((GIVE, sends), (KEEP, beside and keep[op] > 0)):
                rows[op, column] = 0
                if is_used:
                    if num_free == 0:
                        free[0], num_free, num_registers = num_registers, 1, num_registers + np.uint32(1)
                    num_free -= 1
                    rows[op, column] = free[np.uint32(num_free)]
        if len(meets) and meets[first] >= 0:
            rows[first, TAKE], rows[first, KEEP], rows[first, STEP] = meets[first] >> 2, meets[first] & 3, MEETING
    return int(num_registers)


@loop
def longest_paths(rows, sizes, tables, overlap_factor, occupied, ends):
    """Makespan and longest span of every system, each step for all systems at once.

    `sizes` are the numbers of registers, streams and links; `tables` are durations, occupancies and latencies, each of
    shape (classes, systems), and `overlap_factor` has shape (systems,). `occupied` says whether a transfer occupies the
    sender, the receiver and its link. One number is held per register, stream or link and system, never one per
    operation. `ends` says of each operation whether it is the first (1), the last (2) or the only one (3) that its rank
    computes; without it spans are 0.
    """
    compute, occupancy, latency, delay = tables
    sends, receives, queues, holds = occupied
    systems = len(overlap_factor)
    register, cost = np.zeros((sizes[0], systems)), np.zeros((sizes[0], systems))
    free, link_free = np.zeros((sizes[1], systems)), np.zeros((sizes[2] + 1, systems))
    ready, together, began, finished, span, longest_span = np.zeros((6, systems))
    begun, posted = np.zeros((sizes[1] if len(ends) else 0, systems)), np.zeros((sizes[1], systems))
    of_ranks, first = len(ends) > 0, 0
    for row in range(len(rows)):
        class_, stream, take, step = rows[row, CLASS], rows[row, STREAM], rows[row, TAKE], rows[row, STEP]
        if step == MEETING:
            link, give, opens = rows[row, LINK], rows[row, GIVE], rows[row, KEEP]
            for k in range(systems):
                if opens & 1:
                    posted[stream, k] = max(free[stream, k], link_free[link, k]) + delay[class_, k]
                if opens & 2:
                    posted[take, k] = max(free[take, k], link_free[link, k])
                start = max(posted[stream, k], posted[take, k], link_free[link, k])
                end = start + (occupancy[class_, k] + (latency[class_, k] - delay[class_, k]))
                register[give, k] = link_free[link, k] = end
                free[stream, k] = max(free[stream, k], end if holds else posted[stream, k])
                free[take, k] = max(free[take, k], end if holds else posted[take, k])
            first = row + 1
            continue
        if step == WHOLE and not (of_ranks and ends[row]):  # most operations, in one pass
            for k in range(systems):
                begin = free[stream, k] if free[stream, k] > register[take, k] else register[take, k]
                if receives:
                    begin += cost[take, k]
                finished[k] = free[stream, k] = begin + compute[class_, k]
        else:
            for k in range(systems):
                ready[k] = free[stream, k] if free[stream, k] > ready[k] else ready[k]
                ready[k] = register[take, k] if register[take, k] > ready[k] else ready[k]
            if receives and take and step < SUM:
                for k in range(systems):
                    ready[k] += cost[take, k]
            if step < SUM:
                for k in range(systems):
                    together[k] += compute[class_, k]
            else:  # of a collective, the slowest participant's
                for k in range(systems):
                    together[k] = compute[class_, k] if compute[class_, k] > together[k] else together[k]
            if step in (JOIN, SUM):
                continue
            for k in range(systems):
                together[k] = overlap_factor[k] * together[k] if step == PAIRED else together[k]
                began[k], finished[k] = ready[k], ready[k] + together[k]
                ready[k] = together[k] = 0.0
            for op in range(first, row + 1):
                stream = rows[op, STREAM]
                for k in range(systems):
                    free[stream, k] = finished[k] if finished[k] > free[stream, k] else free[stream, k]
                if of_ranks and ends[op]:
                    for k in range(systems):
                        begun[stream, k] = began[k] if ends[op] & 1 else begun[stream, k]
                        if ends[op] & 2:
                            longest_span[k] = max(longest_span[k], finished[k] - begun[stream, k])

        if sends:  # ranks are busy beyond the end of their operations
            for k in range(systems):
                span[k] = finished[k] if finished[k] > span[k] else span[k]
        for op in range(first, row + 1):
            class_, stream, give, link = rows[op, CLASS], rows[op, STREAM], rows[op, GIVE], rows[op, LINK]
            if rows[op, KEEP]:
                for k in range(systems):
                    register[rows[op, KEEP], k], cost[rows[op, KEEP], k] = finished[k], 0.0
            if give == 0:
                continue
            if sends:
                for k in range(systems):
                    free[stream, k] = register[give, k] = free[stream, k] + occupancy[class_, k] + latency[class_, k]
            elif queues:
                for k in range(systems):
                    leaves = finished[k] if finished[k] > link_free[link, k] else link_free[link, k]
                    link_free[link, k] = leaves = leaves + occupancy[class_, k]
                    register[give, k] = leaves + latency[class_, k]
            elif receives:  # ready to be fetched, at a time the receiver decides
                for k in range(systems):
                    register[give, k] = finished[k]
            else:
                for k in range(systems):
                    register[give, k] = finished[k] + occupancy[class_, k] + latency[class_, k]
            if receives:
                for k in range(systems):
                    cost[give, k] = occupancy[class_, k] + latency[class_, k]
        first = row + 1
    for stream in range(0 if sends else len(free)):
        for k in range(systems):
            span[k] = max(span[k], free[stream, k])
    return span, longest_span
