"""STP (Qi et al., 2025): cells of two microbatches that hide the collectives of tensor parallelism.

A rank has two stages in a V, as in ZB-V. An operation on its own waits for its all-reduces; in a cell of two, one
computes while the other communicates. A cell joins a forward with the backward, or the input gradient, of an earlier
microbatch on the same stage (DualPipeV joins two stages). Where the pipeline waits for the input gradient, the backward
is split; its weight gradient runs later, paired with a forward of the warm-up or in the gaps of the cool-down.
"""

from ppmodel import formulas
from ppmodel.schedules.phases import in_a_v
from ppmodel.schedules.registry import Option, require_microbatches, schedule

WARM_UPS = ("full", "memory-saving")
_WARM_UP = Option.words("warm_up", WARM_UPS, "how far forwards run ahead", tried=WARM_UPS)


def _published(num_ranks, num_microbatches, warm_up="full"):
    """The authors publish no bubble for the memory-saving warm-up."""
    return formulas.bubble_ratio_stp(num_ranks, num_microbatches) if warm_up == "full" else None


@schedule(
    "stp", label="STP", title="two stages per rank in a V, all-reduces hidden by pairs on the same stage",
    legal="B >= 3S-1 (2S with the memory-saving warm-up)", options=[_WARM_UP],
    bubble_ratio=formulas.bubble_ratio_stp, published=_published,
    when="Tensor-parallel all-reduces are exposed, and you have at least 3S-1 microbatches.", source="qi2025",
)  # fmt: skip
def stp(num_ranks, num_microbatches, warm_up="full"):
    """STP (Qi et al., arXiv:2510.27257, section 4.2); the full order is that of the authors' code.

    Consecutive forwards on a stage in the warm-up are separate cells: the authors also run them one after the other,
    and only send and receive them in twos.

    Parameters
    ----------
    num_ranks : int
        Ranks, S; there are 2S stages.
    num_microbatches : int
        Microbatches per iteration, B; at least 3S-1, or 2S with the memory-saving warm-up.
    warm_up : {"full", "memory-saving"}
        ``full`` holds about 3S stages' activations and waits least. ``memory-saving`` (figures 11 and 12 of the paper,
        for which there is no code) runs S-1 fewer forwards ahead and instead runs the first backwards alone; its
        cool-down is ours, that of the full order with as many steps fewer.

    Returns
    -------
    Schedule
        Two stages on each rank; 2 B forwards and 2 B backwards, whole or in halves.

    Raises
    ------
    ScheduleError
        If there are fewer microbatches.

    Examples
    --------
    >>> for row in stp(2, 5).rows():
    ...     print(*("&".join(map(str, cell)) for cell in row))
    0F0 0F1 0F2 3F0 0F3 3F1&3I0 0F4&3W0 3F2&3B1 0B0 3F3&3I2 0B1 3F4&3I3 0B2 3B4 0B3 3W2 3W3 0B4
    1F0 2F0 1F1 2F1 1F2 1F3 2F2&2B0 1F4&1B0 2F3&2I1 1B1 2F4&2I2 1B2 2B3 1B3 2B4 1B4 2W1 2W2
    """
    saving = warm_up == "memory-saving"
    least, saved = 2 * num_ranks if saving else 3 * num_ranks - 1, num_ranks - 1 if saving else 0
    beside = "" if saving else f" ({2 * num_ranks} with the memory-saving warm-up)"
    require_microbatches("stp", num_microbatches, least, f" on {num_ranks} ranks{beside if num_ranks > 1 else ''}")
    orders = [_order(num_ranks, num_microbatches, rank, saved) for rank in range(num_ranks)]
    return in_a_v("stp", num_microbatches, orders)


def _order(num_ranks, num_microbatches, rank, saved):
    """The phases of a rank; `saved` fewer forwards run ahead of the steady state."""
    beyond, paired = num_ranks - 1 - rank, 2 * num_ranks - 2 - rank - saved
    ahead = [("I1 W F1", beyond), ("F0", 1)] if saved else [("F0", rank + 1), ("F1&I1 F0&W", beyond)]
    main = 2 * (num_microbatches - 3 * num_ranks + 1 + rank + saved) + 1  # the last `rank` of them split the backward
    whole, odd = divmod(main - rank, 2)
    owed = paired + rank  # weight gradients, of which two follow each backward of chunk 0 in the cool-down
    twice = min(beyond, owed // 2)
    once = min(beyond - twice, owed - 2 * twice)
    return [
        ("F0", 2 * beyond), ("F0 F1", rank + 1), *ahead,  # warm-up
        ("F1&B1 F0&B0", whole), ("F1&B1", odd), ("F1&I1", 1 - odd), ("F0&I0 F1&I1", rank // 2),  # steady
        ("B0 F1&I1", paired), ("B0 B1", rank + 1),
        ("B0 W W", twice), ("B0 W", once), ("B0", beyond + 1 - twice - once), ("W", owed - 2 * twice - once),
    ]  # fmt: skip
