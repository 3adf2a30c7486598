"""DualPipe (DeepSeek-V3, 2024) and DualPipeV: a forward and a backward run as one, in pairs.

The two operations of a pair hide each other's communication. Where no pair is possible, the backward is split and its
weight gradients fill the gaps. DualPipe sends microbatches from both ends through two copies of the model; DualPipeV
is one half of it, folded: its rank d does what rank d in the first half of DualPipe does, with the stages on the way
up replacing those of the opposite direction. One order therefore serves both.
"""

import numpy as np

from ppmodel import formulas
from ppmodel.ops import NO_MICROBATCH, OpKind
from ppmodel.schedules.phases import in_a_v, programs
from ppmodel.schedules.registry import require_even_ranks, require_legal, require_microbatches, schedule
from ppmodel.tables import Schedule


@schedule(
    "dualpipe", label="DualPipe",
    title="two directions through two copies of the weights, with forwards and backwards in pairs",
    legal="S even, B even, B >= 2S", bubble_ratio=formulas.bubble_ratio_dualpipe,
    when="Pairs can hide collectives, with many microbatches and room for two copies of the weights.",
    source="deepseek2024",
)  # fmt: skip
def dualpipe(num_ranks, num_microbatches):
    """DualPipe (DeepSeek-AI, arXiv:2412.19437, section 3.2.1).

    Replica 0 runs from rank 0 to S-1 with the first half of the microbatches; replica 1 runs the other way with the
    second half. Both have every stage, so each stage's gradients are summed over the two after the rank has finished
    computing: first for the deeper of its two stages, because the other's last weight gradients come later.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; even.
    num_microbatches : int
        Microbatches in both directions together, B; even, at least 2S.

    Returns
    -------
    Schedule
        Two replicas; on each rank, B forwards, B backwards (whole or in halves) and two all-reduces.

    Raises
    ------
    ScheduleError
        If S or B is odd, or if B < 2S.

    Examples
    --------
    >>> for row in dualpipe(2, 4).rows():
    ...     print(*("&".join(map(str, cell)) for cell in row))
    0F0 1F2@1 0F1 1B2@1 1F3@1&0B0 1B3@1 0I1 0W1 1R@1 0R
    0F2@1 1F0 0F3@1 1B0 1F1&0B2@1 1B1 0I3@1 0W3@1 1R 0R@1
    """
    require_even_ranks("dualpipe", num_ranks)
    rule, enough = f"must be even and at least {2 * num_ranks} for dualpipe on {num_ranks} stages", 2 * num_ranks
    remedy = f"pass microbatches {max(enough, num_microbatches + 1)}"
    legal = num_microbatches % 2 == 0 and num_microbatches >= enough
    require_legal(legal, "microbatches", num_microbatches, rule, remedy)
    half, down = num_microbatches // 2, np.arange(num_ranks, dtype=np.int32)
    sums = ("R1 R0", 1)  # direction 1 ends at the deeper of a rank's stages
    orders = [[*_order(num_ranks // 2, half, rank), sums] for rank in range(num_ranks // 2)]
    kind, way, microbatch, joined, start = programs(orders + orders[::-1])
    rank = np.repeat(down, np.diff(start))
    replica = way ^ (rank >= num_ranks // 2)
    stage = rank + replica * (num_ranks - 1 - 2 * rank)  # replica 1 counts from the other end
    microbatch += half * replica
    microbatch[np.flatnonzero(kind == OpKind.R)] = NO_MICROBATCH
    placement = np.stack((down, down[::-1]))
    return Schedule("dualpipe", placement, num_microbatches, kind, stage, microbatch, replica, joined, start)


@schedule(
    "dualpipev", label="DualPipeV", title="DualPipe folded into a V: two stages per rank, one copy of the weights",
    legal="B >= 2S", bubble_ratio=formulas.bubble_ratio_dualpipev,
    when="As for DualPipe, but only one copy of the weights fits.", source="deepseek2024",
)  # fmt: skip
def dualpipev(num_ranks, num_microbatches):
    """DualPipeV (DeepSeek-AI's DualPipe repository, after Sea AI Lab's "cut in half"), as PyTorch orders it.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; there are 2S stages.
    num_microbatches : int
        Microbatches per iteration, B; at least 2S.

    Returns
    -------
    Schedule
        Two stages on each rank; 2 B forwards and 2 B backwards, whole or in halves.

    Raises
    ------
    ScheduleError
        If B < 2S.

    Examples
    --------
    >>> for row in dualpipev(2, 4).rows():
    ...     print(*("&".join(map(str, cell)) for cell in row))
    0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3&3B1 3F2&0B0 3B2 3F3&0B1 3B3 0I2 0W2 0I3 0W3
    1F0 2F0 1F1 2F1 1F2 2B0 2F2&1B0 1F3&2B1 2F3&1B1 2B2 1B2 2I3 1I3 2W3 1W3
    """
    require_microbatches("dualpipev", num_microbatches, 2 * num_ranks, f" on {num_ranks} stages")
    orders = [_order(num_ranks, num_microbatches, rank) for rank in range(num_ranks)]
    return in_a_v("dualpipev", num_microbatches, orders)


def _order(depth, num_microbatches, rank):
    """The phases of a rank; `rank` counts `depth` ranks from the end, and direction 0 leads away from it.

    The first pair of the innermost rank remains two cells, so that its forward reaches the neighbour earlier.
    """
    beyond, main = depth - 1 - rank, num_microbatches - 2 * depth + rank + 1
    apart = int(beyond == 0)
    return [
        ("F0", 2 * beyond), ("F0 F1", rank + 1), ("I1 W F1", beyond),  # warm-up
        ("F0 B1 F1&B0", apart), ("F0&B1 F1&B0", main - apart),  # steady
        ("B1 F1&B0", beyond), ("B1 B0", (rank + 1) // 2), ("B1 I0", (rank + 1) % 2), ("I1 I0", (rank + 1) // 2),
        ("W I0", beyond), ("W", rank + 1),  # cool-down
    ]  # fmt: skip
