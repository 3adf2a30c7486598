"""Costs of a model on a system: the seconds, bytes and parameters of every stage as columns, and the cost table."""

from dataclasses import dataclass, fields
from functools import cache, cached_property
from math import ceil
from typing import NamedTuple

import numpy as np

from ppmodel.clusters.costs.attention import units_of
from ppmodel.clusters.costs.collectives import Collective, collective_s
from ppmodel.clusters.costs.data_parallel import Sharing, as_stages_compute, gather_s, optimizer_s, reduction_s
from ppmodel.clusters.costs.layers import BLOCKS, BUSY, layers_of
from ppmodel.clusters.costs.pairs import pair_costs
from ppmodel.clusters.costs.partition import StageLayers, microbatch_sequences, stage_layers
from ppmodel.clusters.costs.transfers import hockney_s, message_bytes, pipeline_links, ring_s
from ppmodel.clusters.costs.work import recompute_of
from ppmodel.clusters.specs.entries import unchecked
from ppmodel.clusters.specs.layers import format_layers
from ppmodel.ops import OpKind
from ppmodel.simulation.costs import OpCosts
from ppmodel.simulation.transfers import transfer_costs


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
    copied_bytes : ndarray of float, shape (num_stages,)
        Bytes of weights in the number format, beyond those of the model's precision.
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
    shard_bytes : ndarray of float, shape (num_stages,), optional
        Bytes kept from S to T, which `activation_bytes` leaves out, if the output layer is divided among the ranks.
    away_bytes : ndarray of float, shape (num_stages,), optional
        Bytes of modules or layers that are offloaded, without those that `activation_bytes` leaves out as well, because
        they are copied under their own operations; see `_away_bytes`.
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
    copied_bytes: np.ndarray
    working_bytes: np.ndarray
    parameters: np.ndarray
    expert_parameters: np.ndarray
    reduction_s: np.ndarray
    gather_s: np.ndarray
    optimizer_s: np.ndarray
    cut: StageLayers | None = None
    shard_bytes: np.ndarray | None = None
    away_bytes: np.ndarray | None = None

    @cached_property
    def text(self):
        """The layers of all stages, in the notation of `specs.layers.format_layers`."""
        return format_layers(self.cut.texts)

    @property
    def counts(self):
        """Counts of each layer, a tuple of int for each stage."""
        return [tuple(layers) for layers in self.layers.astype(int).tolist()]

    def __getitem__(self, index):
        return Stages(*(getattr(self, column.name)[index] for column in fields(Stages)[:-3]))


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
    >>> from ppmodel.clusters.specs import load_model, load_system
    >>> stages(build("gpipe", 4, 4), load_model("paper"), load_system("mid_cp_mid_nw")).blocks.tolist()
    [32, 32, 32, 32]
    """
    layout = as_stages_compute(layout, schedule)
    layers = layers_of(model, microbatch_sequences(schedule, model, layout), system, layout)
    return _stages_of(schedule, model, layout, layers)


def _stages_of(schedule, model, layout, layers):
    """The `Stages` of layers."""
    cut = stage_layers(schedule, model, layout, layers.times)
    needs_nodes = layout is not None and model.tied_embeddings
    nodes = pipeline_links(schedule, model, layers.system, layout).nodes if needs_nodes else None
    work = stage_work(layers.work, schedule, model, layout, cut, nodes)
    key = tuple(np.asarray(column).tobytes() for column in (*cut, *work[:-1], schedule.has_shards))
    if key in layers.stages:  # many schedules have the same
        return layers.stages[key]
    parts_s, step_s = work.seconds(layers)
    dense, experts = work.parameters(layers.work.sizes.parameters)
    of_layers, of_shards = layers.bytes, None
    if schedule.has_shards:
        of_layers = without_heads(layers.bytes, layers.work.layers)
        of_shards = work.counts @ (layers.bytes - of_layers)[:, 0]
    kept, away = work.bytes(of_layers), None
    if layout is not None and layout.offloads_by_layer:
        away, under = _away_bytes(layout.offload, work.counts, parts_s, layers)
        kept[0] -= under
    of_parts = *parts_s.sum(axis=2).T, *kept, dense + experts, experts, *step_s
    layers.stages[key] = Stages(cut.blocks, work.counts, parts_s, *of_parts, cut, of_shards, away)
    return layers.stages[key]


def _away_bytes(offload, counts, parts_s, layers):
    """Bytes that stages offload layer by layer: those copied while other stages run, and those under their own passes.

    A layer is copied out while the next ones run, and back while those behind it do (Megatron-LM's fine-grained
    offloading), so two layers at a time are on the device. What the link cannot move meanwhile stays, too, and goes as
    a share of all activations does: see `simulation.copies`. Copies beside each other do not slow each other here.
    """
    blocks = np.maximum(counts[:, [part in BLOCKS for part, _ in layers.work.layers]].sum(axis=1), 1)
    chosen = blocks if isinstance(offload, str) else np.minimum(blocks, offload)
    away = counts @ layers.offloaded_bytes * (chosen / blocks)
    under_s = parts_s[:, :2].sum(axis=2).min(axis=1)
    moved = np.minimum(away, under_s * layers.system.host_bandwidth_bytes_per_s) * np.maximum(0, 1 - 2 / chosen)
    return away - moved, moved


class StageWork(NamedTuple):
    """The work of stages, the same on all systems with the same nodes; arrays with stages as their first axis.

    Parameters
    ----------
    counts : ndarray of float, shape (num_stages, n)
        How often each layer occurs in each stage.
    index : ndarray of int, shape (num_stages, n) or (1, n)
        Which layers these are, of each stage or of all.
    last_halves : ndarray of bool, shape (num_stages, 2)
        Halves of the backward that hide reductions, as in `Schedule`; none if the layout does not overlap them.
    tied_bytes : ndarray of float, shape (num_stages,)
        Bytes of the gradient of a tied embedding, on the first and last stages; 0 for others.
    tied_inside : ndarray of bool, shape (num_stages,)
        Whether both stages are on one node.
    chunks : ndarray of int, shape (num_stages,)
        Stages per rank.
    sharing : Sharing or None
        None without a layout: stages then do nothing but microbatches.
    """

    counts: np.ndarray
    index: np.ndarray
    last_halves: np.ndarray
    tied_bytes: np.ndarray
    tied_inside: np.ndarray
    chunks: np.ndarray
    sharing: Sharing | None

    def summed(self, columns):
        """Sums over the layers of each stage, shape (num_stages, num_columns)."""
        total = 0.0
        for layer in np.flatnonzero(self.counts.any(axis=(*range(self.counts.ndim - 1),))):  # in order: reproducible
            total = total + self.counts[..., layer, None] * columns[self.index[..., layer]]
        return total

    def parameters(self, of_layers):
        """Parameters of a GPU, those of experts apart, from those of layers: shape (2, ..., num_stages)."""
        return np.moveaxis(self.summed(of_layers), -1, 0)

    def bytes(self, of_layers):
        """Bytes of activations, weight gradients, logits, copies of weights and work: (5, ..., num_stages)."""
        working, ends = ((of_layers[:, column][self.index] * (self.counts > 0)).max(axis=-1) for column in (4, 5))
        kept, *others = np.moveaxis(self.summed(of_layers[:, :4]), -1, 0)
        return np.array([kept + ends, *others, working])

    def parts_s(self, layers_s, system):
        """Seconds of stages by phase and part, or sums of parts, from those of layers: (..., num_stages, 3, n)."""
        parts_s = self.summed(layers_s.reshape(len(layers_s), -1))
        parts_s = parts_s.reshape(*parts_s.shape[:-1], 3, -1)
        if system.kernels:
            parts_s[..., :2, 0] += system.kernels.stage_overhead_s
        return parts_s

    def optimizer_s(self, parameters, system):
        """Seconds of the optimizer step, shape (..., num_stages)."""
        overhead_s = system.kernels.iteration_overhead_s / self.chunks if system.kernels else 0.0
        return optimizer_s(parameters, self.sharing, system) + overhead_s

    def seconds(self, layers):
        """Seconds of stages on a system.

        Both gradients of a tied embedding are summed in a ring of two: all bytes pass once over the link between them
        (Megatron-LM's embedding group).

        Parameters
        ----------
        layers : LayerCosts

        Returns
        -------
        parts_s : ndarray of float, shape (num_stages, 3, num_parts)
            By forward, input gradient and weight gradient, and by part.
        step_s : ndarray of float, shape (3, num_stages)
            Reduction, gathering and optimizer step, once per iteration; see `Stages`.
        """
        system, parts_s = layers.system, self.parts_s(layers.seconds, layers.system)
        if self.sharing is None:
            return parts_s, np.zeros((3, len(parts_s)))
        busy_s, parameters = parts_s[..., BUSY].sum(axis=2), self.parameters(layers.work.sizes.parameters)
        how, last_s = (self.sharing, layers.lines, system), (self.last_halves * busy_s[:, 1:]).sum(axis=1)
        reduced = reduction_s(parameters, last_s, *how)
        if self.tied_bytes.any():
            links = (hockney_s(self.tied_bytes, system, inside) for inside in (False, True))
            between, inside = (occupancy + 2 * latency for occupancy, latency in links)
            reduced = reduced + np.where(self.tied_bytes > 0, np.where(self.tied_inside, inside, between), 0.0)
        gathered = gather_s(parameters, busy_s[:, 0], *how)
        return parts_s, np.array([reduced, gathered, self.optimizer_s(parameters, system)])


def stage_work(layers, schedule, model, layout, cut, nodes):
    """The `StageWork` of a run; `nodes` are those of its ranks, from `pipeline_links`."""
    before, shard = np.cumsum(cut.blocks) - cut.blocks, 1 / schedule.num_ranks if schedule.has_shards else 1.0
    counts = layer_counts(layers.layers, layers.dense_blocks, cut, recompute_of(model, layout), before, shard)
    tied_bytes, inside = np.zeros(schedule.num_stages), np.zeros(schedule.num_stages, dtype=bool)
    if layout is not None and model.tied_embeddings and model.vocabulary and not schedule.has_shards:
        ends = [cut.embedding, cut.head]
        first, last = schedule.placement[0, ends]
        if first != last:
            tied_bytes[ends] = model.vocabulary / layout.tp * model.hidden * model.gradient_bytes
            inside[ends] = nodes is not None and nodes[first] == nodes[last]
    hides = layout is not None and layout.overlap_gradients
    halves = schedule.last_halves if hides else np.zeros((schedule.num_stages, 2), dtype=bool)
    chunks = np.full(schedule.num_stages, schedule.chunks_per_rank)
    return StageWork(counts, np.arange(counts.shape[1])[None], halves, tied_bytes, inside, chunks, layers.sharing)


def layer_counts(layers, dense_blocks, cut, recompute, before, shard=1.0):
    """How often each layer occurs in each stage, shape (num_stages, num_layers).

    Parameters
    ----------
    layers : list of (str, str)
        As in `LayerWork`.
    dense_blocks : int
    cut : StageLayers
        Of one run, or of many one after another.
    recompute : str, int or ndarray of int, shape (num_stages,)
        As a layout says; or the number of layers of each stage.
    before : ndarray of int, shape (num_stages,)
        Blocks of the stages before.
    shard : float or ndarray of float, shape (num_stages,)
        The share of the output layer that each rank has.
    """
    heads, blocks = np.minimum(cut.losses, shard), cut.blocks
    dense = np.minimum(np.maximum(dense_blocks - before, 0), blocks)
    of_parts = {
        "embedding": cut.embeddings, "dense": dense, "block": blocks - dense, "mtp": cut.mtp,
        "loss": cut.losses - heads, "head": heads,
    }  # fmt: skip
    again = {part: of_parts[part] for part in BLOCKS if isinstance(recompute, str) and recompute == "full"}
    if not isinstance(recompute, str):  # the first layers of a stage, of which dense ones come first
        again["dense"] = np.minimum(recompute, dense)
        again["block"] = np.minimum(recompute - again["dense"], of_parts["block"])
    kept = {part: count - again.get(part, 0) for part, count in of_parts.items()}
    counts = [(again if part in again and mode == "full" else kept)[part] for part, mode in layers]
    return np.stack(np.broadcast_arrays(*counts), axis=-1)


class Offload(NamedTuple):
    """Activations of a microbatch that are copied, and the time that takes.

    Parameters
    ----------
    share : ndarray of float, shape (2, num_replicas, num_stages)
        Fraction of a stage's activations, by whether the forward runs in the warm-up of its rank or later.
    seconds : ndarray of float, shape (2, num_replicas, num_stages)
        Duration of the copy in each direction.
    """

    share: np.ndarray
    seconds: np.ndarray


def offload_of(schedule, kept_bytes, layout, system, compute_s=None, away_bytes=None):
    """Determine what a layout offloads; None if nothing.

    Parameters
    ----------
    schedule : Schedule
        Provides the placement of the stages.
    kept_bytes : ndarray of float, shape (num_stages,)
        Bytes of a microbatch's activations on one GPU.
    layout : LayoutSpec
        Says what is offloaded.
    system : SystemSpec
        Provides the bandwidth to the host.
    compute_s : ndarray of float, shape (10, num_stages), optional
        As from `compute_seconds`; decides where a copy out and back fits.
    away_bytes : ndarray of float, shape (num_stages,), optional
        Those of the modules or layers that the layout says.

    Returns
    -------
    Offload or None

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.clusters.specs import LayoutSpec, load_system
    >>> offload = offload_of(build("stp", 2, 5), np.ones(4), LayoutSpec(offload=0.5), load_system("a800"))
    >>> offload.share[:, 0].tolist()
    [[0.5, 0.5, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]]
    """
    if not layout.offloads:
        return None
    later = layout.offload
    if layout.offloads_by_layer:
        later = np.divide(away_bytes, kept_bytes, out=np.zeros_like(kept_bytes), where=kept_bytes > 0)
    warm_up = later if layout.offload_warm_up is None else layout.offload_warm_up
    shares = np.stack(np.broadcast_arrays(warm_up, later, kept_bytes)[:2])[:, None]
    chunks = "all" if layout.offloads_by_layer else layout.offload_chunks
    part, chosen = {"first": 0, "half": 0.5}.get(chunks, 1), np.zeros(schedule.placement.shape, bool)
    for of_replica, ranks in zip(chosen, schedule.placement, strict=True):
        for rank in np.unique(ranks):
            stages = np.flatnonzero(ranks == rank)  # the earlier ones wait longer for their backwards
            of_replica[stages[: max(1, ceil(part * len(stages)))]] = True
    share = shares * (chosen & (kept_bytes > 0))
    seconds = share * kept_bytes / system.host_bandwidth_bytes_per_s
    if chunks == "fitting":
        share, seconds = (column * (2 * seconds <= _waits_s(schedule, compute_s)) for column in (share, seconds))
    return Offload(share, seconds)


def _waits_s(schedule, compute_s):
    """Mean seconds between forward and backward of a microbatch on each stage, by replica, if no rank ever idles."""
    seconds, number = compute_s[schedule.kind, schedule.stage], schedule.replica * schedule.num_stages + schedule.stage
    ends, means = np.cumsum(seconds), []  # of all ranks, one after another: only differences on a rank count
    for kinds, moments in (((OpKind.F,), ends), ((OpKind.B, OpKind.I), ends - seconds)):
        chosen = np.isin(schedule.kind, kinds)
        means.append(np.bincount(number[chosen], moments[chosen]) / np.bincount(number[chosen]))
    return (means[1] - means[0]).reshape(schedule.placement.shape)


def compute_seconds(halves_s, step_s):
    """Seconds of every kind of operation, by `OpKind`.

    Parameters
    ----------
    halves_s : sequence of ndarray of float, shape (num_stages,)
        Forward, input gradient and weight gradient.
    step_s : sequence of ndarray of float, shape (num_stages,)
        Reduction, gathering and optimizer step.

    Returns
    -------
    ndarray of float, shape (10, num_stages)
    """
    (forward, input_grad, weight_grad), (reduction, gather, optimizer) = halves_s, step_s
    backward, nothing = (input_grad + weight_grad, input_grad, weight_grad), 0 * reduction
    return np.array([forward, *backward, *[nothing] * 2, reduction, gather + optimizer, *[nothing] * 2])


def are_heads(layers):
    """Mask of the layers, as in `LayerWork`, that are loss heads."""
    return np.array([part in ("loss", "head") for part, _ in layers])


def without_heads(of_layers, layers):
    """Bytes from `layer_bytes` if the output layer is divided: its shards hold nothing from a forward to its backward.

    Parameters
    ----------
    of_layers : ndarray of float, shape (k * num_layers, 6)
        Of one run, or of k one after another.
    layers : list of (str, str)
        As in `LayerWork`.
    """
    heads = np.resize(are_heads(layers), len(of_layers))[:, None]
    return np.where(heads & (np.arange(of_layers.shape[1]) < 2), 0.0, of_layers)


def _divide_head(schedule, model, layers, of_layers, compute, latency):
    """Give S and T what shards of the loss head take, which their stages' operations then leave out.

    Their collectives pass results on: the last stage's to all ranks, then maxima and sums of the logits and the label's
    logit as under tensor parallelism (see `head_operations`), and the gradient of the layer's input. Ranks compute
    meanwhile if their next operation does not wait; in ``interlaced`` it does.

    The input layer is divided, too, as in the authors' code: each rank's forwards and backwards look up its words, for
    later microbatches, so that no barrier follows. Collectives for that are hidden.
    """
    layout = layers.work.layout
    layout = layout if layout.pp else unchecked(layout, pp=schedule.num_ranks)
    tokens = microbatch_sequences(schedule, model, layout) * model.sequence / layout.cp
    hidden = Collective("ring", "pipeline", message_bytes(schedule, model, layout))
    passes = hidden, Collective("all-reduce", "pipeline", 4 * tokens)
    passed_s, summed_s = (collective_s(each, layout, layers.system) for each in passes)
    heads = are_heads(layers.work.layers)
    forward, input_grad, weight_grad = (of_layers[:, heads] @ layers.seconds[heads].sum(axis=2)).T
    compute[: OpKind.S] -= forward, input_grad + weight_grad, input_grad, weight_grad
    last = np.isin(schedule.kind, (OpKind.B, OpKind.I)) & (schedule.stage == schedule.num_stages - 1)
    in_first = schedule.kind[schedule.dependencies.source[last][0]] == OpKind.S  # S has computed the gradient
    compute[OpKind.S] = forward + in_first * input_grad
    compute[OpKind.T] = weight_grad + (1 - in_first) * input_grad
    latency[OpKind.F, ..., -1] = latency[OpKind.T] = passed_s
    latency[OpKind.S] = 3 * summed_s + in_first * passed_s


def model_costs(schedule, model, system, layout=None):
    """Compute the costs of a model on a system.

    Parameters
    ----------
    schedule : Schedule
        Provides the stages, the microbatches of the table and the replicas.
    model : ModelSpec
        The first stage also has the embedding, and the last the loss head.
    system : SystemSpec
        One rank and its network link; if it has nodes, two ranks of one node use the link within it.
    layout : LayoutSpec, optional
        Complete, from `check_layout`, which nothing here repeats; see `stages`.

    Returns
    -------
    OpCosts
        In seconds, with the `Stages` they come from; with nodes, transfers also by replica. The all-reduce of a stage's
        gradients over r replicas is a ring: 2 (r-1)/r of their bytes at the bandwidth of its slowest link, plus 2 (r-1)
        of its latencies. With a layout, the collectives of data-parallel ranks follow, and the optimizer step with the
        gathering of parameters, unless the table gathers them.

    Raises
    ------
    CostError
        If the model does not fit the schedule: too few blocks, or a batch that does not divide.
    SpecificationError
        If the system lists nodes for a different number of ranks.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.clusters.specs import load_model, load_system
    >>> costs = model_costs(build("1f1b", 8, 64), load_model("paper"), load_system("mid_cp_slow_nw"))
    >>> bool(0.1 < costs.occupancy_s[0, 0] / costs.compute_s[0, 0] < 0.3), costs.stages.blocks[0]
    (True, np.int64(16))
    """
    system = system.timed
    layout = as_stages_compute(layout, schedule)
    layers = layers_of(model, microbatch_sequences(schedule, model, layout), system, layout)
    of_stages, links = _stages_of(schedule, model, layout, layers), pipeline_links(schedule, model, system, layout)
    halves_s = of_stages.forward_s, of_stages.input_grad_s, of_stages.weight_grad_s
    compute = compute_seconds(halves_s, (of_stages.reduction_s, of_stages.gather_s, of_stages.optimizer_s))
    transfers = transfer_costs(schedule, links)
    if schedule.has_shards:
        _divide_head(schedule, model, layers, of_stages.layers, compute, transfers[1])
    if schedule.gathers:
        compute[OpKind.O], compute[OpKind.G] = of_stages.optimizer_s, of_stages.gather_s
    if others := schedule.num_replicas - 1:
        volumes = 2 * others / schedule.num_replicas * of_stages.parameters * model.gradient_bytes
        compute[OpKind.R] += ring_s(volumes, schedule, system, links.nodes)
    units = pairs = ready = offload = None
    if schedule.slices > 1 or (layout is not None and layout.lengths != "equal"):
        compute, units = units_of(schedule, layout, layers, of_stages.layers, compute)
    if layout is not None:
        offload = offload_of(schedule, of_stages.activation_bytes, layout, system, compute, of_stages.away_bytes)
        if schedule.joined.any() and schedule.pairs.keys:
            early = layout.send_results == "when_ready"
            pairs, ready = pair_costs(schedule, of_stages.counts, compute.tolist(), layers.pair_times, early)
    return OpCosts(
        compute, *transfers, nics=links.nics, pairs=pairs, ready=ready, offload=offload, stages=of_stages,
        delay_s=links.delay_s, units=units,
    )  # fmt: skip


def cell_streams_of(schedule, model, system, layout):
    """Prepare what runs when on the two streams of a rank, for the cells of a table.

    Parameters
    ----------
    schedule, model, system, layout
        As in `model_costs`; with a layout.

    Returns
    -------
    callable or None
        Maps the operations of a cell, a tuple of (OpKind, stage) in order, to `units.CellStreams`; None if the layout
        has no collectives.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.ops import OpKind
    >>> from ppmodel.clusters.specs import LayoutSpec, load_model, load_system
    >>> run = build("stp", 2, 8), load_model("llama3_70b"), load_system("h100"), LayoutSpec(tp=8)
    >>> streams = cell_streams_of(*run)(((OpKind.F, 0),))
    >>> len(streams.compute), len(streams.comm)
    (42, 41)
    """
    layout = as_stages_compute(layout, schedule)
    layers = layers_of(model, microbatch_sequences(schedule, model, layout), system, layout)
    times = layers.pair_times
    if not times.exposes:
        return None
    counts = _stages_of(schedule, model, layout, layers).counts
    return cache(lambda cell: times.streams([(kind, counts[stage]) for kind, stage in cell]))
