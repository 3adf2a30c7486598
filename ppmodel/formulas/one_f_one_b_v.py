"""Closed forms of 1F1B-V: two stages per rank in a V, backwards whole."""

from fractions import Fraction


def bubble_ratio_1f1b_v(num_ranks, num_microbatches):
    """Idle share of the total time of 1F1B-V at Bw = 2F, (5S-5)/(6B+5S-5) where S mod 3 is 1.

    Where it is 2, 5S-7 chunks' forwards take the place of 5S-5. For B >= S. Where 3 divides S, and for two ranks, the
    bubble is shorter than the first formula says, and there is no closed form. Transfers take no time. Observed from
    the authors' generator, whose order ours is.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; each holds two stages.
    num_microbatches : int
        Microbatches of one iteration, B.

    Returns
    -------
    Fraction or None
        Idle time over the total time of all ranks.

    Examples
    --------
    >>> bubble_ratio_1f1b_v(4, 8), bubble_ratio_1f1b_v(6, 8)
    (Fraction(5, 21), None)
    """
    chunks = 5 * num_ranks - {1: 5, 2: 7}.get(num_ranks % 3, 0)
    is_known = num_ranks % 3 and num_ranks != 2 and num_microbatches >= num_ranks
    return Fraction(chunks, 6 * num_microbatches + chunks) if is_known else None


def peak_activations_1f1b_v(num_ranks):
    """Peak activations of each rank of 1F1B-V: 2S/3, rounded down, and 1, which some ranks do not reach.

    Source: Qi et al., "Pipeline Parallelism with Controllable Memory" (arXiv:2405.15362), for the two thirds; the rest
    is observed from the authors' generator.

    Parameters
    ----------
    num_ranks : int
        Ranks, S.

    Returns
    -------
    list of int, length S
        Microbatches on 1/S of the model.

    Examples
    --------
    >>> [peak_activations_1f1b_v(ranks)[0] for ranks in (4, 8, 16)]
    [3, 6, 11]
    """
    return [2 * num_ranks // 3 + 1] * num_ranks
