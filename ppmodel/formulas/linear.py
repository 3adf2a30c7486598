"""Closed forms of GPipe, 1F1B and eager 1F1B."""

from fractions import Fraction


def bubble_ratio_gpipe(num_ranks, num_microbatches):
    """Idle share of the total time of GPipe, (S-1)/(B+S-1), for any F and Bw.

    Assumes stages of equal length and transfers that take no time.

    Source: Huang et al., 2019, section 2.3; Narayanan et al., 2021, section 2.2, give it over the ideal time.

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
    >>> bubble_ratio_gpipe(8, 16)
    Fraction(7, 23)
    """
    return Fraction(num_ranks - 1, num_microbatches + num_ranks - 1)


def bubble_ratio_1f1b(num_ranks, num_microbatches):
    """Idle share of the total time of 1F1B and eager 1F1B: the same as for GPipe, for any F and Bw.

    Assumes stages of equal length and transfers that take no time.

    Source: Narayanan et al., 2021, section 2.2.1.

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
    >>> bubble_ratio_1f1b(8, 8)
    Fraction(7, 15)
    """
    return bubble_ratio_gpipe(num_ranks, num_microbatches)


def bubble_ratio_ideal(num_ranks, num_microbatches):
    """Idle time of GPipe and 1F1B over the ideal time, (S-1)/B.

    The ideal time is the computing time of one rank, B(F+Bw). Assumes stages of equal length and transfers
    that take no time; holds for any F and Bw.

    Source: Narayanan et al., 2021, section 2.2.1.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S and B.

    Returns
    -------
    Fraction
        Idle time over the computing time; can exceed 1.

    Examples
    --------
    >>> bubble_ratio_ideal(8, 64)
    Fraction(7, 64)
    """
    return Fraction(num_ranks - 1, num_microbatches)


def makespan_gpipe(num_ranks, num_microbatches, forward=1, backward=2, comm=0, p2p="overlapped"):
    """Makespan of GPipe: (B+S-1)(F+Bw), plus the exposed transfers.

    2(S-1) transfers are exposed where a transfer occupies no rank, 2(S-1) + 2(B-1) where it occupies one, and twice
    that where it occupies both: then every rank has to handle the transfers of each microbatch in turn. With two stages
    no rank both receives and sends in one direction, so `blocking` exposes 4 + 2(B-1). Under `rendezvous` a transfer
    holds two ranks at once, and 2(S-1) + 4(B-1) are exposed, or 2 + 2(B-1) with two stages. Under `overlapped` and
    `streams`, c <= min(F, Bw) is assumed: a link carries one message while the next is computed. Derived here.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S and B.
    forward, backward : int, float or Fraction
        Times F and Bw of one microbatch on one stage, in one unit: forward-times by default.
    comm : int, float or Fraction
        Time c of one transfer, in the same unit.
    p2p : str
        Communication semantics, as in `simulation.compile_graph`.

    Returns
    -------
    int, float or Fraction
        Time of one iteration, in the unit of `forward`; exact where the times are.

    Examples
    --------
    >>> makespan_gpipe(8, 64, 1, 2)
    213
    >>> makespan_gpipe(8, 64, 1, 2, 1, "blocking_send")
    353
    """
    ramp = num_ranks - 1
    exposed = 2 * ramp
    if (p2p == "rendezvous" or p2p.startswith("blocking")) and ramp:
        exposed = _blocked(num_ranks, num_microbatches, p2p, per_turn=2)
    return (num_microbatches + ramp) * (forward + backward) + exposed * comm


def _blocked(num_ranks, num_microbatches, p2p, per_turn):
    """Transfers that delay the slowest rank: those of the first microbatch, then some for each microbatch after it."""
    both = 1 if p2p in ("blocking_send", "blocking_recv") else 2
    through = both if num_ranks > 2 else 1  # a middle rank receives and sends; with two ranks, each does one of them
    first = 4 if p2p == "blocking" else 2
    return first * (num_ranks - 1) + per_turn * through * (num_microbatches - 1)


def makespan_1f1b(num_ranks, num_microbatches, forward=1, backward=2, comm=0, p2p="overlapped"):
    """Makespan of 1F1B: (B+S-1)(F+Bw), plus the exposed transfers.

    Where a transfer occupies no rank, 2[(S-1) + (B-1) - ceil((B-1)/S)] transfers are exposed: in the steady state a
    rank sends a forward and waits for the backward that answers it, so that both transfers of a round trip are exposed
    in all but one of S rounds. Where a transfer occupies one rank, one fewer than with GPipe is exposed; where it
    occupies both, two fewer; with two stages, 2 + (B-1) and 4 + 2(B-1). Under `rendezvous` a forward and a gradient
    pass one another, and 2(S-1) + 2(B-1) - 1 are exposed, plus the times by which c exceeds F and Bw; with two stages,
    2 + (B-1). Exact for any S, B, F, Bw and c, under `streams` for c <= min(F, Bw); derived here, though the literature
    has the first for S dividing B.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S and B.
    forward, backward : int, float or Fraction
        Times F and Bw of one microbatch on one stage, in one unit: forward-times by default.
    comm : int, float or Fraction
        Time c of one transfer, in the same unit.
    p2p : str
        Communication semantics, as in `simulation.compile_graph`.

    Returns
    -------
    int, float or Fraction
        Time of one iteration, in the unit of `forward`; exact where the times are.

    Examples
    --------
    >>> makespan_1f1b(8, 64, 1, 2, 1), makespan_1f1b(8, 64, 1, 2, 1, "blocking_send")
    (337, 352)
    """
    rounds, late = num_microbatches - 1, 0
    exposed = 2 * ((num_ranks - 1) + rounds - -(-rounds // num_ranks))
    if p2p.startswith("blocking") and num_ranks == 2:
        exposed = _blocked(num_ranks, num_microbatches, p2p, per_turn=2 if p2p == "blocking" else 1)
    elif p2p.startswith("blocking") and num_ranks > 2:
        turn = (2 if p2p == "blocking" else 1) * (rounds > 0)
        exposed = _blocked(num_ranks, num_microbatches, p2p, per_turn=2) - turn
    elif p2p == "rendezvous" and num_ranks == 2:
        exposed = 2 + rounds
    elif p2p == "rendezvous" and num_ranks > 2 and rounds:
        exposed = 2 * (num_ranks - 1) + 2 * rounds - 1
        late = max(0, comm - forward) + max(0, comm - backward)
    return (num_microbatches + num_ranks - 1) * (forward + backward) + comm * exposed + late


def makespan_eager_1f1b(num_ranks, num_microbatches, forward=1, backward=2, comm=0):
    """Makespan of eager 1F1B where a transfer occupies no rank: that of GPipe, (B+S-1)(F+Bw) + 2(S-1)c.

    Its warm-up of 2(S-1-d) forwards leaves two forwards between a forward and the backward that answers it, which hides
    a round trip while c <= (F+Bw)/2. Derived here.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S and B.
    forward, backward : int, float or Fraction
        Times F and Bw of one microbatch on one stage, in one unit: forward-times by default.
    comm : int, float or Fraction
        Time c of one transfer, in the same unit; at most (F+Bw)/2.

    Returns
    -------
    int, float or Fraction
        Time of one iteration, in the unit of `forward`; exact where the times are.

    Examples
    --------
    >>> makespan_eager_1f1b(8, 64, 1, 2, 1)
    227
    """
    return makespan_gpipe(num_ranks, num_microbatches, forward, backward, comm)


def peak_activations_gpipe(num_ranks, num_microbatches):
    """Peak activations of each rank of GPipe, in units of one microbatch on 1/S of the model: B.

    Assumes stages of equal size; the lengths of the operations do not matter.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S and B.

    Returns
    -------
    list of int, length S
        Microbatches on 1/S of the model, rank by rank.

    Examples
    --------
    >>> peak_activations_gpipe(4, 8)
    [8, 8, 8, 8]
    """
    return [num_microbatches] * num_ranks


def peak_activations_1f1b(num_ranks, num_microbatches):
    """Peak activations of each rank of 1F1B, in units of one microbatch on 1/S of the model: min(B, S-d).

    Narayanan et al., 2021, section 2.2.1, bound it by S; each rank's own value follows from its warm-up. Assumes stages
    of equal size; the lengths of the operations do not matter.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S and B.

    Returns
    -------
    list of int, length S
        Microbatches on 1/S of the model, for d = 0 .. S-1.

    Examples
    --------
    >>> peak_activations_1f1b(4, 8)
    [4, 3, 2, 1]
    """
    return [min(num_microbatches, num_ranks - rank) for rank in range(num_ranks)]


def peak_activations_eager_1f1b(num_ranks, num_microbatches):
    """Peak activations of each rank of eager 1F1B: min(B, 2(S-1-d) + 1), in microbatches on 1/S of the model.

    Assumes stages of equal size; the lengths of the operations do not matter.

    Source: Zhuang et al., arXiv:2211.05322.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S and B.

    Returns
    -------
    list of int, length S
        Microbatches on 1/S of the model, for d = 0 .. S-1.

    Examples
    --------
    >>> peak_activations_eager_1f1b(4, 8)
    [7, 5, 3, 1]
    """
    return [min(num_microbatches, 2 * (num_ranks - 1 - rank) + 1) for rank in range(num_ranks)]
