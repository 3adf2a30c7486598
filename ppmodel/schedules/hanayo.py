"""Hanayo (Liu et al., SC'23): waves that zigzag over the ranks, without copies of the weights."""

import numpy as np

from ppmodel import formulas
from ppmodel.loops.rounds import waves as list_schedule
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
    way_home = np.concatenate((placement, placement[::-1]))  # of a microbatch
    furthest_first = np.argsort(way_home, kind="stable").reshape(num_ranks, -1)[:, ::-1]
    columns = np.empty((3, num_ranks, 4 * waves * num_microbatches), dtype=np.int32)
    list_schedule.run(columns.size * waves, furthest_first, num_microbatches, *columns)
    return Schedule.from_programs("hanayo", placement, num_microbatches, *columns)
