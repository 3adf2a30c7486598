"""Blocks of each stage such that the slowest rank is as fast as possible."""

from ppmodel.loops.compiled import filled, inlined, loop

_DIGITS, _LITTLE = 1e12, 1.03


@loop(fills=("divided",))
def balance(stage, rank, load, ties, even, times, divided):
    """Divide the blocks of a model among stages, for several runs.

    A row of `times` has a run's seconds of a block, the embedding, the head and a dense block, and its number of dense
    blocks; one of `divided` has the fewest blocks of each stage, to which the others are added. The first three columns
    list the shares of stages that ranks compute, in the order of stages.

    Blocks are assigned one by one, each to the rank that would finish it first, and there to the shortest stage, or
    that with the least of `ties`. With equal blocks, this minimises the time of the slowest rank. Then blocks move one
    by one from the slowest rank to any stage as long as that helps, which matters only for unequal ones.

    Unequal stages wait for each other, which a slightly faster slowest rank does not compensate: then all are `even`.
    """
    stages, ranks, ends = filled(0.0, len(even)), filled(0.0, max(rank) + 1), filled(0.0, len(even))
    for number in range(len(times)):
        blocks, run = divided[number], times[number]
        _judged(stage, rank, load, blocks, run, 0, stages, ranks)
        for _ in range(sum(even) - sum(blocks)):
            for place in range(len(stage)):
                end = ranks[rank[place]] + load[place] * run[0]
                is_first = place == 0 or stage[place] != stage[place - 1]
                ends[stage[place]] = end if is_first else max(end, ends[stage[place]])
            best = 0
            for other in range(1, len(even)):
                if (ends[other], stages[other], ties[other]) < (ends[best], stages[best], ties[best]):
                    best = other
            blocks[best] += 1
            stages[best] += run[0]
            for place in range(len(stage)):
                ranks[rank[place]] += load[place] * run[0] * (stage[place] == best)
        moves = run[4] > 0
        while moves:
            least, slowest = _judged(stage, rank, load, blocks, run, run[4], stages, ranks)
            giver, taker, moves = 0, 0, False
            for place in range(len(stage)):
                giving = stage[place]
                for taking in range(len(even) if rank[place] == slowest and blocks[giving] > 1 else 0):
                    blocks[giving] -= 1
                    blocks[taking] += 1
                    judged, _ = _judged(stage, rank, load, blocks, run, run[4], stages, ranks)
                    blocks[giving] += 1
                    blocks[taking] -= 1
                    if judged < least:
                        giver, taker, least, moves = giving, taking, judged, True
            blocks[giver] -= moves
            blocks[taker] += moves
        _, slowest = _judged(stage, rank, load, blocks, run, run[4], stages, ranks)
        enough = ranks[slowest] * _LITTLE
        _, slowest = _judged(stage, rank, load, even, run, run[4], stages, ranks)
        for other in range(len(even) if ranks[slowest] <= enough else 0):
            blocks[other] = even[other]


@inlined
def _judged(stage, rank, load, blocks, times, num_dense, stages, ranks):
    """Fill in the times of stages and ranks; return the keys that rank a division, and the slowest rank."""
    for other in range(len(ranks)):
        ranks[other] = 0.0
    before, whole, of_stages, of_ranks, slowest = 0, 0.0, 0.0, 0.0, 0
    for other in range(len(blocks)):
        dense = max(0.0, min(num_dense - before, blocks[other]))
        before += blocks[other]
        stages[other] = (blocks[other] - dense) * times[0] + dense * times[3]
        stages[other] += times[1] * (other == 0) + times[2] * (other == len(blocks) - 1)
        whole, of_stages = whole + stages[other], of_stages + stages[other] ** 2
    for place in range(len(stage)):
        ranks[rank[place]] += load[place] * stages[stage[place]]
    for other in range(len(ranks)):
        of_ranks += ranks[other] ** 2
        slowest = other if ranks[other] > ranks[slowest] else slowest
    scale = _DIGITS / whole
    return (round(scale * ranks[slowest]), round(scale * of_ranks / whole), round(scale * of_stages / whole)), slowest
