"""Where a command writes: streams are added to, and what it reads is not replaced."""

import subprocess
import sys

import pytest
from commands import SECONDS

from ppmodel.cli import main

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
