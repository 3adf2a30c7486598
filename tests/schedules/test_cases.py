"""Cases: what is published of a schedule, and what is derived here."""

import math
from fractions import Fraction

import pytest
from refusals import refused

from ppmodel import build, compare
from ppmodel.errors import ScheduleError
from ppmodel.schedules import cases
from ppmodel.schedules.cases import legal_cases
from ppmodel.schedules.ratios import formula_bubble_ratio, published_bubble_ratio
from ppmodel.simulation import graph, graph_of


def test_as_much_is_kept_as_is_worth_its_memory(monkeypatch):
    """Recent tables and graphs, up to a number of operations together; the last one whatever its size."""
    monkeypatch.setattr("ppmodel.caches.MOST_OPERATIONS", 2000)
    cases._built.cache_clear()
    graph._kept_graph.cache_clear()
    for count in (30, 40, 10, 50, 200, 10):
        graph_of(cases.built(cases.as_case("1f1b"), 8, count))
        tables, graphs = cases._built.results.values(), graph._kept_graph.results.values()
        for operations in ([table.num_operations for table in tables], [of.schedule.num_operations for of in graphs]):
            assert operations[-1] == 16 * count
            assert sum(operations) <= 2000 or len(operations) == 1


def test_what_a_function_returns_now_counts():
    """A function, bound method or object that has changed since is asked again; each point asks once."""
    state, asked = {"name": "gpipe"}, []

    class Mine:
        def __call__(self, num_ranks, num_microbatches):
            asked.append(state["name"])
            return build(state["name"], num_ranks, num_microbatches)

    mine = Mine()
    for given in (mine, mine.__call__, lambda *size: mine(*size)):
        asked.clear()
        for state["name"] in ("gpipe", "1f1b"):
            assert cases.built(cases.as_case(given), 2, 4).kind.tolist() == build(state["name"], 2, 4).kind.tolist()
            compare(given, pp=2, microbatches=4, forward=1, backward=2)
        assert asked == ["gpipe"] * 2 + ["1f1b"] * 2


def test_a_misspelt_name_is_not_left_out():
    """Sizes at which a case is not defined are left out; wrong names, options and sizes are errors."""
    for case in ("chimer", ("chimera", {"wave": 2}), ("chimera", {"concat": "up"})):
        with pytest.raises(ScheduleError):
            list(legal_cases([case], 4, 4))
    with refused(ScheduleError, "pp", "must be a whole number"):
        list(legal_cases(["gpipe"], 0, 4))
    assert [case.name for case, _ in legal_cases(["gpipe", "chimera"], 3, 4)] == ["gpipe"]


def test_published_formulas_follow_the_options():
    """Each schedule has its own paper's formula, and none where no paper gives one."""
    assert published_bubble_ratio(("chimera", {"concat": "forward-doubling"}), 8, 16) == Fraction(1, 5)
    assert published_bubble_ratio(("hanayo", {"waves": 2}), 8, 8) == Fraction(14, 55)
    for case in (("chimera", {"concat": "overlapping"}), "asymmetric-chimera"):
        assert math.isnan(published_bubble_ratio(case, 8, 16))


def test_a_formula_derived_here_is_not_published():
    """V-Half, V-Min, and interleaved 1F1B with fewer microbatches than ranks have closed forms alone.

    What is published of ZB-H2 and ZB-V, and from how many microbatches on, is over another time.
    """
    derived = [("zb-v", 4, 4), ("v-half", 4, 8), ("v-min", 4, 8), ("looped-bfs", 4, 3)]
    for case in [*derived, (("interleaved-1f1b", {"chunks": 2}), 4, 3)]:
        assert math.isnan(published_bubble_ratio(*case)), case
        assert 0 < formula_bubble_ratio(*case) < 1
    for case in (("zb-h2", 4, 8), ("zb-v", 4, 8)):
        assert published_bubble_ratio(*case) == 0 < formula_bubble_ratio(*case)
    for case in (("zb-h1", 4, 8), ("dualpipe", 4, 8), ("interleaved-1f1b", 4, 4), ("1f1b", 4, 3)):
        assert published_bubble_ratio(*case) == formula_bubble_ratio(*case)
    for case in ("zb-1p", build("1f1b", 4, 8)):  # a table of one's own may be another one
        assert math.isnan(formula_bubble_ratio(case, 4, 8))
