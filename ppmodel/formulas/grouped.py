"""Closed forms of interleaving in groups of microbatches with split backwards: GIS and GIS-H."""

from fractions import Fraction

SIZES = "full", "half"


def members(num_ranks, group="full"):
    """Microbatches of a group: ``full`` S, ``half`` S/2 rounded up, or as given, but at most S.

    >>> [members(5, group) for group in ("full", "half", 4, 8)]
    [5, 3, 4, 5]
    """
    return {"full": num_ranks, "half": (num_ranks + 1) // 2}.get(group) or min(group, num_ranks)


def makespan_grouped(num_ranks, num_microbatches, chunks=2, group="full", forward=1, input_grad=1, weight_grad=1):
    """Makespan of grouped interleaving, B(F+I+W) + ((S-1)(F+I) + (v-1)((S-N)F + max(0, SI - N(I+W))))/v.

    Exact for groups of N from S/2 to S, N dividing B and S max(F, I) <= N(F+I+W): a group is then back at a rank before
    the rank has run dry. A group of N < S waits in the warm-up and in the cool-down for its way round the ranks. At
    F = I = W the bubble is 2(S-1)/v + (S-N)(v-1)/v. Transfers take no time.

    Source: Wan et al., 2025, Table 1, for N = S; for others its text has the (S-N)(v-1), the rest is derived here.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; each holds v stages of 1/(vS) of the model.
    num_microbatches : int
        Microbatches of one iteration, B.
    chunks : int
        Stages per rank, v.
    group : {"full", "half"} or int
        Microbatches of a group, N.
    forward, input_grad, weight_grad : int or Fraction
        Times F, I and W of one microbatch on 1/S of the model.

    Returns
    -------
    Fraction
        Time of one iteration, in the unit of `forward`.

    Examples
    --------
    >>> makespan_grouped(8, 16), makespan_grouped(8, 16, group="half")
    (Fraction(55, 1), Fraction(57, 1))
    """
    size = members(num_ranks, group)
    warm_up = (num_ranks - size) * forward
    cool_down = max(0, num_ranks * input_grad - size * (input_grad + weight_grad))
    bubble = (num_ranks - 1) * (forward + input_grad) + (chunks - 1) * (warm_up + cool_down)
    return num_microbatches * (forward + input_grad + weight_grad) + Fraction(bubble) / chunks


def bubble_ratio_grouped(num_ranks, num_microbatches, chunks=2, group="full"):
    """Idle share of the total time of grouped interleaving at F = I = W; None unless groups of S/2 to S divide B.

    Source: Wan et al., 2025, Table 1; see `makespan_grouped`.

    Parameters
    ----------
    num_ranks, num_microbatches, chunks, group
        As for `makespan_grouped`.

    Returns
    -------
    Fraction or None
        Idle time over the total time of all ranks.

    Examples
    --------
    >>> bubble_ratio_grouped(8, 16), bubble_ratio_grouped(8, 16, group=1)
    (Fraction(7, 55), None)
    """
    size = members(num_ranks, group)
    if num_microbatches % size or 2 * size < num_ranks:
        return None
    return 1 - 3 * num_microbatches / makespan_grouped(num_ranks, num_microbatches, chunks, group)


def peak_activations_grouped(num_ranks, num_microbatches, chunks=2, group="full"):
    """Peak activations of each rank of grouped interleaving, min((v-1)N + S-d, vB)/v, for N from S/2 to S dividing B.

    Source: Wan et al., 2025, section 3.2, for the first rank.

    Parameters
    ----------
    num_ranks, num_microbatches, chunks, group
        As for `makespan_grouped`.

    Returns
    -------
    list of Fraction, length S
        Microbatches on 1/S of the model, for d = 0 .. S-1.

    Examples
    --------
    >>> [str(peak) for peak in peak_activations_grouped(4, 8, 2, "half")]
    ['3', '5/2', '2', '3/2']
    """
    before = (chunks - 1) * members(num_ranks, group)
    return [Fraction(min(before + ahead, chunks * num_microbatches), chunks) for ahead in range(num_ranks, 0, -1)]
