"""Vocabulary parallelism: 1F1B whose output layer is divided among all ranks, with passes S and T of their own."""

import numpy as np

from ppmodel.schedules.phases import in_a_v
from ppmodel.schedules.registry import Option, schedule

_BARRIERS = Option(
    "barriers", int, 1, "1|2", "must be 1 or 2", "how often all ranks wait between the last stage's F and its B",
    lambda value: value in (1, 2), (1, 2),
)  # fmt: skip
_RATIO = Option(
    "ratio", float, 2.0, "X", "must be a number from 1 to 100", "B over F, by which S and T are placed",
    lambda value: 1 <= value <= 100, (1.0, 1.9, 2.0, 2.2),
)  # fmt: skip


@schedule(
    "vocab-1f1b", label="vocab 1F1B", title="1F1B with the output layer divided among the ranks", legal="B >= 1",
    options=[_BARRIERS, _RATIO], bubble_ratio=None, published=False,
    when="The vocabulary is large, so that the output layer would make the last stage longer than the others; one "
    "microbatch more than with 1F1B has to fit, or two with two barriers.",
    source="yeung2025vocab",
)  # fmt: skip
def vocab_1f1b(num_ranks, num_microbatches, barriers=1, ratio=2.0):
    """Vocabulary Parallelism on 1F1B (Yeung et al., arXiv:2411.05288), in the order of the authors' code.

    Each rank has a shard of the output layer. S computes its logits and their softmax, once the last stage's forward is
    there; T its gradients, once S has ended on all ranks. With one barrier (the paper's algorithm 2), S has computed
    the gradient of the layer's input, too, and the last stage's backward needs S of all ranks; with two (algorithm 1)
    it needs T. A rank runs S and T as far ahead of its backward as ranks are below it: B T S F, or B F T S where S
    would come too early. The last stage's T of one microbatch runs right before its S of the next. The input layer,
    which is divided as well, has no passes of its own: forwards and backwards of all ranks do their shares.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; stage s is on rank s.
    num_microbatches : int
        Microbatches per iteration, B.
    barriers : int
        1 or 2, of all ranks between the last stage's forward and its backward.
    ratio : float
        Time of a backward over that of a forward, which the authors measure, and place S by.

    Returns
    -------
    Schedule
        A table of S rows with 4 B operations each; rank d holds at most S - d + `barriers` microbatches.

    Examples
    --------
    >>> for row in vocab_1f1b(2, 3).table(backward=1):
    ...     print(*row)
    0F0 0F1 0S0 0F2 0T0 0S1 0B0 0T1 0S2 0B1 . . 0B2 0T2
    . 1F0 1S0 1F1 1B0 1T0 1S1 1F2 1B1 1T1 1S2 1B2 1T2 .
    """
    orders, offset, ahead, is_late = [], 0.0, 0, False  # of S against B, in forwards
    for below in range(num_ranks):  # from the last rank up
        if below:
            was_late, is_late = is_late, not is_late and offset - 1 < -ratio
            offset += ratio - 1 if was_late else is_late - 1
            ahead += not was_late
        warm_up, early = min(below + 1, num_microbatches), min(ahead, num_microbatches - 1)
        steady = max(0, num_microbatches - warm_up - barriers)
        left = num_microbatches - 1 - early - steady
        more = [("F0", int(warm_up + number < num_microbatches)) for number in range(barriers)]
        orders.append([
            ("F0", warm_up), ("S0", 1), more[0], *[("T0 S0", 1), more[-1]][: 2 * barriers - 2], ("T0 S0", early),
            ("B0 F0 T0 S0" if is_late else "B0 T0 S0 F0", steady),
            ("B0 T0 S0", left), ("B0", num_microbatches - steady - left), ("T0", 2 - barriers),
        ])  # fmt: skip
    return in_a_v("vocab-1f1b", num_microbatches, orders[::-1], np.arange(num_ranks))


@schedule(
    "interlaced", label="interlaced", title="1F1B with the output layer run by all ranks at once", legal="B >= 1",
    bubble_ratio=None, published=False,
    when="To compare with: the output layer is divided as by tensor parallelism, and every rank stops for it; half as "
    "many activations again as with 1F1B have to fit.",
    source="yeung2025vocab",
)  # fmt: skip
def interlaced(num_ranks, num_microbatches):
    """The interlaced pipeline (Lin et al., nnScaler, 2024), in the order of Yeung et al. (arXiv:2411.05288).

    All ranks run S and T of a microbatch together, one right after the other. The warm-up on rank d is 3S/2 - d
    forwards.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; stage s is on rank s.
    num_microbatches : int
        Microbatches per iteration, B.

    Returns
    -------
    Schedule
        A table of S rows with 4 B operations each.

    Examples
    --------
    >>> for row in interlaced(2, 3).table(backward=1):
    ...     print(*row)
    0F0 0F1 0F2 0S0 0T0 0S1 . 0T1 0B0 . 0S2 0T2 0B1 0B2
    . 1F0 1F1 1S0 1T0 1B0 1S1 1T1 1B1 1F2 1S2 1T2 1B2 .
    """
    orders = []
    for rank in range(num_ranks):
        warm_up, last = (min(count - rank, num_microbatches) for count in (3 * num_ranks // 2, num_ranks))
        early = max(0, warm_up - last - (num_ranks - 1 - rank) // 2)
        steady = "F0 B0 S0 T0" if rank % 2 == num_ranks % 2 else "B0 F0 S0 T0"
        orders.append([
            ("F0", warm_up), ("S0 T0", last), ("B0 S0 T0", early), (steady, num_microbatches - warm_up),
            ("B0 S0 T0", warm_up - last - early), ("B0", last),
        ])  # fmt: skip
    return in_a_v("interlaced", num_microbatches, orders, np.arange(num_ranks))
