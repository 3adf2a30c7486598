"""Closed forms of Hanayo."""

from fractions import Fraction


def bubble_ratio_hanayo(num_ranks, num_waves):
    """Idle share of the total time of Hanayo, approximately (2S-2)/(3SW+S-1), if Bw = 2 F and B = S.

    Transfers take no time.

    Source: Liu et al., 2023, section 3.4.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; each holds 2W stages of 1/(2WS) of the model.
    num_waves : int
        Waves, W.

    Returns
    -------
    Fraction
        Idle time over the total time of all ranks.

    Examples
    --------
    >>> bubble_ratio_hanayo(8, 2)
    Fraction(14, 55)
    """
    return Fraction(2 * num_ranks - 2, 3 * num_ranks * num_waves + num_ranks - 1)
