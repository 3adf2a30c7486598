"""Zero Bubble schedules found by search (Qi et al., ICLR 2024, section 3.1), for given times and a memory limit.

A greedy scheduler steps the ranks through simulated time. Choices that its rules leave open are made in several ways;
each gives a candidate, and the best one is kept. The handcrafted ZB-H1 and ZB-H2 are candidates too if they fit the
limit, so the result is never worse than these for the times given.
"""

from fractions import Fraction
from math import ceil, floor, lcm
from typing import NamedTuple

import numpy as np

from ppmodel.compiled import kernels
from ppmodel.ops import OpKind
from ppmodel.schedules.options import option_text
from ppmodel.schedules.registry import Option, require, schedule
from ppmodel.schedules.rounds import in_rounds
from ppmodel.tables import Schedule

NEVER = 2**62
_LONGEST = 2**60
_WORK = 4
"""Choosing one operation in plain code takes about as long as handling this many operations of a table elsewhere."""
_PARTS = 10**9
"""Fractions of memory are counted in billionths."""
_F, _I, _W = int(OpKind.F), int(OpKind.I), int(OpKind.W)


class Rule(NamedTuple):
    """What the greedy scheduler does where the paper's description leaves a choice open.

    Attributes
    ----------
    eager : bool
        A rank still waiting for its first input gradient starts a forward even if that may delay it.
    skip : bool
        A rank at least two forwards ahead of the next rank skips a forward that may delay an input gradient.
    fill : {0, 1, 2}
        Whether a gap shorter than a weight gradient is filled with one: never; if this rank would otherwise become
        the one that has waited longest; always.
    depth : {0, 1, 2}
        Limit on microbatches in flight on rank d: as memory allows; S-d as in 1F1B; 2(S-d)-1 as in ZB-H2.
    free : bool
        At the memory limit, a weight gradient makes room for a waiting forward, however short the gap.
    """

    eager: bool
    skip: bool
    fill: int
    depth: int
    free: bool


RULES = tuple(
    Rule(*choices)
    for choices in [
        (0, 0, 1, 0, 1), (1, 1, 2, 0, 0), (0, 0, 1, 1, 1), (1, 0, 1, 0, 1), (0, 0, 2, 0, 0), (0, 0, 2, 1, 0),
        (0, 0, 1, 2, 1), (0, 0, 2, 2, 0), (0, 0, 0, 0, 1), (0, 0, 1, 0, 0), (0, 0, 0, 1, 0), (1, 1, 1, 0, 0),
    ]
)  # fmt: skip
"""Twelve of the 72 combinations, in the order in which ties are broken; trying all would take six times as long.

They were chosen on 4000 random cases (S up to 16, B up to 4S). On 4000 others they and the handcrafted orders find the
shortest span of all 72 combinations in all but 7 cases, in which the span is less than 1 % longer.
"""


def _is_times(times):
    """Whether a value is four times, the first three above 0."""
    four = isinstance(times, tuple | list) and len(times) == 4
    numbers = four and all(isinstance(t, int | float) and not isinstance(t, bool) and 0 <= t < NEVER for t in times)
    return numbers and all(t > 0 for t in times[:3])


def _times(text):
    """Read ``F:I:W:C``.

    >>> _times("18.5:18:9.3:0")
    (18.5, 18, 9.3, 0)
    """
    return tuple(_number(part) for part in text.split(":"))


def _is_share(share):
    return isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share < float("inf")


def _number(text):
    return int(text) if text.strip().isdecimal() else float(text)


_TIMES = Option(
    "times", _times, (1, 1, 1, 0), "F:I:W:C", "must be four numbers, the first three above 0, as F:I:W:C",
    "times of forward, input gradient, weight gradient and transfer to search an order for",
    _is_times, ((1, 1, 1, 0), (18.5, 18, 9.3, 0.6)),
)  # fmt: skip
_LIMIT_1P, _LIMIT_2P = (
    Option.count("limit", None, "N", f"microbatches whose activations fit on a rank, {usual} by default", (None, 3))
    for usual in ("S", "2S")
)
_HELD = Option(
    "held", _number, 1, "SHARE", "must be a number of at least 0",
    "activations held between I and W over those between F and I; above 1 with recomputation", _is_share, (1, 0.5),
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
    legal="B >= 1", options=[_TIMES, _LIMIT_2P, _HELD], searched=True,
    when="You have twice 1F1B's memory, and F, I, W and c differ and are known.",
    source="qi2024",
)  # fmt: skip
def zb_2p(num_ranks, num_microbatches, times=(1, 1, 1, 0), limit=None, held=1):
    """ZB-2p (Qi et al., 2024, section 3.1): the best order found within twice 1F1B's memory, 2S microbatches.

    Parameters
    ----------
    num_ranks, num_microbatches, times, limit, held
        As in `zb_1p`, except that the limit is 2S by default.

    Returns
    -------
    Schedule
        As for `zb_1p`.

    Raises
    ------
    ScheduleError
        As for `zb_1p`.

    Examples
    --------
    >>> for row in zb_2p(2, 3).table():
    ...     print(*row)
    0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2 .
    . 1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2
    """
    return _searched("zb-2p", num_ranks, num_microbatches, times, limit, 2 * num_ranks, held)


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
    kind = _best(sizes, times, (min(floor(limit * memory[0]), largest), *memory))
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


def _best(sizes, times, memory):
    """Kinds of the best candidate: least longest span, then least makespan, then the first.

    Times, and the parts of `memory` (limit, a microbatch, the part its weight gradient still needs), are whole.
    """
    fast = kernels(_WORK * 3 * sizes[0] * sizes[1] * len(RULES))
    order, judge = (fast.zero_bubble_order, fast.zero_bubble_span) if fast else (greedy, span_and_makespan)
    found, best = (NEVER, NEVER), None
    for kind in _candidates(sizes, times, memory, order):
        reached = judge(kind, np.array(times))
        if reached < found:
            found, best = reached, kind
    return best


def _candidates(sizes, times, memory, order):
    for rule in RULES:
        yield order(np.array(sizes), np.array(times), np.array(memory), np.array(rule, dtype=np.int64))
    for kind in (_hand_made(*sizes, 1), _hand_made(*sizes, 2)):
        if _peak(kind, memory) <= memory[0]:
            yield kind


def _hand_made(num_ranks, num_microbatches, depth):
    """Kinds of ZB-H1 (depth 1) or ZB-H2 (depth 2), for any B."""
    delay = depth * np.arange(num_ranks)
    return in_rounds(num_microbatches, (OpKind.F, OpKind.I, OpKind.W), (-delay[::-1], 0 * delay, delay))[0]


def _peak(kind, memory):
    """The peak of the most loaded rank, in the unit of `memory`."""
    _, whole, kept = memory
    change = np.zeros(len(OpKind), dtype=np.int64)
    change[[_F, _I, _W]] = whole, kept - whole, -kept
    return np.cumsum(change[kind], axis=1).max()


# ---- plain twins of the compiled code --------------------------------------------------------


def greedy(sizes, times, memory, rule):
    """One candidate: the kinds of each rank's operations in order; the twin of the compiled function.

    The rank that is due first (the lowest of several) decides what to start: an input gradient that is ready, unless
    it is a forward's turn; a forward that fits in memory; a weight gradient in a gap. If it starts nothing, it is due
    again when the next message arrives or a neighbour starts something.

    Parameters
    ----------
    sizes, times, memory, rule : sequences of int
        (S, B); (F, I, W, C); (limit, a microbatch, the part its weight gradient needs); as in `Rule`.

    Returns
    -------
    ndarray of int, shape (S, 3B)
    """
    play = _Play(sizes, times, memory, rule)
    while (now := min(play.due)) < NEVER:
        rank = play.due.index(now)
        play.due[rank] = NEVER
        kind = play.choice(rank, now)
        if kind is None:
            play.wait(rank, now)
        else:
            play.begin(rank, now, kind)
    return np.array(play.program, dtype=np.int32)


class _Play:
    """The state of the ranks while a greedy order is built."""

    def __init__(self, sizes, times, memory, rule):
        (self.num_ranks, self.num_microbatches), self.rule = map(int, sizes), Rule(*map(int, rule))
        self.forward, self.input_grad, self.weight_grad, self.comm = map(int, times)
        self.limit, self.whole, self.kept = map(int, memory)
        everyone = range(self.num_ranks)
        self.due = [0] + [NEVER] * (self.num_ranks - 1)
        self.end = {kind: [[] for _ in everyone] for kind in (_F, _I, _W)}
        self.program = [[] for _ in everyone]
        self.free, self.idle, self.longest_idle = [0] * self.num_ranks, [0] * self.num_ranks, 0
        self.last = [_I] * self.num_ranks

    def done(self, kind, rank):
        return len(self.end[kind][rank])

    def next_forward(self, rank, now):
        """When the next forward's input arrives (NEVER while unknown), and the earliest that it may."""
        number = self.done(_F, rank)
        if number == self.num_microbatches:
            return NEVER, NEVER
        if rank == 0:
            return 0, 0
        if number < self.done(_F, rank - 1):
            there = self.end[_F][rank - 1][number] + self.comm
            return there, there
        return NEVER, max(now, self.free[rank - 1]) + self.forward + self.comm

    def next_input_grad(self, rank, now):
        """The same for the next input gradient; NEVER while its forward has not started."""
        number = self.done(_I, rank)
        if number == self.done(_F, rank):
            return NEVER, NEVER
        forward_end, hops = self.end[_F][rank][number], self.num_ranks - 1 - rank
        if hops == 0:
            return forward_end, forward_end
        if number < self.done(_I, rank + 1):
            there = self.end[_I][rank + 1][number] + self.comm
            return there, there
        answered = max(now, self.free[rank + 1]) + self.input_grad + self.comm
        return NEVER, max(answered, forward_end + hops * (self.forward + self.input_grad + 2 * self.comm))

    def held(self, rank):
        forwards, input_grads, weight_grads = (self.done(kind, rank) for kind in (_F, _I, _W))
        return self.whole * forwards - (self.whole - self.kept) * input_grads - self.kept * weight_grads

    def has_room(self, rank):
        """Whether a forward fits and, if input gradients need more than it took, one of them after it."""
        forwards, depth = self.done(_F, rank), self.rule.depth
        deep = depth and forwards - self.done(_I, rank) > depth * (self.num_ranks - 1 - rank)
        return self.held(rank) + max(self.whole, self.kept) <= self.limit and not deep

    def choice(self, rank, now):
        """The kind of operation to start, or None."""
        forward_there, soonest_forward = self.next_forward(rank, now)
        input_grad_there, soonest_input_grad = self.next_input_grad(rank, now)
        room, warming_up = self.has_room(rank), not self.done(_I, rank)
        if input_grad_there <= now and self.held(rank) + self.kept - self.whole > self.limit:
            return _W  # after a forward, there must be room for an input gradient
        may_forward, may_input_grad = room and forward_there <= now, input_grad_there <= now
        if may_input_grad and (warming_up or self.last[rank] == _F or not may_forward):
            return _I
        if may_forward and self.takes_forward(rank, soonest_input_grad < now + self.forward, warming_up):
            return _F
        gap = min(soonest_forward if room else NEVER, soonest_input_grad) - now
        if self.takes_weight_grad(rank, now, gap, starved=not room and forward_there <= now):
            return _W
        return _I if may_input_grad else None

    def takes_forward(self, rank, delays, warming_up):
        """Whether a forward that fits starts now; `delays`: it may make the next input gradient wait."""
        if not delays:
            return True
        if warming_up:
            return self.rule.eager
        ahead = self.done(_F, rank) - self.done(_F, rank + 1) if rank + 1 < self.num_ranks else 0
        waits = self.done(_W, rank) < self.done(_I, rank)
        return self.last[rank] == _I and not (self.rule.skip and ahead > 1 and waits)

    def takes_weight_grad(self, rank, now, gap, starved):
        if self.done(_W, rank) == self.done(_I, rank):
            return False
        if gap >= self.weight_grad or self.rule.fill == 2 or (self.rule.free and starved):
            return True
        waited = self.idle[rank] + now - self.free[rank] + gap
        return self.rule.fill == 1 and waited > self.longest_idle

    def begin(self, rank, now, kind):
        if self.program[rank]:
            self.idle[rank] += now - self.free[rank]
            self.longest_idle = max(self.longest_idle, self.idle[rank])
        length = {_F: self.forward, _I: self.input_grad, _W: self.weight_grad}[kind]
        self.free[rank] = self.due[rank] = now + length
        self.end[kind][rank].append(now + length)
        self.program[rank].append(kind)
        if kind != _W:
            self.last[rank] = kind
        for neighbour in {max(rank - 1, 0), min(rank + 1, self.num_ranks - 1)} - {rank}:
            self.due[neighbour] = min(self.due[neighbour], max(now, self.free[neighbour]))

    def wait(self, rank, now):
        forward_there, _ = self.next_forward(rank, now)
        input_grad_there, _ = self.next_input_grad(rank, now)
        there = [forward_there] * self.has_room(rank) + [input_grad_there]
        self.due[rank] = min((time for time in there if time > now), default=NEVER)


def span_and_makespan(kind, times):
    """The longest span of a rank, first to last operation, and the makespan; the twin of the compiled function.

    Parameters
    ----------
    kind : ndarray of int, shape (S, 3B)
        From `greedy`.
    times : sequence of int
        (F, I, W, C).

    Returns
    -------
    span, makespan : int
        In the unit of `times`; NEVER if ranks wait for each other.
    """
    forward, input_grad, weight_grad, comm = map(int, times)
    length = {_F: forward, _I: input_grad, _W: weight_grad}
    last = len(kind) - 1
    ends = {of: [[] for _ in kind] for of in (_F, _I)}
    at, free, first = [0] * len(kind), [0] * len(kind), [NEVER] * len(kind)
    programs, moved = kind.tolist(), True
    while moved:
        moved = False
        for rank, program in enumerate(programs):
            while at[rank] < len(program):
                of = program[at[rank]]
                there = 0
                if of != _W and (of == _I or rank):
                    source = rank if of == _I and rank == last else rank + (1 if of == _I else -1)
                    sent = ends[_F if source == rank else of][source]
                    number = len(ends[of][rank])
                    if number >= len(sent):
                        break
                    there = sent[number] + comm * (source != rank)
                start = max(free[rank], there)
                first[rank] = min(first[rank], start)
                free[rank] = start + length[of]
                if of != _W:
                    ends[of][rank].append(free[rank])
                at[rank] += 1
                moved = True
    if any(place < len(program) for place, program in zip(at, programs, strict=True)):
        return NEVER, NEVER
    return max(end - begin for begin, end in zip(first, free, strict=True)), max(free)
