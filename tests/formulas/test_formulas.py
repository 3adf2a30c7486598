"""Closed forms against tables and simulations: exact where they claim to be."""

import itertools
from fractions import Fraction
from functools import partial

import pytest

from ppmodel import build, formulas
from ppmodel.metrics import idle_ratio, peak_activations, table_slots
from ppmodel.schedules.ratios import formula_bubble_ratio
from ppmodel.simulation import P2P, compile_graph, run_graph, uniform_costs

FORMULAS = {"gpipe": formulas.makespan_gpipe, "1f1b": formulas.makespan_1f1b}


@pytest.mark.parametrize("stages", range(1, 17))
def test_formula_table_and_simulation_agree(stages):
    """GPipe and 1F1B without communication, every B up to 64: the three levels are one number."""
    for count in range(1, 65):
        for name, formula in (("gpipe", formulas.bubble_ratio_gpipe), ("1f1b", formulas.bubble_ratio_1f1b)):
            schedule = build(name, stages, count)
            ratio = formula(stages, count)
            assert 1 - Fraction(3 * count, table_slots(schedule)) == ratio
            timeline = run_graph(compile_graph(schedule), uniform_costs(schedule, forward=1, backward=2))
            assert timeline.makespan_s == formulas.makespan_gpipe(stages, count)
            assert idle_ratio(timeline) == pytest.approx(float(ratio), abs=1e-12)


@pytest.mark.parametrize("ratio", [1, 2, 3])
def test_linear_bubbles_hold_for_any_backward(ratio):
    """The ratio of GPipe and 1F1B does not depend on the length of a backward."""
    for name in ("gpipe", "1f1b", "eager-1f1b"):
        slots = table_slots(build(name, 5, 7), backward=ratio)
        assert 1 - Fraction(7 * (1 + ratio), slots) == formulas.bubble_ratio_gpipe(5, 7)


@pytest.mark.parametrize("stages", [2, 4, 6, 8, 16])
def test_chimera_tables_have_their_closed_forms(stages):
    """Every concatenation with a closed form, for up to four units."""
    makespans = {
        "direct": formulas.makespan_chimera,
        "forward-doubling": formulas.makespan_chimera_doubling,
        "backward-halving": formulas.makespan_chimera_halving,
        "merged": formulas.makespan_chimera_merged,
    }
    for units in (2, 4):
        for concat, makespan in makespans.items():
            schedule = build("chimera", stages, units * stages, concat=concat)
            slots = Fraction(table_slots(schedule), schedule.microbatch_parts)
            assert slots == makespan(stages, units * stages), concat
    assert table_slots(build("chimera", stages, 3 * stages)) == formulas.makespan_chimera(stages, 3 * stages)


def test_chimera_ratios_follow_from_makespans():
    """The published ratios are those of the makespans, halves counted as microbatches where B is halved."""
    for stages, count in ((4, 8), (8, 16), (8, 64)):
        doubling = 1 - Fraction(3 * count, formulas.makespan_chimera_doubling(stages, count))
        assert formulas.bubble_ratio_chimera_doubling(stages, count) == doubling
        halving = 1 - Fraction(3 * count, formulas.makespan_chimera_halving(stages, count))
        assert formulas.bubble_ratio_chimera_doubling(stages, 2 * count) == halving
        merged = 1 - Fraction(3 * count, formulas.makespan_chimera_merged(stages, count))
        assert formula_bubble_ratio(("chimera", {"concat": "merged"}), stages, count) == merged
        equal = table_slots(build("chimera", stages, count), backward=1)
        assert 1 - Fraction(2 * count, equal) == formulas.bubble_ratio_chimera_equal(stages, count)


def test_the_published_formula_understates_chimera():
    """From B = S on the formula with equal costs gives a smaller bubble than the table with a two-slot backward."""
    for stages in (4, 8, 16):
        for units in (1, 2, 4):
            assert formulas.bubble_ratio_chimera_equal(stages, units * stages) < formulas.bubble_ratio_chimera(
                stages, units * stages
            )


def test_hanayos_formula_is_near():
    """The published approximation is within a quarter of the table's bubble for two and four waves."""
    for waves in (2, 4):
        slots = table_slots(build("hanayo", 8, 8, waves=waves))
        bubble = 1 - Fraction(3 * 8 * 2 * waves, slots)
        assert float(formulas.bubble_ratio_hanayo(8, waves) / bubble) == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize("comm", [0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("p2p", P2P)
def test_makespans_with_communication(p2p, comm):
    """GPipe and 1F1B meet their closed forms under all semantics, and eager 1F1B where no rank is occupied."""
    cases = [(name, partial(formula, p2p=p2p)) for name, formula in FORMULAS.items()]
    if p2p in ("latency", "overlapped"):
        cases.append(("eager-1f1b", formulas.makespan_eager_1f1b))
    for name, formula in cases:
        for stages in (1, 2, 3, 4, 8):
            for count in (1, 2, 3, 8, 9, 16, 17):
                schedule = build(name, stages, count)
                timeline = run_graph(compile_graph(schedule, p2p), uniform_costs(schedule, 1, 2, comm))
                assert timeline.makespan_s == pytest.approx(formula(stages, count, 1, 2, comm), rel=1e-12)


@pytest.mark.parametrize(("forward", "backward"), [(1, 2), (3, 0.5), (1, 1)])
@pytest.mark.parametrize("comm", [0.7, 1.7, 7])
def test_1f1b_by_rendezvous_with_slow_transfers(comm, forward, backward):
    """Transfers that are longer than a forward or a backward are exposed by that much more, once each."""
    for stages, count in itertools.product((1, 2, 3, 4, 7), (1, 2, 3, 8)):
        schedule = build("1f1b", stages, count)
        timeline = run_graph(compile_graph(schedule, "rendezvous"), uniform_costs(schedule, forward, backward, comm))
        expected = formulas.makespan_1f1b(stages, count, forward, backward, comm, "rendezvous")
        assert timeline.makespan_s == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("p2p", [p2p for p2p in P2P if p2p.startswith("blocking")])
def test_blocking_makes_gpipe_and_1f1b_equal_to_two_transfers(p2p):
    """Where a transfer occupies a rank they differ by one of them, by two where it occupies both."""
    apart = [FORMULAS["gpipe"](8, b, 1, 2, 1, p2p) - FORMULAS["1f1b"](8, b, 1, 2, 1, p2p) for b in (2, 8, 64, 256)]
    assert set(apart) == {2 if p2p == "blocking" else 1}


def test_the_form_for_whole_rounds_is_the_general_one():
    """For S dividing B the bracket is 2(S-1)B/S + 2(S-2), as the literature writes it."""
    stages, count, comm = 8, 64, 0.22
    written = (count + stages - 1) * 3 + comm * (2 * (stages - 1) * count / stages + 2 * (stages - 2))
    assert formulas.makespan_1f1b(stages, count, 1, 2, comm) == pytest.approx(written, rel=1e-12)


def test_peaks_have_their_closed_forms():
    """Peak activations by rank, for every schedule that has a closed form."""
    for stages in (2, 4, 6, 8):
        for count in (1, 3, stages, 2 * stages, 4 * stages):
            for name, formula in (
                ("gpipe", formulas.peak_activations_gpipe),
                ("1f1b", formulas.peak_activations_1f1b),
                ("eager-1f1b", formulas.peak_activations_eager_1f1b),
            ):
                assert peak_activations(build(name, stages, count)).tolist() == formula(stages, count)
        for units in (1, 3):
            chimera = build("chimera", stages, units * stages)
            assert peak_activations(chimera).tolist() == formulas.peak_activations_chimera(stages)
