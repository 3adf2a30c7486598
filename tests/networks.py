"""Systems whose ranks share nodes, and models for them."""

from dataclasses import replace

from ppmodel.clusters.specs import NodeSpec, load_model


def placed(system, placement, shared_nic):
    """A system with other nodes for its ranks, and with or without a NIC that they share."""
    return replace(system, nodes=replace(system.nodes, placement=placement, shared_nic=shared_nic))


def nodes_like(system, bandwidth=1.0, **more):
    """Nodes whose inner links are as those of a flat system, or some times as fast."""
    given = {"devices_per_node": 2, "shared_nic": False, "placement": "blocked"} | more
    return NodeSpec(
        node_bandwidth_bytes_per_s=system.network_bandwidth_bytes_per_s * bandwidth,
        node_latency_s=system.network_latency_s / bandwidth,
        **given,
    )


def model_for(schedule):
    """A model whose batch divides into the schedule's microbatches."""
    return replace(load_model("paper"), global_batch=2 * schedule.table_microbatches)
