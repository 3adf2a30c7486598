"""Schedules compared on the command line."""

import csv
import json
import re
import shutil

import pytest
from commands import SECONDS, run

from ppmodel import build, simulate
from ppmodel.export import csv_cell
from ppmodel.studies.points import compared
from ppmodel.studies.points.columns import column_names

COLUMNS = column_names("schedule", "system", "result", "remark")

COMPARE = "compare 1f1b zb-v mine.py interleaved-1f1b:chunks=4 hanayo --pp 8 --microbatches 64"


@pytest.mark.usefixtures("own")
def test_schedules_are_ranked_by_time(capsys):
    """A line a schedule, the fastest first; those that are not defined at the size below, with their reason."""
    code, out, err = run(capsys, f"{COMPARE} {SECONDS} --comm 0.1")
    head, columns, *lines = out.splitlines()
    assert (code, err) == (0, "")
    assert head == "8 ranks, 64 microbatches; transfers overlapped, all-reduce excluded"
    assert columns.split("  ")[-1].strip() == "messages"
    cells = [re.split(r"\s{2,}", line) for line in lines[:4]]
    assert [cell[0] for cell in cells] == ["1", "2", "3", "4"]
    times = {cell[1]: float(cell[2]) for cell in cells}
    assert list(times.values()) == sorted(times.values())
    assert times["1F1B"] == pytest.approx(simulate("1f1b", 8, 64, forward=1, backward=2, comm=0.1).makespan_s)
    relative = [seconds / min(times.values()) for seconds in times.values()]
    assert [float(cell[3]) for cell in cells] == pytest.approx(relative, abs=5e-4)
    assert "node-aware 1F1B" in times
    assert lines[4] == "refused:"
    assert lines[5].startswith("  Hanayo: microbatches = 64: must equal")


@pytest.mark.usefixtures("own")
def test_a_comparison_is_written_as_json_and_csv(capsys):
    """The rows of `points.compared` in the order of the ranking, under its columns; the file is the same."""
    line = f"{COMPARE} --model paper --system slow_between_nodes --json --csv out.csv"
    rows = json.loads(run(capsys, line)[1])
    assert all(list(row) == list(COLUMNS) for row in rows)
    expected = compared("1f1b", 8, 64, model="paper", system="slow_between_nodes")[1][0]
    assert next(row for row in rows if row["label"] == "1F1B") == expected
    assert [row["refused"] is None for row in rows] == [True] * 4 + [False]
    with open("out.csv", newline="") as file:
        written = list(csv.DictReader(file))
    for row, again in zip(rows, written, strict=True):
        assert {key: "" if value is None else str(csv_cell(value)) for key, value in row.items()} == again


@pytest.mark.usefixtures("own")
def test_a_comparison_takes_the_size_of_a_table(capsys):
    """That of the table counts unless another is given; equally fast ones share a place; equal names are told apart."""
    shutil.copy("mine.csv", "again.csv")
    out = run(capsys, f"compare mine.csv again.csv 1f1b {SECONDS} --comm 0.5")[1]
    assert out.startswith("4 ranks, 8 microbatches;")
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["1", "1", "3"]
    assert "by hand (mine.csv)" in out
    assert "by hand (again.csv)" in out
    one = run(capsys, f"compare mine.csv --pp 8 --microbatches 8 {SECONDS}")
    assert one[0] == 1
    assert "is a table for pp = 4, microbatches = 8" in one[1]


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("names", ["mine.csv large.csv", "large.csv 1f1b mine.csv"])
def test_tables_of_several_sizes_are_not_ranked(capsys, names):
    """Whatever their order, and also under a layout, which leaves the size to them."""
    build("gpipe", 4, 16).to_csv("large.csv")
    layout = "--model llama3_8b --system h100 --tp 2"
    for costs in (SECONDS, layout):
        code, out, err = run(capsys, f"compare {names} {costs}")
        assert (code, out) == (2, "")
        assert "--microbatches is missing, and the tables differ: 8 and 16;" in err
    assert run(capsys, f"compare {names} --microbatches 8 {SECONDS}")[1].startswith("4 ranks, 8 microbatches;")


def test_a_pairs_seconds_are_for_those_that_have_pairs(capsys):
    """Beside DualPipe, 1F1B is compared as ever; alone it refuses seconds that nothing of it takes."""
    line = f"compare 1f1b dualpipe --pp 4 --microbatches 8 {SECONDS} --json"
    plain, paired = (
        {row["schedule"]: row["makespan_s"] for row in json.loads(run(capsys, line + more)[1])}
        for more in ("", " --pair 2")
    )
    assert plain["1f1b"] == paired["1f1b"]
    assert plain["dualpipe"] > paired["dualpipe"]


def test_a_model_without_a_layout_says_how_large_its_microbatches_are(capsys):
    """Memory that does not fit is that of a microbatch of many sequences: its share of the model's global batch."""
    code, printed, _ = run(capsys, "compare 1f1b --pp 4 --microbatches 64 --model llama3_8b --system dgx_h100")
    assert code == 0
    assert "microbatches of 8 sequences" in printed.splitlines()[0]


@pytest.mark.parametrize(
    ("delay", "p2p", "said"),
    [
        ("3", "", "the way of sending decides: under overlapped, ZB-2p is faster than 1F1B"),
        ("3", "--p2p latency", "the way of sending decides: as the framework sends, 1F1B is faster than ZB-2p"),
        ("3", "--p2p streams", "the way of sending decides: as the framework sends, 1F1B is faster than ZB-2p"),
        ("0", "--p2p latency", ""),
    ],
)
def test_an_order_that_the_way_of_sending_decides_is_said(capsys, delay, p2p, said):
    """In one line, over a slow link; and every schedule's transfers in the first."""
    line = f"compare 1f1b zb-2p --pp 8 --microbatches 24 --forward 1 --backward 2 --link 6-7:delay={delay} {p2p}"
    code, printed, _ = run(capsys, line)
    assert code == 0
    assert [text for text in printed.splitlines() if "way of sending" in text] == [said] * bool(said)
    if not p2p:
        assert "transfers rendezvous (1F1B), streams (ZB-2p), links 6-7:delay=3" in printed.splitlines()[0]


def test_what_the_framework_does_not_run_is_said_with_what_does(capsys):
    """Below the ranking; a framework that has the schedule as it is modelled says nothing, nor do users' own tables."""
    line = "compare 1f1b zb-v --pp 4 --model llama3_8b --system h100 --tp 2 --dp 2 --global-batch 64"
    code, printed, _ = run(capsys, line)
    before, said, after = printed.partition("megatron does not run")
    assert (code, bool(said)) == (0, True)
    assert "ZB-V" in before
    assert [text.split(":")[0].strip() for text in after.splitlines()[1:]] == ["ZB-V"]
    assert "does not run" not in run(capsys, f"{line} --framework fsdp")[1]


def test_a_comparison_with_a_layout_of_which_every_row_is_refused_says_why(capsys):
    """There is no range to state, nor a ranking."""
    line = "compare 1f1b zb-v --pp 3 --model llama3_8b --system h100 --tp 2 --dp 2 --global-batch 63 --layers 11,11,11"
    code, out, err = run(capsys, line)
    assert (code, err) == (1, "")
    assert "range" not in out
    assert [line.partition(":")[0] for line in out.partition("refused:\n")[2].splitlines()] == ["  1F1B", "  ZB-V"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "slicing decides: with --slicing work, Seq1F1B K = 8 is faster than 1F1B; so with 2 other pairs"),
        ("--slicing work", ""),
        ("--sequence 8192", ""),
    ],
)
def test_an_order_that_slicing_decides_is_said(capsys, more, said):
    """Slices of equal tokens of a long sequence take unequal time, so that they look slower than whole sequences."""
    size = "--pp 8 --microbatches 16 --model llama3_70b --system h100 --tp 8 --cp 8 --sequence 1048576"
    code, printed, _ = run(capsys, f"compare 1f1b seq1f1b:slices=8 seq1f1b:slices=2 {size} {more}")
    assert code == 0
    assert [text for text in printed.splitlines() if "slicing decides" in text] == [said] * bool(said)
