"""Transfers as kernels on streams, which wait there for their peers; what is issued behind them waits, too."""

from ppmodel.loops.compiled import filled, loop
from ppmodel.loops.copies import NONE, brought_back, copied_out


@loop(fills=("times", "copied"))
def streams(columns, issued, receiver, pair, sizes, seconds, copies, times, copied):
    """Fill in start, end, departure and arrival of every operation, shape (4, num_operations); of NaN so far.

    `issued` and `pair` are those of `simulation.issue.issue_order`; `sizes` are the numbers of pairs and of
    streams; `seconds` are the durations of groups, transfers and delays; `copies` and `copied` are as in
    `longest_path`.
    """
    stream, source, group_start, remote, _ = columns
    length, transfer, delay = seconds
    num_pairs, num_streams = sizes
    free, head = filled(0.0, num_streams), filled(0.0, num_streams)  # last operation's end; last kernel's start
    channel = filled(0.0, num_pairs)  # last arrival between two ranks
    if copies is not None:
        copy_s, needs, fetch_start, fetch = copies
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
        ready = 0.0
        for op in range(first, last):
            lane, needed = stream[op], source[op]
            ready = max(ready, free[lane], head[lane])
            if needed != NONE:
                ready = max(ready, times[3][needed] if remote[op] else times[1][needed])
        if copies is not None:
            there = brought_back(first, last, stream, free, copy_s, needs, fetch_start, fetch, in_free, copied)
            ready = max(ready, there)
        end = ready + length[entry]
        for op in range(first, last):
            lane = stream[op]
            times[0][op], times[1][op] = ready, end
            head[lane], free[lane] = ready, end
            if copies is not None:
                copied_out(op, lane, end, copy_s, out_free, copied)
