"""Seconds of a kernel: t = max(FLOP / (peak e) + L_c, bytes / (bandwidth e_m) + L_m), each latency once per kernel.

Without kernel constants, a system attains e = e_c in all kernels, and has no fp8 peak. With them:

- A matrix product of m rows, n columns and depth k attains e = e_c m / (m + m_half) w / (w + w_half), w = min(n, k):
  m_half and w_half are where the rate reaches half of its limit, the n_1/2 of Hockney and Jesshope (1981) in two
  dimensions; a smooth curve that replaces tiles and waves.
- A product for a weight gradient attains that times a factor; attention, fused or not, its own fraction of the peak;
  norms and residual sums, the softmax of unfused attention, and the loss, fractions of the memory bandwidth.
"""

from typing import NamedTuple

import numpy as np

from ppmodel.costs.work import NO_WORK
from ppmodel.errors import CostError

(
    MEMORY,
    PRODUCT,
    ATTENTION,
    ATTENTION_BACKWARD,
    WEIGHT_PRODUCT,
    BATCHED,
    STREAM,
    SOFTMAX,
    LOSS,
    ACTIVATION,
    FUSED_SOFTMAX,
) = range(11)
_KINDS = 11
"""Classes of kernels, which determine their efficiency."""


class Kernels(NamedTuple):
    """Kernels to be timed, as columns.

    Parameters
    ----------
    flops, bytes : ndarray of float, shape (num_kernels,)
        Total work of all `count` kernels.
    kind : ndarray of int, shape (num_kernels,)
        `MEMORY`, `PRODUCT` and so on.
    rows, width : ndarray of float, shape (num_kernels,)
        For a product, m and min(n, k); infinite for others, whose shape does not matter.
    count : ndarray of float, shape (num_kernels,)
        Launches, each with its fixed cost.
    """

    flops: np.ndarray
    bytes: np.ndarray
    kind: np.ndarray
    rows: np.ndarray
    width: np.ndarray
    count: np.ndarray

    @classmethod
    def of(cls, columns):
        """Make kernels from a list of rows."""
        flops, moved, kind, rows, width, count = zip(*columns, strict=True) if columns else [()] * 6
        floats = [np.array(column, dtype=float) for column in (flops, moved, rows, width, count)]
        return cls(floats[0], floats[1], np.array(kind, dtype=np.intp), *floats[2:])


def kernels_s(kernels, system, precision="bf16"):
    """Compute the seconds of kernels on a system.

    Parameters
    ----------
    kernels : Kernels
    system : SystemSpec
        Provides peaks, efficiencies, fixed costs and, if known, kernel constants.
    precision : {"bf16", "fp8"}
        Precision of matrix products; attention stays at 16 bits.

    Returns
    -------
    ndarray of float, shape (num_kernels,)
        In seconds.

    Raises
    ------
    CostError
        If the precision is fp8 and the system has no fp8 peak.

    Examples
    --------
    >>> from ppmodel.specs import load_system
    >>> product = Kernels.of([(1e15, 0.0, PRODUCT, 4096.0, 4096.0, 1.0)])
    >>> kernels_s(product, load_system("mid_cp_mid_nw")).tolist()
    [1.0]
    """
    rate = _rates(kernels, system, precision)
    arithmetic = kernels.flops / rate + kernels.count * system.compute_latency_s
    return np.maximum(
        arithmetic, kernels.bytes / _bandwidths(kernels, system) + kernels.count * system.memory_latency_s
    )


def _bandwidths(kernels, system):
    """Bytes per second that each kernel attains; a single number if all are alike."""
    plain, spec = system.memory_bandwidth_bytes_per_s * system.memory_efficiency, system.kernels
    own = spec and {
        STREAM: spec.stream_efficiency, SOFTMAX: spec.softmax_efficiency, LOSS: spec.loss_efficiency,
        ACTIVATION: spec.activation_efficiency,
        FUSED_SOFTMAX: spec.fused_softmax_efficiency or spec.softmax_efficiency,
    }  # fmt: skip
    if not own or not any(own.values()):
        return plain
    attained = np.full(_KINDS, plain)
    for kind, efficiency in own.items():
        if efficiency:
            attained[kind] = system.memory_bandwidth_bytes_per_s * efficiency
    return attained[kernels.kind]


def _rates(kernels, system, precision):
    """FLOP/s that each kernel attains; a single number if all are alike."""
    plain = system.peak_compute_flops * system.compute_efficiency
    if precision == "bf16" and system.kernels is None:
        return plain
    low = plain
    if precision == "fp8":
        if system.fp8_peak_compute_flops is None:
            remedy = "add fp8_peak_compute to the system, or choose bf16"
            raise CostError("precision", "fp8", f"is not supported by {system.name}", remedy)
        low = system.fp8_peak_compute_flops * system.compute_efficiency
    spec, kinds = system.kernels, np.full(_KINDS, plain)
    kinds[[PRODUCT, WEIGHT_PRODUCT]] = low
    if spec is None:
        return kinds[kernels.kind]
    kinds[WEIGHT_PRODUCT] *= spec.weight_grad_efficiency
    forward = spec.attention_efficiency
    own = forward, spec.attention_backward_efficiency or forward, spec.batched_efficiency
    for kind, efficiency in zip((ATTENTION, ATTENTION_BACKWARD, BATCHED), own, strict=True):
        if efficiency:
            kinds[kind] = system.peak_compute_flops * efficiency
    slowed = (1 + spec.product_half_rows / kernels.rows) * (1 + spec.product_half_width / kernels.width)
    return kinds[kernels.kind] / slowed


def roofline_s(work, system):
    """Seconds of one kernel by the plain roofline: the longer of its arithmetic and its memory traffic.

    Parameters
    ----------
    work : Work
        FLOP and bytes of the kernel.
    system : SystemSpec
        Provides peaks, efficiencies and the fixed cost on each side of the roofline.

    Returns
    -------
    float
        In seconds; 0 if there is no work.

    Examples
    --------
    >>> from ppmodel.costs import Work
    >>> from ppmodel.specs import load_system
    >>> roofline_s(Work(1e15, 0), load_system("mid_cp_mid_nw"))
    1.0
    """
    if work == NO_WORK:
        return 0.0
    arithmetic = work.flops / (system.peak_compute_flops * system.compute_efficiency) + system.compute_latency_s
    traffic = work.bytes / (system.memory_bandwidth_bytes_per_s * system.memory_efficiency) + system.memory_latency_s
    return max(arithmetic, traffic)
