"""Programs in rounds: the twin of `schedules.rounds.in_rounds`."""

import numpy as np

from ppmodel.loops.compiled import loop


@loop
def rounds(count, kinds, first):
    """Kind, number and rank of every operation, shape (3, S, len(kinds) count); see `schedules.rounds.in_rounds`."""
    num_kinds, num_ranks = first.shape
    columns = np.empty((3, num_ranks, num_kinds * count), np.int32)
    kind, number = columns[0], columns[1]
    for rank in range(num_ranks):
        columns[2, rank] = rank
        place, here, end = 0, first[0, rank], first[0, rank] + count
        for turn in range(num_kinds):
            here, end = min(here, first[turn, rank]), max(end, first[turn, rank] + count)
        while here < end:
            until = end  # no kind begins or ends before it
            for k in range(num_kinds):
                for edge in (first[k, rank], first[k, rank] + count):
                    if here < edge < until:
                        until = edge
            every = 0
            for k in range(num_kinds):
                every += first[k, rank] <= here < first[k, rank] + count
            turn = 0
            for k in range(num_kinds):
                if first[k, rank] <= here < first[k, rank] + count:
                    at = place + turn
                    for step in range(here - first[k, rank], until - first[k, rank]):
                        kind[rank, at], number[rank, at] = kinds[k], step
                        at += every
                    turn += 1
            place += every * (until - here)
            here = until
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
