"""What passes between the GPUs of a run: inside a rank, between stages, and between replicas."""

from dataclasses import replace

import pandas as pd

from ppmodel.clusters.costs import block_operations, check_layout, group_of, stages
from ppmodel.clusters.costs.transfers import pipeline_links, sent_bytes
from ppmodel.metrics.messages import messages_sent

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def edges(schedule, model, system, layout):
    """Bytes that a GPU of each rank exchanges with others, and the links that carry them.

    Parameters
    ----------
    schedule : Schedule
        Provides ranks, stages and microbatches.
    model : ModelSpec
    system : SystemSpec
    layout : LayoutSpec
        With ZeRO 0 or 1, so that gradients are summed once per iteration.

    Returns
    -------
    DataFrame
        A row for each rank and group, ``tensor``, ``pipeline`` and ``data``; a group of one has none. ``bytes`` is the
        size of one collective or message, or of all gradients of the GPU, and ``iteration_bytes`` the sum over an
        iteration. ``between`` is true where the link leads out of the node.

    Examples
    --------
    >>> from ppmodel import build, load_model, load_system
    >>> from ppmodel.clusters.specs import LayoutSpec
    >>> run = load_model("llama3_70b"), load_system("dgx_h100_nodes"), LayoutSpec(pp=4, tp=8, dp=2)
    >>> exchanged = edges(build("1f1b", 4, 8), *run).set_index(["group", "rank"])
    >>> [size(num_bytes) for num_bytes in exchanged.bytes.loc[["tensor", "pipeline", "data"], 1]]
    ['128 MiB', '128 MiB', '7.97 GiB']
    """
    layout = check_layout(layout, model, system, schedule)
    cut = stages(schedule, model, system, layout=layout)
    sizes = pd.DataFrame({"blocks": cut.blocks, "parameters": cut.parameters})
    of_rank = sizes.groupby(schedule.placement[0]).sum()
    rows = []

    moved = [collective.bytes for phase in block_collectives(model, layout).values() for collective in phase]
    if moved:
        between = group_of("tensor", layout, system).nodes > 1
        for rank, blocks in of_rank.blocks.items():
            rows.append(("tensor", rank, max(moved), blocks * layout.microbatches * sum(moved), between))

    message, nodes = sent_bytes(schedule, model, system, layout), pipeline_links(schedule, model, system, layout).nodes
    for rank, messages in enumerate(messages_sent(schedule).tolist()):
        if messages:
            neighbour = rank + 1 if rank + 1 < schedule.num_ranks else rank - 1
            between = nodes is None or bool(nodes[rank] != nodes[neighbour])
            rows.append(("pipeline", rank, message, messages * message, between))

    replicas = group_of("data", layout, system)
    if replicas.size > 1:
        for rank, gradients in (model.gradient_bytes * of_rank.parameters).items():
            rows.append(("data", rank, gradients, gradients, replicas.nodes > 1))
    return pd.DataFrame(rows, columns=["group", "rank", "bytes", "iteration_bytes", "between"])


def block_collectives(model, layout):
    """The collectives of a tensor group for one layer and microbatch, forward and backward.

    Examples
    --------
    >>> from ppmodel import load_model
    >>> from ppmodel.clusters.specs import LayoutSpec
    >>> phases = block_collectives(load_model("llama3_70b"), LayoutSpec(tp=8))
    >>> [[collective.kind for collective in phase] for phase in phases.values()]
    [['all-reduce', 'all-reduce'], ['all-reduce', 'all-reduce']]
    """
    operations = block_operations(model, layout.microbatch_size, layout)
    phases = {
        "forward": [op.forward_comm for op in operations],
        "backward": [comm for op in operations for comm in (op.input_grad_comm, op.weight_grad_comm)],
    }
    return {phase: [comm for comm in comms if comm and comm.group == "tensor"] for phase, comms in phases.items()}


def stage_ranks(schedule, model, system, layout):
    """The layers of each stage, and the rank that holds it; for any number of microbatches.

    Examples
    --------
    >>> from ppmodel import build, load_model, load_system
    >>> from ppmodel.clusters.specs import LayoutSpec
    >>> run = load_model("llama3_70b"), load_system("dgx_h100_nodes"), LayoutSpec(tp=8)
    >>> stage_ranks(build("interleaved-1f1b", 2, 2, chunks=2), *run)
    [(20, 0), (20, 1), (20, 0), (20, 1)]
    """
    cut = stages(schedule, model, system, layout=replace(layout, global_batch=None))
    return list(zip(cut.blocks.tolist(), schedule.placement[0].tolist(), strict=True))


def edge_labels(exchanged, system, layout):
    """Label the edges of each group: how many are in it, the size of what passes, and the link.

    Parameters
    ----------
    exchanged : DataFrame
        From `edges`.
    system, layout
        As there.

    Returns
    -------
    dict of str to str

    Examples
    --------
    >>> from ppmodel import build, load_model, load_system
    >>> from ppmodel.clusters.specs import LayoutSpec
    >>> run = load_system("dgx_h100_nodes"), LayoutSpec(pp=2)
    >>> edge_labels(edges(build("1f1b", 2, 4), load_model("llama3_8b"), *run), *run)
    {'pipeline': 'pp = 2: messages of 64 MiB, inside a node, 450 GB/s'}
    """
    kinds = {"tensor": ("tp", "collectives"), "pipeline": ("pp", "messages"), "data": ("dp", "gradients")}
    labels = {}
    for group, rows in exchanged.groupby("group", sort=False):
        field, kind = kinds[group]
        sizes = " to ".join(dict.fromkeys((size(rows.bytes.min()), size(rows.bytes.max()))))
        between = system.nodes is None or rows.between.any()
        bandwidth = system.network_bandwidth_bytes_per_s if between else system.nodes.node_bandwidth_bytes_per_s
        where = "network" if system.nodes is None else "between nodes" if between else "inside a node"
        labels[group] = f"{field} = {getattr(layout, field)}: {kind} of {sizes}, {where}, {bandwidth / 1e9:g} GB/s"
    return labels


def size(num_bytes):
    """Bytes to three digits, in the largest unit that they fill.

    >>> size(128 * 2**20), size(2**43)
    ('128 MiB', '8 TiB')
    """
    power = 0
    while num_bytes >= 1000 and power < len(_UNITS) - 1:
        num_bytes, power = num_bytes / 1024, power + 1
    return f"{num_bytes:.3g} {_UNITS[power]}"
