"""Collectives between the GPUs of a layout: what they move, and how long that takes on the links they use.

A GPU has the number tp_i + tp (cp_i + cp (dp_i + dp pp_i)), or another if the layout says so, and is on node number //
devices_per_node, as in Megatron-LM and blocked launchers. A group takes every stride-th GPU, of a replica if the ranks
of the pipeline are inside replicas, and all groups of a kind run at the same time.
"""

from functools import lru_cache
from math import comb, lcm
from typing import NamedTuple

import numpy as np

from ppmodel.clusters.specs import CollectiveSpec
from ppmodel.clusters.specs.layout import DISPATCHERS

_POSTED_STEPS = 5
"""Latencies of an all-to-all in a node: NCCL takes 11 to 14 us on 2, 4 and 8 H100, B200 or GB200 (AIConfigurator)."""

_DISPATCHED = 0.82
"""What DeepEP and HybridEP attain of a NIC over what NCCL's all-to-all does: 36 to 41 of 46 GB/s, called from torch, on
32 and 64 H100 (deepseek-ai/DeepEP, 94a9f8f, docs/README_Hybrid-EP.md, without what stays on the node)."""


class Collective(NamedTuple):
    """A collective.

    Parameters
    ----------
    kind : {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ring"}
        A ring passes blocks around, as context parallelism does with keys and values; also a broadcast, or a reduction
        to one GPU.
    group : {"tensor", "context", "expert", "expert-tensor", "data", "expert-data", "pipeline"}
        The participating GPUs; the data group includes context parallelism, GPUs that share each expert form the
        expert-tensor group, and those with the same part of the same experts the expert-data group.
    bytes : float
        Size of the whole tensor: what every GPU reduces, what each holds after an all-gather or a full ring, or before
        a reduce-scatter, what each sends and keeps in an all-to-all.
    drawn : tuple of int
        In an exchange of experts, the number of experts of each token, and of all.
    """

    kind: str
    group: str
    bytes: float
    drawn: tuple = (1, 1)


DATA_GROUPS = "data", "expert-data"
"""Groups that sum gradients, for which a system may give an efficiency of its own."""


class Group(NamedTuple):
    """Placement of a group on nodes; of all groups of its kind, the one that is spread most.

    Parameters
    ----------
    size : int
        Participating GPUs, n.
    nodes : int
        Nodes that they are on, N.
    per_node : int
        GPUs per node, m; if nodes differ, the fewest, and costs are then those of n/m such nodes.
    """

    size: int
    nodes: int
    per_node: int


_MEMBERS = {
    "tensor": lambda layout: (layout.tp, 1),
    "context": lambda layout: (layout.cp, layout.tp),
    "expert": lambda layout: (layout.ep, layout.expert_tp),
    "expert-tensor": lambda layout: (layout.expert_tp, 1),
    "data": lambda layout: (layout.data_gpus, layout.tp),
    "expert-data": lambda layout: (layout.expert_replicas, layout.expert_tp * layout.ep),
    "pipeline": lambda layout: (layout.pp or 1, layout.stage_gpus if layout.replicas_apart else layout.rank_gpus),
}
"""The size of each group, and the distance between its GPUs."""


class Line(NamedTuple):
    """Seconds of a collective as a linear function: fixed + bytes x per byte."""

    fixed_s: float
    s_per_byte: float


def group_of(group, layout, system):
    """Determine the placement of a group.

    Parameters
    ----------
    group : str
        As in `Collective`.
    layout : LayoutSpec
        Provides sizes and numbering.
    system : SystemSpec
        Provides the GPUs per node; without nodes, every GPU is its own node.

    Returns
    -------
    Group

    Examples
    --------
    >>> from ppmodel.clusters.specs import LayoutSpec, load_system
    >>> layout, system = LayoutSpec(pp=2, tp=4, dp=8), load_system("dgx_h100_nodes")
    >>> group_of("tensor", layout, system), group_of("data", layout, system)
    (Group(size=4, nodes=1, per_node=4), Group(size=8, nodes=4, per_node=2))
    """
    size, stride = _MEMBERS[group](layout)
    gpus_per_node = system.nodes.devices_per_node if system.nodes else 1
    gpus, copies = (layout.pp or 1) * layout.rank_gpus, 1
    if group in DATA_GROUPS and layout.replicas_apart:
        size, gpus, copies = size // layout.dp, layout.replica_gpus, layout.dp
    return _placed(size, stride, gpus_per_node, gpus, copies)


@lru_cache(2**12)
def _placed(size, stride, gpus_per_node, gpus, copies):
    """Of groups of every `stride`-th GPU, the one on most nodes; with copies, it has members in each `gpus` GPUs."""
    span = size * stride
    firsts = np.arange(0, min(lcm(span, gpus_per_node), gpus), span)[:, None] + np.arange(stride)
    members = gpus * np.arange(copies)[:, None] + stride * np.arange(size)
    nodes = (firsts.reshape(-1, 1) + members.ravel()) // gpus_per_node
    most = nodes[(np.diff(nodes, axis=1) > 0).sum(axis=1).argmax()]
    counts = np.unique(most, return_counts=True)[1]
    return Group(size * copies, len(counts), int(counts.min()))


def collective_s(collective, layout, system):
    """Compute the seconds of a collective on the links that its group uses.

    Parameters
    ----------
    collective : Collective
        What is done, by which GPUs, with how many bytes V.
    layout : LayoutSpec
        Provides the groups.
    system : SystemSpec
        Provides nodes, links and what collectives attain on them.

    Returns
    -------
    float
        In seconds; 0 for a group of one.

    Notes
    -----
    On one kind of link, with bandwidth b and latency a per step, n GPUs take, in rings:

    - all-gather, reduce-scatter: (n-1)/n V/b + (n-1) a; an all-reduce does both, which takes twice that (Thakur,
      Rabenseifner and Gropp, 2005; NCCL's bus bandwidth).
    - ring of keys and values: n-1 steps of V/n, as an all-gather (Liu, Zaharia and Abbeel, 2023). Across several
      nodes, every step waits for the slowest link, one of which is in use per node.
    - all-to-all: all messages posted at once, (n-1)/n V/b + a (NCCL's grouped sends), within a node + 5 a, whatever n;
      across nodes, messages within, (m-1)/n V, and between, (n-m)/n V, use their own links at the same time.

    On N nodes with m GPUs each, the first two are hierarchical (Cho et al., BlueConnect, 2019): reduce-scatter within
    nodes on V, then between nodes on V/m through each GPU's NIC; an all-gather in the opposite order.

    If its dispatcher knows nodes, an exchange of experts sends a token once to each node with any of its experts, and
    from there once to each GPU (DeepSeek-AI, 2024, section 3.2.2). Of p places, k different experts of E are on
    p (1 - C(E - E/p, k) / C(E, k)) in the mean: with the N nodes as places that many messages, (N-1)/N of which leave
    the node, and with the n GPUs that many copies, (m-1)/m of which cross links within nodes. If a layout limits the
    nodes of a token's experts to M, both are M/N of all, and so are the experts.

    With overlapped phases, the slower of both kinds of links decides, and both latencies add up.

    If the GPUs of a node share one NIC, each has its share of it.

    Examples
    --------
    >>> from ppmodel.clusters.specs import LayoutSpec, load_system
    >>> layout, system = LayoutSpec(tp=8), load_system("dgx_h100_nodes")
    >>> round(1e6 * collective_s(Collective("all-reduce", "tensor", 450e6), layout, system))
    1778
    """
    fixed, slope = collective_line(collective.kind, collective.group, layout, system, collective.drawn)
    return fixed + collective.bytes * slope


def slowing(s_per_byte, system):
    """Time that a collective and the kernels beside it add to each other, as a share of the time they run together.

    A collective as fast as links within a node adds all of a system's contention less 1; a slower one takes less of a
    GPU's memory bandwidth, and adds less in proportion. `s_per_byte` has seconds per byte, of any shape.

    >>> from ppmodel.clusters.specs import load_system
    >>> slowing(np.array([1 / 310e9, 1 / 31e9]), load_system("h100")).round(3).tolist()
    [0.17, 0.017]
    """
    links, nodes = system.collectives, system.nodes
    if links is None:
        return np.zeros_like(s_per_byte)
    near = 1 / (nodes.node_bandwidth_bytes_per_s * links.node_efficiency) if nodes else np.inf
    return (links.contention - 1) * np.minimum(near / np.maximum(s_per_byte, np.finfo(float).tiny), 1.0)


def collective_line(kind, group, layout, system, drawn=(1, 1)):
    """Compute the seconds of a collective as a function of its bytes; see `collective_s`.

    Parameters
    ----------
    kind, group : str
        As in `Collective`.
    layout : LayoutSpec
    system : SystemSpec
    drawn : tuple of int
        As in `Collective`.

    Returns
    -------
    Line
        Fixed seconds, and seconds per byte of the whole tensor.
    """
    where, attained = group_of(group, layout, system), system.collectives or CollectiveSpec()
    inside, between = _steps(kind, group, where, attained, layout, system)
    size, per_node = where.size, where.per_node
    if kind == "ring":
        used = [link for link, is_used in ((inside, per_node > 1), (between, where.nodes > 1)) if is_used]
        fixed, slope = (max((getattr(link, name) for link in used), default=0.0) for name in Line._fields)
        return Line((size - 1) * fixed, (size - 1) / size * slope)
    if kind == "all-to-all":
        near, far = 1 - 1 / per_node, size - per_node
        fixed = _POSTED_STEPS * inside.fixed_s * bool(near), between.fixed_s * bool(far)
        if group != "expert" or layout.dispatcher not in DISPATCHERS[1:]:
            slopes = (per_node - 1) * inside.s_per_byte, far * between.s_per_byte
            return Line(max(fixed), max(slopes) / size)
        nodes = min(layout.expert_nodes or where.nodes, where.nodes)
        k, experts = drawn[0], max(drawn[0], drawn[1] * nodes // where.nodes)
        places = nodes, size * nodes // where.nodes
        messages, copies = (p * (1 - comb(experts - experts // p, k) / comb(experts, k)) / k for p in places)
        slopes = near * copies * inside.s_per_byte, messages / _DISPATCHED * (1 - per_node / size) * between.s_per_byte
        return Line(sum(fixed), max(slopes))  # copies cross the network once per node, and then the links within
    nodes, passes = size / per_node, 2 if kind == "all-reduce" else 1  # in rings within nodes, and between them
    fixed = (per_node - 1) * inside.fixed_s + (nodes - 1) * between.fixed_s
    slopes = (per_node - 1) / per_node * inside.s_per_byte, (nodes - 1) / nodes / per_node * between.s_per_byte
    slope = max(slopes) if attained.overlapped_phases else sum(slopes)
    return Line(passes * fixed, passes * slope)


def _steps(kind, group, where, attained, layout, system):
    """The `Line` of one step within a node, and of one between nodes."""
    node, sharing, efficiency = system.nodes, 1, attained.network_efficiency
    if node and node.shared_nic:
        together = layout.replica_gpus * layout.dp if layout.replicas_apart else layout.rank_gpus
        sharing = min(node.devices_per_node, together)
    if kind == "all-to-all":
        efficiency = attained.exchange_efficiency or efficiency
    if group in DATA_GROUPS:
        efficiency = attained.data_efficiency or efficiency
        if where.per_node == 1:
            efficiency = attained.spread_data_efficiency or efficiency
        efficiency /= where.nodes**attained.data_congestion
        efficiency *= layout.tp ** (1 - attained.data_sharing)
    latency_s = system.network_latency_s if attained.network_latency_s is None else attained.network_latency_s
    between = Line(latency_s, 1.0 / (system.network_bandwidth_bytes_per_s / sharing * efficiency))
    if not node:
        return between, between
    latency_s = node.node_latency_s if attained.node_latency_s is None else attained.node_latency_s
    return Line(latency_s, 1.0 / (node.node_bandwidth_bytes_per_s * attained.node_efficiency)), between
