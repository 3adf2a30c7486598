"""Closed forms of STP, and its authors' comparison with interleaved 1F1B and ZB-V when tensor parallelism costs time.

As in the paper, times are those of one chunk, half a rank's share of the model: F, I, W, and A for the all-reduces of
one pass over it. A forward or an input gradient alone takes A longer; a whole backward hides its all-reduces under its
weight gradients, and a cell of two operations hides those of both.
"""

from fractions import Fraction


def bubble_ratio_stp(num_ranks, num_microbatches, warm_up="full"):
    """Idle share of the total time of STP at F = I = W: (S-1)/(6B+S-1); memory-saving 2(S-1)/(6B+2(S-1)).

    For B >= 3S-1 (2S with the memory-saving warm-up); all-reduces and transfers take no time, and a pair takes the sum
    of its parts.

    Source: Qi et al., 2025, table 1, from whose bubble the first follows; the second is derived here.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; each holds two stages.
    num_microbatches : int
        Microbatches of one iteration, B.
    warm_up : {"full", "memory-saving"}

    Returns
    -------
    Fraction
        Idle time over the total time of all ranks.

    Examples
    --------
    >>> bubble_ratio_stp(4, 12), bubble_ratio_stp(4, 12, "memory-saving")
    (Fraction(1, 25), Fraction(1, 13))
    """
    bubble = (num_ranks - 1) * (1 if warm_up == "full" else 2)
    return Fraction(bubble, 6 * num_microbatches + bubble)


def makespan_stp(num_ranks, num_microbatches, forward=1, input_grad=1, weight_grad=1):
    """Makespan of STP with the full warm-up: a rank's computing time plus S-1 times half of the longest of six times.

    The six are F, I, 2I-W, 3F-2W, 2F+2I-3W and 3F+I-3W. The published (S-1)(F+I-W)/2 is exact at F = I = W, and too
    short wherever F, I and W differ. Derived here, for B >= 3S-1 and W <= max(F, I); a pair takes the sum of its parts,
    and all-reduces and transfers take no time.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; each holds two stages, of 1/(2S) of the model each.
    num_microbatches : int
        Microbatches of one iteration, B.
    forward, input_grad, weight_grad : int or Fraction
        Times F, I and W of one microbatch on 1/S of the model.

    Returns
    -------
    Fraction
        Time of one iteration, in the unit of `forward`.

    Examples
    --------
    >>> makespan_stp(4, 12), makespan_stp(4, 12, 10, 12, 8)
    (Fraction(75, 2), Fraction(390, 1))
    """
    f, i, w = forward, input_grad, weight_grad
    longest = max(f, i, 2 * i - w, 3 * f - 2 * w, 2 * f + 2 * i - 3 * w, 3 * f + i - 3 * w)
    return num_microbatches * (f + i + w) + (num_ranks - 1) * Fraction(longest) / 2


def peak_activations_stp(num_ranks, warm_up="full", weight_grads_hold=True):
    """Peak activations of each rank of STP, (3S + max(1, d))/2; with the memory-saving warm-up S + max(2, d+1)/2.

    Activations that wait for their weight gradient count in full; if they do not count, every rank has (3S+1)/2, or
    S+1. The published peak is 3S chunks, 3S/2 here: it overlooks that a pair's forward takes its activations before its
    backward frees any. For B >= 3S-1 (2S with the memory-saving warm-up).

    Source: Qi et al., 2025, table 1, for the published peak; counted here.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; each holds two stages.
    warm_up : {"full", "memory-saving"}
    weight_grads_hold : bool
        Whether the input gradient frees nothing, or everything.

    Returns
    -------
    list of Fraction, length S
        Microbatches on 1/S of the model, for d = 0 .. S-1.

    Examples
    --------
    >>> [[str(peak) for peak in peak_activations_stp(4, warm_up)] for warm_up in ("full", "memory-saving")]
    [['13/2', '13/2', '7', '15/2'], ['5', '5', '11/2', '6']]
    """
    before, usual, late = (3 * num_ranks, 1, 0) if warm_up == "full" else (2 * num_ranks, 2, 1)
    more = [max(usual, rank + late) if weight_grads_hold else usual for rank in range(num_ranks)]
    return [Fraction(before + extra, 2) for extra in more]


def tensor_bubble_interleaved(num_microbatches, all_reduce=1):
    """Exposed all-reduces of interleaved 1F1B with two chunks, 2 B A on every rank: all its forwards run alone.

    Source: Qi et al., 2025, table 1.

    Parameters
    ----------
    num_microbatches : int
        Microbatches of one iteration, B.
    all_reduce : int, float or Fraction
        Time A of the all-reduces of one pass over a chunk.

    Returns
    -------
    int, float or Fraction
        Time, in the unit of `all_reduce`.

    Examples
    --------
    >>> tensor_bubble_interleaved(12)
    24
    """
    return 2 * num_microbatches * all_reduce


def tensor_bubble_zb_v(num_microbatches, all_reduce=1):
    """Exposed all-reduces of ZB-V, 4 B A on every rank: all its forwards and input gradients run alone.

    An implementation that runs a unit's weight gradient under the all-reduce of its input gradient exposes half of it.

    Source: Qi et al., 2025, table 1.

    Parameters
    ----------
    num_microbatches, all_reduce
        As in `tensor_bubble_interleaved`.

    Returns
    -------
    int, float or Fraction

    Examples
    --------
    >>> tensor_bubble_zb_v(12)
    48
    """
    return 4 * num_microbatches * all_reduce


def tensor_bubble_stp(num_ranks, all_reduce=1):
    """Exposed all-reduces of each rank of STP, (2S+1+d) A for any B: the forwards of the warm-up run alone.

    The published (2S+1) A is that of rank 0. Holds for the full warm-up and B >= 3S-1.

    Source: Qi et al., 2025, table 1; the values of the other ranks are derived here.

    Parameters
    ----------
    num_ranks : int
        Ranks, S.
    all_reduce : int, float or Fraction
        Time A of the all-reduces of one pass over a chunk.

    Returns
    -------
    list, length S
        For d = 0 .. S-1, in the unit of `all_reduce`.

    Examples
    --------
    >>> tensor_bubble_stp(4)
    [9, 10, 11, 12]
    """
    return [(2 * num_ranks + 1 + rank) * all_reduce for rank in range(num_ranks)]


def pipeline_bubble_interleaved(num_ranks, forward=1, input_grad=1, weight_grad=1, all_reduce=0):
    """Idle time of every rank of interleaved 1F1B with two chunks, (S-1)(F+A+I+W), for any times and S <= B.

    Source: Qi et al., 2025, table 1.

    Parameters
    ----------
    num_ranks : int
        Ranks, S.
    forward, input_grad, weight_grad, all_reduce : int, float or Fraction
        Times F, I, W and A of one chunk.

    Returns
    -------
    int, float or Fraction

    Examples
    --------
    >>> pipeline_bubble_interleaved(4, 10, 10, 10, 3)
    99
    """
    return (num_ranks - 1) * (forward + all_reduce + input_grad + weight_grad)


def pipeline_bubble_zb_v(num_ranks, forward=1, input_grad=1, weight_grad=1, all_reduce=0):
    """Idle time within the span of rank 0 of ZB-V, (S-1)(F+2A+I-2W), exact at F = I = W.

    Over the whole iteration every rank also waits (S-1)(F+A), because the ranks begin one after another. For B >= 2S-1.

    Source: Qi et al., 2025, table 1.

    Parameters
    ----------
    num_ranks, forward, input_grad, weight_grad, all_reduce
        As in `pipeline_bubble_interleaved`.

    Returns
    -------
    int, float or Fraction

    Examples
    --------
    >>> pipeline_bubble_zb_v(4, 10, 10, 10, 3)
    18
    """
    return (num_ranks - 1) * (forward + 2 * all_reduce + input_grad - 2 * weight_grad)


def pipeline_bubble_stp(num_ranks, forward=1, input_grad=1, weight_grad=1, all_reduce=0):
    """Idle time of the last rank of STP, (S-1)(F+A+I-W), exact at F = I = W with the full warm-up and B >= 3S-1.

    Under these conditions rank d waits (S-1-d) A longer. Where the three times differ, see `makespan_stp`.

    Source: Qi et al., 2025, table 1; the conditions under which it holds were found here.

    Parameters
    ----------
    num_ranks, forward, input_grad, weight_grad, all_reduce
        As in `pipeline_bubble_interleaved`.

    Returns
    -------
    int, float or Fraction

    Examples
    --------
    >>> pipeline_bubble_stp(4, 10, 10, 10, 3)
    39
    """
    return (num_ranks - 1) * (forward + all_reduce + input_grad - weight_grad)
