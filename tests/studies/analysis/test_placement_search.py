"""Placements of ranks on nodes, searched, and messages between nodes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import model_for, nodes_like, placed
from strategies import schedules

from ppmodel import simulate
from ppmodel.clusters.costs import model_costs
from ppmodel.clusters.specs import load_model, load_system
from ppmodel.errors import PPModelError
from ppmodel.metrics import messages_by_node
from ppmodel.simulation import compile_graph, run_graph
from ppmodel.studies.analysis.placements import (
    MOST_PLACEMENTS,
    full_placements,
    messages_between_nodes,
    num_placements,
    search_placements,
    waits_at_nics,
)

SLOW = load_system("mid_cp_slow_nw")

# ---- placements ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "room"), [(4, 2), (6, 3), (8, 4), (8, 2), (6, 1), (4, 4)])
def test_every_way_to_fill_nodes_is_there_once(ranks, room):
    """As many placements as there are ways to put ranks into unnamed groups, all full, blocked first."""
    ways = full_placements(ranks, room)
    assert len(set(ways)) == len(ways) == num_placements(ranks, room)
    assert all(np.bincount(way).tolist() == [room] * (ranks // room) for way in ways)
    assert ways[0] == tuple(np.repeat(np.arange(ranks // room), room).tolist())
    assert all(list(dict.fromkeys(way)) == list(range(ranks // room)) for way in ways)


@pytest.mark.parametrize(("ranks", "room", "said"), [(7, 4, "must be a multiple of"), (24, 2, "has .* placements")])
def test_placements_that_cannot_be_tried_are_refused(ranks, room, said):
    """Nodes that would not be full, and more placements than anyone waits for."""
    with pytest.raises(PPModelError, match=f"pp = {ranks}: {said}"):
        full_placements(ranks, room)
    assert not 0 < num_placements(ranks, room) <= MOST_PLACEMENTS


def test_the_search_finds_the_fold_that_gradients_want():
    """Blocked is the fastest of 35 placements but where Chimera's all-reduce counts."""
    system, model = placed(load_system("slow_between_nodes"), "round-robin", shared_nic=False), load_model("paper")
    for name, allreduce, fastest in (
        ("gpipe", "excluded", (0, 0, 0, 0, 1, 1, 1, 1)),
        ("chimera", "excluded", (0, 0, 0, 0, 1, 1, 1, 1)),
        ("chimera", "blocking", (0, 0, 1, 1, 1, 1, 0, 0)),
    ):
        found = search_placements(name, 8, 8, model, system, allreduce)
        assert (found.placements, found.fastest) == (35, fastest)
        options = {"model": model, "allreduce": allreduce}
        best, blocked = (
            simulate(name, 8, 8, system=placed(system, where, shared_nic=False), **options).makespan_s
            for where in (fastest, "blocked")
        )
        assert found.makespan_s == best
        assert found.blocked_over_fastest == blocked / best - 1 <= found.slowest_over_fastest


@settings(max_examples=20)
@given(schedules(max_stages=4), st.booleans())
def test_no_placement_is_faster_than_the_fastest(schedule, shared):
    """Of every schedule: simulated one by one, none is, and none is slower than the slowest."""
    system, ranks = load_system("slow_between_nodes"), schedule.num_ranks
    room = max(room for room in (1, 2) if ranks % room == 0)
    system = replace(system, nodes=replace(system.nodes, devices_per_node=room, shared_nic=shared))
    model = model_for(schedule)
    found = search_placements(schedule, ranks, schedule.num_microbatches, model, system)
    spans = [
        run_graph(compile_graph(schedule), model_costs(schedule, model, placed(system, way, shared))).makespan_s
        for way in full_placements(ranks, room)
    ]
    assert found.makespan_s == pytest.approx(min(spans))
    assert found.slowest_over_fastest == pytest.approx(max(spans) / min(spans) - 1)


# ---- messages between nodes ----------------------------------------------------------------------


def test_messages_between_nodes_are_those_that_are_counted():
    """One row a message, in the order of sending, none before its operation ends; those that wait hold a NIC later."""
    system = placed(load_system("slow_between_nodes"), "round-robin", shared_nic=True)
    run = simulate("1f1b", 8, 8, model="paper", system=system)
    messages = messages_between_nodes(run)
    assert len(messages) == messages_by_node(run.table, system.nodes.of_ranks(8))[1] == 2 * 7 * 8
    assert messages.sent_s.is_monotonic_increasing
    moments = messages[["ready_s", "sent_s", "entered_s", "arrived_s"]]
    assert (moments.diff(axis=1).iloc[:, 1:] >= -1e-9).all(axis=None)
    facts = waits_at_nics(run)
    assert facts["messages"] == len(messages)
    assert 0 < facts["waiting"] < 1
    assert 0 < facts["mean_wait"] <= facts["longest_wait"]
    assert 0 < facts["busiest"] <= 1


def test_one_node_has_no_queues():
    """Where all ranks lie on one node no message leaves it, and none waits."""
    system = replace(SLOW, nodes=nodes_like(SLOW, 9.0, devices_per_node=8, shared_nic=True))
    run = simulate("1f1b", 8, 8, model="paper", system=system)
    assert messages_between_nodes(run).empty
    assert set(waits_at_nics(run).values()) == {0}


def test_a_flat_system_has_no_messages_between_nodes():
    """A run without nodes is refused, by its system's name."""
    with pytest.raises(PPModelError, match="system = mid_cp_slow_nw: has no nodes; simulate on a system with nodes"):
        messages_between_nodes(simulate("1f1b", 4, 8, model="paper", system=SLOW))
    with pytest.raises(PPModelError, match="system has no nodes"):
        messages_between_nodes(simulate("1f1b", 4, 8, forward=1, backward=2))
