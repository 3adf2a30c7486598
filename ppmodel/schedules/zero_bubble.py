"""Zero Bubble's handcrafted schedules (Qi et al., 2024): the halves of a backward apart, the second one late."""

import numpy as np

from ppmodel import formulas
from ppmodel.ops import OpKind
from ppmodel.schedules.registry import require_legal, schedule
from ppmodel.schedules.rounds import on_own_ranks


@schedule(
    "zb-h1", label="ZB-H1", title="1F1B with split backwards, W delayed by d microbatches: memory of 1F1B",
    legal="B >= S", bubble_ratio=formulas.bubble_ratio_zb_h1,
    when="In place of 1F1B where the framework can split backwards and little tensor parallelism is exposed: as many "
    "activations, and a shorter bubble. Split backwards hide no collectives, and keep gradients between their halves.",
    source="qi2024",
)  # fmt: skip
def zb_h1(num_ranks, num_microbatches):
    """ZB-H1 (Qi et al., 2024, section 2.1): 1F1B's warm-up, and W delayed by d microbatches on rank d.

    Every rank then holds S microbatches at its peak, and the weight gradients fill what 1F1B leaves idle at the end.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; stage s is on rank s.
    num_microbatches : int
        Microbatches of one iteration, B; at least S.

    Returns
    -------
    Schedule
        A table of S rows and 3 B operations in each.

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
    _require_microbatches("zb-h1", num_microbatches, num_ranks, "zb-1p")
    delay = np.arange(num_ranks)
    return _with_late_weight_grads("zb-h1", num_microbatches, delay[::-1], delay)


@schedule(
    "zb-h2", label="ZB-H2",
    title="twice the warm-up of ZB-H1 and twice its delay: no bubble within a rank, twice the memory",
    legal="B >= 2S-1", bubble_ratio=formulas.bubble_ratio_zb_h2, published=formulas.bubble_ratio_span_zb_h2,
    when="Long transfers, and room for nearly twice the activations of 1F1B.", source="qi2024",
)  # fmt: skip
def zb_h2(num_ranks, num_microbatches):
    """ZB-H2 (Qi et al., 2024, section 2.2): a warm-up of 2(S-1-d) forwards, and W delayed by 2d microbatches.

    Every rank holds 2S-1 microbatches at its peak. The source assumes that there are as many, and says nothing of
    fewer, which are therefore refused; cut short, the warm-up no longer fills the ranks.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; stage s is on rank s.
    num_microbatches : int
        Microbatches of one iteration, B; at least 2S-1.

    Returns
    -------
    Schedule
        A table of S rows and 3 B operations in each.

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
    _require_microbatches("zb-h2", num_microbatches, 2 * num_ranks - 1, "zb-2p")
    delay = 2 * np.arange(num_ranks)
    return _with_late_weight_grads("zb-h2", num_microbatches, delay[::-1], delay)


def _require_microbatches(name, num_microbatches, least, other):
    """Refuse fewer microbatches; the other schedule has the same memory and takes any number."""
    rule = f"must be at least {least} for {name}"
    remedy = f"pass microbatches {least} or more, or take the schedule {other}"
    require_legal(num_microbatches >= least, "microbatches", num_microbatches, rule, remedy)


def _with_late_weight_grads(name, num_microbatches, warm_up, delay):
    """Forwards alone; then a forward, an input and a weight gradient in turn while there are any; then the late W."""
    return on_own_ranks(name, num_microbatches, (OpKind.F, OpKind.I, OpKind.W), (-warm_up, 0 * delay, delay))
