"""Vocabulary parallelism: the authors' orders, what ranks hold, barriers, and what formats say."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from refusals import refused

from ppmodel import build, replay, simulate
from ppmodel.cli import main
from ppmodel.clusters.memory import memory
from ppmodel.clusters.specs import load_model
from ppmodel.errors import ScheduleError, TableError
from ppmodel.metrics import peak_activations
from ppmodel.ops import OpKind
from ppmodel.schedules.cases import as_case
from ppmodel.simulation import OpCosts, compile_graph, run_graph
from ppmodel.tables import Schedule, parse_table, write_table

DEEPSEEK = load_model("deepseek_v3")
NAMES = "vocab-1f1b", "vocab-1f1b:barriers=2", "interlaced"
SIZES = list(product((1, 2, 3, 4, 5, 7, 8, 12), (1, 2, 3, 4, 6, 8, 9, 13, 20)))


def head_steps(p, forward, backward):
    """Which ranks run S before F, and how many head steps come before the first backward, as a state machine."""
    is_first, ahead, offset = [True], [0], 0
    while len(is_first) < p:
        if offset - forward >= -backward:
            offset -= forward
            is_first.append(True)
        else:
            offset += backward - forward
            is_first += [False, True]
    is_first = is_first[:p]
    for below in range(1, p):
        ahead.append(ahead[-1] + (is_first[below - 1] or not is_first[below]))
    return is_first[::-1], ahead[::-1]


def authors_order(p, r, m, barriers, forward=1, backward=2):
    """The operations of rank r, by counters of what is left, as the authors' loops have them."""
    is_first, ahead = head_steps(p, forward, backward)
    row, done = [], {"F": 0, "B": 0, "S": 0}

    def run(kind):
        number = done[kind]
        done[kind] += 1
        if kind != "S":
            row.append((kind, number))
            return
        if number > 0:
            row.append(("T", number - 1))
        if number < m:
            row.append(("S", number))

    warm_up = min(p - r, m)
    for _ in range(warm_up):
        run("F")
    run("S")
    for extra in range(barriers):
        if extra:
            run("S")
        if warm_up + extra + 1 <= m:
            run("F")
    last = m if barriers == 2 else m - 1
    for _ in range(ahead[r]):
        if done["S"] <= last:
            run("S")
    remaining = max(0, m - warm_up - barriers)
    for _ in range(remaining):
        for kind in "BSF" if is_first[r] else "BFS":
            run(kind)
    for _ in range(m - remaining):
        run("B")
        if done["S"] <= last:
            run("S")
    if barriers == 1:
        run("S")
    return row


def authors_interlaced(p, r, m):
    """The same of the interlaced pipeline: every head step is S and T."""
    warm_up, cool_down = min(3 * p // 2 - r, m), min(p - r, m)
    waiting = max(0, warm_up - cool_down - (p - r - 1) // 2)
    steady = "FBS" if r % 2 == p % 2 else "BFS"
    kinds = "F" * warm_up + "S" * cool_down + "BS" * waiting + steady * (m - warm_up)
    kinds += "BS" * (warm_up - cool_down - waiting) + "B" * cool_down
    kinds, done = kinds.replace("S", "ST"), dict.fromkeys("FBST", -1)
    return [(kind, done.update({kind: done[kind] + 1}) or done[kind]) for kind in kinds]


def order_of(table, r):
    """The row of a rank in the same form."""
    return [(op.kind.name, op.microbatch) for (op,) in table.rows()[r]]


@pytest.mark.parametrize("barriers", [1, 2])
@pytest.mark.parametrize("backward", [1.0, 1.9, 2.0, 2.2])
def test_each_rank_has_the_authors_order(barriers, backward):
    """At 72 sizes for each number of barriers and each ratio: 576, and no rank waits forever."""
    for p, m in SIZES:
        table = build("vocab-1f1b", p, m, barriers=barriers, ratio=backward)
        assert [order_of(table, r) for r in range(p)] == [
            authors_order(p, r, m, barriers, 1, backward) for r in range(p)
        ]
        table.validate()


def test_each_rank_of_the_interlaced_pipeline_has_the_authors_order():
    """At the same sizes."""
    for p, m in SIZES:
        table = build("interlaced", p, m)
        assert [order_of(table, r) for r in range(p)] == [authors_interlaced(p, r, m) for r in range(p)]
        table.validate()


def test_ranks_hold_what_the_paper_says():
    """One microbatch more than 1F1B for each barrier; half as many again with the interlaced pipeline."""
    for p in (2, 4, 8):
        most = [peak_activations(build("vocab-1f1b", p, 40, barriers=count)).max() for count in (1, 2)]
        assert most == [p + 1, p + 2]
        assert peak_activations(build("interlaced", p, 40)).max() == 3 * p / 2


@pytest.mark.parametrize("name", NAMES)
def test_barriers_hold_up_all_ranks(name):
    """No T before S of all ranks, no backward of the last stage before S or T of all, whatever passes take."""
    table, random = build(name, 4, 9), np.random.default_rng(3)
    costs = OpCosts(random.uniform(0.1, 1, (len(OpKind), 4)), *np.zeros((2, len(OpKind), 4)))
    run = run_graph(compile_graph(table), costs)
    start, end = ({table.op(op): times[op] for op in range(table.num_operations)} for times in (run.start_s, run.end_s))
    waits_for = OpKind.S if name == NAMES[0] else OpKind.T
    for op, when in start.items():
        of_shards = (OpKind.S, OpKind.T)
        ends = {kind: max(end[op._replace(kind=kind, stage=rank)] for rank in range(4)) for kind in of_shards}
        if op.kind == OpKind.S:
            assert when >= end[op._replace(kind=OpKind.F, stage=3)]
        elif op.kind == OpKind.T:
            assert when >= ends[OpKind.S]
        elif op.kind == OpKind.B and op.stage == 3:
            assert when >= ends[waits_for]


def test_gradients_are_summed_once_those_of_the_shard_are_there():
    """A stage's reduction comes after the last T of its rank, and waits for it."""
    table = build("vocab-1f1b", 2, 2).with_gathers()
    assert [[str(op) for (op,) in row][-3:] for row in table.rows()] == [["0T1", "0R", "0D"], ["1T1", "1R", "1D"]]
    with refused(TableError, "rank 0", "waits for 0T0", "0R"):
        parse_table("0F0,0S0,0B0,0R,0T0")


def test_tables_say_what_is_wrong():
    """A shard that is missing, one too many, or a barrier in a circle; PyTorch's format has no such passes."""
    rows = [[str(op) for (op,) in row] for row in build("vocab-1f1b", 2, 2).rows()]
    with refused(TableError, "rank 1", "is missing from the table", "1T1"):
        Schedule.from_rows("x", [rows[0], [op for op in rows[1] if op != "1T1"]])
    with refused(TableError, "rank 0", "waits for", "0B0"):
        Schedule.from_rows("x", [["0F0", "0F1", "0B0", "0S0", "0T0", "0S1", "0T1", "0B1"], rows[1]])
    with refused(TableError, "rank 0", "is no shard", "2S0"):
        parse_table("0F0,2F0,0S0,2S0,0T0,2T0,2B0,0B0\n1F0,1S0,1T0,1B0")
    with refused(TableError, "schedule", "divided output layer"):
        write_table(build("interlaced", 2, 2), "pytorch")
    with refused(ScheduleError, "barriers", "must be 1 or 2"):
        build("vocab-1f1b", 2, 2, barriers=3)


def test_shards_take_what_the_head_takes_and_the_last_stage_is_as_long_as_others():
    """S and T of all ranks take as long together as the head on one rank, whichever of them has the gradient.

    Their forwards and backwards take as long as the blocks and a share of the embedding.
    """
    given = {"model": "llama3_8b", "system": "h100", "tp": 1}
    names = "vocab-1f1b", "vocab-1f1b:barriers=2"
    assert as_case(names[1]).label == "vocab 1F1B barriers = 2"
    runs = [simulate("1f1b", 8, 64, layers="even", **given), *(simulate(name, 8, 64, **given) for name in names)]
    whole, one, two = (run.costs.compute_s for run in runs)
    share_s = (whole[: OpKind.S, 0] - whole[: OpKind.S, 1]) / 8
    head_s = (whole[: OpKind.S, -1] - one[: OpKind.S, -1] + share_s)[[OpKind.F, OpKind.B]]
    for seconds in (one, two):
        np.testing.assert_allclose(seconds[[OpKind.S, OpKind.T]].sum(), head_s.sum(), rtol=1e-9)
        np.testing.assert_allclose(seconds[: OpKind.S], np.tile(whole[: OpKind.S, 1] + share_s, (8, 1)).T, rtol=1e-9)
    np.testing.assert_allclose(two[OpKind.S].sum(), head_s[0], rtol=1e-9)
    assert (one[OpKind.S] > two[OpKind.S]).all()
    parameters = [run.costs.stages.parameters.sum() for run in runs]
    np.testing.assert_allclose(parameters, parameters[0], rtol=1e-12)
    assert runs[1].to_dict()["iteration_s"] < 0.95 * runs[0].to_dict()["iteration_s"]


@pytest.mark.parametrize(("name", "least", "most"), [(NAMES[0], 0, 0.05), (NAMES[1], 0, 0.05), (NAMES[2], 0.6, 1.1)])
def test_collectives_of_shards_are_hidden_but_where_all_ranks_stop_for_them(name, least, most):
    """The hidden state is passed on in a ring of all ranks, logits are summed, and a gradient, for each microbatch."""
    run = simulate(name, 8, 64, model="llama3_8b", system="a100", tp=1)
    model, nodes, attained = run.point.model, run.point.system.nodes, run.point.system.collectives
    late_s = run.costs.latency_s
    passed_s, summed_s, last_s = late_s[OpKind.F, ..., -1].item(), late_s[OpKind.S].min(), late_s[OpKind.T].max()
    sent_s = model.sequence * model.hidden * 2 / 8 / (nodes.node_bandwidth_bytes_per_s * attained.node_efficiency)
    assert passed_s == last_s == pytest.approx(7 * (sent_s + attained.node_latency_s), rel=1e-9)
    assert (summed_s > passed_s) == (name == NAMES[0])
    none_s = late_s.copy()
    none_s[[OpKind.S, OpKind.T]] = none_s[OpKind.F, ..., -1] = 0
    without = run_graph(compile_graph(run.table), replace(run.costs, latency_s=none_s)).makespan_s
    lost = run_graph(compile_graph(run.table), run.costs).makespan_s - without
    assert least <= lost / (64 * (passed_s + summed_s + (name != NAMES[0]) * last_s)) <= most


@pytest.mark.parametrize("name", NAMES)
def test_shards_hold_their_softmax_from_s_to_t_alone(name):
    """What the output layer keeps is not held as long as activations of blocks; tied layers are stored once."""
    run = simulate(name, 4, 16, model="llama3_8b", system="h100", tp=1)
    table, stages = run.table, run.costs.stages
    held = memory(table, run.point.model, stages).activations
    change = {OpKind.F: stages.activation_bytes, OpKind.B: -stages.activation_bytes}
    change |= {OpKind.S: stages.shard_bytes, OpKind.T: -stages.shard_bytes}
    for rank, row in enumerate(table.rows()):
        levels = np.cumsum([change[op.kind][op.stage] for (op,) in row])
        assert levels[-1] == pytest.approx(0, abs=1)
        assert held[rank] == pytest.approx(levels.max(), rel=1e-12)
    tied = simulate(name, 4, 16, model=replace(run.point.model, tied_embeddings=True), system="h100", tp=1)
    fewer = stages.parameters - tied.costs.stages.parameters
    np.testing.assert_allclose(fewer, run.point.model.vocabulary * run.point.model.hidden / 4, rtol=1e-9)


@pytest.mark.parametrize("p", [2, 4])
def test_both_losses_of_multi_token_prediction_use_one_head(p):
    """The shards of one projection are stored once; S and T take twice what the shards of a single loss take.

    The embedding, which is divided, has no copy where it is used again.
    """
    names, given = ("1f1b", "vocab-1f1b"), {"system": "h100", "tp": 1, "dp": 1, "microbatches": 4}
    both, one = (
        [simulate(name, p, model=model, **given).costs for name in names]
        for model in (DEEPSEEK, replace(DEEPSEEK, mtp_layers=0))
    )
    for whole, divided in (both, one):
        copies = (whole.stages.cut.embeddings.sum() - 1) * DEEPSEEK.vocabulary * DEEPSEEK.hidden
        stored = divided.stages.parameters.sum() + copies
        np.testing.assert_allclose(stored, whole.stages.parameters.sum(), rtol=1e-12)
    twice, once = (divided.compute_s[[OpKind.S, OpKind.T]] for _, divided in (both, one))
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-2)


def test_without_a_model_a_line_says_that_the_output_layer_takes_no_time(capsys):
    """Seconds of forward and backward leave it open; other schedules, and models, have no such line."""
    size = ["--pp", "2", "--microbatches", "4"]
    plain, modelled = ["--forward", "1", "--backward", "2"], ["--model", "llama3_8b", "--system", "h100"]
    for name, costs in product(("interlaced", "1f1b"), (plain, modelled)):
        assert main(["simulate", name, *size, *costs]) == 0
        is_said = "\noutput layer        S, T and their collectives take no time" in capsys.readouterr().out
        assert is_said == (name == "interlaced" and costs is plain)


def test_measured_operations_say_nothing_of_such_passes():
    """The times of 1F1B's operations leave their length open: such a schedule has no numbers beside it."""
    measured = simulate("1f1b", 2, 4, forward=1, backward=2).to_frame()
    refusals = replay(measured, "1f1b", 2, 4, against=["interlaced", "gpipe"]).refused
    assert "divided output layer" in refusals[1]
    assert refusals[[0, 2]].isna().all()
