"""Work of a stage's data-parallel ranks: gradients, parameters and the optimizer step, by ZeRO stage.

ZeRO (Rajbhandari et al., 2020) shards the optimizer state (1), also gradients (2), and also weights (3) over the ranks
of a data group. Stage 0 all-reduces gradients. Stage 1 reduces and scatters them once, and gathers the updated
parameters, like Megatron-LM's distributed optimizer. From stage 2 on, no rank has room for all gradients, so every
microbatch reduces and scatters them; with stage 3, it also gathers the weights, once for the forward and once for the
backward. `as_stages_compute` says what differs where gathers are operations of the table.

Parameters are pairs of arrays, those of experts apart, because other groups of ranks share them: the parameters that
one GPU has of each layer or stage. Lines are `collective_line`'s of both groups, shape (2, 2) or (..., 2, 2).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ppmodel.clusters.costs.collectives import slowing
from ppmodel.clusters.specs import FORMATS, KernelSpec

SHARED_OPTIMIZER, SHARED_GRADIENTS, SHARED_WEIGHTS = 1, 2, 3
"""The ZeRO stages, by what is sharded."""


class Sharing(NamedTuple):
    """The shares of data-parallel ranks in the work on parameters; numbers, or arrays by the run of each stage.

    Parameters
    ----------
    zero : int
        ZeRO stage.
    ranks, expert_ranks : float
        Number of ranks with the same parameters, and with the same experts.
    overlap_gradients, overlap_parameters : bool
        Whether computation hides reductions, and gathering.
    weight_bytes, gradient_bytes, optimizer_bytes : float
        Bytes of each per parameter.
    cast_bytes : float
        Bytes that converting a weight to the number format moves: both copies are made once per iteration.
    reduction, gathering : int, shape (2,)
        Indices into the layers' lines, for gradients and for weights: of what is dense, and of experts.
    """

    zero: int
    ranks: float
    expert_ranks: float
    overlap_gradients: bool
    overlap_parameters: bool
    weight_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    cast_bytes: float = 0.0
    reduction: tuple = (0, 0)
    gathering: tuple = (0, 0)


def sharing_of(model, layout, lines):
    """The `Sharing` of a run; its collectives are added to the lines, which are numbered by kind, group and experts."""
    groups = "data", "expert-data" if model.experts else "data"
    kinds = "reduce-scatter" if layout.zero else "all-reduce", "all-gather"
    return Sharing(
        layout.zero, layout.data_gpus, layout.expert_replicas, bool(layout.overlap_gradients),
        bool(layout.overlap_parameters), model.element_bytes, model.gradient_bytes, model.optimizer_bytes,
        (kept := FORMATS[layout.precision or "bf16"].kept_bytes or 0.0) and model.element_bytes + 2 * kept,
        *np.array([[lines.setdefault((kind, group, (1, 1)), len(lines)) for group in groups] for kind in kinds]),
    )  # fmt: skip


def as_stages_compute(layout, schedule):
    """The layout by which stages compute: in a table with gathers, ZeRO 3 exchanges nothing in a microbatch.

    Operations of the table gather whole stages, and sum the gradients of all microbatches at once, which stay whole
    until then, as with ZeRO 1; what hides either is a matter of the table.
    """
    if layout is None or not schedule.gathers:
        return layout
    return replace(layout, zero=min(layout.zero, SHARED_OPTIMIZER), overlap_gradients=False, overlap_parameters=False)


def exchanged_s(parameters, lines, parameter_bytes):
    """Seconds of a collective on all parameters of a GPU; 0 if there are none."""
    seconds = 0.0
    for group, count in enumerate(parameters):
        if count.any():
            fixed, slope = lines[..., group, 0], lines[..., group, 1]
            seconds = seconds + np.where(count > 0, fixed + slope * parameter_bytes * count, 0.0)
    return seconds


def shares(parameters, sharing, from_stage):
    """Number of parameters for which a GPU keeps a quantity that ZeRO shards from a given stage on."""
    dense, experts = parameters
    return np.where(sharing.zero < from_stage, dense + experts, dense / sharing.ranks + experts / sharing.expert_ranks)


def persistent_bytes(stages, model, layout):
    """Bytes of weights, gradients and optimizer state of each stage on one of its GPUs.

    Parameters
    ----------
    stages : Stages
        From `costs.stages`, with the layout.
    model : ModelSpec
        Provides the bytes of each per parameter, which need not be whole numbers.
    layout : LayoutSpec
        Provides the ZeRO stage and the ranks that share.

    Returns
    -------
    list of ndarray of float, shape (num_stages,)
        Weights, gradients, optimizer state.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.clusters.costs import stages
    >>> from ppmodel.clusters.specs import LayoutSpec, load_model, load_system
    >>> schedule, model, layout = build("1f1b", 4, 8), load_model("llama3_70b"), LayoutSpec(pp=4, tp=8, dp=2, zero=1)
    >>> parts = persistent_bytes(stages(schedule, model, load_system("dgx_h100"), layout=layout), model, layout)
    >>> [round(float(part[1]) / 1e9, 1) for part in parts]
    [4.3, 8.6, 12.8]
    """
    parameters = stages.parameters - stages.expert_parameters, stages.expert_parameters
    return sharded_bytes(parameters, sharing_of(model, layout, {}))


def sharded_bytes(parameters, sharing):
    """Bytes of weights, gradients and optimizer state that a GPU keeps; see `persistent_bytes`."""
    least = SHARED_WEIGHTS, SHARED_GRADIENTS, SHARED_OPTIMIZER
    widths = sharing.weight_bytes, sharing.gradient_bytes, sharing.optimizer_bytes
    return [shares(parameters, sharing, stage) * width for stage, width in zip(least, widths, strict=True)]


def gathered_bytes(parameters, sharing):
    """Bytes that a GPU holds of a layer while it runs, beyond its own share of them.

    ZeRO 3 gathers the layer's weights; from stage 2 on, its gradients are whole until they are reduced and scattered.

    Parameters
    ----------
    parameters : pair of ndarray of float, shape (num_layers,)
    sharing : Sharing

    Returns
    -------
    ndarray of float, shape (num_layers,)

    Examples
    --------
    >>> sharing = Sharing(3, 8, 1, False, False, 2, 4, 12)
    >>> gathered_bytes((np.array([10.0]), np.array([5.0])), sharing).tolist()  # nobody else has the experts
    [60.0]
    """
    dense, experts = parameters
    shared = np.where(sharing.ranks > 1, dense, 0.0) + np.where(sharing.expert_ranks > 1, experts, 0.0)
    weights = np.where(sharing.zero >= SHARED_WEIGHTS, sharing.weight_bytes, 0.0)
    return shared * (weights + np.where(sharing.zero >= SHARED_GRADIENTS, sharing.gradient_bytes, 0.0))


def _beside_s(exchange_s, busy_s, lines, system):
    """Seconds that a collective adds to a computation: the exposed part, and what both lose while they run together.

    Experts' collectives slow kernels as much as those of the data group.
    """
    slower = slowing(lines[..., 0, 1], system)
    return np.maximum(exchange_s - busy_s, 0.0) + slower * np.minimum(exchange_s, busy_s)


def microbatch_data_s(parameters, busy_s, sharing, lines, system):
    """Seconds that ZeRO 2 and 3 traffic adds per microbatch, to the forward and both halves of the backward.

    Parameters
    ----------
    parameters : pair of ndarray of float, shape (num_layers,)
    busy_s : ndarray of float, shape (3, num_layers)
        Seconds of F, I and W (kernels, and tensor-parallel collectives that no kernel hides), which hide the traffic if
        the layout says so.
    sharing : Sharing
    lines : ndarray of float, shape (num_lines, 2)
    system : SystemSpec
        Says how much kernels and collectives slow each other down.

    Returns
    -------
    ndarray of float, shape (3, num_layers)
        By F, I, W.
    """
    gather = exchanged_s(parameters, lines[sharing.gathering], sharing.weight_bytes) * (sharing.zero >= SHARED_WEIGHTS)
    hides = busy_s[:2] * sharing.overlap_parameters
    scatter = exchanged_s(parameters, lines[sharing.reduction], sharing.gradient_bytes)
    left = np.maximum(busy_s[:2] - np.minimum(gather, hides), 0.0).sum(axis=0) + busy_s[2]  # of the next microbatch
    added = _beside_s(scatter, left * sharing.overlap_gradients, lines[sharing.reduction], system)
    return np.array([
        *_beside_s(gather, hides, lines[sharing.gathering], system), added * (sharing.zero >= SHARED_GRADIENTS)
    ])  # fmt: skip


def reduction_s(parameters, backward_s, sharing, lines, system):
    """Seconds that a stage's gradient reduction adds to its last backward, which hides it if allowed.

    Parameters
    ----------
    parameters : pair of ndarray of float, shape (num_stages,)
    backward_s : ndarray of float, shape (num_stages,)
        Duration of the operation that produces a rank's last gradients, a backward or its weight-gradient half:
        finished gradients are reduced while it computes the rest.
    sharing, lines, system
        As in `microbatch_data_s`.

    Returns
    -------
    ndarray of float, shape (num_stages,)
    """
    lines = lines[sharing.reduction]
    summed = exchanged_s(parameters, lines, sharing.gradient_bytes)
    return _beside_s(summed, sharing.overlap_gradients * backward_s, lines, system) * (sharing.zero < SHARED_GRADIENTS)


def gather_s(parameters, forward_s, sharing, lines, system):
    """Seconds that gathering a stage's updated parameters adds to its first forward, which hides it if allowed.

    Parameters and result are as in `reduction_s`, with the duration of one forward.
    """
    lines = lines[sharing.gathering]
    gathered = exchanged_s(parameters, lines, sharing.weight_bytes)
    once = (sharing.zero >= SHARED_OPTIMIZER) & (sharing.zero < SHARED_WEIGHTS)
    return _beside_s(gathered, sharing.overlap_parameters * forward_s, lines, system) * once


def optimizer_s(parameters, sharing, system):
    """Seconds of the optimizer step: a pass over memory that reads gradients, updates the state and writes weights.

    In another number format, weights are then converted.

    Parameters
    ----------
    parameters : pair of ndarray of float, shape (num_stages,)
    sharing : Sharing
    system : SystemSpec
        Provides memory bandwidth, its attainable fraction, and the latency of an operation.

    Returns
    -------
    ndarray of float, shape (num_stages,)
    """
    updated = shares(parameters, sharing, SHARED_OPTIMIZER)
    moved = updated * (sharing.gradient_bytes + 2 * sharing.optimizer_bytes + sharing.weight_bytes)
    spec, usual = system.kernels or KernelSpec(), system.memory_efficiency
    bandwidth = system.memory_bandwidth_bytes_per_s
    seconds = moved / (bandwidth * (spec.optimizer_efficiency or usual)) + system.memory_latency_s
    cast_s = sum(parameters) * sharing.cast_bytes / (bandwidth * (spec.cast_efficiency or usual))
    return np.where(updated > 0, seconds + cast_s, 0.0)
