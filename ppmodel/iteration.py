"""A whole training iteration under a layout: the pipeline, exposed data parallelism, and the optimizer step."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ppmodel.cases import compiled
from ppmodel.costs import model_flops, stages
from ppmodel.metrics import memory
from ppmodel.ops import OpKind
from ppmodel.prices import once
from ppmodel.simulation import makespans, run_graph

PARTS = (
    "computing_s", "tensor_s", "context_s", "expert_s", "p2p_s", "bubble_s", "data_s", "optimizer_s", "offload_s",
)  # fmt: skip
"""The parts of an iteration's time on its most loaded rank; they sum to ``iteration_s``.

In order: computing, including recomputation; collectives of tensor, context and expert parallelism that are not hidden
by computation; what transfers between stages add to the makespan; idle time in the same pipeline if transfers took no
time; the exposed part of gradient reduction and parameter gathering, including the wait for the slowest rank before
the optimizer step; the optimizer; what waiting for offloaded activations adds to the makespan.
The time of a cell with two operations beyond that of their kernels is divided in proportion to what each operation
exposes on its own.
"""

PARTS_CALLED = {
    "computing_s": "computing", "tensor_s": "tensor parallel", "context_s": "context parallel",
    "expert_s": "expert parallel", "p2p_s": "point to point", "bubble_s": "bubble", "data_s": "data parallel",
    "optimizer_s": "optimizer", "offload_s": "offloading",
}  # fmt: skip
"""Names of `PARTS` in texts and figures."""

MEMORY_PARTS = (
    "weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes", "working_bytes", "logits_bytes",
    "buffers_bytes", "reserve_bytes",
)  # fmt: skip
"""The parts of a GPU's memory on the most loaded rank; they sum to ``peak_memory_bytes``."""

NUMBERS = (
    "iteration_s", "tokens_per_s_per_gpu", "model_flops_utilization", *PARTS,
    *(name for name in MEMORY_PARTS if name != "activations_bytes"), "fits",
)  # fmt: skip
"""The columns that a layout adds to those of `evaluate.COLUMNS`."""

_LEAST_S = 1e-30
_COUNTED = {OpKind.F: (0,), OpKind.B: (1, 2), OpKind.I: (1,), OpKind.W: (2,)}


class Iteration(NamedTuple):
    """A simulated iteration.

    Parameters
    ----------
    iteration_s : float
        Seconds from the start of the first forward to the end of the last optimizer step.
    parts : dict of str to float
        Seconds of each of `PARTS` on the most loaded rank.
    rank : int
        The most loaded rank: the one with the longest busy time; ties go to the first.
    slowest_over_mean : float
        Its busy time over the mean of all ranks.
    """

    iteration_s: float
    parts: dict
    rank: int
    slowest_over_mean: float


def iteration_numbers(graph, costs, model, system, layout):
    """Compute the columns `NUMBERS` of one point, and its memory.

    Parameters
    ----------
    graph : ExecutionGraph
        Of the pipeline.
    costs : OpCosts
        Including reductions and the optimizer step.
    model : ModelSpec
    system : SystemSpec
    layout : LayoutSpec
        Complete.

    Returns
    -------
    dict
    """
    found = iteration(graph, costs, model, system, layout)
    timeline = run_graph(graph, costs) if costs.offload else None
    held = memory(graph.schedule, model, stages(graph.schedule, model, system, layout=layout), layout, system, timeline)
    most = int(held.total.argmax())
    kept = {f"{name}_bytes": float(getattr(held, name)[most]) for name in held._fields}
    tokens = layout.global_batch * model.sequence
    seconds = found.iteration_s * layout.gpus
    peak = system.fp8_peak_compute_flops if layout.precision == "fp8" else system.peak_compute_flops
    return found.parts | kept | {
        "iteration_s": found.iteration_s, "tokens_per_s_per_gpu": tokens / seconds,
        "model_flops_utilization": model_flops(model, sequences=layout.global_batch) / (seconds * peak),
        "peak_memory_bytes": float(held.total[most]), "memory_capacity_bytes": system.memory_capacity_bytes,
        "fits": held.fits(system), "slowest_over_mean": found.slowest_over_mean,
    }  # fmt: skip


def iteration(graph, costs, model, system, layout):
    """Compute the time of one iteration, and its parts.

    Parameters
    ----------
    graph, costs, model, system, layout
        As in `iteration_numbers`.

    Returns
    -------
    Iteration
    """
    table = graph.schedule
    held = stages(table, model, system, layout=layout)
    # of the pipeline's own graph: with the step, the replicas' reductions would be among its operations
    resident = replace(costs, offload=None) if costs.offload else costs
    resident_s, free_s = makespans(graph, [resident, _without_transfers(resident)]).tolist()
    pipeline_s = float(makespans(graph, [costs])[0]) if costs.offload else resident_s
    iteration_s = float(makespans(step_graph(graph, layout), [costs])[0])
    counts = once(table, "operations of the phases", lambda: _counts(table))
    busy, exposed = _busy_and_exposed(table, counts, costs, np.array([stage.parts_s for stage in held])[..., 1:])
    rank = int(busy.argmax())
    optimizer_s = float(sum(held[stage].optimizer_s for stage in np.nonzero(table.placement == rank)[1]))
    tensor_s, context_s, expert_s, data_s = exposed[rank].tolist()
    parts = {
        "computing_s": float(busy[rank]) - (tensor_s + context_s + expert_s + data_s), "tensor_s": tensor_s,
        "context_s": context_s, "expert_s": expert_s, "p2p_s": resident_s - free_s,
        "bubble_s": free_s - float(busy[rank]), "data_s": data_s + iteration_s - pipeline_s - optimizer_s,
        "optimizer_s": optimizer_s, "offload_s": pipeline_s - resident_s,
    }  # fmt: skip
    return Iteration(iteration_s, parts, rank, float(busy[rank] / busy.mean()))


def step_graph(graph, layout):
    """Build the graph of the whole iteration, with gradient reductions and the optimizer step.

    Parameters
    ----------
    graph : ExecutionGraph
        Of the pipeline.
    layout : LayoutSpec
        Says whether reductions overlap the backward.

    Returns
    -------
    ExecutionGraph
    """
    table = graph.schedule
    whole = once(table, "with the step", table.with_step)
    return compiled(whole, graph.p2p, "overlapped" if layout.overlap_gradients else "blocking")


def _without_transfers(costs):
    none = np.zeros_like(costs.occupancy_s)
    return replace(costs, occupancy_s=none, latency_s=none, nics=None)


def _counts(table):
    """Count the forwards and backward halves of each stage on each rank, shape (num_ranks, 3, num_stages)."""
    counts = np.zeros((table.num_ranks, 3, table.num_stages))
    for kind, phases in _COUNTED.items():
        of_kind = table.kind == kind
        for phase in phases:
            np.add.at(counts, (table.rank[of_kind], phase, table.stage[of_kind]), 1)
    return counts


def _busy_and_exposed(table, counts, costs, parts_s):
    """Seconds that each rank is busy, and the part of them that is exposed collectives, by kind.

    The time that a pair saves, compared to its operations one by one, is taken off their collectives, of each kind in
    proportion; what a user's factor saves beyond that, off their computing.
    """
    busy = np.einsum("rks,ks->r", counts, costs.compute_s[[OpKind.F, OpKind.I, OpKind.W]])
    exposed = np.einsum("rks,skp->rp", counts, parts_s)
    shares = np.where(table.overlaps, costs.overlap_factor, 1.0)
    if costs.pairs:
        shares = shares * costs.pair_shares(table)
    if (shares == 1).all():
        return busy, exposed
    saved = costs.by_class(table.num_replicas)[0][table.cost_class] * (1 - shares)
    busy -= np.bincount(table.rank, saved, minlength=table.num_ranks)
    return busy, exposed - _hidden(table, saved, parts_s)


def _hidden(table, saved, parts_s):
    """The part of each rank's collectives that pairs hide, by kind."""
    found, keys = np.zeros((table.num_ranks, parts_s.shape[-1])), table.pairs.keys
    in_pairs = np.flatnonzero(table.pairs.of >= 0)
    places = table.rank[in_pairs] * np.int64(len(keys)) + table.pairs.of[in_pairs]
    places, number, twice = np.unique(places, return_inverse=True, return_counts=True)
    of_rank, of_pair = np.divmod(places, max(len(keys), 1))
    exposed = np.array([_exposed_in(key, parts_s) for key in keys]).reshape(-1, parts_s.shape[-1])[of_pair]
    exposed *= twice[:, None] / 2
    whole = exposed.sum(axis=1)
    share = np.minimum(np.bincount(number, saved[in_pairs], len(places)), whole) / np.maximum(whole, _LEAST_S)
    np.add.at(found, of_rank, share[:, None] * exposed)
    return found


def _exposed_in(key, parts_s):
    """What the two operations of a pair expose on their own."""
    _, first, other, second = key
    return parts_s[first, 0] + sum(parts_s[second, phase] for phase in _COUNTED[OpKind(other)])
