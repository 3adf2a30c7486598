"""Several stages per rank, looping over the ranks: shared by schedules with chunks. Registers nothing."""

import numpy as np

from ppmodel.kernels.rounds import loops
from ppmodel.ops import OpKind
from ppmodel.schedules.registry import require_size
from ppmodel.schedules.rounds import compiled_rounds, in_rounds
from ppmodel.tables import Schedule


def require_chunks(num_ranks, num_microbatches, chunks):
    """Refuse a number of chunks that makes a table too large.

    Raises
    ------
    ScheduleError
        Gives the rule.
    """
    require_size(num_ranks, num_microbatches, chunks, f" with {chunks} chunks", "pass fewer chunks")


def looped(name, num_ranks, num_microbatches, chunks, group, kinds, first):
    """Build the schedule in which microbatches pass through the chunks of every rank in groups.

    Parameters
    ----------
    name, num_ranks, num_microbatches, chunks
        As for the schedule.
    group : int
        Microbatches in a group; the last may be incomplete.
    kinds, first
        As for `rounds.in_rounds`; each kind has as many operations as a rank has forwards.

    Returns
    -------
    Schedule
    """
    count, placement = chunks * num_microbatches, np.tile(np.arange(num_ranks, dtype=np.int32), chunks)
    columns = compiled_rounds(count, kinds, first)
    if columns is not None:
        columns = loops.dispatcher(columns, num_microbatches, chunks, group)
        return Schedule.of_columns(name, placement, num_microbatches, columns)
    kind, number = in_rounds(count, kinds, first)
    members = np.split(np.arange(num_microbatches, dtype=np.int32), range(group, num_microbatches, group))
    chunk = np.concatenate([np.repeat(np.arange(chunks, dtype=np.int32), len(numbers)) for numbers in members])
    microbatch = np.concatenate([np.tile(numbers, chunks) for numbers in members])
    stage = (chunk * num_ranks).take(number)
    np.subtract((chunks - 1) * num_ranks, stage, out=stage, where=kind != OpKind.F)  # the last chunk goes back first
    stage += np.arange(num_ranks, dtype=np.int32)[:, None]
    return Schedule.from_programs(name, placement, num_microbatches, kind, stage, microbatch.take(number))
