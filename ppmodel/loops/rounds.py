"""Programs in rounds, in groups that pass through the chunks of a rank, and in phases."""

from ppmodel.loops.compiled import filled, loop
from ppmodel.ops import NO_MICROBATCH, OpKind

_F, _I, _W = int(OpKind.F), int(OpKind.I), int(OpKind.W)
OLDEST, NO_TURN = 10, 11
"""Turns of `phases`: of a ``W`` without a number, and of a reduction. Others, from 0 on, count microbatches."""


@loop(fills=("kind", "number"))
def rounds(count, kinds, first, kind, number):
    """Fill in kind and number of every operation, rank by rank; see `schedules.rounds.in_rounds`."""
    for rank in range(len(kind)):
        of_kind, numbers, place = kind[rank], number[rank], 0
        begin, end = first[0][rank], first[0][rank]
        for k in range(1, len(kinds)):
            begin, end = min(begin, first[k][rank]), max(end, first[k][rank])
        for here in range(begin, end + count):
            for k in range(len(kinds)):
                at = here - first[k][rank]
                if 0 <= at < count:
                    of_kind[place], numbers[place] = kinds[k], at
                    place += 1


@loop(fills=("number", "stage"))
def loops(kind, num_microbatches, chunks, group, number, stage):
    """Turn numbers of `rounds` into microbatches, and fill in stages, for groups that pass the chunks in turn."""
    chunk, microbatch = filled(0, chunks * num_microbatches), filled(0, chunks * num_microbatches)
    place = 0
    for first in range(0, num_microbatches, group):
        for c in range(chunks):
            for member in range(first, min(first + group, num_microbatches)):
                chunk[place], microbatch[place] = c, member
                place += 1
    for rank in range(len(kind)):
        of_kind, numbers, stages = kind[rank], number[rank], stage[rank]
        for op in range(len(of_kind)):
            at = numbers[op]
            c = chunk[at] if of_kind[op] == 0 else chunks - 1 - chunk[at]
            numbers[op], stages[op] = microbatch[at], c * len(kind) + rank


@loop(fills=("kind", "stage", "microbatch"))
def grouped(turn, chunk, number, last_chunk, kind, stage, microbatch):
    """Fill in every operation, rank by rank; see `schedules.grouped`."""
    num_ranks, chunks, count = len(kind), chunk[-1] + 1, len(turn)
    for rank in range(num_ranks):
        place, forwards, behind = 0, 0, last_chunk + num_ranks - 1 - rank
        for backwards in range(count):
            while forwards < count and turn[forwards] <= turn[backwards] + behind:
                kind[rank][place], stage[rank][place] = _F, chunk[forwards] * num_ranks + rank
                microbatch[rank][place] = number[forwards]
                forwards, place = forwards + 1, place + 1
            for half in (_I, _W):
                kind[rank][place], stage[rank][place] = half, (chunks - 1 - chunk[backwards]) * num_ranks + rank
                microbatch[rank][place] = number[backwards]
                place += 1


@loop(fills=("kind", "chunk", "microbatch", "joined"))
def phases(patterns, phase, first_phase, kind, chunk, microbatch, joined):
    """Fill in every operation, rank by rank; see `schedules.phases.programs`."""
    place = 0
    for rank in range(len(first_phase) - 1):
        counted, owed = filled(0, NO_TURN + 1), place
        counted[NO_TURN] = NO_MICROBATCH
        for here in range(first_phase[rank], first_phase[rank + 1]):
            for _ in range(phase[here][2]):
                for op in range(phase[here][0], phase[here][0] + phase[here][1]):
                    kind[place], chunk[place], joined[place] = patterns[op][0], patterns[op][1], patterns[op][2]
                    turn = patterns[op][3]
                    if turn == OLDEST:
                        while kind[owed] != _I:
                            owed += 1
                        chunk[place], microbatch[place] = chunk[owed], microbatch[owed]
                        owed += 1
                    else:
                        microbatch[place] = counted[turn]
                        counted[turn] += turn != NO_TURN
                    place += 1


@loop(fills=("kind", "stage", "microbatch"))
def waves(furthest_first, count, kind, stage, microbatch):
    """Fill in every operation, rank by rank: each free rank takes the furthest one that is ready.

    A microbatch's path leads up through K stages and down again: forward s is its step s, backward s its step
    2 K - 1 - s. A rank runs each step's microbatches in order, so it suffices to count arrivals and departures.
    `furthest_first` has each rank's steps.
    """
    num_ranks, num_steps = len(kind), len(kind) * len(furthest_first[0])
    waiting, begun = filled(0, num_steps + 1), filled(0, num_steps)
    free_at, step_of, place = filled(0, num_ranks), filled(num_steps, num_ranks), filled(0, num_ranks)
    waiting[0], slot = count, 0
    while begun[num_steps - 1] < count:
        for rank in range(num_ranks):
            for step in furthest_first[rank]:
                if free_at[rank] <= slot and waiting[step] > 0:
                    backward, at = 2 * step // num_steps, place[rank]
                    kind[rank][at], microbatch[rank][at] = backward, begun[step]
                    stage[rank][at] = num_steps - 1 - step if backward else step
                    step_of[rank], free_at[rank] = step, slot + 1 + backward
                    waiting[step], begun[step], place[rank] = waiting[step] - 1, begun[step] + 1, at + 1
        slot += 1
        for rank in range(num_ranks):
            if free_at[rank] == slot and step_of[rank] < num_steps:
                waiting[step_of[rank] + 1] += 1
