"""Chimera: the published order and times, its concatenations, its asymmetric split."""

import pytest
from refusals import refused

from ppmodel import build
from ppmodel.errors import ScheduleError
from ppmodel.metrics import peak_activations, table_slots
from ppmodel.ops import OpKind
from ppmodel.schedules.chimera import CONCATENATIONS


def test_the_published_order_of_four_ranks():
    """Devices 0 and 1 run the cells of the paper's figure in its order; 2 and 3 mirror them, directions swapped."""
    shown = ["0F0 0F1 3F2@1 3B2@1 3F3@1 3B3@1 0B0 0B1", "1F0 2F2@1 1F1 2F3@1 2B2@1 1B0 2B3@1 1B1"]
    rows = [[op for cell in row for op in cell if op.kind != OpKind.R] for row in build("chimera", 4, 4).rows()]
    assert [" ".join(map(str, row)) for row in rows[:2]] == shown
    mirror = [[op._replace(microbatch=(op.microbatch + 2) % 4, replica=1 - op.replica) for op in row] for row in rows]
    assert mirror[::-1] == rows


def test_forwards_and_backwards_of_equal_length_leave_the_published_bubble():
    """With a backward of one slot the table has 2B + S - 2 slots, units interlocking without a seam."""
    for stages in (2, 4, 6, 8):
        for units in (1, 2, 3):
            assert table_slots(build("chimera", stages, units * stages), backward=1) == 2 * units * stages + stages - 2


def test_known_lengths():
    """With a backward of two slots: 36, 66 and 76 forward-times; 65 where units overlap."""
    assert [table_slots(build("chimera", *size)) for size in ((8, 8), (8, 16), (16, 16))] == [36, 66, 76]
    overlapping = [
        table_slots(build("chimera", *size, concat="overlapping")) for size in ((8, 16), (8, 24), (4, 8), (4, 16))
    ]
    assert overlapping == [65, 94, 29, 55]


def test_concatenations_coincide_for_a_single_unit():
    """At B = S there is nothing to concatenate."""
    one = build("chimera", 6, 6)
    for concat in CONCATENATIONS:
        other = build("chimera", 6, 6, concat=concat)
        assert other.rows() == one.rows()


def test_doubling_takes_twice_the_memory_and_halving_does_not():
    """Peaks in units: forward doubling about twice `direct`, backward halving at most `direct`'s largest."""
    peaks = {concat: peak_activations(build("chimera", 8, 32, concat=concat)).max() for concat in CONCATENATIONS}
    assert peaks == {"direct": 8, "overlapping": 8, "forward-doubling": 16, "backward-halving": 8, "merged": 9}


@pytest.mark.parametrize(("stages", "units"), [(2, 3), (4, 2), (6, 4), (8, 3)])
def test_merged_runs_1f1b_in_both_directions(stages, units):
    """Of each copy a rank runs 1F1B's operations in 1F1B's order, and holds S + 1 microbatches at most."""
    merged = build("chimera", stages, units * stages, concat="merged")
    single = [[op for (op,) in row] for row in build("1f1b", stages, units * stages // 2).rows()]
    for copy, first in ((0, 0), (1, units * stages // 2)):
        for rank, row in enumerate(merged.rows()):
            ops = [op for (op,) in row if op.replica == copy and op.kind != OpKind.R]
            order = [op._replace(microbatch=op.microbatch + first, replica=copy) for op in single[ops[0].stage]]
            assert ops == order
            assert ops[0].stage == (rank if copy == 0 else stages - 1 - rank)
    assert peak_activations(merged).max() == (stages + 1 if stages > 2 else 2)


def test_known_lengths_of_merged():
    """36 at B = S as the unit, then 3B + 2S - 5; shorter than 1F1B's table at every B."""
    sizes = (8, 8), (4, 8), (8, 16), (16, 32), (8, 256)
    lengths = [table_slots(build("chimera", *size, concat="merged")) for size in sizes]
    assert lengths == [36, 27, 59, 123, 779]
    assert all(length < table_slots(build("1f1b", *size)) for size, length in zip(sizes, lengths, strict=True))


@pytest.mark.parametrize("concat", CONCATENATIONS)
def test_no_operation_is_lost_in_long_tables(concat):
    """Four and more units keep every operation (a published generator loses some)."""
    schedule = build("chimera", 6, 48, concat=concat)
    schedule.validate()
    assert (schedule.kind != OpKind.R).sum() == 2 * 6 * schedule.table_microbatches
    assert (schedule.kind == OpKind.R).sum() == 2 * 6


def test_splits_move_blocks_and_nothing_else():
    """An asymmetric split has the symmetric table; the shares of a rank's two stages stay even."""
    symmetric, split = build("chimera", 6, 12), build("asymmetric-chimera", 6, 12, split=(1, 3))
    assert split.rows() == symmetric.rows()
    assert split.stage_shares.tolist() == [0.5] * 3 + [1.5] * 3
    assert (split.stage_shares + split.stage_shares[::-1] == 2).all()


@pytest.mark.parametrize(
    ("size", "options", "field", "rule"),
    [
        ((5, 5), {}, "pp", "must be even"),
        ((1, 1), {}, "pp", "must be even"),
        ((4, 6), {}, "microbatches", "multiple of 4"),
        ((4, 2), {}, "microbatches", "multiple of 4"),
        ((4, 12), {"concat": "forward-doubling"}, "microbatches", "multiple of 8"),
        ((4, 4), {"concat": "sideways"}, "concat", "must be one of"),
    ],
)
def test_illegal_sizes_are_refused(size, options, field, rule):
    """An odd S, a B that does not fill units, an unknown concatenation."""
    for name in ("chimera", "asymmetric-chimera"):
        with refused(ScheduleError, field, rule):
            build(name, *size, **options)


@pytest.mark.parametrize("split", [(0, 1), (1,), "x", (1, 2, 3), (1, -1), None, ("1", "2"), (1.5, 2), (1, 1001)])
def test_illegal_splits_are_refused(split):
    """A split is two positive whole numbers."""
    with refused(ScheduleError, "split", "two whole numbers"):
        build("asymmetric-chimera", 4, 4, split=split)
