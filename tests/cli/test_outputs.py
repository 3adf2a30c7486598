"""Where a command writes: streams are added to, and what it reads is not replaced."""

import csv
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import SECONDS
from refusals import refused

from ppmodel import build, load_system, read_table
from ppmodel.cli import main
from ppmodel.clusters.specs import DATA
from ppmodel.errors import PPModelError
from ppmodel.export import text_of_cell
from ppmodel.studies.measured.rows import read_rows

ROOT = Path(__file__).parents[2]
COMPARE = f"compare 1f1b gpipe --pp 4 --microbatches 8 {SECONDS}".split()


@pytest.mark.parametrize(("mode", "kept"), [("a", ["kept"]), ("w", [])])
def test_a_redirected_stream_is_added_to(tmp_path, mode, kept):
    """A log keeps its lines and gets table and rows; a new file has both, neither over the other."""
    log = tmp_path / "thesis.log"
    log.write_text("kept\n")
    command = [sys.executable, "-m", "ppmodel", *COMPARE, "--csv", "/dev/stdout"]
    with log.open(mode) as output:
        subprocess.run(command, stdout=output, check=True)
    lines = log.read_text().splitlines()
    assert [line.split(",")[0] for line in lines[: len(kept) + 4]] == [*kept, "schedule", "1f1b", "gpipe", "4 ranks"]


PLAN = "plan --model llama3_8b --system h100 --gpus 4 --global-batch 8 --fix pp=2 tp=2 --schedules 1f1b --pareto"


@pytest.mark.parametrize("form", ["svg", "png", "pdf"])
def test_a_picture_is_whole_or_not_there_also_on_a_full_disk(tmp_path, monkeypatch, capsys, form):
    """As any other output; and the same question draws the same bytes."""
    monkeypatch.chdir(tmp_path)
    target, limits = tmp_path / f"front.{form}", resource.getrlimit(resource.RLIMIT_FSIZE)
    drawn = []
    for day in ("1", "86401"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", day)
        assert main([*PLAN.split(), target.name]) == 0
        drawn.append(target.read_bytes())
    assert drawn[0] == drawn[1]
    target.write_text("before")
    capsys.readouterr()
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        assert main([*PLAN.split(), target.name]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert re.search(r"--pareto = .*: cannot be written", capsys.readouterr().err)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(target.name, "before")]


@pytest.mark.parametrize("line", ["compare mine.py:depth=2 1f1b --csv", "simulate mine.py:depth=2 --trace"])
def test_a_schedules_file_is_not_replaced_by_output(tmp_path, monkeypatch, capsys, line):
    """Also if options follow its name, or another link leads to it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("# mine")
    (tmp_path / "link.csv").symlink_to(tmp_path / "mine.py")
    for target in ("mine.py", "link.csv"):
        words = [*line.split(), target, *f"--pp 4 --microbatches 8 {SECONDS}".split()]
        assert main(words) == 2
        assert "is what this command reads" in capsys.readouterr().err
    assert (tmp_path / "mine.py").read_text() == "# mine"


ASKED = f"{PLAN.removesuffix('--pareto')} --within 0".split()


@pytest.mark.parametrize("line", [f"{' '.join(ASKED)} --pareto out.svg --csv",
    "simulate 1f1b --pp 2 --microbatches 4 --model llama3_8b --system h100 --tp 2 --trace"])  # fmt: skip
def test_what_is_refused_is_refused_before_anything_is_written(tmp_path, monkeypatch, capsys, line):
    """Also by the last file that is read, and by a rule of it that only the answer breaks."""
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text((DATA / "templates" / "layout.yaml").read_text())
    text = (DATA / "launchers" / "megatron.yaml").read_text()
    Path("worse.yaml").write_text(text.replace("fields:", "fields:\n  nothing: [{write: [--x]}]", 1))
    for name in ("bad.yaml", "worse.yaml"):
        assert main([*line.split(), "out.x", "--launch", name]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.yaml", "worse.yaml"]


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path):
    """What was private stays so."""
    (mine := tmp_path / "mine.csv").write_text("before")
    mine.chmod(0o600)
    build("1f1b", 2, 2).to_csv(mine)
    assert mine.stat().st_mode & 0o777 == 0o600


NAMES = ["a\0b.csv", "a\0b.py", "\ud800.csv", "\ud800.py", "x" * 300, "x" * 300 + ".py", "x/" * 3000 + "a.yaml"]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
@pytest.mark.parametrize("use", [build, read_table, load_system, lambda name: build("1f1b", 2, 2).to_csv(name)])
def test_names_that_no_file_can_have_are_refused(tmp_path, monkeypatch, name, use):
    """NUL, lone surrogates and too many characters, read or written, are one line that can be printed."""
    monkeypatch.chdir(tmp_path)
    with refused(PPModelError) as caught:
        use(name)
    assert str(caught.value).isprintable()


NASTY = ["=1+1", "+1+1", "-1+cmd", "@SUM(1)", "a,=1+1", "'=1+1"]


@pytest.mark.parametrize("text", NASTY)
def test_no_written_cell_is_a_formula(tmp_path, monkeypatch, text):
    """Names, ids, titles and notes of users, in every file of rows or operations that is written; read again, too."""
    monkeypatch.chdir(tmp_path)
    rows = "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"
    Path("t.csv").write_text(f"# schedule: {text}\n{rows}")
    Path(f"{text}.yaml").write_text((DATA / "templates" / "system.yaml").read_text())
    operations = "rank,operation,start_s,end_s\n0,0F0,0,1\n1,1F0,1,2\n1,1B0,2,4\n0,0B0,4,6\n"
    Path("operations.csv").write_text(operations)
    with (DATA / "reference" / "measured" / "simumax_b200.csv").open() as file:
        header, row, *_ = csv.reader(line for line in file if not line.startswith("#"))
    row = [text if name == "source" else cell for name, cell in zip(header, row, strict=True)]
    with open("rows.csv", "w", newline="") as file:
        csv.writer(file).writerows([[*header, text], [*row, text]])
    lines = [
        f"compare t.csv gpipe {SECONDS} --csv compare.csv",
        f"compare 1f1b --pp 2 --microbatches 2 --model paper --system {shlex.quote(f'./{text}.yaml')} --csv system.csv",
        "predict rows.csv --system b200 --out predict.csv",
        "replay operations.csv --schedule gpipe --pp 2 --microbatches 1 --against 1f1b --csv replay.csv",
    ]  # fmt: skip
    for line in lines:
        assert main(shlex.split(line)) in (0, 1), line
    read_table("t.csv").to_csv("table.csv")
    assert read_table("table.csv").name == text
    _, (again,) = read_rows("predict.csv")
    assert again[text_of_cell(text)] == text_of_cell(text)  # one apostrophe is that of a spreadsheet
    for name in ("compare.csv", "system.csv", "predict.csv", "replay.csv", "table.csv"):
        with open(name, newline="") as file:
            cells = [cell for line in csv.reader(file) for cell in line]
        assert not [cell for cell in cells if re.match(r"[=@\t\r]|[-+](?![\d.e+-]*$)", cell)], name
