"""Collectives that a layout hides: under which kernels, and what is left of them."""

from dataclasses import replace

import numpy as np
import pytest

import ppmodel as pp
from ppmodel import build
from ppmodel.clusters.costs import PARTS, Collective, collective_s, stages
from ppmodel.clusters.specs import LayoutSpec, load_model, load_system

TABLE = build("1f1b", 4, 8)


@pytest.fixture(scope="module")
def llama():
    return load_model("llama3_70b")


@pytest.fixture(scope="module")
def system():
    """Nodes of eight, and slow links between them."""
    return replace(load_system("dgx_h100_nodes"), network_bandwidth_bytes_per_s=1e9)


def test_no_product_hides_the_collectives_of_the_loss(llama, system):
    """They wait for all logits, or for each other; the head's gather is hidden under its product alone."""
    layout = LayoutSpec(pp=4, tp=8, sequence_parallel=True, overlap_tensor=True, layers="even")
    fast = replace(system, nodes=replace(system.nodes, node_latency_s=0.0))
    middle, last = (stages(TABLE, llama, fast, layout=layout)[place].parts_s[0] for place in (2, 3))
    loss = collective_s(Collective("all-reduce", "tensor", 4.0 * llama.sequence), layout, fast)
    assert last[PARTS.index("tensor")] - middle[PARTS.index("tensor")] == pytest.approx(3 * loss)


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize(("table", "halves"), [(TABLE, (1, 2)), (build("zb-h1", 4, 8), (2,))], ids=["whole", "halves"])
def test_hidden_reduction_leaves_what_the_last_backward_does_not_cover(llama, system, table, halves, zero):
    """Gradients are summed under the kernels of the operation that gives them."""
    layout = LayoutSpec(pp=4, tp=8, dp=4, zero=zero)
    shown, hidden = (
        stages(table, llama, system, layout=replace(layout, overlap_gradients=one))[1] for one in (False, True)
    )
    under = sum(sum(shown.parts_s[half][:2]) for half in halves)
    assert 0 < under < shown.reduction_s
    assert hidden.reduction_s == pytest.approx(shown.reduction_s - under)
    covered = replace(system, network_bandwidth_bytes_per_s=1e15, network_latency_s=0.0)
    assert stages(table, llama, covered, layout=replace(layout, overlap_gradients=True))[1].reduction_s == 0


def test_the_last_stage_of_a_rank_hides_alone(llama, system):
    """A rank's reductions queue: that of its last stage begins behind the others, and hides under one backward."""
    table = build("interleaved-1f1b", 4, 8, chunks=2)
    layout = LayoutSpec(pp=4, tp=8, dp=4, layers="even")
    shown, hidden = (
        stages(table, llama, system, layout=replace(layout, overlap_gradients=one)) for one in (False, True)
    )
    saved = [one.reduction_s - other.reduction_s for one, other in zip(shown, hidden, strict=True)]
    backward = [sum(map(sum, (half[:2] for half in stage.parts_s[1:]))) for stage in shown]
    assert saved == pytest.approx([*backward[:4], 0, 0, 0, 0])


@pytest.mark.parametrize("zero", range(4))
@pytest.mark.parametrize("name", ["1f1b", "hanayo", "zb-h1"])
def test_faster_computing_is_never_slower(llama, system, name, zero):
    """However little of the collectives it then hides.

    From ZeRO 2 on, what hides under a forward need not hide under a backward: where the first gets shorter, the second
    gets longer, and orders that begin with forwards may take a little longer.
    """
    switches = {"overlap_tensor": True, "overlap_gradients": True, "overlap_parameters": True}
    layout = LayoutSpec(tp=8, dp=16, zero=zero, sequence_parallel=True, layers="even", **switches)
    times = [
        pp.simulate(name, 2, 2, model=llama, system=replace(system, **peaks), layout=layout).iteration_s
        for peaks in ({}, {"peak_compute_flops": 4e15}, {"memory_bandwidth_bytes_per_s": 2e13})
    ]
    assert max(times[1:]) <= times[0] * (1 + (1e-12 if zero < 2 else 0.005))


def test_a_backward_hides_only_what_it_takes(llama, system):
    """With ZeRO 3 weights are gathered and gradients scattered under the same kernels, not each under all of them."""
    layout = LayoutSpec(pp=4, tp=8, dp=4, zero=3, layers="even")
    shown, hidden = (
        np.array(stages(TABLE, llama, system, layout=replace(layout, **switches))[1].parts_s)
        for switches in ({}, {"overlap_parameters": True, "overlap_gradients": True})
    )
    data = PARTS.index("data")
    saved = shown[1:, data].sum() - hidden[1:, data].sum()
    assert saved == pytest.approx(shown[1:, :2].sum())


def test_hidden_gathering_leaves_what_a_forward_does_not_cover(llama, system):
    """Parameters are gathered under the kernels of the first forward."""
    layout = LayoutSpec(pp=4, tp=8, dp=4, zero=1)
    shown, hidden = (
        stages(TABLE, llama, system, layout=replace(layout, overlap_parameters=one))[1] for one in (False, True)
    )
    assert hidden.gather_s == pytest.approx(max(0.0, shown.gather_s - sum(shown.parts_s[0][:2])))


def test_hidden_collectives_leave_the_host_its_time(llama):
    """Where the host launches a block more slowly than a GPU runs it, what its backward hides gains nothing."""
    system = load_system("h100")
    slow = replace(system, kernels=replace(system.kernels, block_host_s=1.0, host_exponent=1e3))
    layout = LayoutSpec(pp=4, tp=8, sequence_parallel=True, layers="even")
    hidden, shown = (
        stages(TABLE, llama, slow, layout=replace(layout, overlap_backward=hides))[1].parts_s[:, :2].sum(axis=1)
        for hides in (True, False)
    )
    np.testing.assert_allclose(hidden, shown)
    np.testing.assert_allclose(hidden, llama.blocks / 4 * 1.0, rtol=1e-3)
