"""ZB-1p and ZB-2p: orders found by a search under a memory limit."""

import csv
from math import ceil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from strategies import is_legal

from ppmodel import OpKind, build, simulate
from ppmodel.errors import ScheduleError
from ppmodel.loops.automatic import zero_bubble_order, zero_bubble_span
from ppmodel.loops.compiled import using
from ppmodel.metrics import bubble_ratios, peak_activations
from ppmodel.schedules import automatic, get
from ppmodel.schedules.cases import as_case
from ppmodel.schedules.slack import warm_up
from ppmodel.simulation import compile_graph, run_graph, uniform_costs
from ppmodel.studies.points.order import least_activations

REFERENCE = Path(__file__).parents[2] / "data" / "reference" / "zero_bubble_bubble_rates.csv"
lengths = st.sampled_from([1, 2, 3, 5, 9.337, 18.5])
searches = st.fixed_dictionaries(
    {
        "pp": st.integers(1, 7),
        "microbatches": st.integers(1, 16),
        "times": st.tuples(lengths, lengths, lengths, st.sampled_from([0, 1, 0.601])),
        "held": st.sampled_from([0, 0.25, 0.5, 1]),
    }
)


def timed(schedule, times):
    forward, input_grad, weight_grad, comm = times
    costs = uniform_costs(schedule, forward, None, comm, input_grad=input_grad, weight_grad=weight_grad)
    return run_graph(compile_graph(schedule, p2p="latency"), costs)


@given(
    search=searches,
    name=st.sampled_from(["zb-1p", "zb-2p"]),
    limit=st.integers(1, 14) | st.none(),
    held=st.sampled_from([0, 0.25, 0.5, 1, 1.5, 2.25, 4]),
)
@settings(max_examples=200)
def test_tables_are_whole_and_fit_the_memory(search, name, limit, held):
    """Every operation is there, no rank waits forever, none holds more than the limit, microbatches go in order.

    Also where input gradients hold more than forwards, unless not even one microbatch fits.
    """
    search["held"] = held
    most = limit or search["pp"] * (1 if name == "zb-1p" else 2) * max(1, held)
    if held > most:
        with refused(ScheduleError, "limit", "at least held", remedy=f"limit {ceil(held)} or more"):
            build(name, **search, limit=limit)
        most = limit = ceil(held)
    schedule = build(name, **search, limit=limit)
    schedule.validate()
    assert peak_activations(schedule, held_for_weight_grad=held).max() <= most + 1e-9
    assert peak_activations(schedule).max() == peak_activations(schedule, held_for_weight_grad=held).max()
    for rank in range(schedule.num_ranks):
        for kind in (OpKind.F, OpKind.I, OpKind.W):
            mine = (schedule.rank == rank) & (schedule.kind == kind)
            assert schedule.microbatch[mine].tolist() == list(range(search["microbatches"]))


@given(search=searches)
@settings(max_examples=40)
def test_never_worse_than_the_hand_made(search):
    """For the times it was given no search has a longer span than ZB-H1, or at twice the memory than ZB-H2."""
    size = search["pp"], search["microbatches"]
    times = automatic._whole(search["times"])
    for name, hand_made in (("zb-1p", "zb-h1"), ("zb-2p", "zb-h1"), ("zb-2p", "zb-h2")):
        if is_legal(hand_made, size):
            found, known = (one.kind.reshape(size[0], -1) for one in (build(name, **search), build(hand_made, *size)))
            assert zero_bubble_span.plain(found, times) <= zero_bubble_span.plain(known, times)


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 3), (4, 7), (4, 20), (8, 15), (8, 24)])
def test_known_bubbles_of_equal_thirds(stages, microbatches):
    """At F = I = W, B >= 2S-1 and no transfers, ZB-2p's span has no bubble, and ZB-1p has ZB-H1's, S-1."""
    two, one = (timed(build(name, stages, microbatches), (1, 1, 1, 0)) for name in ("zb-2p", "zb-1p"))
    assert bubble_ratios(two).span == 0
    assert one.makespan_s == 3 * microbatches + stages - 1


def rates(row, held):
    """Span bubble rates of ZB-1p and ZB-2p, searched and timed with a line's published times."""
    size = int(row["devices"]), int(row["microbatches"])
    times = tuple(float(row[key]) for key in ("t_forward_ms", "t_input_grad_ms", "t_weight_grad_ms", "t_comm_ms"))
    return [bubble_ratios(timed(build(name, *size, times=times, held=held), times)).span for name in ("zb-1p", "zb-2p")]


def test_no_worse_than_the_published_rates_of_the_hand_made():
    """With the published times the bubble rates are at most ZB-H1's and below ZB-H2's, whatever W keeps."""
    with REFERENCE.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert rows
    for row in rows:
        for held in (0.5, 1):
            one, two = rates(row, held)
            assert one <= float(row["zb_h1"]) + 5e-5  # they have four digits
            assert two < float(row["zb_h2"]) - 1e-3


@given(st.data())
@settings(max_examples=60)
def test_compiled_and_plain_orders_are_the_same(data):
    """Under any rule the compiled code finds the plain code's order, times it alike, and leaves nothing out."""
    size = data.draw(st.tuples(st.integers(1, 7), st.integers(1, 14)))
    times = np.array(data.draw(st.tuples(*[st.integers(1, 9)] * 3, st.integers(0, 4))))
    kept = data.draw(st.integers(0, 7))
    memory = np.array([max(kept, 3 * data.draw(st.integers(1, 2 * size[0]))), 3, kept])
    rule = np.array(data.draw(st.tuples(*[st.integers(0, top) for top in (1, 1, 2, 2, 1)])))
    orders, spans = np.zeros((2, size[0], 3 * size[1]), np.int32), []
    for compiled, program in zip((False, True), orders, strict=True):
        with using(compiled):
            zero_bubble_order.run(1, times, memory, rule, program)
            spans.append(zero_bubble_span.run(1, program, times))
    np.testing.assert_array_equal(*orders)
    assert [np.bincount(row, minlength=4)[[0, 2, 3]].tolist() for row in orders[0]] == [[size[1]] * 3] * size[0]
    assert spans[0] == spans[1]


@given(search=searches, held=st.sampled_from([0, 0.5, 1, 1.5, 13.25]), usual=st.integers(1, 2), data=st.data())
@settings(max_examples=100)
def test_no_order_is_below_the_lower_bounds(search, held, usual, data):
    """Every order tried takes at least the least span and makespan, and holds at least the least activations."""
    size, times = (search["pp"], search["microbatches"]), automatic._whole(search["times"])
    whole, kept = automatic._whole((1, held))
    memory = usual * size[0] * max(whole, kept), whole, kept
    weights, of_stages = (
        np.array(data.draw(st.lists(st.integers(1, 40), min_size=size[0], max_size=size[0]))) / scale
        for scale in (1, 8)
    )
    least = automatic.least_spans(size, times, memory)
    least_held = least_activations(as_case(f"zb-{usual}p"), size[1], weights, of_stages)
    for kind in automatic._candidates(size, np.array(times), memory, 1):
        assert all(np.array(zero_bubble_span.plain(kind, times)) >= least)
        order = automatic._in_order("zb", kind, held)
        assert (peak_activations(order, weights, of_stages) >= least_held - 1e-9).all()


@given(search=searches)
@settings(max_examples=20)
def test_the_span_is_that_of_the_engine(search):
    """The search times an order as the engine does with transfers that occupy nothing."""
    schedule = build("zb-2p", **search)
    kind = schedule.kind.reshape(schedule.num_ranks, -1)
    whole = automatic._whole(search["times"])
    scale = search["times"][0] / whole[0]
    span, makespan = zero_bubble_span.plain(kind, whole)
    timeline = timed(schedule, search["times"])
    computing = search["microbatches"] * sum(search["times"][:3])
    assert timeline.makespan_s == pytest.approx(makespan * scale)
    assert bubble_ratios(timeline).span == pytest.approx(1 - computing / (span * scale), abs=1e-12)


@pytest.mark.parametrize("times", [(1, 1, 1), (0, 1, 1, 0), (1, 1, 1, -1), (1, 1, float("nan"), 0), "1:1:1", (1,) * 5])
def test_times_are_four_numbers(times):
    """Anything but four numbers of which the first three are above 0 is refused."""
    with refused(ScheduleError, "times", "must be four numbers"):
        build("zb-1p", 2, 2, times=times)


def test_other_bad_options_are_refused():
    """A limit below 1, a share below 0, and times or shares that cannot be added up exactly are refused by name."""
    bad = [("limit", 0), ("held", -0.5), ("held", float("inf")), ("held", 1e300), ("times", (1e-9, 1e12, 1, 0))]
    for field, value in bad:
        with refused(ScheduleError, field):
            build("zb-2p", 2, 2, **{field: value})


def test_options_are_read_from_text():
    """Times and the share are read as whole or decimal numbers, a limit as a count; other text is refused."""
    options = {option.name: option for option in get("zb-1p").options}
    assert options["times"].checked("1:2:0.5:0") == (1, 2, 0.5, 0)
    assert options["held"].checked("0.5") == 0.5
    assert options["limit"].checked("6") == 6
    bad = [
        ("times", "1:2"), ("times", "1:x:1:0"), ("held", "-1"), ("held", "inf"), ("held", "nan"), ("limit", "0"),
        ("limit", "2S"),
    ]  # fmt: skip
    for name, text in bad:
        with pytest.raises(ValueError, match=r"must be|could not convert|invalid literal"):
            options[name].checked(text)


def test_pipemorphs_order_without_delays():
    """Warm-ups of ZB-H2, then a forward after each input gradient, and weight gradients where neither is there.

    The logs of PipeMorph's runs with transfers by host processes have this order (14B, 8 ranks, 24 microbatches).
    """
    table = build("zb-2p", 8, 24, delays=(0,))
    rows = ["".join(op.kind.name for (op,) in row) for row in table.rows()]
    assert rows[0] == 15 * "F" + 9 * "IF" + 15 * "IW" + 9 * "W"
    assert rows[6] == 3 * "F" + 21 * "IF" + 3 * "IW" + 21 * "W"
    assert rows[7] == 24 * "FI" + 24 * "W"


def test_pipemorphs_warm_up_covers_the_delay_of_each_link():
    """As many forwards more as fit into a link's delay; a slow link then costs less than with the order for none."""
    slow = build("zb-2p", 4, 24, times=(1, 1, 1, 0), delays=(0, 0, 6))
    assert warm_up(24, 1, (0, 0, 6)) == [13, 11, 9, 1]
    costs = {"forward": 1, "input_grad": 1, "weight_grad": 1, "links": "2-3:delay=6", "p2p": "latency"}
    of = lambda table: simulate(table, **costs).makespan_s  # noqa: E731
    assert of(slow) < of(build("zb-2p", 4, 24, delays=(0,))) < of(build("zb-2p", 4, 24))


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_pipemorphs_order_keeps_a_limit(limit):
    """No rank holds more microbatches, whatever the links take."""
    for delays in ((0,), (0, 7, 3)):
        assert peak_activations(build("zb-2p", 4, 8, delays=delays, limit=limit)).max() <= limit


def test_delays_are_those_of_the_links():
    """One for all of them, or one for each."""
    with refused(ScheduleError, "delays"):
        build("zb-2p", 4, 8, delays=(1, 2))
