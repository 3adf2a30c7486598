"""The host, which launches the kernels of a block; faster devices wait for it."""

import numpy as np

_FUSED_BY = 4
"""Megatron-LM's fused softmax needs a multiple of this number of heads, over all sequences on a GPU."""


def host_s(model, sequences, kernels, layout=None):
    """Seconds that the host takes for one phase of a block.

    Parameters
    ----------
    model : ModelSpec
    sequences : float
        Sequences per microbatch, b.
    kernels : KernelSpec
    layout : LayoutSpec, optional

    Returns
    -------
    float

    Examples
    --------
    >>> from ppmodel.specs import KernelSpec, LayoutSpec, load_model
    >>> kernels = KernelSpec(block_host_s=1.0, tensor_host_s=0.5, softmax_host_s=0.25)
    >>> model = load_model("paper")
    >>> [host_s(model, 1, kernels, LayoutSpec(tp=tp)) for tp in (1, 2, model.heads)]
    [1.0, 1.5, 1.75]
    """
    tensor, softmax = launched(model, sequences, layout)
    return kernels.block_host_s + (kernels.tensor_host_s * tensor + kernels.softmax_host_s * softmax)


def launched(model, sequences, layout=None):
    """Additional launches of the host: those of tensor parallelism, and those of an unfused softmax.

    Returns
    -------
    tensor, softmax : bool
    """
    tp = layout.tp if layout else 1
    refused = model.attention == "materialised" and sequences * model.heads / tp % _FUSED_BY
    return tp > 1, bool(refused)


def wait_for_host(taken, again, host, power):
    """Stretch, in place, the phases of blocks that the host launches more slowly than the device runs them.

    Parameters
    ----------
    taken : ndarray of float, shape (num_lists, 4, 5)
        Seconds of lists of operations by phase and part; the first part is kernels.
    again : ndarray of bool, shape (num_lists,)
        Whether a list is fully recomputed, and so launched again.
    host : float or ndarray of float, shape (num_lists, 1)
        Seconds of `host_s`.
    power : float
        A phase takes (device^p + host^p)^(1/p).
    """
    device = taken.sum(axis=2)
    waits = (device > 0) & np.column_stack([np.ones((len(taken), 3), dtype=bool), again])
    longest = np.maximum(np.maximum(device, host), np.finfo(float).tiny)
    both = longest * ((device / longest) ** power + (host / longest) ** power) ** (1 / power)
    taken[..., 0] += np.where(waits, both - device, 0.0)
