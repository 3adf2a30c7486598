"""1F1B-V: two stages per rank in a V, backwards whole, two thirds of 1F1B's activations."""

import numpy as np

from ppmodel import formulas
from ppmodel.loops.whole_backward import FREE, pack
from ppmodel.ops import OpKind
from ppmodel.schedules.building_block import lengthened, orders_in
from ppmodel.schedules.phases import v_placement
from ppmodel.schedules.registry import require_legal, schedule
from ppmodel.tables import by_keys

_MAX_RANKS = 512


@schedule(
    "1f1b-v", label="1F1B-V", title="two stages per rank in a V, two thirds of 1F1B's activations",
    legal="B >= 1, S <= 512", bubble_ratio=formulas.bubble_ratio_1f1b_v, published=False, searched=True,
    when="You are short of memory, and the framework cannot split backwards.", source="qi2024memory",
)  # fmt: skip
def one_f_one_b_v(num_ranks, num_microbatches):
    """1F1B-V (Qi et al., arXiv:2405.15362): V-Half's idea with whole backwards, in the order of the authors' code.

    A microbatch's block has each forward one slot after the one before and each backward two slots, with a pause of
    three slots after every third, so that blocks repeat every six slots. Then warm-up and cool-down are packed.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; there are 2S stages.
    num_microbatches : int
        Microbatches per iteration, B.

    Returns
    -------
    Schedule
        A table of S rows with 4 B operations each.

    Raises
    ------
    ScheduleError
        If S exceeds 512.

    Examples
    --------
    >>> for row in one_f_one_b_v(2, 3).table(backward=2):
    ...     print(*row)
    0F0 0F1 0F2 3F0 3B0 ~ 3F1 3B1 ~ . 0B0 ~ 3F2 3B2 ~ . 0B1 ~ . . 0B2 ~
    . 1F0 2F0 1F1 2F1 . 2B0 ~ 1B0 ~ 1F2 2F2 2B1 ~ 1B1 ~ 2B2 ~ 1B2 ~ . .
    """
    rule = f"must be at most {_MAX_RANKS} for 1f1b-v, because blocks are packed one operation at a time"
    require_legal(num_ranks <= _MAX_RANKS, "pp", num_ranks, rule, "pass fewer ranks")
    step, short = np.arange(2 * num_ranks), min(num_microbatches, steady_from(num_ranks))
    backward = 2 * step + 3 * ((step + (1 - num_ranks) % 3) // 3) + 2 * num_ranks + 3 * (num_ranks % 3 == 0)
    placement = v_placement(num_ranks).astype(np.int32)
    home = np.concatenate((placement, placement))
    slots = (np.concatenate((step, backward))[:, None] + 6 * np.arange(short)).astype(np.int32)
    turns = by_keys(slots.ravel(), np.repeat(home, short)).astype(np.int32)
    cells = np.full((num_ranks, slots.max() + 2), FREE, dtype=np.int32)
    pack.run(slots.size * 8 + cells.size, home, slots, turns, cells)
    orders = orders_in(cells, (OpKind.F, OpKind.B), len(placement), short)
    return lengthened("1f1b-v", placement, orders, num_microbatches, short, short - 3, 4)


def steady_from(num_ranks):
    """The number of microbatches from which the table of one more has one more period of its steady state.

    >>> steady_from(4)
    18
    """
    return 3 * num_ranks + 6
