"""STP: complete, as long as its closed forms, and its authors' table 1 held against tables."""

from fractions import Fraction
from itertools import product

import pytest
from refusals import refused
from twin import in_plain_words

from ppmodel import build, formulas
from ppmodel.errors import ScheduleError
from ppmodel.metrics import exposed_passes, peak_activations, table_slots
from ppmodel.ops import OpKind

FULL = [(ranks, count) for ranks in range(1, 9) for count in range(3 * ranks - 1, 65)]
SAVING = [(ranks, count) for ranks in range(1, 9) for count in range(2 * ranks, 33)]
SIZES = [(*size, "full") for size in FULL] + [(*size, "memory-saving") for size in SAVING]
SMALL = [(ranks, count) for ranks in (1, 2, 3, 5, 8) for count in (3 * ranks - 1, 3 * ranks + 2)]


def walked(schedule, duration):
    """When each rank's cells begin and end, if a cell takes what `duration` says of it and transfers take nothing."""
    rows, _, source, _ = in_plain_words(schedule)
    begin, end, there = [[] for _ in rows], [[0] for _ in rows], {None: 0}
    while any(len(begin[rank]) < len(row) for rank, row in enumerate(rows)):
        for rank, row in enumerate(rows):
            for cell in row[len(begin[rank]) :]:
                if not all(source[op] in there for op in cell):
                    break
                begin[rank].append(max([end[rank][-1], *(there[source[op]] for op in cell)]))
                end[rank].append(begin[rank][-1] + duration(cell))
                there.update(dict.fromkeys(cell, end[rank][-1]))
    return begin, end


def with_all_reduces(schedule, forward, input_grad, weight_grad, all_reduce):
    """Idle and computing time of each rank, and idle time within its span, at times of one chunk.

    An all-reduce is exposed after a forward or an input gradient that is alone in its cell.
    """
    times = {OpKind.F: forward, OpKind.I: input_grad, OpKind.W: weight_grad, OpKind.B: input_grad + weight_grad}

    def duration(cell):
        exposed = len(cell) == 1 and cell[0].kind in (OpKind.F, OpKind.I)
        return sum(times[op.kind] for op in cell) + (all_reduce if exposed else 0)

    begin, end = walked(schedule, duration)
    busy = [sum(map(duration, row)) for row in schedule.rows()]
    first, last = [one[0] for one in begin], [one[-1] for one in end]
    idle = [max(last) - one for one in busy]
    return idle, busy, [until - since - one for since, until, one in zip(first, last, busy, strict=True)]


def test_at_four_ranks_and_twelve_microbatches_it_is_figure_5():
    """75 slots, 3 of them idle on every rank, where a cell of two takes the sum of its parts."""
    table = build("stp", 4, 12).table()
    assert [len(row) for row in table] == [75] * 4
    assert [row.count(".") for row in table] == [3] * 4


def test_every_size_has_its_closed_forms():
    """All of p <= 8 to B = 64: length, and peaks whether or not what waits for W counts."""
    for ranks, count, warm_up in SIZES:
        schedule = build("stp", ranks, count, warm_up=warm_up)
        ratio = formulas.bubble_ratio_stp(ranks, count, warm_up)
        assert 1 - Fraction(6 * count, table_slots(schedule)) == ratio
        for share, holds in ((1.0, True), (0.0, False)):
            counted = peak_activations(schedule, held_for_weight_grad=share)
            assert counted.tolist() == formulas.peak_activations_stp(ranks, warm_up, holds)


def test_table_1_tensor_bubbles():
    """Exact for all three schedules; STP's on rank 0, and d all-reduces more on rank d."""
    for size in FULL:
        exposed = exposed_passes(build("stp", *size)).tolist()
        assert exposed == formulas.tensor_bubble_stp(size[0])
        assert exposed[0] == 2 * size[0] + 1
    for ranks, count in FULL[::5]:
        exposed = {
            name: set(exposed_passes(build(name, ranks, count)).tolist()) for name in ("zb-v", "interleaved-1f1b")
        }
        assert exposed["zb-v"] == {formulas.tensor_bubble_zb_v(count)}
        assert exposed["interleaved-1f1b"] == {formulas.tensor_bubble_interleaved(count)}


def test_table_1_pipeline_bubbles_without_all_reduces():
    """At F = I = W every rank of STP waits (S-1)(F+I-W), to the slot, at all sizes."""
    for ranks, count in FULL:
        idle = table_slots(build("stp", ranks, count)) - 6 * count
        assert idle == formulas.pipeline_bubble_stp(ranks)


@pytest.mark.parametrize("all_reduce", [0, 1, 3, 10])
def test_table_1_pipeline_bubbles_with_all_reduces(all_reduce):
    """At F = I = W: interleaved 1F1B on all ranks, ZB-V within the span of rank 0, STP on the last rank."""
    times = 10, 10, 10, all_reduce
    for ranks, count in SMALL:
        idle, busy, _ = with_all_reduces(build("stp", ranks, count), *times)
        assert idle[-1] == formulas.pipeline_bubble_stp(ranks, *times)
        assert idle == [idle[-1] + (ranks - 1 - rank) * all_reduce for rank in range(ranks)]
        assert [one - 60 * count for one in busy] == formulas.tensor_bubble_stp(ranks, all_reduce)
        idle, _, spans = with_all_reduces(build("zb-v", ranks, count), *times)
        assert spans[0] == formulas.pipeline_bubble_zb_v(ranks, *times)
        assert idle == [(ranks - 1) * (10 + all_reduce)] * ranks
        idle, _, _ = with_all_reduces(build("interleaved-1f1b", ranks, count), *times)
        assert idle == [formulas.pipeline_bubble_interleaved(ranks, *times)] * ranks


@pytest.mark.parametrize("times", [(10, 12, 8, 3), (7, 5, 9, 2)])
def test_only_the_interleaved_pipeline_bubble_holds_for_unequal_times(times):
    """The other two are too small where F, I and W differ."""
    idle, _, _ = with_all_reduces(build("interleaved-1f1b", 4, 12), *times)
    assert idle == [formulas.pipeline_bubble_interleaved(4, *times)] * 4
    assert min(with_all_reduces(build("stp", 4, 12), *times)[0]) > formulas.pipeline_bubble_stp(4, *times)
    assert with_all_reduces(build("zb-v", 4, 12), *times)[2][0] > formulas.pipeline_bubble_zb_v(4, *times)


def test_makespans_hold_for_any_times():
    """The general form is exact as long as W is not longer than both F and I, and never below the published one."""
    for ranks, count in SMALL:
        schedule = build("stp", ranks, count)
        for f, i, w in product((1, 2, 4, 7), (1, 3, 5, 8), (0, 1, 3, 6)):
            if w <= max(f, i):
                slots = table_slots(schedule, forward=f, backward=i + w, input_grad=i, weight_grad=w)
                assert Fraction(slots, 2) == formulas.makespan_stp(ranks, count, f, i, w)
                assert slots - 2 * count * (f + i + w) >= formulas.pipeline_bubble_stp(ranks, f, i, w)


def test_cells_join_two_microbatches_of_one_stage():
    """A forward, written first, and a backward or its first half, of a lower microbatch on the same stage.

    In the full warm-up weight gradients of the way up run under forwards of the way down.
    """
    for ranks, count, warm_up in ((4, 12, "full"), (7, 20, "full"), (6, 13, "memory-saving")):
        schedule = build("stp", ranks, count, warm_up=warm_up)
        pairs = [cell for row in schedule.rows() for cell in row if len(cell) > 1]
        assert {len(cell) for cell in pairs} == {2}
        assert all(one.kind == OpKind.F != other.kind for one, other in pairs)
        assert all(one.microbatch > other.microbatch for one, other in pairs)
        under = [(one.stage, other.stage) for one, other in pairs if other.kind == OpKind.W]
        assert all(one + other == 2 * ranks - 1 for one, other in under)
        assert bool(under) == (warm_up == "full")
        assert all(one.stage == other.stage for one, other in pairs if other.kind != OpKind.W)


def test_the_memory_saving_warm_up_saves_s_minus_1_chunks_and_costs_as_many_slots():
    """Up to a third of the activations, for twice the bubble."""
    for ranks, count in ((4, 12), (8, 40)):
        full, saving = (build("stp", ranks, count, warm_up=one) for one in ("full", "memory-saving"))
        assert (peak_activations(full) - peak_activations(saving))[0] * 2 == ranks - 1
        assert table_slots(saving) - table_slots(full) == ranks - 1


@pytest.mark.parametrize(("size", "options", "least"), [((4, 10), {}, 11), ((4, 7), {"warm_up": "memory-saving"}, 8)])
def test_too_few_microbatches_are_refused_with_the_next_legal_number(size, options, least):
    """The rule and the remedy name it; there it is built."""
    with refused(ScheduleError, "microbatches", f"at least {least}", remedy=f"microbatches {least} or more"):
        build("stp", *size, **options)
    assert build("stp", size[0], least, **options).num_microbatches == least
    with refused(ScheduleError, "warm_up", "one of full, memory-saving"):
        build("stp", 4, 12, warm_up="short")
