"""Transfers that hold both ends, compiled: the twins of `simulation.rendezvous` and of its event queue."""

import numpy as np

from ppmodel.kernels.events import _pop, _push
from ppmodel.kernels.jit import kernel

NONE = -1


@kernel
def rendezvous(stream, source, group_start, remote, reduces, overlaps, exchanges, durations, overlap_factor):
    """Start, end, departure and arrival of every operation, shape (4, num_operations); NaN for ends that never come.

    `exchanges` are the arrays of `simulation.exchanges.Exchanges`. Each stream goes on until it must wait; the stream
    that ends a wait wakes it.
    """
    phase_start, group_of, first_batch, batch_start, message, receiver, taken_in = exchanges
    compute, occupancy, latency = durations
    count, num_streams = len(stream), len(phase_start) - 1
    times = np.full((4, count), np.nan)
    phase, batch = phase_start[:-1].copy(), first_batch[phase_start[:-1]]
    left, beside = np.zeros(num_streams, np.int32), np.full(count, NONE, np.int32)
    free, posted, sends_next = np.zeros(num_streams), np.zeros(num_streams), np.zeros(num_streams)
    ended, through = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    for op in range(count):
        if source[op] != NONE and not remote[op] and stream[op] != stream[source[op]]:
            beside[source[op]] = stream[op]
    awake, num_awake = np.empty(num_streams + 2 * count + len(message), np.int32), num_streams
    awake[:num_streams] = np.arange(num_streams)
    while num_awake:
        num_awake -= 1
        here = awake[num_awake]
        while left[here] == 0:
            # post the next batch: messages that both sides have posted go through
            if batch[here] < first_batch[phase[here] + 1]:
                first = batch_start[batch[here]]
                left[here] = batch_start[batch[here] + 1] - first
                posted[here] = sends_next[here] = free[here]
                peer = receiver[message[first]] if stream[message[first]] == here else stream[message[first]]
                for sender in (here, peer):
                    if left[sender] == 0 or left[here] == 0:
                        continue
                    of = batch[sender]
                    for place in range(batch_start[of], batch_start[of + 1]):
                        op = message[place]
                        if stream[op] != sender or through[op]:
                            continue
                        taker = receiver[op]
                        if left[taker] == 0 or batch[taker] != taken_in[op]:
                            break
                        leaves = max(sends_next[sender], posted[taker])
                        there = leaves + (occupancy[op] + latency[op])
                        times[2, op], times[3, op], through[op], sends_next[sender] = leaves, there, True, there
                        for end in (sender, taker):
                            free[end] = max(free[end], there)
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
            ready, together, longest, waits = 0.0, 0.0, 0.0, False
            for op in range(first, last):
                own, needed = stream[op], source[op]
                waits |= left[own] > 0 or batch[own] < first_batch[phase[own] + 1] or group_of[phase[own]] != group
                ready = max(ready, free[own])
                if needed != NONE and not remote[op]:
                    waits |= not ended[needed]
                    ready = max(ready, times[1, needed])
                together += compute[op]
                longest = max(longest, compute[op])
            if waits:
                break
            if last - first > 1 and not reduces[first]:
                longest = overlap_factor * together if overlaps[first] else together
            for op in range(first, last):
                times[0, op], times[1, op], ended[op] = ready, ready + longest, True
                own = stream[op]
                if group_of[phase[own]] == group:
                    phase[own] += 1
                    free[own] = ready + longest
                    awake[num_awake] = own
                    num_awake += 1
                if beside[op] != NONE:
                    awake[num_awake] = beside[op]
                    num_awake += 1
    return times


@kernel
def rendezvous_events(stream, source, group_start, remote, reduces, overlaps, exchanges, durations, overlap_factor):
    """The same with discrete events: the twin of `simulation.events` where a transfer holds both ends.

    In each round, streams that were woken do what they can; then the first pending event is handled.
    """
    phase_start, group_of, first_batch, batch_start, message, receiver, taken_in = exchanges
    compute, occupancy, latency = durations
    count, num_streams = len(stream), len(phase_start) - 1
    times = np.full((4, count), np.nan)
    phase, batch = phase_start[:-1].copy(), first_batch[phase_start[:-1]]
    left, beside = np.zeros(num_streams, np.int32), np.full(count, NONE, np.int32)
    busy, sending = np.zeros(num_streams, np.bool_), np.zeros(num_streams, np.bool_)
    ended, through = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    for op in range(count):
        if source[op] != NONE and not remote[op] and stream[op] != stream[source[op]]:
            beside[source[op]] = stream[op]
    awake, num_awake = np.empty(2 * num_streams + 2 * count, np.int32), num_streams
    awake[:num_streams] = np.arange(num_streams)
    when, key, num_events = np.empty(2 * num_streams), np.empty(2 * num_streams, np.int64), 0
    now = 0.0
    while True:
        while num_awake:
            num_awake -= 1
            here = awake[num_awake]
            if busy[here]:
                continue
            waits = left[here] > 0 or batch[here] < first_batch[phase[here] + 1]
            if waits:  # post the next batch, and send what both sides have posted
                first, last = batch_start[batch[here]], batch_start[batch[here] + 1]
                if left[here] == 0:
                    left[here] = last - first
                peer = receiver[message[first]] if stream[message[first]] == here else stream[message[first]]
                for sender in (here, peer):
                    if left[sender] == 0 or sending[sender]:
                        continue
                    place, last = batch_start[batch[sender]], batch_start[batch[sender] + 1]
                    while place < last and (stream[message[place]] != sender or through[message[place]]):
                        place += 1
                    if place == last:
                        continue
                    op = message[place]
                    taker = receiver[op]
                    if left[taker] > 0 and batch[taker] == taken_in[op]:
                        times[2, op], sending[sender] = now, True
                        _push(when, key, num_events, now + (occupancy[op] + latency[op]), 2 * op + 1)
                        num_events += 1
                continue

            # start the next group once all of its streams have reached it
            group = group_of[phase[here]]
            first, last = (0, 0) if group == NONE else (group_start[group], group_start[group + 1])
            together = longest = 0.0
            for op in range(first, last):
                own, needed = stream[op], source[op]
                waits |= busy[own] or left[own] > 0 or batch[own] < first_batch[phase[own] + 1]
                waits |= group_of[phase[own]] != group
                waits |= needed != NONE and not remote[op] and not ended[needed]
                together += compute[op]
                longest = max(longest, compute[op])
            if waits or group == NONE:
                continue
            if last - first > 1 and not reduces[first]:
                longest = overlap_factor * together if overlaps[first] else together
            for op in range(first, last):
                times[0, op], busy[stream[op]] = now, True
            _push(when, key, num_events, now + longest, 2 * first)
            num_events += 1

        if num_events == 0:
            break
        now, what = when[0], key[0]
        num_events -= 1
        _pop(when, key, num_events)
        op = what >> 1
        if what & 1:  # a message has gone through
            times[3, op], through[op], sending[stream[op]] = now, True, False
            for end in (stream[op], receiver[op]):
                left[end] -= 1
                if left[end] == 0:
                    batch[end] += 1
                awake[num_awake] = end
                num_awake += 1
            continue
        group = group_of[phase[stream[op]]]
        for done in range(group_start[group], group_start[group + 1]):
            times[1, done], ended[done] = now, True
            own = stream[done]
            if busy[own]:
                busy[own] = False
                phase[own] += 1
                awake[num_awake] = own
                num_awake += 1
            if beside[done] != NONE:
                awake[num_awake] = beside[done]
                num_awake += 1
    return times
