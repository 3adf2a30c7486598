"""Closed forms of DualPipe and DualPipeV: pairs of a forward and a backward, F&B, that run as one operation."""

from fractions import Fraction


def makespan_dualpipe(num_ranks, num_microbatches, forward=1, input_grad=1, weight_grad=1, pair=None):
    """Makespan of DualPipe: the computing time of an innermost rank plus (S/2-1)(F&B + Bw - 3W).

    An innermost rank runs B-S-1 pairs, and S+1 forwards and S+1 backwards alone. That bubble is the published one
    (DeepSeek-AI, 2024, table 2), and is exact where F = I >= W. The general bubble, derived here with n = S/2, is
    (n-1)(F&B + Bw - 3W + max(0, W-I)) + max((n-1)(F-I), -F). Ranks nearer to the ends run fewer pairs, and so wait less
    where a pair is shorter than its two operations. Holds for even S, even B >= 2S, and a pair no shorter than either
    of its operations and no longer than both together; transfers and the gradient all-reduces take no time.

    Parameters
    ----------
    num_ranks : int
        Ranks, S.
    num_microbatches : int
        Microbatches of one iteration, B; both directions together.
    forward, input_grad, weight_grad : int, float or Fraction
        Times F, I and W of one microbatch on one stage; Bw = I + W.
    pair : int, float or Fraction, optional
        Time F&B of a pair; F + Bw if not given.

    Returns
    -------
    int, float or Fraction
        Time of one iteration, in the unit of `forward`.

    Examples
    --------
    >>> makespan_dualpipe(8, 20)
    66
    >>> makespan_dualpipe(8, 20, 2, 2, 1, pair=4)
    101
    """
    return _makespan(num_ranks // 2, num_microbatches // 2, forward, input_grad, weight_grad, pair)


def makespan_dualpipev(num_ranks, num_microbatches, forward=1, input_grad=1, weight_grad=1, pair=None):
    """Makespan of DualPipeV: that of DualPipe with twice as many ranks and microbatches, and stages half the size.

    For B >= 2S; transfers take no time. Exact for any F, I, W and F&B, like `makespan_dualpipe`.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; each holds two stages, of 1/(2S) of the model each.
    num_microbatches : int
        Microbatches of one iteration, B.
    forward, input_grad, weight_grad : int or Fraction
        Times F, I and W of one microbatch on 1/S of the model.
    pair : int or Fraction, optional
        Time F&B of a pair on 1/S of the model; F + I + W if not given.

    Returns
    -------
    Fraction
        Time of one iteration, in the unit of `forward`.

    Examples
    --------
    >>> makespan_dualpipev(4, 10)
    Fraction(33, 1)
    """
    return Fraction(_makespan(num_ranks, num_microbatches, forward, input_grad, weight_grad, pair)) / 2


def _makespan(depth, num_microbatches, forward, input_grad, weight_grad, pair):
    """Makespan with `depth` ranks from the end to the turn, in the unit of one rank's operations."""
    backward, ramp = input_grad + weight_grad, depth - 1
    pair = forward + backward if pair is None else pair
    computing = (2 * (num_microbatches - depth) - 1) * pair + (2 * depth + 1) * (forward + backward)
    published = ramp * (pair + backward - 3 * weight_grad)
    beyond = ramp * max(0, weight_grad - input_grad) + max(ramp * (forward - input_grad), -forward)
    return computing + published + beyond


def bubble_ratio_dualpipe(num_ranks, num_microbatches):
    """Idle share of the total time of DualPipe, (S-2)/(3B+S-2), at F = I = W and F&B = F + Bw.

    For even S and even B >= 2S; transfers and the gradient all-reduces take no time.

    Source: DeepSeek-AI, 2024, table 2; the ratio follows from its bubble.

    Parameters
    ----------
    num_ranks : int
        Ranks, S.
    num_microbatches : int
        Microbatches of one iteration, B; both directions together.

    Returns
    -------
    Fraction
        Idle time over the total time of all ranks.

    Examples
    --------
    >>> bubble_ratio_dualpipe(8, 20)
    Fraction(1, 11)
    """
    return Fraction(num_ranks - 2, 3 * num_microbatches + num_ranks - 2)


def bubble_ratio_dualpipev(num_ranks, num_microbatches):
    """Idle share of the total time of DualPipeV, (S-1)/(3B+S-1), at F = I = W and F&B = F + Bw.

    For B >= 2S; transfers take no time.

    Source: the authors' DualPipe repository, whose table counts 2S stages: (S-1)(F&B + Bw - 3W), in times of half a
    stage.

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
    >>> bubble_ratio_dualpipev(4, 10)
    Fraction(1, 11)
    """
    return Fraction(num_ranks - 1, 3 * num_microbatches + num_ranks - 1)


def peak_activations_dualpipe(num_ranks):
    """Peak activations of each rank of DualPipe: S+1, over both replicas.

    Source: DeepSeek-AI, 2024, table 2. A pair's forward takes its activations before its backward frees any.

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
    >>> peak_activations_dualpipe(4)
    [5, 5, 5, 5]
    """
    return [num_ranks + 1] * num_ranks


def peak_activations_dualpipev(num_ranks):
    """Peak activations of each rank of DualPipeV: S + 1/2, that is, those of 2S+1 half-size stages.

    Source: the authors' DualPipe repository. A pair's forward takes its activations before its backward frees any.

    Parameters
    ----------
    num_ranks : int
        Ranks, S.

    Returns
    -------
    list of Fraction, length S
        Microbatches on 1/S of the model.

    Examples
    --------
    >>> peak_activations_dualpipev(2)
    [Fraction(5, 2), Fraction(5, 2)]
    """
    return [num_ranks + Fraction(1, 2)] * num_ranks
