"""The longest path through an execution graph, for one system: all times."""

from math import nan

from ppmodel.loops.compiled import filled, loop
from ppmodel.loops.copies import ABSENT, brought_back, copied_out

NONE = -1  # for what is inlined; here, the sign alone is tested, which is faster


@loop(fills=("times", "copied"))
def longest_path(
    columns, overlaps, starts, link, cost_class, sizes, tables, overlap_factor, factors, shares, occupied, copies,
    times, copied,
):  # fmt: skip
    """Fill in start, end, departure and arrival of every operation, shape (4, num_operations); NaN if nothing is sent.

    `columns` and `overlaps` are those of an `ExecutionGraph`; `starts` is its `group_start`, or None if every operation
    starts alone; `sizes` are the numbers of its streams, links and groups; `tables` are durations, occupancies and
    latencies by `cost_class`; `factors` are those on the durations of single operations; `shares` are the shares of its
    cell after which each result can be sent; `occupied` says whether a transfer occupies the sender, the receiver and
    its link; `copies` are the arrays of a `simulation.copies.Copies`, whose copy times `copied` takes. Where one is
    None, the compiled loop contains no trace of it.
    """
    stream, source, _, remote, reduces = columns
    compute, occupancy, latency = tables
    sends, receives, queues = occupied
    start, end, sent, arrived = times[0], times[1], times[2], times[3]
    free, link_free = filled(0.0, sizes[0]), filled(0.0, sizes[1])
    if copies is not None:
        seconds = copies[0]
        ended, out_free, in_free = filled(0.0, sizes[0]), filled(0.0, sizes[0]), filled(0.0, sizes[0])
    for group in range(sizes[2]):
        first, last = group, group + 1
        if starts is not None:
            first, last = starts[group], starts[group + 1]
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
        if copies is not None:
            ready = max(ready, brought_back(first, last, stream, ended, copies, in_free, copied))
        if last - first > 1 and not reduces[first]:
            longest = together * overlap_factor if overlaps[group] else together
        finished = ready + longest
        for op in range(first, last):
            lane, class_ = stream[op], cost_class[op]
            start[op] = ready
            end[op] = finished
            free[lane] = max(finished, free[lane]) if sends else finished
            if copies is not None:
                if seconds[op] != ABSENT:
                    ended[lane] = finished
                copied_out(op, lane, finished, seconds, out_free, copied)
            if link is None:  # transfers are tasks
                continue
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
