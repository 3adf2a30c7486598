"""Simulated time by discrete events: an event queue, ranks, links and NICs."""

from heapq import heappop, heappush

from ppmodel.loops.compiled import filled, inlined, loop

NONE = -1
_END, _FREE, _ARRIVE, _REDUCE, _EARLY = range(5)
_KIND = 40
"""An event's key is its kind, from this bit on, its operation and, in the lowest bit, the side of its route."""


@loop(fills=("times",))
def events(columns, link, routes, gates, sizes, seconds, queues, shares, times):
    """Fill in start, end, departure and arrival of every operation, shape (4, num_operations); of NaN so far.

    `gates` are the places that the reductions of each rank hold, and where each rank's places begin; if there are none,
    reductions hold nothing. `sizes` counts streams, and places where messages queue; `seconds` are the durations of
    groups, and occupancies and latencies of operations; `queues` says whether messages queue; `shares` are as in
    `longest_path`. A group starts when nothing is missing: the groups before it on its streams, and results that it
    needs. In each round, such groups start, and the first event is handled. The phases of a round are one function,
    since passing arrays costs as much as the work; a comment marks each. An arrival is an event only if a group that
    takes no time waits for it, since else nothing happens then but that the group starts.
    """
    stream, source, group_start, remote, reduces = columns
    length, occupancy, latency = seconds
    start, end, sent, arrived = times[0], times[1], times[2], times[3]
    gate, gate_start, num_ranks = gates
    num_streams, num_places = sizes
    count, num_groups, holds = len(stream), len(group_start) - 1, len(gate_start) > 0
    waiting, last_waiting = filled(NONE, num_places), filled(NONE, num_places)
    first_ticket = count  # a reduction queues at gate g as the message count + g
    serves, behind = filled(NONE, num_places), filled(NONE, count + len(gate))
    lacking, comes, owner = filled(0, count if holds else 0), filled(NONE, num_places), filled(NONE, len(gate))
    reducing = filled(NONE, num_ranks)
    for here in range(len(gate_start) - 1):
        for g in range(gate_start[here], gate_start[here + 1]):
            owner[g] = here
    due = filled(NONE, 2 * num_places + 2)  # places that may serve: they are free, or what they serve has come
    awake, num_awake, ready = filled(0, num_groups), 0, filled(0.0, num_groups)
    queue = [(0.0, 0)]
    queue.pop()

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
        if missing[group] == 0:
            awake[num_awake] = group
            num_awake += 1
    now = 0.0
    while True:
        # groups that lack nothing start
        while num_awake:
            num_awake -= 1
            group, began = awake[num_awake], ready[awake[num_awake]]
            first, last = group_start[group], group_start[group + 1]
            for op in range(first, last):
                start[op] = began
            if holds and reduces[first]:
                heappush(queue, (began, (_REDUCE << _KIND) + 2 * first))
            else:
                heappush(queue, (began + length[group], (_END << _KIND) + 2 * first))
            if shares is not None:  # results sent before the cell ends
                for op in range(first, last):
                    share = _share(shares, link, first, op, queues)
                    if share < 1 and link[op] != NONE:
                        heappush(queue, (began + share * length[group], (_EARLY << _KIND) + 2 * op))
        if len(queue) == 0:
            break
        now, what = heappop(queue)

        # the event's immediate effects
        kind, op, side = what >> _KIND, (what & ((1 << _KIND) - 1)) >> 1, what & 1
        first = last = NONE  # operations whose results are sent now
        num_due = next_due = 0
        if kind == _END:
            first, last = group_start[group_of[op]], group_start[group_of[op] + 1]
            for done in range(first, last):
                end[done] = now
            for done in range(first, last):
                here, group = stream[done], following[done]
                if group != NONE:
                    num_awake = _told(group, now, missing, ready, awake, num_awake)
                other = beside[done]
                while other != NONE:
                    num_awake = _told(group_of[other], now, missing, ready, awake, num_awake)
                    other = also[other]
            if holds and reduces[op]:  # it releases its places
                for done in range(first, last):
                    here = stream[done] - num_ranks
                    for g in range(gate_start[here], gate_start[here + 1]):
                        if serves[gate[g]] == first_ticket + g:
                            serves[gate[g]] = NONE
                            due[num_due], num_due = gate[g], num_due + 1
        elif kind == _FREE:
            due[0], num_due = routes[link[op]][side], 1
            serves[due[0]] = NONE
            if side == 1 or routes[link[op]][1] == NONE:
                arrived[op], group = now + latency[op], taker[op]
                if length[group] > 0:
                    num_awake = _told(group, arrived[op], missing, ready, awake, num_awake)
                else:
                    heappush(queue, (arrived[op], (_ARRIVE << _KIND) + 2 * op))
        elif kind == _REDUCE:  # a reduction joins the queues of all its ranks' places
            for member in range(op, group_start[group_of[op] + 1]):
                here = stream[member] - num_ranks
                reducing[here] = op
                for g in range(gate_start[here], gate_start[here + 1]):
                    if comes[gate[g]] != op:
                        comes[gate[g]] = op
                        due[num_due], num_due = gate[g], num_due + 1
                        _join(waiting, last_waiting, behind, gate[g], first_ticket + g)
                        lacking[op] += 1
            if lacking[op] == 0:
                heappush(queue, (now + length[group_of[op]], (_END << _KIND) + 2 * op))
        elif kind == _EARLY:
            first, last = op, op + 1
        else:
            num_awake = _told(taker[op], now, missing, ready, awake, num_awake)

        # messages join queues, and free links and NICs serve them
        while next_due < num_due or first < last:
            if next_due == num_due:
                early = False
                if shares is not None:
                    early = kind == _END and _share(shares, link, group_start[group_of[op]], first, queues) < 1
                if early:
                    pass
                elif link[first] != NONE and queues:
                    due[0], num_due, next_due = routes[link[first]][0], 1, 0
                    _join(waiting, last_waiting, behind, due[next_due], first)
                elif link[first] != NONE:
                    sent[first], arrived[first] = now, now + (occupancy[first] + latency[first])
                    num_awake = _told(taker[first], arrived[first], missing, ready, awake, num_awake)
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
                    heappush(queue, (now + length[group_of[reduction]], (_END << _KIND) + 2 * reduction))
                continue
            side = place != routes[link[message]][0]
            if not side:
                sent[message] = now
            heappush(queue, (now + occupancy[message], (_FREE << _KIND) + 2 * message + side))
            second = routes[link[message]][1]
            if not side and second != NONE:  # what leaves one NIC reaches the other at once
                _join(waiting, last_waiting, behind, second, message)
                due[num_due], num_due = second, num_due + 1


@inlined
def _told(group, at, missing, ready, awake, num_awake):
    """Let a group lack one thing less from some time on; return how many groups lack nothing."""
    ready[group] = max(ready[group], at)
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
def _join(waiting, last_waiting, behind, place, message):
    """Queue a message at a link or at a side of a NIC."""
    if waiting[place] == NONE:
        waiting[place] = message
    else:
        behind[last_waiting[place]] = message
    last_waiting[place], behind[message] = message, NONE
