"""Several stages on each device in a loop over the devices: what schedules with chunks share. Registers nothing."""

import numpy as np

from ppmodel.ops import OpKind
from ppmodel.schedule import Schedule
from ppmodel.schedules.registry import require_size


def require_chunks(num_stages, num_microbatches, chunks):
    """Refuse a number of chunks that makes a table too large.

    Raises
    ------
    ScheduleError
        With the rule.
    """
    require_size(num_stages, num_microbatches, chunks, f" with {chunks} chunks", "pass fewer chunks")


def looped(name, num_stages, num_microbatches, chunks, group, kind, number):
    """The schedule in which microbatches go through the chunks of every device in groups.

    Parameters
    ----------
    name, num_stages, num_microbatches, chunks
        As of the schedule.
    group : int
        Microbatches of a group; the last may be short.
    kind, number : ndarray of int, shape (S, operations of a device)
        Each device's program: the kind of each operation, and the how many-th of its kind it is.

    Returns
    -------
    Schedule
    """
    chunk, microbatch = _groups(num_microbatches, chunks, group)
    stage = (chunk * num_stages).take(number)
    np.subtract((chunks - 1) * num_stages, stage, out=stage, where=kind != OpKind.F)  # the last chunk goes back first
    device = np.arange(num_stages, dtype=np.int32)
    stage += device[:, None]
    return Schedule.from_programs(name, np.tile(device, chunks), num_microbatches, kind, stage, microbatch.take(number))


def _groups(num_microbatches, chunks, group):
    """Chunk and microbatch of a device's forwards in order: group by group, in it chunk by chunk."""
    first = np.arange(0, num_microbatches, group)
    members = [np.arange(start, min(start + group, num_microbatches)) for start in first]
    chunk = np.concatenate([np.repeat(np.arange(chunks), len(each)) for each in members])
    return chunk.astype(np.int32), np.concatenate([np.tile(each, chunks) for each in members]).astype(np.int32)
