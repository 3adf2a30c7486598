"""Programs in rounds: the twin of `schedules.rounds.in_rounds`."""

import numpy as np

from ppmodel.loops.compiled import loop


@loop
def rounds(count, kinds, first):
    """Kind, number and rank of every operation, shape (3, S, len(kinds) count); see `schedules.rounds.in_rounds`."""
    num_kinds, num_ranks = first.shape
    columns = np.empty((3, num_ranks, num_kinds * count), np.int32)
    for rank in range(num_ranks):
        columns[2, rank], place = rank, 0
        for here in range(first[:, rank].min(), first[:, rank].max() + count):
            for k in range(num_kinds):
                number = here - first[k, rank]
                if 0 <= number < count:
                    columns[0, rank, place], columns[1, rank, place] = kinds[k], number
                    place += 1
    return columns


@loop
def loops(columns, num_microbatches, chunks, group):
    """Turn number and rank of `rounds` into microbatch and stage, for groups that pass through the chunks in turn."""
    num_ranks, forwards = columns.shape[1], chunks * num_microbatches
    chunk, microbatch = np.empty(forwards, np.int32), np.empty(forwards, np.int32)
    place = 0
    for first in range(0, num_microbatches, group):
        for c in range(chunks):
            for member in range(first, min(first + group, num_microbatches)):
                chunk[place], microbatch[place] = c, member
                place += 1
    for rank in range(num_ranks):
        for op in range(columns.shape[2]):
            number = columns[1, rank, op]
            c = chunk[number] if columns[0, rank, op] == 0 else chunks - 1 - chunk[number]
            columns[1, rank, op], columns[2, rank, op] = microbatch[number], c * num_ranks + rank
    return columns
