"""The table: which rank runs which operations, in which order. Everything else follows from it."""

from __future__ import annotations  # help() shows a field's type by its name

from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ppmodel.errors import TableError
from ppmodel.files import write_whole
from ppmodel.ops import WHOLE, Op, OpKind
from ppmodel.tables.dependencies import NO_OPERATION, by_keys, dependencies_of, frozen
from ppmodel.tables.gathers import with_gathers
from ppmodel.tables.html import table_html
from ppmodel.tables.marked import MarkedTable
from ppmodel.tables.pairs import find_pairs
from ppmodel.tables.rows import COLUMNS, columns_of, texts
from ppmodel.tables.slots import slots, table
from ppmodel.tables.steps import find_steps, with_step
from ppmodel.tables.validation import refuse_deadlock, refuse_out_of_range, validate
from ppmodel.tables.writing import write_table

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray
    from pandas import DataFrame

    from ppmodel.tables.dependencies import Dependencies

_ROUNDING, _LARGEST_RATIO = 1e-12, 1e9


@dataclass(frozen=True, eq=False, repr=False)
class Schedule:
    """The table of a schedule: the operations of each rank in program order, stored as arrays.

    Create one with `ppmodel.build`, `ppmodel.read_table` or `Schedule.from_rows`; inspect it with `plot` and
    `to_frame`; write it with `to_csv` and `to_pytorch`.

    Attributes
    ----------
    name : str
    placement : ndarray of int, shape (num_replicas, num_stages)
        The rank of each stage of each copy of the pipeline.
    num_microbatches : int
        Microbatches per iteration, B.
    kind, stage, microbatch, replica : ndarray of int, shape (num_operations,)
        One entry per operation: those of rank 0 in program order, then those of rank 1, and so on.
    joined : ndarray of bool, shape (num_operations,)
        Whether an operation shares a cell with the one before it.
    rank_start : ndarray of int, shape (num_ranks + 1,)
        Where each rank's operations begin.
    microbatch_parts : int
        Number of parts into which each microbatch is split; `microbatch` then numbers the parts.
    stage_shares : ndarray of float, shape (num_stages,)
        Each stage's share of the model relative to an even split, scaled to a mean of 1.
    held_for_weight_grad : float
        Fraction of a stage's activations that is held between the two halves of a backward, as the search for this
        order assumed; 1 for all other schedules. `metrics.peak_activations` uses it.
    slices : int
        Number of slices of each microbatch, some of its tokens each; `microbatch` then numbers the units of work,
        ``microbatch * slices + slice``. The forward of a slice needs the keys and values of those before it, and its
        backward comes after theirs.

    Examples
    --------
    >>> import ppmodel as pp
    >>> pp.build("interleaved-1f1b", 4, 8, chunks=2)
    <Schedule interleaved-1f1b: pp=4, microbatches=8, stages=8, operations=128>
    >>> table = pp.build("1f1b", 2, 2)
    >>> [str(table.op(index)) for index in range(table.num_operations)]
    ['0F0', '0F1', '0B0', '0B1', '1F0', '1B0', '1F1', '1B1']
    """

    name: str
    placement: NDArray[np.int32]
    num_microbatches: int
    kind: NDArray[np.int32]
    stage: NDArray[np.int32]
    microbatch: NDArray[np.int32]
    replica: NDArray[np.int32]
    joined: NDArray[np.bool_]
    rank_start: NDArray[np.int32]
    microbatch_parts: int = 1
    stage_shares: NDArray[np.float64] = None  # type: ignore[assignment]  # even shares, once it is made
    held_for_weight_grad: float = 1.0
    slices: int = 1

    def __post_init__(self) -> None:
        for name in (*COLUMNS, "rank_start", "placement"):
            dtype = bool if name == "joined" else np.int32
            object.__setattr__(self, name, frozen(np.ascontiguousarray(getattr(self, name), dtype)))
        object.__setattr__(self, "placement", frozen(np.array(self.placement)))
        shapes = {name: getattr(self, name).shape for name in COLUMNS}
        if self.kind.ndim != 1 or len(set(shapes.values())) > 1:
            raise TableError("shapes", shapes, "must be one number for each operation", "fix the table")
        if not 0 <= self.held_for_weight_grad < np.inf:
            rule = "must be a number of at least 0"
            raise TableError("held_for_weight_grad", self.held_for_weight_grad, rule, "fix or delete it")
        if self.stage_shares is None:
            object.__setattr__(self, "stage_shares", frozen(np.ones(self.placement.shape[1])))
            return
        shares = np.array(self.stage_shares, dtype=float)
        with np.errstate(all="ignore"):
            mean = shares.mean()
        if not (0 < mean < np.inf and shares.min() > mean / _LARGEST_RATIO):
            rule = f"must be numbers above 0, none {_LARGEST_RATIO:g} times smaller than their mean"
            raise TableError("stage_shares", shares.tolist(), rule, "fix or delete them")
        object.__setattr__(self, "stage_shares", frozen(shares / mean if abs(mean - 1) > _ROUNDING else shares))

    def __reduce__(self):
        """Make copies, also those sent to other processes, as the table was made: their arrays are read-only, too."""
        return Schedule, tuple(getattr(self, field.name) for field in fields(self))

    @classmethod
    def from_programs(
        cls, name: str, placement: ArrayLike, num_microbatches: int, kind: ArrayLike, stage: ArrayLike,
        microbatch: ArrayLike, replica: ArrayLike = 0, joined: ArrayLike = False, **optional: Any,
    ) -> Schedule:  # fmt: skip
        """Make a schedule in which every rank runs the same number of operations.

        Parameters
        ----------
        name, placement, num_microbatches, **optional
            As the attributes of `Schedule`.
        kind, stage, microbatch, replica, joined : array, broadcast to shape (num_ranks, operations of a rank)
            Row d is the program of rank d.
        """
        num_ranks, length = shape = np.broadcast(kind, stage, microbatch, replica, joined).shape
        columns: Any = (np.broadcast_to(each, shape).ravel() for each in (kind, stage, microbatch, replica, joined))
        homes, optional["rank_start"] = np.array(placement, np.int32, ndmin=2), np.arange(num_ranks + 1) * length
        return cls(name, homes, num_microbatches, *columns, **optional)

    @classmethod
    def from_slots(
        cls, name: str, placement: ArrayLike, num_microbatches: int, kind: ArrayLike, stage: ArrayLike,
        microbatch: ArrayLike, replica: ArrayLike, slot: ArrayLike, **optional: Any,
    ) -> Schedule:  # fmt: skip
        """Make a schedule from operations and their slots: each rank runs its operations in slot order.

        Operations of one rank with the same slot share a cell, in the order given.
        """
        homes: Any = np.array(placement, dtype=np.int32, ndmin=2)
        columns: Any = np.stack(np.broadcast_arrays(kind, stage, microbatch, replica)).astype(np.int32).reshape(4, -1)
        rank, slots = homes[columns[3], columns[1]], np.ravel(slot)
        order = by_keys(rank, slots)
        rank, slots = rank[order], slots[order]
        joined = np.append(False, (rank[1:] == rank[:-1]) & (slots[1:] == slots[:-1]))
        optional |= {"joined": joined, "rank_start": np.searchsorted(rank, np.arange(homes.max() + 2))}
        return cls(name, homes, num_microbatches, *columns[:, order], **optional)

    @classmethod
    def from_rows(cls, name: str, rows: Sequence[Sequence[Op | str | Sequence[Op]]], **optional: Any) -> Schedule:
        """Make a schedule from rows of operations, one row per rank, and check it.

        Parameters
        ----------
        name : str
        rows : sequence of sequences of cells
            Each rank's cells in program order; a cell is an `Op`, its text, such as ``"2F5"``, or a tuple of several
            `Op` that run as one.
        **optional
            ``num_microbatches``, ``microbatch_parts``, ``stage_shares`` and ``held_for_weight_grad``, which do not
            follow from the rows.

        Raises
        ------
        TableError
            If a cell is something else, or an operation is missing, duplicated, misplaced or waits forever.

        Examples
        --------
        >>> Schedule.from_rows("one rank", [["0F0", "0F1", "0B0", "0B1"]]).num_microbatches
        2
        """
        schedule = cls(name, **columns_of(rows, optional))
        schedule.validate()
        return schedule

    @property
    def num_ranks(self) -> int:
        """Number of ranks, the rows of the table; S in the paper."""
        return len(self.rank_start) - 1

    @property
    def num_replicas(self) -> int:
        """Number of copies of the pipeline; 2 in a bidirectional schedule."""
        return self.placement.shape[0]

    @property
    def num_stages(self) -> int:
        """Number of stages that the model is divided into, a multiple of the number of ranks."""
        return self.placement.shape[1]

    @property
    def chunks_per_rank(self) -> float:
        """Number of stages of one replica on each rank, v."""
        return self.num_stages / self.num_ranks

    @property
    def num_operations(self) -> int:
        return len(self.kind)

    @property
    def table_microbatches(self) -> int:
        """Number of microbatches as the table counts them: parts or slices, if it splits them."""
        return self.num_microbatches * self.microbatch_parts * self.slices

    @cached_property
    def rank(self) -> NDArray[np.int32]:
        """The rank of each operation, shape (num_operations,)."""
        return frozen(np.repeat(np.arange(self.num_ranks, dtype=np.int32), np.diff(self.rank_start)))

    @cached_property
    def cell(self) -> NDArray[np.int32]:
        """The index of each operation's cell, counted over all ranks; shape (num_operations,)."""
        return frozen(np.cumsum(~self.joined, dtype=np.int32) - 1)

    @cached_property
    def computes(self) -> NDArray[np.bool_]:
        """Mask of operations that compute for a microbatch; shape (num_operations,)."""
        return frozen(self.kind < int(OpKind.R))

    @cached_property
    def is_plain(self) -> bool:
        """True if all operations are forwards and backwards; one look at small tables instead of several."""
        return bool(self.kind.max(initial=0) <= int(OpKind.W))  # NumPy takes 2 us to understand the member of an enum

    @cached_property
    def reduces(self) -> bool:
        """True if the table has gradient reductions."""
        return not self.is_plain and bool((self.kind == int(OpKind.R)).any())

    @cached_property
    def gathers(self) -> bool:
        """True if the table has gathers of weights."""
        return not self.is_plain and bool((self.kind == int(OpKind.G)).any())

    @cached_property
    def has_shards(self) -> bool:
        """True if the table has passes of an output layer that is divided among the ranks."""
        return not self.is_plain and bool((self.kind == int(OpKind.S)).any())

    @cached_property
    def overlaps(self) -> NDArray[np.bool_]:
        """Mask of operations in cells with a forward and a backward (F&B); shape (num_operations,)."""
        parts = (self.kind <= int(OpKind.W)).view(np.uint8) << (self.kind > int(OpKind.F))  # 1: forward, 2: backward
        shared, longer = -self.joined[1:].view(np.uint8), self.joined
        while longer.any():  # once for each operation of the longest cell but one
            parts[1:] |= parts[:-1] & shared
            parts[:-1] |= parts[1:] & shared
            longer = longer[1:] & longer[:-1]
        return frozen(parts == (1 | 2))

    @property
    def cost_class(self) -> NDArray[np.int32]:
        """Kind, replica and stage of each operation, encoded as one number; shape (num_operations,)."""
        return (self.kind * self.num_replicas + self.replica) * self.num_stages + self.stage

    @cached_property
    def class_counts(self) -> NDArray[np.int64]:
        """Number of operations of each `cost_class` alone in a cell, and in F&B cells; shape (2, classes)."""
        classes = len(OpKind) * self.placement.size
        of_class = self.cost_class + np.int32(classes) * self.overlaps if self.joined.any() else self.cost_class
        counts = np.bincount(of_class, minlength=2 * classes).reshape(2, -1)
        counts[0, OpKind.R * self.placement.size :] = 0
        return frozen(counts)

    @cached_property
    def last_halves(self) -> NDArray[np.bool_]:
        """Which halves of a stage's backward produce the last gradients of its ranks; shape (num_stages, 2).

        For input and weight gradients; both for a full backward. The reductions of a rank run one after another: those
        of its other stages run meanwhile.
        """
        gradients = np.flatnonzero((self.kind == OpKind.B) | (self.kind == OpKind.W))
        last = np.zeros(self.num_ranks, dtype=int)
        last[self.rank[gradients]] = gradients  # the last one of each rank remains
        at_end = (self.stage[last][self.placement] == np.arange(self.num_stages)).all(axis=0)
        whole = (self.kind[last] == OpKind.B)[self.placement].all(axis=0)
        return frozen(np.column_stack([at_end & whole, at_end]))

    @property
    def pieces_per_unit(self) -> float:
        """Number of operations per microbatch on 1/S of the model, from chunks, parts and slices."""
        return self.chunks_per_rank * self.microbatch_parts * self.slices

    @cached_property
    def unit_shares(self) -> NDArray[np.float64]:
        """Each stage's share of one microbatch on 1/S of the model; shape (num_stages,)."""
        return frozen(self.stage_shares / self.pieces_per_unit)

    def op(self, index: int) -> Op:
        """Return the operation at an index.

        >>> from ppmodel import build
        >>> str(build("gpipe", 2, 2).op(1))
        '0F1'
        """
        return self.named(self.kind[index], self.stage[index], self.microbatch[index], self.replica[index])

    def named(self, kind: int, stage: int, unit: int, replica: int) -> Op:
        """Return an operation by the numbers in the arrays, where `microbatch` has units of work."""
        microbatch, part = divmod(int(unit), self.slices) if self.slices > 1 and unit >= 0 else (int(unit), WHOLE)
        return Op(OpKind(kind), int(stage), microbatch, int(replica), part)

    def rows(self) -> list[list[tuple[Op, ...]]]:
        """Each rank's cells in program order; a cell is a tuple of operations. The inverse of `from_rows`."""
        ops, heads = [self.op(index) for index in range(self.num_operations)], np.flatnonzero(~self.joined).tolist()
        cells = [tuple(ops[first:last]) for first, last in pairwise([*heads, len(ops)])]
        return [cells[first:last] for first, last in pairwise(np.searchsorted(heads, self.rank_start))]

    def unfused(self) -> Schedule:
        """Return the same order with each F&B pair, a forward and a backward in one cell, split into two cells.

        A pair starts when the inputs of both operations have arrived, and delivers both results at its end; unfused,
        each operation waits only for its own input. If a pair takes as long as its parts together, the unfused order
        is never slower. Other shared cells, such as Chimera's doubled forwards, stay as they are.

        Returns
        -------
        Schedule
            The same object if it has no pairs.

        Examples
        --------
        >>> from ppmodel import build
        >>> pairs = build("dualpipe", 8, 16)
        >>> [int(one.slots(reduction=0)[1].max()) for one in (pairs, pairs.unfused())]
        [54, 51]
        """
        if not self.overlaps.any():
            return self
        return replace(self, joined=self.joined & ~self.overlaps)

    @cached_property
    def dependencies(self) -> Dependencies:
        """The `Dependencies` of the table.

        Raises
        ------
        TableError
            If operations wait for each other in a cycle.
        """
        refuse_out_of_range(self)
        dependencies, level = dependencies_of(self)
        if level.min() == NO_OPERATION:
            refuse_deadlock(self, dependencies, level)
        return dependencies

    steps, pairs = cached_property(find_steps), cached_property(find_pairs)
    slots, table, validate, with_step, with_gathers = slots, table, validate, with_step, with_gathers

    # ---- display and export ------------------------------------------------------------------

    def __repr__(self) -> str:
        cut = "" if self.num_stages == self.num_ranks else f", stages={self.num_stages}"
        copies = "" if self.num_replicas == 1 else f", replicas={self.num_replicas}"
        return (
            f"<Schedule {self.name}: pp={self.num_ranks}, microbatches={self.num_microbatches}{cut}{copies}, "
            f"operations={self.num_operations}>"
        )

    def _repr_html_(self):
        """Show the first slots of the idealised table in a notebook."""

        return table_html(self)

    def plot(self, title: str | None = None, **slots: int) -> Figure:
        """Draw the idealised table: one row per rank, one column per slot.

        Parameters
        ----------
        title : str, optional
            The figure's title.
        **slots : int
            ``backward``: slots that a backward takes, 2 by default.

        Returns
        -------
        matplotlib Figure
        """
        from ppmodel.plot import plot_table

        return plot_table({self.name: self}, title or f"{self.name}: the table", **slots)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the idealised table as a CSV file for `ppmodel.read_table` and spreadsheets.

        Parameters
        ----------
        path : str or Path
        """
        write_whole(path, write_table(self, "csv"), "table")

    def to_pytorch(self, path: str | os.PathLike[str]) -> None:
        """Write the order as the CSV that ``torch.distributed.pipelining`` loads.

        Parameters
        ----------
        path : str or Path

        Raises
        ------
        TableError
            If PyTorch's format cannot express the table.
        """
        write_whole(path, write_table(self, "pytorch"), "table")

    def to_frame(self) -> DataFrame:
        """Return every operation with its slots in the idealised table.

        Returns
        -------
        DataFrame
            One row per operation, rank by rank in program order; columns ``rank, operation, kind, stage, microbatch,
            replica, start, end``, the last two in slots.
        """
        return self.frame_with(dict(zip(("start", "end"), self.slots(), strict=True)))

    def frame_with(self, columns: Mapping[str, ArrayLike]) -> DataFrame:
        """A frame with one row per operation, and further columns in the same order."""
        import pandas as pd

        return pd.DataFrame({
            "rank": self.rank, "operation": [str(self.op(index)) for index in range(self.num_operations)],
            "kind": [OpKind(kind).name for kind in self.kind], "stage": self.stage,
            "microbatch": self.microbatch // self.slices, "replica": self.replica, **columns,
        })  # fmt: skip

    def marked(self, indices: Iterable[int]) -> MarkedTable:
        """The `MarkedTable` of the rows in program order, with some operations' cells marked."""
        place = self.cell - self.cell[self.rank_start[:-1]][self.rank]
        return MarkedTable(texts(self.rows()), {(int(self.rank[i]), int(place[i])) for i in indices})
