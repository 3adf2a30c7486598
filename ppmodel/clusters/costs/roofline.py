"""Seconds of a kernel: t = max(FLOP / (peak e) + L_c, bytes / (bandwidth e_m) + L_m), each latency once per kernel.

Without kernel constants, a system attains e = e_c in all kernels, and has no fp8 peak. With them:

- A matrix product of m rows, n columns and depth k attains e = e_c m / (m + m_half) w / (w + w_half), w = min(n, k):
  m_half and w_half are where the rate reaches half of its limit, the n_1/2 of Hockney and Jesshope (1981) in two
  dimensions; a smooth curve that replaces tiles and waves.
- In 8 and 4 bits, the three constants have other values; the output projection and the router stay at 16 bits
  (Megatron-LM, NeMo), and inputs and gradients are converted by passes over memory; see `specs.formats`.
- Fused attention attains its fraction times s / (s + s_half) for s keys.
- All arithmetic runs at the sustained clock, a fraction of the one at which kernels were timed.
- A product for a weight gradient attains a factor less; attention, fused or not, its own fraction of the peak;
  norms and residual sums, the softmax of unfused attention, and the loss, fractions of the memory bandwidth.
- Passes that a framework leaves to PyTorch attain at most a rate that is the same on all GPUs.
"""

from typing import NamedTuple

import numpy as np

from ppmodel.clusters.costs.work import Kernel
from ppmodel.clusters.specs import FORMATS, KernelSpec
from ppmodel.errors import CostError

_PRODUCTS = [Kernel.PRODUCT, Kernel.WEIGHT_PRODUCT, Kernel.UNQUANTISED, Kernel.UNQUANTISED_WEIGHT]

_EAGER = 2e12
"""Most bytes a second of PyTorch's passes over operands of several types or shapes, which it reads one number at a time
(pytorch/pytorch, pull requests 167233 and 195542): instructions bound them, on GPUs of like clocks alike. Chosen on
runs of GPT-OSS on H100 and on Blackwell. Five on H100 alone prefer 1.75 to 1.8 TB/s, and with 1.8 the mean error of the
14 on Blackwell, 24 % without this bound, is 6.4 %; with 2, which they helped to choose, 5.4 %."""


class Kernels(NamedTuple):
    """Kernels to be timed, as columns.

    Parameters
    ----------
    flops, bytes : ndarray of float, shape (num_kernels,)
        Total work of all `count` kernels.
    kernel : ndarray of int, shape (num_kernels,)
        The class of each, a `Kernel`.
    rows, width : ndarray of float, shape (num_kernels,)
        For a product, m and min(n, k); infinite for others, whose shape does not matter.
    count : ndarray of float, shape (num_kernels,)
        Launches, each with its fixed cost.
    slot, unit : ndarray of int, shape (num_kernels,), optional
        In a model: layer and phase as one number; and the unit.
    """

    flops: np.ndarray
    bytes: np.ndarray
    kernel: np.ndarray
    rows: np.ndarray
    width: np.ndarray
    count: np.ndarray
    slot: np.ndarray | None = None
    unit: np.ndarray | None = None

    @classmethod
    def of(cls, rows):
        """Make kernels from a list of rows, each with the fields in order."""
        names = cls._fields[: len(rows[0]) if rows else -2]  # without slot and unit
        columns = dict(zip(names, map(by_run, zip(*rows, strict=True) if rows else [()] * len(names)), strict=True))
        numbers = {name: columns[name].astype(np.intp) for name in ("kernel", "slot", "unit") if name in columns}
        return cls(**columns | numbers)


def by_run(values):
    """Values as an array; where some are arrays with a value for each run, runs are its first axis.

    >>> by_run((1, 2)).tolist(), by_run((1, np.array([2, 3]))).tolist()
    ([1.0, 2.0], [[1.0, 2.0], [1.0, 3.0]])
    """
    runs = next((value.shape for value in values if isinstance(value, np.ndarray)), None)
    if runs is None:
        return np.array(values, dtype=float)
    columns = np.empty((*runs, len(values)))
    for place, value in enumerate(values):
        columns[..., place] = value
    return columns


def kernels_s(kernels, system, precision="bf16"):
    """Compute the seconds of kernels on a system.

    Parameters
    ----------
    kernels : Kernels
    system : SystemSpec
        Provides peaks, efficiencies, fixed costs and, if known, kernel constants.
    precision : str
        Number format of matrix products, a key of `FORMATS`; attention stays at 16 bits.

    Returns
    -------
    ndarray of float, shape (num_kernels,)
        In seconds.

    Raises
    ------
    CostError
        If the system has no peak in that format.

    Examples
    --------
    >>> from ppmodel.clusters.specs import load_system
    >>> product = Kernels.of([(1e15, 0.0, Kernel.PRODUCT, 4096.0, 4096.0, 1.0)])
    >>> kernels_s(product, load_system("mid_cp_mid_nw")).tolist()
    [1.0]
    """
    spec = system.kernels or KernelSpec()
    peak, bandwidth = system.peak_compute_flops, system.memory_bandwidth_bytes_per_s
    flops = np.full(len(Kernel), peak * system.compute_efficiency)  # by class, per second, as are bytes
    moved = np.full(len(Kernel), bandwidth * system.memory_efficiency)
    rows, width = np.zeros((2, len(Kernel)))
    rows[_PRODUCTS], width[_PRODUCTS] = spec.product_half_rows, spec.product_half_width
    rows[[Kernel.ATTENTION, Kernel.ATTENTION_BACKWARD]] = spec.attention_half_length
    if precision != "bf16":
        if (peak_in_format := system.peak_flops(precision)) is None:
            remedy = f"add fp{FORMATS[precision].bits}_peak_compute to the system, or choose bf16"
            raise CostError("precision", precision, f"is not supported by {system.name}", remedy)
        products = [Kernel.PRODUCT, Kernel.WEIGHT_PRODUCT]
        efficiency = (spec.fp4_efficiency if FORMATS[precision].bits == 4 else None) or spec.fp8_efficiency
        flops[products] = peak_in_format * FORMATS[precision].speed * (efficiency or system.compute_efficiency)
        rows[products] = spec.product_half_rows if spec.fp8_half_rows is None else spec.fp8_half_rows
        width[products] = spec.product_half_width if spec.fp8_half_width is None else spec.fp8_half_width
    flops[[Kernel.WEIGHT_PRODUCT, Kernel.UNQUANTISED_WEIGHT]] *= spec.weight_grad_efficiency
    attention, softmax = spec.attention_efficiency, spec.softmax_efficiency
    by_arithmetic = {
        Kernel.ATTENTION: attention, Kernel.ATTENTION_BACKWARD: spec.attention_backward_efficiency or attention,
        Kernel.BATCHED: spec.batched_efficiency,
    }  # fmt: skip
    by_memory = {
        Kernel.STREAM: spec.stream_efficiency, Kernel.ACTIVATION: spec.activation_efficiency,
        Kernel.SOFTMAX: softmax, Kernel.FUSED_SOFTMAX: spec.fused_softmax_efficiency or softmax,
        Kernel.LOSS: spec.loss_efficiency, Kernel.CAST: spec.cast_efficiency, Kernel.TRANSPOSE: spec.cast_efficiency,
    }  # fmt: skip
    for rates, most, efficiencies in ((flops, peak, by_arithmetic), (moved, bandwidth, by_memory)):
        for kernel, efficiency in efficiencies.items():
            rates[kernel] = most * efficiency if efficiency else rates[kernel]
    moved[Kernel.EAGER] = min(moved[Kernel.EAGER], _EAGER)
    passes = system.framework.passes.upper().split("+") if system.framework else ()
    for kernel in (Kernel.ROTARY, Kernel.SEARCH):
        moved[kernel] = moved[Kernel.EAGER] if kernel.name in passes else np.inf
    if spec.any_layout and precision == "fp8":
        moved[Kernel.TRANSPOSE] = np.inf
    kind = kernels.kernel
    slowed = (1 + rows[kind] / kernels.rows) * (1 + width[kind] / kernels.width)
    compute_s = kernels.flops / (spec.sustained_clock * flops[kind] / slowed) + kernels.count * system.compute_latency_s
    return np.maximum(compute_s, kernels.bytes / moved[kind] + kernels.count * system.memory_latency_s)
