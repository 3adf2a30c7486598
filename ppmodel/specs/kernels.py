"""What the kernels and the collectives of a system attain: the constants that a calibration fits."""

from __future__ import annotations  # help() shows a field's type by its name

from dataclasses import dataclass
from typing import Annotated

from ppmodel.specs.entries import Efficiency, Number, NumberOrZero, Time, file_form


@dataclass(frozen=True)
class KernelSpec:
    """What kernels attain beyond the plain roofline; the defaults change nothing.

    Parameters
    ----------
    product_half_rows, product_half_width : float
        A matrix product of m rows, n columns and depth k attains e_c m / (m + half_rows) w / (w + half_width) of the
        peak, with w the smaller of n and k: half of e_c where m, or w, is as large as its constant.
    weight_grad_efficiency : float
        Factor on the efficiency of a product that gives a weight gradient.
    attention_efficiency, attention_backward_efficiency : float, optional
        Attainable fraction of the peak of attention kernels, forward and backward; e_c where not given.
    iteration_overhead_s : float
        Fixed cost of an iteration, in seconds.
    """

    product_half_rows: NumberOrZero = 0.0
    product_half_width: NumberOrZero = 0.0
    weight_grad_efficiency: Number = 1.0
    attention_efficiency: Efficiency = None
    attention_backward_efficiency: Efficiency = None
    iteration_overhead_s: Time = 0.0


@dataclass(frozen=True)
class CollectiveSpec:
    """What collectives attain on the links of a system; the defaults are the links themselves.

    Parameters
    ----------
    node_efficiency, network_efficiency : float
        Attainable fraction of the bandwidth inside a node, and between nodes.
    node_latency_s, network_latency_s : float, optional
        Seconds of one step inside a node, and between nodes; those of a message where not given.
    """

    node_efficiency: Efficiency = 1.0
    network_efficiency: Efficiency = 1.0
    node_latency_s: Time = None
    network_latency_s: Time = None


Kernels = Annotated[KernelSpec | None, file_form(KernelSpec)]
Collectives = Annotated[CollectiveSpec | None, file_form(CollectiveSpec)]
"""The fields of a system that hold them: in a file any of their keys, or no block."""
