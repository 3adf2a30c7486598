"""Several stages per rank, looping over the ranks: shared by schedules with chunks. Registers nothing."""

import numpy as np

from ppmodel.loops.rounds import loops
from ppmodel.ops import OpKind
from ppmodel.schedules.registry import Option, require_size
from ppmodel.schedules.rounds import in_rounds
from ppmodel.tables import Schedule

CHUNKS = Option.count("chunks", 2, "V", "stages per rank", tried=(2, 3, 4, 5, 6, 8, 10))
"""Stages per rank, for schedules that allow any number of them."""


def require_chunks(num_ranks, num_microbatches, chunks):
    """Refuse a number of chunks that makes a table too large.

    Raises
    ------
    ScheduleError
        Gives the rule.
    """
    require_size(num_ranks, num_microbatches, chunks, f" with {chunks} chunks", "pass fewer chunks")


def looped(name, num_ranks, num_microbatches, chunks, group, first, kinds=(OpKind.F, OpKind.B), slices=1, joined=False):
    """Build the schedule in which microbatches pass through the chunks of every rank in groups.

    Parameters
    ----------
    name, num_ranks, num_microbatches, chunks
        As for the schedule.
    group : int
        Microbatches in a group, or slices; the last may be incomplete.
    first, kinds
        As for `rounds.in_rounds`; each kind has as many operations as a rank has forwards.
    slices : int
        Slices of each microbatch. Backwards go through them in reverse order.
    joined : array of bool
        As for `Schedule.from_programs`.

    Returns
    -------
    Schedule

    Raises
    ------
    ScheduleError
        As from `require_chunks`.
    """
    require_chunks(num_ranks, num_microbatches * slices, chunks)
    units, placement = num_microbatches * slices, np.tile(np.arange(num_ranks, dtype=np.int32), chunks)
    kind, unit = in_rounds(chunks * units, kinds, first)
    stage = np.empty_like(kind)
    loops.run(kind.size, kind, units, chunks, group, unit, stage)
    if slices > 1:
        unit = np.where(kind == OpKind.F, unit, unit + slices - 1 - 2 * (unit % slices))
    return Schedule.from_programs(name, placement, num_microbatches, kind, stage, unit, 0, joined, slices=slices)
