"""The table: which device runs which operation, in which order. Everything else is read off it."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ppmodel.compiled import kernels
from ppmodel.errors import ScheduleError, TableError
from ppmodel.grid import Grid
from ppmodel.ops import NO_MICROBATCH, Op, OpKind

NO_OPERATION = -1
IDLE, CONTINUED = ".", "~"
"""The cell of a device that waits, and of an operation that began in an earlier slot."""

_COMPUTE_KINDS = len(OpKind) - 1  # R, the last kind, computes nothing
_MAX_CELLS = 2**22
_MAX_SLOTS = 10**9
_ROUNDING = 1e-12


class Dependencies(NamedTuple):
    """Who waits for whom, derived from a table once and used by every level of evaluation.

    Attributes
    ----------
    source : ndarray of int, shape (num_operations,)
        The operation whose result each operation needs, or ``NO_OPERATION``.
    remote : ndarray of bool, shape (num_operations,)
        Whether that result comes from another device.
    node : ndarray of int, shape (num_operations,)
        Operations of one node start and end together: a cell's operations, a reduction's replicas.
    order : ndarray of int, shape (num_operations,)
        The operations by level of their node, then by node: each comes after all that it needs.
    level_start : ndarray of int, shape (num_levels + 1,)
        Where each level begins in `order`.
    """

    source: np.ndarray
    remote: np.ndarray
    node: np.ndarray
    order: np.ndarray
    level_start: np.ndarray


@dataclass(frozen=True, eq=False)
class Schedule:
    """A table of operations, device by device in program order, kept as arrays.

    Attributes
    ----------
    name : str
    placement : ndarray of int, shape (num_replicas, num_stages)
        The device of each stage of each copy of the pipeline.
    num_microbatches : int
        Microbatches of one iteration, B.
    kind, stage, microbatch, replica : ndarray of int, shape (num_operations,)
        The operations of device 0, then those of device 1, and so on.
    joined : ndarray of bool, shape (num_operations,)
        Whether an operation shares the cell of the one before it.
    device_start : ndarray of int, shape (num_devices + 1,)
        Where each device's operations begin.
    microbatch_parts : int
        Into how many parts the table cuts a microbatch; it then counts parts as microbatches.
    stage_shares : ndarray of float, shape (num_stages,)
        Each stage's share of the model, relative to an even split; scaled to a mean of 1.
    """

    name: str
    placement: np.ndarray
    num_microbatches: int
    kind: np.ndarray
    stage: np.ndarray
    microbatch: np.ndarray
    replica: np.ndarray
    joined: np.ndarray
    device_start: np.ndarray
    microbatch_parts: int = 1
    stage_shares: np.ndarray | None = None

    def __post_init__(self):
        for name in ("kind", "stage", "microbatch", "replica", "device_start", "joined"):
            column = np.ascontiguousarray(getattr(self, name), dtype=bool if name == "joined" else np.int32)
            column.flags.writeable = False
            object.__setattr__(self, name, column)
        shares = np.ones(self.num_stages) if self.stage_shares is None else np.asarray(self.stage_shares, dtype=float)
        if abs(shares.mean() - 1) > _ROUNDING:
            shares = shares / shares.mean()
        object.__setattr__(self, "stage_shares", shares)

    # ---- construction ------------------------------------------------------------------------

    @classmethod
    def from_programs(cls, name, placement, num_microbatches, kind, stage, microbatch, replica=0, joined=False, **more):
        """Make a schedule in which all devices run equally many operations.

        Parameters
        ----------
        name, placement, num_microbatches, **more
            As the attributes of `Schedule`.
        kind, stage, microbatch, replica, joined : array, broadcast to shape (num_devices, operations of a device)
            Row d is the program of device d.
        """
        columns = [np.asarray(column, dtype=np.int32) for column in (kind, stage, microbatch, replica)]
        columns.append(np.asarray(joined))
        num_devices, length = np.broadcast_shapes(*(column.shape for column in columns))
        columns = [np.broadcast_to(column, (num_devices, length)).ravel() for column in columns]
        device_start = np.arange(num_devices + 1) * length
        return cls(name, np.atleast_2d(placement), num_microbatches, *columns, device_start, **more)

    @classmethod
    def from_slots(cls, name, placement, num_microbatches, kind, stage, microbatch, replica, slot, **more):
        """Make a schedule of operations with a slot each; a device runs its own in slot order.

        Operations of one device that share a slot share a cell, in the order given.
        """
        placement = np.atleast_2d(placement)
        arrays = (np.asarray(a, dtype=np.int32) for a in (kind, stage, microbatch, replica))
        kind, stage, microbatch, replica = (a.ravel() for a in np.broadcast_arrays(*arrays))
        device, slot = placement[replica, stage], np.asarray(slot).ravel()
        order = by_keys(device, slot)
        device, slot = device[order], slot[order]
        joined = np.zeros(len(order), dtype=bool)
        joined[1:] = (device[1:] == device[:-1]) & (slot[1:] == slot[:-1])
        return cls(
            name, placement, num_microbatches, kind[order], stage[order], microbatch[order], replica[order],
            joined, np.searchsorted(device, np.arange(placement.max() + 2)), **more,
        )  # fmt: skip

    @classmethod
    def from_rows(cls, name, rows, **more):
        """Make a schedule from rows written by hand, one a device, and check it.

        Parameters
        ----------
        name : str
        rows : sequence of sequences of cells
            A cell is an `Op` or a tuple of them, in program order.
        **more
            ``num_microbatches``, ``microbatch_parts`` and ``stage_shares``, where the rows do not say.

        Raises
        ------
        TableError
            Where an operation is missing, doubled, misplaced or waits forever.

        Examples
        --------
        >>> row = [Op.parse(text) for text in "0F0 0F1 0B0 0B1".split()]
        >>> Schedule.from_rows("one device", [row]).num_microbatches
        2
        """
        cells = [[cell if isinstance(cell[0], tuple) else (cell,) for cell in row] for row in rows]
        ops = [[op for cell in row for op in cell] for row in cells]
        flat = np.array([op for row in ops for op in row], dtype=np.int32).reshape(-1, 4)
        if not len(flat):
            raise TableError("table", "empty", "must hold operations", "write one row per device")
        joined = [position > 0 for row in cells for cell in row for position in range(len(cell))]
        device_start = np.cumsum([0] + [len(row) for row in ops])
        parts = more.get("microbatch_parts", 1)
        found = _numbered_without_gap(flat, cells)
        more.setdefault("num_microbatches", max(1, -(-found["microbatch"] // parts)))
        if more["num_microbatches"] * parts > found["microbatch"]:
            field, rule = f"microbatch {found['microbatch']}", "has no operation in the table"
            remedy = f"write its operations, or mend the number of microbatches ({more['num_microbatches']})"
            raise TableError(field, "missing", rule, remedy, grid=Grid(_texts(cells)))
        if more.get("stage_shares") is not None and len(more["stage_shares"]) != found["stage"]:
            rule = f"must have one share per stage, {found['stage']}"
            raise TableError("stage_shares", more["stage_shares"], rule, "mend or delete them")
        placement = _majority_placement(flat, np.repeat(np.arange(len(rows)), np.diff(device_start)))
        kind, stage, microbatch, replica = flat.T.copy()
        schedule = cls(
            name=name, placement=placement, kind=kind, stage=stage, microbatch=microbatch, replica=replica,
            joined=np.array(joined), device_start=device_start, **more,
        )  # fmt: skip
        schedule.validate()
        return schedule

    # ---- sizes -------------------------------------------------------------------------------

    @property
    def num_devices(self):
        """Devices, S of the paper: the rows of the table."""
        return len(self.device_start) - 1

    @property
    def num_replicas(self):
        """Copies of the pipeline: 2 for a bidirectional schedule."""
        return self.placement.shape[0]

    @property
    def num_stages(self):
        """Stages that the model is cut into: a multiple of the devices."""
        return self.placement.shape[1]

    @property
    def chunks_per_device(self):
        """Stages of one replica on each device, v."""
        return self.num_stages / self.num_devices

    @property
    def num_operations(self):
        return len(self.kind)

    @property
    def table_microbatches(self):
        """Microbatches as the table counts them: parts where it cuts them."""
        return self.num_microbatches * self.microbatch_parts

    @cached_property
    def device(self):
        """The device of each operation, shape (num_operations,)."""
        return np.repeat(np.arange(self.num_devices, dtype=np.int32), np.diff(self.device_start))

    @cached_property
    def cell(self):
        """The number of each operation's cell, counted over all devices; shape (num_operations,)."""
        return np.cumsum(~self.joined, dtype=np.int32) - 1

    @cached_property
    def overlaps(self):
        """Whether each operation shares its cell so that a forward meets a backward (F&B); shape (num_operations,)."""
        if not self.joined.any():
            return np.zeros(self.num_operations, dtype=bool)
        first, forward = np.flatnonzero(~self.joined), self.kind == OpKind.F
        pairs = np.logical_or.reduceat(forward, first)
        pairs &= np.logical_or.reduceat(~forward & (self.kind != OpKind.R), first)
        return np.repeat(pairs, np.diff(first, append=self.num_operations))

    @property
    def cost_class(self):
        """The kind, replica and stage of each operation as one number; shape (num_operations,)."""
        return (self.kind * self.num_replicas + self.replica) * self.num_stages + self.stage

    @property
    def pieces_per_unit(self):
        """Operations that a unit, one microbatch on 1/S of the model, is cut into: by chunks and by parts."""
        return self.chunks_per_device * self.microbatch_parts

    @cached_property
    def unit_shares(self):
        """Each stage's share of one unit, one microbatch on 1/S of the model; shape (num_stages,)."""
        return self.stage_shares / self.pieces_per_unit

    def op(self, index):
        """The operation at an index, as a value.

        >>> from ppmodel import build
        >>> str(build("gpipe", 2, 2).op(1))
        '0F1'
        """
        return Op(
            OpKind(self.kind[index]), int(self.stage[index]), int(self.microbatch[index]), int(self.replica[index])
        )

    def rows(self):
        """Each device's cells in program order; a cell is a tuple of operations. Inverse of `from_rows`."""
        rows = []
        for first, last in pairwise(self.device_start):
            row = []
            for index in range(first, last):
                if self.joined[index]:
                    row[-1] += (self.op(index),)
                else:
                    row.append((self.op(index),))
            rows.append(row)
        return rows

    def taken_apart(self):
        """The same order with each F&B pair, a forward that meets a backward, as operations one after the other.

        A pair waits for what both need, and hands on what both give at its end; taken apart, each of its operations
        waits for its own input alone. So the order takes at most as long, where a pair takes the sum of its parts.
        Other shared cells, such as the doubled forwards of Chimera, stay as they are.

        Returns
        -------
        Schedule
            This one, if it has no pairs.

        Examples
        --------
        >>> from ppmodel import build
        >>> pairs = build("dualpipe", 8, 16)
        >>> [int(one.slots()[1].max()) for one in (pairs, pairs.taken_apart())]
        [54, 51]
        """
        if not self.overlaps.any():
            return self
        return replace(self, joined=self.joined & ~self.overlaps)

    # ---- dependencies ------------------------------------------------------------------------

    @cached_property
    def dependencies(self):
        """The `Dependencies` of the table.

        Raises
        ------
        TableError
            If operations wait for one another in a circle.
        """
        self._refuse_out_of_range()
        fast, node = kernels(self.num_operations), self._nodes()
        if fast:
            sizes = (self.num_replicas, self.num_stages, self.table_microbatches)
            operations = (self.kind, self.stage, self.microbatch, self.replica, self.device)
            found = fast.dependencies(*operations, self.device_start, node, self._sharing, sizes)
            source, remote, level, order, level_start = found
        else:
            source = self._sources()
            remote = (source != NO_OPERATION) & (self.device[source] != self.device)
            level = self._levels(source, node)
            order = by_keys(level + 1, node).astype(np.int32)
            level_start = np.searchsorted(level[order], np.arange(level.max() + 2))
        if level.min() == NO_OPERATION:
            self._refuse_deadlock(source, node, level)
        return Dependencies(source, remote, node, order, level_start)

    @property
    def _sharing(self):
        """Whether operations may share a node: in a cell, or as replicas of a reduction."""
        return bool(self.joined.any() or (self.kind == OpKind.R).any())

    def _index_of(self):
        """Where each compute operation stands, shape (kinds, replicas, stages, microbatches)."""
        shape = (_COMPUTE_KINDS, self.num_replicas, self.num_stages, self.table_microbatches)
        index = np.full(shape, NO_OPERATION, dtype=np.int32)
        computing = np.flatnonzero(self.kind != OpKind.R)
        where = (self.kind, self.replica, self.stage, self.microbatch)
        index[tuple(a[computing] for a in where)] = computing
        return index

    def _sources(self):
        index = self._index_of()
        gradient = np.where(index[OpKind.B] == NO_OPERATION, index[OpKind.I], index[OpKind.B])
        needed = np.full_like(index, NO_OPERATION)
        needed[OpKind.F, :, 1:] = index[OpKind.F, :, :-1]
        for kind in (OpKind.B, OpKind.I):
            needed[kind, :, :-1] = gradient[:, 1:]
            needed[kind, :, -1] = index[OpKind.F, :, -1]
        needed[OpKind.W] = index[OpKind.I]
        source = np.full(self.num_operations, NO_OPERATION, dtype=np.int32)
        exists = index != NO_OPERATION
        source[index[exists]] = needed[exists]
        finished = np.maximum(index[OpKind.B], index[OpKind.W]).max(axis=2, initial=NO_OPERATION)
        for reduction in np.flatnonzero(self.kind == OpKind.R):
            source[reduction] = finished[self.replica[reduction], self.stage[reduction]]
        return source

    def _nodes(self):
        node = np.arange(self.num_operations, dtype=np.int32) if not self.joined.any() else self.cell.copy()
        sums = np.flatnonzero(self.kind == OpKind.R)
        first = np.full(self.num_stages, self.num_operations)
        np.minimum.at(first, self.stage[sums], node[sums])
        node[sums] = first[self.stage[sums]]
        return node

    def _levels(self, source, node):
        """Each operation's level: one more than the highest that it waits for (Kahn's algorithm)."""
        successors = np.arange(1, self.num_operations)
        successors = successors[self.device[1:] == self.device[:-1]]
        waiting = np.flatnonzero(source != NO_OPERATION)
        before = np.concatenate((node[successors - 1], node[source[waiting]]))
        after = np.concatenate((node[successors], node[waiting]))
        apart = before != after
        before, after = before[apart], after[apart]
        by_before = np.argsort(before, kind="stable")
        num_nodes = node.max() + 1
        edge_start = np.searchsorted(before[by_before], np.arange(num_nodes + 1)).tolist()
        after = after[by_before].tolist()
        missing = np.bincount(np.array(after, dtype=np.int64), minlength=num_nodes).tolist()

        level = [NO_OPERATION] * num_nodes
        frontier, depth = [n for n in range(num_nodes) if not missing[n]], 0
        while frontier:
            following = []
            for current in frontier:
                level[current] = depth
                for successor in after[edge_start[current] : edge_start[current + 1]]:
                    missing[successor] -= 1
                    if not missing[successor]:
                        following.append(successor)
            frontier, depth = following, depth + 1
        return np.array(level)[node]

    # ---- slots -------------------------------------------------------------------------------

    def slots(self, forward=1, backward=2, input_grad=1, weight_grad=1, reduction=0):
        """Start and end slot of every operation in the idealised table, without communication.

        Every operation starts as early as its device's order and its inputs allow. Durations are
        for one stage and one microbatch of the table, in slots; operations of one cell follow one
        another inside it, so that the cell is as long as their sum.

        Returns
        -------
        start, end : ndarray of int, shape (num_operations,)
            All operations of a cell share its start and end.

        Raises
        ------
        ScheduleError
            If a duration is not a whole number of slots.
        """
        durations = (forward, backward, input_grad, weight_grad, reduction)
        for slots in durations:
            if not (isinstance(slots, int | np.integer) and 0 <= slots <= _MAX_SLOTS):
                rule = f"must be a whole number from 0 to {_MAX_SLOTS}"
                raise ScheduleError("slots of an operation", slots, rule, "simulate it for other durations")
        source, _, node, order, _ = self.dependencies
        duration = np.array(durations, dtype=np.int64)[self.kind]
        computing = self.kind != OpKind.R
        length = duration
        if self._sharing:
            length = np.bincount(node, np.where(computing, duration, 0), minlength=node.max() + 1).astype(np.int64)
            length[node[~computing]] = reduction  # the replicas of a reduction work side by side
        fast = kernels(self.num_operations)
        if fast:
            start, end = fast.slots(length, source, self.device, node, order, self.num_devices)
        else:
            start, end = self._slots_of_nodes(length.tolist())
        return start[node], end[node]

    def _slots_of_nodes(self, length):
        """Start and end of every node, each as early as its devices and its inputs allow."""
        source, _, node, order, _ = self.dependencies
        start, end, free = [0] * len(length), [0] * len(length), [0] * self.num_devices
        bounds = np.flatnonzero(np.diff(node[order], prepend=-1, append=-1)).tolist()
        order, device, node_of, source_of = order.tolist(), self.device.tolist(), node.tolist(), source.tolist()
        for first, last in pairwise(bounds):
            ops = order[first:last]
            current = node_of[ops[0]]
            ready = [free[device[op]] for op in ops]
            ready += [end[node_of[source_of[op]]] for op in ops if source_of[op] != NO_OPERATION]
            start[current] = max(ready)
            end[current] = start[current] + length[current]
            for op in ops:
                free[device[op]] = end[current]
        return np.array(start), np.array(end)

    def table(self, forward=1, backward=2, input_grad=1, weight_grad=1, reduction=1):
        """The idealised table: devices x slots, each cell as text.

        Parameters
        ----------
        forward, backward, input_grad, weight_grad, reduction : int
            Slots that an operation takes.

        Returns
        -------
        list of list of str
            An operation's first cell names it, further cells are ``~``, idle cells ``.``.

        Examples
        --------
        >>> from ppmodel import build
        >>> for row in build("1f1b", 2, 2).table(backward=1):
        ...     print(*row)
        0F0 0F1 . 0B0 . 0B1
        . 1F0 1B0 1F1 1B1 .
        """
        start, end = self.slots(forward, backward, input_grad, weight_grad, reduction)
        size = int(end.max()) * self.num_devices
        if size > _MAX_CELLS:
            rule = f"must be at most {_MAX_CELLS} cells to be drawn"
            raise ScheduleError("table", f"{size} cells", rule, "draw a smaller schedule, or shorter operations")
        grid = [[IDLE] * int(end.max()) for _ in range(self.num_devices)]
        for index in range(self.num_operations):
            row, begin = grid[self.device[index]], int(start[index])
            if self.joined[index]:
                row[begin] += f"&{self.op(index)}"
            elif end[index] > begin:
                row[begin : int(end[index])] = [str(self.op(index))] + [CONTINUED] * (int(end[index]) - begin - 1)
        return grid

    # ---- judging -----------------------------------------------------------------------------

    def validate(self):
        """Check that every operation is there once, on its stage's device, and that no device waits forever.

        Raises
        ------
        TableError
            With the grid, the cells in question marked.
        """
        self._refuse_unknown_sizes()
        self._refuse_out_of_range()
        self._refuse_misplaced()
        self._refuse_doubled()
        self._refuse_missing()
        self._refuse_reductions()
        self._refuse_within_cell()
        _ = self.dependencies

    def _refuse(self, index, rule, remedy, marked=None, why=None):
        where = f"device {self.device[index]}"
        raise TableError(where, self.op(index), rule, remedy, why=why, grid=self.marked(marked or [index]))

    def _refuse_unknown_sizes(self):
        idle = np.flatnonzero(np.diff(self.device_start) == 0)
        if len(idle):
            remedy = "write one row per device, each with its operations"
            raise TableError(f"device {idle[0]}", "empty row", "must hold at least one operation", remedy)
        for index in np.flatnonzero(self.microbatch >= self.table_microbatches)[:1]:
            rule = f"names a microbatch outside 0 .. {self.table_microbatches - 1}"
            self._refuse(index, rule, "mend the cell or the number of microbatches")

    def _refuse_out_of_range(self):
        """Refuse numbers that no array of this table has a place for; made by hand, not read from a file."""
        starts = self.device_start
        ends = starts[0] == 0 and starts[-1] == self.num_operations and (np.diff(starts) >= 0).all()
        limits = {"kind": len(OpKind), "stage": self.num_stages, "replica": self.num_replicas}
        for name, limit in limits.items():
            column = getattr(self, name)
            if len(column) != self.num_operations or column.min(initial=0) < 0 or column.max(initial=0) >= limit:
                rule = f"must be {self.num_operations} numbers from 0 to {limit - 1}"
                raise TableError(name, f"{column.min(initial=0)} to {column.max(initial=0)}", rule, "mend the table")
        if not ends or len(self.device_start) < self.placement.max() + 2:
            rule = f"must rise from 0 to the number of operations, {self.num_operations}"
            raise TableError("device_start", starts.tolist(), rule, "begin each device where the one before it ends")
        lowest = self.microbatch.min(initial=0)
        bad = lowest < NO_MICROBATCH or self.microbatch.max(initial=0) >= self.table_microbatches
        if bad or (lowest < 0 and ((self.microbatch < 0) != (self.kind == OpKind.R)).any()):
            rule = f"must be from 0 to {self.table_microbatches - 1}, and {NO_MICROBATCH} for reductions alone"
            value = f"{lowest} to {self.microbatch.max(initial=0)}"
            raise TableError("microbatch", value, rule, "mend the table")

    def _refuse_misplaced(self):
        expected = self.placement[self.replica, self.stage]
        for index in np.flatnonzero(expected != self.device)[:1]:
            home = expected[index]
            why = f"stage {self.stage[index]} of replica {self.replica[index]} lives on device {home}"
            self._refuse(index, "is misplaced", f"move the cell to the row of device {home}", why=why)

    def _refuse_doubled(self):
        seen = {}
        for index in range(self.num_operations):
            first = seen.setdefault(self.op(index), index)
            if first != index:
                self._refuse(index, "stands twice in the table", "delete one of the marked cells", [first, index])

    def _refuse_missing(self):
        index = self._index_of()
        present = index != NO_OPERATION
        used = present.any(axis=(0, 2))  # (replicas, microbatches)
        for microbatch in np.flatnonzero(used.sum(axis=0) != 1)[:1]:
            rule = "must run on exactly one replica of the pipeline"
            found = np.flatnonzero(used[:, microbatch]).tolist() or "none"
            raise TableError(
                f"microbatch {microbatch}", f"replicas {found}", rule, "write all its operations in one replica",
                grid=self.marked([i for i in index[:, :, :, microbatch].ravel().tolist() if i != NO_OPERATION]),
            )  # fmt: skip
        halves = present[OpKind.I] | present[OpKind.W]
        needed = {
            OpKind.F: ~present[OpKind.F],
            OpKind.B: ~present[OpKind.B] & ~halves,
            OpKind.I: halves & ~present[OpKind.I],
            OpKind.W: halves & ~present[OpKind.W],
        }
        for kind, absent in needed.items():
            for replica, stage, microbatch in np.argwhere(absent & used[:, None, :])[:1].tolist():
                op, device = Op(kind, stage, microbatch, replica), int(self.placement[replica, stage])
                here, along = index[:, replica, stage, microbatch], index[:, replica, :, microbatch].ravel()
                neighbours = [i for i in (here if (here >= 0).any() else along).tolist() if i != NO_OPERATION]
                remedy = f"add {op} to the row of device {device}"
                field, rule = f"device {device}", "is missing from the table"
                raise TableError(field, op, rule, remedy, grid=self.marked(neighbours))
        for _, replica, stage, microbatch in np.argwhere((present[OpKind.B] & halves)[None])[:1].tolist():
            split = [i for i in index[:, replica, stage, microbatch].tolist() if i != NO_OPERATION]
            remedy = "delete B, or delete I and W"
            self._refuse(index[OpKind.B, replica, stage, microbatch], "stands beside its own halves", remedy, split)

    def _refuse_reductions(self):
        reductions = np.flatnonzero(self.kind == OpKind.R)
        count = np.zeros(self.placement.shape, dtype=int)
        np.add.at(count, (self.replica[reductions], self.stage[reductions]), 1)
        for replica, stage in np.argwhere(count != count.max())[:1].tolist():
            op = Op(OpKind.R, stage, NO_MICROBATCH, replica)
            rule, why = "is missing", "a table has the reductions of all stages and replicas, or none"
            device = int(self.placement[replica, stage])
            beside = [index for index in reductions.tolist() if self.stage[index] == stage] or reductions.tolist()
            remedy = f"add {op} to the row of device {device}"
            raise TableError(f"device {device}", op, rule, remedy, why=why, grid=self.marked(beside))
        if len(reductions) and self.num_replicas == 1:
            self._refuse(reductions[0], "has no second replica to sum with", "delete the reductions")

    def _refuse_within_cell(self):
        source = self._sources()
        for index in np.flatnonzero((source != NO_OPERATION) & (self.cell[source] == self.cell))[:1]:
            rule, why = f"needs {self.op(source[index])}, which stands in the same cell", "they run at the same time"
            self._refuse(index, rule, "give each a cell of its own", [source[index]], why)

    def _refuse_deadlock(self, source, node, level):
        stuck = np.flatnonzero(level == NO_OPERATION)
        heads = [int(stuck[self.device[stuck] == device][0]) for device in np.unique(self.device[stuck])]
        together = {head: np.flatnonzero(node == node[head]) for head in heads}
        waits = [
            (op, source[op])
            for head in heads
            for op in together[head]
            if self.device[op] == self.device[head] and source[op] != NO_OPERATION and level[source[op]] == NO_OPERATION
        ]
        waits += [(head, op) for head in heads for op in together[head] if self.device[op] != self.device[head]]
        head, needed = waits[0]
        rule, why = f"waits for {self.op(needed)}", f"a deadlock, {self.op(needed)} waits for it in turn"
        self._refuse(head, rule, "reorder the marked cells, the first of each row that can never start", heads, why)

    def marked(self, indices):
        """The `Grid` of the rows in program order, with the cells of some operations marked."""
        place = self.cell - self.cell[self.device_start[:-1]][self.device]
        marks = {(int(self.device[i]), int(place[i])) for i in indices}
        return Grid(_texts(self.rows()), marks)


def by_keys(*keys):
    """The order of rows by their first key, then by their second and so on, and last as given.

    Parameters
    ----------
    *keys : array of int, 0 or more, all of one length
        The product of their ranges and that length must fit 63 bits.

    Returns
    -------
    ndarray of int
        As ``np.lexsort`` of the keys in reverse, ten times as fast.

    Examples
    --------
    >>> by_keys([1, 0, 1], [5, 5, 2]).tolist()
    [1, 2, 0]
    """
    joint = np.zeros(len(keys[0]), dtype=np.int64)
    for key in (*keys, np.arange(len(joint))):
        key = np.asarray(key)
        joint = joint * (int(key.max(initial=0)) + 1) + key
    return np.argsort(joint)


def _texts(rows):
    return [["&".join(map(str, cell)) for cell in row] for row in rows]


def _numbered_without_gap(flat, cells):
    """How many stages, microbatches and replicas operations name; each must count from 0 without a gap."""
    found = {}
    for column, name in ((1, "stage"), (2, "microbatch"), (3, "replica")):
        numbers = np.unique(flat[:, column])
        numbers = numbers[numbers != NO_MICROBATCH]
        gap = np.flatnonzero(numbers != np.arange(len(numbers)))
        if len(gap) or not len(numbers):
            first = gap[0] if len(gap) else 0
            rule = "has no operation in the table"
            remedy = f"number each {name} from 0 without a gap"
            raise TableError(f"{name} {first}", "missing", rule, remedy, grid=Grid(_texts(cells)))
        found[name] = len(numbers)
    return found


def _majority_placement(flat, device):
    """The device on which most operations of each (replica, stage) stand; ties go to the lower device."""
    _, stage, _, replica = flat.T
    count = np.zeros((replica.max() + 1, stage.max() + 1, device.max() + 1), dtype=int)
    np.add.at(count, (replica, stage, device), 1)
    return count.argmax(axis=2)
