"""Gathers and drops of fully sharded weights: PyTorch's rules, what a table refuses, and when they run."""

import numpy as np
import pytest
from refusals import refused

import ppmodel as pp
from ppmodel.errors import SpecificationError, TableError
from ppmodel.metrics import critical_path
from ppmodel.metrics.activations import gathered_peaks
from ppmodel.ops import OpKind, parse_cell
from ppmodel.simulation import compile_graph, run_graph, uniform_costs
from ppmodel.tables import parse_table, write_table

SCHEDULES = (
    "1f1b", "gpipe", "interleaved-1f1b:chunks=2", "interleaved-1f1b:chunks=4", "looped-bfs:chunks=3", "zb-h1", "zb-v",
    "dualpipev", "1f1b-v", "seq1f1b",
)  # fmt: skip
SIZES = [
    (name, ranks, count) for name in SCHEDULES for ranks in (1, 2, 3, 4, 8) for count in (ranks, 2 * ranks, 16, 24)
]


def by_pytorchs_rules(cells, lookahead, keep, microbatches):
    """A rank's cells, as text, with what PyTorch adds to them; stages to be dropped are in ascending order."""
    stages = [list(dict.fromkeys(op.stage for op in parse_cell(cell))) for cell in cells]
    active, made, ended = [], [], dict.fromkeys((stage for some in stages for stage in some), 0)
    for place, cell in enumerate(cells):
        following = []
        for some in stages[place:]:
            if len(following) < lookahead:
                following += [stage for stage in some if stage not in following]
        made += [f"{stage}D" for stage in sorted(active) if stage not in following]
        made += [f"{stage}G" for stage in following if stage not in active]
        made.append(cell)
        for op in parse_cell(cell):
            ended[op.stage] += op.kind in (OpKind.B, OpKind.W)
            if op.kind in (OpKind.B, OpKind.W) and ended[op.stage] == microbatches:
                made.append(f"{op.stage}R")
        active = following
        if not keep:
            made += [f"{stage}D" for stage in sorted(stages[place])]
            active = [stage for stage in following if stage not in stages[place]]
    return made + [f"{stage}D" for stage in sorted(active)]


def rows_of(table):
    """The cells of each rank as text."""
    return [["&".join(map(str, cell)) for cell in row] for row in table.rows()]


def test_tables_have_what_pytorch_adds():
    """At 200 sizes, whatever the lookahead; files of all forms keep it, and idle slots stay as they were."""
    random, tried = np.random.default_rng(0), 0
    for name, ranks, count in SIZES:
        try:
            table = pp.build(name, ranks, count)
        except pp.PPModelError:
            continue
        lookahead, fsdp = int(random.integers(1, 5)), str(random.choice(["keep", "drop"]))
        sharded, tried = table.with_gathers(fsdp, lookahead), tried + 1
        expected = [
            by_pytorchs_rules(row, lookahead, fsdp == "keep", table.table_microbatches) for row in rows_of(table)
        ]
        assert rows_of(sharded) == expected, (name, ranks, count, fsdp, lookahead)
        sharded.validate()
        assert gathered_peaks(sharded).max() <= (lookahead + 1) / table.chunks_per_rank
        if tried % 10 == 0:
            for form in ("csv", "text", *["pytorch"] * (table.slices == 1)):
                assert parse_table(write_table(sharded, form)).rows() == sharded.rows()
            assert sharded.slots(reduction=0)[1].max() == table.slots(reduction=0)[1].max()
    assert tried >= 150


@pytest.mark.parametrize(
    ("row", "operation", "rule"),
    [
        ("0G 0F0 0D 0B0", "0B0", "needs weights that are not gathered"),
        ("0F0 0G 0B0", "0F0", "needs weights that are not gathered"),
        ("0G 0F0 0D 0D 0G 0B0", "0D", "needs weights that are not gathered"),
        ("0G 0F0 0G 0B0", "0G", "gathers weights that its rank has"),
        ("0G 0F0&0D 0G 0B0", "0D", "shares a cell"),
    ],
)
def test_weights_are_gathered_before_they_are_used(row, operation, rule):
    """The table is shown, with the cell marked."""
    with refused(TableError, "rank 0", rule) as caught:
        parse_table(row)
    assert str(caught.value.value) == operation
    assert str(caught.value.grid).count(">") == 1


def test_gathers_run_beside_computing():
    """In order, each after what its rank computes before it; the first operation of the stage behind it waits."""
    table = parse_table("0G 0F0 1G 0F1 1F0 1F1 1B0 1B1 1D 0B0 0B1")
    starts = {}
    for seconds in (0.5, 3):
        run = run_graph(compile_graph(table), uniform_costs(table, 2, 4, gather=2 * seconds))
        starts[seconds] = [run.start_s[index].item() for index in range(5)], run.makespan_s
    assert [str(table.op(op)) for op in critical_path(run)][:4] == ["0G", "0F0", "1G", "1F0"]
    assert starts == {0.5: ([0, 0.5, 1.5, 1.5, 2.5], 12.5), 3: ([0, 3, 4, 4, 7], 17)}


def test_keeping_costs_one_gather_and_dropping_one_for_each_operation():
    """With one stage a rank nothing hides a gather; the pipeline's own waits hide some."""
    cases = ["1f1b", "1f1b:fsdp=keep", "1f1b:fsdp=drop"]
    frame = pp.compare(cases, 4, 16, forward=1, backward=2, gather=0.5)
    assert frame.label.tolist() == ["1F1B", "1F1B FSDP keep", "1F1B FSDP drop"]
    assert frame.makespan_s.tolist() == [57, 57.5, 73]


def test_weights_that_a_table_gathers_are_priced_as_its_operations():
    """Kept weights are gathered once, whole gradients are summed once; both stay in memory until then."""
    given = {"model": "llama3_70b", "system": "dgx_h100", "tp": 8, "dp": 8, "framework": "fsdp"}
    layers, keep = pp.compare(["1f1b", "1f1b:fsdp=keep"], 4, 16, zero=3, **given).to_dict("records")
    parts = [name for name in ("computing_s", "tensor_s", "p2p_s", "bubble_s", "data_s", "optimizer_s") if name in keep]
    whole, shared = (pp.compare("1f1b", 4, 16, zero=zero, **given).iloc[0] for zero in (0, 3))
    assert keep["iteration_s"] == pytest.approx(sum(keep[name] for name in parts))
    assert keep["weights_bytes"] == pytest.approx(whole.weights_bytes + shared.weights_bytes)
    assert keep["gradients_bytes"] == whole.gradients_bytes
    assert keep["optimizer_bytes"] == layers["optimizer_bytes"]
    with refused(SpecificationError, "zero", "must be 3"):
        pp.simulate("1f1b:fsdp=keep", 4, 16, zero=1, **given)


def test_a_table_with_gathers_gets_no_more():
    """The option is refused for a table that has them."""
    with refused(TableError, "fsdp", "has no effect"):
        pp.build("1f1b", 2, 2).with_gathers().with_gathers()


def test_plan_chooses_between_keeping_weights_and_gathering_them_by_layer():
    """Time and memory of its rows are those of the points."""
    schedules, run = ["1f1b", "1f1b:fsdp=keep"], {"model": "llama3_8b", "system": "dgx_h100"}
    fixed = {"zero": 3, "pp": 4, "tp": 1}
    best = pp.plan(**run, gpus=64, global_batch=128, schedules=schedules, fix=fixed).iloc[0]
    values = {name: best[name].item() for name in ("cp", "dp", "microbatch_size", "zero")}
    one = pp.simulate(best.schedule + ":" + best.options, 4, 128 // (best.dp * best.microbatch_size), **run, **values)
    assert best.label == "1F1B FSDP keep"
    assert best.fits
    assert (one.iteration_s, one.peak_memory_bytes) == pytest.approx((best.iteration_s, best.peak_memory_bytes))


def test_replicas_reduce_in_one_order():
    """Two ranks that finish two stages in opposite orders do not wait for each other's reductions."""
    forwards, backwards = ([[pp.Op(kind, s, r, r) for s in (0, 1)] for r in (0, 1)] for kind in (OpKind.F, OpKind.B))
    rows = [
        [forwards[0][0], forwards[1][1], backwards[0][0], backwards[1][1]],
        [forwards[1][0], forwards[0][1], backwards[0][1], backwards[1][0]],
    ]
    table = pp.Schedule.from_rows("crossed", rows).with_gathers()
    assert [[op.stage for (op,) in row if op.kind == OpKind.R] for row in table.rows()] == [[0, 1], [0, 1]]
    assert run_graph(compile_graph(table, allreduce="blocking"), uniform_costs(table, 1, 2, reduction=1)).makespan_s > 0
