"""Interleaving in groups of any size, with split backwards (Wan et al., 2025): GIS, GIS-H and PipeOffload's order.

The smaller a group, the sooner its backwards begin, and the fewer activations wait for them.
"""

from math import gcd

import numpy as np

from ppmodel import formulas
from ppmodel.formulas.grouped import SIZES, members
from ppmodel.loops.rounds import grouped
from ppmodel.schedules.loops import CHUNKS, require_chunks
from ppmodel.schedules.options import Option, is_count
from ppmodel.schedules.registry import schedule
from ppmodel.tables import Schedule

_GROUP = Option(
    "group", lambda text: text if text in SIZES else int(text), "full", "N",
    "must be full (S microbatches), half (S/2, rounded up) or a whole number of at least 1",
    "microbatches that pass a chunk one after another, or full or half; with 1, chunks take turns, as in PipeOffload",
    lambda group: group in SIZES if isinstance(group, str) else is_count(group), (*SIZES, 1, 3), tried=SIZES,
)  # fmt: skip


@schedule(
    "grouped-interleaving", label="grouped interleaving",
    title="v stages per rank, microbatches in groups of S/2 to S, backward split", legal="B >= 1",
    options=[CHUNKS, _GROUP], bubble_ratio=formulas.bubble_ratio_grouped,
    when="Instead of interleaved 1F1B where activations are too large: a group of half the ranks holds half of them, "
    "and one of 1 an eighth, if the longest-lived chunks are offloaded.",
    source="wan2025",
)  # fmt: skip
def grouped_interleaving(num_ranks, num_microbatches, chunks=2, group="full"):
    """Generalised interleaving (Wan et al., arXiv:2503.01328, section 3), in the order of the authors' code.

    Stage s is on rank s mod S. Every three slots a rank runs a forward, an input gradient and its weight gradient, as
    far as there are any. A group passes through a rank's first chunk, then through the next, and so on; rank d starts
    its first backward S-1-d rounds after its last chunk's first forward. Groups of S are the paper's GIS, of S/2 its
    GIS-H. Smaller groups, down to 1, its PipeOffload, come back to the next chunk only once they have passed all ranks;
    others run in between.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; the model is divided into v S stages.
    num_microbatches : int
        Microbatches per iteration, B.
    chunks : int
        Stages per rank, v.
    group : {"full", "half"} or int
        Microbatches of a group; more than S are S.

    Returns
    -------
    Schedule
        A table of S rows with 3 v B operations each.

    Raises
    ------
    ScheduleError
        If the table is too large.

    Examples
    --------
    >>> print(*grouped_interleaving(2, 2).table()[0])
    0F0 0F1 2F0 2F1 . 2I0 2W0 . 2I1 2W1 0I0 0W0 0I1 0W1
    >>> print(*grouped_interleaving(2, 2, group="half").table()[0])
    0F0 . 2F0 0F1 . 2I0 2W0 2F1 0I0 0W0 . 2I1 2W1 0I1 0W1
    """
    require_chunks(num_ranks, num_microbatches, chunks)
    size, count = members(num_ranks, group), chunks * num_microbatches
    around = -(-members(num_ranks, "half") // size)  # groups that pass a rank before one is back for its next chunk
    apart = chunks // gcd(chunks, around)  # chunks after which one more group has to pass, since two would collide

    chunk, microbatch = np.divmod(np.arange(count), num_microbatches)
    turn = size * (around * chunk + chunk // apart + chunks * (microbatch // size)) + microbatch % size
    last_chunk = turn[-num_microbatches]
    order = np.argsort(turn)
    turn, chunk, microbatch = turn[order], chunk[order], microbatch[order]

    columns = np.empty((3, num_ranks, 3 * count), dtype=np.int32)
    grouped.run(columns[0].size, turn, chunk, microbatch, last_chunk, *columns)
    placement = np.arange(chunks * num_ranks) % num_ranks
    return Schedule.from_programs("grouped-interleaving", placement, num_microbatches, *columns)
