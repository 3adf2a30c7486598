"""Nodes: laws of links inside and between them, and of NICs that ranks share."""

from dataclasses import replace
from math import factorial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import allreduces, p2ps, schedules
from twin import nic_times

from ppmodel import build
from ppmodel.costs import OpCosts, message_bytes, model_costs, receivers, side_by_side, uniform_costs
from ppmodel.simulation import run_graph
from ppmodel.errors import CostError, PPModelError
from ppmodel.export import parse_table
from ppmodel.simulation import compile_graph
from ppmodel.metrics import messages_by_node
from ppmodel.ops import OpKind
from ppmodel.plot import plot_nics, plot_nodes
from ppmodel.specs import DATA, NodeSpec, nics_of, load_model, load_system, one_node_text
from ppmodel.studies import (
    crossing_table,
    inside_study,
    largest_loss,
    most_waiting,
    node_findings,
    node_study,
    noise_study,
    order_table,
    placed,
    placement_search,
    search_size,
    search_text,
    waiting_study,
)
from ppmodel.studies.nodes import nic_study, full_placements, longest_wait, waiting_facts
from ppmodel.studies.times import UNCHANGED, WITHOUT_NETWORK, Change, times
from ppmodel.sweep import load_sweep
from ppmodel.sweep.rows import compute_rows
from ppmodel.noise import Noise

SLOW = load_system("mid_cp_slow_nw")


def nodes_like(system, bandwidth=1.0, **more):
    """Nodes whose inner links are as those of a flat system, or some times as fast."""
    given = {"devices_per_node": 2, "shared_nic": False, "placement": "blocked"} | more
    return NodeSpec(
        node_bandwidth_bytes_per_s=system.network_bandwidth_bytes_per_s * bandwidth,
        node_latency_s=system.network_latency_s / bandwidth,
        **given,
    )


@st.composite
def on_nodes(draw, **sizes):
    """A schedule, and nodes for its ranks."""
    schedule = draw(schedules(**sizes))
    return schedule, tuple(draw(st.lists(st.integers(0, 2), min_size=(n := schedule.num_ranks), max_size=n)))


def model_for(schedule):
    """A model whose batch divides into the schedule's microbatches."""
    return replace(load_model("paper"), global_batch=2 * schedule.table_microbatches)


def columns(schedule, system, p2p="overlapped", allreduce="excluded"):
    """Start and end of every operation of a model on a system."""
    timeline = run_graph(compile_graph(schedule, p2p, allreduce), model_costs(schedule, model_for(schedule), system))
    return np.stack((timeline.start_s, timeline.end_s, timeline.sent_s, timeline.arrived_s))


@settings(max_examples=40)
@given(on_nodes(), p2ps, allreduces)
def test_equal_links_are_a_flat_network(case, p2p, allreduce):
    """Where links inside and between nodes are alike, every time is that of the flat system, to the bit."""
    schedule, where = case
    system = replace(SLOW, nodes=nodes_like(SLOW, devices_per_node=len(where), placement=where))
    np.testing.assert_array_equal(columns(schedule, system, p2p, allreduce), columns(schedule, SLOW, p2p, allreduce))


@settings(max_examples=40)
@given(schedules(), p2ps, allreduces)
def test_one_node_is_a_flat_network_of_its_links(schedule, p2p, allreduce):
    """With all ranks on one node nothing but the links inside counts."""
    system = replace(SLOW, nodes=nodes_like(SLOW, 7.0, devices_per_node=schedule.num_ranks))
    nodes = system.nodes
    flat = replace(
        SLOW, network_bandwidth_bytes_per_s=nodes.node_bandwidth_bytes_per_s, network_latency_s=nodes.node_latency_s
    )
    np.testing.assert_array_equal(columns(schedule, system, p2p, allreduce), columns(schedule, flat, p2p, allreduce))


@settings(max_examples=40)
@given(schedules(), p2ps, allreduces)
def test_nodes_of_one_rank_are_a_flat_network(schedule, p2p, allreduce):
    """With one rank on each node nothing but the links between nodes counts."""
    system = replace(SLOW, nodes=nodes_like(SLOW, 7.0, devices_per_node=1))
    np.testing.assert_array_equal(columns(schedule, system, p2p, allreduce), columns(schedule, SLOW, p2p, allreduce))


@settings(max_examples=40)
@given(on_nodes(), p2ps, allreduces, st.floats(1, 100))
def test_faster_links_inside_never_cost_time(case, p2p, allreduce, factor):
    """No operation ends later where the links inside nodes are faster, as long as each pair of ranks has its own."""
    schedule, where = case
    room = len(where)
    slow, fast = (
        columns(
            schedule,
            replace(SLOW, nodes=nodes_like(SLOW, factor, devices_per_node=room, placement=where)),
            p2p,
            allreduce,
        )[1]
        for factor in (1.0, factor)
    )
    assert (fast <= slow * (1 + 1e-12))[~np.isnan(slow)].all()


@settings(max_examples=40)
@given(on_nodes(), st.permutations(range(5)))
def test_names_of_nodes_do_not_matter(case, names):
    """Other numbers for the same nodes give the same costs."""
    schedule, where = case
    tables = [
        model_costs(
            schedule, model_for(schedule), replace(SLOW, nodes=nodes_like(SLOW, 3.0, devices_per_node=9, placement=w))
        )
        for w in (where, tuple(names[node] for node in where))
    ]
    np.testing.assert_array_equal(*(costs.by_class(schedule.num_replicas) for costs in tables))


@pytest.mark.parametrize("name", ["gpipe", "chimera"])
def test_costs_with_and_without_nodes_stand_side_by_side(name):
    """Tables by stage and by replica and stage go into one pass, each with its own numbers."""
    schedule = build(name, 4, 8)
    many = [uniform_costs(schedule, 1, 2, 0.5, nodes=nodes, node_comm=0.1) for nodes in (None, [0, 0, 1, 1])]
    for together, *alone in zip(
        side_by_side(many, schedule.num_replicas), *(c.by_class(schedule.num_replicas) for c in many), strict=True
    ):
        np.testing.assert_array_equal(together.T, alone)


@given(schedules())
def test_receivers_are_those_of_the_table(schedule):
    """A message goes where the dependencies of the table say, for every kind, replica and stage."""
    consumer = np.flatnonzero(schedule.dependencies.remote)
    sender = schedule.dependencies.source[consumer]
    found = receivers(schedule)[schedule.kind[sender], schedule.replica[sender], schedule.stage[sender]]
    np.testing.assert_array_equal(found, schedule.rank[consumer])


@given(on_nodes())
def test_messages_are_counted_once(case):
    """Inside and between nodes they are as many as the table's transfers; on one node all stay inside."""
    schedule, where = case
    inside, between = messages_by_node(schedule, np.array(where))
    assert inside + between == schedule.dependencies.remote.sum()
    assert messages_by_node(schedule, np.zeros(schedule.num_ranks, dtype=int)) == (inside + between, 0)


def test_a_message_takes_the_link_that_it_goes_over():
    """Of two nodes of two ranks only stages 1 and 2 use the link between them; the ends of the pipeline send less."""
    schedule, model = build("1f1b", 4, 8), load_model("paper")
    system = replace(SLOW, nodes=nodes_like(SLOW, 10.0))
    costs = model_costs(schedule, model, system)
    between = message_bytes(schedule, model) / SLOW.network_bandwidth_bytes_per_s
    inside = message_bytes(schedule, model) / (10 * SLOW.network_bandwidth_bytes_per_s)
    assert costs.occupancy_s[OpKind.F, 0].tolist() == [inside, between, inside, 0]
    for kind in (OpKind.B, OpKind.I):
        assert costs.occupancy_s[kind, 0].tolist() == [0, inside, between, inside]
    assert costs.latency_s[OpKind.F, 0].tolist() == [SLOW.network_latency_s / k for k in (10, 1, 10)] + [0]


def test_plain_numbers_know_nodes_too():
    """Two numbers, inside and between nodes; a schedule that cuts microbatches cuts both."""
    schedule = build("chimera", 4, 4, concat="direct")
    costs = uniform_costs(schedule, 1, 2, 0.5, latency=0.25, nodes=[0, 0, 1, 1], node_comm=0.1, node_latency=0.01)
    assert costs.occupancy_s[OpKind.F].tolist() == [[0.1, 0.5, 0.1, 0]] * 2
    assert costs.latency_s[OpKind.B].tolist() == [[0, 0.01, 0.25, 0.01]] * 2
    halves = build("chimera", 4, 8, concat="backward-halving")
    half = uniform_costs(halves, 1, 2, 0.5, nodes=[0, 0, 1, 1], node_comm=0.1).occupancy_s[OpKind.F, 0]
    assert half.tolist() == [0.05, 0.25, 0.05, 0]
    for wrong in ([0, 0, 1], [[0, 0, 1, 1]], 3):
        with pytest.raises(CostError, match=r"nodes = .*: must name the node of each rank, of 4"):
            uniform_costs(schedule, 1, 2, nodes=wrong)


def test_gradients_are_summed_at_the_slowest_link_of_their_ring():
    """Chimera's replicas of a stage lie on ranks s and S-1-s: folded nodes hold both, blocked ones do not."""
    schedule, model = build("chimera", 4, 8), load_model("paper")

    def ring(**more):
        return model_costs(schedule, model, replace(SLOW, nodes=nodes_like(SLOW, 10.0, **more))).compute_s[OpKind.R]

    flat = model_costs(schedule, model, SLOW).compute_s[OpKind.R]
    np.testing.assert_array_equal(ring(placement="blocked"), flat)
    np.testing.assert_allclose(ring(placement=(0, 1, 1, 0)), flat / 10)
    np.testing.assert_allclose(ring(placement=(0, 1, 2, 0)), flat / [10, 1, 1, 10])
    slow_inside = model_costs(schedule, model, replace(SLOW, nodes=nodes_like(SLOW, 0.1, placement=(0, 1, 1, 0))))
    np.testing.assert_allclose(slow_inside.compute_s[OpKind.R], 10 * flat)


def test_changes_of_a_network_reach_the_links_inside():
    """Half the bandwidth is half of it everywhere; without a network nodes do not matter."""
    system = replace(SLOW, nodes=nodes_like(SLOW, 4.0))
    halved = Change(bandwidth=0.5, latency=2.0).system(system)
    assert halved.nodes == nodes_like(halved, 4.0)
    size = (("chimera", ()), 4, 8, load_model("paper"), [system, SLOW], "overlapped", "blocking")
    both = times(*size, [UNCHANGED, WITHOUT_NETWORK]).t_sim_s
    assert both[0, 0] < both[0, 1]
    assert both[1, 0] == both[1, 1]


# ---- shared nics --------------------------------------------------------------------------------


@st.composite
def on_nics(draw, **sizes):
    """A schedule, nics for its ranks, and costs of which no two are alike, so that no two events coincide."""
    schedule, nics = draw(on_nodes(**sizes))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (5, schedule.num_replicas, schedule.num_stages)
    tables = [random.uniform(0.1, top, shape) for top in (2.0, 2.0, 1.0)]
    return schedule, np.array(nics), OpCosts(*tables, overlap_factor=float(random.uniform(0.5, 1.0)))


@given(on_nics())
def test_shared_nics_agree_with_a_twin(case):
    """A simulator that knows only rows, links and nics gives the same ends, departures and arrivals."""
    schedule, nics, costs = case
    timeline = run_graph(compile_graph(schedule, nics=nics), costs)
    for column, times_s in zip(("end_s", "sent_s", "arrived_s"), nic_times(schedule, costs, nics), strict=True):
        expected = [times_s.get(schedule.op(index), np.nan) for index in range(schedule.num_operations)]
        np.testing.assert_allclose(getattr(timeline, column), expected, rtol=0, atol=1e-9, equal_nan=True)


@given(on_nics())
def test_a_shared_nic_never_saves_time(case):
    """No operation ends earlier on shared nics than on own links: a nic keeps all that a link keeps, and more."""
    schedule, nics, costs = case
    shared, own = (run_graph(compile_graph(schedule, **given), costs).end_s for given in ({"nics": nics}, {}))
    assert (shared >= own - 1e-9)[~np.isnan(own)].all()


@given(on_nics(), allreduces)
def test_one_nic_for_all_is_no_nic(case, allreduce):
    """Where all ranks lie on one node every message has a link of its own."""
    schedule, _, costs = case
    ours = run_graph(compile_graph(schedule, allreduce=allreduce, nics=np.zeros(schedule.num_ranks, dtype=int)), costs)
    np.testing.assert_allclose(ours.end_s, run_graph(compile_graph(schedule, allreduce=allreduce), costs).end_s, atol=1e-9)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "eager-1f1b"])
def test_a_nic_with_one_pair_in_each_direction_is_a_link(name):
    """Two blocked nodes of a linear schedule: forwards leave one nic and gradients the other, as on own links."""
    schedule = build(name, 6, 9)
    random = np.random.default_rng(3)
    costs = OpCosts(*(random.uniform(0.1, 2, (5, 6)) for _ in range(3)))
    ours = run_graph(compile_graph(schedule, nics=np.array([0, 0, 0, 1, 1, 1])), costs)
    np.testing.assert_allclose(ours.end_s, run_graph(compile_graph(schedule), costs).end_s, atol=1e-9)


@given(on_nics(), st.permutations(range(5)))
def test_names_of_nics_do_not_matter(case, names):
    """Other numbers for the same nics give the same times."""
    schedule, nics, costs = case
    ends = [run_graph(compile_graph(schedule, nics=c), costs).end_s for c in (nics, np.array(names)[nics])]
    np.testing.assert_array_equal(*ends)


def test_two_messages_at_a_nic_follow_one_another():
    """Devices 0 and 1 send to another node at once; the second message leaves when the first one is gone."""
    schedule = parse_table("0F0 0B0\n0F1@1 0B1@1\n1F0 1B0\n1F1@1 1B1@1")
    costs = uniform_costs(schedule, 0.5, 0.5, comm=3, latency=0.5)  # two stages on four ranks: twice 1 / S
    forward = (schedule.kind == OpKind.F) & (schedule.stage == 1)
    own, shared = (
        run_graph(compile_graph(schedule, **nics), costs).start_s[forward]
        for nics in ({}, {"nics": np.array([0, 0, 1, 1])})
    )
    assert sorted(own) == [4.5, 4.5]
    assert sorted(shared) == [4.5, 7.5]


def test_a_faster_link_may_cost_time_at_a_nic():
    """First in, first out is not best: a faster link inside a node reorders a queue, and the end is later."""
    schedule, nodes = build("chimera", 6, 6), np.array([1, 1, 0, 0, 1, 0])
    slow, fast = (
        run_graph(
            compile_graph(schedule, nics=nodes),
            uniform_costs(schedule, 1.003, 2.011, 2.017, nodes=nodes, node_comm=inside),
        ).makespan_s
        for inside in (1.02, 1.0)
    )
    assert (round(slow, 3), round(fast, 3)) == (55.409, 56.349)


def test_times_takes_the_nics_of_each_system():
    """Systems with and without shared nics in one call, each simulated with its own; only where links are occupied."""
    shared = load_system("slow_between_nodes")
    apart = placed(shared, "round-robin", shared_nic=True)
    systems = [shared, apart, placed(apart, "round-robin", shared_nic=False), SLOW]
    size = (("chimera", ()), 8, 16, load_model("paper"))
    together = times(*size, systems, "overlapped").t_sim_s[0]
    for system, span in zip(systems, together, strict=True):
        schedule = build("chimera", 8, 16)
        graph = compile_graph(schedule, nics=nics_of(system, 8))
        assert span == run_graph(graph, model_costs(schedule, load_model("paper"), system)).makespan_s
    assert together[0] < together[3] < together[1]
    assert together[2] == together[3]
    silent = times(*size, systems, "latency").t_sim_s[0]
    assert silent[1] == silent[2]


def test_faster_inner_links_may_cost_time_on_shared_nics_alone():
    """On own links slower inner links never save time; on blocked nodes of two with shared nics Hanayo's do."""
    study = inside_study(("hanayo", {"waves": 2}), 8, 8, 2, 1.0, [0.0, 0.05, 1.0])
    assert study["own links"].is_monotonic_increasing
    assert largest_loss(study) == pytest.approx(0.0341, abs=1e-4)
    assert (study["shared nic"] >= study["own links"]).all()
    assert largest_loss(study.rename(columns={"own links": "shared nic", "shared nic": "other"})) == 0


def test_noise_and_sweeps_take_the_nics_of_each_system(tmp_path):
    """Noisy runs and rows of a sweep are simulated with each system's own nics, whatever stands beside it."""
    systems = [SLOW, placed(load_system("slow_between_nodes"), "round-robin", shared_nic=True), SLOW]
    model, seeds = load_model("paper"), [1, 2]
    found = noise_study(model, systems, 8, [16], [Noise(jitter=0.1)], seeds, ["chimera"])
    alone = [noise_study(model, [one], 8, [16], [Noise(jitter=0.1)], seeds, ["chimera"]) for one in systems]
    assert found.mean_s.tolist() == [one.mean_s.item() for one in alone]
    expected = times(("chimera", ()), 8, 16, model, systems, "overlapped").t_sim_s[0].tolist()
    assert found.t_sim_s.tolist() == expected
    assert expected[1] > expected[0] == expected[2]

    text = (DATA / "systems" / "slow_between_nodes.yaml").read_text()
    (tmp_path / "apart.yaml").write_text(text.replace("value: blocked", "value: round-robin"))
    (tmp_path / "listed.yaml").write_text(text.replace("value: blocked", "value: [0, 0, 1, 1]"))
    (tmp_path / "sweep.yaml").write_text(
        "schedules: chimera\nstages: 8\nmicrobatches: 16\nmodels: paper\n"
        "systems: [mid_cp_slow_nw, apart.yaml, listed.yaml]\n"
    )
    rows = compute_rows(load_sweep(tmp_path / "sweep.yaml"), 0, 3)
    assert rows["makespan_s"] == [*expected[:2], None]
    assert "names the nodes of 4 ranks, and is used for 8" in rows["refused"][2]


# ---- the study -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "room"), [(4, 2), (6, 3), (8, 4), (8, 2), (6, 1), (4, 4)])
def test_every_way_to_fill_nodes_is_there_once(ranks, room):
    """As many placements as there are ways to put ranks into unnamed groups, all full, blocked first."""
    ways = full_placements(ranks, room)
    groups = ranks // room
    assert len(set(ways)) == len(ways) == factorial(ranks) // (factorial(room) ** groups * factorial(groups))
    assert all(np.bincount(way).tolist() == [room] * groups for way in ways)
    assert ways[0] == tuple(np.repeat(np.arange(groups), room).tolist())


@pytest.mark.parametrize(("ranks", "room", "said"), [(7, 4, "must be a multiple of"), (24, 2, "has more than 1000")])
def test_placements_that_cannot_be_tried_are_refused(ranks, room, said):
    """Nodes that would not be full, and more placements than anyone waits for."""
    with pytest.raises(PPModelError, match=f"stages = {ranks}: {said}"):
        full_placements(ranks, room)


def test_a_flat_system_has_no_placement():
    """A study of nodes refuses a system without them, by name."""
    with pytest.raises(PPModelError, match="system = mid_cp_slow_nw: has no nodes; give its file a block"):
        node_study(load_model("paper"), [SLOW], 8, 8, ["gpipe"])


@pytest.fixture(scope="module")
def study():
    return node_study(load_model("paper"), [load_system("slow_between_nodes")], 8, 8, ["gpipe", "chimera"])


def test_where_no_message_stays_inside_nothing_is_saved(study):
    """Round-robin on own links takes the time of the flat network; blocked less, and it sends least between nodes."""
    relative = study[study.network == "own links"].set_index(["schedule", "placement"]).relative
    assert (relative.xs("round-robin", level="placement") == 0).all()
    assert (relative.xs("blocked", level="placement") < 0).all()
    crossings = crossing_table(study).set_index("schedule").drop(columns="system")
    assert crossings.loc["GPipe"].to_dict() == {"blocked": 16, "round-robin": 112, "folded": 32}
    orders = order_table(study).set_index(["placement", "network"]).order
    assert set(orders) == {"Chimera, GPipe"}


def test_the_search_finds_the_fold_that_gradients_want(study):
    """Blocked is the fastest of 35 placements but where Chimera's gradient sum counts; the sentences say so."""
    system = load_system("slow_between_nodes")
    found = placement_search(load_model("paper"), system, 8, 8, ["gpipe", "chimera"])
    own = found[found.network == "own links"].set_index(["schedule", "allreduce"])
    assert (own.placements == 35).all()
    assert own.fastest["GPipe", "excluded"] == "0 0 0 0 1 1 1 1"
    assert own.fastest["Chimera", "blocking"] == "0 0 1 1 1 1 0 0"
    saved, best = node_findings(study, found)
    assert saved.startswith("On `slow_between_nodes` blocked nodes")
    assert "for Chimera with its all-reduce blocking, on links of their own, `0 0 1 1 1 1 0 0` is" in best
    span = times(
        ("chimera", ()), 8, 8, load_model("paper"), [placed(system, "blocked", False)], "overlapped", "blocking"
    )
    assert (
        span.t_sim_s[0, 0] / own.t_fastest_s["Chimera", "blocking"] - 1
        == own.blocked_over_fastest["Chimera", "blocking"]
    )


def test_pictures_show_every_point_and_every_message(study):
    """A mark for each schedule, placement and network; a box for each message on either nic that it passes."""
    points = plot_nodes(study, "title", "context").axes[0]
    assert sum(line.get_marker() != "None" for line in points.lines) == len(study)
    system = placed(load_system("slow_between_nodes"), "round-robin", shared_nic=True)
    timeline, messages = nic_study(load_model("paper"), system, "1f1b", 8, 8)
    figure = plot_nics(timeline, messages, (0.0, timeline.makespan_s), "title", "context")
    assert len(figure.axes[1].patches) == 2 * len(messages) == 4 * 7 * 8
    assert figure.axes[1].get_ylim()[0] > figure.axes[1].get_ylim()[1]
    facts = waiting_facts(timeline, messages)
    assert 0 < facts["waiting"] < 1
    begin, end = longest_wait(messages)
    longest = messages.loc[messages.waited_s.idxmax()]
    assert begin <= longest.ready_s <= longest.sent_s <= end


# ---- nodes of any size ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("room", "blocks", "expected"),
    [(4, 128, (8, 8)), (8, 128, (16, 16)), (3, 128, (12, 8)), (5, 128, (10, 8)), (1, 128, (8, 8)),
     (72, 200, (144, 128)), (72, 128, (74, 64)), (72, 64, (8, 8))],
)  # fmt: skip
def test_the_search_takes_two_full_nodes(room, blocks, expected):
    """As few stages as fill two nodes and no fewer than wanted, an even number; a model's blocks set a limit."""
    system = replace(SLOW, nodes=nodes_like(SLOW, devices_per_node=room))
    assert search_size(replace(load_model("paper"), blocks=blocks), system, 8, 8) == expected


@pytest.mark.parametrize(("room", "said"), [(8, "there are 6,435 placements, too many"), (100, "nodes are not full")])
def test_what_is_not_searched_is_said(room, said):
    """Too many placements, and nodes that the model cannot fill, leave a sentence in place of the table."""
    model, system = load_model("paper"), replace(SLOW, nodes=nodes_like(SLOW, devices_per_node=room))
    size = search_size(model, system, 8, 8)
    found = placement_search(model, system, *size, ["gpipe"])
    assert found.empty
    assert said in search_text(model, system, size[0], found)


def test_one_node_has_no_queues():
    """Where all ranks lie on one node the study says so, no message waits, and the picture shows the ranks."""
    model, system = load_model("paper"), replace(SLOW, nodes=nodes_like(SLOW, 9.0, devices_per_node=8))
    study = node_study(model, [system], 8, 8, ["gpipe", "1f1b"])
    first, *_ = node_findings(study, pd.DataFrame(), [one_node_text(system, [8])])
    assert first == "All S = 8 ranks lie on one node of mid_cp_slow_nw: its network between nodes is not used."
    assert (waiting_study(model, system, ["gpipe"], 8, 8).drop(columns=["schedule", "placement"]) == 0).all(axis=None)
    _, timeline, messages = most_waiting(model, system, ["gpipe", "1f1b"], 8, 8)
    figure = plot_nics(timeline, messages, longest_wait(messages), "title", "context")
    assert len(figure.axes) == 1
    assert "all ranks lie on one node" in figure.get_suptitle()


def test_no_gain_that_prints_as_nothing_is_one(study):
    """A placement that is faster by what a page prints as 0.0 % is as fast; where it shows it is named."""
    found = pd.DataFrame({
        "schedule": "Chimera", "allreduce": "excluded", "network": "own links", "placements": 35, "fastest": "0 1 1 0",
        "blocked_over_fastest": [4e-4, 6e-4],
    })  # fmt: skip
    assert node_findings(study, found)[-1] == (
        "Of 35 placements none is faster than blocked in 1 of 2 cases; for Chimera with its all-reduce excluded, on "
        "links of their own, `0 1 1 0` is 0.1% faster."
    )
