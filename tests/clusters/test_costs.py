"""Roofline, transfers and bytes against the closed forms of the literature."""

import gc
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from refusals import refused
from twin import roofline_s

from ppmodel import build
from ppmodel.clusters.costs import (
    Work,
    block_operations,
    embedding_operations,
    head_operations,
    message_bytes,
    microbatch_sequences,
    model_costs,
    stage_blocks,
    stages,
)
from ppmodel.clusters.specs import load_model, load_system, packaged
from ppmodel.clusters.specs.recompute import Module
from ppmodel.errors import CostError
from ppmodel.ops import OpKind
from ppmodel.simulation import compile_graph, run_graph, uniform_costs
from ppmodel.studies.measured import fitted_systems
from ppmodel.tables import parse_table

GEMMS = {"query-key-value", "scores", "context", "projection", "MLP up", "MLP down"}


@pytest.fixture(params=["paper", "gpt3_175b"])
def model(request):
    """A model of Megatron's form: 4h wide MLP, no grouping, dropout, materialised attention."""
    return replace(load_model(request.param), recompute="none")


@pytest.fixture
def system():
    return load_system("mid_cp_mid_nw")


def total(operations, phase):
    return sum(getattr(operation, phase).flops for operation in operations if operation.name in GEMMS)


def test_products_have_the_published_flops(model):
    """sbh(24h + 4s) forward, sbh(24h + 8s) for the input gradient, 24sbh^2 for the weights'."""
    b, s, h = 3, model.sequence, model.hidden
    operations = block_operations(model, b)
    assert total(operations, "forward") == pytest.approx(s * b * h * (24 * h + 4 * s))
    assert total(operations, "input_grad") == pytest.approx(s * b * h * (24 * h + 8 * s))
    assert total(operations, "weight_grad") == pytest.approx(24 * s * b * h**2)


GOLDEN = pd.read_csv(Path(__file__).parents[1] / "golden" / "block_work.csv", comment="#")


def tiny(name):
    plain = replace(
        load_model("paper"), hidden=16, heads=4, kv_heads=2, head_size=4, mlp_hidden=24, sequence=8, vocabulary=40
    )
    modern = {
        "norm": "rmsnorm", "attention": "fused", "gated_mlp": True, "dropout": False, "bias": False, "vocabulary": 0,
    }  # fmt: skip
    return plain if name == "plain" else replace(plain, **modern)


@pytest.mark.parametrize("name", ["plain", "modern"])
def test_every_operation_has_the_work_derived_by_hand(name):
    """FLOPs and bytes of every operation and phase of a tiny model, and of no other."""
    small = tiny(name)
    operations = block_operations(small, 2) + embedding_operations(small, 2) + head_operations(small, 2)
    phases = ("forward", "input_grad", "weight_grad")
    found = {(o.name, phase): getattr(o, phase) for o in operations for phase in phases if getattr(o, phase).bytes}
    rows = GOLDEN[GOLDEN.model == name].itertuples()
    assert found == {(row.operation, row.phase): (row.flops, row.bytes) for row in rows}


def test_stage_times_are_sums_of_rooflines(system):
    """Forward and both gradients of a stage add up operation by operation, each under its own name."""
    model, schedule = tiny("plain"), build("1f1b", 2, 128)
    costs = model_costs(schedule, model, system)
    blocks, first, last = block_operations(model, 2), embedding_operations(model, 2), head_operations(model, 2)
    for row, phase in ((0, "forward"), (2, "input_grad"), (3, "weight_grad")):
        one, embedding, head = (
            sum(roofline_s(getattr(operation, phase), system) for operation in operations)
            for operations in (blocks, first, last)
        )
        assert costs.compute_s[row] == pytest.approx([64 * one + embedding, 64 * one + head])
    assert costs.compute_s[1] == pytest.approx(costs.compute_s[2] + costs.compute_s[3])


def test_the_heads_logits_are_kept_in_single_precision(system):
    """The last stage keeps its norm's input, the projection's input and four bytes a logit."""
    first, last = stages(build("1f1b", 2, 128), tiny("plain"), system)
    assert last.activation_bytes - first.activation_bytes == 512 + 512 + 4 * 640


def test_gated_and_fused_blocks_keep_what_their_backward_reads(system):
    """RMS norms' inputs, Q, K, V, statistics, both halves of the gate, and the inputs of the products."""
    stage = stages(build("1f1b", 2, 128), replace(tiny("modern"), recompute="none"), system)[0]
    kept = 2 * 512 + 512 + 1280 + 512 + 512 + 2 * 768 + 768
    assert stage.activation_bytes == 64 * kept


def test_fused_attention_keeps_what_selective_recomputation_keeps(model, system):
    """Fused attention saves 34sbh too, but for the softmax statistics and the dropout's output."""
    schedule = build("1f1b", 4, 8)
    b, s, h = microbatch_sequences(schedule, model), model.sequence, model.hidden
    fused = stages(schedule, replace(model, attention="fused", vocabulary=0), system)[1]
    assert fused.activation_bytes / fused.blocks == pytest.approx(34 * s * b * h, rel=0.03)


def test_parameters_are_the_published_ones(model, system):
    """12lh^2 (1 + 13/(12h)) in the blocks, (V + s)h in the embedding, once more Vh in the untied head."""
    h, vocabulary = model.hidden, 51200
    table = stages(build("1f1b", 4, 8), replace(model, vocabulary=vocabulary, learned_positions=True), system)
    blocks = 12 * h**2 + 13 * h
    assert table[1].parameters == pytest.approx(table[1].blocks * blocks)
    assert table[0].parameters - table[0].blocks * blocks == pytest.approx((vocabulary + model.sequence) * h)
    assert table[3].parameters - table[3].blocks * blocks == pytest.approx(vocabulary * h + 2 * h)


def test_grouping_gating_and_dropout_change_what_they_should(model):
    """Fewer key-value heads shrink QKV, a gate widens the MLP's first product, no dropout drops its pass."""
    names = [operation.name for operation in block_operations(model, 1)]
    plain = {operation.name: operation for operation in block_operations(model, 1)}
    grouped = {o.name: o for o in block_operations(replace(model, kv_heads=model.heads // 4), 1)}
    assert grouped["query-key-value"].forward.flops == pytest.approx(plain["query-key-value"].forward.flops / 2)
    assert grouped["scores"].forward.flops == plain["scores"].forward.flops
    gated = {o.name: o for o in block_operations(replace(model, gated_mlp=True), 1)}
    assert gated["MLP up"].forward.flops == 2 * plain["MLP up"].forward.flops
    without = [operation.name for operation in block_operations(replace(model, dropout=False), 1)]
    assert set(names) - set(without) >= {"attention dropout"}


def test_recomputation_adds_a_forward_to_the_backward(model, system):
    """Full recomputation runs the whole forward again, selective the attention's core alone."""
    schedule = build("1f1b", 4, 8)
    none, selective, full = (
        stages(schedule, replace(model, recompute=recompute, vocabulary=0), system)[1]
        for recompute in ("none", "selective", "full")
    )
    assert full.input_grad_s - none.input_grad_s == pytest.approx(none.forward_s)
    core = [o for o in block_operations(model, microbatch_sequences(schedule, model)) if o.module is Module.SCORES]
    assert {operation.name for operation in core} == {"scores", "softmax", "attention dropout", "context"}
    again = none.blocks * sum(roofline_s(operation.forward, system) for operation in core)
    assert selective.input_grad_s - none.input_grad_s == pytest.approx(again)


def test_roofline_takes_the_longer_side(system):
    """Compute-bound work takes its arithmetic, memory-bound its traffic; efficiencies and latencies count."""
    slow = replace(system, compute_efficiency=0.5, memory_efficiency=0.25, compute_latency_s=1.0, memory_latency_s=2.0)
    assert roofline_s(Work(1e15, 1), slow) == pytest.approx(1 + 2)
    assert roofline_s(Work(1, 34e12), slow) == pytest.approx(2 + 4)
    assert roofline_s(Work(0, 0), slow) == 0


def test_transfers_take_hockneys_time(system):
    """Occupancy V/BW of 2bsh bytes, and the latency beside it; drops of weights, the last kind, send nothing."""
    model, schedule = load_model("paper"), build("1f1b", 8, 64)
    volume = 2 * (256 // 64) * 4096 * 4096
    assert message_bytes(schedule, model) == volume
    costs = model_costs(schedule, model, system)
    assert costs.occupancy_s[: OpKind.D] == pytest.approx(volume / 50e9)
    assert costs.latency_s[: OpKind.D] == pytest.approx(500e-9)
    assert not (costs.occupancy_s + costs.latency_s)[OpKind.D].any()


def test_replicas_sum_their_gradients_in_a_ring(system):
    """Two replicas exchange each stage's gradients once at the link's bandwidth; one replica nothing."""
    model = load_model("paper")
    costs = model_costs(build("chimera", 4, 8), model, system)
    parameters = 32 * (12 * 4096**2 + 13 * 4096)
    assert costs.compute_s[OpKind.R] == pytest.approx(4 * parameters / 50e9 + 2 * 500e-9)
    assert (model_costs(build("1f1b", 4, 8), model, system).compute_s[OpKind.R] == 0).all()


@pytest.mark.parametrize("name", ["1f1b", "chimera", "asymmetric-chimera"])
def test_stages_hold_every_block_once(name):
    """Whole blocks, none lost, close to the shares, whatever the sizes."""
    for blocks in (8, 13, 80, 128):
        model = replace(load_model("paper"), blocks=blocks)
        schedule = build(name, 4, 8)
        held = stage_blocks(schedule, model)
        assert held.sum() == blocks
        assert np.abs(held - schedule.stage_shares / 4 * blocks).max() < 1


def test_too_many_stages_are_refused():
    """A stage without a block is refused."""
    with refused(CostError, "blocks", "too few for the 64 stages"):
        stage_blocks(build("hanayo", 8, 8, waves=4), replace(load_model("paper"), blocks=63))


def test_batches_that_do_not_divide_are_refused(system):
    """The global batch divides into microbatches of whole sequences."""
    with refused(CostError, "global_batch", "whole sequences"):
        model_costs(build("1f1b", 4, 7), load_model("paper"), system)


def test_cutting_work_into_microbatches_keeps_it(model, system):
    """However B cuts the batch, the stage's total time differs by fixed costs alone."""
    base = replace(system, compute_latency_s=0, memory_latency_s=0)
    totals = [count * model_costs(build("1f1b", 4, count), model, base).compute_s[:2].sum() for count in (8, 64)]
    assert totals[1] == pytest.approx(totals[0], rel=0.05)


@pytest.mark.parametrize("system_name", packaged("systems"))
def test_every_model_runs_on_every_system(system_name):
    """The specifications that come with the package give positive, finite costs.

    A fit to runs alone may put what it cannot tell apart into backwards.
    """
    for name in packaged("models"):
        costs = model_costs(build("1f1b", 8, 64), load_model(name), load_system(system_name))
        assert np.isfinite(costs.compute_s).all(), name
        assert (costs.compute_s[:4] > 0).all(), name
        assert 1 < costs.compute_s[1, 1] / costs.compute_s[0, 1] < (7 if system_name in fitted_systems() else 4), name


def test_embedding_and_head_stand_at_the_ends(system):
    """A named vocabulary loads the first and the last stage, and only these."""
    model = load_model("gpt3_175b")
    first, second, third, last = stages(build("1f1b", 4, 8), model, system)
    assert (second.forward_s, second.parameters) == (third.forward_s, third.parameters)
    assert first.parameters > second.parameters < last.parameters
    assert last.activation_bytes > second.activation_bytes
    assert embedding_operations(load_model("paper"), 1) == head_operations(load_model("paper"), 1) == []


def test_uniform_costs_follow_chunks_parts_and_shares():
    """F and Bw are divided by chunks, by parts of a microbatch and by shares; a transfer by parts alone."""
    hanayo = uniform_costs(build("hanayo", 4, 4, waves=2), 1, 2, 0.5)
    assert (hanayo.compute_s[0, 0], hanayo.compute_s[1, 0], hanayo.occupancy_s[0, 0]) == (0.25, 0.5, 0.5)
    halves = uniform_costs(build("chimera", 4, 8, concat="backward-halving"), 1, 2, 0.5)
    assert (halves.compute_s[0, 0], halves.compute_s[1, 0], halves.occupancy_s[0, 0]) == (0.5, 1, 0.25)
    shares = uniform_costs(build("asymmetric-chimera", 4, 4, split=(1, 3)), 1, 2)
    assert shares.compute_s[0].tolist() == [0.5, 0.5, 1.5, 1.5]


def test_halves_of_the_backward_sum_to_it():
    """Given the halves, the whole is their sum; given the whole, the halves are equal."""
    schedule = build("gpipe", 2, 2)
    assert uniform_costs(schedule, 1, input_grad=1.5, weight_grad=0.5).compute_s[:4, 0].tolist() == [1, 2, 1.5, 0.5]
    assert uniform_costs(schedule, 1, 2).compute_s[:4, 0].tolist() == [1, 2, 1, 1]


def test_costs_keep_no_schedule_alive():
    """What is kept from call to call is small: a table that nobody holds any more is gone."""
    schedule = build("1f1b", 4, 8)
    model_costs(schedule, load_model("paper"), load_system("mid_cp_mid_nw"))
    held = weakref.ref(schedule)
    del schedule
    gc.collect()
    assert held() is None


def test_an_overlapped_pair_has_a_cost_of_its_own():
    """A forward and a backward of one cell take the seconds given for the pair, whatever the stages' shares."""
    schedule = parse_table("0F0 0F1&0B0 0B1")
    for seconds in (1.0, 2.5, 3.0):
        costs = uniform_costs(schedule, 1, input_grad=1, weight_grad=1, pair=seconds)
        assert run_graph(compile_graph(schedule), costs).makespan_s == pytest.approx(3 + seconds)
    for wrong in ((1, 2, -1), (0, 0, 1)):
        with refused(CostError, "pair"):
            uniform_costs(schedule, *wrong[:2], pair=wrong[2])
    alone = parse_table("0F0&0F1 0B0 0B1")
    assert run_graph(compile_graph(alone), uniform_costs(alone, 1, 2, pair=1)).makespan_s == 6


@pytest.mark.parametrize("seconds", [True, 10**400, "1", float("nan"), -1], ids=lambda value: str(value)[:9])
@pytest.mark.parametrize("name", ["forward", "backward", "comm"])
def test_seconds_are_ordinary_numbers(name, seconds):
    """No switch, text, fraction, NaN, or number without an end."""
    with refused(CostError, name):
        uniform_costs(build("1f1b", 2, 4), **({"forward": 1, "backward": 2} | {name: seconds}))
