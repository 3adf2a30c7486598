"""Transfers that occupy sender and receiver at once: each waits for the other."""

from ppmodel.loops.compiled import filled, loop
from ppmodel.loops.copies import NONE, brought_back, copied_out


@loop(fills=("times", "copied"))
def rendezvous(columns, consumers, exchanges, seconds, copies, times, copied):
    """Fill in start, end, departure and arrival of every operation, shape (4, num_operations); of NaN so far.

    `exchanges` are those of `simulation.exchanges.exchanges_of`; `seconds` are the durations of groups and
    transfers; `copies` and `copied` are as in `longest_path`. Each stream goes on until it must wait; the stream that
    ends a wait wakes it. What has not ended when none can go on remains NaN.
    """
    stream, source, group_start, remote, _ = columns
    phase_start, group_of, first_batch, batch_start, message, taken_in = exchanges
    length, transfer = seconds
    count, num_streams = len(stream), len(phase_start) - 1
    phase, batch = filled(0, num_streams), filled(0, num_streams)
    left = filled(0, num_streams)  # messages of the posted batch; 0 if none is
    receiver, beside = consumers
    ended, sent = filled(False, count), filled(False, count)
    free, posted, sends_next = filled(0.0, num_streams), filled(0.0, num_streams), filled(0.0, num_streams)
    if copies is not None:
        copy_s, needs, fetch_start, fetch = copies
        last_end, out_free, in_free = filled(0.0, num_streams), filled(0.0, num_streams), filled(0.0, num_streams)
    awake, num_awake = filled(NONE, num_streams + 2 * count + len(message)), num_streams
    for here in range(num_streams):
        awake[here], phase[here], batch[here] = here, phase_start[here], first_batch[phase_start[here]]
    ends = filled(NONE, 2)  # of a message
    while num_awake:
        num_awake -= 1
        here = awake[num_awake]
        while left[here] == 0:
            # post the next batch: messages that both sides have posted are transferred
            if batch[here] < first_batch[phase[here] + 1]:
                first = batch_start[batch[here]]
                left[here] = batch_start[batch[here] + 1] - first
                posted[here] = sends_next[here] = free[here]
                op = message[first]
                peer = int(receiver[op] if stream[op] == here else stream[op])
                for sender in (here, peer):
                    if left[sender] == 0 or left[here] == 0:
                        continue
                    of = batch[sender]
                    for place in range(batch_start[of], batch_start[of + 1]):
                        op = message[place]
                        if stream[op] != sender or sent[op]:
                            continue
                        taker = receiver[op]
                        if left[taker] == 0 or batch[taker] != taken_in[op]:
                            break
                        leaves = max(sends_next[sender], posted[taker])
                        arrival = leaves + transfer[op]
                        times[2][op], times[3][op], sent[op], sends_next[sender] = leaves, arrival, True, arrival
                        ends[0], ends[1] = sender, taker
                        for end in ends:
                            free[end] = max(free[end], arrival)
                            left[end] -= 1
                            if left[end] == 0:
                                batch[end] += 1
                                awake[num_awake] = end
                                num_awake += 1
                continue

            # run the next group once all of its streams have reached it
            group = group_of[phase[here]]
            if group == NONE:
                break
            first, last = group_start[group], group_start[group + 1]
            ready, waits = 0.0, False
            for op in range(first, last):
                lane, needed = stream[op], source[op]
                waits = waits or left[lane] > 0 or batch[lane] < first_batch[phase[lane] + 1]
                waits = waits or group_of[phase[lane]] != group
                ready = max(ready, free[lane])
                if needed != NONE and not remote[op]:
                    waits = waits or not ended[needed]
                    ready = max(ready, times[1][needed])
            if waits:
                break
            if copies is not None:
                there = brought_back(first, last, stream, last_end, copy_s, needs, fetch_start, fetch, in_free, copied)
                ready = max(ready, there)
            finished = ready + length[group]
            for op in range(first, last):
                times[0][op], times[1][op], ended[op] = ready, finished, True
                lane = stream[op]
                if copies is not None:
                    last_end[lane] = finished
                    copied_out(op, lane, finished, copy_s, out_free, copied)
                if group_of[phase[lane]] == group:
                    phase[lane] += 1
                    free[lane] = finished
                    awake[num_awake] = lane
                    num_awake += 1
                if beside[op] != NONE:
                    awake[num_awake] = beside[op]
                    num_awake += 1
