"""Bounds that no schedule beats, and optima that a solver proves."""

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from refusals import refused
from strategies import schedules

from ppmodel import Op, OpKind, Schedule, build
from ppmodel.errors import ScheduleError, TableError
from ppmodel.metrics import peak_activations
from ppmodel.studies.optimum import (
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

OBJECTIVES = "makespan", "span"
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
"""Ranks of each copy's stages, microbatches, and activations that fit."""


@given(schedule=schedules(max_stages=5, max_microbatches=10), times=times, objective=st.sampled_from(OBJECTIVES))
@settings(max_examples=300)
def test_no_schedule_beats_a_bound(schedule, times, objective):
    """Whatever the times, every registered schedule takes at least each bound, under its own peak as the limit."""
    assume(schedule.microbatch_parts * schedule.slices == 1 and not np.ptp(schedule.stage_shares))
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
    assume(schedule.microbatch_parts * schedule.slices == 1 and not np.ptp(schedule.stage_shares))
    peak, whole = peak_of(schedule), is_whole(schedule)
    assert float(peak) == pytest.approx(peak_activations(schedule, held_for_weight_grad=1.0).max())
    problem = problem_of(schedule, limit=peak, split=not whole)
    assert answers(schedule, problem)
    assert answers(schedule, replace(problem, split=True))
    assert answers(schedule, replace(problem, split=False)) == whole
    assert not answers(schedule, replace(problem, limit=peak - min(problem.sizes)))


def test_hints_are_judged():
    """A hint that breaks the limit, splits what is whole or has another size is no answer."""
    too_large, split = Problem([[0, 1]], 4, limit=1, split=False), Problem([[0, 1]], 4, split=False)
    assert solve(too_large, hint=build("gpipe", 2, 4)).time == 24
    assert solve(split, hint=build("zb-1p", 2, 4)).time == 15
    assert solve(split, hint=build("gpipe", 2, 3)).time == 15


def test_nothing_found_is_said():
    """Cut short without a hint there is a bound, and no table."""
    problem = Problem([[0, 1, 2, 3], [3, 2, 1, 0]], 8, limit=3)
    found = solve(problem, work=1e-9)
    assert (found.time, found.schedule, found.proven) == (None, None, False)
    assert found.bound >= bounds(problem).best


@pytest.mark.parametrize("limit", [None, 2])
@pytest.mark.parametrize("comm", [0, Fraction(1, 4)])
def test_orders_of_unequal_stages_are_played_as_the_solver_says(limit, comm):
    """Their times follow the stages' shares, the peak stays within the limit, and no order is faster than a bound."""
    table = build("asymmetric-chimera", 2, 4, split=(1, 3))
    problem = problem_of(table, 1, 1, 1, comm, limit, split=False)
    assert problem.shares == (Fraction(1, 2), Fraction(3, 2))
    found = solve(problem, work=3)
    assert found.proven
    assert bounds(problem).best <= found.time <= time_of(table, problem) or limit is not None
    assert time_of(found.schedule, problem) == pytest.approx(float(found.time), rel=1e-12)
    assert answers(found.schedule, problem)
    assert not answers(build("chimera", 2, 4), problem)


def test_without_the_solver_one_line_says_so(monkeypatch):
    """Where OR-tools is missing, the error names it and the extra that brings it; bounds need none."""
    monkeypatch.setattr(solver, "find_spec", lambda _: None)
    with refused(ScheduleError, "ortools", "is not installed", remedy="extra 'optimum'"):
        solve(Problem([[0, 1]], 2))
    assert bounds(Problem([[0, 1]], 2)).best == 7
