"""Closed forms of Seq1F1B: those of 1F1B and interleaved 1F1B, with slices in place of microbatches. Derived here."""

from fractions import Fraction

from ppmodel.formulas.interleaved import bubble_ratio_interleaved


def bubble_ratio_seq1f1b(num_ranks, num_microbatches, slices=4, chunks=1):
    """Idle share of the total time of Seq1F1B, (S-1)/(vKB+S-1), for any F and Bw.

    Assumes slices of equal length in time, stages of equal length, and transfers that take no time. The makespan is
    (B + (S-1)/(vK))(F+Bw).

    Source: derived here; Sun et al., arXiv:2406.03488, give the order.

    Parameters
    ----------
    num_ranks : int
        Ranks, S.
    num_microbatches : int
        Microbatches of one iteration, B.
    slices, chunks : int
        Slices of each microbatch, K, and stages per rank, v.

    Returns
    -------
    Fraction
        Idle time over the total time of all ranks.

    Examples
    --------
    >>> bubble_ratio_seq1f1b(8, 8), bubble_ratio_seq1f1b(8, 8, chunks=2)
    (Fraction(7, 39), Fraction(7, 71))
    """
    return bubble_ratio_interleaved(num_ranks, num_microbatches * slices, chunks)


def peak_activations_seq1f1b(num_ranks, num_microbatches, slices=4, chunks=1):
    """Peak activations of each rank of Seq1F1B, min(S-1-d + K, KB)/K.

    With v chunks they are min(2(S-1-d) + (v-1)S + K, vKB)/(vK).
    Assumes slices of equal numbers of tokens; their keys and values are counted among their activations.

    Source: the warm-up of the authors' code; the peaks follow from it.

    Parameters
    ----------
    num_ranks, num_microbatches, slices, chunks : int
        As for `bubble_ratio_seq1f1b`.

    Returns
    -------
    list of Fraction, length S
        Microbatches on 1/S of the model, for d = 0 .. S-1.

    Examples
    --------
    >>> [str(peak) for peak in peak_activations_seq1f1b(4, 8)]
    ['7/4', '3/2', '5/4', '1']
    """
    ahead = [(2 if chunks > 1 else 1) * rank + (chunks - 1) * num_ranks for rank in reversed(range(num_ranks))]
    pieces = chunks * slices
    return [Fraction(min(number + slices, pieces * num_microbatches), pieces) for number in ahead]
