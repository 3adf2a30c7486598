"""Simulated time by discrete events: an event queue, ranks, links and NICs."""

from ppmodel.loops.compiled import filled, inlined, loop
from ppmodel.loops.copies import NONE, copied_out

_END, _FREE, _ARRIVE, _REDUCE, _EARLY, _BACK = range(6)
_KIND = 40
"""An event's key is its kind, from this bit on, its operation and, in the lowest bit, the side of its route."""


@loop(fills=("times", "copied"))
def events(columns, link, routes, gates, num_places, seconds, queues, shares, copies, times, copied):
    """Fill in start, end, departure and arrival of every operation, shape (4, num_operations); of NaN so far.

    `gates` are the places that the reductions of each rank hold, and where each rank's places begin; if there are none,
    reductions hold nothing. `num_places` counts the places where messages queue; `seconds` are the durations of groups,
    and occupancies and latencies of operations; `queues` says whether messages queue; `shares`, `copies` and `copied`
    are as in `longest_path`. A group starts when nothing is missing: the groups before it on its streams, results that
    it needs, copies that it brings back. In each round, such groups start, new events join the event queue, and the
    first event is handled. The phases of a round are one function, since passing arrays costs as much as the work; a
    comment marks each.
    """
    stream, source, group_start, remote, reduces = columns
    length, occupancy, latency = seconds
    start, end, sent, arrived = times[0], times[1], times[2], times[3]
    gate, gate_start, num_ranks = gates
    count, num_groups, num_streams, holds = len(stream), len(group_start) - 1, 2 * num_ranks, len(gate_start) > 0
    waiting, last_waiting = filled(NONE, num_places), filled(NONE, num_places)
    first_ticket = count  # a reduction queues at gate g as the message count + g
    serves, behind = filled(NONE, num_places), filled(NONE, count + len(gate))
    lacking, comes, owner = filled(0, count if holds else 0), filled(NONE, num_places), filled(NONE, len(gate))
    reducing = filled(NONE, num_ranks)
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
        out_free, in_free, brings = filled(0.0, num_streams), filled(0.0, num_streams), filled(NONE, count)
    when, key, num_events = filled(0.0, room), filled(0, room), 0
    new_when, new_key, num_new = filled(0.0, room), filled(0, room), 0
    awake, num_awake = filled(0, num_groups), 0

    # what each group lacks; what each operation tells: the next group of its stream, its result's taker, a chain beside
    group_of, missing, last_of = filled(NONE, count), filled(0, num_groups), filled(NONE, num_streams)
    following, taker = filled(NONE, count), filled(NONE, count)
    beside, also = filled(NONE, count), filled(NONE, count)
    for group in range(num_groups):
        for op in range(group_start[group], group_start[group + 1]):
            group_of[op], before, needed = group, last_of[stream[op]], source[op]
            if before != NONE and group_of[before] != group:
                following[before] = group
                missing[group] += 1
            last_of[stream[op]] = op
            if remote[op]:
                taker[needed] = group
                missing[group] += 1
            elif needed != NONE and stream[needed] != stream[op]:
                also[op], beside[needed] = beside[needed], op
                missing[group] += 1
            if copies is not None and needs[op] != NONE:
                brings[needs[op]] = group
                missing[group] += 1
        if missing[group] == 0:
            awake[num_awake] = group
            num_awake += 1
    now = 0.0
    while True:
        # groups that lack nothing start
        while num_awake:
            num_awake -= 1
            group = awake[num_awake]
            first, last = group_start[group], group_start[group + 1]
            for op in range(first, last):
                start[op] = now
            held = holds and reduces[first]
            new_when[num_new] = now if held else now + length[group]
            new_key[num_new] = ((_REDUCE if held else _END) << _KIND) + 2 * first
            num_new += 1
            if shares is not None:  # results sent before the cell ends
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
        first = last = NONE  # operations whose results are sent now
        num_due = next_due = 0
        if kind == _END:
            first, last = group_start[group_of[op]], group_start[group_of[op] + 1]
            for done in range(first, last):
                end[done] = now
                if copies is not None:
                    copied_out(done, stream[done], now, copy_s, out_free, copied)
            for done in range(first, last):
                here, group = stream[done], following[done]
                if group != NONE:
                    num_awake = _told(group, missing, awake, num_awake)
                    if copies is not None:  # copies back in start with the next cell
                        for other in range(group_start[group], group_start[group + 1]):
                            for place in range(fetch_start[other], fetch_stop[other]):
                                forward = fetch[place]
                                copied[2][forward] = max(now, copied[1][forward], in_free[here])
                                copied[3][forward] = in_free[here] = copied[2][forward] + copy_s[forward]
                                if copied[3][forward] <= now:
                                    num_awake = _told(brings[forward], missing, awake, num_awake)
                                    continue
                                new_when[num_new], new_key[num_new] = copied[3][forward], (_BACK << _KIND) + 2 * forward
                                num_new += 1
                other = beside[done]
                while other != NONE:
                    num_awake = _told(group_of[other], missing, awake, num_awake)
                    other = also[other]
            if holds and reduces[op]:  # it releases its places
                for done in range(first, last):
                    here = stream[done] - num_ranks
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
                here = stream[member] - num_ranks
                reducing[here] = op
                for g in range(gate_start[here], gate_start[here + 1]):
                    if comes[gate[g]] != op:
                        comes[gate[g]], due[num_due] = op, gate[g]
                        _join(waiting, last_waiting, behind, gate[g], first_ticket + g)
                        num_due, lacking[op] = num_due + 1, lacking[op] + 1
            if lacking[op] == 0:
                new_when[num_new], new_key[num_new] = now + length[group_of[op]], (_END << _KIND) + 2 * op
                num_new += 1
        elif kind == _EARLY:
            first, last = op, op + 1
        elif kind == _BACK:
            if copies is not None:
                num_awake = _told(brings[op], missing, awake, num_awake)
        else:
            arrived[op] = now
            num_awake = _told(taker[op], missing, awake, num_awake)

        # messages join queues, and free links and NICs serve them
        while next_due < num_due or first < last:
            if next_due == num_due:
                early, num_due, next_due = False, 0, 0
                if shares is not None:
                    early = kind == _END and _share(shares, link, group_start[group_of[op]], first, queues) < 1
                if early:
                    pass
                elif link[first] != NONE and queues:
                    due[0], num_due = routes[link[first]][0], 1
                    _join(waiting, last_waiting, behind, due[0], first)
                elif link[first] != NONE:
                    sent[first] = now
                    new_when[num_new] = now + (occupancy[first] + latency[first])
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
                reduction = reducing[owner[message - first_ticket]]
                lacking[reduction] -= 1
                if lacking[reduction] == 0:
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


@inlined
def _told(group, missing, awake, num_awake):
    """Let a group lack one thing less; return how many groups start now."""
    missing[group] -= 1
    if missing[group] == 0:
        awake[num_awake] = group
        num_awake += 1
    return num_awake


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
