"""Iteration times of many rows of training runs on many systems: the fast twin of `predicted`.

The kernels of a row's blocks, its collectives and the stages of its table do not depend on the system's constants. They
are laid out once, in the same arrays for all rows; predicting many systems at once then takes a few array operations
and one pass through the graph of each row.
"""

from typing import NamedTuple

import numpy as np

from ppmodel.costs import Kernels, check_layout, hockney_s, kernels_s, receivers, stage_layers
from ppmodel.costs.collectives import DATA_GROUPS, collective_line, group_of
from ppmodel.costs.data_parallel import SHARED_GRADIENTS, SHARED_OPTIMIZER, Held, microbatch_data_s, shares
from ppmodel.costs.host import launched, wait_for_host
from ppmodel.costs.model import last_halves, work_of
from ppmodel.costs.phases import AGAIN, INPUT_GRAD, NOTHING, PARTS, PARTS_THAT_HIDE, less_hidden, may_hide
from ppmodel.costs.transfers import pipeline_links, sent_bytes
from ppmodel.measured.rows import kernels_named, run_of, with_kernels
from ppmodel.ops import OpKind
from ppmodel.points.iteration import step_graph
from ppmodel.schedules.cases import built
from ppmodel.simulation import graph_of, makespans
from ppmodel.specs import FrameworkSpec

_LISTS, _PHASES, _PARTS = 3, 4, len(PARTS)
_DATA, _TENSOR = PARTS.index("data"), PARTS.index("tensor")
LEFT_OUT = ("recomputation", "tensor", "data", "transfers", "bubble")
"""The parts of an iteration that a batch can leave out, to see what they are worth."""


class Laid(NamedTuple):
    """A row laid out: what it runs, the graph of its pipeline, and the same graph with the end of an iteration."""

    run: object
    layout: object
    table: object
    pipeline: object
    graph: object
    work: object
    layers: object
    links: object
    num_bytes: float


def lay_out(row, system):
    """What a row runs, with its layers cut and its graph compiled.

    Raises
    ------
    PPModelError
        If the row is refused.
    """
    framework = system.framework or FrameworkSpec()
    run = run_of(row, framework)
    table = built(run.case, run.layout.pp, run.num_microbatches)
    layout = check_layout(run.layout, run.model, system, table)
    given = run.model, layout.microbatch_size, layout
    pipeline = graph_of(table, framework.p2p, "excluded")
    layers = stage_layers(table, run.model, None, layout)
    links = pipeline_links(table, run.model, system, layout)
    num_bytes = sent_bytes(table, run.model, system, layout)
    return Laid(
        run,
        layout,
        table,
        pipeline,
        step_graph(pipeline, layout.overlap_gradients),
        work_of(*given),
        layers,
        links,
        num_bytes,
    )


def laid_by_kernels(rows, system):
    """Rows laid out, grouped by kernels and precision: their places, `kernels_named`, and a list of `Laid`."""
    groups = {}
    for place, row in enumerate(rows):
        laid = lay_out(row, system)
        groups.setdefault((kernels_named(row), laid.layout.precision), []).append((place, laid))
    return [
        (np.array([place for place, _ in some]), named, [laid for _, laid in some])
        for (named, _), some in groups.items()
    ]


class Batch:
    """Iteration times of rows on many systems that differ only in what a calibration fits.

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
        self.size = len(rows)
        laid = laid_by_kernels(rows, system)
        self._groups = [(places, named, _Group(some, system, frozenset(without))) for places, named, some in laid]

    def seconds(self, systems):
        """Iteration times, shape (len(systems), num_rows)."""
        found = np.empty((len(systems), self.size))
        for places, named, group in self._groups:
            found[:, places] = group.seconds([with_kernels(system, named) for system in systems])
        return found


class _Group:
    """Rows of one precision that name the same kernels, in the same arrays."""

    def __init__(self, laid, system, without):
        self.laid, self.system, self.without = laid, system, without
        alike = {}
        for row, one in enumerate(laid):
            alike.setdefault((id(one.graph), one.run.flushes), []).append(row)
        self.alike = list(alike.values())
        """Rows that run the same graph equally often."""
        self._lay_kernels()
        self._lay_collectives()
        self._lay_stages()
        self._lay_transfers()

    def _lay_kernels(self):
        phases = [one.work.phases for one in self.laid]
        self.kernels = Kernels(*map(np.concatenate, zip(*(one.kernels for one in phases), strict=True)))
        counts = [np.diff(one.ends, prepend=0) for one in phases]
        self.kernel_slot = np.repeat(np.arange(sum(map(len, counts))), np.concatenate(counts))
        self.again = np.array([one.work.again for one in self.laid])
        self.precision = self.laid[0].layout.precision
        launches = [launched(one.run.model, one.layout.microbatch_size, one.layout) for one in self.laid]
        self.launched = np.array(launches, dtype=float).T

    def _lay_collectives(self):
        known, columns, first = {}, [], 0
        self.lines, self.line_of = [], {}
        for row, one in enumerate(self.laid):
            phases = one.work.phases
            numbers = np.array([self._line(known, *pair, one.layout) for pair in phases.pairs], dtype=np.intp)
            hides = np.array([may_hide(*pair, one.layout) for pair in phases.pairs], dtype=np.intp)
            beside = np.where(phases.beside == NOTHING, NOTHING, phases.beside + first)
            slot = phases.slot + row * _LISTS * _PHASES * _PARTS
            columns.append(np.array([numbers[phases.pair], hides[phases.pair], slot, beside], dtype=np.intp))
            first += len(phases.kernels.flops)
        self.pair, hides, self.slot, self.beside = np.concatenate(columns, axis=1)
        self.hides = hides.astype(bool)
        self.volume = np.concatenate([one.work.phases.volume for one in self.laid])
        zero = np.array([one.layout.zero for one in self.laid])
        kinds = np.where(zero > 0, "reduce-scatter", "all-reduce")
        self.reduction = np.array([
            self._line(known, kind, "data", one.layout) for kind, one in zip(kinds, self.laid, strict=True)
        ])  # fmt: skip
        self.gathering = np.array([self._line(known, "all-gather", "data", one.layout) for one in self.laid])
        self.zero = zero

    def _line(self, known, kind, group, layout):
        """The number of a collective's line: one for all that do the same in groups placed alike."""
        key = kind, group in DATA_GROUPS, group_of(group, layout, self.system), layout.tp
        if key not in known:
            known[key] = len(self.lines)
            self.lines.append((kind, group, layout))
        return known[key]

    def _lay_stages(self):
        laid = self.laid
        self.stages = np.array([one.table.num_stages for one in laid])
        self.row = np.repeat(np.arange(len(laid)), self.stages)
        self.first = np.concatenate([[0], np.cumsum(self.stages)])
        self.counts = np.zeros((_LISTS, len(self.row)))
        for one, first in zip(laid, self.first[:-1].tolist(), strict=True):
            self.counts[0, first : first + one.table.num_stages] = one.layers.blocks
            self.counts[1, first + one.layers.embedding] = self.counts[2, first + one.layers.head] = 1
        zero = self.zero[self.row]
        self.reduces, self.gathers = zero < SHARED_GRADIENTS, (zero == SHARED_OPTIMIZER) | (zero == SHARED_GRADIENTS)
        switches = [(one.layout.overlap_gradients, one.layout.overlap_parameters) for one in laid]
        self.overlaps = np.array(switches, dtype=float).T[:, self.row]
        self.last_halves = np.concatenate([last_halves(one.table) for one in laid])
        held = np.array([one.work.parameters.dense for one in laid])
        self.parameters = sum(count * held[self.row, place] for place, count in enumerate(self.counts))
        self.own = self.parameters / np.array([
            1.0 / float(shares(Held(1.0, 0.0), one.layout, SHARED_OPTIMIZER)) for one in laid
        ])[self.row]  # fmt: skip
        models = [one.run.model for one in laid]
        self.gradient_bytes = np.array([model.gradient_bytes for model in models])
        self.weight_bytes = np.array([model.element_bytes for model in models])
        self.step_bytes = np.array([
            model.gradient_bytes + 2 * model.optimizer_bytes + model.element_bytes for model in models
        ])[self.row] * self.own  # fmt: skip
        self.chunks = np.array([one.table.chunks_per_rank for one in laid])[self.row]

    def _lay_transfers(self):
        self.num_bytes = np.array([one.num_bytes for one in self.laid])
        remote, same = [], []
        tied = np.zeros(len(self.row))
        self.tied_inside = np.zeros(len(self.row), dtype=bool)
        for one, start in zip(self.laid, self.first[:-1].tolist(), strict=True):
            sender, receiver = one.table.placement[0], receivers(one.table)[:, 0]
            nodes = np.arange(one.table.num_ranks) if one.links.nodes is None else np.asarray(one.links.nodes)
            remote.append(receiver != sender)
            same.append(nodes[receiver] == nodes[sender])
            ends = sender[[one.layers.embedding, one.layers.head]]
            if one.run.model.tied_embeddings and ends[0] != ends[1]:
                model = one.run.model
                places = start + np.array([one.layers.embedding, one.layers.head])
                tied[places] = model.vocabulary / one.layout.tp * model.hidden * model.gradient_bytes
                self.tied_inside[places] = nodes[ends[0]] == nodes[ends[1]]
        self.remote, self.same = np.concatenate(remote, axis=1), np.concatenate(same, axis=1)
        self.tied = tied

    def seconds(self, systems):
        """Iteration times, shape (len(systems), num_rows)."""
        tables = np.array([self._tables(system) for system in systems])
        found = np.empty((len(systems), len(self.laid)))
        for rows in self.alike:
            one = self.laid[rows[0]]
            own = np.concatenate([tables[..., self.first[row] : self.first[row + 1]] for row in rows])
            if "bubble" in self.without:
                seconds = _busy_s(one.table, own[:, 0], one.run.flushes)
            else:
                seconds = makespans(one.graph, own)
                if one.run.flushes > 1:
                    seconds += (one.run.flushes - 1) * makespans(one.pipeline, own)
            found[:, rows] = seconds.reshape(len(rows), -1).T
        return found

    def _tables(self, system):
        """Compute, occupancy and latency of every stage of every row, shape (3, kinds, num_stages of all rows)."""
        lines = np.array([collective_line(*line, system) for line in self.lines]).T
        stages = np.einsum("lt,tlkp->tkp", self.counts, self._lists(system, *lines)[self.row])
        if system.kernels and system.kernels.stage_overhead_s:
            stages[:, :2, 0] += system.kernels.stage_overhead_s
        forward, input_grad, weight_grad = stages.sum(axis=2).T
        tables = np.zeros((3, len(OpKind), len(self.row)))
        tables[0, : OpKind.R] = forward, input_grad + weight_grad, input_grad, weight_grad
        busy_s = stages[..., PARTS_THAT_HIDE].sum(axis=2)
        last_s = (self.last_halves * busy_s[:, 1:]).sum(axis=1)
        tables[0, OpKind.R], tables[0, OpKind.O] = self._once(system, lines, busy_s[:, 0], last_s)
        tables[1:] = self._transfers(system)
        return tables

    def _lists(self, system, fixed, slope):
        """Seconds of each list of each row, by F, I and W and by part; shape (num_rows, 3, 3, 5)."""
        taken = kernels_s(self.kernels, system, self.precision)
        size = len(self.laid) * _LISTS * _PHASES
        seconds = np.zeros((size, _PARTS))
        if len(self.volume):
            collectives = fixed[self.pair] + slope[self.pair] * self.volume
            exposed = less_hidden(collectives, taken, self.hides, self.beside)
            seconds = np.bincount(self.slot, exposed, seconds.size).reshape(size, _PARTS)
        seconds[:, 0] = np.bincount(self.kernel_slot, taken, size)
        seconds = seconds.reshape(len(self.laid), _LISTS, _PHASES, _PARTS)
        if "tensor" in self.without:
            seconds[..., _TENSOR] = 0.0
        if system.kernels and system.kernels.block_host_s:
            self._wait(seconds, system.kernels)
        if "recomputation" not in self.without:
            seconds[:, :, INPUT_GRAD] += seconds[:, :, AGAIN]
        seconds = seconds[:, :, :AGAIN]
        for row, one in enumerate(self.laid):
            if one.layout.zero >= SHARED_GRADIENTS:
                busy_s = seconds[row, ..., PARTS_THAT_HIDE].sum(axis=2)
                given = one.work.parameters, busy_s, one.run.model, one.layout, system
                seconds[row, ..., _DATA] += microbatch_data_s(*given)
        if "data" in self.without:
            seconds[..., _DATA] = 0.0
        return seconds

    def _wait(self, seconds, kernels):
        tensor, softmax = self.launched
        host = kernels.block_host_s + (kernels.tensor_host_s * tensor + kernels.softmax_host_s * softmax)
        blocks = seconds[:, 0]
        wait_for_host(blocks, self.again[:, 0], host[:, None], kernels.host_exponent)
        seconds[:, 0] = blocks

    def _once(self, system, lines, forward_s, backward_s):
        """Seconds of each stage's reduction, and of its optimizer step with the gathering of parameters."""
        reduced, gathered = (
            np.where(self.parameters > 0, fixed[self.row] + (slope * width)[self.row] * self.parameters, 0.0)
            for (fixed, slope), width in (
                (lines[:, self.reduction], self.gradient_bytes), (lines[:, self.gathering], self.weight_bytes)
            )
        )  # fmt: skip
        is_counted = "data" not in self.without
        reduced = np.maximum(reduced - self.overlaps[0] * backward_s, 0.0) * self.reduces * is_counted
        gathered = np.maximum(gathered - self.overlaps[1] * forward_s, 0.0) * self.gathers * is_counted
        own = system.kernels
        efficiency = (own and own.optimizer_efficiency) or system.memory_efficiency
        step = self.step_bytes / (system.memory_bandwidth_bytes_per_s * efficiency)
        step = np.where(self.own > 0, step + system.memory_latency_s, 0.0)
        if own:
            step = step + own.iteration_overhead_s / self.chunks
        return reduced + self._tied_s(system), gathered + step

    def _tied_s(self, system):
        inside = system.nodes is not None
        (far, far_s), (near, near_s) = (hockney_s(self.tied, system, inside=near and inside) for near in (False, True))
        seconds = np.where(self.tied_inside, near + 2 * near_s, far + 2 * far_s)
        return np.where(self.tied > 0, seconds, 0.0)

    def _transfers(self, system):
        inside = system.nodes is not None
        (far, far_s), (near, near_s) = (
            hockney_s(self.num_bytes, system, inside=near and inside) for near in (False, True)
        )
        occupancy = np.where(self.same, near[self.row], far[self.row])
        latency = np.where(self.same, near_s, far_s)
        crosses = self.remote & ("transfers" not in self.without)
        return [np.where(crosses, one, 0.0) for one in (occupancy, latency)]


def _busy_s(table, compute_s, flushes):
    """The most loaded rank's time if it never waits, from seconds of shape (num_systems, kinds, num_stages).

    Of the reductions of its chunks only the longest counts: the others can run under later backwards.
    """
    ranks, counts = table.placement[0], np.zeros(compute_s.shape[1:])
    np.add.at(counts, (table.kind, table.stage), float(flushes))
    counts[OpKind.O], counts[OpKind.R] = 1.0, 0.0
    found = []
    for one, reduced in zip((counts * compute_s).sum(axis=1), compute_s[:, OpKind.R], strict=True):
        longest = np.zeros(table.num_ranks)
        np.maximum.at(longest, ranks, reduced)
        found.append((np.bincount(ranks, one, table.num_ranks) + longest).max())
    return np.array(found)
