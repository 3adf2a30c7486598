"""Work of a stage's data-parallel ranks: gradients, parameters and the optimizer step, by ZeRO stage.

ZeRO (Rajbhandari et al., 2020) shards the optimizer state (1), also gradients (2), and also weights (3) over the ranks
of a data group. Stage 0 all-reduces gradients. Stage 1 reduces and scatters them once, and gathers the updated
parameters, like Megatron-LM's distributed optimizer. From stage 2 on, no rank has room for all gradients, so every
microbatch reduces and scatters them; with stage 3, it also gathers the weights, once for the forward and once for the
backward.
"""

from typing import NamedTuple

import numpy as np

from ppmodel.costs.collectives import collective_line

SHARED_OPTIMIZER, SHARED_GRADIENTS, SHARED_WEIGHTS = 1, 2, 3
"""The ZeRO stages, by what is sharded."""


class Held(NamedTuple):
    """Parameters that one GPU holds, with those of experts separate, because different groups of ranks share them."""

    dense: np.ndarray
    experts: np.ndarray


def shared_s(kind, parameters, parameter_bytes, layout, system):
    """Compute the seconds of a data-parallel collective on all parameters of a GPU.

    Parameters
    ----------
    kind : str
        As in `Collective`.
    parameters : Held
        Of one GPU.
    parameter_bytes : float
        Bytes moved per parameter.
    layout : LayoutSpec
    system : SystemSpec

    Returns
    -------
    ndarray of float
        In seconds, in the shape of the parameters; 0 if there are none.
    """
    total = 0.0
    for held, group in zip(parameters, ("data", "expert-data"), strict=True):
        fixed, slope = collective_line(kind, group, layout, system)
        held = np.asarray(held)
        total = total + np.where(held > 0, fixed + slope * parameter_bytes * held, 0.0)
    return total


def shares(parameters, layout, from_stage):
    """Number of parameters for which a GPU keeps a quantity that ZeRO shards from a given stage on.

    Parameters
    ----------
    parameters : Held
        Of one GPU.
    layout : LayoutSpec
    from_stage : int
        1 for the optimizer state, 2 for gradients, 3 for weights.

    Returns
    -------
    ndarray of float
        Number of parameters.
    """
    if layout.zero < from_stage:
        return parameters.dense + parameters.experts
    data = layout.dp * layout.cp
    return parameters.dense / data + parameters.experts / (data / layout.ep)


def persistent_bytes(stages, model, layout):
    """Bytes of weights, gradients and optimizer state of each stage on one of its GPUs.

    Parameters
    ----------
    stages : list of Stage
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
    >>> from ppmodel.costs import stages
    >>> from ppmodel.specs import LayoutSpec, load_model, load_system
    >>> schedule, model, layout = build("1f1b", 4, 8), load_model("llama3_70b"), LayoutSpec(pp=4, tp=8, dp=2, zero=1)
    >>> held = persistent_bytes(stages(schedule, model, load_system("dgx_h100"), layout=layout), model, layout)
    >>> [round(float(part[1]) / 1e9, 1) for part in held]
    [4.3, 8.6, 12.8]
    """
    experts = np.array([stage.expert_parameters for stage in stages])
    held = Held(np.array([stage.parameters for stage in stages]) - experts, experts)
    widths = model.element_bytes, model.gradient_bytes, model.optimizer_bytes
    sharing = SHARED_WEIGHTS, SHARED_GRADIENTS, SHARED_OPTIMIZER
    return [shares(held, layout, least) * width for width, least in zip(widths, sharing, strict=True)]


def microbatch_data_s(parameters, busy_s, model, layout, system):
    """Exposed seconds of ZeRO 2 and 3 traffic per microbatch, in the forward and both halves of the backward.

    Parameters
    ----------
    parameters : Held
        Of one GPU, by part of the model.
    busy_s : ndarray of float, shape (num_lists, 3)
        Seconds of F, I and W (kernels, and tensor-parallel collectives that no kernel hides), which hide the traffic if
        the layout says so.
    model : ModelSpec
    layout : LayoutSpec
    system : SystemSpec

    Returns
    -------
    ndarray of float, shape (num_lists, 3)
        By part of the model and F, I, W.
    """
    exposed, hidden = np.zeros((len(parameters.dense), 3)), 0.0
    if layout.zero >= SHARED_WEIGHTS:
        gather = shared_s("all-gather", parameters, model.element_bytes, layout, system)
        under = busy_s[:, :2] * layout.overlap_parameters
        exposed[:, :2] = np.maximum(gather[:, None] - under, 0.0)
        hidden = gather - exposed[:, 1]
    if layout.zero >= SHARED_GRADIENTS:
        scatter = shared_s("reduce-scatter", parameters, model.gradient_bytes, layout, system)
        left = np.maximum(busy_s[:, 1] - hidden, 0.0) + busy_s[:, 2]  # of the next block's backward
        exposed[:, 2] = np.maximum(scatter - left * layout.overlap_gradients, 0.0)
    return exposed


def reduction_s(parameters, backward_s, model, layout, system):
    """Seconds of a stage's gradient reduction, minus those that its last backward hides if allowed.

    Parameters
    ----------
    parameters : Held
        Of one GPU, by stage.
    backward_s : ndarray of float, shape (num_stages,)
        Duration of the operation that produces a rank's last gradients, a backward or its weight-gradient half:
        finished gradients are reduced while it computes the rest.
    model : ModelSpec
        Provides the bytes per gradient.
    layout : LayoutSpec
    system : SystemSpec

    Returns
    -------
    ndarray of float, shape (num_stages,)
    """
    if layout.zero >= SHARED_GRADIENTS:
        return np.zeros(len(parameters.dense))
    kind = "reduce-scatter" if layout.zero else "all-reduce"
    summed = shared_s(kind, parameters, model.gradient_bytes, layout, system)
    return np.maximum(summed - backward_s, 0.0) if layout.overlap_gradients else summed


def gather_s(parameters, forward_s, model, layout, system):
    """Seconds of gathering a stage's updated parameters, minus those that its first forward hides if allowed.

    Parameters
    ----------
    parameters : Held
        Of one GPU, by stage.
    forward_s : ndarray of float, shape (num_stages,)
        Duration of one forward.
    model : ModelSpec
        Provides the bytes per weight.
    layout : LayoutSpec
    system : SystemSpec

    Returns
    -------
    ndarray of float, shape (num_stages,)
    """
    if layout.zero not in (SHARED_OPTIMIZER, SHARED_GRADIENTS):
        return np.zeros(len(parameters.dense))
    gather = shared_s("all-gather", parameters, model.element_bytes, layout, system)
    return np.maximum(gather - forward_s, 0.0) if layout.overlap_parameters else gather


def optimizer_s(parameters, model, layout, system):
    """Seconds of the optimizer step: a pass over memory that reads gradients, updates the state and writes weights.

    Parameters
    ----------
    parameters : Held
        Of one GPU, by stage.
    model : ModelSpec
        Provides the bytes of each.
    layout : LayoutSpec
        Provides the share of a GPU.
    system : SystemSpec
        Provides memory bandwidth, its attainable fraction, and the latency of an operation.

    Returns
    -------
    ndarray of float, shape (num_stages,)
    """
    own = shares(parameters, layout, SHARED_OPTIMIZER)
    moved = own * (model.gradient_bytes + 2 * model.optimizer_bytes + model.element_bytes)
    efficiency = system.kernels and system.kernels.optimizer_efficiency
    attained = system.memory_bandwidth_bytes_per_s * (efficiency or system.memory_efficiency)
    return np.where(own > 0, moved / attained + system.memory_latency_s, 0.0)
