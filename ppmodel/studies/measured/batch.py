"""Iteration times and memory of many rows of training runs on many systems at once."""

import numpy as np

from ppmodel.clusters.costs.partition import hides_backward
from ppmodel.clusters.costs.runs import Runs
from ppmodel.clusters.memory import held_share, on_ranks
from ppmodel.metrics import peak_activations
from ppmodel.ops import OpKind
from ppmodel.schedules.cases import built
from ppmodel.simulation import graph_of, makespans
from ppmodel.studies.measured.predict import GB, point_of, predictions
from ppmodel.studies.measured.rows import kernels_named, run_of, system_of
from ppmodel.studies.points.iteration import step_graph
from ppmodel.studies.points.order import open_options
from ppmodel.studies.points.point import places_of


class Batch:
    """Rows of training runs, on many systems that differ only in what a calibration fits.

    Most rows are laid side by side. Those of slices, those whose cells pair operations, whose stages have replicas,
    whose messages queue at a shared NIC, or whose order is searched for their times are computed one by one, as
    `predicted` computes them.

    Parameters
    ----------
    rows : sequence of dict of str to str
        All of them must be accepted; see `read_rows`.
    system : SystemSpec
        Gives the framework and the nodes, which stay fixed.

    Raises
    ------
    PPModelError
        If a row is refused.
    """

    def __init__(self, rows, system):
        self.size, self._alone, groups = len(rows), [], {}
        nics_queue = system.nodes is not None and system.nodes.shared_nic
        for place, row in enumerate(rows):
            framework = system_of(row, system).framework
            run = run_of(row, framework)
            is_alone = nics_queue or open_options(run.case) or run.layout.layers == "balanced"
            table = None if is_alone else built(run.case, run.layout.pp, run.num_microbatches)
            is_alone = is_alone or table.slices > 1 or table.num_replicas > 1 or table.joined.any()
            if is_alone or hides_backward(run.layout, framework, table):
                self._alone.append((place, run, row))
            else:
                key = kernels_named(row), framework, run.layout.precision
                groups.setdefault(key, []).append((place, run, table, row))
        self._groups = []
        for group in groups.values():
            places, runs, tables, (row, *_) = zip(*group, strict=True)
            self._groups.append((list(places), row, RowGroup(runs, tables, system_of(row, system))))

    def seconds(self, systems):
        """Iteration times, shape (len(systems), num_rows)."""
        return self._of_rows(RowGroup.seconds, systems, "predicted_iteration_s")

    def bytes(self, systems):
        """Bytes of the most loaded rank of each row, shape (len(systems), num_rows)."""
        return self._of_rows(RowGroup.bytes, systems, "predicted_memory_gb", GB)

    def _of_rows(self, evaluate, systems, column, unit=1.0):
        values = np.empty((len(systems), self.size))
        for places, row, group in self._groups:
            values[:, places] = evaluate(group, [system_of(row, system) for system in systems])
        for place, run, row in self._alone:
            points = [point_of(run, system_of(row, system)) for system in systems]
            values[:, place] = [unit * prediction[column] for prediction in predictions(run, points)]
        return values


class RowGroup:
    """Rows of one precision that name the same kernels and run under the same framework, side by side.

    Parameters
    ----------
    runs : sequence of MeasuredRun
    tables : sequence of Schedule
    system : SystemSpec
        From `rows.system_of`.
    """

    def __init__(self, runs, tables, system):
        self.tables, keys = tables, []
        models, layouts = [run.model for run in runs], [run.layout for run in runs]
        self.runs, p2p = Runs(tables, models, layouts, system), system.framework.p2p
        for run, table in zip(runs, tables, strict=True):
            pipeline = graph_of(table, p2p, "excluded")
            keys.append((pipeline, step_graph(pipeline, run.layout.overlap_gradients), run.pipeline_runs))
        self.graphs = [(*key, places) for key, places in places_of(keys).items()]
        """Rows that run the same graph equally often."""
        ranks = [table.num_ranks for table in tables]
        self.first_rank = np.cumsum([0, *ranks[:-1]])
        self.rank = np.concatenate([
            first + table.placement[0] for first, table in zip(self.first_rank, tables, strict=True)
        ])  # fmt: skip
        self.fixed = on_ranks(self.rank[None], sum(self.runs.persistent_bytes()))
        self.fixed += np.repeat(self.runs.buffer_bytes, ranks)
        self.in_flight, self.mixed = np.zeros(len(self.rank)), []
        for table, stages, first in zip(tables, self.runs.stages, self.first_rank, strict=True):
            if table.num_stages > table.num_ranks or (table.kind == OpKind.W).any():
                self.mixed.append((table, stages, slice(first, first + table.num_ranks)))
            else:
                self.in_flight[stages] = peak_activations(table)[table.placement[0]]

    def seconds(self, systems):
        """Iteration times, shape (len(systems), num_rows)."""
        tables = np.array([self.runs.tables(system) for system in systems])
        seconds = np.empty((len(systems), len(self.tables)))
        for pipeline, graph, runs, places in self.graphs:
            costs = np.concatenate([tables[..., self.runs.stages[place]] for place in places])
            iteration_s = makespans(graph, costs)
            if runs > 1:
                iteration_s += (runs - 1) * makespans(pipeline, costs)
            seconds[:, places] = iteration_s.reshape(len(places), -1).T
        return seconds

    def bytes(self, systems):
        """Bytes of the most loaded rank of each row, shape (len(systems), num_rows)."""
        held = []
        for system in systems:
            stage_bytes, between, logits, copied, working = self.runs.bytes(system)
            peaks, share = np.zeros(len(self.fixed)), held_share(stage_bytes, between)
            peaks[self.rank] = self.in_flight * stage_bytes
            for table, stages, ranks in self.mixed:
                peaks[ranks] = peak_activations(table, stage_bytes[stages], share[stages])
            largest = sum(on_ranks(self.rank[None], column, np.maximum) for column in (working, logits))
            fixed = self.fixed + on_ranks(self.rank[None], copied)
            held.append(np.maximum.reduceat(fixed + peaks + largest + system.reserve_bytes, self.first_rank))
        return np.array(held)
