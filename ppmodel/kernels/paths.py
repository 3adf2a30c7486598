"""The longest path through an execution graph, for one system or for many; its plain twin is in `simulation`."""

import numpy as np

from ppmodel.compiled import loop

NONE = -1
WHOLE, JOIN, JOINED, PAIRED, SUM, SUMMED = range(6)
"""Steps of an instruction: an operation alone; one of a cell's and the last of them, also where they overlap; one
participant of a reduction and the last of them. With the last, all operations of the cell or the reduction end."""


CLASS, STREAM, TAKE, GIVE, LINK, KEEP, STEP = COLUMNS = range(7)
"""Columns of an instruction.

A message occupies a register from when it is sent until it is received, so that only messages under way need one: TAKE
is the register to read and GIVE the one to write; KEEP is a further one for a reduction beside the rank, if there are
any. Register 0 stands for none and holds nothing.
"""


@loop
def fill_instructions(
    rows, cost_class, stream, source, remote, link, index, group_start, overlaps, num_links, first_reduction, beside
):
    """Fill in a row of `COLUMNS` for each operation, and count registers; only `overlaps` is in the table's order."""
    count, num_groups = len(cost_class), len(group_start) - 1
    keep = np.zeros(count if beside else 0, np.bool_)
    for op in range(len(keep)):
        if source[op] != NONE and not remote[op] and stream[op] != stream[source[op]]:
            keep[source[op]] = True
    free, num_free, num_registers = np.empty(count + len(keep), np.uint32), 0, np.uint32(1)
    for group in range(num_groups):
        first, last = group_start[group], group_start[group + 1]
        summing = cost_class[first] >= first_reduction
        for place in range(first, last):
            op = np.uint32(place)
            needed, take = np.uint32(source[op]), np.uint32(0)
            if remote[op] or (beside and source[op] != NONE and stream[op] != stream[needed]):
                take = rows[needed, GIVE] if remote[op] else rows[needed, KEEP]
                free[np.uint32(num_free)] = take
                num_free += 1
            rows[op, CLASS], rows[op, STREAM], rows[op, TAKE] = cost_class[op], stream[op], take
            rows[op, STEP] = SUM if summing else JOIN
        if summing:
            rows[last - 1, STEP] = SUMMED
        elif last - first == 1:
            rows[last - 1, STEP] = WHOLE
        else:
            rows[last - 1, STEP] = PAIRED if overlaps[np.uint32(index[first])] else JOINED
        for place in range(first, last):
            op = np.uint32(place)
            rows[op, GIVE], rows[op, LINK], rows[op, KEEP] = 0, num_links, 0
            if link[op] != NONE:
                if num_free == 0:
                    free[0], num_free, num_registers = num_registers, 1, num_registers + np.uint32(1)
                num_free -= 1
                rows[op, GIVE], rows[op, LINK] = free[np.uint32(num_free)], link[op]
            if beside and keep[op]:
                if num_free == 0:
                    free[0], num_free, num_registers = num_registers, 1, num_registers + np.uint32(1)
                num_free -= 1
                rows[op, KEEP] = free[np.uint32(num_free)]
    return int(num_registers)


@loop
def longest_path(rows, sizes, tables, overlap_factor, occupied, ends, times, shares, copies, copied):
    """Makespan and longest span of every system, each step for all systems at once.

    `sizes` are the numbers of registers, streams and links; `tables` are durations, occupancies and latencies, each of
    shape (classes, systems), and `overlap_factor` has shape (systems,). `occupied` says whether a transfer occupies the
    sender, the receiver and its link. One number is held per register, stream or link and system, never one per
    operation. `ends` says of each operation whether it is the first (1), the last (2) or the only one (3) that its rank
    computes; without it spans are 0.

    Of a single system, `times` is filled: start and end of every operation and, with four rows, departure and arrival,
    NaN if nothing is sent. `shares` are then the shares of its cell after which each result can be sent, and `copies`
    the arrays of a `simulation.copies.Copies`, whose copy times `copied` takes. Where one is None, the compiled loop
    contains no trace of it.
    """
    compute, occupancy, latency = tables
    sends, receives, queues = occupied
    systems = 1 if times is not None else len(overlap_factor)  # a constant 1 leaves no inner loops
    register, cost = np.zeros((sizes[0], systems)), np.zeros((sizes[0], systems))
    free, link_free = np.zeros((sizes[1], systems)), np.zeros((sizes[2] + 1, systems))
    ready, together, began, finished, span, longest_span = np.zeros((6, systems))
    begun = np.zeros((sizes[1] if len(ends) else 0, systems))
    of_ranks, wanted = len(ends) > 0, False
    if times is not None:
        wanted, sender = len(times) == 4, np.zeros(sizes[0], np.uint32)
    if copies is not None:
        seconds, needs, fetch_start, fetch = copies
        ended, out_free, in_free, back = np.zeros(sizes[1]), np.zeros(sizes[1]), np.zeros(sizes[1]), 0.0
    brief, first = not wanted, 0
    for row in range(len(rows)):
        class_, stream, step = rows[row, CLASS], rows[row, STREAM], rows[row, STEP]
        take, give, link = rows[row, TAKE], rows[row, GIVE], rows[row, LINK]
        # most operations, in one pass: of a single system, then of many
        if times is not None and shares is None and copies is None and brief and step == WHOLE:
            end = free[stream, 0] if free[stream, 0] > register[take, 0] else register[take, 0]
            if receives:
                end += cost[take, 0]
            times[0, row] = end
            times[1, row] = end = end + compute[class_, 0]
            free[stream, 0] = end
            if give:
                if queues:
                    leaves = (end if end > link_free[link, 0] else link_free[link, 0]) + occupancy[class_, 0]
                    link_free[link, 0] = leaves
                    register[give, 0] = leaves + latency[class_, 0]
                elif receives and not sends:
                    register[give, 0], cost[give, 0] = end, occupancy[class_, 0] + latency[class_, 0]
                else:
                    arrival = end + occupancy[class_, 0] + latency[class_, 0]
                    register[give, 0] = arrival
                    if sends:
                        free[stream, 0] = arrival
                    if receives:
                        cost[give, 0] = occupancy[class_, 0] + latency[class_, 0]
            if rows[row, KEEP]:
                register[rows[row, KEEP], 0] = end
            first = row + 1
            continue
        if times is None and brief and step == WHOLE and not (of_ranks and ends[row]):
            for k in range(systems):
                begin = free[stream, k] if free[stream, k] > register[take, k] else register[take, k]
                if receives:
                    begin += cost[take, k]
                finished[k] = free[stream, k] = begin + compute[class_, k]
            if give and queues:
                for k in range(systems):
                    leaves = finished[k] if finished[k] > link_free[link, k] else link_free[link, k]
                    link_free[link, k] = leaves = leaves + occupancy[class_, k]
                    register[give, k] = leaves + latency[class_, k]
            elif sends:  # the rank is busy beyond the end of the operation
                for k in range(systems):
                    span[k] = finished[k] if finished[k] > span[k] else span[k]
                    if give:
                        free[stream, k] = register[give, k] = finished[k] + occupancy[class_, k] + latency[class_, k]
            elif give:
                for k in range(systems):
                    register[give, k] = finished[k]
                    if not receives:
                        register[give, k] = finished[k] + occupancy[class_, k] + latency[class_, k]
            if receives and give:
                for k in range(systems):
                    cost[give, k] = occupancy[class_, k] + latency[class_, k]
            if rows[row, KEEP]:
                for k in range(systems):
                    register[rows[row, KEEP], k] = finished[k]
            first = row + 1
            continue

        for k in range(systems):
            ready[k] = free[stream, k] if free[stream, k] > ready[k] else ready[k]
            ready[k] = register[take, k] if register[take, k] > ready[k] else ready[k]
        if receives and take and step < SUM:
            if times is not None and wanted:
                times[2, sender[take]] = times[2, sender[take]] if sends else ready[0]
                times[3, sender[take]] = ready[0] + cost[take, 0]
            for k in range(systems):
                ready[k] += cost[take, k]
        if copies is not None:  # start copies back in, and wait for those that are needed
            for place in range(fetch_start[row], fetch_start[row + 1]):
                forward = fetch[place]
                copied[2, forward] = max(ended[stream], copied[1, forward], in_free[stream])
                copied[3, forward] = in_free[stream] = copied[2, forward] + seconds[forward]
            if needs[row] != NONE:
                back = max(back, copied[3, needs[row]])
            if step not in (JOIN, SUM):
                ready[0], back = max(ready[0], back), 0.0
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
            began[k], finished[k], ready[k] = ready[k], ready[k] + together[k], 0.0

        for op in range(first, row + 1):
            class_, stream = rows[op, CLASS], rows[op, STREAM]
            if of_ranks and ends[op]:
                for k in range(systems):
                    begun[stream, k] = began[k] if ends[op] & 1 else begun[stream, k]
                    if ends[op] & 2:
                        longest_span[k] = max(longest_span[k], finished[k] - begun[stream, k])
            for k in range(systems):
                free[stream, k] = finished[k] if finished[k] > free[stream, k] else free[stream, k]
                if times is not None:
                    times[0, op], times[1, op] = began[k], finished[k]
            if copies is not None:
                ended[stream] = finished[0]
                if seconds[op] >= 0:
                    copied[0, op] = max(finished[0], out_free[stream])
                    copied[1, op] = out_free[stream] = copied[0, op] + seconds[op]
            if sends:  # the rank is busy beyond the end of the operation
                for k in range(systems):
                    span[k] = finished[k] if finished[k] > span[k] else span[k]
            if rows[op, KEEP]:
                for k in range(systems):
                    register[rows[op, KEEP], k] = finished[k]
            give, link = rows[op, GIVE], rows[op, LINK]
            if times is not None and wanted:
                times[2, op] = times[3, op] = np.nan
            if give == 0:
                continue
            if shares is not None:
                finished[0] = began[0] + shares[op] * together[0]
            leaves = finished[0]
            if sends:
                leaves = free[stream, 0]
                for k in range(systems):
                    free[stream, k] = register[give, k] = free[stream, k] + occupancy[class_, k] + latency[class_, k]
            elif queues:
                leaves = max(leaves, link_free[link, 0])
                for k in range(systems):
                    begin = finished[k] if finished[k] > link_free[link, k] else link_free[link, k]
                    link_free[link, k] = begin = begin + occupancy[class_, k]
                    register[give, k] = begin + latency[class_, k]
            elif receives:  # ready to be fetched, at a time the receiver decides
                for k in range(systems):
                    register[give, k] = finished[k]
            else:
                for k in range(systems):
                    register[give, k] = finished[k] + occupancy[class_, k] + latency[class_, k]
            if times is not None and wanted:
                times[2, op], times[3, op] = leaves, register[give, 0]
            if receives:
                for k in range(systems):
                    cost[give, k] = occupancy[class_, k] + latency[class_, k]
                if times is not None:
                    sender[give] = op
            if shares is not None:
                finished[0] = began[0] + together[0]
        first = row + 1
        for k in range(systems):
            together[k] = 0.0
    for stream in range(0 if sends else len(free)):
        for k in range(systems):
            span[k] = max(span[k], free[stream, k])
    return span, longest_span
