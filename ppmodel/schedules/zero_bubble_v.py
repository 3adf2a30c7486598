"""Zero Bubble schedules on the V placement: ZB-V, and V-Half and V-Min, which need less memory.

A rank has two stages, s and 2S-1-s, so that the last stage is on the same rank as the first and memory is balanced
across ranks. The backward is split: the input gradient is passed on at once, and the weight gradient fills the gaps.
The letters are ours; the papers write B for I.
"""

import numpy as np

from ppmodel import formulas
from ppmodel.schedules.building_block import lengthened, squeezed
from ppmodel.schedules.phases import in_a_v, v_placement
from ppmodel.schedules.registry import require_legal, require_size, schedule

_MAX_SQUEEZED = 1024


@schedule(
    "zb-v", label="ZB-V",
    title="two stages per rank in a V, backward split, no bubble within a rank's span at F = I = W",
    legal="B >= 1 (without a bubble from B = 2S-1)", bubble_ratio=formulas.bubble_ratio_zb_v,
    published=formulas.bubble_ratio_span_zb_v,
    when="You have a fast network, no more memory than 1F1B needs, and few collectives to hide.", source="qi2024",
)  # fmt: skip
def zb_v(num_ranks, num_microbatches):
    """ZB-V (Qi et al., arXiv:2401.10241, section 6), as PyTorch orders it.

    With fewer than 2S-1 microbatches, it is the order for 2S-1 without the missing microbatches.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; there are 2S stages.
    num_microbatches : int
        Microbatches per iteration, B.

    Returns
    -------
    Schedule
        A table of S rows with 6 B operations each.

    Raises
    ------
    ScheduleError
        If the order from which microbatches are left out is too long.

    Examples
    --------
    >>> for row in zb_v(2, 3).table():
    ...     print(*row)
    0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2 .
    . 1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2
    """
    count = max(2 * num_ranks - 1, num_microbatches)
    note = f" with B = {count} for zb-v, which orders at least 2S-1 microbatches"
    require_size(num_ranks, count, note=note, remedy="pass fewer ranks")
    return in_a_v("zb-v", num_microbatches, [_order(num_ranks, count, rank) for rank in range(num_ranks)])


def _order(num_ranks, num_microbatches, rank):
    """The phases of a rank, for at least 2S-1 microbatches."""
    ahead = num_ranks - rank
    return [
        ("F0", 2 * ahead - 1), ("F1 F0", rank), ("F1 I1 W1", ahead),  # warm-up
        ("F0 I0 W0 F1 I1 W1", num_microbatches - 2 * num_ranks + 1 + rank), ("I0 W0 F1 I1 W1", ahead - 1),  # steady
        ("I0 I1", rank), ("I0 W0", ahead), ("W1", rank), ("W0", rank),  # cool-down
    ]  # fmt: skip


@schedule(
    "v-half", label="V-Half",
    title="two stages per rank in a V, backward split, half of 1F1B's activations plus one microbatch",
    legal="B >= 1, S <= 1024", bubble_ratio=formulas.bubble_ratio_v_half, published=False, searched=True,
    when="Deep pipelines that are short of memory, if F, I and W are similar.", source="qi2024memory",
)  # fmt: skip
def v_half(num_ranks, num_microbatches):
    """V-Half (Qi et al., arXiv:2405.15362): at most (S+2)/2 units of activations, rounded down.

    The block is the authors'. In the stable phase it repeats unchanged, and no rank waits if W + 2I >= 2F and
    W + 2F >= 2I, as they state. Squeezing of warm-up and cool-down is ours, see `building_block`; at F = I = W the
    table is as long as that of the authors' generator.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; there are 2S stages.
    num_microbatches : int
        Microbatches per iteration, B.

    Returns
    -------
    Schedule
        A table of S rows with 6 B operations each.

    Raises
    ------
    ScheduleError
        If S exceeds 1024.

    Examples
    --------
    >>> for row in v_half(2, 3).table():
    ...     print(*row)
    0F0 0F1 . 3F0 3I0 3F1 3W0 0F2 0I0 3I1 0W0 3F2 3I2 0I1 3W1 0I2 3W2 0W1 0W2
    . 1F0 2F0 1F1 2F1 2I0 1I0 2W0 1F2 1W0 2F2 2I1 1I1 2I2 1I2 2W1 1W1 2W2 1W2
    """
    rank, apart = np.arange(num_ranks), 3 * (num_ranks % 2 == 0)
    forwards = 2 * rank, 3 * num_ranks - rank - 2
    gradients = 3 * num_ranks + apart + 2 * rank - 1, 6 * num_ranks + apart - rank - 2
    peak = formulas.peak_activations_v_half(num_ranks)[0]
    return _repeated_block("v-half", num_ranks, num_microbatches, forwards, gradients, peak)


@schedule(
    "v-min", label="V-Min",
    title="two stages per rank in a V, backward split, a third of 1F1B's activations plus about one microbatch",
    legal="B >= 1, S <= 1024", bubble_ratio=formulas.bubble_ratio_v_min, published=False, searched=True,
    when="Deep pipelines for which memory matters more than time.", source="qi2024memory",
)  # fmt: skip
def v_min(num_ranks, num_microbatches):
    """V-Min (Qi et al., arXiv:2405.15362): at most (S+4)/3 units of activations, rounded down.

    The block is the authors'. In the stable phase it repeats unchanged, and no rank waits if W + I >= 2F and
    W + F >= 2I. Squeezing of warm-up and cool-down is ours, see `building_block`; at F = I = W the table is two chunks'
    time shorter than that of the authors' generator if S mod 3 = 2 (one for S = 2), and equally long otherwise.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; there are 2S stages.
    num_microbatches : int
        Microbatches per iteration, B.

    Returns
    -------
    Schedule
        A table of S rows with 6 B operations each.

    Raises
    ------
    ScheduleError
        If S exceeds 1024.

    Examples
    --------
    >>> for row in v_min(2, 3).table():
    ...     print(*row)
    0F0 0F1 . 3F0 3I0 3F1 3I1 0I0 3W0 3W1 0W0 0F2 0I1 0W1 3F2 3I2 3W2 . 0I2 0W2
    . 1F0 2F0 1F1 2F1 2I0 1I0 2W0 1W0 2I1 1I1 . 1F2 2F2 2W1 1W1 2I2 1I2 2W2 1W2
    """
    rank, apart = np.arange(num_ranks), 2 * (num_ranks % 3 == 0)
    forwards = rank, 2 * num_ranks - 1 - rank
    gradients = 2 * num_ranks + apart + rank, 4 * num_ranks + apart - 1 - rank
    peak = formulas.peak_activations_v_min(num_ranks)[0]
    return _repeated_block("v-min", num_ranks, num_microbatches, forwards, gradients, peak)


def steady_from(num_ranks):
    """The least number of microbatches for which a table of building blocks has a stable stretch to repeat: S + 5.

    Every rank's stable phase then includes a period starting at the first forward of microbatch S + 2. A test checks
    all S up to 96.

    >>> steady_from(4)
    9
    """
    return num_ranks + 5


def _repeated_block(name, num_ranks, num_microbatches, forwards, gradients, peak):
    """Build a table from building blocks; offsets by rank, on the way down and on the way up.

    From some number of microbatches on, a table has a steady state in which every six operations repeat; longer tables
    extend it.
    """
    rule = f"must be at most {_MAX_SQUEEZED} for {name}, because blocks are squeezed one operation at a time"
    require_legal(num_ranks <= _MAX_SQUEEZED, "pp", num_ranks, rule, "pass fewer ranks")
    placement, short = v_placement(num_ranks), min(num_microbatches, steady_from(num_ranks))
    ways = [offsets[::direction] for offsets, direction in zip((*forwards, *gradients), (1, -1, 1, -1), strict=True)]
    orders = squeezed(placement.tolist(), np.concatenate(ways), 6, short, 2 * peak)
    return lengthened(name, placement, orders, num_microbatches, short, num_ranks + 2, 6)
