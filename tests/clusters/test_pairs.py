"""Cells of two operations: their units on two streams, what a model's pairs take, and what both published ones took."""

import csv
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppmodel import Schedule, build
from ppmodel.clusters.costs import model_costs, stages
from ppmodel.clusters.costs.collectives import collective_line
from ppmodel.clusters.costs.layers import layers_of
from ppmodel.clusters.costs.pairs import operation_units
from ppmodel.clusters.costs.units import Unit, cell_duration, cell_streams, ready_shares
from ppmodel.clusters.specs import ExpertSpec, LayoutSpec, load_model, load_system
from ppmodel.metrics import computing_s
from ppmodel.metrics.bubbles import busy_s, operations_s
from ppmodel.ops import OpKind
from ppmodel.simulation import OpCosts, compile_graph, makespans, run_events, run_graph
from ppmodel.studies.points import PARTS

REFERENCE = Path(__file__).parents[2] / "data" / "reference"
FORWARD, BACKWARD = [Unit(2.0, 1.0)] * 2, [Unit(2.0, 1.0, 2.0)] * 2

units = st.builds(Unit, *[st.floats(0, 4) | st.just(0.0)] * 4)
counted = st.builds(Unit, *[st.integers(0, 64).map(lambda parts: parts / 16) | st.just(0.0)] * 4)
PAIRINGS = "alternating", "best"
orders = st.sampled_from(PAIRINGS)


def split(kind):
    return operation_units(BACKWARD, kind)


@pytest.mark.parametrize(
    ("second", "alone", "together", "slowed"),
    [
        ((), 6, 6, 6),  # each all-reduce waits for the product, and the next product for it
        (BACKWARD, 6 + 10, 12, 14),  # every all-reduce under a product: two of F, two of B
        (split(OpKind.I), 6 + 6, 9, 10.5),  # but the last of I
        (split(OpKind.W), 6 + 4, 8, 9),  # both of F under W
    ],
)
def test_one_layer_by_hand(second, alone, together, slowed):
    """Attention and MLP of one layer, 2 each and half as much for their all-reduce, with every kind of partner."""
    assert cell_duration(FORWARD) + cell_duration(second) == alone
    for order in PAIRINGS:
        assert cell_duration(FORWARD, second, order) == together
        assert cell_duration(FORWARD, second, order, contention=1.5) == slowed


def test_long_collectives_by_hand():
    """Where the network is slower than the products, the backward goes first; where contention wins nothing, all the
    same."""
    forward, backward = [Unit(1.0, 4.0), Unit(1.0, 0.0)], [Unit(1.0, 4.0, 1.0), Unit(1.0, 0.0, 1.0)]
    # computing: I 0-1, W 1-2, F 2-3, I 5-6, W 6-7, F 9-10; collectives: I 1-5, F 5-9
    assert cell_duration(forward, backward) == 10
    assert cell_duration(forward, backward, contention=2.0) == 14


def test_gathered_inputs_wait_for_nothing():
    """What a weight gradient gathers runs under what comes before, of either operation."""
    weights = [Unit(0.0, 0.0, 2.0, 1.0)] * 2
    assert cell_duration(weights) == 6
    assert cell_duration([Unit(2.0)], weights) == 6  # F 0-2 with the first gather, W, W with the second
    assert cell_duration([Unit(2.0)], weights, "best") == 6


def test_results_are_there_by_hand():
    """F 0-2, B 2-4, W 4-6, F 6-8, B 8-10, W 10-12, and each all-reduce of 1 right behind: at 9 and 11 of 12.

    At a contention of 1.5 the cell takes 14: F 7-9 and its all-reduce until 10.5, B 9-11.5 and its own until 13.
    """
    assert [12 * share for share in ready_shares(FORWARD, BACKWARD)] == pytest.approx([9, 11])
    assert [14 * share for share in ready_shares(FORWARD, BACKWARD, contention=1.5)] == pytest.approx([10.5, 13])
    assert ready_shares(FORWARD, split(OpKind.W)) == (pytest.approx(7 / 8), 1.0)
    assert ready_shares(FORWARD, ()) == (1.0, 1.0)


@given(st.lists(units, min_size=1, max_size=6), st.lists(units, min_size=1, max_size=6), orders, st.floats(1, 2))
def test_results_are_there_within_their_cell(first, second, order, contention):
    """Not before the work of their own chain, not after the end."""
    whole = cell_duration(first, second, order, contention)
    for share, own in zip(ready_shares(first, second, order, contention), (first, second), strict=True):
        chain = sum(unit.compute_s + unit.comm_s for unit in own)
        assert share <= 1
        assert share * whole >= chain - 1e-9 * whole or share == 1


@given(st.lists(units, max_size=6), st.lists(units, max_size=6), orders, st.floats(1, 2))
def test_a_cell_lies_between_either_stream_and_both(first, second, order, contention):
    """Never below what one stream has to do, never above the sum; more contention never helps, the best order never
    hurts."""
    both = np.array([*first, *second]).reshape(-1, 4).sum(axis=0)
    streams = both[[0, 2]].sum(), both[[1, 3]].sum()
    found = cell_duration(first, second, order, contention)
    assert max(streams) * (1 - 1e-9) <= found <= sum(streams) * (1 + 1e-9)
    assert found >= cell_duration(first, second, order) * (1 - 1e-9)
    assert cell_duration(first, second, "best", contention) <= found * (1 + 1e-9)


@settings(max_examples=60)
@given(st.lists(counted, max_size=5), st.lists(counted, max_size=5), orders, st.floats(1, 2))
def test_streams_are_the_walk_whose_end_is_the_duration(first, second, order, contention):
    """They end when the cell does; nothing overlaps on a stream; every piece is there once, no shorter than alone and
    no longer than contention makes it; a collective follows its kernels, and the next kernels follow it."""
    streams, end = cell_streams(first, second, order, contention), cell_duration(first, second, order, contention)
    assert streams.end_s == pytest.approx(end, rel=1e-9, abs=1e-12)
    for stream in streams:
        assert all(one.end_s <= after.start_s + 1e-9 for one, after in pairwise(stream))
    pieces = {(one.operation, one.unit, one.field): one for stream in streams for one in stream}
    operations = list(enumerate((first, second)))
    given = {
        (place, number, field): seconds
        for place, operation in operations
        for number, unit in enumerate(operation)
        for field, seconds in unit._asdict().items()
        if seconds
    }
    assert pieces.keys() == given.keys()
    slowest = contention if first and second else 1.0
    for key, one in pieces.items():
        assert given[key] - 1e-9 <= one.end_s - one.start_s <= given[key] * slowest + 1e-9
    for place, number, field in pieces:
        here = pieces[place, number, field]
        before = {"comm_s": (number, "compute_s"), "weight_s": (number, "weight_comm_s")}.get(field)
        before = (number - 1, "comm_s") if field == "compute_s" else before
        if before and (place, *before) in pieces:
            assert pieces[place, *before].end_s <= here.start_s + 1e-9


def two_streams(items, contention):
    """A cell by events: both streams step by step, each slower where both are busy."""
    now, queue, done, waiting = 0.0, [], {}, list(enumerate(items))
    last, running, beside = {}, None, None
    while waiting or running or queue or beside:
        if running is None and waiting and last.get(waiting[0][1][0]) in {None, *done}:
            number, (own, compute, comm) = waiting.pop(0)
            running = [number, own, compute, comm]
        if beside is None and queue:
            beside = queue.pop(0)
        pace = contention if running and beside else 1.0
        left = [one for one in (running and running[2], beside and beside[1]) if one is not None]
        step = min(left)
        now += step * pace
        if beside:
            beside[1] -= step
            if beside[1] <= 1e-12:
                done[beside[0]] = now
                beside = None
        if running:
            running[2] -= step
            if running[2] <= 1e-12:
                number, own, _, comm = running
                if comm:
                    queue.append([number, comm])
                    last[own] = number
                running = None
    return now, {own: done[number] for own, number in last.items()}


def merges(first, second):
    """All orders in which both lists keep theirs."""
    if not first or not second:
        return [[*first, *second]]
    return [[first[0], *rest] for rest in merges(first[1:], second)] + [
        [second[0], *rest] for rest in merges(first, second[1:])
    ]


seconds = st.integers(1, 8).map(lambda eighths: eighths / 8)
chains = st.lists(st.tuples(seconds, seconds), min_size=1, max_size=4)


@settings(max_examples=60)
@given(chains, chains, st.sampled_from([1.0, 1.25, 1.5, 2.0]))
def test_orders_are_those_of_a_search_over_all(first, second, contention):
    """The alternating order and the best of all, walked by events."""
    ours, theirs = ([(name, *one) for one in chain] for name, chain in (("F", first), ("I", second)))
    both = [[Unit(*one) for one in chain] for chain in (first, second)]
    walked = [two_streams(order, contention) for order in merges(ours, theirs)]
    shortest = min(seconds for seconds, _ in walked)
    assert cell_duration(*both, "best", contention) == pytest.approx(shortest)
    handed = [shortest * share for share in ready_shares(*both, "best", contention)]
    assert any(handed == pytest.approx([there["F"], there["I"]]) for end, there in walked if end <= shortest + 1e-9)
    short = min(len(ours), len(theirs))
    rest = [*ours[short:], *theirs[short:]]
    turns = [[one for pair in zip(*lists, strict=False) for one in pair] for lists in ((ours, theirs), (theirs, ours))]
    alternating = [two_streams([*turn, *rest], contention) for turn in turns]
    shortest = min(end for end, _ in alternating)
    assert cell_duration(*both, "alternating", contention) == pytest.approx(shortest)
    handed = [shortest * share for share in ready_shares(*both, "alternating", contention)]
    assert any(handed == pytest.approx([one["F"], one["I"]]) for end, one in alternating if end <= shortest + 1e-9)


def test_one_contention_meets_both_published_measurements():
    """A product and an all-reduce at once, of either size (STP, Table 11): within a hundredth at one factor."""
    with open(REFERENCE / "stp_overlap.csv", newline="") as lines:
        rows = list(csv.DictReader(lines))

    def misfit(factor):
        found = [_at_once(row, factor) / float(row["at_once_ms"]) - 1 for row in rows]
        return max(map(abs, found))

    factors = np.linspace(1, 2, 1001)
    misfits = [misfit(factor) for factor in factors]
    best = float(factors[np.argmin(misfits)])
    assert 1.15 < best < 1.19
    assert min(misfits) < 0.01 < misfit(1.0)  # without contention seven times as much
    assert len(rows) == 2


def _at_once(row, contention):
    product, collective = float(row["gemm_alone_ms"]), float(row["all_reduce_alone_ms"])
    return cell_duration([Unit(0.0, collective)], [Unit(product)], contention=contention)


@pytest.fixture(scope="module")
def llama():
    return load_model("llama3_70b")


PAIRED = ["stp", "dualpipe", "dualpipev", "combined-1f1b"]


@pytest.mark.parametrize("name", PAIRED)
def test_pairs_of_a_model_take_less_and_all_engines_agree(llama, name):
    """Between the kernels of both operations and their sum; the longest path, events and many systems at once agree."""
    table, layout = build(name, 4, 16), LayoutSpec(pp=4, tp=8)
    costs = model_costs(table, llama, load_system("h100"), layout=layout)
    kernels = {OpKind.F: (0,), OpKind.B: (1, 2), OpKind.I: (1,), OpKind.W: (2,)}
    for (one, first, other, second), factor in costs.pairs.items():
        both = costs.compute_s[one, first] + costs.compute_s[other, second]
        parts_s = costs.stages.parts_s
        least = parts_s[first, 0, 0] + sum(parts_s[second, phase, 0] for phase in kernels[OpKind(other)])
        assert least * (1 - 1e-9) <= factor * both < both
    graph = compile_graph(table)
    times = run_graph(graph, costs)
    assert run_events(graph, costs).makespan_s == pytest.approx(times.makespan_s, rel=1e-12)
    assert makespans(graph, [costs, replace(costs, pairs=None)])[0] == pytest.approx(times.makespan_s, rel=1e-12)
    assert busy_s(times).sum() == pytest.approx(operations_s(table, costs).sum(), rel=1e-12)
    assert computing_s(table, [costs]) == pytest.approx(operations_s(table, costs).sum(), rel=1e-12)


def test_without_collectives_there_is_nothing_to_win(llama):
    """No pairs without a layout, without a group, without cells of two, or where products hide all collectives."""
    system, table = load_system("h100"), build("dualpipev", 4, 8)
    assert model_costs(table, llama, system).pairs is None
    assert model_costs(table, llama, system, layout=LayoutSpec(pp=4)).pairs is None
    assert model_costs(build("1f1b", 4, 8), llama, system, layout=LayoutSpec(pp=4, tp=8)).pairs is None


@pytest.mark.parametrize("recompute", ["none", "selective", "full", 2])
@pytest.mark.parametrize("name", ["tensor", "sequence parallel", "experts", "everything"])
def test_units_hold_all_seconds_of_a_stage(llama, name, recompute):
    """The units of a pair sum to both operations: with contention 2, in which nothing is won, to the last digits.

    An operation that hides collectives of its own takes longer under contention, and no other.
    """
    mixture = replace(llama, experts=ExpertSpec(number=8, experts_per_token=2, shared=1, hidden=14336, dense_layers=3))
    model, layout = {
        "tensor": (llama, LayoutSpec(tp=8)),
        "sequence parallel": (llama, LayoutSpec(tp=8, sequence_parallel=True)),
        "experts": (mixture, LayoutSpec(tp=1, dp=8, ep=8)),
        "everything": (
            mixture,
            LayoutSpec(tp=2, dp=8, ep=8, cp=2, sequence_parallel=True, zero=3, overlap_tensor=True),
        ),
    }[name]
    table, layout, system = build("combined-1f1b", 2, 8), replace(layout, recompute=recompute), load_system("h100")
    plain = model_costs(table, model, system, layout=layout)
    slow = replace(system, collectives=replace(system.collectives, contention=2.0))
    nothing = model_costs(table, model, slow, layout=layout)
    assert (plain.compute_s <= nothing.compute_s).all()
    assert (plain.compute_s < nothing.compute_s).any() == (name == "everything")
    for key, factor in plain.pairs.items():
        assert factor < nothing.pairs[key] <= 1 + 1e-9


@pytest.mark.parametrize("contention", [1.0, 1.2])
def test_a_backward_alone_hides_its_collectives_as_its_two_streams_would(llama, contention):
    """With `overlap_backward` a block's backward takes what a walk over its units takes; its forward as long as ever,
    and a pair the same seconds."""
    system, layout = load_system("h100"), LayoutSpec(pp=4, tp=8, layers="even")
    system = replace(system, collectives=replace(system.collectives, contention=contention))
    table, hidden = build("dualpipev", 4, 8), replace(layout, overlap_backward=True)
    layers = layers_of(llama, 1, system, layout)
    block = layers.pair_times.units[[part for part, _ in layers.work.layers].index("block")]
    exposed, found = (stages(table, llama, system, layout=one)[1] for one in (layout, hidden))
    assert exposed.input_grad_s + exposed.weight_grad_s == pytest.approx(10 * cell_duration(block[1]))
    walked = cell_duration([Unit()], block[1], contention=contention)
    assert found.input_grad_s + found.weight_grad_s == pytest.approx(10 * walked)
    assert found.forward_s == exposed.forward_s
    first, second = (model_costs(table, llama, system, layout=one) for one in (layout, hidden))
    for key, factor in first.pairs.items():
        one, stage, other, beside = key
        both = [costs.compute_s[one, stage] + costs.compute_s[other, beside] for costs in (first, second)]
        assert both[1] * second.pairs[key] == pytest.approx(both[0] * factor)


@pytest.mark.parametrize("contention", [1.0, 1.2])
@pytest.mark.parametrize(("tp", "whole"), [(2, True), (8, False)])
def test_input_is_gathered_again_under_the_input_gradient_of_its_product(llama, tp, whole, contention):
    """With sequence parallelism a backward alone also hides what its weight gradients wait for, product by product: all
    of it if it is shorter than both products of a block, else a part."""
    system, layout = load_system("h100"), LayoutSpec(pp=4, tp=tp, layers="even", sequence_parallel=True)
    system = replace(system, collectives=replace(system.collectives, contention=contention))
    table = build("dualpipev", 4, 8)
    exposed, found = (
        stages(table, llama, system, layout=replace(layout, overlap_backward=hides))[1] for hides in (False, True)
    )
    latency, rate = collective_line("all-gather", "tensor", layout, system)
    gather = latency + rate * 2 * llama.sequence * llama.hidden
    columns = llama.hidden + 2 * llama.kv_heads * llama.head_size, 2 * llama.mlp_hidden
    least = 2 * llama.sequence * llama.hidden * min(columns) / tp / system.peak_compute_flops
    assert (gather < least) == whole
    share = (exposed.weight_grad_s - found.weight_grad_s) / (exposed.blocks * (2 - contention) * 2 * gather)
    assert share == pytest.approx(1) if whole else 0.5 < share < 0.95
    assert found.forward_s == exposed.forward_s


@pytest.mark.filterwarnings("ignore::ppmodel.studies.points.NoEffectWarning")
def test_parts_of_an_iteration_shrink_with_its_cells(llama):
    """Computing stays what it is, tensor parallelism exposes less by what the cells save, and all sums up."""
    import ppmodel as pp

    given = {"pp": 4, "microbatches": 16, "model": llama, "system": "h100", "layout": {"tp": 8, "layers": "even"}}
    pairs = pp.compare([pp.build("dualpipev", 4, 16), pp.build("dualpipev", 4, 16).unfused()], **given)
    joined, apart = (row for _, row in pairs.iterrows())
    assert joined["computing_s"] == pytest.approx(apart["computing_s"], rel=1e-9)
    assert joined["tensor_s"] < 0.6 * apart["tensor_s"]
    for row in (joined, apart):
        assert sum(row[name] for name in PARTS) == pytest.approx(row["iteration_s"], rel=1e-9)


def test_a_cell_of_three_is_no_pair():
    """Its factor is the constant alone; that of a pair, which stands before or behind its forward, is its own, too."""
    rows = [["0F0", "0I0&0F1", "0F2&0I1&0W0", "0W1", "0B2"]]
    table = Schedule.from_rows("by hand", rows)
    assert table.pairs.keys == [(0, 0, OpKind.I, 0)]
    costs = OpCosts(*np.ones((1, 6, 1)), *np.zeros((2, 6, 1)), overlap_factor=0.5, pairs={(0, 0, OpKind.I, 0): 0.25})
    times = run_graph(compile_graph(table), costs)
    assert (times.end_s - times.start_s).tolist() == [1, 0.25, 0.25, 1.5, 1.5, 1.5, 1, 1]
