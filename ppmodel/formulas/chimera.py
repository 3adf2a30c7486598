"""Closed forms of Chimera and its concatenations."""

from fractions import Fraction


def bubble_ratio_chimera_equal(num_ranks, num_microbatches):
    """Idle share of the total time of Chimera, (S-2)/(2B+S-2), if a backward costs as much as a forward.

    For even S and S dividing B; transfers and the all-reduce take no time.

    Source: Li and Hoefler, 2021, Table 2. Seamless concatenation follows from F = Bw.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S and B.

    Returns
    -------
    Fraction
        Idle time over the total time of all ranks.

    Examples
    --------
    >>> bubble_ratio_chimera_equal(8, 16)
    Fraction(3, 19)
    """
    return Fraction(num_ranks - 2, 2 * num_microbatches + num_ranks - 2)


def bubble_ratio_chimera(num_ranks, num_microbatches):
    """Idle share of the total time of Chimera with direct concatenation, if Bw = 2 F.

    Follows from `makespan_chimera` as 1 - 3B/T, under the same assumptions.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; even.
    num_microbatches : int
        Microbatches of one iteration, B; a multiple of S.

    Returns
    -------
    Fraction
        Idle time over the total time of all ranks.

    Examples
    --------
    >>> bubble_ratio_chimera(8, 16)
    Fraction(3, 11)
    """
    return 1 - Fraction(3 * num_microbatches) / makespan_chimera(num_ranks, num_microbatches)


def bubble_ratio_chimera_doubling(num_ranks, num_microbatches):
    """Idle share of the total time with forward doubling, (S-2)/(3B/2+S-2), if Bw = 2 F.

    For even S, and B = S or 2S dividing B; transfers and the all-reduce take no time.

    Source: Li and Hoefler, 2021, section 3.5. For B > S it also holds for backward halving if B counts
    halves of microbatches.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S and B.

    Returns
    -------
    Fraction
        Idle time over the total time of all ranks.

    Examples
    --------
    >>> bubble_ratio_chimera_doubling(8, 16)
    Fraction(1, 5)
    """
    return Fraction(num_ranks - 2) / (Fraction(3 * num_microbatches, 2) + num_ranks - 2)


def makespan_chimera(num_ranks, num_microbatches):
    """Makespan in forward-times of Chimera, 3B + (S-2)(B/S + 1), with direct concatenation and Bw = 2 F.

    For even S and S dividing B; at B = S it is 3B + 2(S-2), as in Li and Hoefler, 2021. The seams are
    derived here, and agree with the bubbles that the authors draw between their units. Transfers and the
    all-reduce take no time.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S and B.

    Returns
    -------
    Fraction
        Time of one iteration, in units of the forward of one microbatch on one stage.

    Examples
    --------
    >>> makespan_chimera(8, 8), makespan_chimera(8, 16), makespan_chimera(16, 16)
    (Fraction(36, 1), Fraction(66, 1), Fraction(76, 1))
    """
    return 3 * num_microbatches + (num_ranks - 2) * (Fraction(num_microbatches, num_ranks) + 1)


def makespan_chimera_doubling(num_ranks, num_microbatches):
    """Makespan in forward-times of Chimera with forward doubling, 3B + 2(S-2), if Bw = 2 F.

    For even S, and B = S or 2S dividing B. Transfers and the all-reduce take no time.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S and B.

    Returns
    -------
    int
        Time of one iteration, in units of the forward of one microbatch on one stage.

    Examples
    --------
    >>> makespan_chimera_doubling(8, 16)
    60
    """
    return 3 * num_microbatches + 2 * (num_ranks - 2)


def makespan_chimera_halving(num_ranks, num_microbatches):
    """Makespan in forward-times of Chimera with backward halving, 3B + (S-2), if Bw = 2 F.

    For even S and S dividing B > S (at B = S nothing is halved). The slots are half-backwards, each as long as a
    forward, so the ramp costs half of what it costs with forward doubling. Transfers and the all-reduce take no time.

    Parameters
    ----------
    num_ranks : int
        Ranks, S.
    num_microbatches : int
        Microbatches of one iteration, B; counted whole, not in halves.

    Returns
    -------
    int
        Time of one iteration, in units of the forward of one microbatch on one stage.

    Examples
    --------
    >>> makespan_chimera_halving(8, 16)
    54
    """
    return 3 * num_microbatches + num_ranks - 2


def makespan_chimera_merged(num_ranks, num_microbatches):
    """Makespan in forward-times of Chimera merged from two opposite 1F1B orders, 3B + 2S - 5, if Bw = 2 F.

    For even S and S dividing B > S; at S = 2 it is 3B, without a bubble. Transfers and the all-reduce take no time.

    Source: counted here in the tables of S = 2 to 16; unpublished.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S and B.

    Returns
    -------
    int
        Time of one iteration, in units of the forward of one microbatch on one stage.

    Examples
    --------
    >>> makespan_chimera_merged(8, 16), makespan_chimera_merged(8, 256)
    (59, 779)
    """
    return 3 * num_microbatches + max(0, 2 * num_ranks - 5)


def peak_activations_chimera(num_ranks):
    """Peak activations of each rank of Chimera: S/2 + 1 at the ends, S in the middle.

    For even S, direct concatenation and any B that S divides; the stages are of equal size.

    Source: Li and Hoefler, 2021, Table 2 (its range is [S/2 + 1, S] microbatches).

    Parameters
    ----------
    num_ranks : int
        Ranks, S.

    Returns
    -------
    list of int, length S
        Microbatches on 1/S of the model, rank by rank.

    Examples
    --------
    >>> peak_activations_chimera(8)
    [5, 6, 7, 8, 8, 7, 6, 5]
    """
    half = [num_ranks // 2 + 1 + rank for rank in range(num_ranks // 2)]
    return half + half[::-1]
