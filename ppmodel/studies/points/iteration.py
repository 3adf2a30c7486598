"""A whole training iteration under a layout: the pipeline, exposed data parallelism, and the optimizer step."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ppmodel.clusters.costs import PARTS, model_flops
from ppmodel.clusters.memory import memory
from ppmodel.ops import OpKind
from ppmodel.simulation import graph_of, makespans, run_graph
from ppmodel.studies.points.columns import ENDS
from ppmodel.studies.points.margin import fit_word
from ppmodel.studies.points.point import once, places_of
from ppmodel.tables.further import OF_SHARDS

_LEAST_S = 1e-30
_COUNTED = {OpKind.F: [0], OpKind.B: [1, 2], OpKind.I: [1], OpKind.W: [2]}


class Iteration(NamedTuple):
    """A simulated iteration.

    Parameters
    ----------
    iteration_s : float
        Seconds from the start of the first forward to the end of the last optimizer step.
    parts : dict of str to float
        Seconds of each of `columns.PARTS` on the most loaded rank; they sum to `iteration_s`. The time of a cell with
        two operations beyond that of their kernels is divided in proportion to what each operation exposes on its own.
    slowest_over_mean : float
        Busy time of the most loaded rank, the first if several are, over the mean of all ranks.
    """

    iteration_s: float
    parts: dict
    slowest_over_mean: float


def iterations_of(graph, points, costs, makespans_s):
    """Compute the iterations of points that share a graph.

    Parameters
    ----------
    graph : ExecutionGraph
        Of the pipeline.
    points : sequence of Point
        Each with a layout.
    costs : sequence of OpCosts
        Theirs, including reductions and the optimizer step.
    makespans_s : sequence of float
        Makespans of the pipeline under these costs.

    Returns
    -------
    list of Iteration
    """
    # on the graph of the pipeline: that of the step would add its reductions
    resident = [replace(entry, offload=None) if entry.offload else entry for entry in costs]
    resident_s = np.array(makespans_s, dtype=float)
    if offloaded := [place for place, entry in enumerate(costs) if entry.offload]:
        resident_s[offloaded] = makespans(graph, [resident[place] for place in offloaded])
    gathered_s = resident_s
    if graph.schedule.gathers:
        without = np.arange(len(OpKind)) != OpKind.G
        resident = [replace(entry, compute_s=entry.compute_s * without[:, None]) for entry in resident]
        resident_s = np.array(makespans(graph, resident))
    free = [
        replace(entry, occupancy_s=0 * entry.occupancy_s, latency_s=0 * entry.latency_s, nics=None, delay_s=None)
        for entry in resident
    ]
    free_s = makespans(graph, free)
    whole_s = np.empty(len(points))
    for is_hidden, places in places_of(point.complete_layout.overlap_gradients for point in points).items():
        whole_s[places] = makespans(step_graph(graph, is_hidden), [costs[place] for place in places])
    times = zip(makespans_s, *(column.tolist() for column in (gathered_s, resident_s, free_s, whole_s)), strict=True)
    return [_iteration(graph.schedule, *entry) for entry in zip(costs, times, strict=True)]


def _iteration(table, costs, times):
    pipeline_s, gathered_s, resident_s, free_s, iteration_s = times
    of_stages = costs.stages
    counts = once(table, "operations of the phases", lambda: _counts(table))
    total_s, changed_s = of_stages.parts_s.sum(axis=2), costs.compute_s[[OpKind.F, OpKind.I, OpKind.W]].T
    changed = np.divide(changed_s, total_s, out=np.ones_like(total_s), where=total_s > 0)  # straggler, backward
    parts_s = of_stages.parts_s[..., 1:] * changed[..., None]
    busy = np.einsum("rks,ks->r", counts, changed_s.T)
    if table.has_shards:
        of_shards = costs.compute_s[OF_SHARDS, : table.num_ranks].sum(axis=0)
        busy[table.placement[0, : table.num_ranks]] += table.table_microbatches * of_shards
    exposed = np.einsum("rks,skp->rp", counts, parts_s)
    shares = np.where(table.overlaps, costs.overlap_factor, 1.0)
    if costs.pairs:
        shares = shares * costs.pair_shares(table)
    if (shares != 1).any():
        # the time that a pair saves is taken off the collectives of its operations, of each kind in proportion; what a
        # user's factor saves beyond that, off their computing
        saved = costs.by_class(table.num_replicas)[0][table.cost_class] * (1 - shares)
        busy -= np.bincount(table.rank, saved, minlength=table.num_ranks)
        exposed = exposed - _hidden(table, saved, parts_s)
    rank = int(busy.argmax())
    optimizer_s = float(of_stages.optimizer_s[np.nonzero(table.placement == rank)[1]].sum())
    exposed_s = {f"{name}_s": part_s for name, part_s in zip(PARTS[1:], exposed[rank].tolist(), strict=True)}
    computing_s, data_s = float(busy[rank]) - sum(exposed_s.values()), exposed_s.pop("data_s")
    parts = {
        "computing_s": computing_s, **exposed_s, "p2p_s": resident_s - free_s,
        "bubble_s": max(0.0, free_s - float(busy[rank])),
        # not less by rounding
        "data_s": max(0.0, data_s + iteration_s - pipeline_s - optimizer_s) + (gathered_s - resident_s),
        "optimizer_s": optimizer_s, "offload_s": pipeline_s - gathered_s,
    }  # fmt: skip
    return Iteration(iteration_s, parts, float(busy[rank] / busy.mean()))


def iteration_columns(point, iteration):
    """Compute the columns that a layout adds to the row of a point, and its memory.

    Parameters
    ----------
    point : Point
    iteration : Iteration
        From `iterations_of`.

    Returns
    -------
    dict
    """
    model, system, layout = point.model, point.changed_system, point.complete_layout
    of_ranks = memory_of(point)
    fullest = of_ranks.total.argmax()
    sizes = {name: float(column[fullest]) for name, column in of_ranks.columns.items()}
    peak_bytes, capacity_bytes = sizes.pop("peak_memory_bytes"), system.memory_capacity_bytes
    gpu_s = iteration.iteration_s * layout.gpus
    ends, range_from = system.range_of(model, layout.gpus, layout.precision)
    peak = system.peak_flops(layout.precision)
    return layout.columns | iteration.parts | sizes | {
        "iteration_s": iteration.iteration_s,
        **{name: end and end * iteration.iteration_s for name, end in zip(ENDS[1:], ends or (None, None), strict=True)},
        "range_from": range_from,
        "tokens_per_s_per_gpu": layout.global_batch * model.sequence / gpu_s,
        "model_flops_utilization": model_flops(model, sequences=layout.global_batch) / (gpu_s * peak),
        "causal_flops_utilization": model_flops(model, sequences=layout.global_batch, causal=True) / (gpu_s * peak),
        "peak_memory_bytes": peak_bytes, "memory_capacity_bytes": capacity_bytes,
        "fits": of_ranks.fits(system), "fit": fit_word(peak_bytes, capacity_bytes),
        "slowest_over_mean": iteration.slowest_over_mean,
        "stage_layers": point.costs.stages.text,
    }  # fmt: skip


def memory_of(point, timeline=None):
    """The `clusters.memory` of a point with a model; of its run, `timeline` if that is known, where it offloads."""
    timeline = timeline or (run_graph(point.graph, point.costs) if point.costs.offload else None)
    stages, units = point.costs.stages, point.costs.units
    return memory(point.table, point.model, stages, point.complete_layout, point.changed_system, timeline, units)


def step_graph(graph, overlaps_gradients):
    """Build the graph of the whole iteration, with gradient reductions and the optimizer step.

    Parameters
    ----------
    graph : ExecutionGraph
        Of the pipeline.
    overlaps_gradients : bool
        Whether reductions overlap the backward.

    Returns
    -------
    ExecutionGraph
    """
    table = graph.schedule
    whole = once(table, "with the step", table.with_step)
    return graph_of(whole, graph.p2p, "overlapped" if overlaps_gradients else "blocking")


def _counts(table):
    """Count the forwards and backward halves of each stage on each rank, shape (num_ranks, 3, num_stages)."""
    counts = np.zeros((table.num_ranks, 3, table.num_stages))
    for kind, phases in _COUNTED.items():
        of_kind = np.flatnonzero(table.kind == kind)[:, None]
        np.add.at(counts, (table.rank[of_kind], phases, table.stage[of_kind]), 1)
    return counts


def _hidden(table, saved, parts_s):
    """The part of each rank's collectives that pairs hide, by kind: of each operation in proportion to what it exposes.

    Pairs of the same operations on a rank are taken together.
    """
    in_pairs = np.flatnonzero(table.pairs.of >= 0)
    kind, stage, rank = table.kind[in_pairs], table.stage[in_pairs], table.rank[in_pairs]
    exposed = np.zeros((len(in_pairs), parts_s.shape[-1]))
    for of_kind, phases in _COUNTED.items():
        exposed[kind == of_kind] = parts_s[stage[kind == of_kind]][:, phases].sum(axis=1)
    group = np.unique(rank * np.int64(len(table.pairs.keys)) + table.pairs.of[in_pairs], return_inverse=True)[1]
    whole, saved = np.bincount(group, exposed.sum(axis=1)), np.bincount(group, saved[in_pairs])
    share = np.minimum(saved, whole) / np.maximum(whole, _LEAST_S)
    hidden = np.zeros((table.num_ranks, parts_s.shape[-1]))
    np.add.at(hidden, rank, share[group][:, None] * exposed)
    return hidden
