"""A run of our own: its files hang together, and it is predicted from its other half."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import ppmodel as pp
from ppbook.measured import own_run
from ppmodel.simulation import BUFFERED, compile_graph, run_graph, uniform_costs
from ppmodel.tables import NO_OPERATION

LONG = "sleep, 8 MiB"
WITH_WHOLE_BACKWARDS = "interleaved-1f1b", "dualpipev"
RAN = {
    ("gpipe", "loop"), ("1f1b", "loop"),
    *((name, "table") for name in ("gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2")),
    *((name, "runtime") for name in ("interleaved-1f1b", "interleaved-zb", "zb-v", "dualpipev")),
}  # fmt: skip
"""Schedules, and what ran them: PyTorch's loops, our tables in its runtime, or its runtime with its own orders."""


def sums(folder):
    """Checksums of the two tables of a recording."""
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("steps.csv", "operations.csv")}


def differences(folder):
    """What in a recording contradicts its tables or itself."""
    found = [] if own_run.about(folder)["sha256"] == sums(folder) else ["a file is not what was recorded"]
    for run, head in zip(own_run.recorded(folder), own_run.about(folder)["runs"], strict=True):
        table, name = run.table, f"{run.schedule} {run.runner} {run.microbatches}"
        free = np.where(np.isin(np.arange(table.num_operations), table.rank_start[:-1]), 0, np.roll(run.end_s, 1))
        needed = table.dependencies.source
        got = np.where(needed == NO_OPERATION, 0, run.end_s[needed])
        if not (run.start_s >= free - 2e-6).all() or not (run.end_s >= run.start_s).all():
            found.append(f"{name}: an operation begins before the one before it ends")
        if not (run.start_s >= got - 2e-6).all():
            found.append(f"{name}: an operation begins before its message is sent")
        if abs(run.end_s.max() - run.steps_s[head["shown"]]) > 2e-6:
            found.append(f"{name}: the operations are not those of the step")
    return found


def test_the_recording_is_whole():
    """Each run executed its table, in order, after what it needs, and its operations add up to its step."""
    assert differences(own_run.FOLDER) == []
    runs = own_run.recorded()
    assert len(runs) == 66
    assert {len(run.steps_s) for run in runs} == {10}
    ran = {(run.schedule, run.runner) for run in runs}
    assert ran == RAN
    assert len({run.workload for run in runs}) == 4
    assert all(run.table.num_operations == len(run.end_s) and np.isfinite(run.end_s).all() for run in runs)


def test_stages_slept_as_long_as_they_were_told():
    """A forward or half a backward of a whole stage takes ten milliseconds, and what the runtime adds is small."""
    sleeps = own_run.about()["sleep_ms"]
    for run in own_run.recorded():
        if run.workload == "sleep, 4 KiB":
            each = pd.Series(run.end_s - run.start_s).groupby(run.table.kind).median() * 1e3
            chunks = run.table.num_stages / run.table.num_ranks
            parts = [{"B": "IW"}.get(pp.OpKind(kind).name, pp.OpKind(kind).name) for kind in each.index]
            told = [sum(sleeps[part] for part in kind) / chunks for kind in parts]
            assert (each - told).between(0, 1.5).all(), (run.schedule, run.runner)


def answers(folder=own_run.FOLDER):
    """Root mean square errors with and without fixed costs, of short and of long messages."""
    ways = [("overlapped", False), ("overlapped", True), ("blocking_recv", True), ("blocking", True)]
    frames = [own_run.predicted(p2p, fixed, folder=folder) for p2p, fixed in ways]
    return [own_run.rms(frame[frame.workload == size].error) for frame in frames for size in ("sleep, 4 KiB", LONG)]


KNOWN = [0.03683, 0.12932, 0.01184, 0.10805, 0.00976, 0.0489, 0.01483, 0.23145]
"""What `answers` were when the recording was made."""


def test_the_second_half_is_predicted():
    """Known answers: short messages need the fixed cost, long ones a rank that is busy while they are under way."""
    assert answers() == pytest.approx(KNOWN, abs=2e-4)
    tiny_plain, _, tiny, long, _, one_busy, _, both_busy = answers()
    assert tiny < tiny_plain / 2
    assert one_busy < long < both_busy


def invented(folder, p2p, message_s=2e-3, fixed_s=5e-4):
    """A recording of schedules that did not run but were simulated, all steps alike."""
    split = sorted(pair for pair in RAN if pair[1] != "loop" and pair[0] not in WITH_WHOLE_BACKWARDS)
    heads, steps, operations = [], ["run,repetition,step_ms"], ["run,rank,operation,start_us,end_us"]
    for number, (schedule, runner) in enumerate(split):
        options = {"chunks": 2} if "interleaved" in schedule else {}
        table = pp.build(schedule, 4, 8, **options)
        costs = uniform_costs(table, 0.01, 0.02, comm=message_s)
        times = run_graph(compile_graph(table, p2p, "excluded"), replace(costs, compute_s=costs.compute_s + fixed_s))
        chunks = 1 + (runner == "runtime")
        head = {"schedule": schedule, "runner": runner, "theirs": "", "chunks": chunks, "microbatches": 8}
        heads.append({"run": number, "workload": "invented", **head, "shown": 0})
        begun = np.round(1e6 * (times.start_s + fixed_s)).astype(int)
        ended, zero = np.round(1e6 * times.end_s).astype(int), int(begun.min())
        steps += [f"{number},{repetition},{(ended.max() - zero) / 1e3:.3f}" for repetition in range(4)]
        operations += [
            f"{number},{table.rank[index]},{table.op(index)},{begun[index] - zero},{ended[index] - zero}"
            for index in range(table.num_operations)
        ]
    (folder / "steps.csv").write_text("\n".join([*steps, ""]))
    (folder / "operations.csv").write_text("\n".join([*operations, ""]))
    messages = [{"workload": "invented", "ping_pong_ms": 1e3 * message_s}]
    about = {"sleep_ms": own_run.about()["sleep_ms"], "messages": messages, "runs": heads}
    (folder / "runs.json").write_text(json.dumps(about))
    return folder


@pytest.mark.parametrize("p2p", ["overlapped", "blocking_recv"])
def test_an_invented_machine_is_recognised(tmp_path, p2p):
    """What made a recording is found in it: the fixed cost, the length of a message, and what a transfer occupies."""
    folder = invented(tmp_path, p2p)
    shown = own_run.constants(own_run.recorded(folder))
    assert (shown.per_operation_s, shown.message_s) == pytest.approx((5e-4, 2e-3), rel=0.01)
    rms = {word: own_run.rms(own_run.predicted(word, folder=folder).error) for word in BUFFERED}
    assert (
        rms[p2p] < 2e-3 < 5 * rms[p2p] < min(rms[word] for word in {"overlapped", "blocking_recv", "blocking"} - {p2p})
    )
