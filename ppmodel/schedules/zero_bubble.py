"""Zero Bubble's handcrafted schedules (Qi et al., 2024): backwards split in two halves, the second one delayed."""

import numpy as np

from ppmodel import formulas
from ppmodel.ops import OpKind
from ppmodel.schedules.registry import require_microbatches, schedule
from ppmodel.schedules.rounds import on_own_ranks

_KINDS = OpKind.F, OpKind.I, OpKind.W
"""Only forwards; then forward, input and weight gradient in turn while there are any; then the delayed W."""


@schedule(
    "zb-h1", label="ZB-H1", title="1F1B with split backwards and W delayed by d microbatches: 1F1B's memory",
    legal="B >= S", bubble_ratio=formulas.bubble_ratio_zb_h1,
    when="In place of 1F1B where the framework can split backwards and little tensor parallelism is exposed: as many "
    "activations, and a shorter bubble. Split backwards hide no collectives, and keep gradients between their halves.",
    source="qi2024",
)  # fmt: skip
def zb_h1(num_ranks, num_microbatches):
    """ZB-H1 (Qi et al., 2024, section 2.1): 1F1B's warm-up, with W delayed by d microbatches on rank d.

    Every rank's peak is then S microbatches, and weight gradients fill the time that 1F1B leaves idle at the end.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; stage s is on rank s.
    num_microbatches : int
        Microbatches per iteration, B; at least S.

    Returns
    -------
    Schedule
        A table of S rows with 3 B operations each.

    Raises
    ------
    ScheduleError
        If B < S.

    Examples
    --------
    >>> for row in zb_h1(2, 2).table():
    ...     print(*row)
    0F0 0F1 . 0I0 0W0 0I1 0W1
    . 1F0 1I0 1F1 1I1 1W0 1W1
    """
    require_microbatches("zb-h1", num_microbatches, num_ranks, instead=", or use zb-1p")
    delay = np.arange(num_ranks)
    return on_own_ranks("zb-h1", num_microbatches, _KINDS, (-delay[::-1], 0 * delay, delay))


@schedule(
    "zb-h2", label="ZB-H2",
    title="twice ZB-H1's warm-up and delay: no bubble within a rank, twice the memory",
    legal="B >= 2S-1", bubble_ratio=formulas.bubble_ratio_zb_h2, published=formulas.bubble_ratio_span_zb_h2,
    when="Transfers are slow, and you have room for nearly twice 1F1B's activations.", source="qi2024",
)  # fmt: skip
def zb_h2(num_ranks, num_microbatches):
    """ZB-H2 (Qi et al., 2024, section 2.2): a warm-up of 2(S-1-d) forwards, with W delayed by 2d microbatches.

    Every rank's peak is 2S-1 microbatches. The source assumes at least that many and does not cover fewer, which are
    therefore refused; a shortened warm-up would no longer fill the ranks.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; stage s is on rank s.
    num_microbatches : int
        Microbatches per iteration, B; at least 2S-1.

    Returns
    -------
    Schedule
        A table of S rows with 3 B operations each.

    Raises
    ------
    ScheduleError
        If B < 2S-1.

    Examples
    --------
    >>> for row in zb_h2(2, 3).table():
    ...     print(*row)
    0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2 .
    . 1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2
    """
    require_microbatches("zb-h2", num_microbatches, 2 * num_ranks - 1, instead=", or use zb-2p")
    delay = 2 * np.arange(num_ranks)
    return on_own_ranks("zb-h2", num_microbatches, _KINDS, (-delay[::-1], 0 * delay, delay))
