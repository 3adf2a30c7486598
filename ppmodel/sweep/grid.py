"""The grid of a sweep: which row stands where, and how the rows are cut into chunks.

Rows are counted like nested loops, the schedule outermost: schedule, options, stages, microbatches, waves, p2p,
allreduce, system, model, noise, seed. All rows up to ``allreduce`` share one compiled graph: a case.
"""

from dataclasses import asdict, dataclass
from itertools import chain, islice
from math import prod
from typing import NamedTuple

import numpy as np

_CASE_NS = 3_000_000
_OPERATION_NS = 100
_ROW_NS = 60_000
_ROW_OPERATION_NS = 2
_NOISY_OPERATION_NS = 60
_LARGEST_CASE = 2**25
_LARGEST_CHUNK_NS = 1_000_000_000
_SMALLEST_CHUNK_NS = 50_000_000
_FEWEST_CHUNKS = 128


class Variant(NamedTuple):
    """A schedule with its options; `waves` is empty where the schedule has none."""

    name: str
    options: tuple
    waves: tuple


class Case(NamedTuple):
    """What one graph is compiled from; `waves` is None where the schedule has none."""

    schedule: str
    options: tuple
    stages: int
    microbatches: int
    waves: int | None
    p2p: str
    allreduce: str


@dataclass(frozen=True)
class Sweep:
    """A grid, with everything in it that its rows depend on.

    Parameters
    ----------
    variants : tuple of Variant
        Schedules and their options.
    stages, microbatches : tuple of int
        S and B.
    p2p, allreduce : tuple of str
        Communication semantics, as in `graph.compile`.
    systems : tuple of SystemSpec
    models : tuple of ModelSpec
    noises : tuple of Noise
        Empty where the runs of a point are all alike; then there are no seeds, too.
    seeds : tuple of range
        One after the other.
    """

    variants: tuple
    stages: tuple
    microbatches: tuple
    p2p: tuple
    allreduce: tuple
    systems: tuple
    models: tuple
    noises: tuple = ()
    seeds: tuple = ()

    @property
    def inner_shape(self):
        """Systems, models, noises and seeds of each case; without noise there is one run."""
        runs = sum(map(len, self.seeds))
        return len(self.systems), len(self.models), max(1, len(self.noises)), max(1, runs)

    @property
    def rows_per_case(self):
        """Rows that share one graph."""
        return prod(self.inner_shape)

    @property
    def num_cases(self):
        """Graphs to compile."""
        return sum(prod(map(len, self.axes(variant))) for variant in self.variants)

    @property
    def num_rows(self):
        """Points of the grid, the undefined ones among them."""
        return self.num_cases * self.rows_per_case

    def axes(self, variant):
        """The loops inside a variant, down to its cases.

        Parameters
        ----------
        variant : Variant

        Returns
        -------
        tuple of sequence
            Stages, microbatches, waves, p2p and allreduce.
        """
        return self.stages, self.microbatches, variant.waves or (None,), self.p2p, self.allreduce

    def case(self, number):
        """A case by its place in the order of rows.

        Parameters
        ----------
        number : int
            From 0.

        Returns
        -------
        Case
        """
        for variant in self.variants:
            axes = self.axes(variant)
            shape = tuple(map(len, axes))
            if number < prod(shape):
                places = np.unravel_index(number, shape)
                return Case(variant.name, variant.options, *(axis[n] for axis, n in zip(axes, places, strict=True)))
            number -= prod(shape)
        raise IndexError(number)

    def seeds_between(self, first, last):
        """Seeds by their places in the list of all.

        Parameters
        ----------
        first, last : int
            The first, and the one after the last.

        Returns
        -------
        list of int
        """
        if len(self.seeds) == 1:
            return list(self.seeds[0][first:last])
        return list(islice(chain.from_iterable(self.seeds), first, last))

    def as_dict(self):
        """The whole sweep as plain values, for its record in files.

        Returns
        -------
        dict
        """
        values = {key: [_plain(entry) for entry in getattr(self, key)] for key in self.__dataclass_fields__}
        values["seeds"] = [[seeds[0], seeds[-1]] for seeds in self.seeds]
        return values


def _plain(entry):
    """A list's entry without types; what no row depends on, such as a source, is left out."""
    if isinstance(entry, Variant):
        return {"name": entry.name, **dict(entry.options), **({"waves": entry.waves} if entry.waves else {})}
    if not hasattr(entry, "__dataclass_fields__"):
        return entry
    return {key: value for key, value in asdict(entry).items() if key not in ("title", "provenance")}


def _case_work(sweep):
    """Estimated nanoseconds of each case: building, compiling, then every row."""
    noisy = _NOISY_OPERATION_NS if sweep.noises else _ROW_OPERATION_NS
    work = []
    for variant in sweep.variants:
        chunks = dict(variant.options).get("chunks", 1)
        waves = 2 * np.array(variant.waves or (0.5,))
        stages, microbatches = (np.array(sizes, dtype=float) for sizes in (sweep.stages, sweep.microbatches))
        operations = 2 * chunks * stages[:, None, None] * microbatches[:, None] * waves
        operations = np.where(operations <= _LARGEST_CASE, operations, 0).astype(np.int64)  # too large: refused
        rows = _CASE_NS + _OPERATION_NS * operations + sweep.rows_per_case * (_ROW_NS + noisy * operations)
        work.append(np.repeat(rows.ravel(), len(sweep.p2p) * len(sweep.allreduce)))
    return np.concatenate(work)


def chunk_bounds(sweep):
    """Cut the rows into chunks of bounded work; they follow from the sweep alone, whatever computes them.

    A chunk is as many whole cases as fit, or an even part of a case that is too large.

    Parameters
    ----------
    sweep : Sweep

    Returns
    -------
    ndarray of int, shape (num_chunks + 1,)
        Chunk k holds the rows from entry k up to, but without, entry k + 1.

    Examples
    --------
    >>> from pathlib import Path
    >>> from ppmodel.specs import DATA
    >>> from ppmodel.sweep import load_sweep
    >>> sweep = load_sweep(DATA / "templates" / "sweep.yaml")
    >>> bounds = chunk_bounds(sweep)
    >>> int(bounds[0]), int(bounds[-1]) == sweep.num_rows
    (0, True)
    """
    work, rows = _case_work(sweep), sweep.rows_per_case
    ended = np.cumsum(work)
    limit = min(max(int(ended[-1]) // _FEWEST_CHUNKS, _SMALLEST_CHUNK_NS), _LARGEST_CHUNK_NS)
    key = (ended - work) // limit
    starts = np.flatnonzero(np.diff(key, prepend=-1)) * rows
    inside = [
        case * rows + rows * np.arange(parts) // parts
        for case in np.flatnonzero(work > limit).tolist()
        if (parts := min(rows, int(-(-work[case] // limit))))
    ]
    return np.unique(np.concatenate([starts, *inside, [sweep.num_rows]])).astype(np.int64)
