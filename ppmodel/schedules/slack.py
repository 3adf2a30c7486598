"""PipeMorph's order of a zero-bubble pipeline for slow links (Wu et al., NSDI 2026, arXiv:2504.19232).

A rank begins with forwards, and with more of them the slower the links behind it: each hides the way of one message.
Then it takes the first that is there of the next input gradient, forward and weight gradient. What a link's messages
take is known when the order is made. Memory is not limited, unless a limit is given.
"""

from heapq import heappop, heappush
from math import ceil

from ppmodel.ops import OpKind

_BY_PRIORITY = OpKind.I, OpKind.F, OpKind.W


def warm_up(most, forward, delays):
    """Forwards of each rank before its first backward, at most `most`: one on the last, then each link's slack more.

    Examples
    --------
    >>> warm_up(12, 1, (0, 0, 0)), warm_up(12, 30, (0, 0, 60))
    ([7, 5, 3, 1], [9, 7, 5, 1])
    """
    forwards = [1]
    for delay in reversed(delays):
        forwards.append(min(most, forwards[-1] + ceil(delay / forward) + 2))
    return forwards[::-1]


def slack_order(num_ranks, num_microbatches, times, delays, limit=None):
    """Kinds of each rank's operations in PipeMorph's order.

    Parameters
    ----------
    num_ranks, num_microbatches : int
    times : tuple of three numbers
        Forward, input gradient and weight gradient.
    delays : tuple of num_ranks - 1 numbers
        Of the links between neighbouring ranks, in both directions, in the unit of `times`.
    limit : int, optional
        Microbatches between their forward and their weight gradient on a rank.

    Returns
    -------
    list of list of OpKind
        Each kind takes the microbatches in order.
    """
    seconds = dict(zip((OpKind.F, OpKind.I, OpKind.W), times, strict=True))
    most, order = min(num_microbatches, limit or num_microbatches), [[] for _ in range(num_ranks)]
    warm_ups = warm_up(most, times[0], delays)
    arrived = [{kind: [] for kind in seconds} for _ in range(num_ranks)]  # when what each operation needs is there
    arrived[0][OpKind.F] = [0] * num_microbatches
    taken, free = [dict.fromkeys(seconds, 0) for _ in range(num_ranks)], [0] * num_ranks
    events, left = [0], 3 * num_ranks * num_microbatches
    while left:
        now = heappop(events)
        for rank in range(num_ranks):
            here, count = arrived[rank], taken[rank]
            ready = [kind for kind in _BY_PRIORITY if count[kind] < len(here[kind]) and here[kind][count[kind]] <= now]
            if count[OpKind.F] < warm_ups[rank]:
                ready = [kind for kind in ready if kind == OpKind.F]
            elif not count[OpKind.I]:  # after its warm-up, a rank waits for its first input gradient
                ready = [kind for kind in ready if kind == OpKind.I]
            if count[OpKind.F] - count[OpKind.W] == most:
                ready = [kind for kind in ready if kind != OpKind.F]
            if now < free[rank] or not ready:
                continue
            kind, left = ready[0], left - 1
            order[rank].append(kind)
            count[kind] += 1
            free[rank] = end = now + seconds[kind]
            heappush(events, end)
            if kind == OpKind.W or (kind == OpKind.I and rank == 0):
                continue  # nobody waits for it
            takes = min(rank + 1, num_ranks - 1) if kind == OpKind.F else rank - 1
            arrives = end if takes == rank else end + delays[min(rank, takes)]
            for needed in (OpKind.F,) if takes > rank else (OpKind.I, OpKind.W):
                arrived[takes][needed].append(arrives)
            heappush(events, arrives)
    return order
