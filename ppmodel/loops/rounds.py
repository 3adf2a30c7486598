"""Programs in rounds, and what of them passes through the chunks of a rank in groups."""

from ppmodel.loops.compiled import filled, loop


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
