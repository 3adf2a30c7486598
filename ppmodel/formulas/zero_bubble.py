"""Closed forms of the handcrafted Zero Bubble schedules, ZB-H1 and ZB-H2, and of PyTorch's interleaved form of ZB-H1.

I and W are the times of the two halves of a backward; Qi et al. write B for I.
"""

from fractions import Fraction


def bubble_ratio_zb_h1(num_ranks, num_microbatches):
    """Idle share of the total time of ZB-H1, (S-1)/(3B+S-1), if F = I = W.

    One third of 1F1B's bubble ratio, (S-1)/(3(B+S-1)), is widely quoted; it divides by 1F1B's total time and is
    smaller. Over the ideal time, (S-1)/(3B), it is exactly a third. Assumes transfers that take no time and B >= S.

    Source: Qi et al., 2024, section 2.3: an idle time of (S-1)(F+I-W).

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S and B, at least S.

    Returns
    -------
    Fraction
        Idle time over the total time of all ranks.

    Examples
    --------
    >>> bubble_ratio_zb_h1(8, 16)
    Fraction(7, 55)
    """
    return 1 - 3 * num_microbatches / Fraction(makespan_zb_h1(num_ranks, num_microbatches))


def bubble_ratio_zb_h2(num_ranks, num_microbatches):
    """Idle share of the total time of ZB-H2 if F = I = W: the same as ZB-H1's, (S-1)/(3B+S-1).

    The published 0 is over the longest span of a rank, from its first operation to its last, `span_zb_h2`. The ranks
    begin one after another, S-1 forwards from the first to the last, and that ramp counts in the total. Assumes
    transfers that take no time and B >= 2S-1. Derived here.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S and B, at least 2S-1.

    Returns
    -------
    Fraction
        Idle time over the total time of all ranks.

    Examples
    --------
    >>> bubble_ratio_zb_h2(8, 16), 1 - Fraction(3 * 16, span_zb_h2(8, 16))
    (Fraction(7, 55), Fraction(0, 1))
    """
    return 1 - 3 * num_microbatches / Fraction(makespan_zb_h2(num_ranks, num_microbatches))


def bubble_ratio_span_zb_h2(num_ranks, num_microbatches):
    """Idle share of the longest span of a rank of ZB-H2 if F = I = W: 0.

    Over the total time it is `bubble_ratio_zb_h2`. Assumes transfers that take no time and B >= 2S-1.

    Source: Qi et al., 2024, section 2.3: an idle time of (S-1)(F+I-2W).

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S and B, at least 2S-1.

    Returns
    -------
    Fraction
        Idle time over the longest time from a rank's first operation to its last.

    Examples
    --------
    >>> bubble_ratio_span_zb_h2(8, 16)
    Fraction(0, 1)
    """
    return 1 - Fraction(3 * num_microbatches, span_zb_h2(num_ranks, num_microbatches))


def makespan_zb_h1(num_ranks, num_microbatches, forward=1, input_grad=1, weight_grad=1, comm=0):
    """Makespan of ZB-H1: B(F+I+W) + (S-1) max(F+I-W+4c, I+2c, F+3c).

    Without transfers it is exact for any F, I and W; the published bubble, (S-1)(F+I-W), is the first term, which is
    the largest while W <= min(F, I). With transfers that occupy no rank it holds for c <= W/2 and B > S; at B = S it is
    2c less where W <= min(F, I). Longer transfers are exposed in every round, as in 1F1B.

    Source: Qi et al., 2024, section 2.3, for the first term; the others and the transfers are derived here.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S and B, at least S.
    forward, input_grad, weight_grad : int, float or Fraction
        Times F, I and W of one microbatch on one stage, in one unit.
    comm : int, float or Fraction
        Time c of one transfer, in the same unit.

    Returns
    -------
    int, float or Fraction
        Time of one iteration, in the unit of `forward`; exact where the times are.

    Examples
    --------
    >>> makespan_zb_h1(8, 24), makespan_zb_h1(8, 24, 2, 2, 1)
    (79, 141)
    """
    work = forward + input_grad + weight_grad
    exposed = (forward + input_grad - weight_grad + 4 * comm, input_grad + 2 * comm, forward + 3 * comm)
    return num_microbatches * work + (num_ranks - 1) * max(exposed) - _saved(num_ranks, num_microbatches) * comm


def _saved(num_ranks, num_microbatches):
    """Transfers that stay hidden when no microbatches follow those of the first round."""
    return 2 if num_ranks == num_microbatches > 1 else 0


def makespan_zb_h2(num_ranks, num_microbatches, forward=1, input_grad=1, weight_grad=1, comm=0):
    """Makespan of ZB-H2: B(F+I+W) + (S-1) max(F+I-2W+2c, I-F+2c, F+c).

    Exact for any F, I and W without transfers, and for c <= min(F, W)/2 with transfers that occupy no rank. The last
    term is the ramp: the last rank begins S-1 forwards after the first, and never waits again while the first two terms
    are no larger than F. The published bubble, (S-1)(F+I-2W), is that of the span; see `span_zb_h2`. Derived here.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S and B, at least 2S-1.
    forward, input_grad, weight_grad : int, float or Fraction
        Times F, I and W of one microbatch on one stage, in one unit.
    comm : int, float or Fraction
        Time c of one transfer, in the same unit.

    Returns
    -------
    int, float or Fraction
        Time of one iteration, in the unit of `forward`; exact where the times are.

    Examples
    --------
    >>> makespan_zb_h2(8, 24), makespan_zb_h2(8, 24, 2, 2, 1)
    (79, 134)
    """
    work = forward + input_grad + weight_grad
    exposed = (forward + input_grad - 2 * weight_grad + 2 * comm, input_grad - forward + 2 * comm, forward + comm)
    return num_microbatches * work + (num_ranks - 1) * max(exposed)


def span_zb_h1(num_ranks, num_microbatches, forward=1, input_grad=1, weight_grad=1, comm=0):
    """Longest span of a rank of ZB-H1, from its first operation to its last: B(F+I+W) + (S-1) max(F+I-W+4c, I+2c).

    Exact where `makespan_zb_h1` is. It is the denominator of the bubble rates of Qi et al., 2024.

    Source: Qi et al., 2024, section 2.3, for the first term; the second and the transfers are derived here.

    Parameters
    ----------
    num_ranks, num_microbatches, forward, input_grad, weight_grad, comm
        As in `makespan_zb_h1`.

    Returns
    -------
    int, float or Fraction
        Time, in the unit of `forward`; exact where the times are.

    Examples
    --------
    >>> span_zb_h1(4, 8, 2, 1, 2), makespan_zb_h1(4, 8, 2, 1, 2)
    (43, 46)
    """
    exposed = max(forward + input_grad - weight_grad + 4 * comm, input_grad + 2 * comm)
    computing = num_microbatches * (forward + input_grad + weight_grad)
    return computing + (num_ranks - 1) * exposed - _saved(num_ranks, num_microbatches) * comm


def span_zb_h2(num_ranks, num_microbatches, forward=1, input_grad=1, weight_grad=1, comm=0):
    """Longest span of a rank of ZB-H2, from first to last operation: B(F+I+W) + (S-1) max(F+I-2W+2c, I-F+2c, 0).

    Exact where `makespan_zb_h2` is. It is the denominator of the bubble rates of Qi et al., 2024.

    Source: Qi et al., 2024, section 2.3, for the first term; the second and the transfers are derived here.

    Parameters
    ----------
    num_ranks, num_microbatches, forward, input_grad, weight_grad, comm
        As in `makespan_zb_h2`.

    Returns
    -------
    int, float or Fraction
        Time, in the unit of `forward`; exact where the times are.

    Examples
    --------
    >>> span_zb_h2(8, 24), span_zb_h2(8, 24, 2, 2, 1)
    (72, 134)
    """
    exposed = (forward + input_grad - 2 * weight_grad + 2 * comm, input_grad - forward + 2 * comm, 0)
    return num_microbatches * (forward + input_grad + weight_grad) + (num_ranks - 1) * max(exposed)


def makespan_interleaved_zb(num_ranks, num_microbatches, chunks=2, forward=1, input_grad=1, weight_grad=1, comm=0):
    """Makespan of PyTorch's interleaved ZB: B(F+I+W) + (S-1) max(F+I-W, F, I)/v + (4(S-1) + (v-1)S)c.

    Without transfers it is exact for any F, I, W and B >= S. With transfers that occupy no rank it holds for W <=
    min(F, I), c <= W/(2v) and S dividing B; at B = S it is 2c less. Derived here: nothing is published.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; each holds v stages of 1/(vS) of the model.
    num_microbatches : int
        Microbatches of one iteration, B; at least S.
    chunks : int
        Stages per rank, v.
    forward, input_grad, weight_grad : int, float or Fraction
        Times F, I and W of one microbatch on 1/S of the model, in one unit.
    comm : int, float or Fraction
        Time c of one transfer, in the same unit.

    Returns
    -------
    Fraction or float
        Time of one iteration, in the unit of `forward`; exact where the times are.

    Examples
    --------
    >>> makespan_interleaved_zb(8, 24, 2)
    Fraction(151, 2)
    """
    computing = num_microbatches * (forward + input_grad + weight_grad)
    bubble = Fraction(num_ranks - 1, chunks) * max(forward + input_grad - weight_grad, forward, input_grad)
    exposed = 4 * (num_ranks - 1) + (chunks - 1) * num_ranks if num_ranks > 1 else 0
    return computing + bubble + (exposed - _saved(num_ranks, num_microbatches)) * comm


def peak_activations_zb_h1(num_ranks):
    """Peak activations of each rank of ZB-H1, in units of one microbatch on 1/S of the model: S.

    Activations stay until the weight gradient is computed. Assumes B >= S and stages of equal size.

    Source: Qi et al., 2024, section 2.1.

    Parameters
    ----------
    num_ranks : int
        S; each rank holds one stage.

    Returns
    -------
    list of int, length S
        Microbatches on 1/S of the model, rank by rank.

    Examples
    --------
    >>> peak_activations_zb_h1(4)
    [4, 4, 4, 4]
    """
    return [num_ranks] * num_ranks


def peak_activations_zb_h2(num_ranks):
    """Peak activations of each rank of ZB-H2, in units of one microbatch on 1/S of the model: 2S-1.

    Activations stay until the weight gradient is computed. Assumes B >= 2S-1 and stages of equal size.

    Source: Qi et al., 2024, section 2.2.

    Parameters
    ----------
    num_ranks : int
        S; each rank holds one stage.

    Returns
    -------
    list of int, length S
        Microbatches on 1/S of the model, rank by rank.

    Examples
    --------
    >>> peak_activations_zb_h2(4)
    [7, 7, 7, 7]
    """
    return [2 * num_ranks - 1] * num_ranks


def peak_activations_interleaved_zb(num_ranks, num_microbatches, chunks=2):
    """Peak activations of each rank of PyTorch's interleaved ZB, min((S + (v-1)N)/v, B), the same on all ranks.

    In units of one microbatch on 1/S of the model; N = B // max(1, B // S) microbatches pass through one chunk before
    the next chunk's turn, so N is S where S divides B. Assumes stages of equal size. Derived here.

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
    list of Fraction, length S
        Microbatches on 1/S of the model, rank by rank.

    Examples
    --------
    >>> [str(peak) for peak in peak_activations_interleaved_zb(4, 10, 2)]
    ['9/2', '9/2', '9/2', '9/2']
    """
    group = num_microbatches // max(1, num_microbatches // num_ranks)
    return [min(Fraction(num_ranks + (chunks - 1) * group, chunks), Fraction(num_microbatches))] * num_ranks
