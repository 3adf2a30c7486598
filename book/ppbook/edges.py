"""What passes between the GPUs of a run: inside a rank, between stages, and between replicas."""

from collections import Counter
from dataclasses import replace

import pandas as pd

from ppmodel.cli.text import counted, joined
from ppmodel.costs import block_operations, check_layout, group_of, stages
from ppmodel.costs.transfers import pipeline_links, sent_bytes
from ppmodel.metrics.messages import messages_sent

_WHERE = {"tensor": "inside it", "pipeline": "with other stages", "data": "with other replicas"}
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
    >>> from ppmodel.specs import LayoutSpec
    >>> run = load_model("llama3_70b"), load_system("dgx_h100_nodes"), LayoutSpec(pp=4, tp=8, dp=2)
    >>> found = edges(build("1f1b", 4, 8), *run).set_index(["group", "rank"])
    >>> [size(one) for one in found.bytes.loc[["tensor", "pipeline", "data"], 1]]
    ['128 MiB', '128 MiB', '7.97 GiB']
    """
    layout = check_layout(layout, model, system, schedule)
    given = schedule, model, system, layout
    rows = [*_tensor(*given), *_pipeline(*given), *_data(*given)]
    return pd.DataFrame(rows, columns=["group", "rank", "bytes", "iteration_bytes", "between"])


def _tensor(schedule, model, system, layout):
    moved = [one.bytes for phase in block_collectives(model, layout).values() for one in phase]
    if moved:
        between = group_of("tensor", layout, system).nodes > 1
        for rank, own in _by_rank(schedule, stages(schedule, model, system, layout=layout)):
            blocks = sum(stage.blocks for stage in own)
            yield "tensor", rank, max(moved), blocks * layout.microbatches * sum(moved), between


def _pipeline(schedule, model, system, layout):
    message, nodes = sent_bytes(schedule, model, system, layout), pipeline_links(schedule, model, system, layout).nodes
    for rank, messages in enumerate(messages_sent(schedule).tolist()):
        if messages:
            other = rank + 1 if rank + 1 < schedule.num_ranks else rank - 1
            between = nodes is None or bool(nodes[rank] != nodes[other])
            yield "pipeline", rank, message, messages * message, between


def _data(schedule, model, system, layout):
    where = group_of("data", layout, system)
    if where.size > 1:
        for rank, own in _by_rank(schedule, stages(schedule, model, system, layout=layout)):
            gradients = model.gradient_bytes * sum(stage.parameters for stage in own)
            yield "data", rank, gradients, gradients, where.nodes > 1


def _by_rank(schedule, found):
    for rank in range(schedule.num_ranks):
        yield rank, [stage for stage, place in zip(found, schedule.placement[0], strict=True) if place == rank]


def block_collectives(model, layout):
    """The collectives of a tensor group for one layer and microbatch, forward and backward.

    Examples
    --------
    >>> from ppmodel import load_model
    >>> from ppmodel.specs import LayoutSpec
    >>> found = block_collectives(load_model("llama3_70b"), LayoutSpec(tp=8))
    >>> [[one.kind for one in phase] for phase in found.values()]
    [['all-reduce', 'all-reduce'], ['all-reduce', 'all-reduce']]
    """
    phases = {"forward": ("forward_comm",), "backward": ("input_grad_comm", "weight_grad_comm")}
    operations = block_operations(model, layout.microbatch_size, layout)
    found = {phase: [getattr(one, name) for one in operations for name in names] for phase, names in phases.items()}
    return {phase: [one for one in own if one and one.group == "tensor"] for phase, own in found.items()}


def stage_ranks(schedule, model, system, layout):
    """The layers of each stage, and the rank that holds it; for any number of microbatches.

    Examples
    --------
    >>> from ppmodel import build, load_model, load_system
    >>> from ppmodel.specs import LayoutSpec
    >>> run = load_model("llama3_70b"), load_system("dgx_h100_nodes"), LayoutSpec(tp=8)
    >>> stage_ranks(build("interleaved-1f1b", 2, 2, chunks=2), *run)
    [(20, 0), (20, 1), (20, 0), (20, 1)]
    """
    found = stages(schedule, model, system, layout=replace(layout, global_batch=None))
    return [(stage.blocks, rank) for stage, rank in zip(found, schedule.placement[0].tolist(), strict=True)]


def edge_words(found, model, system, layout):
    """Say what passes along the edges of each group, how much each time, and over which link.

    Parameters
    ----------
    found : DataFrame
        From `edges`.
    model, system, layout
        As there.

    Returns
    -------
    dict of str to str
        A sentence for each group.
    """
    forward, backward = (_counted(phase) for phase in block_collectives(model, layout).values())
    both = f"{forward} forward, {'as many' if forward == backward else backward} backward"
    reduced = "reduce-scatter" if layout.zero else "all-reduce"
    said = {
        "tensor": f"Inside a rank, tp = {layout.tp} GPUs: {both}, per layer and microbatch, {{}} each",
        "pipeline": f"Between stages, pp = {layout.pp} ranks: activations forward, their gradients back, {{}} per "
        "microbatch each way, from every GPU to the one in the same position of the next rank",
        "data": f"Between replicas, dp = {layout.dp}: only gradients, {reduced} of {{}} per GPU once per iteration",
    }
    return {
        group: f"{said[group].format(_span(rows.bytes))}; {_link(rows.between.any(), system)}"
        for group, rows in found.groupby("group", sort=False)
    }


def edge_point(found, layout):
    """Say what a rank is, and what a GPU exchanges in an iteration.

    Examples
    --------
    >>> from ppmodel import build, load_model, load_system
    >>> from ppmodel.specs import LayoutSpec
    >>> layout = LayoutSpec(pp=2)
    >>> found = edges(build("1f1b", 2, 4), load_model("llama3_8b"), load_system("dgx_h100_nodes"), layout)
    >>> edge_point(found, layout)
    'A rank is 1 GPU; it exchanges 256 MiB with other stages in an iteration'
    """
    gpus = layout.tp * layout.cp
    most = found.groupby("group").iteration_bytes.max().map(size)
    parts = [f"{most[group]} {where}" for group, where in _WHERE.items() if group in most]
    rank = f"A rank is {counted(gpus, 'GPU')}"
    if not parts:
        return rank
    return f"{rank}; {'it' if gpus == 1 else 'each'} exchanges {joined(parts)} in an iteration"


def _counted(collectives):
    kinds = Counter(one.kind for one in collectives)
    return joined([counted(count, kind) for kind, count in kinds.items()])


def _span(sizes):
    (least, unit), most = size(sizes.min()).split(), size(sizes.max())
    if most == f"{least} {unit}":
        return most
    return f"{least} to {most}" if most.endswith(f" {unit}") else f"{least} {unit} to {most}"


def _link(between, system):
    if system.nodes is None:
        return f"network, {system.network_bandwidth_bytes_per_s / 1e9:g} GB/s"
    if between:
        return f"between nodes, {system.network_bandwidth_bytes_per_s / 1e9:g} GB/s"
    return f"inside a node, {system.nodes.node_bandwidth_bytes_per_s / 1e9:g} GB/s"


def size(num_bytes):
    """Bytes to three digits, in the largest unit that they fill.

    >>> size(128 * 2**20), size(2**43)
    ('128 MiB', '8 TiB')
    """
    power = 0
    while num_bytes >= 1000 and power < len(_UNITS) - 1:
        num_bytes, power = num_bytes / 1024, power + 1
    return f"{num_bytes:.3g} {_UNITS[power]}"
