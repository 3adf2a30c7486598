"""Chimera (Li and Hoefler, SC'21): two pipelines in opposite directions over the same ranks.

Each direction has its own copy of the model. A unit of work fills both: each pipeline injects half of
the unit's microbatches at its stage 0, one every two slots; each microbatch moves one rank per slot, turns
at the last stage and returns. Forward and backward take one slot each; the slots of the two pipelines never
collide if the number of ranks is even. This order is kept, whatever the operations cost.
"""

from fractions import Fraction

import numpy as np

from ppmodel import formulas
from ppmodel.loops.merged import merged
from ppmodel.ops import NO_MICROBATCH, OpKind
from ppmodel.schedules.registry import Option, require_even_ranks, require_legal, schedule
from ppmodel.tables import Schedule, by_keys

_MAX_SHARE = 1000
CONCATENATIONS = ("direct", "overlapping", "forward-doubling", "backward-halving", "merged")


_CONCAT = Option.words("concat", CONCATENATIONS, "how units are concatenated if B > S")
_SPLIT = Option(
    "split", lambda text: tuple(map(int, text.split(":"))), (1, 2), "A:B",
    f"must be two whole numbers from 1 to {_MAX_SHARE}, as A:B",
    "blocks in the front half of the pipeline to blocks in its back half",
    lambda split: isinstance(split, tuple | list) and len(split) == 2
    and all(type(share) is int and 1 <= share <= _MAX_SHARE for share in split), ((1, 1), (1, 2), (3, 2)),
)  # fmt: skip
_LEGAL = "S even, B a multiple of S (of 2S for forward-doubling, B > S)"


def _bubble_ratio(num_ranks, num_microbatches, concat="direct"):
    if concat == "direct" or num_ranks == num_microbatches:
        return formulas.bubble_ratio_chimera_equal(num_ranks, num_microbatches)
    if concat == "forward-doubling":
        return formulas.bubble_ratio_chimera_doubling(num_ranks, num_microbatches)
    if concat == "merged":
        return 1 - Fraction(3 * num_microbatches, formulas.makespan_chimera_merged(num_ranks, num_microbatches))
    return None


def _published(num_ranks, num_microbatches, concat="direct"):
    return None if concat == "merged" else _bubble_ratio(num_ranks, num_microbatches, concat)


@schedule(
    "chimera", label="Chimera", title="two pipelines in opposite directions, two copies of the weights", legal=_LEGAL,
    options=[_CONCAT], bubble_ratio=_bubble_ratio, published=_published,
    when="You have few microbatches (B near S), a fast network, and room for two copies of the weights.",
    source="li2021",
)  # fmt: skip
def chimera(num_ranks, num_microbatches, concat="direct"):
    """Chimera with one pair of pipelines.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S even, B a multiple of S.
    concat : {"direct", "overlapping", "forward-doubling", "backward-halving", "merged"}
        If B > S: repeat the unit's order (``direct``); start units 3S slots apart in the table with a two-slot
        backward (``overlapping``, ours: it matches a published number that ``direct`` misses); or run the forwards
        of two microbatches as one and their backwards in two waves, so that a forward takes as long as a backward
        (``forward-doubling``, section 3.5 of the paper). With ``backward-halving``, the two are halves of one
        microbatch, which needs no more memory than ``direct``. Or drop the units (``merged``, ours): each direction
        has 1F1B's order, and a free rank takes what is ready, backwards first. It beats 1F1B at every B.

    Returns
    -------
    Schedule
        Two replicas of every stage, with an all-reduce of the gradients of each.

    Raises
    ------
    ScheduleError
        If S is odd or B is not a whole number of units.

    Examples
    --------
    >>> print(*chimera(4, 4).table(backward=1)[0])
    0F0 0F1 . 3F2@1 3B2@1 3F3@1 3B3@1 0B0 3R@1 0B1 0R
    """
    return _chimera("chimera", num_ranks, num_microbatches, concat)


@schedule(
    "asymmetric-chimera", label="asymmetric Chimera",
    title="Chimera with different numbers of blocks in the front and back halves of the pipeline", legal=_LEGAL,
    options=[_SPLIT, _CONCAT],
    when="Only if you want to split blocks unevenly between the halves of a pipeline; the page on asymmetric Chimera "
    "measures what a split gains.",
    source="barley2026",
)  # fmt: skip
def asymmetric_chimera(num_ranks, num_microbatches, split=(1, 2), concat="direct"):
    """Chimera with the model's blocks split a : b between the front and back halves of the pipeline.

    Every rank still has the same share of the model: one stage from each half.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S even, B a multiple of S.
    split : tuple of int, (a, b)
    concat : str
        As in `chimera`.

    Returns
    -------
    Schedule
        As for `chimera`, with the stages' shares of the model.

    Raises
    ------
    ScheduleError
        As for `chimera`.

    Examples
    --------
    >>> asymmetric_chimera(4, 4).stage_shares.round(3).tolist()
    [0.667, 0.667, 1.333, 1.333]
    """
    shares = np.repeat(2 * np.array(split) / sum(split), num_ranks // 2)
    return _chimera("asymmetric-chimera", num_ranks, num_microbatches, concat, stage_shares=shares)


def _chimera(name, num_ranks, num_microbatches, concat, **more):
    require_even_ranks(name, num_ranks)
    how = concat if num_microbatches > num_ranks else "direct"  # a single unit is not concatenated
    waves = 2 if how == "forward-doubling" else 1
    unit = waves * num_ranks
    nearest = unit * max(1, round(num_microbatches / unit))
    rule = f"must be a multiple of {unit} for {name} ({concat}) on {num_ranks} stages"
    require_legal(num_microbatches % unit == 0, "microbatches", num_microbatches, rule, f"pass microbatches {nearest}")
    if how == "backward-halving":
        waves, more["microbatch_parts"] = 2, 2
    first = np.arange(num_ranks, dtype=np.int32)
    placement = np.stack((first, first[::-1]))
    if how == "merged":
        columns = _merged(placement, num_microbatches)
        return Schedule.from_programs(name, placement, num_microbatches, *columns, **more)
    # copies of a unit, one period apart; the reductions belong to the last unit
    # a unit, in slots of one forward each: `waves` microbatches run forward as one, and return in turn
    kind, replica, injected, wave, stage = np.ogrid[:2, :2, : num_ranks // 2, :waves, :num_ranks]
    microbatch = (replica * (num_ranks // 2) + injected) * waves + wave
    way = np.where(kind == OpKind.F, stage, (2 + wave) * num_ranks - 1 - stage)
    columns = np.broadcast_arrays(kind, stage, microbatch, replica, 2 * injected + way)
    unit, period = [column.ravel() for column in columns], (waves + 1) * num_ranks
    if how == "overlapping":
        unit_table = Schedule.from_slots(name, placement, num_ranks, *unit)
        slot, period = unit_table.slots(forward=1, backward=2)[0], 3 * num_ranks
        unit = [unit_table.kind, unit_table.stage, unit_table.microbatch, unit_table.replica, slot]
    last = np.empty(placement.shape, dtype=int)
    last[unit[3], unit[1]] = unit[4]  # of each replica and stage, in order of time
    # an all-reduce right after, or in the first free slot: operations of the other direction take every second one
    last += 0 if how == "overlapping" else 1 + (first >= num_ranks // 2 - 1)
    sums = int(OpKind.R), first, NO_MICROBATCH, [[0], [1]], last
    unit = [np.append(column, np.broadcast_to(of_sums, last.shape)) for column, of_sums in zip(unit, sums, strict=True)]
    num_units = num_microbatches * more.get("microbatch_parts", 1) // (waves * num_ranks)
    columns = _repeated(placement, *unit, num_units, period, earlier_first=how == "overlapping")
    return Schedule.from_programs(name, placement, num_microbatches, *columns, **more)


def _merged(placement, num_microbatches):
    """Two opposite 1F1B orders as `loops.merged` merges them; reductions come last, the later stage's first."""
    columns = np.empty((4, len(placement[0]), 2 * num_microbatches), np.int32)
    merged.run(columns.size // 4, len(placement[0]), num_microbatches // 2, *columns)
    stages = np.sort(placement, axis=0)[::-1].T
    sums = np.broadcast_arrays(int(OpKind.R), stages, NO_MICROBATCH, stages != placement[0][:, None])
    return [np.concatenate(pair, axis=1) for pair in zip(columns, sums, strict=True)]


def _repeated(placement, kind, stage, microbatch, replica, slot, num_units, period, earlier_first):
    """Each rank's program if a unit starts every `period` slots: kind, stage, microbatch, replica, joined.

    If two operations want the same slot, the earlier unit goes first, then the first pipeline.
    """
    rank = placement[replica, stage]
    begun, phase = np.divmod(slot, period)  # how many periods ago its unit began
    sums = kind == OpKind.R
    ties = (begun.max() - begun, replica) if earlier_first else (replica, begun.max() - begun)
    pattern = by_keys(rank, phase, *ties, sums).reshape(len(placement[0]), 1, -1)
    kind, stage, microbatch, replica, slot, begun, sums = (
        column.astype(np.int32)[pattern] for column in (kind, stage, microbatch, replica, slot, begun, sums)
    )
    joined = (np.diff(slot, prepend=-1) == 0) & (np.diff(replica, prepend=-1) == 0) & (sums == 0)

    unit = np.arange(num_units + begun.max(), dtype=np.int32)[:, None] - begun
    running = (unit >= (num_units - 1) * sums) & (unit < num_units)
    columns = kind, stage, microbatch + unit * (microbatch.max() + 1) * (1 - sums), replica, joined
    return [np.broadcast_to(column, unit.shape)[running].reshape(len(running), -1) for column in columns]
