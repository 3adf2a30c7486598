"""Nodes: laws of links inside and between them, and of NICs that ranks share."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import model_for, nodes_like, placed
from refusals import refused
from strategies import allreduces, p2ps, schedules

from ppmodel import build, compare
from ppmodel.clusters.costs import message_bytes, model_costs
from ppmodel.clusters.specs import DATA, load_model, load_system
from ppmodel.errors import CostError
from ppmodel.metrics import messages_by_node
from ppmodel.ops import OpKind
from ppmodel.simulation import (
    APART,
    OpCosts,
    compile_graph,
    makespans,
    receivers,
    run_graph,
    side_by_side,
    uniform_costs,
)
from ppmodel.studies.noise import Noise, noisy_makespans
from ppmodel.studies.points.change import WITHOUT_NETWORK, Change
from ppmodel.tables import parse_table

SLOW = load_system("mid_cp_slow_nw")


def times_of(systems, p2p="overlapped"):
    """Makespans of Chimera on systems, computed together."""
    return compare("chimera", 8, 16, model="paper", system=list(systems), p2p=p2p).makespan_s.tolist()


@st.composite
def on_nodes(draw, **sizes):
    """A schedule, and nodes for its ranks."""
    schedule = draw(schedules(**sizes))
    return schedule, tuple(draw(st.lists(st.integers(0, 2), min_size=(n := schedule.num_ranks), max_size=n)))


def columns(schedule, system, p2p="overlapped", allreduce="excluded"):
    """Start and end of every operation of a model on a system."""
    timeline = run_graph(compile_graph(schedule, p2p, allreduce), model_costs(schedule, model_for(schedule), system))
    return np.stack((timeline.start_s, timeline.end_s, timeline.sent_s, timeline.arrived_s))


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
        with refused(CostError, "nodes", "must name the node"):
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
    given = {"model": "paper", "p2p": "overlapped", "allreduce": "blocking", "changes": [None, WITHOUT_NETWORK]}
    with_nodes, without = (compare("chimera", 4, 8, system=each, **given).makespan_s for each in (system, SLOW))
    assert with_nodes[0] < without[0]
    assert with_nodes[1] == without[1]


# ---- shared nics --------------------------------------------------------------------------------


@st.composite
def on_nics(draw, **sizes):
    """A schedule, nics for its ranks, and costs of which no two are alike, so that no two events coincide."""
    schedule, nics = draw(on_nodes(**sizes))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (6, schedule.num_replicas, schedule.num_stages)
    tables = [random.uniform(0.1, top, shape) for top in (2.0, 2.0, 1.0)]
    return schedule, nics, OpCosts(*tables, overlap_factor=float(random.uniform(0.5, 1.0)))


@given(on_nics())
def test_a_shared_nic_never_saves_time(case):
    """No operation ends earlier on shared nics than on own links: a nic keeps all that a link keeps, and more."""
    schedule, nics, costs = case
    shared, own = (run_graph(compile_graph(schedule), replace(costs, nics=given)).end_s for given in (nics, None))
    assert (shared >= own - 1e-9)[~np.isnan(own)].all()


@given(on_nics(), st.sampled_from(APART))  # those that hold links share the one NIC
def test_one_nic_for_all_is_no_nic(case, allreduce):
    """Where all ranks lie on one node every message has a link of its own."""
    schedule, _, costs = case
    graph = compile_graph(schedule, allreduce=allreduce)
    ours = run_graph(graph, replace(costs, nics=(0,) * schedule.num_ranks))
    np.testing.assert_allclose(ours.end_s, run_graph(graph, costs).end_s, atol=1e-9)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "eager-1f1b"])
def test_a_nic_with_one_pair_in_each_direction_is_a_link(name):
    """Two blocked nodes of a linear schedule: forwards leave one nic and gradients the other, as on own links."""
    schedule = build(name, 6, 9)
    random = np.random.default_rng(3)
    costs = OpCosts(*(random.uniform(0.1, 2, (6, 6)) for _ in range(3)))
    ours = run_graph(compile_graph(schedule).with_nics((0, 0, 0, 1, 1, 1)), costs)
    np.testing.assert_allclose(ours.end_s, run_graph(compile_graph(schedule), costs).end_s, atol=1e-9)


@given(on_nics(), allreduces)
def test_a_nic_for_each_rank_is_what_overlapped_nic_means(case, allreduce):
    """As NICs of no two ranks under overlapped, for one system and for many; NICs that are shared stay shared."""
    schedule, nics, costs = case
    own, shared = replace(costs, nics=tuple(range(schedule.num_ranks))), replace(costs, nics=nics)
    queued, by_rank = (compile_graph(schedule, p2p, allreduce) for p2p in ("overlapped", "overlapped_nic"))
    for expected, given_costs in ((own, costs), (shared, shared)):
        ours, theirs = run_graph(by_rank, given_costs), run_graph(queued, expected)
        for column in ("start_s", "end_s", "sent_s", "arrived_s"):
            np.testing.assert_array_equal(getattr(ours, column), getattr(theirs, column))
    np.testing.assert_array_equal(makespans(by_rank, [costs, shared, costs]), makespans(queued, [own, shared, own]))


def test_a_nic_for_each_rank_costs_chimera_most():
    """On fast compute and a slow network Chimera's two directions meet at the NICs, and GPipe's one does not."""
    frame = compare(
        ["gpipe", "chimera"], 8, 16, model="paper", system="fast_cp_slow_nw", p2p=["overlapped", "overlapped_nic"]
    )
    spans = frame.set_index(["p2p", "schedule"]).makespan_s
    over = {p2p: spans[p2p, "chimera"] / spans[p2p, "gpipe"] - 1 for p2p in ("overlapped", "overlapped_nic")}
    assert over == pytest.approx({"overlapped": 0.144, "overlapped_nic": 0.189}, abs=5e-4)
    assert spans["overlapped", "gpipe"] == pytest.approx(spans["overlapped_nic", "gpipe"])
    assert not frame.nics_shared.any()


def test_two_messages_at_a_nic_follow_one_another():
    """Devices 0 and 1 send to another node at once; the second message leaves when the first one is gone."""
    schedule = parse_table("0F0 0B0\n0F1@1 0B1@1\n1F0 1B0\n1F1@1 1B1@1")
    costs = uniform_costs(schedule, 0.5, 0.5, comm=3, latency=0.5)  # two stages on four ranks: twice 1 / S
    forward = (schedule.kind == OpKind.F) & (schedule.stage == 1)
    own, shared = (
        run_graph(compile_graph(schedule), replace(costs, nics=nics)).start_s[forward] for nics in (None, (0, 0, 1, 1))
    )
    assert sorted(own) == [4.5, 4.5]
    assert sorted(shared) == [4.5, 7.5]


def test_a_faster_link_may_cost_time_at_a_nic():
    """First in, first out is not best: a faster link inside a node reorders a queue, and the end is later."""
    schedule, nodes = build("chimera", 6, 6), [1, 1, 0, 0, 1, 0]
    slow, fast = (
        run_graph(
            compile_graph(schedule),
            uniform_costs(schedule, 1.003, 2.011, 2.017, nodes=nodes, node_comm=inside, shared_nic=True),
        ).makespan_s
        for inside in (1.02, 1.0)
    )
    assert (round(slow, 3), round(fast, 3)) == (55.409, 56.349)


def test_rows_take_the_nics_of_each_system():
    """Systems with and without shared nics in one call, each simulated with its own; only where links are occupied."""
    shared = load_system("slow_between_nodes")
    apart = placed(shared, "round-robin", shared_nic=True)
    systems = shared, apart, placed(apart, "round-robin", shared_nic=False), SLOW
    together = times_of(systems)
    for system, span in zip(systems, together, strict=True):
        schedule = build("chimera", 8, 16)
        costs = model_costs(schedule, load_model("paper"), system)
        assert costs.nics == (tuple(system.nodes.of_ranks(8)) if system.nodes and system.nodes.shared_nic else None)
        assert span == run_graph(compile_graph(schedule), costs).makespan_s
    assert together[0] < together[3] < together[1]
    assert together[2] == together[3]
    silent = times_of(systems, "latency")
    assert silent[1] == silent[2]


def test_noise_takes_the_nics_of_each_system():
    """Noisy runs are simulated with each system's own NICs, whatever stands beside it."""
    systems = SLOW, placed(load_system("slow_between_nodes"), "round-robin", shared_nic=True), SLOW
    model, schedule = load_model("paper"), build("chimera", 8, 16)
    expected = times_of(systems)
    assert expected[1] > expected[0] == expected[2]
    for system, span in zip(systems, expected, strict=True):
        costs = model_costs(schedule, model, system)
        quiet = noisy_makespans(compile_graph(schedule), costs, Noise(jitter=1e-9), [1, 2])
        assert quiet == pytest.approx([span] * 2, rel=1e-3)  # ties at a NIC fall differently


def test_sweeps_take_the_nics_of_each_system(tmp_path):
    """Rows of a sweep are simulated with each system's own NICs; a placement for another number of ranks is refused."""
    from ppmodel.studies.sweep import load_sweep
    from ppmodel.studies.sweep.rows import compute_rows

    listed = SLOW, placed(load_system("slow_between_nodes"), "round-robin", shared_nic=True)
    expected = times_of(listed)
    text = (DATA / "systems" / "slow_between_nodes.yaml").read_text()
    (tmp_path / "apart.yaml").write_text(text.replace("value: blocked", "value: round-robin"))
    (tmp_path / "listed.yaml").write_text(text.replace("value: blocked", "value: [0, 0, 1, 1]"))
    (tmp_path / "sweep.yaml").write_text(
        "schedules: chimera\npp: 8\nmicrobatches: 16\nmodels: paper\n"
        "systems: [mid_cp_slow_nw, apart.yaml, listed.yaml]\n"
    )
    rows = compute_rows(load_sweep(tmp_path / "sweep.yaml"), 0, 3)
    assert rows["makespan_s"] == [*expected, None]
    assert "gives the nodes of 4 ranks, but the pipeline has 8" in rows["refused"][2]


def test_compare_takes_the_nics_of_each_system():
    """The same points with and without shared NICs, in one frame: only those with them queue, and take longer."""
    shared = placed(load_system("slow_between_nodes"), "round-robin", shared_nic=True)
    frame = compare(["hanayo", "1f1b"], 8, 8, model="paper", system=[placed(shared, "round-robin", False), shared])
    own, queued = (frame[frame.nics_shared == given].set_index("label").makespan_s for given in (False, True))
    assert own.tolist() == compare(["hanayo", "1f1b"], 8, 8, model="paper", system=SLOW).makespan_s.tolist()
    assert (queued > own).all()
