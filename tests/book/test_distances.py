"""How far schedules are from the best possible, step by step."""

import pandas as pd
import pytest
from refusals import refused

from ppbook.pages.distances import STEPS, distances
from ppmodel import build
from ppmodel.errors import ScheduleError
from ppmodel.studies.optimum import problem_of, solve, solver, time_of

SMALL = ("1f1b", "zb-1p", "hanayo", "chimera", ("asymmetric-chimera", {"split": [1, 2]}))


@pytest.fixture(scope="module")
def study():
    sizes = [(count, comm) for count in (2, 4) for comm in (0.0, 0.5)]
    return pd.concat([distances(SMALL, 2, count, comm, work=0.5) for count, comm in sizes], ignore_index=True)


def test_freedom_never_costs(study):
    """Each step has more freedom, so its optimum is no later; the bounds lie below, the schedule above them all."""
    for later, sooner in (("time", "order_time"), ("order_time", "halves_time"), ("halves_time", "free_time")):
        assert (study[later] >= study[sooner] - 1e-9).all()
    for step in STEPS:
        assert (study[f"{step}_plain"] <= study[f"{step}_bound"]).all()
        assert (study[f"{step}_bound"] <= study[f"{step}_time"]).all()
        assert (study[f"over_{step}"] <= study[f"at_most_{step}"]).all()


def test_rows_are_single_problems(study):
    """A row's times are those of its problems, solved alone; sizes and placements that are not defined are left out."""
    assert list(study[study.microbatches == 4].label.unique()) == ["1F1B", "ZB-1p", "Chimera"]
    row = study[(study.label == "Hanayo") & (study.comm_over_forward == 0.5)].iloc[0]
    schedule = build("hanayo", 2, 2)
    problem = problem_of(schedule, comm=0.5, limit=2, split=False)
    assert row.layout == "V"
    assert row.time == time_of(schedule, problem)
    assert (row.order_time, row.order_proven) == (solve(problem).time, True)
    assert row.free_time == solve(problem_of(schedule, comm=0.5)).time
    assert row.over_free == row.time / row.free_time - 1


def test_pairs_are_judged_fused_and_unfused():
    """On two ranks DualPipeV's order is optimal, as ZB-V's is, but for its pairs."""
    table = distances(["dualpipev", "zb-v"], 2, 4, work=0.5).set_index("label")
    assert table.index.tolist() == ["DualPipeV", "DualPipeV unfused", "ZB-V"]
    assert table.time.tolist() == [13, 12.5, 12.5]
    assert table.over_free.tolist() == pytest.approx([0.04, 0, 0])


def test_searched_schedules_are_searched_for_the_times(study):
    """ZB-1p is ordered for the transfer at hand."""
    row = study[(study.label == "ZB-1p") & (study.microbatches == 4) & (study.comm_over_forward == 0.5)].iloc[0]
    schedule = build("zb-1p", 2, 4, times=(1, 1, 1, 0.5))
    assert row.time == time_of(schedule, problem_of(schedule, comm=0.5))


def test_own_tables_and_generators_have_distances(study):
    """A table, or a function of one's own, is held against the same optima as the schedule that it writes."""
    own = distances([build("1f1b", 2, 4), lambda ranks, count: build("zb-1p", ranks, count)], 2, 4, work=0.5)
    same = study[(study.microbatches == 4) & (study.comm_over_forward == 0)].query("label in ('1F1B', 'ZB-1p')")
    pd.testing.assert_frame_equal(own.drop(columns="label"), same.drop(columns="label").reset_index(drop=True))


def test_unknown_schedules_are_refused():
    """What is not defined at a size is left out; what is not known at all is an error."""
    assert distances([("asymmetric-chimera", {"split": [1, 2]})], 2, 4).empty
    with refused(ScheduleError, "schedule", "is not a known schedule"):
        distances(["2f2b"], 2, 4)


def test_bounds_alone_need_no_solver(monkeypatch):
    """Without work nothing is solved, and the distances are upper limits."""
    monkeypatch.setattr(solver, "find_spec", lambda _: None)
    table = distances(["gpipe", "zb-1p"], 4, 8, work=0)
    assert table.over_free.isna().all()
    assert not table.proven.any()
    assert table.at_most_free.tolist() == pytest.approx([33 / 27 - 1, 0])
