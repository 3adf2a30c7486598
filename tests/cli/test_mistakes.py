"""Mistakes on the command line: one line each, and exit code 2."""

import re
import shutil
from itertools import cycle, product
from pathlib import Path

import pytest
from commands import ROOT, SECONDS, SIMULATE, run

BAD = ROOT / "tests" / "bad"
LAID_OUT = f"{SIMULATE} --model llama3_8b --system h100 --tp 2"
REFUSED = {
    f"simulate gpip --pp 4 --microbatches 8 {SECONDS}": "schedule = gpip: .*did you mean gpipe",
    f"simulate gpipe --pp 4 --microbatches 0 {SECONDS}": "--microbatches = 0: must be a whole number",
    f"simulate gpipe --pp x --microbatches 8 {SECONDS}": "--pp = x: must be a whole number",
    f"simulate gpipe --microbatches 8 {SECONDS}": "--pp is missing",
    f"simulate chimera --pp 5 --microbatches 5 {SECONDS}": "--pp = 5: must be even",
    f"simulate hanayo --pp 4 --microbatches 8 {SECONDS}": "--microbatches = 8: must equal pp",
    f"simulate hanayo --pp 4 --microbatches 4 --waves two {SECONDS}": "--waves = two: must be a whole number",
    f"simulate asymmetric-chimera --pp 4 --microbatches 4 --split 1:0 {SECONDS}": "--split = 1:0: must be two",
    f"simulate chimera --pp 4 --microbatches 4 --concat up {SECONDS}": "--concat = up: must be one of",
    f"{SIMULATE} --waves 2 {SECONDS}": "--waves = 2: is not an option of 1f1b",
    f"{SIMULATE} --forward 1 --input-grad 1": "--backward is missing; give --backward, or --input-grad",
    f"{SIMULATE} {SECONDS} --input-grad 1": "--backward = .*: cannot be combined with its halves",
    f"{SIMULATE} {SECONDS} --pair 0": "--pair = 0: must be a finite number of seconds, above 0",
    f"{SIMULATE} {SECONDS} --pair 2": "--pair = 2.0: has no effect: 1f1b has no cell with both a forward",
    f"{SIMULATE} --forward nan --backward 2": "--forward = nan: must be a finite number",
    f"{SIMULATE} --forward -1 --backward 2": "--forward = -1: must be a finite number",
    f"{SIMULATE} --forward 1 --backward two": "--backward = two: must be a finite number",
    f"{SIMULATE} {SECONDS} --comm inf": "--comm = inf: must be a finite number",
    f"{SIMULATE} --forward 1": "--backward is missing",
    SIMULATE: "--forward is missing",
    f"{SIMULATE} --model paper": "--system is missing",
    f"{SIMULATE} {SECONDS} --model paper": "--forward = 1.0: cannot be combined with model and system",
    f"{SIMULATE} --model paper --system mid": "system = mid: is neither a known name",
    f"{SIMULATE} --model paper --system {BAD}/systems/negative.yaml": "negative.yaml:9: network_bandwidth.value = -50",
    f"{SIMULATE} --model paper --system none.yaml": "system = none.yaml: is not a file",
    "simulate 1f1b --pp 4 --microbatches 7 --model paper --system dgx_h100": "global_batch = 256: must divide",
    f"{SIMULATE} {SECONDS} --p2p mail": "--p2p = mail: must be one of",
    f"{SIMULATE} {SECONDS} --stages 4": "--stages is not an option of ppmodel simulate; did you mean --pp?",
    "simulate --table mine.csv": "--table is not an option of ppmodel simulate; did you mean --schedule-file?",
    f"{SIMULATE} --tensor-parallel-size 4": "is not an option of ppmodel simulate; did you mean --tp?",
    f"{SIMULATE} {SECONDS} --frwrd 1": "--frwrd is not an option of ppmodel simulate; did you mean --forward",
    f"simulate {SECONDS}": "NAME must be given",
    "table gpipe --pp 2 --microbatches 2 --format xml": "--format = xml: must be one of",
    "table chimera --pp 4 --microbatches 4 --format pytorch": "has stage 0 on ranks 0 and 3; .*--format csv",
    f"{SIMULATE} {SECONDS} --trace nowhere/trace.json": "--trace = .*nowhere, which is no folder",
    "check nowhere.csv": "cannot be read",
    "check": "NAME must be given",
    f"simulate gpipe --pp 1_0 --microbatches 8 {SECONDS}": "--pp = 1_0: must be a whole number",
    f"simulate gpipe --pp 99999999999 --microbatches 8 {SECONDS}": "must be a whole number",
    f"simulate hanayo --pp 8 --microbatches 8 --waves 1000000 {SECONDS}": "must be at most",
    f"simulate asymmetric-chimera --pp 4 --microbatches 4 --split 1:9999 {SECONDS}": "1:9999: must be two",
    f"{SIMULATE} --forward 1e308 --backward 1e308": "--forward = 1e.308: must be 0, or from 1e-30 to 1e.30 seconds",
    f"simulate chimera --pp 4 --microbatches 8 {SECONDS} --allreduce blocking": "--reduction is missing",
    f"{SIMULATE} --model paper --system {'a' * 300}.yaml": "is not a file",
    "simulate nowhere.py --pp 4 --microbatches 8": "error: file = nowhere.py: is not a file; check the path",
    "frobnicate": "frobnicate is not a command of ppmodel; choose one of table, .*claims",
    "simulte": "simulte is not a command of ppmodel; did you mean simulate",
    f"{LAID_OUT} --sequence 8k": "--sequence = 8k: must be a whole number; write it in digits, such as 8192",
    f"{LAID_OUT} --recompute mpl": "; did you mean mlp?",
    f"{LAID_OUT} --sequence 1M": "--sequence = 1M: must be a whole number; write it in digits",
    f"{LAID_OUT} --link 0-1:delay=2": "--link = delay=2: needs a unit of time; write delay=2ms",
    f"simulate seq1f1b:slices=4 --slices 2 --pp 4 --microbatches 8 {SECONDS}": "--slices = 2: is also in seq1f1b:sli",
    f"{LAID_OUT} --lengths lognormal:1": "--lengths = lognormal:1: must be the word equal, numbers above 0, or",
    f"{SIMULATE} {SECONDS} --tp 4": "--tp = 4: needs a model and a system; give --model and --system",
    f"simulate 1f1b --microbatches 8 {SECONDS} --pp 0": "--pp = 0: must be a whole number",
    f"simulate 1f1b --microbatches 8 {SECONDS} --pp 2,4": "--pp = 2,4: .*; lists are for ppmodel sweep",
    f"simulate interleaved-1f1b:chunks=2,4 {SECONDS} --pp 4": "chunks = 2,4: .* interleaved-1f1b:chunks=4",
    f"{SIMULATE} {SECONDS} --comm": "--comm.* requires an argument",
    f"{SIMULATE} {SECONDS} --reduction 1": "--reduction = 1.0: has no effect: the all-reduce is excluded",
    "simulate zb-1p --pp 4 --microbatches 8 --forward 1 --input-grad 1 --weight-grad 0": "times of forward and halves",
    "sweep x.yaml": "--out is missing; pass --out FILE",
    "compare --pp 4 --microbatches 8 --forward 1 --backward 2": "NAME is missing",
    f"compare 1f1b gpip --pp 4 --microbatches 8 {SECONDS}": "schedule = gpip: .*did you mean gpipe",
    f"compare 1f1b {SECONDS}": "--pp is missing",
    f"compare 1f1b:chunks=2 --pp 4 --microbatches 8 {SECONDS}": "chunks = 2: is not an option of 1f1b",
    f"compare hanayo:waves=two --pp 4 --microbatches 8 {SECONDS}": "waves = two: must be a whole number",
    f"compare 1f1b nowhere.csv --pp 4 --microbatches 8 {SECONDS}": "nowhere.csv: cannot be read",
    f"compare 1f1b nowhere.py --pp 4 --microbatches 8 {SECONDS}": "nowhere.py: .*check the path",
    "compare 1f1b --pp 4 --microbatches 8": "--forward is missing",
    f"compare 1f1b --pp 4 --microbatches 8 {SECONDS} --csv nowhere/out.csv": "--csv = .*nowhere, which is no folder",
    "compare 1f1b --pp 4 --microbatches 8 --model paper --system mid": "system = mid: is neither",
    "": None,
}


@pytest.mark.parametrize("line", REFUSED)
def test_mistakes_cost_one_line_and_exit_code_2(capsys, line):
    """What a user typed wrong is named with its value, the rule and a remedy, on one line."""
    code, out, err = run(capsys, line)
    if REFUSED[line] is None:
        assert "Usage" in out + err
        return
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert re.search(REFUSED[line], err), err


@pytest.mark.parametrize("name", ["deadlock", "doubled", "early", "misplaced", "missing"])
def test_bad_tables_are_refused(capsys, name):
    """One line, exit code 2, and the grid with the cell marked."""
    code, out, err = run(capsys, ["check", str(path := BAD / "tables" / f"{name}.csv")])
    assert (code, out) == (2, "")
    first, *grid = err.splitlines()
    assert first.startswith(f"error: {path}")
    assert grid[0].startswith("rank 0")
    assert ">" in err


VALUES = [
    "", " ", "0", "-1", "8 ", "0x8", "1e3", "1.5", "1_000", "٤", "nan", "inf", "1e309", "9" * 5000, "1000000000",
    "\x1b[2J", "\u202e", "{{7*7}}", "=1+1", "--", "$(id)", "%s", "a" * 10**4, "1:2:3:4", ".", "/dev/null",
    "nowhere.csv", "nowhere.py", "nowhere.yaml", "1f1b:=", "1f1b:chunks=2", "null", "[]", "odd.csv", "odd.json",
    "odd.yaml", "odd.py",
]  # fmt: skip
ODD = [b"", b"\0" * 99, b"\xe9\n", b"[" * 800, b"0F0," + b"9" * 5000, b"a: &a [*a]", b"!!x", b"x = 1"]
COMMANDS = {
    f"table hanayo {SIMULATE[14:]}": ["", "--pp", "--waves", "--format"],
    f"check 1f1b {SIMULATE[14:]}": ["", "--microbatches"],
    f"{SIMULATE} {SECONDS}": ["", "--pp", "--forward", "--comm", "--p2p", "--allreduce", "--trace", "--schedule-file"],
    f"{SIMULATE} --model paper --system dgx_h100": ["--model", "--system", "--framework", "--tp", "--link"],
    f"compare 1f1b --pp 4 --microbatches 8 {SECONDS}": ["", "--csv", "--pair"],
    "plan --model llama3_8b --system h100 --gpus 4 --global-batch 8 pp=2 --schedules 1f1b": ["--gpus", "--fix"],
    "predict odd.csv --system h100 --out x.csv": ["", "--system", "--out"],
    "calibrate odd.csv --system h100 --out x.yaml": ["", "--run", "--prior", "--constants"],
    "measure --system h100 --out x.yaml": ["--gemm", "--probe", "--trace", "--date"],
    "replay odd.csv --schedule 1f1b --pp 4 --microbatches 8": ["", "--schedule", "--p2p", "--against"],
    "sweep odd.yaml --out x.parquet": ["", "--out", "--workers", "--schedule-file"],
    "claims": ["--system"],
    "run nowhere": ["", "--out"],
    "reproduce --system nowhere.yaml": ["--memory-limit", "--jobs"],
}  # fmt: skip
"""A line for each command, and where a value is tried: as an option's, or in place of the first argument."""


@pytest.mark.parametrize("line", COMMANDS)
def test_any_value_and_any_file_is_an_answer_or_one_line(line, capsys, tmp_path, monkeypatch):
    """Whatever a value is, and whatever the file that it names holds; a refusal leaves nothing behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", None)
    for (option, value), content in zip(product(COMMANDS[line], VALUES), cycle(ODD)):
        for name in ("odd.csv", "odd.json", "odd.yaml", "odd.py"):
            Path(name).write_bytes(content)
        words = line.split()
        if option == "":
            words[1] = value
        elif option in words:
            words[words.index(option) + 1] = value
        else:
            words += [option, value]
        before = set(tmp_path.iterdir())
        code, out, err = run(capsys, words)
        errors = [text for text in err.splitlines() if not re.match(r"note: |rank +\d+ \||\.\.\.$", text)]
        assert (code in (0, 1) and not errors and out) or (code == 2 and len(errors) == 1), (words, err)
        assert len(err) < 4000, words
        assert "".join(err.split("\n")).isprintable(), words
        left = set(tmp_path.iterdir()) - before
        assert not left or code != 2, (words, left)
        for path in left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
