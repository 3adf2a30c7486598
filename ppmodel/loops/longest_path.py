"""The longest path through an execution graph, for one system: all times."""

from math import nan

from ppmodel.loops.compiled import filled, loop


@loop(fills=("times",))
def longest_path(
    columns, overlaps, starts, link, cost_class, sizes, tables, overlap_factor, factors, shares, occupied, meetings,
    times,
):  # fmt: skip
    """Fill in start, end, departure and arrival of every task, shape (4, num_tasks); NaN if nothing is sent.

    `columns` and `overlaps` are those of an `ExecutionGraph`; `starts` is its `group_start`, or None if every operation
    starts alone; `sizes` are the numbers of its streams, links and groups; `tables` are durations, occupancies and
    latencies by `cost_class`; `factors` are those on the durations of single operations; `shares` are the shares of its
    cell after which each result can be sent; `occupied` says whether a transfer occupies the sender, the receiver and
    its link. `meetings` are transfers that wait for both ends: `numbering.Arrays.meets`, delays by `cost_class`, and
    whether a transfer holds both ranks. Where one is None, the compiled loop contains no trace of it.
    """
    stream, source, _, remote, reduces = columns
    compute, occupancy, latency = tables
    sends, receives, queues = occupied
    start, end, sent, arrived = times[0], times[1], times[2], times[3]
    free, link_free = filled(0.0, sizes[0]), filled(0.0, sizes[1])
    if meetings is not None:
        meets, delay, holds = meetings
        posted = filled(0.0, sizes[0])
    for group in range(sizes[2]):
        first, last = group, group + 1
        if starts is not None:
            first, last = starts[group], starts[group + 1]
        if meetings is not None and meets[first] >= 0:
            lane, other, opens = stream[first], meets[first] >> 2, meets[first] & 3
            leaves_on, class_ = link[first], cost_class[first]
            if opens & 1:
                posted[lane] = max(free[lane], link_free[leaves_on]) + delay[class_]
            if opens & 2:
                posted[other] = max(free[other], link_free[leaves_on])
            ready = max(posted[lane], posted[other], link_free[leaves_on])
            finished = ready + (occupancy[class_] + (latency[class_] - delay[class_]))
            start[first] = sent[first] = ready
            end[first] = arrived[first] = link_free[leaves_on] = finished
            free[lane] = max(free[lane], finished if holds else posted[lane])
            free[other] = max(free[other], finished if holds else posted[other])
            continue
        ready, together, longest = 0.0, 0.0, 0.0
        for op in range(first, last):
            lane_free, needed, seconds_of = free[stream[op]], source[op], compute[cost_class[op]]
            if factors is not None:
                seconds_of = seconds_of * factors[op]
            ready = lane_free if lane_free > ready else ready
            together += seconds_of
            longest = seconds_of if seconds_of > longest else longest  # of a collective, the slowest participant's
            if needed < 0:
                continue
            if not remote[op]:
                ready = end[needed] if end[needed] > ready else ready
                continue
            ready = arrived[needed] if arrived[needed] > ready else ready
            if receives:
                if not sends:
                    sent[needed] = ready
                class_ = cost_class[needed]
                ready = arrived[needed] = ready + (occupancy[class_] + latency[class_])
        if last - first > 1 and not reduces[first]:
            longest = together * overlap_factor if overlaps[group] else together
        finished = ready + longest
        for op in range(first, last):
            lane, class_ = stream[op], cost_class[op]
            start[op] = ready
            end[op] = finished
            free[lane] = max(finished, free[lane]) if sends else finished
            leaves_on = link[op]
            if leaves_on < 0:
                sent[op] = arrived[op] = nan
                continue
            sendable = finished if shares is None else ready + shares[op] * longest
            if sends:
                sent[op] = free[lane]
                arrived[op] = free[lane] = free[lane] + occupancy[class_] + latency[class_]
            elif receives:  # ready to be fetched, at a time that the receiver decides
                sent[op] = arrived[op] = sendable
            elif queues:
                leaves = sendable if sendable > link_free[leaves_on] else link_free[leaves_on]
                sent[op] = leaves
                link_free[leaves_on] = leaves = leaves + occupancy[class_]
                arrived[op] = leaves + latency[class_]
            else:
                sent[op] = sendable
                arrived[op] = sendable + occupancy[class_] + latency[class_]
