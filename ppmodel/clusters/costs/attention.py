"""How much of the time of each stage is attention, and so how slices and sequences of unequal length differ."""

import numpy as np

from ppmodel.clusters.costs.work import Kernel, Phase
from ppmodel.clusters.specs import LayoutSpec
from ppmodel.ops import OpKind
from ppmodel.simulation.units import arranged, lengths_of, unlike_units

_KERNELS = (Kernel.ATTENTION, Kernel.ATTENTION_BACKWARD, Kernel.BATCHED, Kernel.SOFTMAX, Kernel.FUSED_SOFTMAX)


def units_of(schedule, layout, layers, counts, compute_s):
    """Compute mean durations and `Units` of a table's slices, or of sequences of unequal length.

    Parameters
    ----------
    schedule : Schedule
    layout : LayoutSpec or None
    layers, counts, compute_s
        As in `attention_shares`; for a mean slice.

    Returns
    -------
    (ndarray of float, Units)
        As from `unlike_units`.
    """
    layout, lengths = layout or LayoutSpec(), None
    if layout.lengths != "equal":
        lengths = lengths_of(layout.lengths, schedule.table_microbatches // schedule.slices)
        lengths = arranged(lengths, layout.arrangement)
    shares = attention_shares(layers, counts, compute_s)
    skips = layout.causal and Kernel.ATTENTION in layers.work.kernels.kernel  # attention that is not fused never skips
    return unlike_units(compute_s, shares, schedule.slices, lengths, layout.slicing, skips)


def attention_shares(layers, counts, compute_s):
    """Share of attention in the durations of operations.

    Parameters
    ----------
    layers : LayerCosts
    counts : ndarray of float, shape (num_stages, num_layers)
        How often each layer occurs in each stage.
    compute_s : ndarray of float, shape (10, num_stages)
        From `compute_seconds`.

    Returns
    -------
    ndarray of float, shape (10, num_stages)
        0 for reductions and optimizer steps.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.clusters.costs import model_costs
    >>> from ppmodel.clusters.costs.layers import layers_of
    >>> from ppmodel.clusters.specs import LayoutSpec, load_model, load_system
    >>> model, system, layout = load_model("llama3_70b"), load_system("h100"), LayoutSpec().at(4, 8)
    >>> costs = model_costs(build("1f1b", 4, 8), model, system, layout)
    >>> attention_shares(layers_of(model, 1, system, layout), costs.stages.layers, costs.compute_s)[:2, 1].round(2)
    array([0.08, 0.12])
    """
    work = layers.work
    seconds = np.where(np.isin(work.kernels.kernel, _KERNELS), layers.kernel_s, 0.0)
    shape = len(work.layers), len(Phase)
    by_phase = np.bincount(work.kernels.slot, seconds, np.prod(shape)).reshape(shape)
    by_phase[:, Phase.INPUT_GRAD] += by_phase[:, Phase.RECOMPUTE]
    forward, input_grad, weight_grad = (counts @ by_phase[:, : Phase.RECOMPUTE]).T
    attention_s = np.zeros_like(compute_s)
    attention_s[: OpKind.S] = forward, input_grad + weight_grad, input_grad, weight_grad
    return np.divide(attention_s, compute_s, out=np.zeros_like(compute_s), where=compute_s > 0)
