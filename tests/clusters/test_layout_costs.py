"""What a layout costs: where groups lie, collectives and kernels by their formulas, data parallelism, memory."""

from dataclasses import replace
from math import comb

import numpy as np
import pytest
from refusals import refused
from twin import roofline_s

from ppmodel import build
from ppmodel.clusters.costs import (
    PARTS,
    Collective,
    Group,
    Kernel,
    Kernels,
    block_operations,
    check_layout,
    collective_s,
    group_of,
    kernels_s,
    message_bytes,
    model_costs,
    persistent_bytes,
    stages,
)
from ppmodel.clusters.costs.collectives import collective_line
from ppmodel.clusters.costs.layers import layer_work
from ppmodel.clusters.costs.runs import Runs
from ppmodel.clusters.costs.transfers import pipeline_links
from ppmodel.clusters.costs.work import Phase, Work
from ppmodel.clusters.memory import memory
from ppmodel.clusters.specs import (
    FORMATS,
    ORDERS,
    CollectiveSpec,
    ExpertSpec,
    KernelSpec,
    LayoutSpec,
    load_model,
    load_system,
    packaged,
)
from ppmodel.clusters.specs.entries import unchecked
from ppmodel.clusters.specs.recompute import MODES, Module, RecomputeMode
from ppmodel.errors import CostError, SpecificationError
from ppmodel.ops import OpKind

TABLE = build("1f1b", 4, 8)
SPREAD = LayoutSpec(pp=4, tp=4, cp=2, dp=4, sequence_parallel=True, zero=1)


@pytest.fixture(scope="module")
def llama():
    return load_model("llama3_70b")


@pytest.fixture(scope="module")
def mixture(llama):
    """Eight experts, two of them for each token."""
    return replace(llama, experts=ExpertSpec(number=8, experts_per_token=2, shared=0, hidden=14336, dense_layers=0))


@pytest.fixture(scope="module")
def system():
    """Nodes of eight on round links: 100 GB/s and 1 us inside, 10 GB/s and 10 us between."""
    base = load_system("dgx_h100_nodes")
    nodes = replace(base.nodes, node_bandwidth_bytes_per_s=100e9, node_latency_s=1e-6)
    return replace(base, nodes=nodes, network_bandwidth_bytes_per_s=10e9, network_latency_s=10e-6)


# ---- where groups lie ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "group", "expected"),
    [
        ({"tp": 8}, "tensor", Group(8, 1, 8)),
        ({"tp": 16}, "tensor", Group(16, 2, 8)),
        ({"tp": 4, "cp": 2}, "context", Group(2, 1, 2)),
        ({"tp": 8, "cp": 4}, "context", Group(4, 4, 1)),
        ({"tp": 2, "dp": 16}, "data", Group(16, 4, 4)),
        ({"tp": 2, "cp": 2, "dp": 4}, "data", Group(8, 2, 4)),
        ({"tp": 8, "dp": 4}, "data", Group(4, 4, 1)),
        ({"ep": 8, "dp": 16}, "expert", Group(8, 1, 8)),
        ({"tp": 2, "ep": 8, "dp": 16}, "expert", Group(8, 2, 4)),
        ({"ep": 8, "dp": 16}, "expert-data", Group(2, 2, 1)),
        ({"tp": 8, "dp": 8, "ep": 64, "etp": 1}, "expert", Group(64, 8, 8)),
        ({"tp": 4, "dp": 2, "ep": 8, "etp": 1}, "expert", Group(8, 1, 8)),
        ({"tp": 1, "dp": 32, "ep": 4, "etp": 4}, "expert", Group(4, 2, 2)),
        ({"tp": 1, "dp": 32, "ep": 4, "etp": 4}, "expert-tensor", Group(4, 1, 4)),
        ({"tp": 2, "cp": 2, "dp": 8, "ep": 8, "etp": 1}, "expert-data", Group(4, 4, 1)),
        ({"tp": 3, "dp": 4, "pp": 2}, "tensor", Group(3, 2, 1)),  # the third group of three lies on two nodes
        ({"tp": 3, "pp": 2}, "tensor", Group(3, 1, 3)),  # there is none
    ],
)
def test_groups_lie_where_gpus_are_numbered(system, sizes, group, expected):
    """Tensor groups are neighbours, context groups lie tp apart, data groups too, with context joined to them."""
    assert group_of(group, LayoutSpec(**{"pp": 1} | sizes), system) == expected


@pytest.mark.parametrize("order", ORDERS)
def test_groups_are_those_that_the_numbering_gives(order):
    """By enumeration of all GPUs: the group that lies on most nodes, and the fewest GPUs on one of its nodes."""
    system = load_system("dgx_h100_nodes")
    sizes = [(2, 2, 4, 4, 2), (4, 1, 6, 2, 3), (1, 3, 8, 4, 2), (6, 1, 4, 4, 1), (2, 4, 4, 8, 1)]
    folded = [(4, 2, 2, 8, 2, 1), (2, 2, 4, 4, 1, 4), (6, 1, 4, 6, 2, 2), (8, 1, 1, 8, 3, 1)]
    if order == ORDERS[1]:
        sizes, folded = [(2, 2, 4, 2, 4), (3, 1, 2, 1, 4)], [(1, 1, 6, 1, 4, 1), (2, 1, 4, 2, 3, 1), (4, 2, 3, 2, 2, 4)]
    for tp, cp, dp, ep, pp, etp in [(*one, one[0]) for one in sizes] + folded:
        layout = LayoutSpec(pp=pp, tp=tp, cp=cp, dp=dp, ep=ep, etp=etp, order=order)
        tensor, context, data, rank = np.indices((tp, cp, dp, pp)).reshape(4, -1)
        outside = data + dp * rank if order == ORDERS[0] else rank + pp * data
        gpu = tensor + tp * (context + cp * outside)
        place = tensor + tp * (context + cp * data)  # among those of its rank
        shard, expert = place % etp, place // etp % ep
        alike = {
            "tensor": (context, data, rank), "context": (tensor, data, rank), "data": (tensor, rank),
            "expert": (rank, place // (etp * ep), shard), "expert-data": (rank, shard, expert),
            "expert-tensor": (rank, place // etp),
        }  # fmt: skip
        for name, fixed in alike.items():
            groups = {}
            for number, key in zip(gpu.tolist(), zip(*(one.tolist() for one in fixed), strict=True), strict=True):
                groups.setdefault(key, []).append(number // 8)
            counts = [np.unique(nodes, return_counts=True)[1] for nodes in groups.values()]
            found = group_of(name, layout, system)
            assert found.size == len(next(iter(groups.values()))), name
            assert found.nodes == max(map(len, counts)), name
            assert found.per_node in [each.min() for each in counts if len(each) == found.nodes], name


def test_without_nodes_every_gpu_hangs_on_the_network():
    """A system without nodes has one GPU on each."""
    assert group_of("tensor", LayoutSpec(tp=8), load_system("dgx_h100")) == Group(8, 8, 1)


# ---- collectives ---------------------------------------------------------------------------------

GB = 1e9
DEEPEP, UNDRAWN = {"dispatcher": "deepep"}, comb(224, 8) / comb(256, 8)
FOUR = 4 / 8 * (1 - comb(96, 8) / comb(128, 8))
BY_HAND = [
    # inside a node of 100 GB/s, 1 us: n = 8
    ({"tp": 8}, "all-reduce", "tensor", 2 * 7 / 8 / 100 + 14e-6),
    ({"tp": 8}, "all-gather", "tensor", 7 / 8 / 100 + 7e-6),
    ({"tp": 8}, "reduce-scatter", "tensor", 7 / 8 / 100 + 7e-6),
    ({"cp": 8}, "ring", "context", 7 / 8 / 100 + 7e-6),
    ({"dp": 8, "ep": 8}, "all-to-all", "expert", 7 / 8 / 100 + 5e-6),
    # one GPU on each of four nodes, 10 GB/s, 10 us
    ({"tp": 8, "dp": 4}, "all-reduce", "data", 2 * 3 / 4 / 10 + 60e-6),
    ({"tp": 8, "dp": 4}, "reduce-scatter", "data", 3 / 4 / 10 + 30e-6),
    ({"tp": 8, "cp": 4}, "ring", "context", 3 / 4 / 10 + 30e-6),
    # two nodes with eight each: inside on V, between on V/8
    ({"dp": 16}, "all-gather", "data", 7 / 8 / 100 + 1 / 2 / 8 / 10 + 7e-6 + 10e-6),
    ({"dp": 16}, "all-reduce", "data", 2 * (7 / 8 / 100 + 1 / 2 / 8 / 10 + 7e-6 + 10e-6)),
    ({"cp": 16}, "ring", "context", 15 / 16 / 10 + 150e-6),
    ({"dp": 16, "ep": 16}, "all-to-all", "expert", 8 / 16 / 10 + 10e-6),
    # eight nodes: every copy by itself, wherever experts are
    ({"dp": 64, "ep": 64, "expert_nodes": 4}, "all-to-all", "expert", 7 / 8 / 10 + 10e-6),
    # a dispatcher: once to 5.3 of eight nodes; in a node, eight of 256 experts are on 5.3 of eight GPUs
    ({"dp": 64, "ep": 64} | DEEPEP, "all-to-all", "expert", (1 - UNDRAWN) * 7 / 8 / 8.2 + 15e-6),
    ({"dp": 8, "ep": 8, "dispatcher": "hybridep"}, "all-to-all", "expert", (1 - UNDRAWN) * 7 / 8 / 100 + 5e-6),
    # its experts are 128 of four nodes, one of which has none of them with C(96, 8) / C(128, 8); or 32 of one
    ({"dp": 64, "ep": 64, "expert_nodes": 4} | DEEPEP, "all-to-all", "expert", FOUR * 7 / 8 / 8.2 + 15e-6),
    ({"dp": 64, "ep": 64, "expert_nodes": 1} | DEEPEP, "all-to-all", "expert", 7 / 8 / 8 / 8.2 + 15e-6),
    # four nodes with two each
    ({"tp": 4, "dp": 8}, "reduce-scatter", "data", 1 / 2 / 100 + 3 / 4 / 2 / 10 + 1e-6 + 30e-6),
    ({}, "all-reduce", "tensor", 0.0),
]


@pytest.mark.parametrize(("sizes", "what", "group", "expected"), BY_HAND)
def test_collectives_take_the_time_derived_by_hand(system, sizes, what, group, expected):
    """Of 1 GB, on links of 100 GB/s and 1 us inside nodes of eight, and of 10 GB/s and 10 us between."""
    layout = LayoutSpec(**{"pp": 1} | sizes)
    assert collective_s(Collective(what, group, GB, (8, 256)), layout, system) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("sizes", "what", "group", "_"), BY_HAND)
def test_efficiencies_latencies_and_a_shared_nic_reach_the_links(system, sizes, what, group, _):
    """Half the efficiency is half the bandwidth; a NIC that eight GPUs share is an eighth of one for each."""
    layout, one = LayoutSpec(**{"pp": 1} | sizes), Collective(what, group, GB, (8, 256))
    slower = replace(system, collectives=CollectiveSpec(0.5, 0.5, node_latency_s=2e-6, network_latency_s=20e-6))
    assert collective_s(one, layout, slower) == pytest.approx(2 * collective_s(one, layout, system))
    shared = replace(system, nodes=replace(system.nodes, shared_nic=True))
    spread = min(8, layout.tp * layout.cp * layout.dp)
    split = replace(system, network_bandwidth_bytes_per_s=system.network_bandwidth_bytes_per_s / spread)
    assert collective_s(one, layout, shared) == pytest.approx(collective_s(one, layout, split))


def test_data_parallel_collectives_may_congest(system):
    """Four nodes, to the power of a half: half the bandwidth."""
    layout, one = LayoutSpec(pp=1, tp=8, dp=4), Collective("all-gather", "data", GB)
    halved = replace(system, network_bandwidth_bytes_per_s=system.network_bandwidth_bytes_per_s / 2)
    congested = replace(system, collectives=CollectiveSpec(data_congestion=0.5))
    assert collective_s(one, layout, congested) == pytest.approx(collective_s(one, layout, halved))


def test_data_parallel_collectives_may_have_an_efficiency_of_their_own(system):
    """Between nodes; those of tensor groups keep the network's."""
    own = replace(system, collectives=CollectiveSpec(data_efficiency=0.5))
    layout = LayoutSpec(pp=1, tp=16, dp=4)
    data, tensor = Collective("all-gather", "data", GB), Collective("all-gather", "tensor", GB)
    assert collective_s(data, layout, own) > 1.9 * collective_s(data, layout, system)
    assert collective_s(tensor, layout, own) == collective_s(tensor, layout, system)


def test_exchanges_between_nodes_may_have_an_efficiency_of_their_own(system):
    """Not those within a node, nor other collectives."""
    own = replace(system, collectives=CollectiveSpec(exchange_efficiency=0.5))
    far, near = (LayoutSpec(pp=1, dp=gpus, ep=gpus) for gpus in (32, 8))
    exchange, gather = Collective("all-to-all", "expert", GB), Collective("all-gather", "data", GB)
    assert collective_s(exchange, far, own) > 1.9 * collective_s(exchange, far, system)
    assert collective_s(exchange, near, own) == collective_s(exchange, near, system)
    assert collective_s(gather, far, own) == collective_s(gather, far, system)


# ---- kernels -------------------------------------------------------------------------------------

MIXED = Kernels.of([(1e12 * (n + 1), 1e9, n, 512.0, 128.0, 2.0) for n in range(9)])


def test_without_constants_kernels_keep_the_roofline():
    """To the bit, whatever their kind; each launch has the fixed cost."""
    system = load_system("dgx_a100")
    single = MIXED._replace(count=np.ones(9))
    expected = [roofline_s(Work(*work), system) for work in zip(single.flops, single.bytes, strict=True)]
    assert kernels_s(single, system).tolist() == expected
    assert kernels_s(single, replace(system, kernels=KernelSpec())).tolist() == expected
    assert kernels_s(MIXED, system) - kernels_s(single, system) == pytest.approx([system.compute_latency_s] * 9)


def test_products_saturate_in_rows_and_width():
    """A product of half_rows rows attains half of what a tall one does, and so in the narrower of its other sides."""
    system = replace(load_system("dgx_a100"), compute_latency_s=0.0)
    tall = Kernels.of([(1e15, 0.0, Kernel.PRODUCT, np.inf, np.inf, 1.0)])
    flat = Kernels.of([(1e15, 0.0, Kernel.PRODUCT, 300.0, 20.0, 1.0)])
    spec = KernelSpec(product_half_rows=300.0, product_half_width=20.0)
    plain, saturating = kernels_s(tall, system), kernels_s(flat, replace(system, kernels=spec))
    assert saturating == pytest.approx(4 * plain)
    assert kernels_s(tall, replace(system, kernels=spec)) == pytest.approx(plain)


@pytest.mark.parametrize(
    ("constants", "kinds", "factor"),
    [
        ({"weight_grad_efficiency": 0.5}, [Kernel.WEIGHT_PRODUCT], 2.0),
        ({"attention_efficiency": 0.3}, [Kernel.ATTENTION, Kernel.ATTENTION_BACKWARD], 2.0),
        ({"attention_backward_efficiency": 0.2}, [Kernel.ATTENTION_BACKWARD], 3.0),
        ({"batched_efficiency": 0.15}, [Kernel.BATCHED], 4.0),
    ],
)
def test_each_kind_of_kernel_has_its_efficiency(constants, kinds, factor):
    """Of the peak, of which all attain 0.6 without; no other kind changes."""
    system = replace(load_system("dgx_a100"), compute_latency_s=0.0)
    ratio = kernels_s(MIXED, replace(system, kernels=KernelSpec(**constants))) / kernels_s(MIXED, system)
    assert ratio[kinds] == pytest.approx(factor)
    assert np.delete(ratio, kinds) == pytest.approx(1)


def test_softmax_and_loss_have_their_share_of_the_memorys_bandwidth():
    """Half the efficiency, twice the time of a kernel that is bound by memory; norms and residual sums, too."""
    system = replace(load_system("dgx_a100"), memory_latency_s=0.0)
    moved = Kernels.of([(0.0, 1e12, n, np.inf, np.inf, 1.0) for n in range(9)])
    spec = KernelSpec(stream_efficiency=0.1, softmax_efficiency=0.4, loss_efficiency=0.2)
    ratio = kernels_s(moved, replace(system, kernels=spec)) / kernels_s(moved, system)
    assert ratio[[Kernel.STREAM, Kernel.SOFTMAX, Kernel.LOSS]] == pytest.approx([8, 2, 4])
    assert np.delete(ratio, [Kernel.STREAM, Kernel.SOFTMAX, Kernel.LOSS]) == pytest.approx(1)


def test_fp8_doubles_products_alone():
    """Attention keeps 16 bits; a system without a peak for fp8 is refused."""
    system = load_system("dgx_a100")
    fast = replace(system, compute_latency_s=0.0, fp8_peak_compute_flops=2 * system.peak_compute_flops)
    ratio = kernels_s(MIXED, fast) / kernels_s(MIXED, fast, "fp8")
    assert ratio[[Kernel.PRODUCT, Kernel.WEIGHT_PRODUCT]] == pytest.approx(2)
    assert ratio[[Kernel.ATTENTION, Kernel.ATTENTION_BACKWARD, Kernel.BATCHED]] == pytest.approx(1)
    with refused(CostError, "precision", "is not supported by dgx_a100", remedy="fp8"):
        kernels_s(MIXED, system, "fp8")


# ---- stages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", packaged("systems"))
def test_a_layout_of_ones_changes_nothing(name):
    """To the bit, in times, transfers and bytes of the paper's model; the optimizer's step alone is new."""
    model, system, table = load_model("paper"), load_system(name), build("chimera", 4, 8)
    ones = LayoutSpec(microbatch_size=model.global_batch // 8)
    plain, laid = (model_costs(table, model, system, layout=layout) for layout in (None, ones))
    steps = slice(OpKind.R + 1)
    assert (plain.compute_s[steps] == laid.compute_s[steps]).all()
    assert (plain.occupancy_s == laid.occupancy_s).all()
    assert (plain.latency_s == laid.latency_s).all()
    old, new = (stages(table, model, system, layout=layout) for layout in (None, ones))
    others = {"reduction_s", "gather_s", "optimizer_s", "cut"}
    for name in vars(old).keys() - others:
        assert np.all(getattr(old, name) == getattr(new, name)), name


def test_parts_sum_to_the_operations(llama):
    """Seconds of F, I and W are those of their parts, none of which a layout without its collectives has."""
    gathered = replace(SPREAD, context_exchange="all-gather")
    for layout in (gathered, replace(gathered, zero=3), LayoutSpec(pp=4, dp=2)):
        for stage in stages(TABLE, llama, load_system("h100"), layout=layout):
            sums = [sum(part) for part in stage.parts_s]
            assert sums == pytest.approx([stage.forward_s, stage.input_grad_s, stage.weight_grad_s], rel=1e-12)
            found = {name for name, *seconds in zip(PARTS, *stage.parts_s, strict=True) if any(seconds)}
            expected = {"computing"} | ({"tensor", "context"} if layout.tp > 1 else set())
            assert found == expected | ({"data"} if layout.zero == 3 else set())


def test_exposed_tensor_time_is_that_of_the_collectives(llama, system):
    """Two all-gathers and two reduce-scatters a block forward, as many backward, and two gathers for the weights."""
    layout = LayoutSpec(pp=4, tp=8, sequence_parallel=True, microbatch_size=2)
    stage = stages(TABLE, llama, system, layout=layout)[1]
    tensor = 2 * llama.sequence * llama.hidden * llama.element_bytes
    once = collective_s(Collective("all-gather", "tensor", tensor), layout, system)
    found = [part[PARTS.index("tensor")] / stage.blocks / once for part in stage.parts_s]
    assert found == pytest.approx([4, 4, 2])
    hidden = stages(TABLE, llama, system, layout=replace(layout, overlap_tensor=True))[1]
    for part, all_of_it in zip(hidden.parts_s, stage.parts_s, strict=True):
        assert part[0] == all_of_it[0]
        assert part[1] < all_of_it[1]


def test_full_recomputation_runs_the_forward_again(llama, system):
    """With its collectives; a number of layers as many of them."""
    layout = LayoutSpec(pp=4, tp=8, sequence_parallel=True, layers="even", recompute="none")
    none, full, some = (
        stages(TABLE, llama, system, layout=replace(layout, recompute=recompute))[1]
        for recompute in ("none", "full", 5)
    )
    assert full.input_grad_s == pytest.approx(none.input_grad_s + none.forward_s)
    assert some.input_grad_s == pytest.approx(none.input_grad_s + 5 / 20 * none.forward_s)
    assert full.activation_bytes < some.activation_bytes < none.activation_bytes
    assert some.activation_bytes == pytest.approx(0.25 * full.activation_bytes + 0.75 * none.activation_bytes)


def test_the_host_holds_short_blocks_up(llama):
    """A phase is at least as long as its launches, and long ones hardly notice."""
    system, layout = load_system("h100"), LayoutSpec(pp=4, tp=8, layers="even")
    kernels = replace(system.kernels, block_host_s=0.0)
    free, bound = (
        stages(TABLE, llama, replace(system, kernels=one), layout=layout)[1]
        for one in (kernels, replace(kernels, block_host_s=1.0, host_exponent=40.0))
    )
    assert [bound.forward_s, bound.input_grad_s, bound.weight_grad_s] == pytest.approx([20.0] * 3, rel=1e-3)
    hardly = stages(TABLE, llama, replace(system, kernels=replace(kernels, block_host_s=1e-5)), layout=layout)[1]
    assert free.forward_s < hardly.forward_s < 1.001 * free.forward_s


def test_the_host_launches_each_kernel_of_experts(llama):
    """Those that experts and their router add to a dense block's; a dense model has none."""
    system, layout = load_system("h100"), LayoutSpec(pp=4, tp=4, dp=2, ep=8, etp=1, sequence_parallel=True)
    bound = replace(system, kernels=replace(system.kernels, block_host_s=0.0, expert_host_s=1.0, host_exponent=40.0))
    stage = stages(TABLE, load_model("mixtral_8x22b_g8t8"), bound, layout=layout)[1]
    router, moves, products = 1 + 40, 4, 2 * 8 + 1  # moves: dispatch, two sorts, combine
    assert stage.forward_s == pytest.approx(14 * (router + moves + products - 3), rel=1e-3)
    layout = LayoutSpec(pp=4, tp=4, dp=2, layers="even")
    free = replace(system, kernels=replace(system.kernels, block_host_s=0.0))
    dense, undelayed = (stages(TABLE, llama, one, layout=layout)[1] for one in (bound, free))
    assert dense.forward_s == undelayed.forward_s


@pytest.mark.parametrize("zero", range(4))
def test_zero_moves_what_it_shares(llama, system, zero):
    """0 sums once, 1 scatters and gathers, 2 scatters with every microbatch, 3 gathers before every pass, too."""
    layout = LayoutSpec(pp=4, tp=8, dp=4, zero=zero)
    stage = stages(TABLE, llama, system, layout=layout)[1]
    scatter, gather = (
        collective_s(Collective("all-gather", "data", stage.parameters * width), layout, system)
        for width in (llama.gradient_bytes, llama.element_bytes)
    )
    assert stage.reduction_s == pytest.approx([2 * scatter, scatter, 0, 0][zero])
    assert stage.gather_s == pytest.approx([0, gather, gather, 0][zero])
    forward, input_grad, weight_grad = (part[PARTS.index("data")] for part in stage.parts_s)
    each = (stage.blocks - 1) * 30e-6  # a latency for each block's collective, where the stage has them one by one
    assert [forward, input_grad] == pytest.approx([gather + each] * 2 if zero == 3 else [0, 0])
    assert weight_grad == pytest.approx(scatter + each if zero >= 2 else 0)
    owned = stage.parameters / (4 if zero else 1)
    moved = owned * (llama.gradient_bytes + 2 * llama.optimizer_bytes + llama.element_bytes)
    attained = system.memory_bandwidth_bytes_per_s * system.memory_efficiency
    assert stage.optimizer_s == pytest.approx(moved / attained + system.memory_latency_s)


def test_experts_are_summed_over_fewer_ranks(mixture, system):
    """Over dp x cp / ep; the rest of a block over dp x cp."""
    model, layout = mixture, LayoutSpec(pp=4, tp=2, dp=16, ep=8)
    stage = stages(TABLE, model, system, layout=layout)[1]
    dense = stage.parameters - stage.expert_parameters
    volumes = {"data": dense, "expert-data": stage.expert_parameters}
    expected = sum(
        collective_s(Collective("all-reduce", group, held * model.gradient_bytes), layout, system)
        for group, held in volumes.items()
    )
    assert 0 < stage.expert_parameters < stage.parameters
    assert stage.reduction_s == pytest.approx(expected)


def test_tied_embeddings_are_summed_between_the_ends(llama, system):
    """All of their gradient once over the link between the first and the last rank."""
    layout = LayoutSpec(pp=4, tp=8)
    tied = replace(llama, tied_embeddings=True)
    found = [stage.reduction_s for stage in stages(TABLE, tied, system, layout=layout)]
    once = llama.vocabulary / 8 * llama.hidden * llama.gradient_bytes / 10e9 + 20e-6
    assert found == pytest.approx([once, 0, 0, once])


def test_costs_hold_the_iterations_ends(llama):
    """Row R is the reduction; a row for the optimizer has the step and the gathering."""
    system = load_system("h100")
    held, costs = stages(TABLE, llama, system, layout=SPREAD), model_costs(TABLE, llama, system, layout=SPREAD)
    assert costs.compute_s[OpKind.R] == pytest.approx([stage.reduction_s for stage in held])
    row = costs.compute_s[OpKind.O]
    assert row == pytest.approx([stage.optimizer_s + stage.gather_s for stage in held])


# ---- messages ------------------------------------------------------------------------------------


def test_messages_are_cut_by_context_and_sequence_parallelism(llama):
    """Without sequence parallelism every tensor-parallel rank sends the whole of its tokens."""
    whole = 2 * llama.sequence * llama.hidden * llama.element_bytes
    for sequence_parallel, parts in ((False, 2), (True, 16)):
        layout = LayoutSpec(pp=4, tp=8, cp=2, microbatch_size=2, sequence_parallel=sequence_parallel)
        assert message_bytes(TABLE, llama, layout) == whole / parts


@pytest.mark.parametrize(
    ("sizes", "inside"),
    [
        ({"tp": 2}, [True, True, True]),
        ({"tp": 4}, [True, False, True]),
        ({"tp": 8}, [False, False, False]),
        ({"tp": 2, "dp": 2}, [True, False, True]),
        ({"tp": 2, "dp": 2, "order": ORDERS[1]}, [True, True, True]),
        ({"tp": 4, "dp": 2, "order": ORDERS[1]}, [True, False, True]),
        ({"tp": 3, "dp": 2, "order": ORDERS[1]}, [False, False, False]),  # GPUs 13 and 16 of the second replica
        ({"tp": 3}, [True, False, False]),  # ranks 2 and 3 are GPUs 6 to 8 and 9 to 11, the first on two nodes
    ],
)
def test_ranks_share_a_node_where_all_their_gpus_do(llama, system, sizes, inside):
    """Neighbours in the pipeline are tp x cp x dp GPUs apart, or tp x cp if replicas are outside."""
    nodes = pipeline_links(TABLE, llama, system, LayoutSpec(pp=4, **sizes)).nodes
    assert (nodes[1:] == nodes[:-1]).tolist() == inside


def test_gpus_that_share_a_nic_send_one_after_the_other(llama, system):
    """The messages of a rank's GPUs on one node share its NIC."""
    shared = replace(system, nodes=replace(system.nodes, shared_nic=True))
    own, split = (pipeline_links(TABLE, llama, one, LayoutSpec(pp=4, tp=4)) for one in (system, shared))
    assert split.between[0] == pytest.approx(4 * own.between[0])
    assert (own.nics, split.nics) == (None, (0, 0, 1, 1))


def test_ranks_of_several_gpus_are_placed_blocked(llama, system):
    """A placement of single GPUs is refused."""
    folded = replace(system, nodes=replace(system.nodes, placement="folded"))
    with refused(CostError, "nodes.placement", "places ranks of one GPU", value="folded"):
        model_costs(TABLE, llama, folded, layout=LayoutSpec(pp=4, tp=8))


# ---- what never gets slower ----------------------------------------------------------------------

BETTER = [
    lambda s: replace(s, network_bandwidth_bytes_per_s=2 * s.network_bandwidth_bytes_per_s),
    lambda s: replace(s, network_latency_s=0.0),
    lambda s: replace(s, peak_compute_flops=2 * s.peak_compute_flops),
    lambda s: replace(s, memory_bandwidth_bytes_per_s=2 * s.memory_bandwidth_bytes_per_s),
    lambda s: replace(s, nodes=replace(s.nodes, node_bandwidth_bytes_per_s=2 * s.nodes.node_bandwidth_bytes_per_s)),
    lambda s: replace(s, collectives=replace(s.collectives, node_efficiency=1.0, network_efficiency=1.0)),
    lambda s: replace(s, kernels=replace(s.kernels, product_half_rows=0.0, block_host_s=0.0)),
]


@pytest.mark.parametrize("better", BETTER, ids=range(len(BETTER)))
@pytest.mark.parametrize("overlap", [False, True])
def test_a_better_system_is_never_slower(llama, better, overlap):
    """No operation, transfer, reduction or step takes longer; the sum of all takes less."""
    system, layout = load_system("h100"), replace(SPREAD, layers="even", overlap_tensor=overlap)
    old, new = (model_costs(TABLE, llama, one, layout=layout) for one in (system, better(system)))
    tables = [(getattr(old, name), getattr(new, name)) for name in ("compute_s", "occupancy_s", "latency_s")]
    assert all((one >= other * (1 - 1e-12)).all() for one, other in tables)
    assert sum(one.sum() for one, _ in tables) > sum(other.sum() for _, other in tables)


# ---- memory --------------------------------------------------------------------------------------


def test_memory_is_the_sum_of_its_parts(llama):
    """On every rank; without a layout there are four parts."""
    system = load_system("h100")
    held = memory(TABLE, llama, stages(TABLE, llama, system, layout=SPREAD), SPREAD, system)
    assert held.total == pytest.approx(np.sum(held, axis=0))
    assert (held.reserve == system.reserve_bytes).all()
    assert held.logits.argmax() == 3
    assert held.fits(system) == (held.total.max() <= system.memory_capacity_bytes)
    plain = memory(TABLE, llama, stages(TABLE, llama, system))
    assert (plain.working, plain.logits, plain.buffers, plain.reserve) == (0, 0, 0, 0)


@pytest.mark.parametrize("zero", range(4))
def test_zero_shares_state_among_data_parallel_ranks(llama, zero):
    """Optimizer, gradients and weights from stages 1, 2 and 3 on; context parallelism joins the data group."""
    layout = replace(SPREAD, zero=zero)
    held = stages(TABLE, llama, load_system("h100"), layout=layout)
    weights, gradients, optimizer = (part[1] / held[1].parameters for part in persistent_bytes(held, llama, layout))
    widths = llama.element_bytes, llama.gradient_bytes, llama.optimizer_bytes
    shared = [width / (8 if zero >= least else 1) for width, least in zip(widths, (3, 2, 1), strict=True)]
    assert [weights, gradients, optimizer] == pytest.approx(shared)


def test_experts_share_state_among_fewer_ranks(mixture):
    """Those that hold the same ones: dp x cp / ep."""
    model, layout = mixture, LayoutSpec(pp=4, dp=16, ep=8, zero=1)
    held = stages(TABLE, model, load_system("h100"), layout=layout)
    stage = held[1]
    expected = (stage.parameters - stage.expert_parameters) / 16 + stage.expert_parameters / 2
    assert persistent_bytes(held, model, layout)[2][1] == pytest.approx(expected * model.optimizer_bytes)


def test_bytes_per_parameter_need_not_be_whole(llama):
    """As those of an optimizer in 8 bits with block-wise scales."""
    model = replace(llama, optimizer_bytes=6.25)
    held = stages(TABLE, model, load_system("h100"), layout=SPREAD)
    assert persistent_bytes(held, model, SPREAD)[2] == pytest.approx([one.parameters * 6.25 / 8 for one in held])


def test_recomputation_works_on_one_block_at_a_time(llama):
    """Full recomputation keeps the inputs of blocks and holds one block's other activations while it runs."""
    system, layout = load_system("h100"), LayoutSpec(pp=4, tp=8, sequence_parallel=True, recompute="none")
    none, full = (stages(TABLE, llama, system, layout=replace(layout, recompute=one))[1] for one in ("none", "full"))
    entry = llama.sequence * llama.hidden * llama.element_bytes / 8
    assert full.activation_bytes == pytest.approx(full.blocks * entry)
    assert none.activation_bytes / none.blocks == pytest.approx(entry + full.working_bytes)
    assert none.working_bytes == 0


def test_every_module_has_operations():
    """What a way lists runs again in some model."""
    marks = {
        operation.module
        for name in packaged("models")
        for operation in block_operations(load_model(name), 1, LayoutSpec(tp=2, sequence_parallel=True))
    }
    assert marks == {None, *Module}


def test_a_way_may_drop_a_part_of_what_another_drops(llama, monkeypatch):
    """The activation function alone is one entry: its result, the input of the MLP's last product, is not kept."""
    monkeypatch.setitem(MODES, "activations", RecomputeMode((Module.ACTIVATION,), bool))
    of_ways = {way: layer_work(unchecked(llama, recompute=way), 1) for way in ("none", "activations", "light", "full")}
    kept, dropped = ({way: work.sizes.activations[1, n] for way, work in of_ways.items()} for n in (0, 2))  # no scores
    assert dropped["activations"] == llama.sequence * llama.mlp_hidden * llama.element_bytes
    assert dropped["none"] == 0 < dropped["activations"] < dropped["light"] < dropped["full"] == kept["none"]
    assert all(kept[way] + dropped[way] == kept["none"] for way in of_ways)
    again = {way: np.sum(work.kernels.slot % len(Phase) == Phase.RECOMPUTE) for way, work in of_ways.items()}
    assert again["none"] == 0 < again["activations"] == 1 < again["light"] < again["full"]


def test_light_recomputation_keeps_no_masks_of_dropout(llama):
    """A layer's two masks, a byte a number, are dropped and made again; the stream that norms read stays."""
    models = [unchecked(llama, dropout=dropout) for dropout in (False, True)]
    held = {
        way: [layer_work(replace(model, recompute=way), 1).sizes.activations[1, :2].sum() for model in models]
        for way in ("none", "light")
    }
    assert np.ptp(held["none"]) == 2 * llama.sequence * llama.hidden
    assert np.ptp(held["light"]) == 0


def test_single_modules_run_again():
    """One or several, in any order: what they drop adds up, and all of them drop less than the whole layer."""
    model, layout = load_model("deepseek_v3"), LayoutSpec(ep=8, dp=8, pp=1)

    def layer(way, phase=Phase.RECOMPUTE):
        work = layer_work(model, 1, replace(layout, recompute=way))
        place = work.layers.index(("block", way))
        kernels = work.kernels.slot == place * len(Phase) + phase
        return work.sizes.activations[place, 2], kernels.sum(), work.kernels.flops[kernels].sum()

    nothing, forward = layer("none"), layer("none", Phase.FORWARD)
    assert nothing == (0, 0, 0)
    core = layer("core_attn")
    assert core[:2] == (0, 1)  # fused attention keeps no scores; its output is the projection's input
    ways = [np.array(layer(way)) for way in ("mla_up_proj", "moe_act", "moe", "shared_experts", "layernorm")]
    assert all((way > 0).all() for way in ways)
    assert np.array_equal(layer("mla_up_proj+moe_act"), ways[0] + ways[1])
    assert np.array_equal(layer("moe+shared_experts+moe_act"), ways[2])
    assert ways[2][2] < layer("full")[2] == forward[2]
    assert layer("mlp") == nothing  # of dense blocks alone
    with refused(SpecificationError, "recompute", "must be"):
        LayoutSpec(recompute="moe_act+experts")


def test_empty_stages_hold_nothing(llama):
    """A stage of the head alone has no blocks; its memory is no error."""
    layout = LayoutSpec(pp=4, tp=8, layers=(27, 27, 26, 0))
    held = memory(TABLE, llama, stages(TABLE, llama, load_system("h100"), layout=layout), layout)
    assert np.isfinite(held.total).all()
    assert held.activations[3] < held.activations[2]


def test_fp8_has_constants_of_its_own_and_spares_the_output_projection():
    """Its limit and half-widths replace those of bf16 in products, and in nothing else."""
    spec = KernelSpec(product_half_width=64.0, fp8_efficiency=0.3, fp8_half_rows=100.0, fp8_half_width=300.0)
    system = replace(load_system("dgx_a100"), compute_latency_s=0.0, fp8_peak_compute_flops=1e15, kernels=spec)
    product = Kernels.of([(1e15, 0.0, Kernel.PRODUCT, 100.0, 100.0, 1.0)])
    output = product._replace(kernel=np.array([Kernel.UNQUANTISED]))
    assert kernels_s(product, system, "fp8") == pytest.approx(1 / 0.3 * 2 * 4)
    assert kernels_s(output, system, "fp8") == kernels_s(product, system)


def test_products_keep_what_they_compute_with(llama):
    """In fp8 a byte and a scale for each input but attention's output, unless the layout says otherwise."""
    kept = {
        given: sum(layer_work(llama, 1, LayoutSpec(precision=given[0], kept_precision=given[1])).sizes.activations[1])
        for given in ((None, None), ("bf16", "fp8"), ("fp8", None), ("fp8", "bf16"), ("fp8", "fp8"))
    }
    tokens, attended, narrow = llama.sequence, llama.heads * llama.head_size, FORMATS["fp8"].kept_bytes
    inputs = tokens * llama.element_bytes * (2 * llama.hidden + llama.mlp_hidden)  # attention's, and both of the MLP
    assert kept["fp8", "bf16"] == kept[None, None]
    assert kept["fp8", None] == pytest.approx(kept[None, None] - inputs * (1 - narrow / llama.element_bytes))
    assert kept["fp8", "fp8"] == kept["bf16", "fp8"]
    assert kept["fp8", "fp8"] < kept["fp8", None] - tokens * attended * (llama.element_bytes - narrow)


def test_attention_slows_with_few_keys_and_all_arithmetic_with_the_clock():
    """Half of its fraction where the keys equal the constant; memory keeps its speed."""
    spec = KernelSpec(attention_efficiency=0.5, attention_half_length=1024.0, sustained_clock=0.8)
    system = replace(load_system("dgx_a100"), compute_latency_s=0.0, kernels=spec)
    attention = Kernels.of([(1e15, 0.0, Kernel.ATTENTION, 1024.0, np.inf, 1.0)])
    assert kernels_s(attention, system) == pytest.approx(1e15 / (system.peak_compute_flops * 0.5 * 0.5 * 0.8))
    moved = Kernels.of([(0.0, 1e12, Kernel.STREAM, np.inf, np.inf, 1.0)])
    assert kernels_s(moved, system) == kernels_s(moved, replace(system, kernels=KernelSpec()))


def test_runs_laid_side_by_side_need_not_have_the_same_layers(llama, mixture, system):
    """Leading blocks without experts, and numbers of recomputed layers, beside blocks that are all alike."""
    dense = replace(mixture, experts=replace(mixture.experts, dense_layers=3))
    given = {"layers": "even", "overlap_backward": False, "recompute": "none"}
    runs = [(llama, LayoutSpec(**given)), (dense, LayoutSpec(**given)), (llama, LayoutSpec(**given | {"recompute": 2}))]
    models, layouts = zip(*runs, strict=True)
    together = Runs([TABLE] * 3, models, layouts, system)
    compute_s, kept = together.tables(system)[0], together.bytes(system)[0]
    for (model, layout), columns in zip(runs, together.stages, strict=True):
        costs = model_costs(TABLE, model, system, layout=check_layout(layout, model, system, TABLE))
        np.testing.assert_allclose(compute_s[:, columns], costs.compute_s, rtol=1e-12)
        np.testing.assert_allclose(kept[columns], costs.stages.activation_bytes, rtol=1e-12)


def test_overlapped_phases_leave_the_slower_link():
    """A collective over nodes takes as long as the slower of its phases, and not less than either."""
    system, layout = load_system("dgx_h100_nodes"), LayoutSpec(pp=1, dp=64)
    systems = [replace(system, collectives=CollectiveSpec(overlapped_phases=both)) for both in (False, True)]
    times = [collective_line("all-reduce", "data", layout, one) for one in systems]
    inside, between = 2 * 7 / 8 / 450e9, 2 * 7 / 8 / 8 / 50e9
    assert [time.s_per_byte for time in times] == pytest.approx([inside + between, max(inside, between)])


def test_weights_in_the_number_format_are_kept_twice(llama):
    """By rows and by columns, of products in blocks: none, beside those of the model's precision, or alone."""
    layout, products = LayoutSpec(pp=4, tp=8, precision="mxfp8"), 8192 * (2 * 8192 + 2 * 1024 + 3 * 28672) * 20 / 8

    def weights(**values):
        each = replace(layout, **values)
        return memory(TABLE, llama, stages(TABLE, llama, load_system("b200"), each), each).weights[1]

    plain = weights(quantised_weights="none")
    assert weights(quantised_weights="beside") - plain == pytest.approx(products * 2 * (1 + 1 / 32))
    assert weights(quantised_weights="alone") - plain == pytest.approx(products * 2 / 32)
    assert weights(quantised_weights="beside", precision="bf16") == plain == weights()
    shared = {"zero": 3, "dp": 4, "gpus": None}
    copied = weights(quantised_weights="beside", **shared) - weights(**shared)
    assert copied == pytest.approx(products * 2 * (1 + 1 / 32) / 4)


def test_graphs_of_modules_keep_the_ends_of_a_stage(llama, mixture):
    """Of each microbatch their copy of the input, and the output of whole layers; with experts, the input alone."""
    for model, tensors in ((llama, 2), (mixture, 1)):
        stream = model.sequence * model.hidden * model.element_bytes
        kept = {way: stages(TABLE, model, load_system("h100"), LayoutSpec(pp=4, cuda_graphs=way)).activation_bytes
                for way in ("none", "modules", "full")}  # fmt: skip
        np.testing.assert_allclose(kept["modules"] - kept["none"], tensors * stream)
        assert np.array_equal(kept["full"], kept["none"])
