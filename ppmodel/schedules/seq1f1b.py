"""Seq1F1B: 1F1B, also interleaved, with each microbatch cut into slices of its sequence."""

import numpy as np

from ppmodel import formulas
from ppmodel.schedules.loops import looped
from ppmodel.schedules.registry import Option, require_legal, schedule

_SLICES = Option.count("slices", 4, "K", "pieces into which each sequence is cut", (2, 3, 4), least=2, tried=(2, 4, 8))
_CHUNKS = Option.count("chunks", 1, "V", "stages per rank", examples=(1,))


@schedule(
    "seq1f1b", label="Seq1F1B", title="1F1B on slices of the sequence",
    legal="B >= 1; with chunks, K divides S, and S divides K B", options=[_SLICES, _CHUNKS],
    bubble_ratio=formulas.bubble_ratio_seq1f1b, published=False,
    when="Sequences are long and microbatches few: bubble and activations are those of 1F1B with K times as many "
    "microbatches, as long as a slice still fills a GPU.",
    source="sun2024",
)  # fmt: skip
def seq1f1b(num_ranks, num_microbatches, slices=4, chunks=1):
    """Seq1F1B (Sun et al., arXiv:2406.03488), in the order of the authors' code, and Seq1F1B-I with several chunks.

    A forward computes one slice of a microbatch and keeps its keys and values for the slices behind it; backwards go
    through the slices of a microbatch from the last to the first. The warm-up on rank d is S-1-d + K-1 forwards of
    slices. With v chunks, groups of S slices pass through the chunks in turn, and it is 2(S-1-d) + (v-1)S + K-1. (The
    authors' code then runs all forwards first if B = S.)

    Parameters
    ----------
    num_ranks : int
        Ranks, S; the model is divided into v S stages.
    num_microbatches : int
        Microbatches per iteration, B.
    slices : int
        Pieces of each sequence, K; at least 2.
    chunks : int
        Stages per rank, v.

    Returns
    -------
    Schedule
        A table of S rows with 2 v K B operations each.

    Raises
    ------
    ScheduleError
        If the table is too large, or chunks are not legal at this size.

    Examples
    --------
    >>> for row in seq1f1b(2, 2, slices=2).table(backward=1):
    ...     print(*row)
    0F0.0 0F0.1 0F1.0 . 0B0.1 0F1.1 0B0.0 . 0B1.1 0B1.0
    . 1F0.0 1F0.1 1B0.1 1F1.0 1B0.0 1F1.1 1B1.1 1B1.0 .
    """
    fits = num_ranks % slices == 0 == num_microbatches * slices % num_ranks
    rule, remedy = "must be 1 for seq1f1b unless slices divide pp, and pp slices x microbatches", "pass chunks 1"
    require_legal(chunks == 1 or fits, "chunks", chunks, rule, remedy)
    warm_up = np.arange(num_ranks)[::-1] * (2 if chunks > 1 else 1) + (chunks - 1) * num_ranks + slices - 1
    first = -warm_up, 0 * warm_up
    return looped("seq1f1b", num_ranks, num_microbatches, chunks, num_ranks, first, slices=slices)
