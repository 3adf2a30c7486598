"""Interleaved 1F1B, looped BFS and interleaved ZB: orders, groups, closed forms met exactly."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from refusals import refused

from ppmodel import build, formulas
from ppmodel.errors import ScheduleError
from ppmodel.formulas.interleaved import group_size
from ppmodel.metrics import peak_activations, table_slots
from ppmodel.simulation import compile_graph, run_graph, uniform_costs

LOOPED = ("interleaved-1f1b", "looped-bfs", "interleaved-zb")
SIZES = list(product((1, 2, 3, 4, 6), (1, 2, 3, 4, 5, 6, 7, 12), (1, 2, 3)))


def in_rounds(stages, count):
    return count % max(1, count // stages) == 0


def program(schedule):
    """Kinds, stages and microbatches of every rank, in order."""
    return np.stack((schedule.kind, schedule.stage, schedule.microbatch)).tolist()


def test_one_chunk_is_the_schedule_without():
    """With one chunk interleaved 1F1B is 1F1B and interleaved ZB is ZB-H1."""
    for stages, count in ((1, 1), (4, 3), (4, 4), (4, 9)):
        assert program(build("interleaved-1f1b", stages, count, chunks=1)) == program(build("1f1b", stages, count))
    assert program(build("interleaved-zb", 4, 10, chunks=1)) == program(build("zb-h1", 4, 10))


def test_every_table_is_whole():
    """Every operation is there once and no rank waits forever, short last groups among them."""
    for name, (stages, count, chunks) in product(LOOPED, SIZES):
        if name != "interleaved-zb" or in_rounds(stages, count):
            build(name, stages, count, chunks=chunks).validate()


@pytest.mark.parametrize("stages", range(1, 9))
def test_groups_are_the_smallest_that_megatron_accepts(stages):
    """A group has S microbatches or more, and so has the last if it is short; PyTorch's where PyTorch has any."""
    for count in range(1, 60):
        group = group_size(stages, count)
        accepted = [n for n in range(stages, count + 1) if count % n == 0 or count % n >= stages]
        assert group == min(accepted, default=count)
        if in_rounds(stages, count):
            assert group == count // max(1, count // stages)


def test_a_group_goes_through_chunk_by_chunk():
    """The forwards of nine microbatches over four ranks: five of chunk 0, five of chunk 1, four, four."""
    schedule = build("interleaved-1f1b", 4, 9)
    first = [(op.stage // 4, op.microbatch) for row in schedule.rows()[:1] for (op,) in row if op.kind == 0]
    groups = [range(5), range(5, 9)]
    assert first == [(chunk, microbatch) for group in groups for chunk in (0, 1) for microbatch in group]


@pytest.mark.parametrize(("forward", "backward"), [(1, 1), (1, 2), (2, 1), (1, 3)])
def test_tables_have_their_closed_forms(forward, backward):
    """Makespan and bubble ratio of interleaved 1F1B and looped BFS, any F and Bw, also where B < S."""
    for stages, count, chunks in SIZES:
        whole = {"forward": chunks * forward, "backward": chunks * backward}
        slots = table_slots(build("looped-bfs", stages, count, chunks=chunks), forward=forward, backward=backward)
        assert slots == formulas.makespan_looped_bfs(stages, count, chunks, **whole)
        ratio = 1 - Fraction(chunks * count * (forward + backward), slots)
        assert ratio == formulas.bubble_ratio_interleaved(stages, count, chunks)
        interleaved = build("interleaved-1f1b", stages, count, chunks=chunks)
        assert table_slots(interleaved, forward=forward, backward=backward) == slots
        assert chunks == 1 or slots == formulas.makespan_interleaved(stages, count, chunks, **whole)


def test_the_ideal_ratio_is_the_published_one():
    """(S-1)/(vB) of the computing time, where S divides B."""
    for stages, rounds, chunks in product((1, 2, 4, 8), (1, 2, 4), (1, 2, 3)):
        ratio = formulas.bubble_ratio_interleaved(stages, rounds * stages, chunks)
        assert ratio / (1 - ratio) == Fraction(stages - 1, chunks * rounds * stages)


@pytest.mark.parametrize("p2p", ["latency", "overlapped"])
def test_makespans_with_communication(p2p):
    """Looped BFS at any size, interleaved 1F1B where S divides B, up to c = min(F, Bw)/v."""
    for (stages, count, chunks), (forward, backward), share in product(SIZES, [(1, 2), (3, 1)], (0.3, 1)):
        comm = share * min(forward, backward) / chunks
        expected = {"looped-bfs": formulas.makespan_looped_bfs}
        if chunks > 1 and count % stages == 0:
            expected["interleaved-1f1b"] = formulas.makespan_interleaved
        for name, formula in expected.items():
            schedule = build(name, stages, count, chunks=chunks)
            timeline = run_graph(compile_graph(schedule, p2p), uniform_costs(schedule, forward, backward, comm))
            assert timeline.makespan_s == pytest.approx(
                float(formula(stages, count, chunks, forward, backward, comm)), rel=1e-12
            )


def test_megatrons_order_exposes_more_than_is_counted():
    """S transfers more than the (2vS-S-2)c of Qi et al.: the 2(vS-1) hops of a microbatch, all of them."""
    for stages, chunks in product((2, 4, 8), (2, 3)):
        schedule = build("interleaved-1f1b", stages, 3 * stages, chunks=chunks)
        ends = [
            run_graph(compile_graph(schedule, "latency"), uniform_costs(schedule, 24, 48, comm)).makespan_s
            for comm in (0, 1)
        ]
        assert ends[1] - ends[0] == pytest.approx(2 * chunks * stages - stages - 2 + stages, rel=1e-9)


def test_peaks_have_their_closed_forms():
    """Peak activations by rank of all three; S + (S-1)/v on the first rank of interleaved 1F1B."""
    for stages, count, chunks in SIZES:
        peaks = {"looped-bfs": formulas.peak_activations_gpipe(stages, count)}
        if chunks > 1:
            peaks["interleaved-1f1b"] = formulas.peak_activations_interleaved(stages, count, chunks)
        if in_rounds(stages, count):
            peaks["interleaved-zb"] = formulas.peak_activations_interleaved_zb(stages, count, chunks)
        for name, expected in peaks.items():
            found = peak_activations(build(name, stages, count, chunks=chunks))
            assert found.tolist() == [float(peak) for peak in expected], name
    assert formulas.peak_activations_interleaved(8, 32, 4)[0] == 8 + Fraction(7, 4)


def test_interleaved_zb_has_its_closed_form():
    """Any F, I and W for B >= S: ZB-H1's bubble divided by the chunks."""
    for (stages, count, chunks), times in product(SIZES, [(1, 1, 1), (2, 2, 1), (1, 3, 1), (3, 1, 2), (1, 1, 3)]):
        if count < stages or not in_rounds(stages, count):
            continue
        forward, input_grad, weight_grad = times
        schedule = build("interleaved-zb", stages, count, chunks=chunks)
        slots = table_slots(schedule, forward=forward, input_grad=input_grad, weight_grad=weight_grad)
        whole = [chunks * time for time in times]
        assert slots == formulas.makespan_interleaved_zb(stages, count, chunks, *whole)
        if chunks == 1:
            assert slots == formulas.makespan_zb_h1(stages, count, *times)


def test_interleaved_zb_with_communication():
    """Where S divides B, W <= min(F, I) and c <= W/(2v)."""
    for (stages, count, chunks), times, share in product(SIZES, [(1, 1, 1), (3, 2, 1), (2, 3, 2)], (0.2, 0.5)):
        if count % stages:
            continue
        schedule, comm = build("interleaved-zb", stages, count, chunks=chunks), share * times[2] / chunks
        costs = uniform_costs(schedule, times[0], comm=comm, input_grad=times[1], weight_grad=times[2])
        expected = formulas.makespan_interleaved_zb(stages, count, chunks, *times, comm)
        makespan_s = run_graph(compile_graph(schedule, "latency"), costs).makespan_s
        assert makespan_s == pytest.approx(float(expected), rel=1e-12)


def test_interleaved_zb_needs_whole_rounds():
    """Nine microbatches make no two rounds over four ranks; the remedy names the most below that do."""
    with refused(ScheduleError, "microbatches", "multiple of the number of rounds", remedy="microbatches 8"):
        build("interleaved-zb", 4, 9)


@pytest.mark.parametrize("name", LOOPED)
@pytest.mark.parametrize(
    ("chunks", "field", "rule"),
    [(0, "chunks", "at least 1"), (1.5, "chunks", "at least 1"), (10**7, "pp x microbatches", "at most")],
)
def test_illegal_chunks_are_refused(name, chunks, field, rule):
    """A positive whole number, and a table of a size that can be held."""
    with refused(ScheduleError, field, rule):
        build(name, 4, 8, chunks=chunks)
