"""Zero Bubble schedules found by search (Qi et al., ICLR 2024, section 3.1), for given times and a memory limit.

A greedy scheduler steps the ranks through simulated time. Choices that its rules leave open are made in several ways;
each gives a candidate, and the best one is kept. The handcrafted ZB-H1 and ZB-H2 are candidates too if they fit the
limit, so the result is never worse than these for the times given.
"""

from fractions import Fraction
from math import ceil, floor, lcm

import numpy as np

from ppmodel.given import is_number
from ppmodel.loops.automatic import zero_bubble_order, zero_bubble_span
from ppmodel.ops import OpKind
from ppmodel.schedules.options import option_text
from ppmodel.schedules.registry import Option, require, schedule
from ppmodel.schedules.rounds import in_rounds
from ppmodel.schedules.slack import slack_order
from ppmodel.tables import Schedule

_LONGEST = 2**60
_WORK = 4
"""Choosing one operation in plain code takes about as long as handling this many operations of a table elsewhere."""
_PARTS = 10**9
"""Fractions of memory are counted in billionths."""
_F, _I, _W = int(OpKind.F), int(OpKind.I), int(OpKind.W)


RULES = np.array([
    (0, 0, 1, 0, 1), (1, 1, 2, 0, 0), (0, 0, 1, 1, 1), (1, 0, 1, 0, 1), (0, 0, 2, 0, 0), (0, 0, 2, 1, 0),
    (0, 0, 1, 2, 1), (0, 0, 2, 2, 0), (0, 0, 0, 0, 1), (0, 0, 1, 0, 0), (0, 0, 0, 1, 0), (1, 1, 1, 0, 0),
], dtype=np.int64)  # fmt: skip
"""Twelve of the 72 combinations, in the order in which ties are broken; trying all would take six times as long.

They were chosen on 4000 random cases (S up to 16, B up to 4S). On 4000 others they and the handcrafted orders find the
shortest span of all 72 combinations in all but 7 cases, in which the span is less than 1 % longer.
"""


def _times(text):
    """Read ``F:I:W:C``.

    >>> _times("18.5:18:9.3:0")
    (18.5, 18, 9.3, 0)
    """
    return tuple(map(_number, text.split(":")))


def _number(text):
    return int(text) if text.strip().isdecimal() else float(text)


def _are_times(times):
    """Check that a value is a sequence of numbers of at least 0."""
    return isinstance(times, tuple | list) and all(is_number(time) and time >= 0 for time in times)


_TIMES = Option(
    "times", _times, (1, 1, 1, 0), "F:I:W:C", "must be four numbers, the first three above 0, as F:I:W:C",
    "times of forward, input gradient, weight gradient and transfer for which to search an order",
    lambda times: _are_times(times) and len(times) == 4 and min(times[:3]) > 0, ((1, 1, 1, 0), (18.5, 18, 9.3, 0.6)),
)  # fmt: skip
_LIMIT_1P, _LIMIT_2P = (
    Option.count("limit", None, "N", f"microbatches whose activations fit on a rank, {usual} by default", (None, 3))
    for usual in ("S", "2S")
)
_HELD = Option(
    "held", _number, 1, "SHARE", "must be a number of at least 0",
    "activations kept from I to W over those kept from F to I; above 1 with recomputation",
    lambda share: _are_times([share]), (1, 0.5),
)  # fmt: skip
_DELAYS = Option(
    "delays", _times, None, "D:D:...",
    "must be a time of at least 0, or one for each link between neighbouring ranks, as D:D:D",
    "time of a message over each link, in the unit of the option times; gives PipeMorph's order for slow links",
    lambda times: _are_times(times) and len(times) > 0, (None, (0,), (2.5,)),
)  # fmt: skip


@schedule(
    "zb-1p", label="ZB-1p", title="split backward, order found by search within the memory of S microbatches",
    legal="B >= 1", options=[_TIMES, _LIMIT_1P, _HELD], searched=True,
    when="You have 1F1B's memory, and F, I, W and c differ and are known.", source="qi2024",
)  # fmt: skip
def zb_1p(num_ranks, num_microbatches, times=(1, 1, 1, 0), limit=None, held=1):
    """ZB-1p (Qi et al., 2024, section 3.1): the best order found within 1F1B's memory, S microbatches.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; stage s is on rank s.
    num_microbatches : int
        Microbatches per iteration, B.
    times : tuple of four numbers
        Forward, input gradient, weight gradient and transfer of one microbatch on one stage, in the same unit; a
        transfer occupies nothing (``latency``). They only determine the order.
    limit : int, optional
        Number of microbatches whose activations a rank may hold between F and I; S by default.
    held : number
        Activations that the weight gradient still needs, as a fraction of a stage's activations between F and I;
        rounded up to a billionth. The paper's limit counts them like this, because the fraction is well below 1 if
        attention scores are kept: 32 of 34 + 5as/h parts. With recomputation it exceeds 1, because what I recomputes
        stays until W; a given `limit` must then be at least as large, and the default counts microbatches at their
        largest.

    Returns
    -------
    Schedule
        On each rank, forwards, input gradients and weight gradients each take the microbatches in order.

    Raises
    ------
    ScheduleError
        If one microbatch exceeds the limit, or times have too many digits to be added exactly.

    Examples
    --------
    >>> for row in zb_1p(2, 3).table():
    ...     print(*row)
    0F0 0F1 . 0I0 0W0 0F2 0I1 0W1 0I2 0W2
    . 1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2
    """
    return _searched("zb-1p", num_ranks, num_microbatches, times, limit, num_ranks, held)


@schedule(
    "zb-2p", label="ZB-2p", title="split backward, order found by search within the memory of 2S microbatches",
    legal="B >= 1", options=[_TIMES, _LIMIT_2P, _HELD, _DELAYS], searched=True,
    when="You have twice 1F1B's memory, and F, I, W and c differ and are known.",
    source="qi2024",
)  # fmt: skip
def zb_2p(num_ranks, num_microbatches, times=(1, 1, 1, 0), limit=None, held=1, delays=None):
    """ZB-2p (Qi et al., 2024, section 3.1): the best order found within twice 1F1B's memory, 2S microbatches.

    Parameters
    ----------
    num_ranks, num_microbatches, times, limit, held
        As in `zb_1p`, except that the limit is 2S by default.
    delays : tuple of numbers, optional
        What a message over the link behind each rank takes, or over every link: the order is then that of
        `slack.slack_order` (PipeMorph), within the limit if there is one.

    Returns
    -------
    Schedule
        As for `zb_1p`.

    Raises
    ------
    ScheduleError
        As for `zb_1p`; also for delays of another number of links.

    Examples
    --------
    >>> for row in zb_2p(2, 3).table():
    ...     print(*row)
    0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2 .
    . 1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2
    """
    if delays is None:
        return _searched("zb-2p", num_ranks, num_microbatches, times, limit, 2 * num_ranks, held)
    links = max(num_ranks - 1, 1)
    rule = f"must be one time, or one for each link, {links}"
    require(len(delays) in (1, links), "delays", option_text(delays), rule, "give as many")
    delays = (delays * links)[: num_ranks - 1] if len(delays) == 1 else delays[: num_ranks - 1]
    most = limit and max(1, floor(limit / max(1, held)))
    kind = slack_order(num_ranks, num_microbatches, times[:3], delays, most)
    return _in_order("zb-2p", np.array(kind, dtype=np.int32), held)


def _searched(name, num_ranks, num_microbatches, times, limit, usual, held):
    share = Fraction(ceil(Fraction(str(held)) * _PARTS), _PARTS)
    limit = usual * max(1, share) if limit is None else limit
    rule, enough = f"must be at least held, {held}, so that one microbatch fits", f"pass limit {ceil(held)} or more"
    require(share <= limit, "limit", limit, rule, enough)
    sizes, times, memory = (num_ranks, num_microbatches), _whole(times), _whole((1, share))
    longest, largest = num_ranks * num_microbatches * (sum(times) + times[3]), num_microbatches * max(memory)
    rule = "has too many digits to be added exactly"
    require(longest < _LONGEST, "times", option_text(times), rule, "round the times")
    require(largest < _LONGEST, "held", held, "is too large to be added exactly", "pass a smaller number")
    memory, work = (min(floor(limit * memory[0]), largest), *memory), _WORK * 3 * num_ranks * num_microbatches
    least, times, shortest = least_spans(sizes, times, memory), np.array(times), (_LONGEST, _LONGEST)
    for kind in _candidates(sizes, times, memory, work):
        # the least longest span, then the least makespan, then the first
        if (spans := zero_bubble_span.run(work, kind, times)) < shortest:
            best, shortest = kind, spans
        if shortest == least:
            break
    return _in_order(name, best, held)


def least_spans(sizes, times, memory):
    """Lower bounds on the longest span and the makespan of any order within a memory limit.

    Until its first input gradient is back, rank 0 has only forwards to run, as many as fit. The last rank starts after
    one microbatch's forwards on all others. Arguments are integers, as `zero_bubble_order` takes them.
    """
    (num_ranks, num_microbatches), (forward, input_grad, weight_grad, comm) = sizes, times
    hops, busy = num_ranks - 1, num_microbatches * (forward + input_grad + weight_grad)
    first_back = forward + hops * (forward + input_grad + 2 * comm)
    span = busy + max(0, first_back - min(num_microbatches, memory[0] // memory[1]) * forward)
    return span, max(span, hops * (forward + comm) + busy)


def _in_order(name, kind, held):
    """The schedule of the kinds of each rank's operations; each kind takes the microbatches in order."""
    num_ranks, num_microbatches = len(kind), kind.shape[1] // 3
    microbatch = np.empty_like(kind)
    for of in (_F, _I, _W):
        microbatch[kind == of] = np.tile(np.arange(num_microbatches), num_ranks)
    stage = np.arange(num_ranks)
    columns = kind, stage[:, None], microbatch
    return Schedule.from_programs(name, stage, num_microbatches, *columns, held_for_weight_grad=float(held))


def _whole(numbers):
    """Scale decimal numbers by the smallest factor that makes all of them whole.

    >>> _whole((1, 0.25))
    (4, 1)
    """
    exact = [number if isinstance(number, Fraction) else Fraction(str(number)) for number in numbers]
    factor = lcm(*(number.denominator for number in exact))
    return tuple(int(number * factor) for number in exact)


# ---- the candidates --------------------------------------------------------------------------


def _candidates(sizes, times, memory, work):
    for rule in RULES:
        program = np.empty((sizes[0], 3 * sizes[1]), dtype=np.int32)
        zero_bubble_order.run(work, times, np.array(memory), rule, program)
        yield program
    limit, whole, kept = memory
    change = np.zeros(len(OpKind), dtype=np.int64)
    change[[_F, _I, _W]] = whole, kept - whole, -kept
    for depth in (1, 2):  # ZB-H1 and ZB-H2, for any B
        delay = depth * np.arange(sizes[0])
        kind, _ = in_rounds(sizes[1], (OpKind.F, OpKind.I, OpKind.W), (-delay[::-1], 0 * delay, delay))
        if np.cumsum(change[kind], axis=1).max() <= limit:
            yield kind
