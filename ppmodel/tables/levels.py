"""Levels of operations by Kahn's algorithm, in plain code; `loops.tables` has the compiled form."""

import numpy as np

NO_OPERATION = -1
"""Stands for no operation."""


def levels_of(rank, source, group):
    """Compute each operation's level, one above the highest that it waits for; ``NO_OPERATION`` if it waits forever."""
    successors = np.flatnonzero(rank[1:] == rank[:-1]) + 1
    waiting = np.flatnonzero(source != NO_OPERATION)
    before = np.concatenate((group[successors - 1], group[source[waiting]]))
    after = np.concatenate((group[successors], group[waiting]))
    apart = before != after
    before, after = before[apart], after[apart]
    by_before = np.argsort(before, kind="stable")
    num_groups = group.max() + 1
    edge_start = np.searchsorted(before[by_before], np.arange(num_groups + 1)).tolist()
    after = after[by_before].tolist()
    missing = np.bincount(np.array(after, dtype=np.int64), minlength=num_groups).tolist()

    level = [NO_OPERATION] * num_groups
    frontier, depth = [n for n in range(num_groups) if not missing[n]], 0
    while frontier:
        following = []
        for current in frontier:
            level[current] = depth
            for successor in after[edge_start[current] : edge_start[current + 1]]:
                missing[successor] -= 1
                if not missing[successor]:
                    following.append(successor)
        frontier, depth = following, depth + 1
    return np.array(level)[group]
