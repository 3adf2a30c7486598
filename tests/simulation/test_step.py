"""Reductions and optimizer steps: how an iteration ends."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from strategies import allreduces, cases, p2ps, random_cases, schedules, tables
from twin import order_of, queue_times

import ppmodel as pp
from ppmodel import OpKind, build
from ppmodel.errors import CostError, TableError
from ppmodel.loops.compiled import using
from ppmodel.metrics import bubble_ratios, critical_path, idle_ratio, peak_activations, table_bubble_ratio
from ppmodel.metrics.bubbles import busy_s
from ppmodel.simulation import OpCosts, compile_graph, iterations, run_graph, uniform_costs
from ppmodel.studies.points import evaluate
from ppmodel.tables import parse_table, write_table

any_case = cases(max_stages=4, max_microbatches=6) | random_cases()
NOT_ENDED = any_case.filter(lambda case: not len(case[0].steps))


@given(schedules(max_stages=4, max_microbatches=6))
def test_every_stage_is_reduced_and_stepped_once(schedule):
    """Behind what the table had, each rank sums the gradients of its stages in the order in which they are finished."""
    ended = schedule.with_step()
    ended.validate()
    assert ended.with_step() is ended
    kept = np.flatnonzero(ended.computes | (schedule.reduces & (ended.kind == OpKind.R)))
    for name in ("kind", "stage", "microbatch", "replica", "joined"):
        np.testing.assert_array_equal(getattr(ended, name)[kept], getattr(schedule, name))
    source = ended.dependencies.source
    for rank in range(ended.num_ranks):
        here = ended.rank == rank
        steps = np.flatnonzero(here & (ended.kind == OpKind.O))
        assert steps[-1] == ended.rank_start[rank + 1] - 1
        assert (np.diff(source[source[steps]]) > 0).all()
        assert (ended.kind[source[steps]] == OpKind.R).all()
        if not schedule.reduces:
            assert (np.diff(source[steps]) == 1).all()


@given(schedules(max_stages=4, max_microbatches=6), st.sampled_from(["text", "csv"]))
def test_tables_with_steps_are_read_as_they_are_written(schedule, form):
    """Our own form holds reductions and steps; PyTorch's says that it does not."""
    ended = schedule.with_step()
    read = parse_table(write_table(ended, form))
    assert read.rows() == ended.rows()
    with refused(TableError, "schedule", "PyTorch's format"):
        write_table(ended, "pytorch")


@given(schedules(max_stages=4, max_microbatches=6))
def test_steps_take_no_part_in_ideal_bubbles_and_memory(schedule):
    """The idealised table has the same length, and its ranks hold as much; a step takes slots only if asked to."""
    ended = schedule.with_step()
    assert table_bubble_ratio(ended) == table_bubble_ratio(schedule)
    np.testing.assert_array_equal(peak_activations(ended), peak_activations(schedule))
    per_rank = np.bincount(ended.rank[ended.steps]).max()
    length = {kept: ended.slots(reduction=0, optimizer=kept)[1].max() for kept in (0, 3)}
    assert length[3] == length[0] + 3 * per_rank


@given(NOT_ENDED, p2ps)
def test_without_reductions_an_iteration_is_its_pipeline_and_its_steps(case, p2p):
    """Every other operation keeps its times to the bit, and so do the bubble ratios; the steps follow."""
    schedule, costs = case
    bare = run_graph(compile_graph(schedule, p2p), costs)
    ended = schedule.with_step()
    run = run_graph(compile_graph(ended, p2p), costs)
    computing = schedule.computes
    for column in ("start_s", "end_s", "sent_s", "arrived_s"):
        own = getattr(run, column)[ended.computes]
        np.testing.assert_array_equal(own, getattr(bare, column)[computing])
    assert (bubble_ratios(run), idle_ratio(run)) == (bubble_ratios(bare), idle_ratio(bare))
    (one,), (other,) = (evaluate(compile_graph(table, p2p), [costs]) for table in (schedule, ended))
    assert {**one, "makespan_s": 0} == pytest.approx({**other, "makespan_s": 0}, rel=0, abs=0, nan_ok=True)
    step_s = [costs.compute_s[OpKind.O][ended.stage[ended.steps[ended.rank[ended.steps] == d]]].sum()
              for d in range(ended.num_ranks)]  # fmt: skip
    assert run.makespan_s == pytest.approx(bare.makespan_s + max(step_s), abs=1e-12)


@given(any_case, p2ps, allreduces)
def test_no_step_begins_before_all_else_has_ended(case, p2p, allreduce):
    """The first step of each rank begins when the last operation of any rank has ended, and none waits in between."""
    schedule, costs = case
    run = run_graph(compile_graph(schedule, p2p, allreduce), costs)
    steps = schedule.kind == OpKind.O
    assert run.reduced_s == np.nanmax(run.end_s[~steps])
    for rank in range(schedule.num_ranks):
        own = np.flatnonzero(steps & (schedule.rank == rank))
        np.testing.assert_array_equal(run.start_s[own], [run.reduced_s, *run.end_s[own[:-1]]][: len(own)])


@given(any_case, p2ps, allreduces)
def test_parts_of_many_iterations_are_those_of_each(case, p2p, allreduce):
    """Makespans, ends of reductions and spans of a batch are those of single timelines."""
    schedule, costs = case
    graph = compile_graph(schedule, p2p, allreduce)
    many = [costs, replace(costs, compute_s=2 * costs.compute_s), replace(costs, overlap_factor=0.5)]
    found = iterations(graph, many)
    for place, one in enumerate(many):
        run = run_graph(graph, one)
        expected = run.makespan_s, run.reduced_s, run.longest_span_s
        for times, value in zip(found, expected, strict=True):
            np.testing.assert_array_equal(times[place], value)


@pytest.mark.parametrize("allreduce", ["overlapped", "blocking"])
def test_reductions_beyond_the_table_run_beside_the_backwards_or_behind_them(allreduce):
    """Two stages on a rank, 1 forward, 2 backward, 3 a reduction, 1 a step: the first reduction hides or does not."""
    table = build("interleaved-1f1b", 1, 1, chunks=2).with_step()
    costs = OpCosts(np.array([[1.0], [2], [1], [1], [3], [1]]) * [1, 1], *np.zeros((2, 6, 2)))
    run = run_graph(compile_graph(table, allreduce=allreduce), costs)
    ends = {str(table.op(op)): float(run.end_s[op]) for op in range(table.num_operations)}
    reduced = {"overlapped": {"1R": 7, "0R": 10}, "blocking": {"1R": 9, "0R": 12}}[allreduce]
    begin = reduced["0R"]
    assert ends == {"0F0": 1, "1F0": 2, "1B0": 4, "0B0": 6, **reduced, "1O": begin + 1, "0O": begin + 2}
    path = [str(table.op(op)) for op in critical_path(run)]
    shown = {"overlapped": "0F0 1F0 1B0 1R 0R 1O 0O", "blocking": "0F0 1F0 1B0 0B0 1R 0R 1O 0O"}
    assert path == shown[allreduce].split()
    assert busy_s(run).tolist() == [6]


def test_seconds_price_steps():
    """A run and a row say what its steps take; without any, seconds for them have no effect and are refused."""
    seconds = {"forward": 1, "backward": 2, "optimizer": 0.5}
    table = build("1f1b", 4, 8)
    assert pp.simulate(table.with_step(), **seconds).makespan_s == 33.5
    frame = pp.compare([table, table.with_step()], **seconds)
    assert frame.makespan_s.tolist() == [33, 33.5]
    assert frame.idle_ratio.nunique() == 1
    with refused(CostError, "optimizer", "has no effect: 1f1b has", value="0.5"):
        pp.simulate(table, **seconds)
    with refused(CostError, "reduction", "is missing"):
        pp.simulate(table.with_step(), allreduce="blocking", **seconds)


def test_a_slow_rank_is_slow_in_its_steps():
    """Noise slows the steps of a rank, and no reduction."""
    table = build("gpipe", 2, 1).with_step()
    costs = uniform_costs(table, 1, 2, reduction=4, optimizer=1)
    from ppmodel.studies.noise import Noise, noisy_makespans

    spans = noisy_makespans(compile_graph(table, allreduce="blocking"), costs, Noise(slowdown=2, slow_ranks=(1,)), [0])
    assert spans.tolist() == [1 + 2 * 3 + 2 + 4 + 2 * 1]


@st.composite
def reducing_cases(draw):
    """A table with reductions, costs without ties, and NICs that ranks share or none."""
    schedule = draw(schedules(max_stages=4, max_microbatches=6) | tables()).with_step()
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    costs = OpCosts(*random.uniform(0.1, 2, (3, 6, schedule.num_stages)), overlap_factor=0.8)
    nics = [None, tuple(range(schedule.num_ranks)), tuple(random.integers(0, 2, schedule.num_ranks).tolist())]
    return schedule, replace(costs, nics=draw(st.sampled_from(nics)))


@settings(max_examples=200)
@given(reducing_cases())
def test_reductions_that_hold_links_end_when_the_twin_says(case):
    """The event queue, plain and compiled, and a simulator that knows only rows and places."""
    schedule, costs = case
    graph = compile_graph(schedule, "overlapped", "overlapped_links")
    ends = queue_times(schedule, costs, order_of(graph), "overlapped_links")[0]
    expected = [ends[schedule.op(index)] for index in range(schedule.num_operations)]
    for compiled in (False, True):
        with using(compiled):
            run = run_graph(graph, costs)
        np.testing.assert_allclose(run.end_s, expected, rtol=0, atol=1e-9)
        assert run.makespan_s == max(run.end_s)


@given(reducing_cases())
def test_messages_and_reductions_of_a_rank_never_leave_at_once(case):
    """While a reduction runs no link of its ranks, and no NIC, sends; without NICs each waits only for the other."""
    schedule, costs = case
    graph = compile_graph(schedule, "overlapped", "overlapped_links")
    run = run_graph(graph, costs)
    occupied = costs.by_class(schedule.num_replicas)[1][schedule.cost_class]
    for op in np.flatnonzero(~np.isnan(run.sent_s)):
        for sums in np.flatnonzero((schedule.kind == OpKind.R) & (schedule.rank == schedule.rank[op])):
            message = run.sent_s[op], run.sent_s[op] + occupied[op]
            assert message[1] <= run.start_s[sums] + 1e-9 or run.end_s[sums] <= message[0] + 1e-9


@given(any_case, p2ps.filter(lambda p2p: not p2p.startswith("overlapped")))
def test_where_no_link_is_held_reductions_hold_none(case, p2p):
    """Under other semantics of transfers a reduction that would hold links runs beside the computation."""
    schedule, costs = case
    one, other = (run_graph(compile_graph(schedule, p2p, how), costs) for how in ("overlapped", "overlapped_links"))
    np.testing.assert_array_equal(one.end_s, other.end_s)


def test_a_reduction_waits_for_the_message_that_came_first():
    """The gradient that a stage sends goes before the sum of the stage's own gradients."""
    rows = ["0F0 2F0 2B0 2R 0B0 0R 0O 2O", "1F0 1B0 1R 1O"]
    table = parse_table("\n".join(rows))
    compute_s = np.array([[1.0], [2], [1], [1], [4], [0]]) * [1, 1, 1]
    costs = OpCosts(compute_s, np.ones((6, 3)), np.zeros((6, 3)))
    ends = {}
    for how in ("overlapped", "overlapped_links"):
        run = run_graph(compile_graph(table, "overlapped", how), costs)
        ends[how] = {str(table.op(op)): float(run.end_s[op]) for op in range(table.num_operations)}
    # 2B0 ends at 7; its gradient leaves at once, and is there at 8, when 2R may hold the link from rank 0 to rank 1
    assert (ends["overlapped"]["2R"], ends["overlapped_links"]["2R"]) == (11, 12)
    # 1B0 ends at 10, and its gradient crosses until 11 before the sum of stage 1 holds its link
    assert (ends["overlapped"]["1R"], ends["overlapped_links"]["1R"]) == (14, 15)
    assert {ends[how]["0B0"] for how in ends} == {13}
