"""Rates that kernels and collectives of a system attain: the constants that a calibration fits."""

from __future__ import annotations  # help() shows a field's type by its name

from dataclasses import dataclass

from ppmodel.clusters.specs import entries
from ppmodel.clusters.specs.entries import Checked


@dataclass(frozen=True)
class KernelSpec(Checked):
    """Rates of kernels compared to the plain roofline, and the time of the host; the defaults change nothing.

    Fitted fractions may exceed 1: a kernel then moves less data than the model counts.

    Parameters
    ----------
    product_half_rows, product_half_width : float
        A GEMM of m rows, n columns and depth k attains e_c m / (m + half_rows) w / (w + half_width) of the
        peak, where w is the smaller of n and k: half of e_c if m, or w, equals its constant.
    fp8_efficiency, fp8_half_rows, fp8_half_width : float, optional
        The same three in fp8, of the fp8 peak; those of bf16 if not given.
    fp4_efficiency : float, optional
        The first in 4 bits, of the fp4 peak; that of fp8 if not given.
    sustained_clock : float
        The clock that a device under a long load holds, as a fraction of the clock at which its kernels were timed:
        a factor on all that is bound by arithmetic.
    node_spread : float
        Standard deviation of the speeds of nodes over their mean: a run on several waits for the slowest, so that all
        kernels take longer by this times sqrt(2 ln N) on N nodes.
    cast_efficiency : float, optional
        Attainable fraction of the memory bandwidth in conversions between number formats; e_m if not given.
    any_layout : bool
        Whether products of 8-bit numbers with one scale take operands in any layout, without transposed copies.
    weight_grad_efficiency : float
        Factor on the efficiency of a matrix multiplication for a weight gradient.
    attention_efficiency, attention_backward_efficiency : float, optional
        Attainable fraction of the peak in fused attention, forward and backward; e_c if not given.
    attention_half_length : float
        Number of keys at which fused attention reaches half of these fractions.
    batched_efficiency : float, optional
        Attainable fraction of the peak of the matrix multiplications of unfused attention; e_c where not given.
    first_attention_factor : float
        Factor on both attention efficiencies in runs known to use the first version of such a kernel.
    flash_attention_factor : float
        The same under frameworks known to use FlashAttention, where both are those of a faster kernel.
    stream_efficiency, activation_efficiency, softmax_efficiency : float, optional
        Attainable fraction of the memory bandwidth in norms and residual sums, in the MLP's activation function, and
        in the softmax of unfused attention; e_m if not given.
    loss_efficiency, optimizer_efficiency : float, optional
        The same for the loss, and for the optimizer step.
    fused_norm_efficiency, fused_softmax_efficiency : float, optional
        The same for norms fused into one kernel, in runs known to use it, and for a softmax fused with its mask;
        the efficiency of the unfused ones if not given.
    block_host_s : float
        Seconds that the host takes to launch one phase of a transformer block: a forward, either half of the backward,
        or a recomputed forward. Faster devices wait for it.
    tensor_host_s : float
        Additional seconds with tensor parallelism.
    piped_tensor_host_s : float
        Additional seconds for each GPU of a tensor group, in a pipeline that needs several nodes.
    expert_host_s : float
        Additional seconds for each kernel that experts and their router add to a dense block's.
    cast_host_s : float
        Additional seconds for each product whose operands are converted to a number format.
    module_host_s : float
        Additional seconds, in the gradient of the input, for each module of a block that runs again by itself.
    softmax_host_s : float
        Additional seconds if softmax and mask are separate kernels: in unfused attention that Megatron-LM's fused
        softmax rejects because the number of heads of all sequences on a GPU is not a multiple of four.
    host_exponent : float
        A phase takes (device^p + host^p)^(1/p): the larger p, the better the two overlap; with 1, they take turns.
    stage_overhead_s, iteration_overhead_s : float
        Fixed cost in seconds of a stage's forward or backward, and of an iteration.
    """

    product_half_rows: entries.NumberOrZero = 0.0
    product_half_width: entries.NumberOrZero = 0.0
    fp8_efficiency: entries.Number | None = None
    fp8_half_rows: entries.NumberOrZero | None = None
    fp8_half_width: entries.NumberOrZero | None = None
    fp4_efficiency: entries.Number | None = None
    sustained_clock: entries.Number = 1.0
    node_spread: entries.PartialShare = 0.0
    cast_efficiency: entries.Number | None = None
    any_layout: entries.Switch = False
    weight_grad_efficiency: entries.Number = 1.0
    attention_efficiency: entries.Number | None = None
    attention_backward_efficiency: entries.Number | None = None
    attention_half_length: entries.NumberOrZero = 0.0
    first_attention_factor: entries.Number = 1.0
    flash_attention_factor: entries.Number = 1.0
    batched_efficiency: entries.Number | None = None
    stream_efficiency: entries.Number | None = None
    fused_norm_efficiency: entries.Number | None = None
    activation_efficiency: entries.Number | None = None
    softmax_efficiency: entries.Number | None = None
    fused_softmax_efficiency: entries.Number | None = None
    loss_efficiency: entries.Number | None = None
    optimizer_efficiency: entries.Number | None = None
    block_host_s: entries.Time = 0.0
    tensor_host_s: entries.Time = 0.0
    piped_tensor_host_s: entries.Time = 0.0
    expert_host_s: entries.Time = 0.0
    cast_host_s: entries.Time = 0.0
    module_host_s: entries.Time = 0.0
    softmax_host_s: entries.Time = 0.0
    host_exponent: entries.Exponent = 4.0
    stage_overhead_s: entries.Time = 0.0
    iteration_overhead_s: entries.Time = 0.0

    def attention_times(self, factor: float, plain: float) -> dict[str, float]:
        """Both attention efficiencies times a factor; where they are not given, `plain` is e_c of the system."""
        forward = self.attention_efficiency or plain
        return {
            "attention_efficiency": factor * forward,
            "attention_backward_efficiency": factor * (self.attention_backward_efficiency or forward),
        }


@dataclass(frozen=True)
class CollectiveSpec(Checked):
    """Rates of collectives and messages on the links of a system; the defaults leave the links as they are.

    Parameters
    ----------
    node_efficiency, network_efficiency : float
        Attainable fraction of the bandwidth within a node, and between nodes.
    data_efficiency, message_efficiency, exchange_efficiency : float, optional
        Attainable fraction of the bandwidth between nodes for data-parallel collectives, for messages between stages,
        and for all-to-alls; `network_efficiency` if not given. Fitted values may exceed 1 if a framework hides part.
    spread_data_efficiency : float, optional
        The same for data-parallel groups with one GPU on each node, whose rings cross no links within nodes;
        `data_efficiency` if not given.
    data_congestion : float
        Data-parallel collectives across N nodes attain this fraction divided by N to this power.
    data_sharing : float
        The tp data-parallel groups that pass through a node share its network: each attains the node's bandwidth
        divided by tp to this power. Below 1, a single group does not fill all NICs of a node.
    message_overhead_s : float
        Seconds for which a message between stages occupies its link, or its ranks, whatever its size.
    node_latency_s, network_latency_s : float, optional
        Seconds per step of a collective within a node, and between nodes; a message's latency if not given.
    overlapped_phases : bool
        Whether a collective across nodes uses both kinds of links at the same time, as NCCL's pipelined rings and trees
        do, and not one after another.
    contention : float
        Factor from 1 to 2 by which kernels and collectives slow each other down while both run.
    """

    node_efficiency: entries.Efficiency = 1.0
    network_efficiency: entries.Efficiency = 1.0
    data_efficiency: entries.Number | None = None
    message_efficiency: entries.Number | None = None
    exchange_efficiency: entries.Number | None = None
    spread_data_efficiency: entries.Number | None = None
    data_congestion: entries.Power = 0.0
    data_sharing: entries.Power = 1.0
    message_overhead_s: entries.Time = 0.0
    node_latency_s: entries.Time | None = None
    network_latency_s: entries.Time | None = None
    contention: entries.Slowdown = 1.0
    overlapped_phases: entries.Switch = False


@dataclass(frozen=True)
class MemorySpec(Checked):
    """Factors on the memory that a model needs, as frameworks use it; the defaults change nothing.

    Parameters
    ----------
    activation_factor : float
        Factor on a block's activations, kept or recomputed, except the scores of unfused attention.
    fused_norm_factor : float
        Further factor on activations in runs known to use fused norms.
    score_factor : float
        Factor on the scores that unfused attention keeps.
    working_factor : float
        Factor on the memory of a block while it is recomputed.
    logits_factor : float
        Factor on the logits and their gradient.
    """

    activation_factor: entries.Number = 1.0
    fused_norm_factor: entries.Number = 1.0
    score_factor: entries.Number = 1.0
    working_factor: entries.Number = 1.0
    logits_factor: entries.Number = 1.0
