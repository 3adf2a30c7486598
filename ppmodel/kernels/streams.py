"""Transfers as kernels on streams, which wait there for their peers; what is issued behind them waits, too."""

from ppmodel.compiled import filled, loop
from ppmodel.kernels.copies import brought_back, copied_out

NONE = -1


@loop(fills=("times", "copied"))
def streams(columns, issued, receiver, pair, sizes, durations, overlap_factor, copies, times, copied):
    """Fill in start, end, departure and arrival of every operation, shape (4, num_operations); of NaN so far.

    `issued` and `pair` are those of `simulation.issue.issue_order`; `sizes` are the numbers of pairs and of
    streams; `durations` those of operations, transfers and delays; `copies` and `copied` are as in
    `longest_path`.
    """
    stream, source, group_start, remote, reduces, overlaps = columns
    compute, transfer, delay = durations
    num_pairs, num_streams = sizes
    free, head = filled(0.0, num_streams), filled(0.0, num_streams)  # last operation's end; last kernel's start
    channel = filled(0.0, num_pairs)  # last arrival between two ranks
    if copies is not None:
        seconds, needs, fetch_start, fetch = copies
        out_free, in_free = filled(0.0, num_streams), filled(0.0, num_streams)
    for entry in issued:
        if entry < 0:  # both ends of a message
            op = -1 - entry
            sender, peer, link = stream[op], receiver[op], pair[op]
            head[sender] = max(head[sender], free[sender], channel[link]) + delay[op]
            head[peer] = max(head[peer], free[peer], channel[link])
            times[2][op] = max(head[sender], head[peer])
            times[3][op] = channel[link] = times[2][op] + transfer[op]
            continue

        first, last = group_start[entry], group_start[entry + 1]
        ready, together, longest = 0.0, 0.0, 0.0
        for op in range(first, last):
            lane, needed = stream[op], source[op]
            ready = max(ready, free[lane], head[lane])
            if needed != NONE:
                ready = max(ready, times[3][needed] if remote[op] else times[1][needed])
            together += compute[op]
            longest = max(longest, compute[op])
        if copies is not None:
            there = brought_back(first, last, stream, free, seconds, needs, fetch_start, fetch, in_free, copied)
            ready = max(ready, there)
        if last - first > 1 and not reduces[first]:
            longest = overlap_factor * together if overlaps[first] else together
        for op in range(first, last):
            lane = stream[op]
            times[0][op], times[1][op] = ready, ready + longest
            head[lane], free[lane] = ready, ready + longest
            if copies is not None:
                copied_out(op, lane, ready + longest, seconds, out_free, copied)
