"""ZB-H1 and ZB-H2: orders as published, closed forms met exactly, the published bubble rates to their last digit."""

import csv
from fractions import Fraction
from itertools import pairwise, product

import pytest
from refusals import refused

from ppmodel import OpKind, build, formulas
from ppmodel.clusters.specs import DATA
from ppmodel.errors import ScheduleError
from ppmodel.metrics import bubble_ratios, peak_activations, table_slots
from ppmodel.simulation import compile_graph, run_graph, uniform_costs

TIMES = list(product((1, 2, 3, 5), repeat=3))
SIZES = {
    "zb-h1": [(s, b) for s in (1, 2, 3, 4, 6) for b in sorted({s, s + 1, 2 * s - 1, 2 * s, 3 * s + 1})],
    "zb-h2": [(s, b) for s in (1, 2, 3, 4, 6) for b in sorted({2 * s - 1, 2 * s, 3 * s + 1})],
}
MAKESPAN = {"zb-h1": formulas.makespan_zb_h1, "zb-h2": formulas.makespan_zb_h2}
SPAN = {"zb-h1": formulas.span_zb_h1, "zb-h2": formulas.span_zb_h2}


def longest_span(schedule, start, end):
    """Longest time from a rank's first operation to its last."""
    return max(int(end[first:last].max() - start[first:last].min()) for first, last in pairwise(schedule.rank_start))


def simulated(schedule, times, comm=0.0, p2p="latency"):
    forward, input_grad, weight_grad = times
    costs = uniform_costs(schedule, forward, comm=comm, input_grad=input_grad, weight_grad=weight_grad)
    return run_graph(compile_graph(schedule, p2p), costs)


def span_of(timeline, work):
    return work / (1 - bubble_ratios(timeline).span)


def letters(schedule, rank):
    first, last = schedule.rank_start[rank : rank + 2]
    pairs = zip(schedule.kind[first:last], schedule.microbatch[first:last], strict=True)
    return " ".join(f"{OpKind(kind).name}{number + 1}" for kind, number in pairs)


@pytest.mark.parametrize(
    ("name", "rank", "order"),
    [
        ("zb-h1", 0, "F1 F2 F3 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 F8 I5 W5 I6 W6 I7 W7 I8 W8"),
        ("zb-h1", 3, "F1 I1 F2 I2 F3 I3 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 F8 I8 W5 W6 W7 W8"),
        ("zb-h2", 0, "F1 F2 F3 F4 F5 F6 F7 I1 W1 F8 I2 W2 I3 W3 I4 W4 I5 W5 I6 W6 I7 W7 I8 W8"),
        ("zb-h2", 3, "F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 F7 I7 W1 F8 I8 W2 W3 W4 W5 W6 W7 W8"),
    ],
)
def test_the_first_and_the_last_rank_are_as_drawn(name, rank, order):
    """Qi et al., 2024, Figure 3: four ranks, eight microbatches counted from 1, their B our I."""
    assert letters(build(name, 4, 8), rank) == order


@pytest.mark.parametrize(("name", "twice"), [("zb-h1", 1), ("zb-h2", 2)])
def test_warm_up_and_delay(name, twice):
    """Device d warms up with S-1-d forwards and delays W by d input gradients; ZB-H2 doubles both."""
    schedule = build(name, 5, 13)
    for rank in range(5):
        order = letters(schedule, rank)
        assert order[: order.index("I")].count("F") == twice * (4 - rank) + 1
        assert order[: order.index("W")].count("I") == twice * rank + 1
        assert order.split("I13")[1].count("W") == twice * rank + 1


@pytest.mark.parametrize("name", SIZES)
def test_tables_have_their_closed_forms(name):
    """Makespan and longest span of the table are the closed forms for any F, I and W, whatever is longest."""
    for size, (forward, input_grad, weight_grad) in product(SIZES[name], TIMES):
        schedule = build(name, *size)
        start, end = schedule.slots(forward=forward, input_grad=input_grad, weight_grad=weight_grad)
        assert end.max() == MAKESPAN[name](*size, forward, input_grad, weight_grad)
        assert longest_span(schedule, start, end) == SPAN[name](*size, forward, input_grad, weight_grad)


@pytest.mark.parametrize("p2p", ["latency", "overlapped"])
@pytest.mark.parametrize("name", SIZES)
def test_simulations_have_their_closed_forms(name, p2p):
    """With transfers that occupy no rank the same, where W <= min(F, I) and c <= W/2."""
    for size, times, share in product(SIZES[name], TIMES[::5] + [(4, 3, 2)], (0, 0.25, 0.5)):
        if times[2] > min(times):
            continue
        comm = share * times[2]
        timeline = simulated(build(name, *size), times, comm, p2p)
        assert timeline.makespan_s == pytest.approx(MAKESPAN[name](*size, *times, comm), rel=1e-12)
        assert span_of(timeline, size[1] * sum(times)) == pytest.approx(SPAN[name](*size, *times, comm), rel=1e-12)


@pytest.mark.parametrize("name", SIZES)
def test_other_terms_of_the_maximum_hold_with_transfers(name):
    """Where W is longer than F or I the other terms are exact too, for B > S, c <= W/2 and in ZB-H2 c <= F/2."""
    for size, times in product(SIZES[name], [(2, 3, 4), (4, 2, 3), (2, 8, 4), (8, 2, 4), (2, 2, 8)]):
        if size[1] == size[0]:
            continue
        timeline = simulated(build(name, *size), times, 1.0)
        assert timeline.makespan_s == pytest.approx(MAKESPAN[name](*size, *times, 1.0), rel=1e-12)
        assert span_of(timeline, size[1] * sum(times)) == pytest.approx(SPAN[name](*size, *times, 1.0), rel=1e-12)


def test_published_bubbles_hold_where_the_weight_gradient_is_short():
    """(S-1)(F+I-W) of the makespan and (S-1)(F+I-2W) of the span; a long W takes neither below max(F, I) nor 0."""
    computing, stages, count = 12 * 5, 4, 12
    assert table_slots(build("zb-h1", stages, count), forward=2, input_grad=2, weight_grad=1) - computing == 3 * 3
    assert formulas.span_zb_h2(stages, count, 2, 2, 1) - computing == 3 * 2
    long = {"forward": 2, "input_grad": 1, "weight_grad": 4}
    assert table_slots(build("zb-h1", stages, count), **long) - count * 7 == 3 * 2 > 3 * (2 + 1 - 4)
    assert formulas.span_zb_h2(stages, count, 2, 1, 4) == count * 7


def test_bubble_ratios_if_all_are_equal():
    """(S-1)/(3B+S-1) of the total for both, though ZB-H2 has no bubble of the span; not a third of 1F1B's ratio."""
    for name, formula in (("zb-h1", formulas.bubble_ratio_zb_h1), ("zb-h2", formulas.bubble_ratio_zb_h2)):
        for stages, count in SIZES[name]:
            slots = table_slots(build(name, stages, count))
            ratio = 1 - Fraction(3 * count, slots)
            assert ratio == formula(stages, count) == Fraction(stages - 1, 3 * count + stages - 1)
            assert stages == 1 or ratio > formulas.bubble_ratio_1f1b(stages, count) / 3
            assert Fraction(slots, 3 * count) - 1 == formulas.bubble_ratio_ideal(stages, count) / 3
    assert bubble_ratios(simulated(build("zb-h2", 4, 12), (1, 1, 1))).span == pytest.approx(0, abs=1e-12)


def test_peaks_are_even():
    """S microbatches on every rank of ZB-H1, 2S-1 of ZB-H2, if activations stay until W."""
    for stages, count in SIZES["zb-h1"]:
        assert peak_activations(build("zb-h1", stages, count)).tolist() == formulas.peak_activations_zb_h1(stages)
    for stages, count in SIZES["zb-h2"]:
        assert peak_activations(build("zb-h2", stages, count)).tolist() == formulas.peak_activations_zb_h2(stages)


@pytest.mark.parametrize(("name", "least"), [("zb-h1", 4), ("zb-h2", 7)])
def test_too_few_microbatches_are_refused(name, least):
    """ZB-H1 needs S microbatches, ZB-H2 2S-1."""
    build(name, 4, least)
    with refused(ScheduleError, "microbatches", f"at least {least} for {name}"):
        build(name, 4, least - 1)


with (DATA / "reference" / "zero_bubble_bubble_rates.csv").open(newline="") as file:
    RATES = [(row, column) for row in csv.DictReader(file) for column in ("1f1b", "zb_h1", "zb_h2")]


@pytest.mark.parametrize(("row", "column"), RATES, ids=lambda part: part if isinstance(part, str) else part["model"])
def test_published_bubble_rates(row, column):
    """The bubble rates of Qi et al., 2024, are ours to four digits: over the span, transfers that occupy nothing."""
    times = [float(row[f"t_{half}_ms"]) for half in ("forward", "input_grad", "weight_grad")]
    schedule = build(column.replace("_", "-"), int(row["devices"]), int(row["microbatches"]))
    rate = bubble_ratios(simulated(schedule, times, float(row["t_comm_ms"]))).span
    assert f"{rate:.4f}" == row[column]
