"""Combined 1F1B: interleaved 1F1B with each steady-state cell holding a forward and a backward.

Megatron-LM uses it to hide the all-to-all of expert parallelism: dispatch and combine of one microbatch overlap
attention and experts of another. The two must not depend on each other, so every rank runs one more forward ahead.
"""

import numpy as np

from ppmodel import formulas
from ppmodel.errors import ScheduleError
from ppmodel.formulas.interleaved import group_size
from ppmodel.schedules.loops import CHUNKS, looped
from ppmodel.schedules.registry import Option, schedule


@schedule(
    "combined-1f1b", label="combined 1F1B", title="interleaved 1F1B, with forwards and backwards in pairs",
    legal="B >= 1; groups of S if S divides B",
    options=[Option.count("chunks", 2, CHUNKS.form, CHUNKS.help, (2, 3, 4), tried=CHUNKS.tried)],
    bubble_ratio=formulas.bubble_ratio_interleaved, published=False,
    when="Collectives of experts or tensor parallelism take much of a layer; otherwise it is interleaved 1F1B that "
    "holds one more chunk.",
    source="shoeybi2019",
)  # fmt: skip
def combined_one_f_one_b(num_ranks, num_microbatches, chunks=2):
    """Combined 1F1B, the interleaved order of Megatron-LM with ``overlap_moe_expert_parallel_comm``.

    Placement and groups are those of interleaved 1F1B. The warm-up is one forward longer, 2(S-1-d) + (v-1)N + 1 on rank
    d; then the next forward and the next backward share a cell, and the remaining backwards run alone. Megatron-LM
    requires at least two chunks on several ranks, and at least S microbatches; with fewer, `group_size` decides.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; the model is divided into v S stages.
    num_microbatches : int
        Microbatches per iteration, B.
    chunks : int
        Stages per rank, v; at least 2 on several ranks.

    Returns
    -------
    Schedule
        A table of S rows with 2 v B operations each.

    Raises
    ------
    ScheduleError
        If the table is too large.

    Examples
    --------
    >>> for row in combined_one_f_one_b(2, 4).rows():
    ...     print(*("&".join(map(str, cell)) for cell in row))
    0F0 0F1 2F0 2F1 0F2 0F3&2B0 2F2&2B1 2F3&0B0 0B1 2B2 2B3 0B2 0B3
    1F0 1F1 3F0 3F1&3B0 1F2&3B1 1F3&1B0 3F2&1B1 3F3&3B2 3B3 1B2 1B3
    """
    rule = "must be at least 2 on several ranks"
    ScheduleError.require([("chunks", chunks, chunks > 1 or num_ranks == 1, rule, "write, for example, 2")])
    group = group_size(num_ranks, num_microbatches)
    warm_up = 2 * np.arange(num_ranks)[::-1] + (chunks - 1) * group + 1
    joined = np.zeros((num_ranks, 2 * chunks * num_microbatches), dtype=bool)
    for row, ahead in zip(joined, warm_up.tolist(), strict=True):
        row[ahead + 1 : len(row) - ahead : 2] = True  # the backward of each round with a forward
    first = -warm_up, 0 * warm_up
    return looped("combined-1f1b", num_ranks, num_microbatches, chunks, group, first, joined=joined)
