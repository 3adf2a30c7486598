"""The layers of a model as columns: their kernels and collectives, and how long these take on a system.

A model has few different layers: the embedding, blocks (dense, or with experts; recomputed or not), and the head. What
a GPU does in each depends only on model and layout; its time on a system takes a few array operations. So a
calibration, or a sweep over systems, computes the work only once, and the layers of many runs may stand side by side.
"""

from collections import defaultdict
from copy import copy
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from ppmodel.clusters.costs import data_parallel, transformer
from ppmodel.clusters.costs.collectives import collective_line, slowing
from ppmodel.clusters.costs.data_parallel import Sharing, gathered_bytes, microbatch_data_s, sharing_of
from ppmodel.clusters.costs.pairs import PairTimes, hidden_in_backward_s
from ppmodel.clusters.costs.partition import LayerTimes
from ppmodel.clusters.costs.roofline import Kernels, by_run, kernels_s
from ppmodel.clusters.costs.work import NO_WORK, PARTS, GpuWork, Kernel, Phase, recompute_of
from ppmodel.clusters.specs import MemorySpec
from ppmodel.clusters.specs.entries import unchecked
from ppmodel.clusters.specs.formats import FORMATS
from ppmodel.clusters.specs.layout import DISPATCHERS
from ppmodel.clusters.specs.recompute import OFFLOADED, Module, again_of
from ppmodel.errors import CostError
from ppmodel.simulation.costs import LONGEST_S

NOTHING = -1
SPLITS = "tp", "cp", "ep", "expert_tp"  # which may differ among runs that are priced at once
BUSY = slice(0, 2)
"""The parts that hide data-parallel collectives: kernels, and tensor-parallel collectives on other links."""

BLOCKS = "dense", "block", "mtp"
_SCORES = Kernel.ATTENTION, Kernel.ATTENTION_BACKWARD, Kernel.BATCHED, Kernel.SOFTMAX, Kernel.FUSED_SOFTMAX
_FUSED_BY = 4
"""Megatron-LM's fused softmax needs a multiple of this number of heads, over all sequences on a GPU."""

_BACKWARD = {
    (Kernel.PRODUCT, Phase.WEIGHT_GRAD): Kernel.WEIGHT_PRODUCT,
    (Kernel.UNQUANTISED, Phase.WEIGHT_GRAD): Kernel.UNQUANTISED_WEIGHT,
    (Kernel.ATTENTION, Phase.INPUT_GRAD): Kernel.ATTENTION_BACKWARD,
}


class Exchanges(NamedTuple):
    """Collectives as columns, each of shape (num_collectives,).

    Parameters
    ----------
    line, slot, unit : ndarray of int
        Its line, an index in those of the layers; its layer, phase and part as one number; and its unit.
    beside, gradient : ndarray of int
        The kernel that it hides under; and of input that is gathered for a weight gradient, the product's kernel for
        the input gradient. `NOTHING` if there is none.
    volume : ndarray of float
        Bytes, as in `Collective`.
    """

    line: np.ndarray
    slot: np.ndarray
    unit: np.ndarray
    beside: np.ndarray
    gradient: np.ndarray
    volume: np.ndarray

    @property
    def phase(self):
        """The phase of each."""
        return self.slot // len(PARTS) % len(Phase)


class LayerColumns(NamedTuple):
    """Bytes and counts of layers as columns, with layers as the first axis.

    Parameters
    ----------
    activations : ndarray of float, shape (num_layers, 7)
        Bytes that the forward keeps, without scores and of scores; bytes that it drops, likewise; bytes of the
        layer's input where it keeps that alone; and kept bytes of what is offloaded layer by layer, likewise.
    backward : ndarray of float, shape (num_layers, 6)
        Bytes kept between the halves of the backward, those of logits, and of logits that the loss also keeps; bytes
        of weights in the number format beyond the model's, those of experts apart; and bytes that CUDA graphs of
        modules keep of each microbatch at the ends of a stage: a copy of its input and, in layers without
        experts, which graphs capture whole, its output, which a pipeline otherwise drops once it is sent (PyTorch's and
        Transformer Engine's make_graphed_callables have static inputs and outputs).
    parameters : ndarray of float, shape (num_layers, 2)
        Parameters that the GPU holds, and those of experts.
    launches : ndarray of float, shape (num_layers, 4, 7)
        What the host launches in each phase of a transformer block: 1 for the block; 1 for tensor parallelism; 1 for
        an unfused softmax; the GPUs of the tensor group, in a pipeline; kernels beyond those of a dense block; products
        whose operands are converted; in the gradient of the input, modules that run again by themselves.
    tp, gpus : ndarray of int, shape (num_layers,)
        GPUs that share the vocabulary, and those of a pipeline.
    """

    activations: np.ndarray
    backward: np.ndarray
    parameters: np.ndarray
    launches: np.ndarray
    tp: np.ndarray
    gpus: np.ndarray


class LayerWork(NamedTuple):
    """The work of one GPU in each layer for a microbatch; the same on all systems.

    Parameters
    ----------
    layers : list of (str, str)
        Part of the model, ``embedding``, ``dense``, ``block``, ``mtp``, ``loss`` (of an MTP layer) or ``head``, and its
        recomputation; in the order in which a stage has them.
    dense_blocks, mtp_layers : int
        Leading blocks that are ``dense``, and multi-token-prediction layers.
    kernels : Kernels
        All kernels, with their slots and units.
    exchanges : Exchanges
    units : list of int
        The units in which halves begin, forward and backward of each layer in turn, of the first run; and the number of
        units.
    lines : list of (str, str, int, LayoutSpec)
        Kinds, groups and experts of collectives that occur, and whose.
    sizes : LayerColumns
    sharing : Sharing or None
        None without a layout; numbers, or arrays by layer.
    layout : LayoutSpec
        Of several runs, any: they agree in precision, and no backward hides its collectives.
    """

    layers: list
    dense_blocks: int
    mtp_layers: int
    kernels: Kernels
    exchanges: Exchanges
    units: list
    lines: list
    sizes: LayerColumns
    sharing: Sharing | None
    layout: object

    @property
    def shape(self):
        """Numbers of layers, phases and parts."""
        return len(self.layers), len(Phase), len(PARTS)


def layer_work(model, sequences, layout=None):
    """Compute the work of one GPU in each layer of a model, in the forward and the backward of one microbatch.

    Parameters
    ----------
    model : ModelSpec
    sequences : float
        Sequences per microbatch, b.
    layout : LayoutSpec, optional
        Complete; how layers are split over GPUs, and what is recomputed.

    Returns
    -------
    LayerWork

    Examples
    --------
    >>> from ppmodel.clusters.specs import load_model
    >>> work = layer_work(load_model("paper"), 1)
    >>> work.layers, np.bincount(work.kernels.slot).tolist()
    ([('embedding', 'none'), ('block', 'none'), ('head', 'none')], [0, 0, 0, 0, 13, 13, 6])
    """
    if layout is None:
        return _work(model, sequences, None)
    work = _work(model, sequences, _alike(layout))
    gpus = np.full(len(work.layers), (layout.pp or 1) * layout.rank_gpus)
    return work._replace(
        lines=[(*line[:-1], layout) for line in work.lines], sharing=sharing_of(model, layout, {}), layout=layout,
        sizes=work.sizes._replace(gpus=gpus),
    )  # fmt: skip


def _alike(layout, **more):
    """A layout that stands for all whose layers have the same work, whatever their links."""
    free = {"microbatch_size": 1, "dp": 1, "gpus": None, "global_batch": None, "overlap_backward": None}
    free |= {"overlap_gradients": None, "zero": min(layout.zero, 1), "pp": layout.pp and min(layout.pp, 2)}
    return unchecked(layout, **free | more)


@lru_cache(2**12)
def _work(model, sequences, layout):
    gpu, operations = GpuWork.of(model, sequences, layout), transformer.layer_operations(model, sequences, layout)
    recompute = recompute_of(model, layout)
    modes = [recompute] if isinstance(recompute, str) else ["full", "none"]
    modes = dict.fromkeys(BLOCKS, modes)
    layers = [(part, mode) for part in operations for mode in modes.get(part, ["none"])]
    lines = {}
    sharing = layout and sharing_of(model, layout, lines)
    items = _items([(operations[part], mode) for part, mode in layers], lines, gpu.layout)
    numbers = transformer.layer_numbers(model)
    return LayerWork(
        layers, numbers["dense"], numbers["mtp"], *items, [(*line, gpu.layout) for line in lines],
        _sizes(layers, operations, gpu), sharing, gpu.layout,
    )  # fmt: skip


def split_works(model, layout, splits):
    """The `LayerWork` of a layout in several splits into microbatches and over groups, the columns' first axis.

    Parameters
    ----------
    model : ModelSpec
    layout : LayoutSpec
        Complete; any with one of the splits.
    splits : ndarray of float, shape (num_splits, 1 + len(SPLITS))
        Sequences per microbatch, and the sizes of `SPLITS`, each 1 in all or in none; all have several experts on a
        GPU, or none has.

    Returns
    -------
    LayerWork
    """
    sequences, *sizes = splits.T
    tp, cp, ep, etp = (size if size[0] > 1 else 1 for size in sizes)
    return _work.__wrapped__(model, sequences, _alike(layout, tp=tp, cp=cp, ep=ep, etp=etp, zero=1))


def layer_works(model, work, split, layouts, layout):
    """The `LayerWork` of several runs side by side, which have the same layers and kernels in other sizes.

    Parameters
    ----------
    model : ModelSpec
    work : LayerWork
        From `split_works`.
    split : ndarray of int, shape (num_runs,)
        The split of each run, a place in its columns.
    layouts : list of LayoutSpec
        Complete. They differ only in `SPLITS`, ``dp`` and ``pp`` (1 in all or in none), and in what layers do not
        depend on.
    layout : ndarray of int, shape (num_runs,)
        The layout of each run, a place in the list.

    Returns
    -------
    LayerWork
        The layers of the first run, then those of the second, and so on.
    """
    kernels, exchanges, num_layers, run = work.kernels, work.exchanges, len(work.layers), np.arange(len(split))
    line = layout[:, None] * len(work.lines) + np.arange(len(work.lines))

    def of_runs(column, axes=1, step=0):
        columns = column[split] if column.ndim > axes else np.broadcast_to(column, (len(split), *column.shape))
        return (columns + step * run[:, None] if step else columns).reshape(-1, *column.shape[column.ndim - axes + 1 :])

    def beside(column):
        return np.where(of_runs(column) == NOTHING, NOTHING, of_runs(column, step=len(kernels.slot)))

    slots, each = num_layers * len(Phase), np.repeat(layout, num_layers)
    sizes = [of_runs(column, axes) for column, axes in zip(work.sizes, (2, 2, 2, 3), strict=False)]
    numbers = zip(*(sharing_of(model, one, {})[:-2] for one in layouts), strict=True)
    sharing = [np.array(column)[each] for column in numbers]
    shared = (line[:, column].repeat(num_layers, axis=0) for column in work.sharing[-2:])
    return work._replace(
        layers=work.layers * len(split), units=[*work.units[:-1], len(split) * work.units[-1]],
        kernels=Kernels(
            *map(of_runs, kernels[:-2]), of_runs(kernels.slot, step=slots), of_runs(kernels.unit, step=work.units[-1])
        ),
        exchanges=Exchanges(
            line[:, exchanges.line].ravel(), of_runs(exchanges.slot, step=slots * len(PARTS)),
            of_runs(exchanges.unit, step=work.units[-1]), beside(exchanges.beside), beside(exchanges.gradient),
            of_runs(exchanges.volume),
        ),
        lines=[(*line[:-1], one) for one in layouts for line in work.lines],
        sizes=LayerColumns(*sizes, *np.array([(one.tp, one.gpus) for one in layouts])[each].T),
        sharing=Sharing(*sharing, *shared), layout=layouts[0],
    )  # fmt: skip


def _items(listed, lines, layout):
    """Kernels, collectives, and where units begin; adds new kinds of collectives to `lines`."""
    kernels, exchanges, units, unit = [], [], [0], 0
    for layer, (operations, recompute) in enumerate(listed):
        unit_of, numbers = {}, {}  # by phase and operation
        for half in _halves(operations, recompute):
            for phase, index in half:
                unit_of[phase, index] = unit
                unit += operations[index].kernel is None and phase != Phase.WEIGHT_GRAD
            unit += 1
            units.append(unit)
        for phase, index in sorted(unit_of, key=lambda item: (operations[item[1]].kernel is None, item)):
            operation, slot = operations[index], layer * len(Phase) + phase
            if operation.kernel is not None:
                numbers[phase, index] = len(kernels)
                of_unit = slot, unit_of[phase, index]
                kernels.append((*_kernel(operation, phase), *of_unit))
                for kernel, moved in operation.casts.get(phase, {}).items():
                    launches = operation.count * (kernel == Kernel.CAST)
                    kernels.append((0.0, moved, kernel, np.inf, np.inf, launches, *of_unit))
                continue
            kind, group, num_bytes, drawn = operation.collectives[phase]
            user = _user(operations, index, phase, numbers)
            hides = kind == "ring" or group == "expert" or (group == "tensor" and layout.overlap_tensor)
            beside = numbers.get((phase, user), NOTHING) if hides else NOTHING
            gradient = numbers.get((Phase.INPUT_GRAD, user), NOTHING) if phase == Phase.WEIGHT_GRAD else NOTHING
            line = lines.setdefault((kind, group, drawn), len(lines))
            slot = slot * len(PARTS) + PARTS.index(group.removesuffix("-tensor"))
            exchanges.append((line, slot, unit_of[phase, index], beside, gradient, num_bytes))
    *columns, volume = zip(*exchanges, strict=True) if exchanges else [()] * len(Exchanges._fields)
    exchanges = Exchanges(*(np.array(column, dtype=np.intp) for column in columns), by_run(volume))
    return Kernels.of(kernels), exchanges, units


def _halves(operations, recompute):
    """Phase and operation of all that a layer runs in its forward, and in its backward, in order.

    The backward goes through the operations in reverse, each with its weight gradient. What runs again does so before
    the gradient of its last operation.
    """
    does = [[op.works[phase] is not NO_WORK or op.collectives[phase] for phase in Phase] for op in operations]
    forward = [index for index in range(len(operations)) if does[index][Phase.FORWARD]]
    modules = again_of(recompute)
    again = [index for index in forward if operations[index].module in modules]
    backward = []
    for index in reversed(range(len(operations))):
        if index in again[-1:]:
            backward += [(Phase.RECOMPUTE, other) for other in again]
        backward += [(phase, index) for phase in (Phase.WEIGHT_GRAD, Phase.INPUT_GRAD) if does[index][phase]]
    return [(Phase.FORWARD, index) for index in forward], backward


def _kernel(operation, phase):
    """The row of `Kernels` of an operation in a phase."""
    rows, width = np.inf, np.inf
    if operation.kernel == Kernel.ATTENTION:
        rows = operation.shape[2]
    elif operation.kernel in (Kernel.PRODUCT, Kernel.UNQUANTISED):
        m, n, k = operation.shape
        rows, width = (m, np.minimum(n, k)) if phase != Phase.WEIGHT_GRAD else (k, np.minimum(n, m))
    kernel = _BACKWARD.get((operation.kernel, phase), operation.kernel)
    return *operation.works[phase], kernel, rows, width, operation.count


def _user(operations, index, phase, kernels):
    """The operation that may hide a collective: its product, attention that a ring feeds, a shared expert; or None."""
    exchange, users = operations[index], [other for other in range(len(operations)) if (phase, other) in kernels]
    kind, group, *_ = exchange.collectives[phase]
    if kind == "ring":
        users = [other for other in users if operations[other].kernel == Kernel.ATTENTION]
    elif group == "expert":
        users = [other for other in users if operations[other].is_product and operations[other].module == Module.SHARED]
        users = users[:1] if exchange.name.endswith("to experts") else users[1:]
    else:
        forward = exchange.forward_comm  # Megatron-LM's f comes before its products, g after them
        is_before = forward.kind == "all-gather" if forward else exchange.input_grad_comm is not None
        can_hide = group == "tensor" and exchange.can_hide
        users = [other for other in users if can_hide and operations[other].is_product and (other > index) == is_before]
    return min(users, key=lambda other: abs(other - index), default=None)


def _sizes(layers, operations, gpu):
    """The bytes, parameters and launches of layers."""
    model, layout, tp, run = gpu.model, gpu.layout, gpu.tp, (gpu.model, gpu.sequences, gpu.layout)
    refused = model.attention == "materialised" and gpu.sequences * model.heads / tp % _FUSED_BY > 0
    offloaded = tuple(start for name in layout.offloaded for start in OFFLOADED[name])
    offloaded = offloaded or ("",) * layout.offloads_by_layer  # all
    rows, launches = [], np.zeros((*np.shape(gpu.sequences), len(layers), len(Phase), 7))
    graphs = (1 if model.experts else 2) * (layout.cuda_graphs == "modules")
    held_ends = graphs * model.element_bytes * gpu.stream * model.hidden
    kept = FORMATS[layout.precision or "bf16"].kept_bytes
    copied = 0.0 if kept is None or layout.quantised_weights in (None, "none") else 2 * kept  # by rows and by columns
    copied -= model.element_bytes * (copied > 0 and layout.quantised_weights == "alone")
    piped, gpus = tp if gpu.is_split and (layout.pp or 1) > 1 else 0, np.max((layout.pp or 1) * layout.rank_gpus)
    dense = transformer.block_operations(*run, dense=True) if model.experts else []
    plain = sum(operation.count for operation in dense if operation.kernel is not None)
    for layer, (part, recompute) in enumerate(layers):
        kernels, again = [op for op in operations[part] if op.kernel is not None], again_of(recompute)
        # what is saved of an input that is made again is dropped; the first operation's is the layer's
        is_whole = None in again  # otherwise the output of attention is kept, and the stream behind a dropout
        makers = again if is_whole else [module for module in again if module not in (Module.SCORES, Module.DROPOUT)]
        inputs = [is_whole, *(op.module in makers for op in kernels)]
        saved, scores, away = [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]  # kept and dropped; without scores and of scores
        for op, is_made_again in zip(kernels, inputs, strict=False):
            if op.module == Module.DROPOUT:  # keeps its own mask, and no input
                is_made_again = op.module in again
            saved[is_made_again] += op.saved_bytes
            scores[op.module in again] += op.core_bytes
            if part in BLOCKS and op.name.startswith(offloaded):
                away[0] += 0.0 if is_made_again else op.saved_bytes
                away[1] += 0.0 if op.module in again else op.core_bytes
        rows.append((
            saved[0], scores[0], saved[1], scores[1], kernels[0].saved_bytes if is_whole else 0.0, *away,
            sum(op.weight_grad_bytes for op in kernels), transformer.logits_bytes(*run) if part == "head" else 0.0,
            sum(op.saved_bytes for op in kernels if op.kernel == Kernel.LOSS),
            *(copied * sum(op.parameters for op in kernels if op.kernel == Kernel.PRODUCT and op.experts == experts)
              for experts in (False, True)),
            held_ends if part in BLOCKS else 0.0,
            *(sum(op.parameters for op in kernels if op.experts == experts) for experts in (False, True)),
        ))  # fmt: skip
        if part in BLOCKS:
            added = sum(op.count for op in kernels) - plain if dense else 0
            casts = sum(bool(op.casts) for op in kernels)
            phases = slice(len(Phase) if None in again else int(Phase.RECOMPUTE))
            launches[..., layer, phases, :6] = by_run((1.0, tp > 1, refused, piped, added, casts))[..., None, :]
            modules = {op.module for op in kernels} & {*again}
            launches[..., layer, Phase.INPUT_GRAD, 6] = 0 if is_whole else len(modules)
    columns = np.split(np.stack(np.broadcast_arrays(*map(by_run, rows)), axis=-2), (7, 13), axis=-1)
    return LayerColumns(*columns, launches, *np.full((2, len(layers)), [[np.max(tp)], [gpus]]))


class LayerCosts:
    """The layers of a model on a system: their seconds and bytes.

    Parameters
    ----------
    work : LayerWork
        Of one run, or those of several runs side by side.
    system : SystemSpec
        Provides kernels and links.

    Attributes
    ----------
    lines : ndarray of float, shape (num_lines, 2)
        Of each line, fixed seconds and seconds per byte.
    kernel_s, exposed_s : ndarray of float, shape (num_kernels,) and (num_collectives,)
        Seconds of each kernel; exposed seconds of each collective.
    host_s : ndarray of float, shape (num_layers, 4)
        Seconds that the host takes to launch each phase of a block with experts; 0 of other layers.
    seconds : ndarray of float, shape (num_layers, 3, num_parts)
        By forward, input gradient (with recomputed forwards) and weight gradient, and by part.
    stages : dict
        The `Stages` made of them so far.
    """

    @np.errstate(over="ignore", invalid="ignore")  # what overflows is refused at the end
    def __init__(self, work, system):
        self.work, self.system, self.stages = work, system, {}
        self.host_s = np.zeros(work.shape[:2])
        lines = [collective_line(*line[:2], line[3], system, line[2]) for line in work.lines]
        self.lines = np.array(lines, dtype=float).reshape(-1, 2)
        self.kernel_s = kernels_s(work.kernels, system, work.layout.precision or "bf16")
        if system.kernels and system.kernels.node_spread:
            nodes = work.sizes.gpus / (system.nodes.devices_per_node if system.nodes else 1)
            slowest = 1 + system.kernels.node_spread * np.sqrt(2 * np.log(np.maximum(nodes, 1)))
            self.kernel_s *= slowest[work.kernels.slot // len(Phase)]
        exchanges, shape = work.exchanges, work.shape
        alone_s = self.lines[exchanges.line, 0] + self.lines[exchanges.line, 1] * exchanges.volume
        beside, framework = exchanges.beside, system.framework
        if not (framework and framework.overlap_shared and work.layout.dispatcher in (None, DISPATCHERS[0])):
            beside = np.where(exchanges.slot % len(PARTS) == PARTS.index("expert"), NOTHING, beside)
        beside_s = np.append(self.kernel_s, 0.0)[beside]  # NOTHING is the last
        self.exposed_s = np.maximum(alone_s - beside_s, 0.0)
        slowed_s = slowing(self.lines[exchanges.line, 1], system) * np.minimum(alone_s, beside_s)
        np.add.at(self.kernel_s, beside, slowed_s)  # 0 beside NOTHING
        by_phase = np.bincount(exchanges.slot, self.exposed_s, np.prod(shape)).reshape(shape).astype(float)
        by_phase[..., 0] += np.bincount(work.kernels.slot, self.kernel_s, np.prod(shape[:2])).reshape(shape[:2])
        self.seconds = seconds = by_phase[:, : Phase.RECOMPUTE]
        if work.layout.overlap_backward:
            seconds[:, Phase.INPUT_GRAD :, PARTS.index("tensor")] -= hidden_in_backward_s(self)
        if system.kernels and work.layout.cuda_graphs in (None, "none"):  # after the overlaps, so none is hidden twice
            self.host_s = _wait_for_host(by_phase, work.sizes, system)
        seconds[:, Phase.INPUT_GRAD] += by_phase[:, Phase.RECOMPUTE]
        if work.sharing is not None and np.max(work.sharing.zero) > 1:
            busy_s, parameters = seconds[..., BUSY].sum(axis=2).T, work.sizes.parameters.T
            data_s = microbatch_data_s(parameters, busy_s, work.sharing, self.lines, system)
            seconds[..., PARTS.index("data")] += data_s.T
        if not seconds.max(initial=0.0) <= LONGEST_S:  # also true of NaN, which cannot be balanced
            rule = f"make a layer take more than {LONGEST_S:g} seconds"
            raise CostError("constants of the system", system.name, rule, "check its rates, latencies and exponents")

    def run(self, number, count):
        """The costs of one of several runs, as far as `pair_times` needs them."""

        def of_run(column):
            return column[number * len(column) // count : (number + 1) * len(column) // count]

        run, work, columns = copy(self), self.work, (self.kernel_s, self.exposed_s, self.seconds, self.host_s)
        run.kernel_s, run.exposed_s, run.seconds, run.host_s = map(of_run, columns)
        kernels = work.kernels._make(column[: len(self.kernel_s) // count] for column in work.kernels)
        exchanges = work.exchanges._make(column[: len(self.exposed_s) // count] for column in work.exchanges)
        units = [*work.units[:-1], work.units[-1] // count]
        run.work = work._replace(units=units, kernels=kernels, exchanges=exchanges)
        return run

    @cached_property
    def times(self):
        """The `LayerTimes` to balance over stages: of blocks that are not recomputed, if only some are."""
        return self.times_of(self.work.layers, self.seconds.sum(axis=(1, 2)).tolist())

    def times_of(self, layers, layers_s):
        """The `LayerTimes` of some layers, from the seconds of each."""
        seconds = defaultdict(float, zip((part for part, _ in layers), layers_s, strict=True))
        ends = seconds["embedding"], seconds["head"] + self.work.mtp_layers * (seconds["mtp"] + seconds["loss"])
        return LayerTimes(seconds["block"], *ends, seconds["dense"], self.work.dense_blocks)

    @cached_property
    def bytes(self):
        """Bytes kept for the backward and between its halves, of logits, weights' copies, work, and ends of a stage."""
        return layer_bytes(self.work.sizes, self.work.sharing, self.system)

    @property
    def offloaded_bytes(self):
        """Bytes of what is offloaded layer by layer, shape (num_layers,)."""
        factors = self.system.memory or MemorySpec()
        return self.work.sizes.activations[:, 5:] @ [factors.activation_factor, factors.score_factor]

    @cached_property
    def attention_s(self):
        """Seconds of attention by layer and forward, input gradient (with recomputed forwards) and weight gradient."""
        kernels, shape = self.work.kernels, (len(self.seconds), len(Phase))
        seconds = np.where(np.isin(kernels.kernel, _SCORES), self.kernel_s, 0.0)
        by_phase = np.bincount(kernels.slot, seconds, np.prod(shape)).reshape(shape)
        by_phase[:, Phase.INPUT_GRAD] += by_phase[:, Phase.RECOMPUTE]
        return by_phase[:, : Phase.RECOMPUTE]

    @cached_property
    def pair_times(self):
        """The `PairTimes` of stages with these layers; each is computed once."""
        return PairTimes(self)


def layers_of(model, sequences, system, layout=None):
    """The `LayerCosts` of a model on a system; parameters as in `layer_work`.

    Layouts that differ only in what layers do not depend on share them.
    """
    if layout is not None:
        recompute = layout.recompute if isinstance(layout.recompute, str | None) else 1
        layout = unchecked(layout, chunks=None, layers="even", global_batch=None, recompute=recompute)
    return _layers_of(model, sequences, system.timed, layout)


@lru_cache(2**12)
def _layers_of(model, sequences, system, layout):
    return LayerCosts(layer_work(model, sequences, layout), system)


def _wait_for_host(seconds, sizes, system):
    """Stretch, in place, the phases of blocks that the host launches more slowly than the device runs them.

    With p the host's exponent, a phase takes (device^p + host^p)^(1/p). Returns the host's seconds of those phases of
    blocks that have experts, but for casts and what runs again.
    """
    spec, gpus_per_node = system.kernels, system.nodes.devices_per_node if system.nodes else 1
    blocks, tensor, softmax, piped, added, casts, modules = np.moveaxis(sizes.launches, -1, 0)
    piped = piped * (sizes.gpus > gpus_per_node)[:, None]
    host = spec.block_host_s * blocks + spec.tensor_host_s * tensor + spec.softmax_host_s * softmax
    launched = host + spec.piped_tensor_host_s * piped + spec.expert_host_s * added
    host = launched + spec.cast_host_s * casts + spec.module_host_s * modules
    device, power = seconds.sum(axis=2), spec.host_exponent
    longest = np.maximum(np.maximum(device, host), np.finfo(float).tiny)
    stretched = longest * ((device / longest) ** power + (host / longest) ** power) ** (1 / power)
    seconds[..., 0] += np.where((device > 0) & (host > 0), stretched - device, 0.0)
    return np.where(added > 0, launched, 0.0)


def layer_bytes(sizes, sharing, system):
    """The bytes of layers, shape (num_layers, 6), as `LayerCosts` has them, with the factors of a system's memory."""
    factors = system.memory or MemorySpec()
    kept, kept_scores, dropped, dropped_scores, entry = sizes.activations.T[:5]
    between, logits, in_loss, *copies, ends = sizes.backward.T
    factor = np.where(sizes.launches[:, 0, 0], factors.activation_factor, 1.0)
    kept = factor * kept + factors.score_factor * kept_scores + entry
    working = factors.working_factor * (factor * dropped + factors.score_factor * dropped_scores - entry)
    logits = factors.logits_factor * logits
    if system.framework and system.framework.gathered_logits:
        logits = sizes.tp * logits
    if sharing is not None:
        working = working + gathered_bytes(sizes.parameters.T, sharing)
        copies = [data_parallel.shares(copies, sharing, data_parallel.SHARED_WEIGHTS)]
    return np.column_stack([kept, between, np.maximum(logits - in_loss, 0.0), sum(copies), working, ends])
