"""ZB-V, V-Half and V-Min: complete, within their published peaks, and as long as their closed forms."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from ppmodel import build, formulas
from ppmodel.errors import ScheduleError
from ppmodel.loops.compiled import using
from ppmodel.metrics import bubble_ratios, peak_activations, table_bubble_ratio, table_slots
from ppmodel.ops import OpKind
from ppmodel.schedules import zero_bubble_v
from ppmodel.schedules.building_block import squeezed
from ppmodel.simulation import compile_graph, run_graph, uniform_costs

PEAKS = {
    "zb-v": formulas.peak_activations_zb_v,
    "v-half": formulas.peak_activations_v_half,
    "v-min": formulas.peak_activations_v_min,
}
MAKESPANS = {"zb-v": formulas.makespan_zb_v, "v-half": formulas.makespan_v_half, "v-min": formulas.makespan_v_min}
NAMES = sorted(PEAKS)


def simulated(schedule, forward=1, input_grad=1, weight_grad=1):
    """A run at times F, I and W of one microbatch on 1/S of the model."""
    costs = uniform_costs(schedule, forward, input_grad=input_grad, weight_grad=weight_grad)
    return run_graph(compile_graph(schedule), costs)


@pytest.mark.parametrize("name", NAMES)
def test_every_operation_is_there_once(name):
    """Sizes up to 8 ranks and 20 microbatches are complete, run to their end and stay within the published peak."""
    for stages, count in product(range(1, 9), (1, 2, 3, 4, 7, 8, 12, 17, 20)):
        schedule = build(name, stages, count)
        schedule.validate()
        assert (peak_activations(schedule) <= PEAKS[name](stages)).all()


@pytest.mark.parametrize("name", NAMES)
def test_makespans_at_equal_times(name):
    """At F = I = W the table and a run are as long as the closed form, from as many microbatches as ranks on."""
    for stages, extra in product(range(1, 19), (0, 1, 2, 3, 5, 11, 24)):
        count = max(3, stages + extra)
        schedule, makespan = build(name, stages, count), MAKESPANS[name](stages, count)
        assert table_slots(schedule) == 2 * makespan
        assert 1 - table_bubble_ratio(schedule) == pytest.approx(float(3 * count / makespan))
    assert simulated(schedule).makespan_s == pytest.approx(float(makespan))


@pytest.mark.parametrize("name", NAMES)
def test_steady_state_is_six_operations_of_a_microbatch(name):
    """One more microbatch takes F + I + W more, and in the middle of a long table no rank ever waits."""
    for stages in range(1, 9):
        schedule = build(name, stages, 8 * stages)
        assert table_slots(build(name, stages, 8 * stages + 1)) - table_slots(schedule) == 6
        start = schedule.slots()[0]
        busy = Counter(start[(start > 20 * stages) & (start < 26 * stages)].tolist())
        assert set(busy.values()) == {stages}


def test_zb_v_has_no_bubble_in_a_rank():
    """At F = I = W no rank waits between its first and its last operation; the total counts the ramp."""
    ratios = bubble_ratios(simulated(build("zb-v", 6, 11)))
    assert ratios.span == pytest.approx(0, abs=1e-12)
    assert ratios.total == pytest.approx(float(formulas.bubble_ratio_zb_v(6, 11)))
    assert bubble_ratios(simulated(build("zb-v", 6, 9))).span > 0.01  # fewer than 2S-1


def test_zb_v_with_few_microbatches():
    """Below 2S-1 microbatches the fill is not hidden: max(S-1, 4(S-1) - 2(B-1)) chunks' times are lost."""
    for stages in range(1, 9):
        for count in range(1, 2 * stages):
            assert table_slots(build("zb-v", stages, count)) == 2 * formulas.makespan_zb_v(stages, count)


def test_zb_v_where_the_input_gradient_is_longest():
    """For F <= I and W <= I the ramp costs (S-1) max(I, 2(I-W))/2; with a longer F or W it costs more than that."""
    for stages, count in ((3, 6), (6, 12)):
        schedule = build("zb-v", stages, count)
        for times in product((0, 1, 5, 6), (6,), (0, 1, 2, 3, 4, 6)):
            assert simulated(schedule, *times).makespan_s == pytest.approx(
                float(formulas.makespan_zb_v(stages, count, *times))
            )
        for times in ((7, 6, 3), (6, 6, 9)):
            assert simulated(schedule, *times).makespan_s > formulas.makespan_zb_v(stages, count, *times)


def test_v_min_beats_its_authors_generator_where_s_leaves_2():
    """The authors' lengths, measured with their generator: equal but for S = 2, 5, 8, 11, where ours is shorter.

    With fewer microbatches than ranks neither it nor V-Half has a closed form.
    """
    assert formulas.bubble_ratio_v_min(7, 6) is None is formulas.bubble_ratio_v_half(7, 6)
    for stages in range(2, 13):
        table = 1 - table_bubble_ratio(build("v-min", stages, 2 * stages))
        authors = 1 - formulas.bubble_ratio_v_min(stages, 2 * stages)
        assert (table > float(authors) + 1e-9) == (stages % 3 == 2)
        assert stages % 3 == 2 or table == pytest.approx(float(authors))


def test_v_half_has_its_authors_lengths():
    """The authors' generator leaves 1, 5, 5, 11, 11, 17, 17 chunks' times for S = 2 to 8."""
    bubbles = [table_slots(build("v-half", stages, 16)) - 6 * 16 for stages in range(2, 9)]
    assert bubbles == [1, 5, 5, 11, 11, 17, 17]


TIMES = ((100, 116, 72), (9, 4, 4), (1, 8, 5), (8, 7, 3), (2, 1, 2), (1, 2, 1), (4, 3, 9), (8, 9, 9), (1, 1, 0))


def block_of(name, stages, rank):
    """Kind, stage and published offset of the four steps that a rank has of a block."""
    if name == "v-half":
        apart = 3 * (stages % 2 == 0)
        offsets = (2 * rank, 3 * stages - rank - 2, 3 * stages + apart + 2 * rank - 1, 6 * stages + apart - rank - 2)
    else:
        apart = 2 * (stages % 3 == 0)
        offsets = rank, 2 * stages - 1 - rank, 2 * stages + apart + rank, 4 * stages + apart - 1 - rank
    up = 2 * stages - 1 - rank
    return zip((OpKind.F, OpKind.F, OpKind.I, OpKind.I), (rank, up, up, rank), offsets, strict=True)


def repeated(steps, count):
    """Slots of a rank and what is in them, of the block repeated: weight gradients in the next free slots."""
    slots = {at + 6 * b: (kind, stage, b) for kind, stage, at in steps for b in range(count)}
    waiting, at = [], 0
    while len(slots) < 6 * count:
        if at not in slots and waiting:
            slots[at] = waiting.pop(0)
        elif at in slots and slots[at][0] == OpKind.I:
            waiting.append((OpKind.W, *slots[at][1:]))
        at += 1
    return slots


@pytest.mark.parametrize("name", ["v-half", "v-min"])
def test_the_stable_phase_is_the_authors_block_repeated(name):
    """In the middle of a table every rank has the operations of the repeated block, in its order, and no others."""
    for stages, rank in [(1, 0), (2, 0), (2, 1), *product((3, 4, 5, 6, 7, 8, 9), (0, 1, 2))]:
        count = 2 * stages + 9
        slots = repeated(block_of(name, stages, rank), count)
        middle = [slots[at] for at in sorted(slots) if 6 * (stages + 3) <= at < 6 * (count - 2)]
        order = [(op.kind, op.stage, op.microbatch) for (op,) in build(name, stages, count).rows()[rank]]
        first = order.index(middle[0])
        assert order[first : first + len(middle)] == middle


def a_further_microbatch(name, stages, times):
    """What one more microbatch takes where a table is long."""
    few, many = (simulated(build(name, stages, count), *times).makespan_s for count in (6 * stages, 8 * stages))
    return (many - few) / (2 * stages)


@pytest.mark.parametrize("times", TIMES)
def test_v_half_loses_nothing_in_its_stable_phase_where_the_authors_say_so(times):
    """A further microbatch takes F + I + W where W + 2I >= 2F and W + 2F >= 2I, else what is measured here."""
    forward, input_grad, weight_grad = times
    expected = max(sum(times), 2 * forward + weight_grad / 2, 2 * input_grad + weight_grad / 2)
    fair = weight_grad >= 2 * abs(forward - input_grad)
    assert (expected == sum(times)) == fair
    for stages in (2, 3, 4, 6, 7, 8):
        assert a_further_microbatch("v-half", stages, times) == pytest.approx(expected)


@pytest.mark.parametrize("times", TIMES)
def test_v_min_loses_in_its_stable_phase_what_its_block_loses(times):
    """A further microbatch takes max(F + I + W, 3F, 3I), from three ranks on."""
    for stages in (3, 4, 5, 7, 8):
        expected = max(sum(times), 3 * times[0], 3 * times[1])
        assert a_further_microbatch("v-min", stages, times) == pytest.approx(expected)


def test_squeezing_the_ends_is_no_worse_than_the_block_alone():
    """At unequal times V-Half of 8 ranks takes less than the repeated block's 15.24 forward-times over the ideal."""
    for count in (10, 16, 32):
        over = simulated(build("v-half", 8, count), 1, 1.16, 0.72).makespan_s - 2.88 * count
        assert over == pytest.approx(11.44)


@pytest.mark.parametrize("name", ["v-half", "v-min"])
def test_long_tables_repeat_the_steady_state_of_short_ones(name, monkeypatch):
    """Where a table is stretched it is what squeezing all its blocks gives, operation for operation, for S to 96."""
    for stages in range(1, 97):
        count = zero_bubble_v.steady_from(stages) + 1 + stages % 5
        with using(True), monkeypatch.context() as patch:
            stretched = build(name, stages, count)
            patch.setattr(zero_bubble_v, "steady_from", lambda _: 1000)
            whole = build(name, stages, count)
        for column in ("kind", "stage", "microbatch"):
            np.testing.assert_array_equal(getattr(stretched, column), getattr(whole, column))


def test_squeezing_keeps_the_limit_and_pays_every_debt():
    """A block on one rank: with a limit of one activation, F, I and W in turn; with two, forwards run ahead."""
    ((kind, _, microbatch),) = squeezed([0], [0, 4], 6, 3, limit=1)
    assert kind.tolist() == [OpKind.F, OpKind.I, OpKind.W] * 3
    assert microbatch.tolist() == np.repeat(range(3), 3).tolist()
    ((kind, *_),) = squeezed([0], [0, 4], 3, 3, limit=2)
    held = np.cumsum(np.select([kind == OpKind.F, kind == OpKind.W], [1, -1]))
    assert held.max() == 2
    assert held[-1] == 0


def block(random, placement, period):
    """Offsets by chance: each step after the one before it, on no rank in the same slot of the period as another."""
    offsets, taken, at = [], set(), -1
    for rank in [*placement, *placement[::-1]]:
        at += random.randint(1, 6)
        while (rank, at % period) in taken:
            at += 1
        taken.add((rank, at % period))
        offsets.append(at)
    return offsets


@given(
    st.randoms(use_true_random=False),
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.integers(0, 6),
    st.integers(1, 20),
    st.integers(1, 25),
)
@settings(max_examples=200)
def test_compiled_and_plain_squeezing_are_the_same(random, ranks, spare, num_microbatches, limit):
    """Whatever the block and the limit, the compiled code moves every operation to where the plain code does."""
    placement = np.unique(ranks, return_inverse=True)[1].tolist()
    period = 3 * max(Counter(placement).values()) + spare
    offsets = block(random, placement, period)
    tables = []
    for compiled in (False, True):
        with using(compiled):
            orders = squeezed(placement, offsets, period, num_microbatches, limit)
        tables.append([[column.tolist() for column in order] for order in orders])
    assert tables[0] == tables[1]
    assert sum(len(kind) for kind, *_ in tables[0]) == 3 * len(placement) * num_microbatches


@pytest.mark.parametrize(
    ("name", "size", "field"),
    [("zb-v", (3000, 1), "pp x microbatches"), ("v-half", (1025, 1), "pp"), ("v-min", (1025, 1), "pp")],
)
def test_sizes_beyond_reason_are_refused(name, size, field):
    """What would take minutes or fill the memory is refused at once, few as the microbatches may be."""
    with refused(ScheduleError, field, "at most"):
        build(name, *size)
