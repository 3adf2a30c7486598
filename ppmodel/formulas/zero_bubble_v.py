"""Closed forms of ZB-V, V-Half and V-Min: two stages per rank, the backward split into I and W.

The papers count bubbles over the longest span of a rank, from its first operation to its last; the total time, used
here, also contains the late start of the last rank or the early end of the first.
"""

from fractions import Fraction


def makespan_zb_v(num_ranks, num_microbatches, forward=1, input_grad=1, weight_grad=1):
    """Makespan of ZB-V, B(F+I+W) + (S-1) max(I, 2(I-W))/2.

    For B >= 2S-1, F <= I and W <= I; at F = I = W = 1 fewer microbatches leave max(S-1, 4(S-1) - 2(B-1)) chunk-times in
    place of S-1, a chunk being half a stage. At F = I = W no rank has a bubble within its span: the last rank begins
    S-1 chunks late, which the total counts. Transfers take no time. Derived here.

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
    >>> makespan_zb_v(4, 8), makespan_zb_v(4, 4)
    (Fraction(51, 2), Fraction(15, 1))
    """
    ramp, computing = num_ranks - 1, num_microbatches * (forward + input_grad + weight_grad)
    chunks = ramp * max(input_grad, 2 * (input_grad - weight_grad))
    if forward == input_grad == weight_grad:
        chunks = max(ramp, 4 * ramp - 2 * (num_microbatches - 1)) * forward
    return computing + Fraction(chunks) / 2


def bubble_ratio_zb_v(num_ranks, num_microbatches):
    """Idle share of the total time of ZB-V, (S-1)/(6B+S-1), at F = I = W and B >= 2S-1.

    Over a rank's span it is zero (Qi et al., 2024, section 6). Over the total it is derived here from `makespan_zb_v`,
    which also covers fewer microbatches. Transfers take no time.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; each holds two stages.
    num_microbatches : int
        Microbatches of one iteration, B.

    Returns
    -------
    Fraction
        Idle time over the total time of all ranks.

    Examples
    --------
    >>> bubble_ratio_zb_v(4, 8)
    Fraction(1, 17)
    """
    return 1 - 3 * num_microbatches / makespan_zb_v(num_ranks, num_microbatches)


def bubble_ratio_span_zb_v(num_ranks, num_microbatches):
    """Idle share of the longest span of a rank of ZB-V if F = I = W: 0 for B >= 2S-1.

    Over the total time it is `bubble_ratio_zb_v`. Assumes transfers that take no time.

    Source: Qi et al., 2024, section 6.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; each holds two stages.
    num_microbatches : int
        Microbatches of one iteration, B.

    Returns
    -------
    Fraction or None
        Idle time over the longest time from a rank's first operation to its last; None for fewer microbatches.

    Examples
    --------
    >>> bubble_ratio_span_zb_v(4, 8)
    Fraction(0, 1)
    """
    return Fraction(0) if num_microbatches >= 2 * num_ranks - 1 else None


def peak_activations_zb_v(num_ranks):
    """Peak activations of each rank of ZB-V: S, like 1F1B's first rank, if B >= 2S-1.

    Source: Qi et al., 2024, section 6. The activations stay until the weight gradient.

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
    >>> peak_activations_zb_v(4)
    [4, 4, 4, 4]
    """
    return [num_ranks] * num_ranks


def makespan_v_half(num_ranks, num_microbatches):
    """Makespan of V-Half in forward-times at F = I = W: 3B + (3S-7)/2 where S is even, 3B + (3S-4)/2 where it is odd.

    For B >= S; with one or two ranks it is 3B + (S-1)/2. Transfers take no time. The paper gives only the order of the
    bubble, about S/(2B) of the time; the exact numbers are those of the authors' generator, and of our table. Even S do
    better because their block delays the backward by three slots, which the first and the last microbatches need not
    wait for.

    At other times each further microbatch takes max(F + I + W, 2F + W/2, 2I + W/2), if S >= 2: only its computing time
    where W + 2I >= 2F and W + 2F >= 2I, the authors' condition; the other terms are measured here.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; each holds two stages.
    num_microbatches : int
        Microbatches of one iteration, B.

    Returns
    -------
    Fraction
        Time of one iteration, in units of the forward of one microbatch on 1/S of the model.

    Examples
    --------
    >>> makespan_v_half(8, 16), makespan_v_half(7, 16)
    (Fraction(113, 2), Fraction(113, 2))
    """
    chunks = max(num_ranks - 1, 3 * num_ranks - (7 if num_ranks % 2 == 0 else 4))
    return 3 * num_microbatches + Fraction(chunks, 2)


def bubble_ratio_v_half(num_ranks, num_microbatches):
    """Idle share of the total time of V-Half at F = I = W.

    (3S-7)/(6B+3S-7) where S is even and (3S-4)/(6B+3S-4) where it is odd; (S-1)/(6B+S-1) with one or two ranks. Derived
    here from `makespan_v_half`, under the same assumptions.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; each holds two stages.
    num_microbatches : int
        Microbatches of one iteration, B.

    Returns
    -------
    Fraction or None
        Idle time over the total time of all ranks; None for fewer microbatches than ranks.

    Examples
    --------
    >>> bubble_ratio_v_half(8, 16), bubble_ratio_v_half(7, 16)
    (Fraction(17, 113), Fraction(17, 113))
    """
    ratio = 1 - 3 * num_microbatches / makespan_v_half(num_ranks, num_microbatches)
    return ratio if num_microbatches >= num_ranks else None


def peak_activations_v_half(num_ranks):
    """Peak activations of each rank of V-Half: (S+2)/2, rounded down.

    Source: Qi et al., "Pipeline Parallelism with Controllable Memory" (arXiv:2405.15362), and the table that its
    authors publish with their generator. The activations stay until the weight gradient.

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
    >>> peak_activations_v_half(4)
    [3, 3, 3, 3]
    """
    return [(num_ranks + 2) // 2] * num_ranks


def makespan_v_min(num_ranks, num_microbatches):
    """Makespan of V-Min in forward-times at F = I = W: 3B + (4S-7)/2, or 3B + (4S-5)/2 where S mod 3 is 1.

    For B >= S; with one rank it is 3B, with two 3B + 1 from three microbatches on. Transfers take no time. The paper
    gives only the order of the bubble, about 2S/(3B) of the time. The authors' generator also takes 3B + (4S-5)/2 where
    S mod 3 is 2: our table is one forward-time shorter there (half of one for S = 2), within the same peak.

    At other times each further microbatch takes max(F + I + W, 3F, 3I), if S >= 3: the time of the authors' block when
    nothing but its order holds the ranks back; measured here.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; each holds two stages.
    num_microbatches : int
        Microbatches of one iteration, B.

    Returns
    -------
    Fraction
        Time of one iteration, in units of the forward of one microbatch on 1/S of the model.

    Examples
    --------
    >>> makespan_v_min(7, 16), makespan_v_min(8, 16), makespan_v_min(9, 16)
    (Fraction(119, 2), Fraction(121, 2), Fraction(125, 2))
    """
    chunks = {1: 0, 2: 2}.get(num_ranks, 4 * num_ranks - (5 if num_ranks % 3 == 1 else 7))
    return 3 * num_microbatches + Fraction(chunks, 2)


def bubble_ratio_v_min(num_ranks, num_microbatches):
    """Idle share of the total time of V-Min as its authors generate it, at F = I = W: (4S-5)/(6B+4S-5).

    Where 3 divides S it is (4S-7)/(6B+4S-7). The paper gives only the order; these are the lengths observed from the
    authors' generator. Our table is better where S mod 3 is 2, see `makespan_v_min`. Transfers take no time.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; each holds two stages.
    num_microbatches : int
        Microbatches of one iteration, B.

    Returns
    -------
    Fraction or None
        Idle time over the total time of all ranks; None for fewer microbatches than ranks.

    Examples
    --------
    >>> bubble_ratio_v_min(8, 16)
    Fraction(9, 41)
    """
    chunks = max(0, 4 * num_ranks - (7 if num_ranks % 3 == 0 else 5))
    return Fraction(chunks, 6 * num_microbatches + chunks) if num_microbatches >= num_ranks else None


def peak_activations_v_min(num_ranks):
    """Peak activations of each rank of V-Min: (S+4)/3, rounded down.

    Source: Qi et al., "Pipeline Parallelism with Controllable Memory" (arXiv:2405.15362), and the table that its
    authors publish with their generator. The activations stay until the weight gradient.

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
    >>> [peak_activations_v_min(stages)[0] for stages in (4, 8, 12, 16)]
    [2, 4, 5, 6]
    """
    return [(num_ranks + 4) // 3] * num_ranks
