"""Grouped interleaving: its authors' orders, closed forms met exactly, and their bounds."""

from itertools import product

import pytest
from authors_orders import digest, sizes

from ppmodel import build, formulas
from ppmodel.formulas.grouped import members
from ppmodel.metrics import peak_activations, table_slots
from ppmodel.simulation import compile_graph, run_graph, uniform_costs

SIZES = [
    (ranks, rounds * size, chunks, size) for ranks, chunks, rounds in product(range(1, 9), (1, 2, 3), (1, 2, 5))
    for size in range(members(ranks, "half"), ranks + 1)
]  # fmt: skip


def test_the_order_is_its_authors():
    """Every operation of every rank, at 228 sizes, groups of 1 and incomplete groups among them."""
    known = list(sizes("grouped-interleaving"))
    assert len(known) >= 200
    for ranks, count, chunks, group, expected in known:
        table = build("grouped-interleaving", ranks, count, chunks=chunks, group=group)
        assert digest(table) == expected, (ranks, count, chunks, group)


def test_gis_h_is_as_drawn():
    """The first rank of the paper's figure 6, until all chunks have run twice."""
    first = " ".join(str(op) for (op,) in build("grouped-interleaving", 4, 8, group="half").rows()[0])
    assert first.startswith("0F0 0F1 4F0 4F1 0F2 0F3 4I0 4W0 4F2 4I1 4W1 4F3 0I0 0W0 0F4 0I1 0W1 0F5")


def test_a_group_is_at_most_all_ranks():
    """Larger ones are as large as that, as in the authors' code."""
    assert members(4, 9) == members(4) == 4
    assert (members(5, "half"), members(5, 2)) == (3, 2)


@pytest.mark.parametrize("times", [(1, 1, 1), (2, 2, 1), (1, 2, 1), (2, 1, 1), (1, 1, 2), (3, 2, 2), (3, 1, 0)])
def test_makespans_have_their_closed_form(times):
    """Groups of S/2 to S that divide B, as long as one is back at a rank before that has run dry."""
    for ranks, count, chunks, size in SIZES:
        if size * sum(times) < ranks * max(times[:2]):
            continue
        table = build("grouped-interleaving", ranks, count, chunks=chunks, group=size)
        forward, input_grad, weight_grad = times
        slots = table_slots(table, forward=forward, input_grad=input_grad, weight_grad=weight_grad)
        whole = [chunks * time for time in times]
        assert slots == formulas.makespan_grouped(ranks, count, chunks, size, *whole)


def test_peaks_have_their_closed_form():
    """Of every rank; S on the first for full groups, about half of interleaved 1F1B's for half of that."""
    for ranks, count, chunks, size in SIZES:
        peaks = peak_activations(build("grouped-interleaving", ranks, count, chunks=chunks, group=size)).tolist()
        assert peaks == [float(peak) for peak in formulas.peak_activations_grouped(ranks, count, chunks, size)]


def test_pipeoffload_is_below_its_authors_bounds():
    """Groups of 1: a bubble below v(S-1)(F+I+W), and about (v+1)/2v of GIS's activations, those of GIS-H."""
    for ranks, chunks in product((2, 4, 8, 16), (2, 3, 5)):
        table = build("grouped-interleaving", ranks, 4 * ranks, chunks=chunks, group=1)
        costs = uniform_costs(table, 1, input_grad=1, weight_grad=1)
        bubble = run_graph(compile_graph(table), costs).makespan_s - 3 * 4 * ranks
        assert ranks - 1 < bubble * chunks <= 3 * chunks * (ranks - 1)
        half = formulas.peak_activations_grouped(ranks, 4 * ranks, chunks, "half")[0]
        assert peak_activations(table).max() <= half + (chunks + 1) / chunks
