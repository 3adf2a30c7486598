"""Closed forms of combined 1F1B: interleaved 1F1B whose cells pair a forward with a backward. Derived here."""

from fractions import Fraction

from ppmodel.formulas.interleaved import group_size, makespan_interleaved, peak_activations_interleaved


def makespan_combined_1f1b(num_ranks, num_microbatches, chunks=2, forward=1, backward=2, pair=None):
    """Makespan of combined 1F1B: (S-1 + w)(F+Bw)/v plus (vB - w) pairs of P/v, with w = (v-1)N + 1.

    The last rank runs w forwards and w backwards alone, and everything else in pairs; N is `group_size`. Holds for any
    S, B and v >= 2 if a pair is no shorter than either of its operations and no longer than both together; transfers
    take no time. With P = F + Bw it equals `makespan_interleaved`. With B < S, S-1 grows here too, as in
    `bubble_ratio_interleaved`.

    Source: derived here; Megatron-LM, whose order it is, publishes none.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; each holds v stages of 1/(vS) of the model.
    num_microbatches : int
        Microbatches of one iteration, B.
    chunks : int
        Stages per rank, v; at least 2.
    forward, backward : int or Fraction
        Times F and Bw of one microbatch on 1/S of the model.
    pair : int or Fraction, optional
        Time P of a pair on 1/S of the model; F + Bw if not given.

    Returns
    -------
    Fraction
        Time of one iteration, in the unit of `forward`.

    Examples
    --------
    >>> makespan_combined_1f1b(8, 16, 2), makespan_combined_1f1b(8, 16, 2, pair=2)
    (Fraction(117, 2), Fraction(47, 1))
    """
    alone = min((chunks - 1) * group_size(num_ranks, num_microbatches) + 1, chunks * num_microbatches)
    saved = Fraction(chunks * num_microbatches - alone, chunks) * (0 if pair is None else forward + backward - pair)
    return makespan_interleaved(num_ranks, num_microbatches, chunks, forward, backward) - saved


def peak_activations_combined_1f1b(num_ranks, num_microbatches, chunks=2):
    """Peak activations of each rank of combined 1F1B, min(2(S-1-d) + (v-1)N + 2, vB)/v.

    One chunk more than interleaved 1F1B, because one more forward runs ahead: a pair's forward takes its activations
    before its backward frees any.

    Source: Megatron-LM, for the warm-up; the peaks follow from it.

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
    >>> [str(peak) for peak in peak_activations_combined_1f1b(4, 8)]
    ['6', '5', '4', '3']
    """
    peaks = peak_activations_interleaved(num_ranks, num_microbatches, chunks)
    return [min(peak + Fraction(1, chunks), Fraction(num_microbatches)) for peak in peaks]
