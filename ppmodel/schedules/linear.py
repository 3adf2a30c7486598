"""Schedules that keep stage s on device s: GPipe, 1F1B and 1F1B with a deeper warm-up."""

import numpy as np

from ppmodel import formulas
from ppmodel.ops import OpKind
from ppmodel.schedule import Schedule
from ppmodel.schedules.registry import schedule


@schedule(
    "gpipe",
    label="GPipe",
    title="all forwards, then all backwards",
    legal="B >= 1",
    bubble_ratio=formulas.bubble_ratio_gpipe,
)
def gpipe(num_stages, num_microbatches):
    """GPipe (Huang et al., 2019): F0 .. F(B-1), then B0 .. B(B-1) on every device.

    Parameters
    ----------
    num_stages : int
        Devices, S; stage s is on device s.
    num_microbatches : int
        Microbatches of one iteration, B.

    Returns
    -------
    Schedule
        A table of S rows and 2 B operations in each.

    Examples
    --------
    >>> print(*gpipe(2, 2).table(backward=1)[1])
    . 1F0 1F1 1B0 1B1 .
    """
    return _one_forward_one_backward("gpipe", num_stages, num_microbatches, np.full(num_stages, num_microbatches))


@schedule(
    "1f1b",
    label="1F1B",
    title="one forward, one backward after a warm-up of S-1-d forwards",
    legal="B >= 1",
    bubble_ratio=formulas.bubble_ratio_1f1b,
)
def one_f_one_b(num_stages, num_microbatches):
    """1F1B, synchronous (Narayanan et al., 2021, section 2.2): warm-up of S-1-d forwards on device d.

    Parameters
    ----------
    num_stages : int
        Devices, S; stage s is on device s.
    num_microbatches : int
        Microbatches of one iteration, B; they bound the warm-up.

    Returns
    -------
    Schedule
        A table of S rows and 2 B operations in each.

    Examples
    --------
    >>> print(*one_f_one_b(2, 2).table(backward=1)[0])
    0F0 0F1 . 0B0 . 0B1
    """
    warm_up = np.arange(num_stages)[::-1]
    return _one_forward_one_backward("1f1b", num_stages, num_microbatches, warm_up)


@schedule(
    "eager-1f1b",
    label="eager 1F1B",
    title="1F1B with a warm-up of 2(S-1-d) forwards",
    legal="B >= 1",
    bubble_ratio=formulas.bubble_ratio_1f1b,
)
def eager_one_f_one_b(num_stages, num_microbatches):
    """Eager 1F1B (Zhuang et al., arXiv:2211.05322): twice the warm-up hides the round trip of a transfer.

    The warm-up is 2(S-1-d) forwards on device d.

    Parameters
    ----------
    num_stages : int
        Devices, S; stage s is on device s.
    num_microbatches : int
        Microbatches of one iteration, B; they bound the warm-up.

    Returns
    -------
    Schedule
        A table of S rows and 2 B operations in each.

    Examples
    --------
    >>> eager_one_f_one_b(4, 8).table()[0][:7]
    ['0F0', '0F1', '0F2', '0F3', '0F4', '0F5', '0F6']
    """
    warm_up = 2 * np.arange(num_stages)[::-1]
    return _one_forward_one_backward("eager-1f1b", num_stages, num_microbatches, warm_up)


def _one_forward_one_backward(name, num_stages, num_microbatches, warm_up):
    """One stage a device, the microbatches in order."""
    kind, microbatch = one_forward_one_backward(num_microbatches, warm_up)
    stage = np.arange(num_stages)
    return Schedule.from_programs(name, stage, num_microbatches, kind, stage[:, None], microbatch)


def one_forward_one_backward(count, warm_up):
    """Forwards alone, then pairs of a forward and a backward, then backwards alone.

    Parameters
    ----------
    count : int
        Forwards of a device, and backwards.
    warm_up : sequence of int, length S
        Forwards that each device runs before its first pair; at most `count` of them.

    Returns
    -------
    kind, number : ndarray of int, shape (S, 2 count)
        Each device's program: the kind of each operation, and the how many-th of its kind it is.

    Examples
    --------
    >>> kind, number = one_forward_one_backward(3, [1])
    >>> " ".join(f"{OpKind(k).name}{n}" for k, n in zip(kind[0], number[0]))
    'F0 F1 B0 F2 B1 B2'
    """
    size = (len(warm_up), 2 * count)
    kind, number = np.full(size, OpKind.B, dtype=np.int32), np.empty(size, dtype=np.int32)
    numbers = np.arange(count, dtype=np.int32)
    for device, early in enumerate(np.minimum(warm_up, count)):
        paired = count - early
        warming, cooling = slice(early), slice(early + 2 * paired, None)
        forwards, backwards = slice(early, cooling.start, 2), slice(early + 1, cooling.start, 2)
        kind[device, warming] = kind[device, forwards] = OpKind.F
        number[device, warming] = numbers[:early]
        number[device, forwards] = numbers[early:]
        number[device, backwards] = numbers[:paired]
        number[device, cooling] = numbers[paired:]
    return kind, number
