"""Programs in rounds: the twin of `schedules.rounds.in_rounds`."""

import numpy as np

from ppmodel.kernels.jit import kernel


@kernel
def rounds(count, kinds, first):
    """Kind, number and rank of every operation, shape (3, S, len(kinds) count); see `schedules.rounds.in_rounds`."""
    num_kinds, num_ranks = first.shape
    columns = np.empty((3, num_ranks, num_kinds * count), np.int32)
    kind, number = columns[0], columns[1]
    for rank in range(num_ranks):
        columns[2, rank] = rank
        begins, place = first[:, rank], 0
        here, end = begins.min(), begins.max() + count
        while here < end:
            until = end  # no kind begins or ends before it
            for one in range(num_kinds):
                for edge in (begins[one], begins[one] + count):
                    if here < edge < until:
                        until = edge
            every = 0
            for one in range(num_kinds):
                every += begins[one] <= here < begins[one] + count
            turn = 0
            for one in range(num_kinds):
                if begins[one] <= here < begins[one] + count:
                    at = place + turn
                    for step in range(here - begins[one], until - begins[one]):
                        kind[rank, at], number[rank, at] = kinds[one], step
                        at += every
                    turn += 1
            place += every * (until - here)
            here = until
    return columns


@kernel
def loops(columns, num_microbatches, chunks, group):
    """Turn number and rank of `rounds` into microbatch and stage, for groups that pass through the chunks in turn."""
    num_ranks, forwards = columns.shape[1], chunks * num_microbatches
    chunk, microbatch = np.empty(forwards, np.int32), np.empty(forwards, np.int32)
    place = 0
    for first in range(0, num_microbatches, group):
        for one in range(chunks):
            for member in range(first, min(first + group, num_microbatches)):
                chunk[place], microbatch[place] = one, member
                place += 1
    for rank in range(num_ranks):
        for op in range(columns.shape[2]):
            number = columns[1, rank, op]
            own = chunk[number] if columns[0, rank, op] == 0 else chunks - 1 - chunk[number]
            columns[1, rank, op], columns[2, rank, op] = microbatch[number], own * num_ranks + rank
    return columns
