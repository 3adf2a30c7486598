"""Simulated time by discrete events: an event queue, ranks, links and NICs."""

from ppmodel.loops.compiled import filled, inlined, loop
from ppmodel.loops.copies import NONE, copied_out

_END, _FREE, _ARRIVE, _TAKEN, _SENT, _REDUCE, _EARLY, _BACK = range(8)
_KIND = 40
"""An event's key is its kind, from this bit on, its operation and, in the lowest bit, the side of its route."""


@loop(fills=("times", "copied"))
def events(
    columns, link, order, consumers, routes, gates, num_places, seconds, occupied, shares, copies, times, copied,
):  # fmt: skip
    """Fill in start, end, departure and arrival of every operation, shape (4, num_operations); of NaN so far.

    `order` is the group of each operation, each stream's groups in order, where each stream's begin, and the place of
    each operation's group there; `consumers` are those of an `ExecutionGraph`. `gates` are the places that the
    reductions of each rank hold, and where each rank's places begin; if there are none, reductions hold nothing.
    `num_places` counts the places where messages queue; `seconds` are the durations of groups, and occupancies and
    latencies of operations; `shares`, `copies` and `copied` are as in `longest_path`. In each round, streams that can
    go on do so, new events join the event queue, and the first event is handled. The phases of a round are one
    function, since passing arrays costs as much as the work; a comment marks each.
    """
    stream, source, group_start, remote, reduces = columns
    length, occupancy, latency = seconds
    sends, receives, queues = occupied
    start, end, sent, arrived = times[0], times[1], times[2], times[3]
    gate, gate_start, num_ranks = gates
    count, num_streams, holds = len(stream), 2 * num_ranks, len(gate_start) > 0
    group_of, programs, program_start, place_of = order
    receiver, beside = consumers
    head = filled(0, num_streams)
    for here in range(num_streams):
        head[here] = program_start[here]
    idle, finished = filled(True, num_streams), filled(False, count)
    delivered, taken = filled(False, count), filled(False, count)
    waiting, last_waiting = filled(NONE, num_places), filled(NONE, num_places)
    first_ticket = count  # a reduction queues at gate g as the message count + g
    serves, behind = filled(NONE, num_places), filled(NONE, count + len(gate))
    missing, comes, owner = filled(0, count if holds else 0), filled(NONE, num_places), filled(NONE, len(gate))
    for here in range(len(gate_start) - 1):
        for g in range(gate_start[here], gate_start[here + 1]):
            owner[g] = here
    due = filled(NONE, 2 * num_places + 2)  # places that may serve: they are free, or what they serve has come
    room = count + 4 * num_streams + num_places
    if shares is not None:
        room += count
    if copies is not None:
        room += count
        copy_s, needs, fetch_start, fetch_stop, fetch = copies
        out_free, in_free, back = filled(0.0, num_streams), filled(0.0, num_streams), filled(False, count)
    when, key, num_events = filled(0.0, room), filled(0, room), 0
    new_when, new_key, num_new = filled(0.0, room), filled(0, room), 0
    awake, num_awake = filled(0, count + 2 * num_streams), num_streams
    for here in range(num_streams):
        awake[here] = here
    now = 0.0
    while True:
        # streams that were woken receive a message, or start the group at their head
        while num_awake:
            num_awake -= 1
            here = awake[num_awake]
            if not idle[here] or head[here] == program_start[here + 1]:
                continue
            group = programs[head[here]]
            first, last, free_to_start = group_start[group], group_start[group + 1], True
            for op in range(first, last):
                needed = source[op]
                if stream[op] == here and remote[op] and not taken[needed]:
                    free_to_start = False
                    if delivered[needed]:  # the rank receives the message, which occupies it
                        idle[here] = False
                        arrived[needed] = now + (occupancy[needed] + latency[needed])
                        if not sends:
                            sent[needed] = now
                        new_when[num_new], new_key[num_new] = arrived[needed], (_TAKEN << _KIND) + 2 * needed
                        num_new += 1
                    break
            if not free_to_start:
                continue
            for op in range(first, last):
                needed, lane = source[op], stream[op]
                at_head = idle[lane] and head[lane] == place_of[op]
                has_input = needed == NONE or (taken[needed] if remote[op] else finished[needed])
                if copies is not None:
                    has_input = has_input and (needs[op] == NONE or back[needs[op]])
                free_to_start = free_to_start and at_head and has_input
            if not free_to_start:
                continue
            for op in range(first, last):
                idle[stream[op]], start[op] = False, now
            if holds and reduces[first]:
                new_when[num_new], new_key[num_new] = now, (_REDUCE << _KIND) + 2 * first
                num_new += 1
                continue
            new_when[num_new], new_key[num_new] = now + length[group], (_END << _KIND) + 2 * first
            num_new += 1
            if shares is not None and not sends:  # results sent before the cell ends
                for op in range(first, last):
                    share = _share(shares, link, first, op, queues)
                    if share < 1 and link[op] != NONE:
                        new_when[num_new], new_key[num_new] = now + share * length[group], (_EARLY << _KIND) + 2 * op
                        num_new += 1

        while num_new:
            num_new -= 1
            _push(when, key, num_events, new_when[num_new], new_key[num_new])
            num_events += 1
        if num_events == 0:
            break
        now, what = when[0], key[0]
        num_events -= 1
        _pop(when, key, num_events)

        # the event's immediate effects
        kind, op, side = what >> _KIND, (what & ((1 << _KIND) - 1)) >> 1, what & 1
        first = last = group = NONE  # operations whose results are sent now, and their group if it has ended
        num_due = next_due = 0
        if kind == _END:
            group = group_of[op]
            first, last = group_start[group], group_start[group + 1]
            for done in range(first, last):
                end[done], finished[done], head[stream[done]] = now, True, place_of[done] + 1
                if copies is not None:
                    copied_out(done, stream[done], now, copy_s, out_free, copied)
                if beside[done] != NONE:  # a reduction beside the rank
                    awake[num_awake] = beside[done]
                    num_awake += 1
            if copies is not None:  # copies back in start with the next cell, after a reduction that of each rank
                for ended in range(first, last if reduces[op] else first + 1):
                    here = stream[ended]
                    following = programs[head[here]] if head[here] < program_start[here + 1] else group
                    for done in range(group_start[following], group_start[following + 1]):
                        for place in range(fetch_start[done], fetch_stop[done] if following != group else 0):
                            forward = fetch[place]
                            copied[2][forward] = max(now, copied[1][forward], in_free[here])
                            copied[3][forward] = in_free[here] = copied[2][forward] + copy_s[forward]
                            back[forward] = copied[3][forward] <= now
                            if not back[forward]:
                                new_when[num_new], new_key[num_new] = copied[3][forward], (_BACK << _KIND) + 2 * forward
                                num_new += 1
            if holds and reduces[op]:  # it releases its places
                for done in range(first, last):
                    here = stream[done] - num_streams // 2
                    for g in range(gate_start[here], gate_start[here + 1]):
                        if serves[gate[g]] == first_ticket + g:
                            serves[gate[g]], due[num_due] = NONE, gate[g]
                            num_due += 1
        elif kind == _FREE:
            due[0] = routes[link[op]][side]
            serves[due[0]], num_due = NONE, 1
            if side == 1 or routes[link[op]][1] == NONE:
                new_when[num_new], new_key[num_new] = now + latency[op], (_ARRIVE << _KIND) + 2 * op
                num_new += 1
        elif kind == _REDUCE:  # a reduction joins the queues of all its ranks' places
            for member in range(op, group_start[group_of[op] + 1]):
                here = stream[member] - num_streams // 2
                for g in range(gate_start[here], gate_start[here + 1]):
                    if comes[gate[g]] != op:
                        comes[gate[g]], due[num_due] = op, gate[g]
                        _join(waiting, last_waiting, behind, gate[g], first_ticket + g)
                        num_due, missing[op] = num_due + 1, missing[op] + 1
            if missing[op] == 0:
                new_when[num_new], new_key[num_new] = now + length[group_of[op]], (_END << _KIND) + 2 * op
                num_new += 1
        elif kind == _EARLY:
            first, last = op, op + 1
        elif kind == _BACK:
            if copies is not None:
                back[op] = True
            awake[num_awake] = stream[op]
            num_awake += 1
        elif kind == _TAKEN:
            taken[op] = idle[receiver[op]] = True
            awake[num_awake] = receiver[op]
            num_awake += 1
        else:  # _ARRIVE, or _SENT: the rank sends its group's next message or is free
            arrived[op], delivered[op], taken[op] = now, True, not receives
            awake[num_awake] = receiver[op]
            num_awake += 1
            if kind == _SENT:
                first, last, group = op + 1, group_start[group_of[op] + 1], group_of[op]

        # a rank occupied by its messages sends the next one
        if sends and group != NONE:
            while first < last and link[first] == NONE:
                first += 1
            if first < last:
                sent[first] = now
                new_when[num_new] = now + (occupancy[first] + latency[first])
                new_key[num_new] = (_SENT << _KIND) + 2 * first
                num_new += 1
        free_again = group != NONE and not (sends and first < last)

        # messages join queues, and free links and NICs serve them
        while next_due < num_due or (first < last and not sends):
            if next_due == num_due:
                early, num_due, next_due = False, 0, 0
                if shares is not None:
                    early = kind == _END and _share(shares, link, group_start[group], first, queues) < 1
                if early:
                    pass
                elif link[first] != NONE and queues:
                    due[0], num_due = routes[link[first]][0], 1
                    _join(waiting, last_waiting, behind, due[0], first)
                elif link[first] != NONE:
                    sent[first] = now
                    new_when[num_new] = now if receives else now + (occupancy[first] + latency[first])
                    new_key[num_new] = (_ARRIVE << _KIND) + 2 * first
                    num_new += 1
                first += 1
                continue
            place = due[next_due]
            message, next_due = waiting[place], next_due + 1
            if serves[place] != NONE or message == NONE:
                continue
            waiting[place], serves[place] = behind[message], message
            if message >= first_ticket:  # a reduction, which starts when the last of its places serves it
                reduction = group_start[programs[head[owner[message - first_ticket] + num_streams // 2]]]
                missing[reduction] -= 1
                if missing[reduction] == 0:
                    for member in range(reduction, group_start[group_of[reduction] + 1]):
                        start[member] = now
                    new_when[num_new] = now + length[group_of[reduction]]
                    new_key[num_new] = (_END << _KIND) + 2 * reduction
                    num_new += 1
                continue
            side = place != routes[link[message]][0]
            if not side:
                sent[message] = now
            new_when[num_new], new_key[num_new] = now + occupancy[message], (_FREE << _KIND) + 2 * message + side
            num_new += 1
            second = routes[link[message]][1]
            if not side and second != NONE:  # what leaves one NIC reaches the other at once
                _join(waiting, last_waiting, behind, second, message)
                due[num_due], num_due = second, num_due + 1

        # the streams of a group that has sent everything go on
        if free_again:
            for done in range(group_start[group], group_start[group + 1]):
                idle[stream[done]], awake[num_awake] = True, stream[done]
                num_awake += 1


@inlined
def _share(shares, link, first, op, queues):
    """The share of its cell after which a result is sent; on one link, no earlier than the results before it."""
    share = shares[op]
    for other in range(first, op if queues else first):
        if link[other] == link[op]:
            share = max(share, shares[other])
    return share


@inlined
def _push(when, key, count, new_when, new_key):
    """Add an event to the queue, a binary heap."""
    place = count
    while place:
        above = (place - 1) // 2
        if (when[above], key[above]) <= (new_when, new_key):
            break
        when[place], key[place] = when[above], key[above]
        place = above
    when[place], key[place] = new_when, new_key


@inlined
def _pop(when, key, count):
    """Take out the first event; the one behind the `count` that remain takes a place among them."""
    place, below = 0, 1
    while below < count:
        if below + 1 < count and (when[below + 1], key[below + 1]) < (when[below], key[below]):
            below += 1
        if (when[count], key[count]) <= (when[below], key[below]):
            break
        when[place], key[place] = when[below], key[below]
        place, below = below, 2 * below + 1
    when[place], key[place] = when[count], key[count]


@inlined
def _join(waiting, last_waiting, behind, place, message):
    """Queue a message at a link or at a side of a NIC."""
    if waiting[place] == NONE:
        waiting[place] = message
    else:
        behind[last_waiting[place]] = message
    last_waiting[place], behind[message] = message, NONE
