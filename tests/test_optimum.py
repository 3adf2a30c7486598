"""Bounds that no schedule beats, and optima that a solver proves."""

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from strategies import schedules

from ppmodel import Op, OpKind, Schedule, build
from ppmodel.errors import ScheduleError, TableError
from ppmodel.metrics import peak_activations
from ppmodel.optimum import (
    OBJECTIVES,
    Bounds,
    Problem,
    answers,
    bounds,
    is_whole,
    peak_of,
    problem_of,
    solve,
    solver,
    time_of,
)
from ppmodel.plot import plot_losses
from ppmodel.studies import LOSSES, distance_facts, distance_findings, distance_study, distances
from ppmodel.studies.optimum import STEPS

lengths = st.sampled_from([1, 2, Fraction(1, 2)])
times = st.fixed_dictionaries(
    {"forward": lengths, "input_grad": lengths, "weight_grad": lengths, "comm": st.sampled_from([0, 1, Fraction(1, 4)])}
)
SMALL_PROBLEMS = [
    (placement, num_microbatches, limit)
    for placement, num_microbatches, limits in (
        ([[0, 1, 2]], 4, (None, 1, 2, 3)),
        ([[0, 1, 1, 0]], 2, (None, 1, Fraction(3, 2))),
        ([[0, 1, 1, 0]], 3, (None, 1)),
        ([[0, 1], [1, 0]], 2, (None, 1)),
    )
    for limit in limits
]
"""Devices of each copy's stages, microbatches, and activations that fit."""


@given(schedule=schedules(max_stages=5, max_microbatches=10), times=times, objective=st.sampled_from(OBJECTIVES))
@settings(max_examples=300)
def test_no_schedule_beats_a_bound(schedule, times, objective):
    """Whatever the times, every registered schedule takes at least each bound, under its own peak as the limit."""
    assume(schedule.microbatch_parts == 1 and not np.ptp(schedule.stage_shares))
    problem = problem_of(schedule, **times, limit=peak_of(schedule), split=not is_whole(schedule))
    assert max(bounds(problem, objective)) <= time_of(schedule, problem, objective) + 1e-9


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(("placement", "num_microbatches", "limit"), SMALL_PROBLEMS, ids=str)
def test_optima_do_not_lean_on_the_bounds(monkeypatch, placement, num_microbatches, limit, split, objective):
    """Without them the solver finds the same optimum; it is no lower than they are, and its table is whole."""
    problem = Problem(placement, num_microbatches, 2, 1, 1, Fraction(1, 2), limit, split)
    found = solve(problem, objective, work=3)
    assert found.proven
    assert bounds(problem, objective).best <= found.time == found.bound
    found.schedule.validate()
    assert time_of(found.schedule, problem, objective) == found.time
    assert limit is None or peak_activations(found.schedule).max() <= limit
    monkeypatch.setattr(solver, "bounds", lambda *_: Bounds(*[Fraction(0)] * 3))
    assert solve(problem, objective, work=3).time == found.time


def every_order(split, num_microbatches):
    """Every order of one stage's operations in which each microbatch goes forward, then backward."""
    kinds = (OpKind.F, OpKind.I, OpKind.W) if split else (OpKind.F, OpKind.B)
    operations = [(kind, number) for number in range(num_microbatches) for kind in kinds]
    for order in permutations(operations):
        if all([kind for kind, of in order if of == number] == list(kinds) for number in range(num_microbatches)):
            yield order


def every_table(split, num_microbatches):
    """Every table of two ranks that does not deadlock."""
    for orders in product(every_order(split, num_microbatches), repeat=2):
        rows = [[Op(kind, stage, number) for kind, number in order] for stage, order in enumerate(orders)]
        with suppress(TableError):
            yield Schedule.from_rows("any", rows)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("limit", [1, 2])
def test_the_optimum_is_the_best_of_all_tables(limit, split):
    """Trying every order of two ranks, microbatches out of turn among them, finds nothing faster."""
    problem = Problem([[0, 1]], 2, 3, 2, 1, Fraction(1, 2), limit, split)
    fitting = [table for table in every_table(split, 2) if peak_activations(table).max() <= limit]
    for objective in OBJECTIVES:
        assert solve(problem, objective).time == min(time_of(table, problem, objective) for table in fitting)


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 3), (3, 5), (4, 8)])
def test_known_optima(stages, microbatches):
    """No transfers: with whole backwards GPipe and 1F1B are optimal, with halves they are not, and ZB-1p is."""
    linear = [list(range(stages))]
    whole, halves = (Problem(linear, microbatches, limit=stages, split=split) for split in (False, True))
    assert solve(whole).time == (microbatches + stages - 1) * 3 == time_of(build("1f1b", stages, microbatches), whole)
    assert solve(halves).time == 3 * microbatches + stages - 1
    assert time_of(build("zb-1p", stages, microbatches), halves) == 3 * microbatches + stages - 1


def test_memory_costs_time():
    """With room for one microbatch they run one after the other, whatever else is free."""
    found = solve(Problem([[0, 1, 2]], 3, limit=1, split=False))
    assert found.time == 3 * 9 == found.bound


def test_the_same_table_every_time():
    """Two runs of the solver find the same table."""
    problem = Problem([[0, 1, 2]], 5, comm=Fraction(1, 4), limit=4)
    one, other = (solve(problem).schedule for _ in range(2))
    assert one.rows() == other.rows()


def test_a_hint_is_never_lost():
    """Cut short at once, the solver still has a table as fast as the hint, and says that nothing is proven."""
    hint = build("chimera", 4, 8)
    problem = problem_of(hint, comm=Fraction(1, 2), limit=4)
    found = solve(problem, hint=hint, work=0.05)
    assert not found.proven
    assert bounds(problem).best <= found.bound < found.time <= time_of(hint, problem)


@given(schedule=schedules(max_stages=5, max_microbatches=10))
def test_a_schedule_answers_its_own_problem(schedule):
    """With its own peak as the limit, to the last stage; with one stage less, or more freedom than allowed, not."""
    assume(schedule.microbatch_parts == 1 and not np.ptp(schedule.stage_shares))
    peak, whole = peak_of(schedule), is_whole(schedule)
    assert float(peak) == pytest.approx(peak_activations(schedule).max())
    problem = problem_of(schedule, limit=peak, split=not whole)
    assert answers(schedule, problem)
    assert answers(schedule, replace(problem, split=True))
    assert answers(schedule, replace(problem, split=False)) == whole
    with suppress(ScheduleError):  # not one microbatch would fit
        assert not answers(schedule, replace(problem, limit=peak - problem.share))


def test_hints_are_judged():
    """A hint that breaks the limit or splits what is whole is no answer; one of another size is refused."""
    too_large, split = Problem([[0, 1]], 4, limit=1, split=False), Problem([[0, 1]], 4, split=False)
    assert solve(too_large, hint=build("gpipe", 2, 4)).time == 24
    assert solve(split, hint=build("zb-1p", 2, 4)).time == 15
    for other in (build("gpipe", 2, 3), build("gpipe", 3, 4)):
        with pytest.raises(ScheduleError) as caught:
            solve(split, hint=other)
        assert caught.value.field == "hint"


def test_nothing_found_is_said():
    """Cut short without a hint there is a bound, and no table."""
    problem = Problem([[0, 1, 2, 3], [3, 2, 1, 0]], 8, limit=3)
    found = solve(problem, work=1e-9)
    assert (found.time, found.schedule, found.proven) == (None, None, False)
    assert found.bound >= bounds(problem).best


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"limit": Fraction(1, 2)}, "limit"),
        ({"forward": 0}, "forward"),
        ({"comm": -1}, "comm"),
        ({"num_microbatches": 3}, "microbatches"),
        ({"num_microbatches": 0}, "microbatches"),
    ],
)
def test_impossible_problems_are_refused(more, field):
    """A limit below one microbatch, times of nothing, and microbatches that copies cannot share."""
    with pytest.raises(ScheduleError) as caught:
        Problem(**({"placement": [[0, 1, 1, 0], [1, 0, 0, 1]], "num_microbatches": 4} | more))
    assert caught.value.field == field


def test_unequal_stages_are_refused():
    """Only schedules with stages of one size and whole microbatches pose a problem here."""
    for schedule in (build("asymmetric-chimera", 4, 4), build("chimera", 4, 8, concat="backward-halving")):
        with pytest.raises(ScheduleError, match="stages of equal size"):
            problem_of(schedule)


def test_without_the_solver_one_line_says_so(monkeypatch):
    """Where OR-tools is missing, the error names it and the extra that brings it; bounds need none."""
    monkeypatch.setattr(solver, "find_spec", lambda _: None)
    with pytest.raises(ScheduleError, match="extra 'optimum'") as caught:
        solve(Problem([[0, 1]], 2))
    assert caught.value.field == "ortools"
    assert bounds(Problem([[0, 1]], 2)).best == 7


# ---- the study -------------------------------------------------------------------------------

SMALL = ("1f1b", "zb-1p", "hanayo", "chimera", ("asymmetric-chimera", {"split": [1, 2]}))


@pytest.fixture(scope="module")
def study():
    return distance_study([2], [1, 2], [0.0, 0.5], SMALL, work=0.5)


def test_freedom_never_costs(study):
    """Each step has more freedom, so its optimum is no later; the bounds lie below, the schedule above them all."""
    for later, sooner in (("time", "order_time"), ("order_time", "halves_time"), ("halves_time", "free_time")):
        assert (study[later] >= study[sooner] - 1e-9).all()
    for step in STEPS:
        assert (study[f"{step}_plain"] <= study[f"{step}_bound"]).all()
        assert (study[f"{step}_bound"] <= study[f"{step}_time"]).all()


def test_rows_are_single_problems(study):
    """A row's times are those of its problems, solved alone; sizes and placements that are not defined are left out."""
    assert list(study[study.microbatches == 4].schedule.unique()) == ["1F1B", "ZB-1p", "Chimera"]
    row = study[(study.schedule == "Hanayo") & (study.comm_over_forward == 0.5)].iloc[0]
    schedule = build("hanayo", 2, 2)
    problem = problem_of(schedule, comm=0.5, limit=2, split=False)
    assert row.placement == "V"
    assert row.time == time_of(schedule, problem)
    assert (row.order_time, row.order_proven) == (solve(problem).time, True)
    assert row.free_time == solve(problem_of(schedule, comm=0.5)).time


def test_pairs_are_judged_whole_and_apart():
    """On two ranks DualPipeV's order is optimal, as ZB-V's is, but for its pairs."""
    table = distances(distance_study([2], [2], [0.0], ["dualpipev", "zb-v"], work=0.5)).set_index("schedule")
    assert table.index.tolist() == ["DualPipeV", "DualPipeV apart", "ZB-V"]
    assert table.time.tolist() == [13, 12.5, 12.5]
    assert table.over_free.tolist() == pytest.approx([0.04, 0, 0])


def test_searched_schedules_are_searched_for_the_times(study):
    """ZB-1p is ordered for the transfer at hand."""
    row = study[(study.schedule == "ZB-1p") & (study.microbatches == 4) & (study.comm_over_forward == 0.5)].iloc[0]
    schedule = build("zb-1p", 2, 4, times=(1, 1, 1, 0.5))
    assert row.time == time_of(schedule, problem_of(schedule, comm=0.5))


def test_bounds_alone_need_no_solver(monkeypatch):
    """Without work nothing is solved, and the distances are upper limits."""
    monkeypatch.setattr(solver, "find_spec", lambda _: None)
    table = distances(distance_study([4], [2], [0.0], ["gpipe", "zb-1p"], work=0))
    assert table.over_free.isna().all()
    assert set(table.proven) == {"no"}
    assert table.at_most_free.tolist() == pytest.approx([33 / 27 - 1, 0])


def test_findings_count_what_is_proven(study):
    """Facts count proven optima only, and the sentences name them."""
    facts = distance_facts(study)
    assert facts["points"] == len(study)
    assert facts["open"] == 0 == facts["widest"]
    assert facts["optimal"] == ((study.time - study.order_time) < 1e-9).sum()
    unsure = study.assign(order_proven=False)
    assert distance_facts(unsure) | {"points": 0} != facts
    assert distance_facts(unsure)["optimal"] == 0
    assert distance_facts(unsure)["open"] == len(study)
    assert f"{facts['optimal']} of {facts['points']}" in distance_findings(study)[0]
    assert "solver's limit came first" in distance_findings(unsure)[-1]
    assert "Nothing is lost to **backwards" in distance_findings(study[study.schedule == "ZB-1p"])[2]


def test_all_that_lose_most_are_named(study):
    """Schedules that lose equally much to a cause share the sentence, each at its size and time of a transfer."""
    whole = study[study.schedule.isin(["1F1B", "Hanayo"]) & (study.comm_over_forward == 0)]
    alike = whole.assign(order_time=whole.time, halves_time=whole.time / 1.5)
    wanted = "50.0%, by 1F1B and Hanayo at S = 2, B = 2, c = 0 F; 1F1B at S = 2, B = 4, c = 0 F."
    assert distance_findings(alike)[2] == f"The most that is lost to **backwards in one piece**: {wanted}"


def test_bars_end_at_the_time(study):
    """Four parts add up to each schedule's time; what is not proven has a star."""
    here = study[study.microbatches == 4].assign(free_proven=False)
    for axis, comm in zip(plot_losses(here, LOSSES, "title", "context").axes, (0.0, 0.5), strict=True):
        ends = [bar.get_x() + bar.get_width() for bar in axis.containers[-1]]
        assert ends == pytest.approx(here[here.comm_over_forward == comm].time.tolist())
        assert all(text.get_text().endswith("*") for text in axis.texts)
    plt.close("all")
