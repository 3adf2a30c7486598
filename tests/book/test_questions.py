"""The questions that pages ask: their answers are what the simulation says."""

from dataclasses import replace

import pytest

import ppmodel as pp
from ppmodel.errors import PPModelError
from ppmodel.simulation import compile_graph, run_graph, uniform_costs
from ppmodel.tables import parse_table, write_table

EVEN = {"forward": 1, "input_grad": 1, "weight_grad": 1}


def length(name, ranks, microbatches, comm=0, **given):
    return pp.simulate(name, ranks, microbatches, comm=comm, **EVEN | given).makespan_s


def slowed(name, ranks, microbatches, comm, slow, factor):
    """The makespan where all operations of one rank take longer."""
    table = pp.build(name, ranks, microbatches)
    costs = uniform_costs(table, forward=1, input_grad=1, weight_grad=1, comm=comm)
    seconds = costs.compute_s.copy()
    seconds[:, table.placement[0] == slow] *= factor
    return run_graph(compile_graph(table), replace(costs, compute_s=seconds)).makespan_s


@pytest.mark.parametrize("size", [(4, 8), (4, 16), (8, 16), (8, 64)])
def test_who_pays_for_the_network(size):
    """Without one 1F1B and GPipe take the same time; with one 1F1B falls behind, by more the more microbatches."""
    ranks, count = size
    assert length("1f1b", ranks, count) == length("gpipe", ranks, count)
    gaps = [length("1f1b", ranks, more, 0.5) - length("gpipe", ranks, more, 0.5) for more in (count, 2 * count)]
    assert 0 < gaps[0] < gaps[1]


def test_what_fills_the_bubble():
    """ZB-H1's lead over 1F1B goes with the length of a weight gradient, and V-Half falls behind."""
    short = {"input_grad": 1.9, "weight_grad": 0.1}
    leads = [length("1f1b", 4, 8, **given) / length("zb-h1", 4, 8, **given) - 1 for given in ({}, short)]
    assert leads[0] > 0.1
    assert 0 <= leads[1] < 0.02
    assert length("v-half", 4, 8, **short) > length("1f1b", 4, 8, **short)


def test_what_a_slow_rank_leaves_of_a_lead():
    """Of the share of 1F1B's time that ZB-V saves, about half."""
    leads = [1 - slowed("zb-v", 4, 32, 0.1, 3, factor) / slowed("1f1b", 4, 32, 0.1, 3, factor) for factor in (1, 1.5)]
    assert leads[0] == pytest.approx(1 - length("zb-v", 4, 32, 0.1) / length("1f1b", 4, 32, 0.1))
    assert 0.4 < leads[1] / leads[0] < 0.6


@pytest.mark.parametrize("size", [(2, 2), (4, 4), (4, 9)])
def test_swapped_backwards(size):
    """Of the last rank's first two: with GPipe still a schedule, longer by a backward; with 1F1B none."""
    last = size[0] - 1
    names = {f"{last}B0": f"{last}B1", f"{last}B1": f"{last}B0"}

    def swapped(name):
        rows = [line.split()[1:] for line in write_table(pp.build(name, *size)).splitlines()[5:]]
        rows = [[names.get(cell, cell) for cell in row if cell not in ".~"] for row in rows]
        return parse_table("\n".join(map(",".join, rows)))

    with pytest.raises(PPModelError):
        swapped("1f1b")
    assert pp.simulate(swapped("gpipe"), **EVEN, comm=0).makespan_s == length("gpipe", *size) + 2


@pytest.mark.parametrize("size", [(4, 8), (4, 16), (8, 32)])
def test_what_more_microbatches_cost(size):
    """GPipe's time grows by the computing that is added, 1F1B's by transfers, too: two for each but one of S."""
    ranks, count = size
    added = {name: length(name, ranks, 2 * count, 0.5) - length(name, ranks, count, 0.5) for name in ("gpipe", "1f1b")}
    assert added["gpipe"] == pytest.approx(3 * count)
    assert added["1f1b"] == pytest.approx(3 * count + 2 * 0.5 * (count - count / ranks))


def test_what_a_faster_network_saves():
    """Overlapped, GPipe saves next to nothing and 1F1B 6 %; blocking, both save 11 %."""

    def saved(name, p2p):
        return 1 - length(name, 8, 64, 0.11, p2p=p2p) / length(name, 8, 64, 0.22, p2p=p2p)

    assert 0 < saved("gpipe", "overlapped") < 0.01
    assert round(saved("1f1b", "overlapped"), 2) == 0.06
    assert [round(saved(name, "blocking"), 2) for name in ("gpipe", "1f1b")] == [0.11, 0.11]
    exposed = {
        (name, p2p): (length(name, 8, 64, 0.22, p2p=p2p) - (64 + 8 - 1) * 3) / 0.22
        for name in ("gpipe", "1f1b") for p2p in ("overlapped", "blocking")
    }  # fmt: skip
    assert exposed["gpipe", "overlapped"] == pytest.approx(14)
    assert exposed["1f1b", "overlapped"] == pytest.approx(124)
    assert [exposed[name, "blocking"] for name in ("gpipe", "1f1b")] == pytest.approx([280, 278])
