"""Iteration times and memory of many rows of training runs on many systems at once."""

import numpy as np

from ppmodel.costs.partition import hides_backward
from ppmodel.costs.runs import Runs
from ppmodel.errors import PPModelError
from ppmodel.measured.predict import GB, point_of, predictions
from ppmodel.measured.rows import kernels_named, run_of, system_of, with_kernels
from ppmodel.metrics import peak_activations
from ppmodel.metrics.memory import held_share, on_ranks
from ppmodel.ops import OpKind
from ppmodel.points.iteration import step_graph
from ppmodel.points.order import open_options
from ppmodel.schedules.cases import built
from ppmodel.simulation import graph_of, makespans


class Batch:
    """Rows of training runs, on many systems that differ only in what a calibration fits.

    Most rows are laid side by side. Those whose cells pair operations, whose stages have replicas, whose messages queue
    at a shared NIC, or whose order is searched for their times are computed one by one, as `predicted` computes them.

    Parameters
    ----------
    rows : sequence of dict of str to str
        All of them must be accepted; see `read_rows`.
    system : SystemSpec
        Gives the framework and the nodes, which stay fixed.
    without : collection of str
        Parts to leave out: those of `costs.runs.Runs`; and ``bubble``, all waiting, so that an iteration takes the
        busy time of the most loaded rank.

    Raises
    ------
    PPModelError
        If a row is refused, or a part is to be left out of a row that is computed by itself.
    """

    def __init__(self, rows, system, without=()):
        self.size, self._alone, alike = len(rows), [], {}
        for place, row in enumerate(rows):
            of_row = system_of(row, system)
            run, named = run_of(row, of_row.framework), (kernels_named(row), of_row.framework)
            table = None if open_options(run.case) else built(run.case, run.layout.pp, run.num_microbatches)
            queues = of_row.nodes is not None and of_row.nodes.shared_nic
            if table is not None and not queues and _is_plain(run.layout, of_row.framework, table):
                alike.setdefault((named, run.layout.precision), []).append((place, run, table))
            elif without:
                rule, remedy = "cannot be computed without a part of the model", "leave such rows out"
                raise PPModelError("schedule", run.case.name, rule, remedy)
            else:
                self._alone.append((place, run, named))
        self._groups = [
            (np.array(places), named, RowGroup(runs, tables, _system_of(named, system), named[1], without))
            for (named, _), group in alike.items() for places, runs, tables in [zip(*group, strict=True)]
        ]  # fmt: skip

    def seconds(self, systems):
        """Iteration times, shape (len(systems), num_rows)."""
        return self._of_rows(RowGroup.seconds, systems, "predicted_iteration_s")

    def bytes(self, systems):
        """Bytes of the most loaded rank of each row, shape (len(systems), num_rows)."""
        return self._of_rows(RowGroup.bytes, systems, "predicted_memory_gb", GB)

    def _of_rows(self, evaluate, systems, column, unit=1.0):
        values = np.empty((len(systems), self.size))
        for places, named, group in self._groups:
            values[:, places] = evaluate(group, [_system_of(named, system) for system in systems])
        for place, run, named in self._alone:
            points = [point_of(run, _system_of(named, system)) for system in systems]
            for number, prediction in enumerate(predictions(run, points)):
                if prediction["refused"] is not None:
                    raise PPModelError(
                        "row", place + 1, f"cannot be predicted: {prediction['refused']}", "leave it out"
                    )
                values[number, place] = unit * prediction[column]
        return values


def _is_plain(layout, framework, table):
    """Whether a run can be laid beside others: one replica, no pairs, nothing hidden in the backward or balanced."""
    hides = hides_backward(layout, framework, table)
    return table.num_replicas == 1 and layout.layers != "balanced" and not (table.joined.any() or hides)


def _system_of(named, system):
    """A system with the kernels, and under the framework, of some rows."""
    kernels, framework = named
    system = with_kernels(system, kernels)
    return system if framework == system.framework else framework.system(system)


class RowGroup:
    """Rows of one precision that name the same kernels and run under the same framework, side by side.

    Parameters
    ----------
    runs : sequence of MeasuredRun
    tables : sequence of Schedule
    system
        As in `Batch`.
    framework : FrameworkSpec
    without
        As in `Batch`.
    """

    def __init__(self, runs, tables, system, framework, without=()):
        self.tables, self.waits, graphs = tables, "bubble" not in without, {}
        models, layouts = [run.model for run in runs], [run.layout for run in runs]
        self.runs, p2p = Runs(tables, models, layouts, system, without), framework.p2p
        for place, (run, table) in enumerate(zip(runs, tables, strict=True)):
            pipeline = graph_of(table, p2p, "excluded")
            graph = step_graph(pipeline, run.layout.overlap_gradients)
            graphs.setdefault((id(graph), run.flushes), (pipeline, graph, run.flushes, []))[-1].append(place)
        self.graphs = list(graphs.values())
        """Rows that run the same graph equally often."""
        ranks = [table.num_ranks for table in tables]
        self.first_rank = np.cumsum([0, *ranks[:-1]])
        self.rank = np.concatenate([
            first + table.placement[0] for first, table in zip(self.first_rank, tables, strict=True)
        ])  # fmt: skip
        self.fixed = on_ranks(self.rank, sum(ranks), sum(self.runs.persistent_bytes()))
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
        for pipeline, graph, flushes, places in self.graphs:
            costs = np.concatenate([tables[..., self.runs.stages[place]] for place in places])
            if not self.waits:
                iteration_s = _busy_s(pipeline.schedule, costs[:, 0], flushes)
            else:
                iteration_s = makespans(graph, costs)
                if flushes > 1:
                    iteration_s += (flushes - 1) * makespans(pipeline, costs)
            seconds[:, places] = iteration_s.reshape(len(places), -1).T
        return seconds

    def bytes(self, systems):
        """Bytes of the most loaded rank of each row, shape (len(systems), num_rows)."""
        return np.array([np.maximum.reduceat(self._rank_bytes(system), self.first_rank) for system in systems])

    def _rank_bytes(self, system):
        """Bytes of each rank of each row, one after another."""
        kept, between, logits, working = self.runs.bytes(system)
        peaks = np.zeros(len(self.fixed))
        peaks[self.rank] = self.in_flight * kept
        share = held_share(kept, between)
        for table, stages, ranks in self.mixed:
            peaks[ranks] = peak_activations(table, kept[stages], share[stages])
        largest = sum(on_ranks(self.rank, len(self.fixed), column, np.maximum) for column in (working, logits))
        return self.fixed + peaks + largest + system.reserve_bytes


def _busy_s(table, compute_s, flushes):
    """The most loaded rank's time if it never waits, from seconds of shape (num_systems, kinds, num_stages).

    Of the reductions of its chunks only the longest counts: the others can run under later backwards.
    """
    ranks, counts = table.placement[0], np.zeros(compute_s.shape[1:])
    np.add.at(counts, (table.kind, table.stage), float(flushes))
    counts[OpKind.O], counts[OpKind.R] = 1.0, 0.0
    busy_s = on_ranks(ranks, table.num_ranks, (counts * compute_s).sum(axis=1).T)
    return (busy_s + on_ranks(ranks, table.num_ranks, compute_s[:, OpKind.R].T, np.maximum)).max(axis=0)
