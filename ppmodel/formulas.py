"""Closed forms: bubble ratios, makespans and memory, each with its source and what it assumes.

Nothing here looks at a table; it is what tables and simulations are held against. Rational inputs give
exact results (`fractions.Fraction`). S devices, B microbatches, F and Bw the times of the forward and of
the whole backward of one stage and one microbatch, c the time of one transfer.
"""

from fractions import Fraction


def bubble_ratio_gpipe(num_stages, num_microbatches):
    """Idle share of the total time of GPipe, (S-1)/(B+S-1), for any F and Bw.

    Source: Huang et al., 2019, section 2.3; Narayanan et al., 2021, section 2.2 over the ideal time.

    >>> bubble_ratio_gpipe(8, 16)
    Fraction(7, 23)
    """
    return Fraction(num_stages - 1, num_microbatches + num_stages - 1)


def bubble_ratio_1f1b(num_stages, num_microbatches):
    """Idle share of the total time of 1F1B and eager 1F1B: as GPipe, for any F and Bw.

    Source: Narayanan et al., 2021, section 2.2.1.

    >>> bubble_ratio_1f1b(8, 8)
    Fraction(7, 15)
    """
    return bubble_ratio_gpipe(num_stages, num_microbatches)


def bubble_ratio_ideal(num_stages, num_microbatches):
    """Idle time of GPipe and 1F1B over the ideal time, (S-1)/B.

    Source: Narayanan et al., 2021, section 2.2.1.

    >>> bubble_ratio_ideal(8, 64)
    Fraction(7, 64)
    """
    return Fraction(num_stages - 1, num_microbatches)


def bubble_ratio_chimera_equal(num_stages, num_microbatches):
    """Idle share of the total time of Chimera, (S-2)/(2B+S-2), if a backward costs as much as a forward.

    Source: Li and Hoefler, 2021, Table 2. Seamless concatenation follows from F = Bw.

    >>> bubble_ratio_chimera_equal(8, 16)
    Fraction(3, 19)
    """
    return Fraction(num_stages - 2, 2 * num_microbatches + num_stages - 2)


def bubble_ratio_chimera(num_stages, num_microbatches):
    """Idle share of the total time of Chimera with direct concatenation, if Bw = 2 F.

    From `makespan_chimera`: 1 - 3B/T.

    >>> bubble_ratio_chimera(8, 16)
    Fraction(3, 11)
    """
    return 1 - Fraction(3 * num_microbatches) / makespan_chimera(num_stages, num_microbatches)


def bubble_ratio_chimera_doubling(num_stages, num_microbatches):
    """Idle share of the total time with forward doubling, (S-2)/(3B/2+S-2), if Bw = 2 F.

    Source: Li and Hoefler, 2021, section 3.5. For B > S it also holds for backward halving if B counts
    halves of microbatches.

    >>> bubble_ratio_chimera_doubling(8, 16)
    Fraction(1, 5)
    """
    return Fraction(num_stages - 2) / (Fraction(3 * num_microbatches, 2) + num_stages - 2)


def bubble_ratio_hanayo(num_stages, num_waves):
    """Idle share of the total time of Hanayo, (2S-2)/(3SW+S-1), approximately, if Bw = 2 F and B = S.

    Source: Liu et al., 2023, section 3.4.

    >>> bubble_ratio_hanayo(8, 2)
    Fraction(14, 55)
    """
    return Fraction(2 * num_stages - 2, 3 * num_stages * num_waves + num_stages - 1)


def makespan_gpipe(num_stages, num_microbatches, forward=1, backward=2, comm=0):
    """Makespan of GPipe where transfers are overlapped: (B+S-1)(F+Bw) + 2(S-1)c.

    Assumes c <= min(F, Bw): a link carries one message while the next is computed.

    >>> makespan_gpipe(8, 64, 1, 2)
    213
    """
    ramp = num_stages - 1
    return (num_microbatches + ramp) * (forward + backward) + 2 * ramp * comm


def makespan_1f1b(num_stages, num_microbatches, forward=1, backward=2, comm=0):
    """Makespan of 1F1B where a transfer takes c and occupies nothing.

    (B+S-1)(F+Bw) + 2c[(S-1) + (B-1) - ceil((B-1)/S)]: in the steady state a device sends a forward and
    waits for the backward that answers it, so that the transfers of a round trip are exposed in all but
    one of S rounds. Exact for any S, B, F, Bw and c; derived here, and in the literature for S dividing B.

    >>> makespan_1f1b(8, 64, 1, 2, 0)
    213
    """
    rounds = num_microbatches - 1
    exposed = (num_stages - 1) + rounds - -(-rounds // num_stages)
    return (num_microbatches + num_stages - 1) * (forward + backward) + 2 * comm * exposed


def makespan_chimera(num_stages, num_microbatches):
    """Makespan in forward-times of Chimera, 3B + (S-2)(B/S + 1), with direct concatenation and Bw = 2 F.

    For even S and S dividing B; at B = S it is 3B + 2(S-2), as in Li and Hoefler, 2021. The seams are
    derived here, and agree with the bubbles that the authors draw between their units.

    >>> makespan_chimera(8, 8), makespan_chimera(8, 16), makespan_chimera(16, 16)
    (Fraction(36, 1), Fraction(66, 1), Fraction(76, 1))
    """
    units = Fraction(num_microbatches, num_stages)
    return 3 * num_microbatches + (num_stages - 2) * (units + 1)


def makespan_chimera_doubling(num_stages, num_microbatches):
    """Makespan in forward-times of Chimera with forward doubling, 3B + 2(S-2), if Bw = 2 F.

    For even S, and B = S or 2S dividing B.

    >>> makespan_chimera_doubling(8, 16)
    60
    """
    return 3 * num_microbatches + 2 * (num_stages - 2)


def makespan_chimera_halving(num_stages, num_microbatches):
    """Makespan in forward-times of Chimera with backward halving, 3B + (S-2), if Bw = 2 F.

    For even S and S dividing B > S (at B = S nothing is halved). The slots are halves of a backward, each
    as long as a forward, so that the ramp costs half of forward doubling's.

    >>> makespan_chimera_halving(8, 16)
    54
    """
    return 3 * num_microbatches + num_stages - 2


def peak_activations_gpipe(num_stages, num_microbatches):
    """Peak activations of each device of GPipe in units of one microbatch on 1/S of the model: B.

    >>> peak_activations_gpipe(4, 8)
    [8, 8, 8, 8]
    """
    return [num_microbatches] * num_stages


def peak_activations_1f1b(num_stages, num_microbatches):
    """Peak activations of each device of 1F1B, in the same units: min(B, S-d).

    Narayanan et al., 2021, section 2.2.1 bounds it by S; the device's own value follows from its warm-up.

    >>> peak_activations_1f1b(4, 8)
    [4, 3, 2, 1]
    """
    return [min(num_microbatches, num_stages - device) for device in range(num_stages)]


def peak_activations_eager_1f1b(num_stages, num_microbatches):
    """Peak activations of each device of eager 1F1B, in the same units: min(B, 2(S-1-d) + 1).

    Source: Zhuang et al., arXiv:2211.05322.

    >>> peak_activations_eager_1f1b(4, 8)
    [7, 5, 3, 1]
    """
    return [min(num_microbatches, 2 * (num_stages - 1 - device) + 1) for device in range(num_stages)]


def peak_activations_chimera(num_stages):
    """Peak activations of each device of Chimera, in the same units: S/2 + 1 at the ends, S in the middle.

    Source: Li and Hoefler, 2021, Table 2 (its range is [S/2 + 1, S] microbatches).

    >>> peak_activations_chimera(8)
    [5, 6, 7, 8, 8, 7, 6, 5]
    """
    half = [num_stages // 2 + 1 + device for device in range(num_stages // 2)]
    return half + half[::-1]
