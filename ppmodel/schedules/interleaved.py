"""Several stages per rank, looping over the ranks: interleaved 1F1B and looped BFS."""

import numpy as np

from ppmodel import formulas
from ppmodel.formulas.interleaved import group_size
from ppmodel.ops import OpKind
from ppmodel.schedules.loops import CHUNKS, looped, require_chunks
from ppmodel.schedules.registry import schedule
from ppmodel.tables import Schedule


def _published(num_ranks, num_microbatches, chunks=2):
    """The papers assume at least as many microbatches as ranks; with one chunk, 1F1B's formula holds for any number."""
    served = chunks == 1 or num_microbatches >= num_ranks
    return formulas.bubble_ratio_interleaved(num_ranks, num_microbatches, chunks) if served else None


@schedule(
    "interleaved-1f1b", label="interleaved 1F1B", title="1F1B with v stages per rank and microbatches in groups",
    legal="B >= 1; groups of S if S divides B", options=[CHUNKS], bubble_ratio=formulas.bubble_ratio_interleaved,
    published=_published,
    when="You have many layers per rank, few microbatches, and a network that can carry v times the messages.",
    source="narayanan2021",
)  # fmt: skip
def interleaved_one_f_one_b(num_ranks, num_microbatches, chunks=2):
    """Interleaved 1F1B (Narayanan et al., 2021, section 2.2.2), with groups of microbatches as in Megatron-LM.

    Stage s is on rank s mod S. A group of N microbatches passes through a rank's first chunk, then through the next,
    and so on; the backwards of a group start at the last chunk. The warm-up on rank d is 2(S-1-d) + (v-1)N forwards.
    N is `group_size`: S if that divides B. With one chunk this is 1F1B (PyTorch then runs eager 1F1B).

    Parameters
    ----------
    num_ranks : int
        Ranks, S; the model is divided into v S stages.
    num_microbatches : int
        Microbatches per iteration, B.
    chunks : int
        Stages per rank, v.

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
    >>> print(*interleaved_one_f_one_b(2, 2).table(backward=1)[0])
    0F0 0F1 2F0 2F1 . 2B0 . 2B1 0B0 0B1
    """
    group = group_size(num_ranks, num_microbatches)
    warm_up = np.arange(num_ranks)[::-1] * (2 if chunks > 1 else 1) + (chunks - 1) * group
    return looped("interleaved-1f1b", num_ranks, num_microbatches, chunks, group, (-warm_up, 0 * warm_up))


@schedule(
    "looped-bfs", label="looped BFS", title="v stages per rank; all microbatches pass one chunk before the next",
    legal="B >= 1", options=[CHUNKS], bubble_ratio=formulas.bubble_ratio_interleaved, published=_published,
    when="Instead of interleaved 1F1B if all B microbatches fit in memory; each stage then runs all its microbatches "
    "in a row.",
    source="lamypoirier2023",
)  # fmt: skip
def looped_bfs(num_ranks, num_microbatches, chunks=2):
    """Looped breadth-first pipeline (Lamy-Poirier, 2023, arXiv:2211.05953), in PyTorch's order.

    Stage s is on rank s mod S. All forwards of the first chunk come first, then those of the second, and so on; then
    the backwards, last chunk first and, within each, last microbatch first. With one chunk this is GPipe with its
    backwards in reverse order.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; the model is divided into v S stages.
    num_microbatches : int
        Microbatches per iteration, B.
    chunks : int
        Stages per rank, v.

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
    >>> print(*looped_bfs(2, 2).table(backward=1)[0])
    0F0 0F1 2F0 2F1 . . 2B1 2B0 0B1 0B0
    """
    require_chunks(num_ranks, num_microbatches, chunks)
    forwards = np.arange(chunks * num_microbatches)
    chunk, microbatch = np.divmod(np.concatenate((forwards, forwards[::-1])), num_microbatches)
    kind = np.repeat([OpKind.F, OpKind.B], len(forwards))
    placement, rank = np.arange(chunks * num_ranks) % num_ranks, np.arange(num_ranks)[:, None]
    return Schedule.from_programs("looped-bfs", placement, num_microbatches, kind, chunk * num_ranks + rank, microbatch)
