"""What the drawing of a layout says passes between GPUs is what costs are computed from."""

import pytest

from ppbook.pages.edges import block_collectives, edge_labels, edges, size, stage_ranks
from ppmodel import build
from ppmodel.clusters.costs import message_bytes, model_costs, parameters, persistent_bytes, stages
from ppmodel.clusters.specs import LayoutSpec, load_model, load_system
from ppmodel.ops import OpKind

SYSTEM = load_system("dgx_h100_nodes")


def run(name, chunks, **sizes):
    layout = LayoutSpec(pp=4, global_batch=64, **sizes)
    name_of, options = ("1f1b", {}) if chunks == 1 else ("interleaved-1f1b", {"chunks": chunks})
    schedule = build(name_of, 4, layout.microbatches, **options)
    return schedule, load_model(name), SYSTEM, layout


@pytest.mark.parametrize("name", ["llama3_70b", "gpt3_175b"])
@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize("sizes", [{"tp": 8, "dp": 2}, {"tp": 2, "cp": 2, "dp": 4, "microbatch_size": 2}])
def test_bytes_are_those_of_the_costs(name, chunks, sizes):
    """All-reduces and messages of w b s h / cp; gradients of a rank's stages, and over all ranks of the whole model."""
    schedule, model, system, layout = given = run(name, chunks, **sizes)
    exchanged = edges(*given).set_index(["group", "rank"])
    activations = model.element_bytes * layout.microbatch_size * model.sequence * model.hidden / layout.cp
    assert (exchanged.bytes["tensor"] == activations).all()
    assert (exchanged.bytes["pipeline"] == activations).all()
    assert message_bytes(schedule, model, layout) == activations
    cut = stages(schedule, model, system, layout=layout)
    gradients = persistent_bytes(cut, model, layout)[1]
    for rank in range(4):
        assert exchanged.bytes["data", rank] == pytest.approx(gradients[schedule.placement[0] == rank].sum())
    whole = parameters(model).total * model.gradient_bytes / layout.tp
    assert exchanged.bytes["data"].sum() == pytest.approx(whole, rel=0.01)  # each GPU of a group has its own norms


@pytest.mark.parametrize("chunks", [1, 2])
def test_an_iteration_has_all_layers_and_microbatches(chunks):
    """Four all-reduces a layer and microbatch; a message forward and one back for every boundary between ranks."""
    schedule, model, _, layout = given = run("llama3_70b", chunks, tp=8, dp=2)
    total = edges(*given).groupby("group")[["bytes", "iteration_bytes"]].agg({"bytes": "max", "iteration_bytes": "sum"})
    times = total.iteration_bytes / total.bytes
    assert times["tensor"] == 4 * model.blocks * layout.microbatches
    assert times["pipeline"] == 2 * (schedule.num_stages - 1) * layout.microbatches
    assert [len(phase) for phase in block_collectives(model, layout).values()] == [2, 2]
    assert sum(layers for layers, _ in stage_ranks(*given)) == model.blocks


def test_groups_of_one_exchange_nothing():
    """Neither rows nor labels."""
    layout = LayoutSpec(global_batch=8)
    given = build("1f1b", 1, 8), load_model("llama3_8b"), SYSTEM, layout
    assert edges(*given).empty
    assert edge_labels(edges(*given), *given[2:]) == {}


@pytest.mark.parametrize(
    ("tp", "dp", "out"),
    [
        (8, 2, {"tensor": False, "pipeline": True, "data": True}),
        (16, 2, {"tensor": True, "pipeline": True, "data": True}),
        (2, 4, {"tensor": False, "pipeline": True, "data": False}),
        (1, 2, {"pipeline": False, "data": False}),
    ],
)
def test_links_are_those_that_costs_use(tp, dp, out):
    """Between nodes or inside one, as the labels say, and as the seconds of a message need."""
    schedule, model, system, layout = given = run("gpt3_175b", 1, tp=tp, dp=dp)
    exchanged = edges(*given)
    between = exchanged.groupby("group").between.any()
    assert between.to_dict() == out
    labels = edge_labels(exchanged, system, layout)
    assert all(
        label.endswith("nodes, 50 GB/s" if between[group] else "node, 450 GB/s") for group, label in labels.items()
    )
    assert size(exchanged.bytes.max()) in labels["data"]
    occupied = model_costs(schedule, model, system, layout=layout).occupancy_s[OpKind.F, 0]
    message = message_bytes(schedule, model, layout)
    for rank in range(3):
        leaves = exchanged[(exchanged.group == "pipeline") & (exchanged["rank"] == rank)].between.item()
        bandwidth = 50e9 if leaves else 450e9
        assert occupied[rank] == pytest.approx(message / bandwidth)
