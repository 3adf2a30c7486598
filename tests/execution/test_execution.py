"""Tables are run for real: gradients, weights and stored microbatches are those of one process and of the table."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

import ppmodel as pp
from ppmodel.cli import main
from ppmodel.errors import PPModelError
from ppmodel.execution import launch as launching
from ppmodel.execution.launch import launch
from ppmodel.execution.programs import SENT, program_of
from ppmodel.metrics import peak_activations
from ppmodel.ops import OpKind
from ppmodel.schedules.cases import as_case
from ppmodel.schedules.chimera import CONCATENATIONS
from ppmodel.simulation import graph_of, run_graph, uniform_costs

torch = pytest.importorskip("torch")

SIZES = {1: (1, 2), 2: (1, 2, 4, 6), 3: (3,), 4: (8, 4, 16), 8: (8, 16, 24)}
"""Microbatches to try, by ranks."""

FURTHER = (
    *(f"chimera:concat={how}" for how in CONCATENATIONS[1:]), "hanayo:waves=2", "interleaved-1f1b:chunks=3",
    "seq1f1b:slices=2,chunks=2", "interleaved-1f1b:chunks=4,fsdp=drop,lookahead=2", "vocab-1f1b:barriers=2",
)  # fmt: skip
EQUAL = 1e-10


def job_of(programs, limit_s=60.0):
    """A job of small layers that do not sleep."""
    workload = {"rows": 4, "shape": [8], "model": None, "message_bytes": 0}
    return {"programs": programs, "workload": workload, "dtype": "float64", "device": "cpu", "limit_s": limit_s}


def program(table, p2p="latency", allreduce="excluded"):
    """A program that runs once, at once."""
    return program_of(graph_of(table, p2p, allreduce), uniform_costs(table, 0, 0), 0)


def tables_of(name):
    """A schedule's tables at three sizes: the smallest, and those of four and of eight ranks."""
    found = {}
    for ranks, numbers in SIZES.items():
        for number in numbers:
            with suppress(PPModelError):
                found.setdefault(ranks, pp.build(as_case(name), ranks, number))
    if "concat" in name:
        found[4] = pp.build(as_case(name), 4, 16)
    return [found[ranks] for ranks in sorted({min(found), 4, 8} & found.keys())]


def all_tables():
    """The tables of all schedules that are executed, at three sizes."""
    return [table for name in (*pp.names(), *FURTHER) for table in tables_of(name)]


def extras():
    """Ways of sending, reductions and steps in the table, and an order of our own; all on four ranks."""
    for p2p in SENT[1:]:
        for name in ("1f1b:fsdp=drop", "chimera", "dualpipev") if p2p != "rendezvous" else ("1f1b:fsdp=keep", "gpipe"):
            yield pp.build(name, 4, 8), p2p, "excluded"
    for allreduce in ("overlapped", "blocking"):
        for p2p in ("latency", "streams"):
            yield pp.build("chimera", 4, 8), p2p, allreduce
            yield pp.build("1f1b:fsdp=keep", 4, 8), p2p, allreduce
    yield pp.build("1f1b", 4, 8).with_step(), "latency", "excluded"
    rows = [list(row) for row in pp.build("gpipe", 4, 4).rows()]
    for row in rows:
        row[4], row[6] = row[6], row[4]
    yield pp.Schedule.from_rows("two backwards swapped", rows), "latency", "excluded"


def test_every_schedule_has_right_gradients_at_three_sizes():
    """Gradients and weights are those of one process, and stored microbatches those of the table, however it sends."""
    cases = [*((table, "latency", "excluded") for table in all_tables()), *extras()]
    sizes = Counter(table.name.partition(":")[0] for table, *_ in cases)
    assert all(sizes[name] >= 3 for name in pp.names())
    for ranks in sorted({table.num_ranks for table, *_ in cases}):
        of_ranks = [case for case in cases if case[0].num_ranks == ranks]
        for (table, *way), result in zip(of_ranks, launch(job_of([program(*case) for case in of_ranks])), strict=True):
            assert max(result["gradient_error"], result["weight_error"]) <= EQUAL, (table.name, ranks, *way)
            expected = peak_activations(table, held_for_weight_grad=1.0)
            assert np.allclose(result["peaks"], expected, rtol=1e-12), (table.name, ranks, *way)


@pytest.mark.parametrize("p2p", SENT)
def test_messages_of_a_link_are_received_in_the_order_of_sending(p2p):
    """That of their numbers, so that nobody needs tags; under ``rendezvous``, if there is no deadlock."""
    for table in all_tables():
        with suppress(PPModelError):
            run_graph(graph_of(table, p2p), uniform_costs(table, 1, 2))
            made, orders = program(table, p2p), defaultdict(list)
            links = {number: (sender, receiver) for number, sender, receiver, *_ in made["messages"]}
            for rank, row in enumerate(made["rows"]):
                for number in chain.from_iterable(
                    np.atleast_1d(entry).tolist() for what, entry in row if what != "cell"
                ):
                    orders[rank, links[number]].append(number)
            of_ends = 1 if made["buffered"] else 2  # else, receives are posted in the order of `messages`
            assert len(orders) == of_ends * len(set(links.values())), table.name
            for (_, link), numbers in orders.items():
                assert numbers == [number for number in links if links[number] == link], table.name


def without(table, *indices):
    """A table that lacks operations."""
    columns = {
        name: np.delete(getattr(table, name), indices) for name in ("kind", "stage", "microbatch", "replica", "joined")
    }
    start = table.rank_start - np.searchsorted(sorted(indices), table.rank_start)
    return replace(table, rank_start=start.astype(np.int32), **columns)


def reordered(table, order):
    """A table with its operations in another order; each rank has as many as before."""
    columns = {name: getattr(table, name)[order] for name in ("kind", "stage", "microbatch", "replica")}
    return replace(table, **columns)


def early_reduction():
    """Chimera with a sum of gradients before the last gradient, which no table can say: such a table is refused."""
    made = program(pp.build("chimera", 2, 2), allreduce="overlapped")
    for row in made["rows"]:
        kinds = [made["operations"][entry[0]][0] if what == "cell" else None for what, entry in row]
        row.insert(kinds.index(OpKind.B), row.pop(kinds.index(OpKind.R)))
    return made


def forgotten_shard(barriers, kind):
    """Vocabulary parallelism whose first T, or B of the last stage, takes no notice of the shard of rank 0."""
    made = program(pp.build("vocab-1f1b", 2, 2, barriers=barriers))
    next(row for row in made["barriers"] if made["operations"][row[0]][0] == kind).pop(1)
    return made


def test_wrong_tables_have_wrong_gradients():
    """A weight gradient is dropped; gradients are summed before the last of them; a barrier has forgotten a rank."""
    table = pp.build("zb-h1", 2, 2)
    dropped = without(table, int(np.flatnonzero(table.kind == OpKind.W)[0]))
    forgotten = [forgotten_shard(*which) for which in ((1, OpKind.T), (1, OpKind.B), (2, OpKind.T), (2, OpKind.B))]
    found = launch(job_of([program(table), program(dropped), early_reduction(), *forgotten]))
    errors = [result["gradient_error"] for result in found]
    assert errors[0] <= EQUAL
    assert min(errors[1:]) > 1e-3


def test_a_rank_that_raises_ends_all_in_one_line():
    """A weight gradient stands on a rank that does not hold the stage."""
    table = pp.build("zb-h1", 2, 2)
    own, other = (int(np.flatnonzero((table.kind == OpKind.W) & (table.rank == rank))[-1]) for rank in (0, 1))
    order = np.arange(table.num_operations)
    order[[own, other]] = other, own
    with pytest.raises(PPModelError, match=r"rank [01] has failed: RuntimeError: stage [01] of replica 0 is not"):
        launch(job_of([program(reordered(table, order))]))


def test_what_the_simulation_calls_a_deadlock_is_one():
    """The row is refused; executed all the same, ranks wait until their time is over."""
    frame = pp.execute("v-half", 4, 8, forward=0.01, backward=0.02, p2p="rendezvous")
    assert "deadlock" in frame.refused[0]
    with pytest.raises(PPModelError, match=r"rank \d has failed: .*[Tt]imed out"):
        launch(job_of([program(pp.build("v-half", 4, 8), "rendezvous")], limit_s=5.0))


MODEL = """
title: Small
blocks: {value: 4, kind: our choice, source: small}
hidden: {value: 32, kind: our choice, source: small}
heads: {value: 4, kind: our choice, source: small}
kv_heads: {value: 2, kind: our choice, source: small}
head_size: {value: 8, kind: our choice, source: small}
mlp_hidden: {value: 64, kind: our choice, source: small}
gated_mlp: {value: GATED, kind: our choice, source: small}
norm: {value: NORM, kind: our choice, source: small}
bias: {value: BIAS, kind: our choice, source: small}
dropout: {value: false, kind: our choice, source: small}
attention: {value: fused, kind: our choice, source: small}
recompute: {value: none, kind: our choice, source: small}
sequence: {value: 16, kind: our choice, source: small}
vocabulary: {value: 64, kind: our choice, source: small}
learned_positions: {value: false, kind: our choice, source: small}
global_batch: {value: 8, kind: our choice, source: small}
element_bytes: {value: 2, kind: our choice, source: small}
gradient_bytes: {value: 4, kind: our choice, source: small}
optimizer_bytes: {value: 12, kind: our choice, source: small}
"""


@pytest.mark.parametrize(("gated", "norm", "bias"), [("true", "rmsnorm", "false"), ("false", "layernorm", "true")])
def test_blocks_of_a_model_have_right_gradients(tmp_path, gated, norm, bias):
    """With embedding, a whole or divided loss head, split backwards, replicas, slices that keep keys and values."""
    file = tmp_path / "small.yaml"
    file.write_text(MODEL.replace("GATED", gated).replace("NORM", norm).replace("BIAS", bias))
    names = ["1f1b", "zb-v", "chimera", "seq1f1b:slices=2", "vocab-1f1b", "vocab-1f1b:barriers=2", "interlaced"]
    frame = pp.execute(names, 2, 4, model=str(file), repetitions=1)
    assert frame.gradients_equal.all()
    assert (frame.simulated_s > 0).all()


@pytest.mark.parametrize("name", ["vocab-1f1b", "vocab-1f1b:barriers=2", "interlaced"])
def test_barriers_take_what_is_simulated(name):
    """With shards that sleep, and collectives beside the ranks, of which these costs know nothing."""
    table = pp.build(name, 4, 8)
    graph, costs = graph_of(table, "latency"), uniform_costs(table, 0.02, 0.04)
    compute_s = costs.compute_s.copy()
    compute_s[[OpKind.S, OpKind.T]] = 0.01
    costs = replace(costs, compute_s=compute_s)
    (result,) = launch(job_of([program_of(graph, costs, 3)]))
    assert run_graph(graph, costs).makespan_s == pytest.approx(result["steps"][0], rel=0.15)


def test_barriers_are_predicted_from_the_links_of_a_run():
    """Results of shards are broadcast, in as many steps as a tree of the ranks is deep."""
    names = ["vocab-1f1b", "vocab-1f1b:barriers=2", "interlaced"]
    frame = pp.execute(names, 4, 8, forward=0.02, backward=0.04, repetitions=3, check=False)
    assert frame.simulated_s.tolist() == pytest.approx(frame.fastest_s.tolist(), rel=0.1)


def test_one_slow_link_turns_the_order_round():
    """GPipe and 1F1B take the same time, and GPipe less where a link is delayed; measured as simulated."""
    frame = pp.execute(["gpipe", "1f1b"], 4, 8, forward=0.02, backward=0.04, repetitions=3, links="1-2:delay=60ms")
    simulated, measured = (float(frame[name][1] / frame[name][0] - 1) for name in ("simulated_s", "fastest_s"))
    assert min(simulated, measured) > 0.2


def test_a_sender_that_blocks_waits_for_the_delay():
    """Under ``blocking_send``, a delayed link holds the rank that sends, as in the simulation."""
    given = {"forward": 0.04, "backward": 0.08, "repetitions": 3, "links": "0-1:delay=120ms", "check": False}
    frame = pp.execute("gpipe", 2, 4, p2p="blocking_send", **given)
    assert frame.simulated_s[0] == pytest.approx(frame.fastest_s[0], rel=0.1)
    assert frame.replayed_s[0] == pytest.approx(frame.measured_s[0], rel=0.1)


def test_bandwidth_of_a_link_divides_the_bytes():
    """A message of 1 MB takes 200 ms at 5 MB/s, as a delay of 200 ms does."""
    jobs, given = [], {"forward": 0.01, "backward": 0.02, "message_bytes": 1e6}
    for link in ("0-1:bandwidth=0.005GB/s", "0-1:delay=200ms"):
        pp.execute("1f1b", 2, 2, links=link, runner=lambda job, _: jobs.append(job), **given)
    times = [[message[3:] for message in job["programs"][1]["messages"]] for job in jobs]
    assert times == [[(0.2, 0.0)] * 4, [(0.0, 0.2)] * 4]


# ---- commands ----------------------------------------------------------------------------

SMALL = ("1f1b", "--pp", "2", "--microbatches", "2", "--forward", "1ms", "--backward", "2ms", "--repetitions", "1")


def run(*arguments, module="ppmodel", command=("execute",), **options):
    """Run the command line in a process."""
    words = [sys.executable, "-m", module, *command, *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, **options)


def refused(done):
    """The one line of a refusal."""
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    return line


def children(pid):
    """The processes that a process has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("victim", ["a rank", "the command"])
def test_killed_processes_leave_none(victim):
    """One line, exit code 2, no process."""
    command = [sys.executable, "-m", "ppmodel", "execute", *SMALL[:6], "20s", "--backward", "20s"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while len(ranks := [rank for loader in children(process.pid) for rank in children(loader)]) < 2:
        time.sleep(0.05)
        assert process.poll() is None
    time.sleep(3.0)
    os.kill(ranks[1] if victim == "a rank" else process.pid, signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    if victim == "a rank":
        lines = [line for line in errors.splitlines() if " so far: " not in line]  # on a busy machine
        assert lines == ["error: rank 1 was killed by SIGKILL; see whether memory suffices"]
        assert process.returncode == 2
    for _ in range(100):
        if not any(Path(f"/proc/{rank}").exists() for rank in ranks):
            return
        time.sleep(0.1)
    pytest.fail("a rank is left")


def test_mistakes_are_one_line(monkeypatch, capsys):
    """A wrong device, way of sending or unit, no PyTorch, an occupied port, a world of another size."""
    if not torch.cuda.is_available():
        assert "device = cuda: PyTorch finds no GPU" in refused(run(*SMALL, "--device", "cuda"))
    for words, rule in [
        ((*SMALL, "--p2p", "blocking_recv"), "is simulated, but not executed; choose one of latency"),
        ((*SMALL[:6], "1 hour"), "--forward = 1 hour: must be a number above 0, in s, ms, us"),
        (SMALL[:5], "--forward is missing; give --forward and --backward, or --model"),
    ]:
        assert main(["execute", *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert rule in line
    monkeypatch.setattr(launching, "find_spec", lambda _: None)
    with pytest.raises(PPModelError, match=r"torch is not installed; make execute, or pip"):
        launch({})
    joined = {"module": "ppmodel.execution", "command": ()}
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = str(busy.getsockname()[1])
        world = os.environ | {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        assert "rank 0 has failed" in refused(run(*SMALL, env=world, **joined))
    line = refused(run(*SMALL, env=world | {"WORLD_SIZE": "3"}, **joined))
    assert "world size = 3: the tables have 2 ranks" in line


def test_a_script_and_torchrun_do_the_same(tmp_path):
    """A single file runs with PyTorch alone, and its operations can be replayed."""
    done = run("zb-h1", *SMALL[1:], "--write-script", "mine.py", cwd=tmp_path)
    assert "torchrun --nproc-per-node 2 mine.py" in done.stdout, done.stderr
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    world = os.environ | {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    world.pop("PYTHONPATH", None)
    ranks = [subprocess.Popen([sys.executable, "-P", "mine.py"], cwd=tmp_path, env=world | {"RANK": rank},
                              stdout=subprocess.PIPE, text=True) for rank in "01"]  # fmt: skip
    texts = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert "gradients off by" in texts[0]
    assert texts[1] == ""
    frame = pp.replay(str(tmp_path / "operations-ZB-H1.csv"), "zb-h1", 2, 2)
    assert frame.measured_s[0] > 0


def test_outputs_of_the_command(tmp_path):
    """Operations for replay, a trace, a picture, and rows in order of time."""
    done = run(
        "gpipe", *SMALL, "--out", "ops.csv", "--trace", "t.json", "--plot", "p.svg", "--csv", "r.csv", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "ops-1f1b.csv", "ops-gpipe.csv", "p.svg", "r.csv", "t.json",
    ]  # fmt: skip
    assert "equal" in done.stdout
    assert pp.replay(str(tmp_path / "ops-gpipe.csv"), "gpipe", 2, 2).error.abs()[0] < 0.5
