"""Schedules with stage s on rank s: GPipe, 1F1B and 1F1B with a deeper warm-up."""

import numpy as np

from ppmodel import formulas
from ppmodel.ops import OpKind
from ppmodel.schedules.registry import schedule
from ppmodel.schedules.rounds import on_own_ranks


@schedule(
    "gpipe", label="GPipe", title="all forwards, then all backwards", legal="B >= 1",
    bubble_ratio=formulas.bubble_ratio_gpipe,
    when="As a baseline, or if the activations of all B microbatches fit: it is faster than 1F1B when transfers are "
    "slow, because nothing waits for a round trip.",
    source="huang2019",
)  # fmt: skip
def gpipe(num_ranks, num_microbatches):
    """GPipe (Huang et al., 2019): F0 .. F(B-1), then B0 .. B(B-1) on every rank.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; stage s is on rank s.
    num_microbatches : int
        Microbatches per iteration, B.

    Returns
    -------
    Schedule
        A table of S rows with 2 B operations each.

    Examples
    --------
    >>> print(*gpipe(2, 2).table(backward=1)[1])
    . 1F0 1F1 1B0 1B1 .
    """
    return _after_warm_up("gpipe", num_microbatches, np.full(num_ranks, num_microbatches))


@schedule(
    "1f1b", label="1F1B", title="one forward, one backward, after a warm-up of S-1-d forwards", legal="B >= 1",
    bubble_ratio=formulas.bubble_ratio_1f1b,
    when="The usual default: legal at any size, as fast as GPipe if transfers take no time, and never holding more "
    "than S microbatches.",
    source="narayanan2021",
)  # fmt: skip
def one_f_one_b(num_ranks, num_microbatches):
    """1F1B, synchronous (Narayanan et al., 2021, section 2.2): a warm-up of S-1-d forwards on rank d.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; stage s is on rank s.
    num_microbatches : int
        Microbatches per iteration, B; the warm-up has at most B forwards.

    Returns
    -------
    Schedule
        A table of S rows with 2 B operations each.

    Examples
    --------
    >>> print(*one_f_one_b(2, 2).table(backward=1)[0])
    0F0 0F1 . 0B0 . 0B1
    """
    return _after_warm_up("1f1b", num_microbatches, np.arange(num_ranks)[::-1])


@schedule(
    "eager-1f1b", label="eager 1F1B", title="1F1B with a warm-up of 2(S-1-d) forwards", legal="B >= 1",
    bubble_ratio=formulas.bubble_ratio_1f1b,
    when="Instead of 1F1B if transfers take up to half of F + Bw, and nearly twice its activations fit.",
    source="zhuang2022",
)  # fmt: skip
def eager_one_f_one_b(num_ranks, num_microbatches):
    """Eager 1F1B (Zhuang et al., arXiv:2211.05322): twice the warm-up, which hides the round trip of a transfer.

    The warm-up is 2(S-1-d) forwards on rank d.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; stage s is on rank s.
    num_microbatches : int
        Microbatches per iteration, B; the warm-up has at most B forwards.

    Returns
    -------
    Schedule
        A table of S rows with 2 B operations each.

    Examples
    --------
    >>> eager_one_f_one_b(4, 8).table()[0][:7]
    ['0F0', '0F1', '0F2', '0F3', '0F4', '0F5', '0F6']
    """
    return _after_warm_up("eager-1f1b", num_microbatches, 2 * np.arange(num_ranks)[::-1])


def _after_warm_up(name, num_microbatches, warm_up):
    """Only forwards, then forwards and backwards in turn, then only backwards."""
    return on_own_ranks(name, num_microbatches, (OpKind.F, OpKind.B), (-warm_up, 0 * warm_up))
