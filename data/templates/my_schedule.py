"""A schedule to start from: copy this file, then change the order and the names.

The idea of this one: with nodes of N ranks, one link in N is slow. Eager 1F1B
doubles the warm-up of 1F1B to hide every transfer; here, each rank's warm-up
has only one more forward for each slow link ahead of it.
"""

from ppmodel.ops import Op, OpKind
from ppmodel.schedules.registry import Option, require_legal, schedule
from ppmodel.tables import Schedule


@schedule(
    "node-1f1b",
    label="node-aware 1F1B",
    title="1F1B with one more warm-up forward for each slow link ahead",
    legal="S >= 2",  # for people; the function itself refuses other sizes
    options=[Option.count("node", 4, "N", "ranks per node")],
)
def node_one_f_one_b(num_ranks, num_microbatches, node=4):
    """Stage r on rank r; nodes are filled one after another."""
    require_legal(num_ranks >= 2, "pp", num_ranks, "must be at least 2", "pass pp 2 or more")
    rows = []
    for rank in range(num_ranks):
        ahead = range(rank + 1, num_ranks)
        slow = sum(later % node == 0 for later in ahead)  # a new node starts there
        warm_up = min(len(ahead) + slow, num_microbatches)
        forwards = [Op(OpKind.F, rank, m) for m in range(num_microbatches)]
        backwards = [Op(OpKind.B, rank, m) for m in range(num_microbatches)]
        row = forwards[:warm_up]  # warm-up
        for m in range(num_microbatches - warm_up):  # steady
            row += [forwards[warm_up + m], backwards[m]]
        rows.append(row + backwards[num_microbatches - warm_up :])  # cool-down
    return Schedule.from_rows("node-1f1b", rows)
