"""Where a command writes: streams are added to, and what it reads is not replaced."""

import shlex
import subprocess
import sys

import pytest
from commands import SECONDS
from refusals import refused

from ppmodel import build, load_system, read_table
from ppmodel.cli import main
from ppmodel.errors import PPModelError
from ppmodel.specs import DATA

COMPARE = f"compare 1f1b gpipe --pp 4 --microbatches 8 {SECONDS}".split()


def test_a_redirected_stream_is_added_to(tmp_path):
    """A log keeps its lines and gets table and rows; a redirected input is refused."""
    log = tmp_path / "thesis.log"
    log.write_text("kept\n")
    command = [sys.executable, "-m", "ppmodel", *COMPARE, "--csv", "/dev/stdout"]
    with log.open("a") as output:
        subprocess.run(command, stdout=output, check=True)
    lines = log.read_text().splitlines()
    assert lines[0] == "kept"
    assert any(line.startswith("schedule,options,label") for line in lines)
    assert any("relative" in line for line in lines)
    command[-1] = "/dev/stdin"
    with log.open() as given:
        done = subprocess.run(command, stdin=given, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert log.read_text().splitlines() == lines


@pytest.mark.parametrize("line", ["compare mine.py:depth=2 1f1b --csv", "simulate mine.py:depth=2 --trace"])
def test_a_schedules_file_is_not_replaced_by_output(tmp_path, monkeypatch, capsys, line):
    """Also if options follow its name, or another link leads to it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("# mine")
    (tmp_path / "link.csv").hardlink_to(tmp_path / "mine.py")
    for target in ("mine.py", "link.csv"):
        words = [*line.split(), target, *f"--pp 4 --microbatches 8 {SECONDS}".split()]
        assert main(words) == 2
        assert "is what this command reads" in capsys.readouterr().err
    assert (tmp_path / "mine.py").read_text() == "# mine"


def test_a_new_file_gets_rows_and_table(tmp_path):
    """Also where the shell does not append: neither is written over the other."""
    with (tmp_path / "new.txt").open("w") as output:
        subprocess.run([sys.executable, "-m", "ppmodel", *COMPARE, "--csv", "/dev/stdout"], stdout=output, check=True)
    lines = (tmp_path / "new.txt").read_text().splitlines()
    assert [line.split(",")[0] for line in lines[:4]] == ["schedule", "1f1b", "gpipe", "4 ranks"]


def test_files_of_the_package_and_protected_ones_stay(tmp_path):
    """Whatever their names; a file that is replaced stays private."""
    table, mine = build("1f1b", 2, 2), tmp_path / "mine.csv"
    (tmp_path / "link.yaml").symlink_to(DATA / "systems" / "a100.yaml")
    for target in (DATA / "systems" / "a100.yaml", tmp_path / "link.yaml"):
        with refused(PPModelError, "table", "comes with the package"):
            table.to_csv(target)
    mine.write_text("before")
    mine.chmod(0o600)
    table.to_csv(mine)
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


@pytest.mark.parametrize("more", ["", "--workers 2"])
def test_a_sweep_without_streams_ends_as_usual(tmp_path, more):
    """Nobody reads its progress."""
    (tmp_path / "s.yaml").write_text("schedules: 1f1b\npp: 4\nmicrobatches: 8\nmodels: paper\nsystems: a100\n")
    line = f"{shlex.quote(sys.executable)} -m ppmodel sweep s.yaml --out out.parquet {more} <&- >&- 2>&-"
    assert subprocess.run(["bash", "-c", line], cwd=tmp_path).returncode == 0
    assert (tmp_path / "out.parquet").exists()
