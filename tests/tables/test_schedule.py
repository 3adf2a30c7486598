"""The table: complete, in order, and refused with the cell marked where it is not."""

import copy
import pickle
import re
from dataclasses import replace
from functools import cached_property

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from refusals import refused
from strategies import schedules
from twin import barriers, needs

from ppmodel import Op, OpKind, Schedule, build
from ppmodel.errors import PPModelError, ScheduleError, TableError
from ppmodel.tables import NO_OPERATION
from ppmodel.tables.dependencies import dependencies_of
from ppmodel.tables.further import direct


def rows(text):
    return [line.split() for line in text.strip().splitlines()]


@given(schedules())
def test_every_operation_stands_once_on_its_rank(schedule):
    """Each microbatch passes each stage forward and backward once, on one replica, where the stage lives."""
    schedule.validate()
    ops = [schedule.op(index) for index in range(schedule.num_operations)]
    assert len(set(ops)) == len(ops)
    wanted = {(s, m) for s in range(schedule.num_stages) for m in range(schedule.table_microbatches)}
    units = schedule.microbatch.tolist()
    found = {k: [(op.stage, unit) for op, unit in zip(ops, units, strict=True) if op.kind == k] for k in OpKind}
    assert set(found[OpKind.I]) == set(found[OpKind.W])
    for passes in (found[OpKind.F], found[OpKind.B] + found[OpKind.I], found[OpKind.B] + found[OpKind.W]):
        assert len(passes) == len(wanted)
        assert set(passes) == wanted


@given(schedules())
def test_rows_round_trip(schedule):
    """A schedule made of another one's rows has the same operations in the same order and cells."""
    again = Schedule.from_rows(
        schedule.name,
        schedule.rows(),
        num_microbatches=schedule.num_microbatches,
        microbatch_parts=schedule.microbatch_parts,
    )
    for name in ("kind", "stage", "microbatch", "replica", "joined", "rank_start", "placement"):
        np.testing.assert_array_equal(getattr(again, name), getattr(schedule, name))


@given(schedules())
def test_order_respects_dependencies(schedule):
    """In the order by level each operation follows its source and the one before it on its rank."""
    (source, remote, node, order, further), level = dependencies_of(schedule)
    assert (np.diff(level[order]) >= 0).all()
    needs = source != NO_OPERATION
    assert (level[source[needs]] < level[needs]).all()
    for op in range(schedule.num_operations if further is not None else 0):
        assert (level[direct(op, further, len(level))] < level[op]).all()
    of_shards = np.isin(schedule.kind, (OpKind.S, OpKind.T))  # what they need and give is no message
    sent = (schedule.rank[source] != schedule.rank) & (of_shards == of_shards[source])
    assert (remote[needs] == sent[needs]).all()
    same_rank = np.flatnonzero((np.diff(schedule.rank) == 0) & (np.diff(node) != 0))
    assert (level[same_rank] < level[same_rank + 1]).all()


@given(schedules())
def test_slots_never_overlap_and_wait_for_inputs(schedule):
    """On each rank one cell follows the other, and nothing begins before its input has ended."""
    start, end = schedule.slots(reduction=1)
    heads = np.flatnonzero(~schedule.joined)
    follows = np.diff(schedule.rank[heads]) == 0
    assert (start[heads][1:][follows] >= end[heads][:-1][follows]).all()
    source = schedule.dependencies.source
    needs = source != NO_OPERATION
    assert (start[needs] >= end[source[needs]]).all()
    assert (start >= 0).all()


@given(schedules())
def test_table_shows_every_operation(schedule):
    """The drawn grid names each operation once, and is as wide as the last slot."""
    grid = schedule.table(backward=2)
    names = [name for row in grid for cell in row for name in cell.split("&") if cell not in ".~"]
    assert sorted(names) == sorted(str(schedule.op(index)) for index in range(schedule.num_operations))
    assert {len(row) for row in grid} == {int(schedule.slots(reduction=1)[1].max())}


BROKEN = {
    "missing": ("0F0 0F1 0B0 0B1\n1F0 1B0 1B1", "1F1", "is missing from the table"),
    "typo": ("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B2", "1B2", "is the only operation of microbatch 2"),
    "missing half": ("0F0 0I0", "0W0", "is missing from the table"),
    "doubled": ("0F0 0F1 0B0 0B1 0B1\n1F0 1B0 1F1 1B1", "0B1", "occurs twice"),
    "misplaced": ("0F0 0F1 0B0 0B1 1B1\n1F0 1B0 1F1", "1B1", "is misplaced: stage 1 of replica 0 is on rank 1"),
    "deadlock": ("0F0 0B0 0F1 0B1\n1F1 1F0 1B0 1B1", "0B0", "deadlock"),
    "backward first": ("0B0 0F0", "0B0", "deadlock"),
    "weights first": ("0F0 0W0 0I0", "0W0", "deadlock"),
    "both backwards": ("0F0 0B0 0I0 0W0", "0B0", "beside its own halves"),
    "lone reduction": ("0F0 1F0 1B0 0B0 0R", "1R", "is missing: a table has reductions"),
    "lone step": ("0F0 1F0 1B0 0B0 1O", "0O", "is missing: a table has optimizer steps"),
    "rank without steps": ("0F0 0B0 0O\n1F0 1B0", "1B0", "is not followed by an optimizer step"),
    "early reduction": ("0F0 0R 0B0", "0R", "deadlock"),
    "early step": ("0F0 1F0 1B0 1O 0B0 0O", "1O", "comes before 0B0: steps start when all gradients"),
    "step before a reduction": ("0F0 0B0 0O 0R", "0O", "comes before 0R"),
    "steps in one cell": ("0F0 1F0 1B0 0B0 0O&1O", "1O", "shares a cell with an optimizer step"),
    "two replicas": ("0F0 0B0 1F0@1\n1F0 1B0 0F0@1", "replicas [0, 1]", "exactly one replica"),
    "gap": ("0F0 0F2 0B0 0B2", "missing", "has no operation"),
    "no stage 0": ("1F0 1B0", "missing", "has no operation"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_tables_are_refused(case):
    """A table that is no schedule is refused, naming the operation and the rule."""
    text, operation, rule = BROKEN[case]
    with refused(TableError, value=operation, rule=rule):
        Schedule.from_rows("broken", rows(text))


@pytest.mark.parametrize(
    "cell",
    [Op("F", 0, 0), Op(OpKind.F, 0.5, 0), Op(OpKind.F, 2**40, 0), Op(OpKind.F, None, 0), (OpKind.F, 0, 0), 3, (), None],
    ids=repr,
)
def test_a_cell_that_is_no_operation_is_told_as_it_is_written(cell):
    """Letters for kinds, fractions, numbers out of range, and other things."""
    with refused(TableError, value=repr(cell), rule="is not an Op"):
        Schedule.from_rows("broken", [["0F0", cell, "0B0"]])


WAIT = re.compile(r"(\S+) waits for (\S+?)(?:, behind (\S+) on rank (\d+))?")


@settings(max_examples=300)
@given(schedules(max_stages=4, max_microbatches=4), st.integers(0, 2**32 - 1))
def test_a_deadlock_is_told_by_a_shortest_cycle_of_true_waits(schedule, seed):
    """In a table whose cells were shuffled, each operation named needs the next one, or one that stands behind it."""
    random, rows = np.random.default_rng(seed), [list(row) for row in schedule.rows()]
    for _ in range(random.integers(1, 4)):
        row = rows[random.integers(len(rows))]
        first, second = random.integers(len(row), size=2)
        row[first], row[second] = row[second], row[first]
    try:
        sizes = {name: getattr(schedule, name) for name in ("num_microbatches", "microbatch_parts", "stage_shares")}
        Schedule.from_rows("shuffled", rows, **sizes)
        assume(False)
    except TableError as problem:
        error = problem
    reasons = (error.why or "").removeprefix("a deadlock, ").split("; ")
    assume("deadlock" in (error.why or "") and "and so on" not in reasons)
    place = {op: (rank, slot) for rank, row in enumerate(rows) for slot, cell in enumerate(row) for op in cell}
    split = {op._replace(kind=OpKind.B) for op in place if op.kind == OpKind.I}
    waits = [WAIT.fullmatch(reason).groups() for reason in reasons]
    for (op, needed, behind, rank), (following, *_) in zip(waits, waits[1:] + waits[:1], strict=True):
        op, needed, following = (Op.parse(text) for text in (op, needed, following))
        if op.kind == OpKind.R:
            assert needed.kind == OpKind.R or needed.stage == op.stage
        else:
            barrier = barriers(rows, schedule.num_stages - 1).get(op, [])
            assert needed in [*barrier, needs(op, schedule.num_stages - 1, split)]
        if behind is not None:
            head = Op.parse(behind)
            assert place[head][0] == place[needed][0] == place[following][0] == int(rank)
            assert place[head][1] < place[needed][1]
            assert place[head] == place[following]
    if len(reasons) > 1:  # no operation of a shorter cycle: none waits for its own row
        assert len({place[Op.parse(op)][0] for op, *_ in waits}) == len(waits)
    assert (error.field, str(error.value)) == (f"rank {place[Op.parse(waits[0][0])][0]}", waits[0][0])


def test_reductions_of_replicas_on_one_rank_are_refused_if_they_cannot_run():
    """One after the other they never start; in cells, compiled code has no place for them."""
    with refused(TableError, "rank 0", "waits for 0R"):
        _ = Schedule.from_rows("t", rows("0F0 0B0 0F1@1 0B1@1 0R@1 0F2 0B2 0R")).dependencies
    cells = {"kind": [0, 0, 1, 6, 1, 6], "microbatch": [0, 1, 1, -1, 0, -1], "replica": [0, 1, 1, 1, 0, 0]}
    joined = [False, True, False, False, True, False]
    table = Schedule("t", [[0], [0]], 2, **cells, stage=[0] * 6, joined=joined, rank_start=[0, 6])
    with refused(TableError, "rank 0", "two replicas of its stage", "0R@1"):
        _ = table.dependencies


def test_a_deadlock_in_one_row_blames_no_other_row():
    """A backward before its own forward: rank 0 waits for it, too, but only rank 2 is named and marked."""
    with refused(TableError, "rank 2", "2B1 waits for 2F1", "2B1") as caught:
        Schedule.from_rows("stuck", rows("0F0 0F1 0B0 0B1\n1F0 1F1 1B0 1B1\n2F0 2B0 2B1 2F1"))
    assert [row for row, _ in caught.value.grid.marks] == [2]


def test_the_failing_cell_is_marked():
    """The grid under the message marks the cells in question and no other."""
    with pytest.raises(TableError) as caught:
        Schedule.from_rows("broken", rows("0F0 0F1 0B0 0B1 0B0\n1F0 1B0 1F1 1B1"))
    assert caught.value.grid.marks == {(0, 2), (0, 4)}
    assert str(caught.value.grid).count(">0B0<") == 2 == str(caught.value.grid).count(">")
    with pytest.raises(TableError) as caught:
        Schedule.from_rows("mistyped", rows("0F0 0F9 0B0\n1F0 1B0"))
    assert caught.value.grid.marks == {(0, 1)}


def test_tables_too_large_to_draw_are_refused():
    """A grid of millions of cells is refused before it is made."""
    with refused(PPModelError, "table", "to be drawn"):
        build("gpipe", 4, 4).table(backward=10**8)


def test_large_tables_are_refused_before_their_slots_are_counted(monkeypatch):
    """The slots in which ranks compute are a bound that costs nothing."""
    monkeypatch.setattr("ppmodel.tables.slots.slots", None)
    with refused(PPModelError, "table", "to be drawn", value="at least 6291456 cells"):
        build("gpipe", 1024, 2048).table()


def test_shares_must_fit_the_stages():
    """Stage shares of another number of stages are refused."""
    with refused(TableError, "stage_shares", "one share per stage"):
        Schedule.from_rows("x", rows("0F0 0B0"), stage_shares=np.ones(2))


@pytest.mark.parametrize(
    ("name", "value"),
    [("stage", 7), ("stage", -1), ("replica", 1), ("kind", 10), ("microbatch", 10**6), ("microbatch", -5),
     ("microbatch", -1), ("rank_start", -9)],
)  # fmt: skip
def test_numbers_out_of_range_are_refused_before_a_loop_reads_them(name, value):
    """Arrays made by hand are checked when something is derived from them: a compiled loop would not notice."""
    column = getattr(build("1f1b", 4, 8), name).copy()
    column[-1] = value
    with refused(TableError, name, "must "):
        _ = replace(build("1f1b", 4, 8), **{name: column}).dependencies


def test_cells_begin_with_an_operation_of_their_rank():
    """An operation that shares its cell with none, or with one of another rank, is refused."""
    table = build("1f1b", 2, 4)
    for first in table.rank_start[:-1]:
        joined = np.arange(table.num_operations) == first
        with refused(TableError, "joined", "false for the first operation of each rank"):
            _ = replace(table, joined=joined).dependencies
    for joined in (table.joined[:-1], table.joined[None]):
        with refused(TableError, "shapes", "one number for each operation"):
            replace(table, joined=joined)


@pytest.mark.parametrize("slots", [0.5, -1, 10**10, "2"])
def test_slots_are_whole_numbers(slots):
    """A table has no half slots, and no negative ones."""
    with refused(ScheduleError, "slots of an operation", "whole number"):
        build("gpipe", 2, 2).slots(forward=slots)


@pytest.mark.parametrize("name", ["combined-1f1b", "chimera", "asymmetric-chimera"])
def test_no_array_of_a_table_can_be_changed(name):
    """Neither what it is made of nor what is derived from it, in copies and other processes as well."""
    table = build(name, 2, 4).with_step()
    derived = [key for key, made in vars(Schedule).items() if isinstance(made, cached_property)]
    _ = [getattr(table, key) for key in derived]
    for one in (table, copy.copy(table), copy.deepcopy(table), replace(table), pickle.loads(pickle.dumps(table))):
        for key in (*vars(one), *derived):
            value = getattr(one, key)
            for array in value if isinstance(value, tuple) else (value,):
                assert not isinstance(array, np.ndarray) or not array.flags.writeable, key
        assert one.rows() == table.rows()


def test_a_table_shares_no_array_with_whoever_makes_it():
    """Shares and places that are changed afterwards are no longer those of the table."""
    shares, places, made = np.array([0.5, 1.5]), np.array([[0, 1]]), build("gpipe", 2, 2)
    table = replace(made, stage_shares=shares, placement=places)
    shares[0], places[0, 0] = 9, 1
    assert (table.stage_shares.tolist(), table.placement.tolist()) == ([0.5, 1.5], [[0, 1]])
