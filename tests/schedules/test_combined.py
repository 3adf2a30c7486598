"""Combined 1F1B: interleaved 1F1B in pairs, complete and as long as its closed forms."""

from itertools import product

import pytest
from refusals import refused

from ppmodel import build, formulas
from ppmodel.errors import ScheduleError
from ppmodel.metrics import exposed_passes, peak_activations, table_slots
from ppmodel.ops import OpKind
from ppmodel.simulation import compile_graph, run_graph, uniform_costs

SIZES = [*product(range(1, 7), range(1, 20), (2, 3, 4)), *product([1], range(1, 20), [1])]
TIMES = ((1, 2, 3), (1, 2, 2), (1, 2, 2.5), (1, 1, 1), (2, 1, 2), (3, 1, 3.5))


def test_every_size_is_complete_and_has_its_closed_forms():
    """Length, where pairs take the sum of their parts, and peaks; few microbatches and short last groups among them."""
    for ranks, count, chunks in SIZES:
        schedule = build("combined-1f1b", ranks, count, chunks=chunks)
        schedule.slots()  # refuses what waits in a circle
        makespan = formulas.makespan_combined_1f1b(ranks, count, chunks)
        assert makespan == formulas.makespan_interleaved(ranks, count, chunks)
        assert table_slots(schedule) == makespan * chunks
        peaks = formulas.peak_activations_combined_1f1b(ranks, count, chunks)
        assert (peak_activations(schedule) * chunks).tolist() == [peak * chunks for peak in peaks]


@pytest.mark.parametrize("times", TIMES)
def test_makespans_hold_for_any_pair(times):
    """The general form is exact, however much of the shorter operation a pair hides."""
    for ranks, count, chunks in SIZES[::7]:
        schedule = build("combined-1f1b", ranks, count, chunks=chunks)
        makespan = formulas.makespan_combined_1f1b(ranks, count, chunks, *times)
        run = run_graph(compile_graph(schedule), uniform_costs(schedule, *times[:2], pair=times[2]))
        assert run.makespan_s == pytest.approx(float(makespan), rel=1e-12)


def test_it_is_interleaved_1f1b_with_one_forward_more_ahead():
    """Forwards and backwards have the interleaved order; alone run those up to and in interleaved 1F1B's first pair."""
    for ranks, count, chunks in ((4, 8, 2), (3, 9, 3), (4, 13, 2), (2, 2, 2)):
        combined = build("combined-1f1b", ranks, count, chunks=chunks).rows()
        interleaved = build("interleaved-1f1b", ranks, count, chunks=chunks).rows()
        for row, other in zip(combined, interleaved, strict=True):
            ops, others = [op for cell in row for op in cell], [op for (op,) in other]
            for kind in (OpKind.F, OpKind.B):
                assert [op for op in ops if op.kind == kind] == [op for op in others if op.kind == kind]
            alone = [cell[0].kind for cell in row if len(cell) == 1]
            assert alone.count(OpKind.F) == [op.kind for op in others].index(OpKind.B)  # there with its first pair


def test_cells_are_a_forward_and_a_backward_that_do_not_need_each_other():
    """Never of one microbatch on one stage; forwards of the warm-up and backwards of the cool-down are alone."""
    for ranks, count, chunks in SIZES[::5]:
        for row in build("combined-1f1b", ranks, count, chunks=chunks).rows():
            kinds = ["".join(op.kind.name for op in cell) for cell in row]
            assert kinds == sorted(kinds, key=["F", "FB", "B"].index)
            assert all(cell[0][1:] != cell[1][1:] for cell in row if len(cell) == 2)


def test_the_warm_up_alone_exposes_its_collectives():
    """2(S-1-d) + (v-1)N + 1 forwards on rank d."""
    assert exposed_passes(build("combined-1f1b", 4, 8)).tolist() == [11, 9, 7, 5]
    assert exposed_passes(build("combined-1f1b", 4, 13, chunks=3)).tolist() == [6 + 14 + 1, 4 + 14 + 1, 2 + 14 + 1, 15]


def test_one_chunk_is_refused_beside_a_pipeline():
    """Megatron-LM has no pipeline of this kind without chunks; one rank needs none."""
    with refused(ScheduleError, "chunks", "at least 2"):
        build("combined-1f1b", 4, 8, chunks=1)
