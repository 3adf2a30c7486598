"""PyTorch's interleaved Zero Bubble: ZB-H1's order with several stages per rank."""

import numpy as np

from ppmodel.ops import OpKind
from ppmodel.schedules.loops import CHUNKS, looped
from ppmodel.schedules.registry import require_legal, schedule


@schedule(
    "interleaved-zb", label="interleaved ZB",
    title="interleaved 1F1B with half the warm-up and split backwards, W delayed by d",
    legal="B a multiple of its rounds, max(1, B // S)", options=[CHUNKS],
    when="Instead of interleaved 1F1B if the framework can split backwards and B is a multiple of its rounds.",
    source="qi2024",
)  # fmt: skip
def interleaved_zb(num_ranks, num_microbatches, chunks=2):
    """Interleaved Zero Bubble as in PyTorch's ``ScheduleInterleavedZeroBubble`` (torch 2.13).

    Stage s is on rank s mod S. The microbatches run in max(1, B // S) rounds of N; a round passes through a rank's
    first chunk, then through the next, and so on. The warm-up on rank d is S-1-d + (v-1)N forwards, and weight
    gradients are delayed by d operations. With one chunk this is ZB-H1.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; the model is divided into v S stages.
    num_microbatches : int
        Microbatches per iteration, B; a multiple of the number of rounds.
    chunks : int
        Stages per rank, v.

    Returns
    -------
    Schedule
        A table of S rows with 3 v B operations each.

    Raises
    ------
    ScheduleError
        If B is not a multiple of the number of rounds, or the table is too large.

    Examples
    --------
    >>> print(*interleaved_zb(2, 2).table()[0])
    0F0 0F1 2F0 2F1 . 2I0 2W0 2I1 2W1 0I0 0W0 0I1 0W1
    """
    rounds = max(1, num_microbatches // num_ranks)
    rule = f"must be a multiple of the number of rounds, B // S = {rounds}, for interleaved-zb"
    remedy = f"pass microbatches {num_microbatches - num_microbatches % rounds}, or use interleaved-1f1b"
    require_legal(num_microbatches % rounds == 0, "microbatches", num_microbatches, rule, remedy)
    group, delay = num_microbatches // rounds, np.arange(num_ranks)
    first = (-delay[::-1] - (chunks - 1) * group, 0 * delay, delay)
    return looped("interleaved-zb", num_ranks, num_microbatches, chunks, group, first, (OpKind.F, OpKind.I, OpKind.W))
