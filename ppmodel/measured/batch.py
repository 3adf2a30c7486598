"""Iteration times and memory of many rows of training runs on many systems at once.

What the rows do does not depend on the system: their layers and stages are laid side by side once, and `costs` prices
them as those of a single run. Then each row takes one pass through its graph, for all systems.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ppmodel.costs import buffer_bytes, check_layout, hockney_s, receivers, stage_layers
from ppmodel.costs.collectives import DATA_GROUPS, group_of
from ppmodel.costs.data_parallel import shares
from ppmodel.costs.layers import NOTHING, NUM_PHASES, layer_bytes, layer_costs, layer_work
from ppmodel.costs.stages import compute_seconds, largest, layer_counts, stage_parts_s, step_seconds, step_work, summed
from ppmodel.costs.transfers import pipeline_links, sent_bytes
from ppmodel.costs.work import PARTS
from ppmodel.measured.rows import kernels_named, run_of, with_kernels
from ppmodel.metrics import peak_activations
from ppmodel.ops import OpKind
from ppmodel.points.iteration import step_graph
from ppmodel.schedules.cases import built
from ppmodel.simulation import graph_of, makespans
from ppmodel.specs import with_framework

LEFT_OUT = ("recomputation", "tensor", "data", "transfers", "bubble")
"""The parts of an iteration that a batch can leave out, to see what they are worth."""


class RowWork(NamedTuple):
    """What a row runs: its schedule with its graph, without and with the end of an iteration, its layers and stages.

    Parameters
    ----------
    run : MeasuredRun
        With a complete layout.
    pipeline, graph : ExecutionGraph
    layers : LayerWork
    cut : StageLayers
    step : StepWork
    remote, same : ndarray of bool, shape (6, num_stages)
        Whether a transfer leaves its rank, and whether it stays within a node.
    message_bytes : float
    """

    run: object
    pipeline: object
    graph: object
    layers: object
    cut: object
    step: object
    remote: np.ndarray
    same: np.ndarray
    message_bytes: float

    @property
    def table(self):
        """The schedule."""
        return self.pipeline.schedule


def row_work(row, system, without=()):
    """What a row of a file of training runs does.

    Parameters
    ----------
    row : dict of str to str
    system : SystemSpec
        Gives the framework and the nodes.
    without : collection of str
        As in `Batch`.

    Returns
    -------
    RowWork

    Raises
    ------
    PPModelError
        If the row is refused.
    """
    system = with_framework(system)
    run = run_of(row, system.framework)
    model, table = run.model, built(run.case, run.layout.pp, run.num_microbatches)
    layout = check_layout(run.layout, model, system, table)
    layout = replace(layout, recompute="none") if "recomputation" in without else layout
    pipeline = graph_of(table, system.framework.p2p, "excluded")
    cut = stage_layers(table, model, None, layout)
    nodes = pipeline_links(table, model, system, layout).nodes
    step = step_work(table, model, layout, cut, nodes)
    nodes = np.arange(table.num_ranks) if nodes is None else np.asarray(nodes)
    sender, receiver = table.placement[0], receivers(table)[:, 0]
    return RowWork(
        run._replace(layout=layout), pipeline, step_graph(pipeline, layout.overlap_gradients),
        layer_work(model, layout.microbatch_size, layout), cut, step, receiver != sender,
        nodes[receiver] == nodes[sender], sent_bytes(table, model, system, layout),
    )  # fmt: skip


class Batch:
    """Rows of training runs, on many systems that differ only in what a calibration fits.

    Parameters
    ----------
    rows : sequence of dict of str to str
        All of them must be accepted; see `read_rows`.
    system : SystemSpec
        Gives the framework and the nodes, which stay fixed. It must not share a NIC.
    without : collection of str
        Parts to leave out, of `LEFT_OUT`: all recomputation, the collectives of tensor and of data parallelism,
        transfers between stages, and all waiting, so that an iteration takes the busy time of the most loaded rank.
    """

    def __init__(self, rows, system, without=()):
        self.size, alike = len(rows), {}
        for place, row in enumerate(rows):
            work, kernels = row_work(row, system, without), kernels_named(row)
            alike.setdefault((kernels, work.run.layout.precision), []).append((place, work))
        self._groups = [
            (np.array([place for place, _ in group]), kernels, RowGroup([work for _, work in group], system, without))
            for (kernels, _), group in alike.items()
        ]

    def seconds(self, systems):
        """Iteration times, shape (len(systems), num_rows)."""
        return self._of_groups(RowGroup.seconds, systems)

    def bytes(self, systems):
        """Bytes of the most loaded rank of each row, shape (len(systems), num_rows)."""
        return self._of_groups(RowGroup.bytes, systems)

    def _of_groups(self, evaluate, systems):
        values = np.empty((len(systems), self.size))
        for places, kernels, group in self._groups:
            values[:, places] = evaluate(group, [with_framework(with_kernels(system, kernels)) for system in systems])
        return values


class RowGroup:
    """Rows of one precision that name the same kernels, with their layers, then their stages, side by side.

    Parameters
    ----------
    rows : list of RowWork
    system, without
        As in `Batch`.
    """

    def __init__(self, rows, system, without=()):
        self.rows, self.without = rows, without
        self.layers = _side_by_side([row.layers for row in rows], system, without)
        sizes = [row.table.num_stages for row in rows]
        self.first, of_row = np.cumsum([0, *sizes]).tolist(), np.repeat(np.arange(len(rows)), sizes)
        counts = [layer_counts(row.layers, row.cut, row.run.layout.recompute) for row in rows]
        self.counts = np.concatenate(counts)
        self.index = of_row[:, None] * self.counts.shape[1] + np.arange(self.counts.shape[1])
        self.parameters = summed(self.layers.sizes.parameters, self.counts, self.index).T
        columns = (np.concatenate(column) for column in zip(*(row.step[:3] for row in rows), strict=True))
        chunks = np.array([row.table.chunks_per_rank for row in rows])[of_row]
        sharing = type(self.layers.sharing)(*(column[self.index[:, 0]] for column in self.layers.sharing))
        self.step = rows[0].step._make((*columns, chunks, sharing))
        self.message_bytes = np.array([row.message_bytes for row in rows])[of_row]
        self.remote = np.concatenate([row.remote for row in rows], axis=1) & ("transfers" not in without)
        self.same = np.concatenate([row.same for row in rows], axis=1)
        graphs = {}
        for place, row in enumerate(rows):
            graphs.setdefault((id(row.graph), row.run.flushes), []).append(place)
        self.of_graph = list(graphs.values())
        """Rows that run the same graph equally often."""
        self._lay_memory()

    def seconds(self, systems):
        """Iteration times, shape (len(systems), num_rows)."""
        tables = np.array([self._tables(system) for system in systems])
        seconds = np.empty((len(systems), len(self.rows)))
        for places in self.of_graph:
            row = self.rows[places[0]]
            costs = np.concatenate([tables[..., self.first[place] : self.first[place + 1]] for place in places])
            if "bubble" in self.without:
                iteration_s = _busy_s(row.table, costs[:, 0], row.run.flushes)
            else:
                iteration_s = makespans(row.graph, costs)
                if row.run.flushes > 1:
                    iteration_s += (row.run.flushes - 1) * makespans(row.pipeline, costs)
            seconds[:, places] = iteration_s.reshape(len(places), -1).T
        return seconds

    def _tables(self, system):
        """Compute, occupancy and latency of every stage of every row, shape (3, 6, num_stages of all rows)."""
        layers = layer_costs(self.layers, system)
        parts_s = stage_parts_s(layers, self.counts, self.index)
        tables = np.zeros((3, len(OpKind), len(self.counts)))
        tables[0] = compute_seconds(parts_s.sum(axis=2).T, step_seconds(parts_s, self.parameters, self.step, layers))
        between = hockney_s(self.message_bytes, system)
        inside = hockney_s(self.message_bytes, system, inside=True) if system.nodes is not None else between
        for table, near, far in zip(tables[1:], inside, between, strict=True):
            table[:] = np.where(self.remote, np.where(self.same, near, far), 0.0)
        return tables

    def bytes(self, systems):
        """Bytes of the most loaded rank of each row, shape (len(systems), num_rows)."""
        return np.array([np.maximum.reduceat(self._rank_bytes(system), self.first_rank) for system in systems])

    def _lay_memory(self):
        """What the memory of ranks, of all rows one after another, takes from the rows and not from a system."""
        ranks = [row.table.num_ranks for row in self.rows]
        self.first_rank = np.cumsum([0, *ranks[:-1]])
        self.rank = np.concatenate([
            first + row.table.placement[0] for first, row in zip(self.first_rank, self.rows, strict=True)
        ])  # fmt: skip
        sharing = self.step.sharing
        widths = enumerate((sharing.optimizer_bytes, sharing.gradient_bytes, sharing.weight_bytes), start=1)
        persistent = sum(shares(self.parameters, sharing, stage) * width for stage, width in widths)
        buffers = [buffer_bytes(row.table, row.run.model, row.run.layout) for row in self.rows]
        self.fixed = np.bincount(self.rank, persistent) + np.repeat(buffers, ranks)
        self.in_flight, self.mixed = np.zeros(len(self.rank)), []
        for place, row in enumerate(self.rows):
            stages = slice(self.first[place], self.first[place + 1])
            if row.table.num_stages > row.table.num_ranks or (row.table.kind == OpKind.W).any():
                self.mixed.append((row.table, stages, self.first_rank[place] + np.arange(row.table.num_ranks)))
            else:
                self.in_flight[stages] = peak_activations(row.table)[row.table.placement[0]]

    def _rank_bytes(self, system):
        """Bytes of each rank of each row, one after another."""
        layers = layer_bytes(self.layers.sizes, system)
        kept, between, logits = summed(layers[:, :3], self.counts, self.index).T
        peaks, working, most_logits = np.zeros((3, len(self.fixed)))
        peaks[self.rank] = self.in_flight * kept
        share = np.divide(between, kept, out=np.zeros(len(kept)), where=kept > 0)
        for table, stages, ranks in self.mixed:
            peaks[ranks] = peak_activations(table, kept[stages], share[stages])
        np.maximum.at(working, self.rank, largest(layers[:, 3], self.counts, self.index))
        np.maximum.at(most_logits, self.rank, logits)
        return self.fixed + peaks + working + most_logits + system.reserve_bytes


def _side_by_side(works, system, without):
    """The layers of several runs as those of one; collectives that take equally long share a line."""
    num_kernels = np.cumsum([0, *(len(work.kernel_slot) for work in works)])
    num_layers = np.cumsum([0, *(len(work.layers) for work in works)])
    numbers, lines, exchanges, sharing = {}, [], [], []
    for work, kernel, layer in zip(works, num_kernels, num_layers, strict=False):
        line = np.array([_line(key, system, numbers, lines) for key in work.lines])
        columns = work.exchanges
        slot = columns.slot + layer * NUM_PHASES * len(PARTS)
        beside = np.where(columns.beside == NOTHING, NOTHING, columns.beside + kernel)
        exchanges.append(columns._replace(line=line[columns.line], slot=slot, beside=beside))
        gives = work.sharing._replace(reduction=line[work.sharing.reduction], gathering=line[work.sharing.gathering])
        sharing += [gives] * len(work.layers)
    joined = _concatenated(exchanges)
    left_out = ("tensor",) * ("tensor" in without) + DATA_GROUPS * ("data" in without)
    lines = [None if line[1] in left_out else line for line in lines]
    slots = [work.kernel_slot + layer * NUM_PHASES for work, layer in zip(works, num_layers, strict=False)]
    sharing = type(sharing[0])(*map(np.array, zip(*sharing, strict=True)))
    return works[0]._replace(
        layers=[layer for work in works for layer in work.layers], places=[], lines=lines,
        kernels=_concatenated([work.kernels for work in works]), kernel_slot=np.concatenate(slots),
        exchanges=joined, sizes=_concatenated([work.sizes for work in works]), sharing=sharing,
    )  # fmt: skip


def _line(line, system, numbers, lines):
    """The number of a collective's line: one for all that do the same in groups placed alike."""
    kind, group, layout = line
    key = kind, group in DATA_GROUPS, group_of(group, layout, system), layout.tp
    if key not in numbers:
        numbers[key] = len(lines)
        lines.append(line)
    return numbers[key]


def _concatenated(tuples):
    """Named tuples of arrays as one."""
    return type(tuples[0])(*map(np.concatenate, zip(*tuples, strict=True)))


def _busy_s(table, compute_s, flushes):
    """The most loaded rank's time if it never waits, from seconds of shape (num_systems, kinds, num_stages).

    Of the reductions of its chunks only the longest counts: the others can run under later backwards.
    """
    ranks, counts = table.placement[0], np.zeros(compute_s.shape[1:])
    np.add.at(counts, (table.kind, table.stage), float(flushes))
    counts[OpKind.O], counts[OpKind.R] = 1.0, 0.0
    busy_s, reduced_s = np.zeros((2, table.num_ranks, len(compute_s)))
    np.add.at(busy_s, ranks, (counts * compute_s).sum(axis=1).T)
    np.maximum.at(reduced_s, ranks, compute_s[:, OpKind.R].T)
    return (busy_s + reduced_s).max(axis=0)
