"""Costs of the stages of a model on a system, as columns: seconds, bytes and parameters of every stage."""

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from ppmodel.costs.data_parallel import gather_s, optimizer_s, reduction_s
from ppmodel.costs.layers import BUSY, layers_of
from ppmodel.costs.partition import StageLayers, microbatch_sequences, stage_layers
from ppmodel.costs.transfers import hockney_s, pipeline_links
from ppmodel.costs.work import PARTS, recompute_of
from ppmodel.kept import cached_property
from ppmodel.specs.layers import format_layers

_MOST_KEPT = 256


@dataclass(frozen=True, eq=False)
class Stages:
    """Costs of stages on one microbatch of the table, on one GPU of each rank.

    Every field is an array with stages as its first axis; `stages[1]` has the same fields of a single stage.

    Parameters
    ----------
    blocks : ndarray of int, shape (num_stages,)
        Transformer blocks.
    layers : ndarray of float, shape (num_stages, num_layers)
        How often each of the model's layers occurs; see `layer_work`.
    parts_s : ndarray of float, shape (num_stages, 3, num_parts)
        Seconds of forward and both halves of the backward, each by `PARTS`: kernels, and the exposed collectives of
        each group.
    forward_s, input_grad_s, weight_grad_s : ndarray of float, shape (num_stages,)
        Their sums; the input gradient includes recomputed forwards.
    activation_bytes : ndarray of float, shape (num_stages,)
        Bytes kept from forward to backward.
    weight_grad_bytes : ndarray of float, shape (num_stages,)
        Bytes kept from the input-gradient half of a backward to its weight-gradient half: the inputs of the dense
        layers and the gradients of their outputs, 32 sbh of a block (Qi et al., 2024, Table 1).
    logits_bytes : ndarray of float, shape (num_stages,)
        Bytes of the logits, except what the backward needs of them.
    working_bytes : ndarray of float, shape (num_stages,)
        Bytes of a block while it runs: of its activations if it is recomputed, of its weights if ZeRO 3 gathers them,
        and of its gradients until ZeRO 2 and 3 reduce and scatter them.
    parameters, expert_parameters : ndarray of float, shape (num_stages,)
        Number of parameters, and the number among them that belong to experts.
    reduction_s, gather_s, optimizer_s : ndarray of float, shape (num_stages,)
        Seconds per iteration, in addition to microbatches: gradient reduction over data-parallel ranks that the last
        backward does not hide; gathering of updated parameters that no forward hides; and the optimizer step. 0 without
        a layout.
    cut : StageLayers, optional
        How layers are divided among all stages; not of a single one.
    """

    blocks: np.ndarray
    layers: np.ndarray
    parts_s: np.ndarray
    forward_s: np.ndarray
    input_grad_s: np.ndarray
    weight_grad_s: np.ndarray
    activation_bytes: np.ndarray
    weight_grad_bytes: np.ndarray
    logits_bytes: np.ndarray
    working_bytes: np.ndarray
    parameters: np.ndarray
    expert_parameters: np.ndarray
    reduction_s: np.ndarray
    gather_s: np.ndarray
    optimizer_s: np.ndarray
    cut: StageLayers | None = None

    @cached_property
    def text(self):
        """Which layers all stages have, in the notation of `specs.layers.format_layers`."""
        return format_layers(self.cut.texts)

    @property
    def counts(self):
        """How often each layer occurs, a tuple of int for each stage."""
        return [tuple(layers) for layers in self.layers.astype(int).tolist()]

    def __getitem__(self, index):
        return Stages(*(getattr(self, column.name)[index] for column in fields(Stages) if column.name != "cut"))

    def __len__(self):
        return len(self.blocks)


def stages(schedule, model, system, layout=None):
    """Compute times, bytes and parameters of every stage of a model on a schedule.

    Parameters
    ----------
    schedule : Schedule
        Provides the stages and the microbatches of the table.
    model : ModelSpec
        The first stage also has the embedding, and the last the loss head.
    system : SystemSpec
        One GPU and its links.
    layout : LayoutSpec, optional
        Complete, from `check_layout`: how a rank is spread over GPUs. Without it, a rank is one GPU, and the model's
        global batch is divided among the microbatches.

    Returns
    -------
    Stages
        In seconds and bytes, for one microbatch of the table.

    Raises
    ------
    CostError
        If the model does not fit the schedule: too few blocks, or a batch that does not divide.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.specs import load_model, load_system
    >>> stages(build("gpipe", 4, 4), load_model("paper"), load_system("mid_cp_mid_nw")).blocks.tolist()
    [32, 32, 32, 32]
    """
    layers = layers_of(model, microbatch_sequences(schedule, model, layout), system, layout)
    cut = stage_layers(schedule, model, layout, layers.times)
    recompute, step = recompute_of(model, layout), None
    if layout is not None:
        nodes = pipeline_links(schedule, model, system, layout).nodes if model.tied_embeddings else None
        step = step_work(schedule, model, layout, cut, nodes)
    key = recompute, *(np.asarray(value).tobytes() for value in (*cut, *(step or ())))
    if key in layers.stages:  # many schedules have the same
        return layers.stages[key]
    counts = layer_counts(layers.work, cut, recompute)
    parts_s, (dense, experts) = stage_parts_s(layers, counts), summed(layers.work.sizes.parameters, counts).T
    step_s = np.zeros((3, len(counts)))
    if step:
        step_s = step_seconds(parts_s, (dense, experts), step, layers.work.sharing, layers)
    of_parts = *parts_s.sum(axis=2).T, *stage_bytes(layers.bytes, counts)
    made = Stages(cut.blocks, counts, parts_s, *of_parts, dense + experts, experts, *step_s, cut)
    if len(layers.stages) < _MOST_KEPT:
        layers.stages[key] = made
    return made


def layer_counts(work, cut, recompute):
    """How often each layer occurs in each stage.

    Parameters
    ----------
    work : LayerWork
    cut : StageLayers
    recompute : str or int
        From `recompute_of`.

    Returns
    -------
    ndarray of float, shape (num_stages, num_layers)
    """
    layers, heads = work.layers, np.minimum(cut.losses, 1)
    dense = np.clip(work.dense_blocks - (np.cumsum(cut.blocks) - cut.blocks), 0, cut.blocks)
    counts = {
        "embedding": cut.embeddings, "dense": dense, "block": cut.blocks - dense, "mtp": cut.mtp,
        "loss": cut.losses - heads, "head": heads,
    }  # fmt: skip
    if isinstance(recompute, str):
        return np.column_stack([counts[part] for part, _ in layers])
    again = {"dense": np.minimum(recompute, dense)}  # the first layers of a stage, of which dense ones come first
    again["block"] = np.minimum(recompute - again["dense"], counts["block"])
    kept = {part: count - again.get(part, 0) for part, count in counts.items()}
    return np.column_stack([(again if mode == "full" else kept)[part] for part, mode in layers])


def stage_parts_s(layers, counts, index=None):
    """Seconds of stages by forward, input gradient and weight gradient, and by part.

    Parameters
    ----------
    layers : LayerCosts
    counts : ndarray of float, shape (num_stages, n)
        How often each layer occurs in each stage.
    index : ndarray of int, shape (num_stages, n), optional
        Which layers these are; by default, all, in order.

    Returns
    -------
    ndarray of float, shape (num_stages, 3, num_parts)
    """
    parts_s = summed(layers.seconds.reshape(len(layers.seconds), -1), counts, index).reshape(-1, 3, len(PARTS))
    if layers.system.kernels:
        parts_s[:, :2, 0] += layers.system.kernels.stage_overhead_s
    return parts_s


def summed(columns, counts, index=None):
    """Sums over the layers of each stage, shape (num_stages, num_columns); see `stage_parts_s`."""
    total, index = 0.0, np.arange(counts.shape[1])[None] if index is None else index
    for layer, count in zip(index.T, counts.T, strict=True):  # in order, so that sums are reproducible
        total = total + count[:, None] * columns[layer]
    return total


def stage_bytes(layers, counts, index=None):
    """Bytes of stages: activations, weight gradients, logits and working memory, as in `Stages`.

    Parameters
    ----------
    layers : ndarray of float, shape (num_layers, 4)
        From `layers.layer_bytes`.
    counts, index
        As in `stage_parts_s`.

    Returns
    -------
    ndarray of float, shape (4, num_stages)
    """
    kept = summed(layers[:, :3], counts, index).T
    working = (layers[:, 3][slice(None) if index is None else index] * (counts > 0)).max(axis=1)
    return np.array([*kept, working])


class StepWork(NamedTuple):
    """What stages do once per iteration, the same on all systems with the same nodes; arrays of shape (num_stages,).

    Parameters
    ----------
    last_halves : ndarray of bool, shape (num_stages, 2)
        Halves of the backward that hide reductions, as in `Schedule`; none if the layout does not overlap them.
    tied_bytes : ndarray of float
        Bytes of the gradient of a tied embedding, on the first and last stages; 0 for others.
    tied_inside : ndarray of bool
        Whether both stages are on one node.
    chunks : int
        Stages per rank.
    """

    last_halves: np.ndarray
    tied_bytes: np.ndarray
    tied_inside: np.ndarray
    chunks: int


def step_work(schedule, model, layout, cut, nodes):
    """The `StepWork` of a run; `nodes` are those of its ranks, from `pipeline_links`."""
    tied_bytes, inside = np.zeros(schedule.num_stages), np.zeros(schedule.num_stages, dtype=bool)
    if model.tied_embeddings and model.vocabulary:
        ends = [cut.embedding, cut.head]
        first, last = schedule.placement[0, ends]
        if first != last:
            tied_bytes[ends] = model.vocabulary / layout.tp * model.hidden * model.gradient_bytes
            inside[ends] = nodes is not None and nodes[first] == nodes[last]
    halves = schedule.last_halves if layout.overlap_gradients else np.zeros((schedule.num_stages, 2), dtype=bool)
    return StepWork(halves, tied_bytes, inside, schedule.chunks_per_rank)


def step_seconds(parts_s, parameters, step, sharing, layers):
    """Seconds of stages per iteration, in addition to microbatches.

    Both gradients of a tied embedding are summed in a ring of two: all bytes pass once over the link between them
    (Megatron-LM's embedding group).

    Parameters
    ----------
    parts_s : ndarray of float, shape (num_stages, 3, num_parts)
    parameters : pair of ndarray of float, shape (num_stages,)
        Parameters of a GPU, and those of experts apart.
    step : StepWork
    sharing : Sharing
    layers : LayerCosts

    Returns
    -------
    reduction_s, gather_s, optimizer_s : ndarray of float, shape (num_stages,)
        As in `Stages`.
    """
    system, busy_s = layers.system, parts_s[..., BUSY].sum(axis=2)
    last_s = (step.last_halves * busy_s[:, 1:]).sum(axis=1)
    reduced = reduction_s(parameters, last_s, sharing, layers.lines)
    if step.tied_bytes.any():
        links = (hockney_s(step.tied_bytes, system, inside) for inside in (False, system.nodes is not None))
        between, inside = (occupancy + 2 * latency for occupancy, latency in links)
        reduced = reduced + np.where(step.tied_bytes > 0, np.where(step.tied_inside, inside, between), 0.0)
    updated = optimizer_s(parameters, sharing, system)
    if system.kernels:
        updated = updated + system.kernels.iteration_overhead_s / step.chunks
    return reduced, gather_s(parameters, busy_s[:, 0], sharing, layers.lines), updated


def compute_seconds(halves_s, step_s):
    """Seconds of every kind of operation, by `OpKind`.

    Parameters
    ----------
    halves_s : sequence of ndarray of float, shape (num_stages,)
        Forward, input gradient and weight gradient.
    step_s : sequence of ndarray of float, shape (num_stages,)
        From `step_seconds`.

    Returns
    -------
    ndarray of float, shape (6, num_stages)
    """
    (forward, input_grad, weight_grad), (reduction, gather, optimizer) = halves_s, step_s
    return np.array([forward, input_grad + weight_grad, input_grad, weight_grad, reduction, gather + optimizer])
