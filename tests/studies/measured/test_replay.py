"""Replayed runs: measured times through tables, and where the time goes."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest

import ppmodel as pp
from ppmodel.ops import OpKind
from ppmodel.studies.measured.operation_times import read_operation_times
from ppmodel.studies.measured.replay import CAUSES
from tests.refusals import refused

SCHEDULES = ["gpipe", "1f1b", "zb-h1", "zb-2p", "zb-v", "v-half", "chimera", "dualpipe", "interleaved-1f1b"]


def noisy(schedule, seed=1):
    """A frame of operations that each take something else."""
    table = pp.build(schedule, 4, 8)
    frame = pp.simulate(table, forward=1, backward=2).to_frame()
    factor = np.random.default_rng(seed).uniform(0.5, 2, len(frame))
    return table, frame.assign(seconds=factor * (frame.end_s - frame.start_s)).drop(columns=["start_s", "end_s"])


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("p2p", ["latency", "overlapped", "blocking"])
def test_a_simulated_run_replays_to_itself(schedule, p2p):
    """What a run recorded, under its own schedule and transfers, takes as long again."""
    given = {"comm": 0.1, "p2p": p2p}
    run = pp.simulate(schedule, 4, 8, forward=1, backward=2, **given)
    frame = pp.replay(run.to_frame(), schedule, 4, 8, **given)
    assert frame.makespan_s[0] == pytest.approx(run.makespan_s) == frame.measured_s[0]
    assert frame.idle_ratio[0] == pytest.approx(run.idle_ratio)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("p2p", ["latency", "overlapped", "blocking", "streams"])
def test_gaps_show_what_transfers_take(schedule, p2p):
    """Start and end of operations suffice, and clocks of ranks may differ; a value that is given stays."""
    run = pp.simulate(schedule, 4, 8, forward=1, backward=2, comm=0.1, p2p=p2p)
    rows = run.to_frame()[["rank", "operation", "start_s", "end_s"]]
    for off in (0, 0.03 * rows["rank"]):
        seen = pp.replay(rows.assign(start_s=rows.start_s + off, end_s=rows.end_s + off), schedule, 4, 8, p2p=p2p).iloc[
            0
        ]
        assert (seen.comm, seen.makespan_s) == (pytest.approx(0.1, rel=1e-3), pytest.approx(run.makespan_s, rel=1e-3))
    assert pp.replay(rows, schedule, 4, 8, p2p=p2p, comm=0.2).comm[0] == 0.2
    assert pp.replay(frame_of([(0, "F", 1), (0, "B", 1)]), "1f1b", 1, 2).comm[0] == 0


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_causes_add_up_to_the_idle_time(schedule):
    """Whatever operations take; and only differences between ranks can shorten a run."""
    for seed in range(5):
        table, frame = noisy(schedule, seed)
        row = pp.replay(frame, table, p2p="blocking", comm=0.3).iloc[0]
        assert sum(row[name] for name in CAUSES) == pytest.approx(row.idle_s)
        assert min(row.bubble_s, row.transfers_s, row.head_of_line_s) > -1e-9
        assert row.makespan_s * (1 - row.idle_ratio) * 4 == pytest.approx(frame.seconds.sum())


def test_each_cause_is_found_where_it_is_put():
    """A bubble alone, then a slow rank, then transfers, then transfers that occupy the ranks."""
    frame = pp.simulate("1f1b", 4, 8, forward=1, backward=2).to_frame()
    frame["seconds"] = frame.end_s - frame.start_s
    frame = frame.drop(columns=["start_s", "end_s"])
    slow = frame.assign(seconds=frame.seconds * (1 + (frame["rank"] == 2)))

    def of(rows, **given):
        return pp.replay(rows, "1f1b", 4, 8, **given)[list(CAUSES)].round(9).to_numpy()[0].tolist()

    assert of(frame) == [9, 0, 0, 0]
    bubble, slower, *rest = of(slow)
    assert bubble == pytest.approx(9 * 5 / 4)
    assert slower >= 48 - (30 + bubble)  # the slow rank alone computes for 48 s
    assert rest == [0, 0]
    assert of(frame, comm=0.1) == [9, 0, 1.6, 0]
    assert of(frame, comm=0.1, p2p="blocking")[3] > 0


@pytest.mark.parametrize("schedule", ["dualpipe", "dualpipev", "combined-1f1b", "stp"])
def test_operations_of_a_cell_share_its_time(schedule):
    """As long as those outside, so that equal ranks are equal; and operations one after the other keep their own."""
    given = {"comm": 0.1, "latency": 0.05}
    run = pp.simulate(schedule, 6, 18, forward=0.7, input_grad=0.8, weight_grad=0.6, **given)
    ran, again = pp.replay(run.to_frame(), schedule, 6, 18, against=[schedule], **given).itertuples()
    assert ran.slower_ranks_s == pytest.approx(0, abs=1e-6)
    assert again.makespan_s == pytest.approx(ran.makespan_s) == run.makespan_s
    rows, table = run.to_frame(), run.table
    for cell in np.unique(table.cell[table.overlaps]):
        first, second = np.flatnonzero(table.cell == cell)
        middle = rows.start_s[first] + 0.25 * (rows.end_s[first] - rows.start_s[first])
        rows.loc[first, "end_s"], rows.loc[second, "start_s"] = middle, middle
    assert pp.replay(rows, schedule, 6, 18, **given).makespan_s[0] == pytest.approx(run.makespan_s)


def test_a_clock_may_begin_anywhere():
    """The last digits of times do not decide which of two messages goes first at a NIC."""
    how = {"p2p": "overlapped_nic", "comm": 0.1}
    run = pp.simulate("zb-v", 4, 8, forward=0.7, backward=1.4, **how)
    frame = run.to_frame()
    shifted = frame.assign(start_s=frame.start_s + 0.1, end_s=frame.end_s + 0.1)
    for rows in (frame, shifted):
        assert pp.replay(rows, "zb-v", 4, 8, **how).makespan_s[0] == pytest.approx(run.makespan_s)


def test_a_row_that_is_missing_is_named():
    """It takes the mean of its kind; a row for all of a kind covers its operations."""
    frame = pp.simulate("1f1b", 4, 8, forward=1, backward=2).to_frame()
    with pytest.warns(UserWarning, match="2F3 3B1: has no row"):
        row = pp.replay(frame[~frame.operation.isin(["2F3", "3B1"])], "1f1b", 4, 8).iloc[0]
    assert row.makespan_s == pytest.approx(33)


def test_means_give_what_alike_operations_give():
    """A row for each kind and rank suffices if operations of a kind are alike."""
    whole = pp.simulate("zb-h1", 4, 8, forward=1, input_grad=1.2, weight_grad=0.5).to_frame()
    one = whole[whole.microbatch == 3]
    means = one.assign(operation=one.kind.str.replace("I", "B"), time_ms=1e3 * (one.end_s - one.start_s))
    row = pp.replay(means[["rank", "operation", "time_ms"]], "zb-h1", 4, 8).iloc[0]
    assert row.makespan_s == pytest.approx(whole.end_s.max())
    assert np.isnan(row.measured_s)


def test_other_schedules_take_the_same_operations():
    """The same computing time on any schedule, spread over the stages that it has; what is undefined says why."""
    _, frame = noisy("1f1b")
    rows = pp.replay(frame, "1f1b", 4, 8, against=["gpipe", "zb-h1", "zb-v", "chimera", "hanayo"])
    busy_s = rows.makespan_s * (1 - rows.idle_ratio)
    assert busy_s[:5].values == pytest.approx(np.full(5, busy_s[0]))
    assert rows.refused.notna().tolist() == [False] * 5 + [True]


def test_a_trace_is_read_as_its_frame(tmp_path):
    """Our own traces, and those of PyTorch's profiler, one file for each rank; slices of the GPU come first."""
    run = pp.simulate("zb-v", 4, 8, forward=1, backward=2, comm=0.1)
    run.to_trace(tmp_path / "run.json")
    frame, files = run.to_frame(), []
    for rank, rows in frame.groupby("rank"):
        events = [{"ph": "X", "cat": "user_annotation", "name": "PP:0F0", "ts": 0, "dur": 1}]
        events += [
            {"ph": "X", "cat": "gpu_user_annotation", "name": f"PP:{row.operation}", "ts": 1e6 * row.start_s,
             "dur": 1e6 * (row.end_s - row.start_s)} for row in rows.itertuples()
        ]  # fmt: skip
        files.append(tmp_path / f"{9 - rank}.json")
        files[-1].write_text(json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": events}))
    for source in (tmp_path / "run.json", files):
        row = pp.replay(source, "zb-v", 4, 8, comm=0.1).iloc[0]
        assert row.makespan_s == pytest.approx(run.makespan_s)
        assert row.measured_s == pytest.approx(run.makespan_s, rel=1e-6)


def test_letters_of_zero_bubble():
    """B beside W is the gradient of the input."""
    rows = [(0, letter, 1.0) for letter in "FBW"]
    kinds = [row.kind for row in read_operation_times(frame_of(rows))]
    assert kinds == [OpKind.F, OpKind.I, OpKind.W]


def frame_of(rows):
    import pandas as pd

    return pd.DataFrame(rows, columns=["rank", "operation", "seconds"])


@pytest.mark.parametrize(("rows", "field", "rule"), [
    ([(0, "F", 1), (0, "X", 1)], "operation", "must be F, B, I or W"), ([(0, "F", 1), (-1, "B", 1)], "rank", "whole"),
    ([(0, "F", "soon"), (0, "B", 1)], "seconds", "above 0"), ([(0, "F", None), (0, "B", 1)], "seconds", "above 0"),
    ([(0, "F", np.timedelta64(1, "ns")), (0, "B", np.timedelta64(2, "ns"))], "seconds", "above 0"),
    ([(0, "F", 1)], "operation", "forwards and backwards"),
    ([(0, "F", 1), (0, "B", 1), (5, "B", 1)], "rank 5", "is not one of 2"),
    ([(0, "F", 1), (0, "B", 1), (0, "B", 1)], "operation", "is there twice"),
    ([(0, "F", 1), (0, "B", 1), (1, "F", 1)], "rank 1", "has no measured time"),
    ([(0, "F", 1), (0, "B9", 1)], "operation", "is not in 1f1b"), ([(0, "1F0", 1), (0, "B", 1)], "rank 0", "has the"),
    ([(0, "F", 1), (0, "I", 1), (0, "W", 1)], "operation", "is not in 1f1b"),
    (pp.simulate("1f1b", 2, 2, forward=1, backward=2).to_frame().assign(start_s=0), "rank 0", "before 0F0 has ended"),
])  # fmt: skip
def test_rows_that_contradict_a_table_are_refused(rows, field, rule):
    """In one line that names what is wrong."""
    with refused(pp.PPModelError, field, rule):
        pp.replay(frame_of(rows) if isinstance(rows, list) else rows, "1f1b", 2, 2)


@pytest.mark.parametrize(("field", "more"), [
    ("schedule", {"against": 4}), ("schedule", {"against": float("nan")}), ("iteration_s", {"iteration_s": "1"}),
    ("iteration_s", {"iteration_s": np.timedelta64(10**9, "ns")}), ("file", {"measured": frame_of([]).seconds}),
    ("file", {"measured": SimpleNamespace(columns=[])}),
])  # fmt: skip
def test_what_is_no_value_is_refused_at_the_door(field, more):
    """In one line that names the argument."""
    rows = frame_of([(0, "F", 1), (0, "B", 1)])
    with refused(pp.PPModelError, field):
        pp.replay(**{"measured": rows, "schedule": "1f1b", "pp": 1, "microbatches": 2} | more)


@pytest.mark.parametrize(("text", "field"), [
    ("rank,operation\n0,F\n", "columns"), ("rank,seconds\n0,1\n", "columns"),
    ("rank,operation,start_s,end_s\n0,F,1,0\n", "end_s"), ("rank,operation,start_s,end_s\n0,F,,1\n", "start_s"),
    ("rank,operation,time_ms,seconds\n0,F,1,1\n", "seconds"),
    ("rank,operation,start_s,end_s,seconds\n0,F,0,1,2\n", "seconds"),
])  # fmt: skip
def test_broken_files_are_refused(tmp_path, text, field):
    """With file and line."""
    (tmp_path / "rows.csv").write_text(text)
    with refused(pp.PPModelError, field, where="rows.csv"):
        pp.replay(tmp_path / "rows.csv", "1f1b", 2, 2)


@pytest.mark.parametrize("text", ["{}", "[]", '{"traceEvents": 3}', '{"traceEvents": [{"ph": "X", "name": "mm"}]}'])
def test_a_trace_without_operations_is_refused(tmp_path, text):
    """As is a frame without rows."""
    with refused(pp.PPModelError, "operations", "must be in the source"):
        pp.replay(frame_of([]), "1f1b", 2, 2)
    (tmp_path / "trace.json").write_text(text)
    with refused(pp.PPModelError, "operations", "must be in the source", where="trace.json"):
        pp.replay(tmp_path / "trace.json", "1f1b", 2, 2)


def test_the_command_says_where_the_time_goes(tmp_path, capsys):
    """A line for each cause, a table of the other schedules, and the same numbers in JSON and CSV."""
    from ppmodel.cli.process import main

    run = pp.simulate("1f1b", 4, 8, forward=1, backward=2, comm=0.1)
    run.to_frame().to_csv(tmp_path / "run.csv", index=False)
    line = f"replay {tmp_path / 'run.csv'} --schedule 1f1b --pp 4 --microbatches 8 --comm 0.1".split()
    assert main([*line, "--against", "zb-h1", "--against", "hanayo"]) == 0
    text = capsys.readouterr().out
    assert main(line[:-2]) == 0
    assert "0.1 s each, as gaps between operations show" in capsys.readouterr().out
    assert {"bubble", "slower ranks", "transfers", "head of line", "refused:"} <= {
        entry.strip() for at in text.splitlines() for entry in at.split("  ")
    }
    assert main([*line, "--json", "--csv", str(tmp_path / "out.csv")]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as file:
        (written,) = csv.DictReader(file)
    assert row["makespan_s"] == pytest.approx(34.6) == float(written["makespan_s"])
    assert row["refused"] is None
