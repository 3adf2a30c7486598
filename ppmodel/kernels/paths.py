"""The longest path through an execution graph, for one system or for many: the twins of `engine._longest_path`."""

import numpy as np

from ppmodel.kernels.jit import kernel

NONE = -1
WHOLE, JOIN, JOINED, PAIRED, SUM, SUMMED = range(6)
"""Steps of an instruction: an operation alone; one of a cell's and the last of them, also where they overlap; one
participant of a reduction and the last of them. With the last, all operations of the cell or the reduction end."""


CLASS, STREAM, TAKE, GIVE, LINK, KEEP, STEP = _COLUMNS = range(7)
"""Columns of an instruction; see `instructions`."""


def instructions(
    cost_class, stream, source, remote, link, index, group_start, overlaps, num_links, first_reduction, beside
):
    """What `longest_path` reads of a graph: a row per operation. Only `overlaps` is in the table's order.

    A message occupies a register from when it is sent until it is received, so that only messages under way need one:
    TAKE is the register to read and GIVE the one to write; KEEP is a further one for a reduction beside the rank, if
    there are any. Register 0 stands for none and holds nothing. Returns the rows and the number of registers.
    """
    rows = np.empty((len(cost_class), len(_COLUMNS)), np.uint32)  # numpy asks for large pages
    columns = (cost_class, stream, source, remote, link, index, group_start)
    return rows, fill_instructions(rows, *columns, overlaps, num_links, first_reduction, beside)


def by_class(rows, classes):
    """The instructions with other cost classes, one given for each operation."""
    rows = rows.copy()
    rows[:, CLASS] = classes
    return rows


@kernel
def fill_instructions(
    rows, cost_class, stream, source, remote, link, index, group_start, overlaps, num_links, first_reduction, beside
):
    """Fill the rows and count the registers; see `instructions` for their meaning."""
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


@kernel
def longest_path(rows, sizes, tables, overlap_factor, occupied, times, shares, copies):
    """Fill `times`: start and end of every operation; with four rows also departure and arrival, NaN if none is sent.

    `sizes` are the numbers of registers, streams and links; `tables` hold durations, occupancies and latencies by
    class; `occupied` says whether a transfer occupies the sender, the receiver and its link. `shares` are the shares of
    its cell after which each result can be sent, and `copies` the arrays of a `simulation.copies.Copies`, whose copy
    times are filled in; where one is None, the compiled loop contains no trace of it.
    """
    compute, occupancy, latency = tables
    sends, receives, queues = occupied
    there, cost, sender = np.zeros(sizes[0]), np.zeros(sizes[0]), np.zeros(sizes[0], np.uint32)
    free, link_free = np.zeros(sizes[1]), np.zeros(sizes[2] + 1)
    wanted = len(times) == 4
    back = length = 0.0
    if copies is not None:
        seconds, needs, fetch_start, fetch, copied = copies
        ended, out_free, in_free = np.zeros(sizes[1]), np.zeros(sizes[1]), np.zeros(sizes[1])
    ready = together = longest = began = finished = 0.0
    row = reached = -1
    while row < len(rows) - 1:
        row += 1
        op = np.uint32(row)
        class_, stream, step = rows[op, CLASS], rows[op, STREAM], rows[op, STEP]
        if row > reached:
            take = rows[op, TAKE]
            if free[stream] > ready:
                ready = free[stream]
            if there[take] > ready:
                ready = there[take]
            if receives and take and step < SUM:
                if wanted and not sends:
                    times[2, sender[take]] = ready
                ready += cost[take]
                if wanted:
                    times[3, sender[take]] = ready
            if copies is not None:  # start copies back in, and wait for those that are needed
                for place in range(fetch_start[op], fetch_start[op + 1]):
                    one = fetch[place]
                    copied[2, one] = max(ended[stream], copied[1, one], in_free[stream])
                    copied[3, one] = in_free[stream] = copied[2, one] + seconds[one]
                if needs[op] != NONE:
                    back = max(back, copied[3, needs[op]])
                if step not in (JOIN, SUM):
                    ready, back = max(ready, back), 0.0
            if step == WHOLE:
                began, finished = ready, ready + compute[class_]
                if shares is not None:
                    length = compute[class_]
                ready = 0.0
                reached = row
            else:
                together += compute[class_]
                longest = max(longest, compute[class_])
                if step in (JOIN, SUM):
                    continue
                if step == SUMMED:
                    together = longest
                began, finished = ready, ready + (overlap_factor * together if step == PAIRED else together)
                if shares is not None:
                    length = overlap_factor * together if step == PAIRED else together
                ready = together = longest = 0.0
                row, reached = reached + 1, row  # back to the first of those that end
                op = np.uint32(row)
                class_, stream = rows[op, CLASS], rows[op, STREAM]

        times[0, op], times[1, op] = began, finished
        if not sends or finished > free[stream]:  # sending may already occupy the rank for longer
            free[stream] = finished
        if copies is not None:
            ended[stream] = finished
            if seconds[op] >= 0:
                copied[0, op] = max(finished, out_free[stream])
                copied[1, op] = out_free[stream] = copied[0, op] + seconds[op]
        if rows[op, KEEP]:
            there[rows[op, KEEP]] = finished
        give = rows[op, GIVE]
        if give == 0:
            if wanted:
                times[2, op] = times[3, op] = np.nan
            continue
        leaves, takes, later = finished, occupancy[class_], latency[class_]
        if shares is not None:
            leaves = began + shares[op] * length
        if sends:
            leaves = free[stream]
            free[stream] = leaves + takes + later
        elif queues:
            link = rows[op, LINK]
            if link_free[link] > leaves:
                leaves = link_free[link]
            link_free[link] = leaves + takes
        there[give] = leaves + takes + later
        if receives:
            cost[give], sender[give] = takes + later, op
            if not sends:  # ready to be fetched, at a time the receiver decides
                there[give] = leaves
        if wanted:
            times[2, op], times[3, op] = leaves, there[give]


@kernel
def many_longest_paths(rows, sizes, tables, overlap_factor, occupied, ends):
    """Makespans, longest spans and ends of ranks of several systems: `longest_path`, each step for all systems at once.

    `tables` are three arrays of shape (classes, systems), and `overlap_factor` has shape (systems,). One number is held
    per register, stream or link and system, never one per operation. `ends` says of each operation whether it is the
    first (1), the last (2) or the only one (3) that its rank computes; without it spans and ends are 0.
    """
    compute, occupancy, latency = tables[0], tables[1], tables[2]
    sends, receives, queues = occupied
    systems = len(overlap_factor)
    there, cost = np.zeros((sizes[0], systems)), np.zeros((sizes[0], systems))
    free, link_free = np.zeros((sizes[1], systems)), np.zeros((sizes[2] + 1, systems))
    ready, together, began, finished, span, longest_span = np.zeros((6, systems))
    of_ranks = len(ends) > 0
    begun, computed = np.zeros((sizes[1] if of_ranks else 0, systems)), np.zeros((sizes[1] // 2, systems))
    first = 0
    for row in range(len(rows)):
        class_, stream, step = rows[row, CLASS], rows[row, STREAM], rows[row, STEP]
        take = rows[row, TAKE]
        at_once = step == WHOLE and not receives and not (of_ranks and ends[row])  # most operations, in one pass
        if at_once:
            for k in range(systems):
                begin = free[stream, k] if free[stream, k] > there[take, k] else there[take, k]
                finished[k] = free[stream, k] = begin + compute[class_, k]
        else:
            for k in range(systems):
                ready[k] = free[stream, k] if free[stream, k] > ready[k] else ready[k]
                ready[k] = there[take, k] if there[take, k] > ready[k] else ready[k]
            if receives and take and step < SUM:
                for k in range(systems):
                    ready[k] += cost[take, k]
            if step < SUM:
                for k in range(systems):
                    together[k] += compute[class_, k]
            else:
                for k in range(systems):
                    together[k] = compute[class_, k] if compute[class_, k] > together[k] else together[k]
            if step in (JOIN, SUM):
                continue
            for k in range(systems):
                began[k] = ready[k]
                finished[k] = ready[k] + (overlap_factor[k] * together[k] if step == PAIRED else together[k])
                ready[k] = together[k] = 0.0

        for op in range(first, row + 1):
            class_, stream = rows[op, CLASS], rows[op, STREAM]
            if of_ranks and ends[op]:
                for k in range(systems):
                    begun[stream, k] = began[k] if ends[op] & 1 else begun[stream, k]
                    if ends[op] & 2:
                        longest_span[k] = max(longest_span[k], finished[k] - begun[stream, k])
                        computed[stream, k] = finished[k]
            if not at_once:
                for k in range(systems):
                    free[stream, k] = finished[k] if finished[k] > free[stream, k] else free[stream, k]
            if sends:  # the rank is busy beyond the end of the operation
                for k in range(systems):
                    span[k] = finished[k] if finished[k] > span[k] else span[k]
            if rows[op, KEEP]:
                there[rows[op, KEEP]] = finished
            give, link = rows[op, GIVE], rows[op, LINK]
            if give == 0:
                continue
            if sends:
                for k in range(systems):
                    free[stream, k] = there[give, k] = free[stream, k] + occupancy[class_, k] + latency[class_, k]
            elif queues:
                for k in range(systems):
                    leaves = finished[k] if finished[k] > link_free[link, k] else link_free[link, k]
                    link_free[link, k] = leaves = leaves + occupancy[class_, k]
                    there[give, k] = leaves + latency[class_, k]
            elif receives:  # ready to be fetched, at a time the receiver decides
                for k in range(systems):
                    there[give, k] = finished[k]
            else:
                for k in range(systems):
                    there[give, k] = finished[k] + occupancy[class_, k] + latency[class_, k]
            if receives:
                for k in range(systems):
                    cost[give, k] = occupancy[class_, k] + latency[class_, k]
        first = row + 1
    for stream in range(0 if sends else len(free)):
        for k in range(systems):
            span[k] = max(span[k], free[stream, k])
    return span, longest_span, computed
