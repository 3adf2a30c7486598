"""Check that a table is a schedule: every operation occurs once, on its rank, and none waits forever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppmodel.errors import TableError
from ppmodel.ops import NO_MICROBATCH, Op, OpKind
from ppmodel.tables.dependencies import NO_OPERATION, index_of, sources
from ppmodel.tables.further import OF_SHARDS, direct

if TYPE_CHECKING:
    from ppmodel.tables.schedule import Schedule

_MOST_PLACES, _MOST_SHOWN, _REMEDY = 2**26, 6, "fix the table"
_ENDINGS = {OpKind.R: "reductions", OpKind.O: "optimizer steps"}


def validate(schedule: Schedule) -> None:
    """Check that every operation occurs once, on its stage's rank, and that no rank waits forever.

    Raises
    ------
    TableError
        With the table and the faulty cells marked.
    """
    empty = np.flatnonzero(np.diff(schedule.rank_start) == 0)
    if len(empty):
        remedy = "write one row per rank, each with its operations"
        raise TableError(f"rank {empty[0]}", "empty row", "must have at least one operation", remedy)
    for index in np.flatnonzero(schedule.microbatch >= schedule.table_microbatches)[:1]:
        rule = f"names a microbatch outside 0 .. {schedule.table_microbatches - 1}"
        _refuse(schedule, index, rule, "fix the cell or the number of microbatches")
    refuse_out_of_range(schedule)
    homes = schedule.placement[schedule.replica, schedule.stage]
    for index in np.flatnonzero(homes != schedule.rank)[:1]:
        home = homes[index]
        why = f"stage {schedule.stage[index]} of replica {schedule.replica[index]} is on rank {home}"
        _refuse(schedule, index, "is misplaced", f"move the cell to the row of rank {home}", why=why)
    indices: dict[Op, int] = {}
    for index in range(schedule.num_operations):
        first = indices.setdefault(schedule.op(index), index)
        if first != index and schedule.kind[index] < OpKind.G:
            _refuse(schedule, index, "occurs twice in the table", "delete one of the marked cells", [first, index])
    homes = np.sort(schedule.placement[0, : schedule.num_ranks])
    legal = schedule.num_ranks * (schedule.num_replicas == 1 and (homes == np.arange(schedule.num_ranks)).all())
    for index in np.flatnonzero(np.isin(schedule.kind, OF_SHARDS) & (schedule.stage >= legal))[:1]:
        rule = "is no shard of the output layer: each of the first stages, on ranks of their own, has one"
        _refuse(schedule, index, rule, "use one replica, and shards 0 to pp - 1")
    _refuse_missing(schedule)
    for kind, word in _ENDINGS.items():
        _refuse_incomplete(schedule, kind, word)
    if int(schedule.kind.max()) >= OpKind.G:
        _refuse_ungathered(schedule)
    if schedule.slices > 1:
        _refuse_slices_out_of_order(schedule)
    source, _ = sources(schedule)
    for index in np.flatnonzero((source != NO_OPERATION) & (schedule.cell[source] == schedule.cell))[:1]:
        rule, why = f"needs {schedule.op(source[index])}, which is in the same cell", "they run at the same time"
        _refuse(schedule, index, rule, "put them in separate cells", [source[index]], why)
    _ = schedule.dependencies


def _refuse(schedule, index, rule, remedy, marked=None, why=None):
    where = f"rank {schedule.rank[index]}"
    raise TableError(where, schedule.op(index), rule, remedy, why=why, grid=schedule.marked(marked or [index]))


def _refuse_without(schedule, op, rule, beside, why=None):
    """Refuse a table that lacks an operation, with those marked beside which it belongs."""
    rank = int(schedule.placement[op.replica, op.stage])
    remedy = f"add {op} to the row of rank {rank}"
    raise TableError(f"rank {rank}", op, rule, remedy, why=why, grid=schedule.marked(beside))


def refuse_out_of_range(schedule):
    """Refuse out-of-range numbers in a table made by hand rather than read from a file."""
    TableError.require(_rules_of_arrays(schedule))
    if int(schedule.kind.max()) >= OpKind.O and (schedule.kind == OpKind.O).any():
        _refuse_early_steps(schedule)
    homes = schedule.placement
    if schedule.joined.any() and not np.diff(np.sort(homes, axis=0), axis=0).all():  # two replicas share a rank
        in_cell = schedule.joined | np.append(schedule.joined[1:], False)
        is_twice = (homes[:, schedule.stage] == schedule.rank).sum(axis=0) > 1
        for index in np.flatnonzero((schedule.kind == OpKind.R) & in_cell & is_twice)[:1]:
            rule = "shares a cell, on a rank that has two replicas of its stage"
            _refuse(schedule, index, rule, "put it in a cell of its own")


def _rules_of_arrays(schedule):
    """The rules for the numbers of a table; each is applied before the next, which may need it."""
    places, count = schedule.placement.size * schedule.table_microbatches, schedule.num_operations
    least = 2 * schedule.num_stages * schedule.table_microbatches
    rule = f"must be at least {least}: a forward and a backward of every stage and microbatch"
    is_filled = count and places <= max(_MOST_PLACES, 2 * count)  # space for all places might not fit in memory
    yield "operations", count, is_filled, rule, "number stages and microbatches without gaps"
    for name, limit in {"kind": len(OpKind), "stage": schedule.num_stages, "replica": schedule.num_replicas}.items():
        column = getattr(schedule, name)
        is_legal = column.view(np.uint32).max() < limit  # nor below 0
        yield name, f"{column.min()} to {column.max()}", is_legal, f"must be from 0 to {limit - 1}", _REMEDY
    starts = schedule.rank_start
    rises = len(starts) >= schedule.placement.max() + 2 and (np.diff(starts) >= 0).all()
    rule = f"must rise from 0 to the number of operations, {count}"
    yield "rank_start", starts, rises and starts[0] == 0 and starts[-1] == count, rule, _REMEDY
    is_alone = not schedule.joined[starts[:-1][starts[:-1] < count]].any()
    yield "joined", schedule.joined, is_alone, "must be false for the first operation of each rank", _REMEDY
    lowest, most = schedule.microbatch.min(), schedule.table_microbatches - 1
    is_legal = lowest >= NO_MICROBATCH and schedule.microbatch.max() <= most
    is_legal = is_legal and (lowest >= 0 or ((schedule.microbatch < 0) == (schedule.kind >= OpKind.R)).all())
    rule = f"must be from 0 to {most}, {NO_MICROBATCH} for what belongs to none"
    yield "microbatch", f"{lowest} to {schedule.microbatch.max()}", is_legal, rule, _REMEDY


def _refuse_early_steps(schedule):
    """Refuse an optimizer step before, or in a cell with, another operation of its rank, and a rank without steps."""
    steps = schedule.kind == OpKind.O
    for index in np.flatnonzero(steps[:-1] & ~steps[1:] & (schedule.rank[1:] == schedule.rank[:-1]))[:1]:
        why, remedy = "steps start when all gradients of all ranks are summed", "move it to the end of its row"
        _refuse(schedule, index, f"comes before {schedule.op(index + 1)}", remedy, [index, index + 1], why)
    ends = schedule.rank_start[1:] - 1
    for index in ends[~steps[ends]][:1]:
        remedy = "add the steps of its rank's stages, or delete all others"
        _refuse(schedule, index, "is not followed by an optimizer step, as on other ranks", remedy)
    for index in np.flatnonzero(schedule.joined & (steps | np.append(False, steps[:-1])))[:1]:
        _refuse(schedule, index, "shares a cell with an optimizer step", "put them in separate cells")


def _refuse_ungathered(schedule):
    """Refuse an operation without the weights that it needs, a gather of weights that are there, and either in a cell.

    A table has gathers for all stages, or for none.
    """
    gathered = np.zeros(schedule.placement.shape, dtype=bool)
    shared = schedule.joined | np.append(schedule.joined[1:], False)
    for index in np.flatnonzero(schedule.computes | (schedule.kind >= OpKind.G)).tolist():
        kind, home = schedule.kind[index], (schedule.replica[index], schedule.stage[index])
        if kind >= OpKind.G and shared[index]:
            _refuse(schedule, index, "shares a cell", "put it in a cell of its own")
        if gathered[home] == (kind == OpKind.G):
            gather = Op(OpKind.G, int(home[1]), NO_MICROBATCH, int(home[0]))
            rule = "gathers weights that its rank has" if gathered[home] else "needs weights that are not gathered"
            _refuse(schedule, index, rule, "delete it" if gathered[home] else f"put {gather} before it")
        gathered[home] = kind != OpKind.D


def _refuse_missing(schedule):
    index = index_of(schedule)
    present = index != NO_OPERATION
    used = present.any(axis=(0, 2))  # (replicas, microbatches)
    for microbatch in np.flatnonzero(used.sum(axis=0) != 1)[:1]:
        rule = "must run on exactly one replica of the pipeline"
        replicas = np.flatnonzero(used[:, microbatch]).tolist() or "none"
        unit = schedule.named(OpKind.F, 0, microbatch, 0).unit
        raise TableError(
            f"microbatch {unit}", f"replicas {replicas}", rule, "put all its operations in one replica",
            grid=schedule.marked([i for i in index[:, :, :, microbatch].ravel().tolist() if i != NO_OPERATION]),
        )  # fmt: skip
    halves = present[OpKind.I] | present[OpKind.W]
    shards = np.zeros_like(halves)
    shards[0, : schedule.num_ranks] = present[OpKind.S :].any()
    needed = {OpKind.F: used[:, None, :], OpKind.B: ~halves} | dict.fromkeys((OpKind.I, OpKind.W), halves)
    for kind, of_kind in (needed | dict.fromkeys(OF_SHARDS, shards)).items():
        for replica, stage, microbatch in np.argwhere(of_kind & ~present[kind] & used[:, None, :])[:1].tolist():
            of_stage, of_microbatch = index[:, replica, stage, microbatch], index[:, replica, :, microbatch]
            neighbours, others = of_stage[of_stage >= 0].tolist(), of_microbatch[of_microbatch >= 0].tolist()
            op = schedule.named(kind, stage, microbatch, replica)
            if len(others) == 1 and schedule.num_stages > 1:
                rule = f"is the only operation of microbatch {op.unit}"
                _refuse(schedule, others[0], rule, "correct its number, or add the others")
            _refuse_without(schedule, op, "is missing from the table", neighbours or others)
    for _, replica, stage, microbatch in np.argwhere((present[OpKind.B] & halves)[None])[:1].tolist():
        split = [i for i in index[:, replica, stage, microbatch].tolist() if i != NO_OPERATION]
        remedy = "delete B, or delete I and W"
        _refuse(schedule, index[OpKind.B, replica, stage, microbatch], "occurs beside its own halves", remedy, split)


def _refuse_slices_out_of_order(schedule):
    """Refuse a forward before those of earlier slices of its microbatch, and a backward before those of later ones."""
    index = index_of(schedule)[: OpKind.W]
    index = index.reshape(*index.shape[:3], -1, schedule.slices)
    cell = schedule.cell[index]
    cell[OpKind.B :] *= -1
    for place in np.argwhere((cell[..., 1:] <= cell[..., :-1]) & (index[..., 1:] != NO_OPERATION))[:1].tolist():
        pair = index[tuple(place[:-1])][place[-1] : place[-1] + 2].tolist()
        early, needed = pair[::-1] if place[0] == OpKind.F else pair
        rule = f"does not come after {schedule.op(needed)}"
        why = "a forward needs the keys and values of earlier slices, a backward their gradients from later ones"
        _refuse(schedule, early, rule, "reorder the cells", [early, needed], why)


def _refuse_incomplete(schedule, kind, word):
    """Refuse reductions, or optimizer steps, that exist for some stages and replicas but not for all."""
    operations = np.flatnonzero(schedule.kind == kind)
    count = np.zeros(schedule.placement.shape, dtype=int)
    np.add.at(count, (schedule.replica[operations], schedule.stage[operations]), 1)
    for replica, stage in np.argwhere(count != count.max())[:1].tolist():
        why = f"a table has {word} for all stages and replicas, or for none"
        beside = [index for index in operations.tolist() if schedule.stage[index] == stage] or operations.tolist()
        _refuse_without(schedule, Op(kind, stage, NO_MICROBATCH, replica), "is missing", beside, why)


def refuse_deadlock(schedule, dependencies, level):
    """Refuse a table whose ranks wait for each other, by the shortest cycle among them."""
    stuck = np.flatnonzero(level == NO_OPERATION)
    ranks, first = np.unique(schedule.rank[stuck], return_index=True)
    heads = dict(zip(ranks.tolist(), stuck[first].tolist(), strict=True))  # the first operations that never start
    further = np.empty((2, 0), int) if dependencies.further is None else dependencies.further
    waits = {}  # of each rank: the rank that it waits for, with its own operation and the one that this needs
    for rank, head in heads.items():
        waits[rank] = {}
        for op in np.flatnonzero(dependencies.group == dependencies.group[head]).tolist():
            if schedule.rank[op] != rank or (op != head and not schedule.joined[op]):  # a reduction of several replicas
                waits[rank].setdefault(int(schedule.rank[op]), (head, op))
                continue
            for needed in (dependencies.source[op], *direct(op, further, len(level))):
                if needed != NO_OPERATION and level[needed] == NO_OPERATION:
                    waits[rank].setdefault(int(schedule.rank[needed]), (op, int(needed)))
    cycle = shortest_cycle(waits)
    steps, reasons = zip(cycle, (*cycle[1:], cycle[0]), strict=True), []
    for op, needed in (waits[rank][other] for rank, other in steps):
        head = heads[schedule.rank[needed]]
        after = f", behind {schedule.op(head)} on rank {schedule.rank[needed]}"
        same = dependencies.group[needed] == dependencies.group[head]
        reasons.append(f"{schedule.op(op)} waits for {schedule.op(needed)}{'' if same else after}")
    why = f"a deadlock, {'; '.join(limited(reasons))}"
    op, needed = waits[cycle[0]][cycle[1 % len(cycle)]]
    remedy = "reorder the marked cells, which can never start"
    _refuse(schedule, op, f"waits for {schedule.op(needed)}", remedy, [heads[rank] for rank in cycle], why)


def shortest_cycle(waits):
    """Find a shortest cycle among ranks that wait for each other, by breadth-first searches.

    Parameters
    ----------
    waits : dict of int to collection of int
        For each rank, those that it waits for; at least one cycle.

    Returns
    -------
    list of int
        Each waits for the next, and the last for the first, which is the lowest.

    Examples
    --------
    >>> shortest_cycle({0: [1], 1: [0, 2], 2: [2]}), shortest_cycle({0: [1], 1: [2], 2: [1]})
    ([2], [1, 2])
    """
    best = []
    for begin in sorted(waits):
        before, frontier, length = {}, [begin], 1
        while frontier and begin not in before and (not best or length < len(best)):
            reached = {other: rank for rank in frontier for other in waits[rank] if other not in before}
            before |= reached
            frontier, length = list(reached), length + 1
        if begin in before:
            best = [begin]
            while before[best[-1]] != begin:
                best.append(before[best[-1]])
            best[1:] = best[:0:-1]
    return best


def limited(reasons):
    """At most six reasons, with a mark that there are more."""
    return [*reasons[:_MOST_SHOWN], *["and so on"] * (len(reasons) > _MOST_SHOWN)]
