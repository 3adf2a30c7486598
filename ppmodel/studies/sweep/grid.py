"""The grid of a sweep: points with noise and seeds, and how the rows are divided into chunks.

Rows are ordered like nested loops, the schedule outermost: schedule, options, layout, pp, microbatches, p2p,
allreduce, system, model, noise, seed. All rows up to ``allreduce`` share one compiled graph.
"""

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from math import prod

import numpy as np

from ppmodel.errors import PPModelError
from ppmodel.studies.points import Grid

_FEWEST_CHUNKS, _SMALLEST_CHUNK, _LARGEST_CHUNK = 128, 16, 4096
_MOST_SPREAD = 64
_NOT_IN_ROWS = "title", "provenance", "asked"


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
    """

    noises: tuple = ()
    seeds: tuple = ()
    files: tuple = ()
    asked: tuple = ()

    @property
    def shape(self):
        """Numbers of graphs, of points of each, of noises, and of runs under each; 1 without noise."""
        points, runs = len(self.systems) * len(self.models), sum(map(len, self.seeds))
        return prod(self.graph_shape), points, max(1, len(self.noises)), max(1, runs)

    @property
    def num_rows(self):
        """Number of rows, including those of undefined points."""
        return prod(self.shape)

    def spread_points(self):
        """Points of up to 64 graphs, spread over the grid; those that are defined."""
        for place, graph in enumerate(np.unique(np.linspace(0, self.shape[0] - 1, _MOST_SPREAD).astype(int))):
            point = self.points_of(*np.unravel_index(graph, self.graph_shape))[place % self.shape[1]]
            with suppress(PPModelError):
                point.costs  # noqa: B018 -- is refused if the point is not defined
                yield point

    def as_dict(self):
        """Return the whole sweep as plain values, for its record in files.

        Returns
        -------
        dict
        """
        cases = [{"schedule": case.name, **dict(case.options)} for case in self.cases]
        written = replace(self, cases=cases, seeds=[[seeds[0], seeds[-1]] for seeds in self.seeds])
        return asdict(written, dict_factory=lambda items: {k: v for k, v in items if k not in _NOT_IN_ROWS})

    def chunks(self):
        """Divide the rows into chunks; they depend only on the sweep, not on who computes them.

        Returns
        -------
        list of (int, int)
            The first row of each, and the one after its last. A graph with fewer rows than a chunk is not divided.

        Examples
        --------
        >>> from ppmodel.clusters.specs import DATA
        >>> from ppmodel.studies.sweep import load_sweep
        >>> load_sweep(DATA / "templates" / "sweep.yaml").chunks()[:2]
        [(0, 16), (16, 32)]
        """
        size = min(max(self.num_rows // _FEWEST_CHUNKS, _SMALLEST_CHUNK), _LARGEST_CHUNK)
        size = size - size % prod(self.shape[1:]) or size
        return [(first, min(first + size, self.num_rows)) for first in range(0, self.num_rows, size)]
