"""What the kernels and the collectives of a system attain: the constants that a calibration fits."""

from __future__ import annotations  # help() shows a field's type by its name

from dataclasses import dataclass
from typing import Annotated

from ppmodel.specs.entries import Efficiency, Number, NumberOrZero, Slowdown, Time, file_form


@dataclass(frozen=True)
class KernelSpec:
    """What kernels attain beyond the plain roofline, and what the host takes; the defaults change nothing.

    Fractions may be above 1 where they are fitted: a kernel then moves less than the model counts.

    Parameters
    ----------
    product_half_rows, product_half_width : float
        A GEMM of m rows, n columns and depth k attains e_c m / (m + half_rows) w / (w + half_width) of the
        peak, with w the smaller of n and k: half of e_c where m, or w, is as large as its constant.
    weight_grad_efficiency : float
        Factor on the efficiency of a matrix multiplication for a weight gradient.
    attention_efficiency, attention_backward_efficiency : float, optional
        Attainable fraction of the peak of fused attention, forward and backward; e_c where not given.
    batched_efficiency : float, optional
        Attainable fraction of the peak of the matrix multiplications of unfused attention; e_c where not given.
    first_attention_factor : float
        Factor on both of them for the first version of such a kernel, where a run is known to use it.
    stream_efficiency, activation_efficiency, softmax_efficiency : float, optional
        Attainable fraction of the memory's bandwidth in norms and residual sums, in the activation of the MLP, and in
        the softmax of unfused attention; e_m where not given.
    loss_efficiency, optimizer_efficiency : float, optional
        The same for the loss, and for the optimizer's step.
    fused_norm_efficiency, fused_softmax_efficiency : float, optional
        The same for norms that are one kernel, where a run is known to use it, and for a softmax that is one kernel
        with its mask; the efficiency of those that are not, where not given.
    block_host_s : float
        Seconds that the host takes to launch one phase of a transformer block: forward, either half of the backward,
        and a recomputed forward. Where devices are faster, they wait.
    tensor_host_s : float
        What it takes longer with tensor parallelism.
    softmax_host_s : float
        What it takes longer where softmax and mask are several kernels: in unfused attention that Megatron-LM's fused
        softmax refuses, because the heads of all sequences on a GPU are no multiple of four.
    host_exponent : float
        A phase takes (device^p + host^p)^(1/p): the larger the exponent p, the better the two overlap.
    stage_overhead_s, iteration_overhead_s : float
        Fixed cost of a forward or a backward of a stage, and of an iteration, in seconds.
    """

    product_half_rows: NumberOrZero = 0.0
    product_half_width: NumberOrZero = 0.0
    weight_grad_efficiency: Number = 1.0
    attention_efficiency: Number = None
    attention_backward_efficiency: Number = None
    first_attention_factor: Number = 1.0
    batched_efficiency: Number = None
    stream_efficiency: Number = None
    fused_norm_efficiency: Number = None
    activation_efficiency: Number = None
    softmax_efficiency: Number = None
    fused_softmax_efficiency: Number = None
    loss_efficiency: Number = None
    optimizer_efficiency: Number = None
    block_host_s: Time = 0.0
    tensor_host_s: Time = 0.0
    softmax_host_s: Time = 0.0
    host_exponent: Number = 4.0
    stage_overhead_s: Time = 0.0
    iteration_overhead_s: Time = 0.0


@dataclass(frozen=True)
class CollectiveSpec:
    """What collectives and messages attain on the links of a system; the defaults are the links themselves.

    Parameters
    ----------
    node_efficiency, network_efficiency : float
        Attainable fraction of the bandwidth inside a node, and between nodes.
    data_efficiency, message_efficiency : float, optional
        Attainable fraction of the bandwidth between nodes of data-parallel collectives, and of messages between
        stages; `network_efficiency` where not given. Fitted ones may be above 1, where a framework hides a part.
    data_congestion : float
        Between N nodes data-parallel collectives attain that divided by N to this power.
    data_sharing : float
        The tp data-parallel groups that pass through a node share its network: each attains the node's bandwidth over
        tp to this power. With less than 1 one group alone does not fill all NICs of a node.
    message_overhead_s : float
        Seconds in which a message between stages holds its link, or its ranks, whatever its size.
    node_latency_s, network_latency_s : float, optional
        Seconds of one step inside a node, and between nodes; those of a message where not given.
    contention : float
        How much slower kernels and collectives both run while they run at once, from 1 to 2.
    """

    node_efficiency: Efficiency = 1.0
    network_efficiency: Efficiency = 1.0
    data_efficiency: Number = None
    message_efficiency: Number = None
    data_congestion: NumberOrZero = 0.0
    data_sharing: NumberOrZero = 1.0
    message_overhead_s: Time = 0.0
    node_latency_s: Time = None
    network_latency_s: Time = None
    contention: Slowdown = 1.0


@dataclass(frozen=True)
class MemorySpec:
    """What frameworks make of the memory that a model needs; the defaults change nothing.

    Parameters
    ----------
    activation_factor : float
        On the activations of a block, those of unfused attention's scores left out, where they are kept or recomputed.
    fused_norm_factor : float
        On the activations in addition, of a run that is known to have norms of one kernel.
    score_factor : float
        On what unfused attention keeps of its scores.
    working_factor : float
        On what a block holds while it is recomputed.
    logits_factor : float
        On the logits and their gradient.
    """

    activation_factor: Number = 1.0
    fused_norm_factor: Number = 1.0
    score_factor: Number = 1.0
    working_factor: Number = 1.0
    logits_factor: Number = 1.0


Kernels = Annotated[KernelSpec | None, file_form(KernelSpec)]
Collectives = Annotated[CollectiveSpec | None, file_form(CollectiveSpec)]
Memory = Annotated[MemorySpec | None, file_form(MemorySpec)]
"""The fields of a system that hold them: in a file any of their keys, or no block."""
