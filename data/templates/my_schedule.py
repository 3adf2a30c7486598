"""A schedule to start from: copy the file, change the order, and give it a name of your own.

The idea of this one: where devices come in nodes, only one link in N is slow. Eager 1F1B warms up twice as deep as
1F1B to hide every transfer; here each device warms up one forward deeper for each slow link ahead of it.
"""

from ppmodel import Op, OpKind, Schedule
from ppmodel.schedules.registry import Option, schedule


@schedule(
    "node-1f1b",
    label="node-aware 1F1B",
    title="1F1B, one forward deeper in the warm-up for each link between nodes ahead",
    legal="B >= 1",
    options=[Option.count("node", 4, "N", "devices of a node")],
)
def node_one_f_one_b(num_stages, num_microbatches, node=4):
    """Stage d on device d; S devices, B microbatches, nodes filled one after the other."""
    rows = []
    for device in range(num_stages):
        forwards = [Op(OpKind.F, device, microbatch) for microbatch in range(num_microbatches)]
        backwards = [Op(OpKind.B, device, microbatch) for microbatch in range(num_microbatches)]
        ahead = range(device + 1, num_stages)
        slow = sum(later % node == 0 for later in ahead)  # a node begins with device later: that link is slow
        warm_up = min(len(ahead) + slow, num_microbatches)
        steady = [op for pair in zip(forwards[warm_up:], backwards, strict=False) for op in pair]
        rows.append(forwards[:warm_up] + steady + backwards[num_microbatches - warm_up :])
    return Schedule.from_rows("node-1f1b", rows)
