"""Closed forms of the schedules that give each rank several stages in a loop: interleaved 1F1B and looped BFS."""

from fractions import Fraction


def bubble_ratio_interleaved(num_ranks, num_microbatches, chunks=2):
    """Idle share of the total time of interleaved 1F1B and of looped BFS, (S-1)/(vB+S-1), for any F and Bw.

    Over the ideal time it is the published (S-1)/(vB). Nothing is published for fewer microbatches than ranks: there
    each of the v-1 turns of the loop waits for the S-B microbatches that are missing, so that S-1 becomes S-1 +
    (v-1)(S-B), derived here. Assumes stages of equal length and transfers that take no time.

    Source: Narayanan et al., 2021, section 2.2.2; Lamy-Poirier, 2023, arXiv:2211.05953, for looped BFS.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; each holds v stages of 1/(vS) of the model.
    num_microbatches : int
        Microbatches of one iteration, B.
    chunks : int
        Stages per rank, v.

    Returns
    -------
    Fraction
        Idle time over the total time of all ranks.

    Examples
    --------
    >>> bubble_ratio_interleaved(8, 16, 2), bubble_ratio_interleaved(8, 16, 1)
    (Fraction(7, 39), Fraction(7, 23))
    """
    return 1 - 3 * num_microbatches / makespan_interleaved(num_ranks, num_microbatches, chunks)


def makespan_interleaved(num_ranks, num_microbatches, chunks=2, forward=1, backward=2, comm=0):
    """Makespan of interleaved 1F1B with two chunks or more, B(F+Bw) + (S-1)(F+Bw)/v + (2vS-2)c.

    Without transfers it is exact for any B; where B < S, S-1 grows as in `bubble_ratio_interleaved`. With transfers
    that occupy no rank it holds for S dividing B and c <= min(F, Bw)/v: all transfers of one microbatch through the
    stages and back are exposed, and no others. Qi et al., 2024, count (2vS-S-2)c, which is S c less than Megatron's
    order takes. For one chunk, see `makespan_1f1b`.

    Source: Narayanan et al., 2021, section 2.2.2; the transfers are derived here.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; each holds v stages of 1/(vS) of the model.
    num_microbatches : int
        Microbatches of one iteration, B.
    chunks : int
        Stages per rank, v; at least 2.
    forward, backward : int, float or Fraction
        Times F and Bw of one microbatch on 1/S of the model, in one unit: forward-times by default.
    comm : int, float or Fraction
        Time c of one transfer, in the same unit.

    Returns
    -------
    Fraction or float
        Time of one iteration, in the unit of `forward`; exact where the times are.

    Examples
    --------
    >>> makespan_interleaved(8, 16, 2), makespan_interleaved(8, 16, 2, comm=Fraction(1, 2))
    (Fraction(117, 2), Fraction(147, 2))
    """
    bubble = num_ranks - 1 + (chunks - 1) * max(0, num_ranks - num_microbatches)
    hops = 2 * (chunks * num_ranks - 1) if num_ranks > 1 else 0
    return (num_microbatches + Fraction(bubble, chunks)) * (forward + backward) + hops * comm


def makespan_looped_bfs(num_ranks, num_microbatches, chunks=2, forward=1, backward=2, comm=0):
    """Makespan of looped BFS: v loops of forwards, v loops of backwards, and one trip through the ranks.

    A loop takes as long as a rank's work for it, B f, or a microbatch's trip round the ranks, S (f + c), whichever is
    longer, with f = F/v; backwards likewise. Without transfers and with B >= S this is B(F+Bw) + (S-1)(F+Bw)/v. Exact
    for any sizes where a transfer occupies nothing, and for c <= min(F, Bw)/v where it occupies its link. Derived here.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; each holds v stages of 1/(vS) of the model.
    num_microbatches : int
        Microbatches of one iteration, B.
    chunks : int
        Stages per rank, v.
    forward, backward : int, float or Fraction
        Times F and Bw of one microbatch on 1/S of the model, in one unit: forward-times by default.
    comm : int, float or Fraction
        Time c of one transfer, in the same unit.

    Returns
    -------
    Fraction or float
        Time of one iteration, in the unit of `forward`; exact where the times are.

    Examples
    --------
    >>> makespan_looped_bfs(8, 16, 2), makespan_looped_bfs(8, 4, 2)
    (Fraction(117, 2), Fraction(57, 2))
    """
    remote = comm if num_ranks > 1 else 0
    total = 0
    for each in (Fraction(1, chunks) * forward, Fraction(1, chunks) * backward):
        loop = max(num_microbatches * each, num_ranks * (each + remote))
        total += (chunks - 1) * loop + (num_ranks - 1) * (each + remote) + num_microbatches * each
    return total


def peak_activations_interleaved(num_ranks, num_microbatches, chunks=2):
    """Peak activations of each rank of interleaved 1F1B, min(2(S-1-d) + (v-1)N + 1, vB)/v, for v >= 2.

    In units of one microbatch on 1/S of the model, with groups of N = `group_size` microbatches; S + (S-1)/v on the
    first rank where S divides a large B. Assumes stages of equal size; the lengths of the operations do not matter. For
    one chunk, see `peak_activations_1f1b`.

    Source: Narayanan et al., 2021, section 2.2.2, for the order; the peaks follow from its warm-up.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; each holds v stages of 1/(vS) of the model.
    num_microbatches : int
        Microbatches of one iteration, B.
    chunks : int
        Stages per rank, v; at least 2.

    Returns
    -------
    list of Fraction, length S
        Microbatches on 1/S of the model, for d = 0 .. S-1.

    Examples
    --------
    >>> [str(peak) for peak in peak_activations_interleaved(4, 8, 2)]
    ['11/2', '9/2', '7/2', '5/2']
    """
    before = (chunks - 1) * group_size(num_ranks, num_microbatches)
    warm_up = [2 * (num_ranks - 1 - rank) + before for rank in range(num_ranks)]
    return [Fraction(min(ahead + 1, chunks * num_microbatches), chunks) for ahead in warm_up]


def group_size(num_ranks, num_microbatches):
    """The number N of microbatches that pass through one chunk before the next.

    This is the smallest N that Megatron-LM accepts as ``microbatch_group_size_per_vp_stage``: at least S, and such that
    the last group is complete or has at least S microbatches. If B < S, which Megatron refuses, all form one group, as
    in PyTorch; for every B that PyTorch accepts, its groups have this size.

    Parameters
    ----------
    num_ranks : int
        Ranks, S.
    num_microbatches : int
        Microbatches per iteration, B.

    Returns
    -------
    int

    Examples
    --------
    >>> [group_size(4, count) for count in (3, 8, 9, 10, 13)]
    [3, 4, 5, 5, 7]
    """
    for group in range(num_ranks, num_microbatches):
        last = num_microbatches % group
        if last == 0 or last >= num_ranks:
            return group
    return num_microbatches
