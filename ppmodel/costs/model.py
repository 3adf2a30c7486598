"""Costs of a model on a system: stages from their kernels and collectives, transfers by Hockney's model."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from ppmodel.costs.block import block_operations, embedding_operations, head_operations, logits_bytes
from ppmodel.costs.checks import check_layout
from ppmodel.costs.data_parallel import Held, gather_s, microbatch_data_s, optimizer_s, reduction_s
from ppmodel.costs.held import kept_and_working, sizes_of
from ppmodel.costs.host import host_s, wait_for_host
from ppmodel.costs.offload import offload_of
from ppmodel.costs.pairs import PairTimes, contention, hidden_in_backward_s, list_units
from ppmodel.costs.partition import LayerTimes, StageLayers, microbatch_sequences, stage_layers
from ppmodel.costs.phases import AGAIN, INPUT_GRAD, PARTS, PARTS_THAT_HIDE, WEIGHT_GRAD, phase_seconds, phases_of
from ppmodel.costs.table import OpCosts
from ppmodel.costs.transfers import hockney_s, pipeline_links, ring_s, transfer_costs
from ppmodel.ops import OpKind

_LOSS = "softmax and loss"
_PARTS_KEPT, _CUTS_KEPT = 2**12, 2**8
_NUM_SECONDS = 3 * len(PARTS)


class Stage(NamedTuple):
    """Costs of one stage on one microbatch of the table, on one GPU of its rank.

    Parameters
    ----------
    blocks : int
        Transformer blocks in the stage.
    forward_s, input_grad_s, weight_grad_s : float
        Seconds; the input gradient includes recomputed forwards.
    activation_bytes : float
        Bytes kept from forward to backward.
    weight_grad_bytes : float
        Bytes kept from the input-gradient half of a backward to its weight-gradient half: the inputs of the dense
        layers and the gradients of their outputs, 32 sbh of a block (Qi et al., 2024, Table 1).
    parameters : float
        Number of parameters in the stage.
    expert_parameters : float
        The number among them that belong to experts.
    parts_s : tuple of tuple of float
        Seconds of forward and both halves of the backward, each by `PARTS`: kernels, and the exposed collectives of
        each group.
    reduction_s, gather_s, optimizer_s : float
        Seconds per iteration, in addition to microbatches: gradient reduction over data-parallel ranks that the last
        backward does not hide; gathering of updated parameters that no forward hides; and the optimizer step. 0 without
        a layout.
    working_bytes : float
        Bytes of a block's activations while it is recomputed.
    logits_bytes : float
        Bytes of the logits, except what the backward needs of them.
    """

    blocks: int
    forward_s: float
    input_grad_s: float
    weight_grad_s: float
    activation_bytes: float
    weight_grad_bytes: float
    parameters: float
    expert_parameters: float = 0.0
    parts_s: tuple = ()
    reduction_s: float = 0.0
    gather_s: float = 0.0
    optimizer_s: float = 0.0
    working_bytes: float = 0.0
    logits_bytes: float = 0.0


class Work(NamedTuple):
    """The lists of operations of a model: blocks, by kind and recomputation, embedding and head.

    Bytes (between the halves, of logits, of logits that the loss also keeps) and parameters have one entry per list.
    """

    phases: object
    sizes: object
    held: np.ndarray
    parameters: Held
    again: np.ndarray  # whether a list is a fully recomputed block


class _Lists(NamedTuple):
    """The costs of the lists of `work_of` on a system."""

    columns: np.ndarray  # (num_lists, 20): 15 seconds by F, I, W and part; 3 of bytes; 2 of parameters
    working: np.ndarray
    times: LayerTimes
    cuts: dict  # cache of stages made from them, by blocks, embedding and head


@dataclass(frozen=True, eq=False)
class _Cut:
    """The stages as columns; see `Stage`."""

    layers: StageLayers
    parts: np.ndarray  # seconds by stage, F I W, part
    compute: np.ndarray  # their sums, by F I W, stage
    bytes: np.ndarray  # kept, between the halves, logits, while recomputed; by stage
    parameters: Held

    @cached_property
    def stages(self):
        """Every `Stage`, without what occurs once per iteration."""
        seconds = np.concatenate([self.compute, self.bytes[:2], [sum(self.parameters), self.parameters.experts]])
        parts = [tuple(map(tuple, part)) for part in self.parts.tolist()]
        columns = self.layers.blocks.tolist(), seconds.T.tolist(), parts, self.bytes[:1:-1].T.tolist()
        return [
            Stage(blocks, *own, part, working_bytes=working, logits_bytes=logits)
            for blocks, own, part, (working, logits) in zip(*columns, strict=True)
        ]


def stages(schedule, model, system, blocks=None, layout=None):
    """Compute times and bytes of every stage of a model on a schedule.

    Parameters
    ----------
    schedule : Schedule
        Provides the stages and the microbatches of the table.
    model : ModelSpec
        The first stage also has the embedding, and the last the loss head.
    system : SystemSpec
        One GPU and its links.
    blocks : sequence of int, optional
        See `stage_blocks`.
    layout : LayoutSpec, optional
        How a rank is spread over GPUs; without it, a rank is one GPU, and the model's global batch is divided among the
        microbatches.

    Returns
    -------
    list of Stage, length num_stages
        In seconds and bytes, for one microbatch of the table.

    Raises
    ------
    CostError
        If the model does not fit the schedule: too few blocks, or a batch that does not divide.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.specs import load_model, load_system
    >>> [stage.blocks for stage in stages(build("gpipe", 4, 4), load_model("paper"), load_system("mid_cp_mid_nw"))]
    [32, 32, 32, 32]
    """
    layout = layout and check_layout(layout, model, system, schedule)
    cut = _cut(schedule, model, system, blocks, layout)
    if layout is None:
        return list(cut.stages)
    once = _once(cut, schedule, model, layout, system).T.tolist()
    names = "reduction_s", "gather_s", "optimizer_s"
    return [stage._replace(**dict(zip(names, own, strict=True))) for stage, own in zip(cut.stages, once, strict=True)]


def _cut(schedule, model, system, blocks, layout):
    """Divide the model into the stages of a schedule."""
    lists = _lists(model, microbatch_sequences(schedule, model, layout), system, layout)
    layers = stage_layers(schedule, model, blocks, layout, lists.times)
    key = layers.blocks.tobytes(), layers.embedding, layers.head
    if key not in lists.cuts:
        if len(lists.cuts) >= _CUTS_KEPT:
            lists.cuts.clear()
        lists.cuts[key] = _cut_lists(lists, layers, model, system, layout)
    return lists.cuts[key]


def _cut_lists(lists, layers, model, system, layout):
    counts = _counts(layers, model, layout)
    total = np.multiply.outer(counts[0], lists.columns[0])
    for count, column in zip(counts[1:], lists.columns[1:], strict=True):  # in order, so that sums are reproducible
        total += np.multiply.outer(count, column)
    working = (lists.working * (counts.T > 0)).max(axis=1)
    parts, own, parameters = np.split(total, (_NUM_SECONDS, _NUM_SECONDS + 3), axis=1)
    if system.kernels and system.kernels.stage_overhead_s:
        parts[:, [0, len(PARTS)]] += system.kernels.stage_overhead_s
    parts, held = parts.reshape(-1, 3, len(PARTS)), Held(*parameters.T)
    return _Cut(layers, parts, parts.sum(axis=2).T, np.array([*own.T, working]), held)


def _counts(layers, model, layout):
    """Number of occurrences of each list of `work_of` in each stage, shape (num_lists, num_stages)."""
    held = layers.blocks
    dense = np.clip(_dense_blocks(model) - (np.cumsum(held) - held), 0, held)
    kinds = [held - dense, dense] if _dense_blocks(model) else [held]
    recompute = _recompute(model, layout)
    if not isinstance(recompute, str):  # the first layers of a stage, of which dense ones come first
        again = [np.minimum(recompute, dense)]
        again = [np.minimum(recompute - again[0], held - dense), *again][: len(kinds)]
        kinds = [one for kind, part in zip(kinds, again, strict=True) for one in (part, kind - part)]
    ends = np.zeros((2, len(held)))
    ends[0, layers.embedding] = ends[1, layers.head] = 1
    return np.array([*kinds, *ends])


def _dense_blocks(model):
    """Number of leading blocks without experts, in a model with experts."""
    return model.dense_blocks if model.experts else 0


def _recompute(model, layout):
    return model.recompute if layout is None or layout.recompute is None else layout.recompute


@lru_cache(_PARTS_KEPT)
def work_of(model, sequences, layout):
    """The work of a block, the embedding and the head on a microbatch; the same for all schedules and systems."""
    given = model, sequences, layout
    kinds = [block_operations(*given)]
    if _dense_blocks(model):
        kinds.append(block_operations(*given, dense=True))
    recompute = _recompute(model, layout)
    modes = [recompute] if isinstance(recompute, str) else ["full", "none"]
    lists = [(kind, mode) for kind in kinds for mode in modes]
    lists += [(embedding_operations(*given), "none"), (head_operations(*given), "none")]
    between = [sum(one.weight_grad_bytes for one in operations) for operations, _ in lists]
    logits = [0.0] * (len(lists) - 1) + [logits_bytes(*given)]
    twice = [sum(one.saved_bytes for one in operations if one.name == _LOSS) for operations, _ in lists]
    counted = [
        [sum(one.parameters for one in operations if one.experts == expert) for operations, _ in lists]
        for expert in (False, True)
    ]
    again = np.array([mode == "full" for _, mode in lists])
    held = np.array([between, logits, twice])
    return Work(
        phases_of(*zip(*lists, strict=True)),
        sizes_of(lists, len(lists) - 2),
        held,
        Held(*map(np.array, counted)),
        again,
    )


def list_bytes(sizes, held, tp, system):
    """Bytes kept, bytes kept between the halves, and bytes of logits, shape (3, num_lists); and working bytes.

    `sizes` and `held` are a `Work`'s, or those of several side by side; `tp` is a number, or one for each list.
    """
    factors, (between, logits, twice) = system.memory, held
    kept, working = kept_and_working(sizes, factors)
    if factors is not None:
        logits = factors.logits_factor * logits
    if system.framework and system.framework.gathered_logits:
        logits = tp * logits
    return np.array([kept, between, np.maximum(logits - twice, 0.0)]), working


@lru_cache(_PARTS_KEPT)
def _lists(model, sequences, system, layout):
    """Seconds of each list of `work_of` on a system: F, I including recomputation, and W, by part."""
    work = work_of(model, sequences, layout)
    taken = phase_seconds(work.phases, system, layout)
    if system.kernels and system.kernels.block_host_s:
        host = host_s(model, sequences, system.kernels, layout)
        wait_for_host(taken[:-2], work.again[:-2], host, system.kernels.host_exponent)
    seconds = taken[:, :AGAIN]
    seconds[:, INPUT_GRAD] += taken[:, AGAIN]
    if layout is not None and layout.overlap_backward:
        halves = slice(INPUT_GRAD, WEIGHT_GRAD + 1)
        seconds[:, halves, PARTS.index("tensor")] -= hidden_in_backward_s(work.phases, system, layout)
    if layout is not None and layout.zero:
        busy_s = seconds[..., PARTS_THAT_HIDE].sum(axis=2)
        seconds[..., PARTS.index("data")] += microbatch_data_s(work.parameters, busy_s, model, layout, system)
    held, working = list_bytes(work.sizes, work.held, layout.tp if layout else 1, system)
    columns = np.concatenate([seconds.reshape(-1, _NUM_SECONDS), held.T, np.transpose(work.parameters)], axis=1)
    columns.flags.writeable = False
    return _Lists(columns, working, _layer_times(seconds.sum(axis=(1, 2)).tolist(), model, layout), {})


def _layer_times(seconds, model, layout):
    """The times to balance over stages; if only some layers are recomputed, a block is one that is not."""
    *blocks, embedding, head = seconds
    if not isinstance(_recompute(model, layout), str):
        blocks = blocks[1::2]
    dense = _dense_blocks(model)
    return LayerTimes(blocks[0], embedding, head, blocks[1] if dense else None, dense)


def _once(cut, schedule, model, layout, system):
    """Seconds per iteration in addition to microbatches, by stage: reduction, exposed gathering, optimizer step."""
    given = model, layout, system
    busy_s = cut.parts[..., PARTS_THAT_HIDE].sum(axis=2)
    last_s = (last_halves(schedule) * busy_s[:, 1:]).sum(axis=1) if layout.overlap_gradients else 0.0
    reduced = reduction_s(cut.parameters, last_s, *given) + _tied_s(cut.layers, schedule, *given)
    gathered = gather_s(cut.parameters, busy_s[:, 0], *given)
    step = optimizer_s(cut.parameters, *given)
    if system.kernels:
        step = step + system.kernels.iteration_overhead_s / schedule.chunks_per_rank
    return np.array([reduced, gathered, step])


def last_halves(schedule):
    """Which halves of a stage's backward produce the last gradients of its ranks; 0 for their other stages.

    The reductions of a rank run one after another: those of its other stages run meanwhile.

    Returns
    -------
    ndarray of bool, shape (num_stages, 2)
        For input and weight gradients; both for a full backward.
    """
    gradients = np.flatnonzero((schedule.kind == OpKind.B) | (schedule.kind == OpKind.W))
    last = np.zeros(schedule.num_ranks, dtype=int)
    last[schedule.rank[gradients]] = gradients  # the last one of each rank remains
    at_end = (schedule.stage[last][schedule.placement] == np.arange(schedule.num_stages)).all(axis=0)
    whole = (schedule.kind[last] == OpKind.B)[schedule.placement].all(axis=0)
    return np.column_stack([at_end & whole, at_end])


def _tied_s(layers, schedule, model, layout, system):
    """Seconds to sum both gradients of a tied embedding, on the first and last stages, by stage.

    A ring of two: all bytes pass once over the link between them (Megatron-LM's embedding group).
    """
    seconds = np.zeros(schedule.num_stages)
    first, last = schedule.placement[0, [layers.embedding, layers.head]]
    if model.tied_embeddings and model.vocabulary and first != last:
        volume = model.vocabulary / layout.tp * model.hidden * model.gradient_bytes
        nodes = pipeline_links(schedule, model, system, layout).nodes
        occupancy, latency = hockney_s(volume, system, inside=nodes is not None and bool(nodes[first] == nodes[last]))
        seconds[[layers.embedding, layers.head]] = occupancy + 2 * latency
    return seconds


def model_costs(schedule, model, system, blocks=None, layout=None):
    """Compute the costs of a model on a system.

    Parameters
    ----------
    schedule : Schedule
        Provides the stages, the microbatches of the table and the replicas.
    model : ModelSpec
        The first stage also has the embedding, and the last the loss head.
    system : SystemSpec
        One rank and its network link; if it has nodes, two ranks of one node use the link within it.
    blocks : sequence of int, optional
        See `stage_blocks`.
    layout : LayoutSpec, optional
        See `stages`.

    Returns
    -------
    OpCosts
        In seconds; with nodes, transfers also by replica. The all-reduce of a stage's gradients over r replicas is a
        ring: 2 (r-1)/r of their bytes at the bandwidth of its slowest link, plus 2 (r-1) of its latencies. With a
        layout, the collectives of data-parallel ranks follow, and the optimizer step with the gathering of parameters.

    Raises
    ------
    CostError
        If the model does not fit the schedule: too few blocks, or a batch that does not divide.
    SpecificationError
        If the system lists nodes for a different number of ranks.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.specs import load_model, load_system
    >>> costs = model_costs(build("1f1b", 8, 64), load_model("paper"), load_system("mid_cp_slow_nw"))
    >>> bool(0.1 < costs.occupancy_s[0, 0] / costs.compute_s[0, 0] < 0.3)
    True
    """
    layout = layout and check_layout(layout, model, system, schedule)
    cut = _cut(schedule, model, system, blocks, layout)
    forward, input_grad, weight_grad = cut.compute
    links = pipeline_links(schedule, model, system, layout)
    pairs, handed = _pairs(cut, schedule, model, layout, system) if layout else (None, None)
    compute = np.zeros((len(OpKind), schedule.num_stages))
    compute[: OpKind.R] = forward, input_grad + weight_grad, input_grad, weight_grad
    if others := schedule.num_replicas - 1:
        volumes = 2 * others / schedule.num_replicas * sum(cut.parameters) * model.gradient_bytes
        compute[OpKind.R] = ring_s(volumes, schedule, system, links.nodes)
    if layout is not None:
        reduction, gather, step = _once(cut, schedule, model, layout, system)
        compute[OpKind.R] += reduction
        compute[OpKind.O] = gather + step
    transfers = transfer_costs(schedule, links.nodes, links.between, links.inside)
    offload = layout and offload_of(schedule, cut.bytes[0], layout, system)
    return OpCosts(compute, *transfers, nics=links.nics, pairs=pairs, handed=handed, offload=offload)


def _pairs(cut, schedule, model, layout, system):
    """Factors of a table's pairs over the sum of their operations, and when their results are ready.

    The first is None if there is nothing to hide, the second if results are handed on at the end of a cell.
    """
    early = layout.hand_on == "when_ready"
    if not schedule.joined.any() or not schedule.pairs.keys:
        return None, None
    times = _pair_times(model, microbatch_sequences(schedule, model, layout), system, layout)
    if not (times.exposes or early):
        return None, None
    held = [tuple(column) for column in _counts(cut.layers, model, layout).astype(int).T.tolist()]
    seconds = [seconds.tolist() for seconds in (cut.compute[0], cut.compute[1] + cut.compute[2], *cut.compute[1:])]
    found, handed = {}, {}
    for key in schedule.pairs.keys:
        _, first, kind, second = key
        alone = seconds[OpKind.F][first] + seconds[kind][second]
        if times.exposes:
            found[key] = times.seconds(held[first], kind, held[second]) / alone if alone else 1.0
        if early:
            handed[key] = times.handed_on(held[first], kind, held[second])
    return found or None, handed or None


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
    >>> from ppmodel.specs import LayoutSpec, load_model, load_system
    >>> given = build("stp", 2, 8), load_model("llama3_70b"), load_system("h100"), LayoutSpec(tp=8)
    >>> streams = cell_streams_of(*given)(((OpKind.F, 0),))
    >>> len(streams.compute), len(streams.comm)
    (42, 41)
    """
    layout = check_layout(layout, model, system, schedule)
    times = _pair_times(model, microbatch_sequences(schedule, model, layout), system, layout)
    if not times.exposes:
        return None
    counts = _counts(_cut(schedule, model, system, None, layout).layers, model, layout).astype(int).T.tolist()
    return lru_cache(None)(lambda cell: times.streams([(kind, tuple(counts[stage])) for kind, stage in cell]))


@lru_cache(_PARTS_KEPT)
def _pair_times(model, sequences, system, layout):
    """The times of pairs, which follow from the contents of their stages."""
    seconds = _lists(model, sequences, system, layout).columns[:, :_NUM_SECONDS].reshape(-1, 3, len(PARTS))
    units = list_units(work_of(model, sequences, layout).phases, seconds, system, layout)
    *blocks, embedding, head = range(len(units))
    modes = 1 if isinstance(_recompute(model, layout), str) else 2
    kinds = [blocks[first : first + modes] for first in range(0, len(blocks), modes)]  # dense blocks are the last
    order = [embedding, *(one for kind in reversed(kinds) for one in kind), head]
    overhead_s = system.kernels.stage_overhead_s if system.kernels else 0.0
    return PairTimes(units, order, layout.pairing, contention(system), overhead_s, layout.overlap_backward)
