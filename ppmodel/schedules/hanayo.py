"""Hanayo (Liu et al., SC'23): waves that zigzag over the ranks, without copies of the weights."""

import numpy as np

from ppmodel import formulas
from ppmodel.ops import OpKind
from ppmodel.schedules.registry import Option, require_legal, require_size, schedule
from ppmodel.tables import Schedule


@schedule(
    "hanayo", label="Hanayo", title="2W stages per rank in W waves, with one copy of the weights", legal="B = S",
    options=[Option.count("waves", 1, "W", "number of waves, with two stages per rank each", tried=(1, 2))],
    bubble_ratio=lambda num_ranks, _, waves=1: formulas.bubble_ratio_hanayo(num_ranks, waves), searched=True,
    when="You have exactly as many microbatches as ranks, and room for one copy of the weights; use more waves only "
    "on a fast network.",
    source="liu2023",
)  # fmt: skip
def hanayo(num_ranks, num_microbatches, waves=1):
    """Hanayo, restricted to as many microbatches as ranks.

    The model is divided into 2 W S stages that zigzag over the ranks. The authors published no code. We find
    the order by list scheduling, without communication and with backwards twice as long as forwards, and keep
    it. Backwards go first, then the operation furthest along its microbatch's path, then the oldest microbatch.
    (The furthest backward is the one nearest to the input; preferring the highest stage number instead takes 34
    rather than 31.5 forward-times at S = B = 8, W = 2.)

    Parameters
    ----------
    num_ranks, num_microbatches : int
        Ranks and microbatches; B = S.
    waves : int
        Number of waves, W.

    Returns
    -------
    Schedule
        A table of S rows with 4 W B operations each.

    Raises
    ------
    ScheduleError
        If B is not S, or the table is too large.

    Examples
    --------
    >>> print(*hanayo(2, 2).table(backward=1)[1])
    . 1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1 .
    """
    rule = f"must equal pp ({num_ranks}) for hanayo, which is defined only there"
    remedy = f"pass microbatches {num_ranks}"
    require_legal(num_microbatches == num_ranks, "microbatches", num_microbatches, rule, remedy)
    require_size(num_ranks, num_microbatches, 2 * waves, f" with {waves} waves", "pass fewer waves")
    segment, step = np.divmod(np.arange(2 * waves * num_ranks), num_ranks)
    placement = np.where(segment % 2 == 0, step, num_ranks - 1 - step)
    way, microbatch, slot = _list_schedule(placement, num_microbatches)
    backward = way >= len(placement)
    stage = np.where(backward, 2 * len(placement) - 1 - way, way)
    kind = np.where(backward, OpKind.B, OpKind.F)
    return Schedule.from_slots("hanayo", placement, num_microbatches, kind, stage, microbatch, 0, slot)


def _list_schedule(placement, num_microbatches):
    """Step, microbatch and first slot of every operation: each free rank takes the furthest one that is ready.

    A microbatch's path leads up through K stages and down again: forward s is its step s, backward s its step
    2 K - 1 - s. A rank runs each step's microbatches in order, so it suffices to count arrivals and departures.
    """
    way_home = np.concatenate((placement, placement[::-1]))
    duration = np.repeat((1, 2), len(placement))  # slots of a forward and a backward
    furthest_first = np.argsort(way_home, kind="stable").reshape(placement.max() + 1, -1)[:, ::-1]
    waiting, begun = np.zeros(len(way_home) + 1, dtype=int), np.zeros(len(way_home), dtype=int)
    waiting[0] = num_microbatches
    free_at, running = np.zeros(len(furthest_first), dtype=int), np.full(len(furthest_first), len(way_home))
    taken, slot = [], 0
    while begun[-1] < num_microbatches:
        idle = np.flatnonzero(free_at <= slot)
        ready = waiting[furthest_first[idle]] > 0
        starting = ready.any(axis=1)
        rank = idle[starting]
        way = furthest_first[rank, ready.argmax(axis=1)[starting]]
        taken.append((way, begun[way], np.full(len(way), slot)))
        waiting[way] -= 1
        begun[way] += 1
        running[rank], free_at[rank] = way, slot + duration[way]
        slot += 1
        ended = (free_at == slot) & (running < len(way_home))
        waiting[running[ended] + 1] += 1
    return (np.concatenate(column) for column in zip(*taken, strict=True))
