"""Collectives that a layout hides: under which kernels, and what is left of them."""

from dataclasses import replace

import numpy as np
import pytest

from ppmodel import build
from ppmodel.costs import PARTS, Collective, collective_s, stages
from ppmodel.specs import LayoutSpec, load_model, load_system

TABLE = build("1f1b", 4, 8)


@pytest.fixture(scope="module")
def llama():
    return load_model("llama3_70b")


@pytest.fixture(scope="module")
def system():
    """Nodes of eight."""
    return load_system("dgx_h100_nodes")


def test_no_product_hides_the_collectives_of_the_loss(llama, system):
    """They wait for all logits, or for each other; the head's gather is hidden under its product alone."""
    layout = LayoutSpec(pp=4, tp=8, sequence_parallel=True, overlap_tensor=True, layers="even")
    fast = replace(system, nodes=replace(system.nodes, node_latency_s=0.0))
    middle, last = (stages(TABLE, llama, fast, layout=layout)[place].parts_s[0] for place in (2, 3))
    loss = collective_s(Collective("all-reduce", "tensor", 4.0 * llama.sequence), layout, fast)
    assert last[PARTS.index("tensor")] - middle[PARTS.index("tensor")] == pytest.approx(3 * loss)


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize(("table", "halves"), [(TABLE, (1, 2)), (build("zb-h1", 4, 8), (2,))], ids=["whole", "halves"])
def test_hidden_reduction_leaves_what_the_last_backward_does_not_cover(llama, table, halves, zero):
    """Gradients are summed under the kernels of the operation that gives them."""
    system, layout = load_system("mid_cp_slow_nw"), LayoutSpec(pp=4, tp=8, dp=4, zero=zero)
    shown, hidden = (
        stages(table, llama, system, layout=replace(layout, overlap_gradients=one))[1] for one in (False, True)
    )
    under = sum(shown.parts_s[half][0] for half in halves)
    assert 0 < under < shown.reduction_s
    assert hidden.reduction_s == pytest.approx(shown.reduction_s - under)
    covered = replace(system, network_bandwidth_bytes_per_s=1e15, network_latency_s=0.0)
    assert stages(table, llama, covered, layout=replace(layout, overlap_gradients=True))[1].reduction_s == 0


def test_a_backward_hides_only_what_it_takes(llama):
    """With ZeRO 3 weights are gathered and gradients scattered under the same kernels, not each under all of them."""
    system = load_system("mid_cp_slow_nw")
    layout = LayoutSpec(pp=4, tp=8, dp=4, zero=3, layers="even")
    shown, hidden = (
        np.array(stages(TABLE, llama, system, layout=replace(layout, **switches))[1].parts_s)
        for switches in ({}, {"overlap_parameters": True, "overlap_gradients": True})
    )
    data = PARTS.index("data")
    saved = shown[1:, data].sum() - hidden[1:, data].sum()
    assert saved == pytest.approx(shown[1:, 0].sum())


def test_hidden_gathering_leaves_what_a_forward_does_not_cover(llama, system):
    """Parameters are gathered under the kernels of the first forward."""
    layout = LayoutSpec(pp=4, tp=8, dp=4, zero=1)
    shown, hidden = (
        stages(TABLE, llama, system, layout=replace(layout, overlap_parameters=one))[1] for one in (False, True)
    )
    assert hidden.gather_s == pytest.approx(max(0.0, shown.gather_s - shown.parts_s[0][0]))
