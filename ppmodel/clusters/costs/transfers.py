"""Costs of transfers and all-reduces: Hockney's model, V / BW + L, on the links that they use."""

import numpy as np

from ppmodel.clusters.costs.partition import microbatch_sequences
from ppmodel.clusters.specs import CollectiveSpec
from ppmodel.clusters.specs.layout import DISPATCHERS, MULTIPLIED, product_text
from ppmodel.errors import CostError
from ppmodel.simulation.transfers import Links, link_values, receivers


def pipeline_links(schedule, model, system, layout=None):
    """Determine the links of a pipeline, and the time of a transfer on them.

    Parameters
    ----------
    schedule : Schedule
        Provides ranks and microbatches.
    model : ModelSpec
    system : SystemSpec
        Provides links and nodes.
    layout : LayoutSpec, optional
        A rank is then tp x cp x dp GPUs, each of which sends to its counterpart in the other rank. Ranks with several
        GPUs are placed on nodes in order, by the layout. If the GPUs of a node share its NIC, so do a rank's messages.

    Returns
    -------
    Links

    Raises
    ------
    CostError
        If ranks with several GPUs have a placement other than blocked.
    SpecificationError
        If the system lists nodes for a different number of ranks.
    """
    num_bytes = sent_bytes(schedule, model, system, layout)
    gpus = 1 if layout is None else layout.rank_gpus
    delay_s = bandwidths = None
    if system.links:
        delay_s, bandwidths = link_values(system.links, schedule.placement, receivers(schedule))
    between, inside = (hockney_s(num_bytes, system, inside, bandwidths) for inside in (False, True))
    if system.nodes is None:
        return Links(None, between, inside, None, delay_s)
    gpus_per_node = system.nodes.devices_per_node
    if gpus == 1:
        nodes = nics = system.nodes.of_ranks(schedule.num_ranks)
    elif system.nodes.placement != "blocked":
        rule = f"places ranks of one GPU, but a rank has {product_text(MULTIPLIED)} = {gpus}"
        raise CostError("nodes.placement", system.nodes.placement, rule, "write blocked")
    else:
        stride = layout.stage_gpus if layout.replicas_apart else gpus  # to the counterpart in the next rank
        first = np.arange(schedule.num_ranks) * stride + np.arange(0, gpus, stride)[:, None] * schedule.num_ranks
        ends = np.concatenate([first, first + stride - 1]) // gpus_per_node
        nodes = np.cumsum(np.diff(ends, prepend=ends[:, :1]).any(axis=0))  # alike where all ends are, which only rise
        nics, replica = first[0] // gpus_per_node, schedule.num_ranks * stride
        if system.nodes.shared_nic:
            # of all GPUs that share the NIC
            num_bytes = num_bytes * min(gpus, gpus_per_node, stride * max(1, gpus_per_node // replica))
            between = hockney_s(num_bytes, system, bandwidths=bandwidths)
    nics = tuple(nics.tolist()) if system.nodes.shared_nic and nodes.any() else None
    return Links(nodes, between, inside, nics, delay_s)


def sent_bytes(schedule, model, system, layout=None):
    """Bytes of a message as a GPU sends it: `message_bytes`, divided by tp if the framework scatters it."""
    num_bytes = message_bytes(schedule, model, layout)
    scatters = layout and system.framework and system.framework.scatter_messages and not layout.sequence_parallel
    return num_bytes / layout.tp if scatters else num_bytes


def hockney_s(num_bytes, system, inside=False, bandwidths=None):
    """Compute occupancy and latency of one transfer: (V / BW, L).

    Parameters
    ----------
    num_bytes : float
        Bytes of the transfer, V.
    system : SystemSpec
        Provides bandwidth BW and latency L of one directed link, and from `collectives` the fraction of BW that
        messages attain.
    inside : bool
        Whether the link is within a node; a system without nodes has one kind of link.
    bandwidths : ndarray of float, optional
        Bandwidths of several links of their own; NaN for the system's.

    Returns
    -------
    occupancy_s, latency_s : float
        In seconds.

    Examples
    --------
    >>> from ppmodel.clusters.specs import load_system
    >>> hockney_s(50e9, load_system("mid_cp_mid_nw"))[0]
    1.0
    """
    attained = system.collectives or CollectiveSpec()
    if inside and system.nodes:
        bandwidth, latency_s = system.nodes.node_bandwidth_bytes_per_s, system.nodes.node_latency_s
        efficiency = attained.node_efficiency
    else:
        bandwidth, latency_s = system.network_bandwidth_bytes_per_s, system.network_latency_s
        efficiency = attained.message_efficiency or attained.network_efficiency
    bandwidth = bandwidth if bandwidths is None else np.where(np.isnan(bandwidths), bandwidth, bandwidths)
    return num_bytes / (bandwidth * efficiency) + attained.message_overhead_s, latency_s


def message_bytes(schedule, model, layout=None):
    """Compute the bytes of one transfer: the activations, or their gradient, that a GPU sends to another stage.

    Parameters
    ----------
    schedule : Schedule
        Provides the microbatches of the table.
    model : ModelSpec
        Provides global batch, sequence length, hidden size and bytes per element.
    layout : LayoutSpec, optional
        Context parallelism divides the tokens, and sequence parallelism divides them further; without the latter, every
        tensor-parallel rank sends all of them.

    Returns
    -------
    float
        Bytes for one microbatch of the table, b s h times the bytes per element; a whole number without a layout.

    Raises
    ------
    CostError
        If the global batch cannot be divided into B microbatches of whole sequences.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.clusters.specs import load_model
    >>> model = load_model("paper")
    >>> message_bytes(build("gpipe", 4, 8), model) / message_bytes(build("gpipe", 4, 16), model)
    2.0
    """
    whole = microbatch_sequences(schedule, model, layout) * model.sequence * model.hidden * model.element_bytes
    if layout is None:
        return whole
    return whole / (layout.stage_gpus if layout.sequence_parallel else layout.stage_gpus // layout.tp)


def buffer_bytes(schedule, model, layout):
    """Compute the bytes of communication buffers on a GPU: messages in both directions, sequences, what experts get.

    Parameters
    ----------
    schedule, model, layout
        As in `message_bytes`.

    Returns
    -------
    float
        In bytes: a pipeline with several ranks receives one message forward and one backward; sequence parallelism
        gathers the input of a product, b s h / cp, in one buffer that all layers use (Megatron-LM's global buffer).
        HybridEP has room for the tokens of all GPUs that share experts (deepseek-ai/DeepEP, 94a9f8f, intranode.cu).

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.clusters.specs import LayoutSpec, load_model
    >>> layout = LayoutSpec(pp=4, tp=8, sequence_parallel=True)
    >>> buffer_bytes(build("1f1b", 4, 8), load_model("llama3_70b"), layout) / 2**20
    160.0
    """
    message = message_bytes(schedule, model, layout)
    messages = 2 * message if schedule.num_ranks > 1 else 0.0
    received = message * layout.ep if model.experts and layout.dispatcher == DISPATCHERS[2] and layout.ep > 1 else 0.0
    return messages + received + (message * layout.tp if layout.sequence_parallel and layout.tp > 1 else 0.0)


def ring_s(volumes, schedule, system, nodes):
    """Seconds of every stage's all-reduce over its replicas: all links of the ring wait for the slowest."""
    sender = schedule.placement
    receiver = np.roll(sender, -1, axis=0)
    delay_s, bandwidths = link_values(system.links, sender, receiver) if system.links else (0.0, None)

    def over(inside):
        occupancy, latency = hockney_s(volumes, system, inside, bandwidths)
        return occupancy + 2 * (schedule.num_replicas - 1) * (latency + delay_s)

    nodes = np.arange(schedule.num_ranks) if nodes is None else nodes
    return np.where(nodes[sender] == nodes[receiver], over(True), over(False)).max(axis=0)
