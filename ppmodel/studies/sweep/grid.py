"""The grid of a sweep: points with noise and seeds, and how the rows are divided into chunks.

Rows are ordered like nested loops, the schedule outermost: schedule, options, layout, pp, microbatches, p2p,
allreduce, system, model, noise, seed. All rows up to ``allreduce`` share one compiled graph.
"""

from dataclasses import asdict, dataclass, fields, is_dataclass

import numpy as np

from ppmodel.studies.points import Grid

_GRAPH_NS = 3_000_000
_OPERATION_NS = 100
_ROW_NS = 60_000
_ROW_OPERATION_NS = 2
_NOISY_OPERATION_NS = 60
_LARGEST_TABLE = 2**25
_LARGEST_CHUNK_NS = 1_000_000_000
_SMALLEST_CHUNK_NS = 50_000_000
_FEWEST_CHUNKS = 128
_MOST_SPREAD = 64
_NOT_IN_ROWS = "title", "provenance"


@dataclass(frozen=True)
class Sweep(Grid):
    """A grid of points on systems, with everything else that its rows depend on.

    Parameters
    ----------
    noises : tuple of Noise
        Empty if all runs of a point are alike; then there are no seeds either.
    seeds : tuple of range
        Consecutive ranges.
    files : tuple of (str, str)
        Name and text of each file with users' schedules.
    asked : tuple of str
        The values of layouts, and the semantics, that its file gives.
    without_effect : tuple of (str, object)
        Those of them that change nothing.
    """

    noises: tuple = ()
    seeds: tuple = ()
    files: tuple = ()
    asked: tuple = ()
    without_effect: tuple = ()

    @property
    def num_runs(self):
        """Number of runs under each noise; one without noise."""
        return max(1, sum(map(len, self.seeds)))

    @property
    def rows_per_point(self):
        """Rows of one graph, system and model."""
        return max(1, len(self.noises)) * self.num_runs

    @property
    def rows_per_graph(self):
        """Rows that share one graph."""
        return self.num_costs * self.rows_per_point

    @property
    def num_rows(self):
        """Number of rows, including those of undefined points."""
        return self.num_graphs * self.rows_per_graph

    def spread_points(self):
        """Points of up to 64 graphs, spread over the grid."""
        graphs = np.unique(np.linspace(0, self.num_graphs - 1, _MOST_SPREAD).astype(int))
        of_graphs = [self.points_of(*np.unravel_index(graph, self.graph_shape)) for graph in graphs]
        return [points[place % len(points)] for place, points in enumerate(of_graphs)]

    def as_dict(self):
        """Return the whole sweep as plain values, for its record in files.

        Returns
        -------
        dict
        """
        omitted = {"seconds", "changes", "asked"}  # none, or its rows are the same
        if not self.without_effect:
            omitted.add("without_effect")

        def of_rows(items):  # rows do not depend on sources
            return {key: value for key, value in items if key not in _NOT_IN_ROWS}

        values = {
            field.name: [
                asdict(entry, dict_factory=of_rows) if is_dataclass(entry) else entry
                for entry in getattr(self, field.name)
            ]
            for field in fields(self) if field.name not in omitted
        }  # fmt: skip
        values["cases"] = [{"schedule": case.name, **dict(case.options)} for case in self.cases]
        values["seeds"] = [[seeds[0], seeds[-1]] for seeds in self.seeds]
        return values


def chunk_bounds(sweep):
    """Divide the rows into chunks of about equal work; they depend only on the sweep, not on who computes them.

    A graph with less work than a chunk is not divided.

    Parameters
    ----------
    sweep : Sweep

    Returns
    -------
    ndarray of int, shape (num_chunks + 1,)
        Chunk k has the rows from entry k up to, but excluding, entry k + 1.

    Examples
    --------
    >>> from pathlib import Path
    >>> from ppmodel.clusters.specs import DATA
    >>> from ppmodel.studies.sweep import load_sweep
    >>> sweep = load_sweep(DATA / "templates" / "sweep.yaml")
    >>> bounds = chunk_bounds(sweep)
    >>> int(bounds[0]), int(bounds[-1]) == sweep.num_rows
    (0, True)
    """
    chunks, rows = [], sweep.rows_per_graph
    for case in sweep.cases:
        options = {name: option.default for name, option in case.known_options.items()} | dict(case.options)
        by_options = options.get("chunks", 1) * 2 * options.get("waves", 0.5)
        chunks.append(case.source.chunks_per_rank if case.source is not None else by_options)
    sizes = [np.outer(*sweep.sizes(sweep.cases[0], layout)) for layout in sweep.layouts]
    operations = 2.0 * np.multiply.outer(chunks, sizes)
    operations = np.where(operations <= _LARGEST_TABLE, operations, 0).astype(np.int64)  # too large: refused
    # estimated nanoseconds of each graph: building, compiling, then every row
    row_ns = _ROW_NS + (_NOISY_OPERATION_NS if sweep.noises else _ROW_OPERATION_NS) * operations
    work = _GRAPH_NS + _OPERATION_NS * operations + rows * row_ns
    work = np.repeat(work.ravel(), len(sweep.p2p) * len(sweep.allreduce))
    ended = np.cumsum(work)
    chunk_ns = np.clip(ended[-1] // _FEWEST_CHUNKS, _SMALLEST_CHUNK_NS, _LARGEST_CHUNK_NS)
    starts = np.linspace(0, ended[-1], -(-ended[-1] // chunk_ns), endpoint=False)
    graphs = np.searchsorted(ended, starts, side="right")
    inside = np.where(work[graphs] > chunk_ns, 1 - (ended[graphs] - starts) / work[graphs], 0)
    return np.unique([*(rows * (graphs + inside)).astype(np.int64), sweep.num_rows])
