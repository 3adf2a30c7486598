"""The command line as a process: Ctrl-C, streams that nobody reads, and variables of libraries."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import SECONDS, SIMULATE


def process(line, **options):
    return subprocess.Popen([sys.executable, "-m", "ppmodel", *line.split()], stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize("milliseconds", [0, 50, 100, 200])
def test_an_interruption_is_one_line_from_the_start(milliseconds):
    """Ctrl-C while modules load, from the first of them on, is no traceback."""
    running = process(
        f"simulate dualpipe --pp 64 --microbatches 30000 {SECONDS}", stdout=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    while "numpy" not in Path(f"/proc/{running.pid}/maps").read_text():
        time.sleep(0.002)
    time.sleep(milliseconds / 1000)
    running.send_signal(signal.SIGINT)
    err = running.communicate()[1].decode()
    assert (running.returncode, err) == (130, "interrupted\n")


def test_an_interruption_while_text_is_executed_has_the_same_exit_code(tmp_path):
    """Python ends such a process by the signal, however the exception was caught."""
    text = "from ppmodel.cli import process\nprocess.main = lambda: exec('raise KeyboardInterrupt')\nprocess.run()"
    (tmp_path / "interrupted.py").write_text(text)
    done = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("value", ["0", "x", "-1"])
def test_variables_that_numba_cannot_read_are_one_line(value):
    """A bad number of threads is told by its name, where compiled code is first needed."""
    line = "check 1f1b --pp 64 --microbatches 2100"
    running = process(line, stdout=subprocess.PIPE, env=os.environ | {"NUMBA_NUM_THREADS": value})
    out, err = running.communicate()
    assert (running.returncode, out) == (2, b"")
    assert re.fullmatch(rb"error: numba = .*: cannot be loaded; fix its variables NUMBA_\.\.\., .*\n", err)


@pytest.mark.parametrize("line", ["schedules", "--help", f"{SIMULATE} {SECONDS}"])
@pytest.mark.parametrize(("to", "code"), [("| true", 0), (">/dev/full", 2)])
def test_output_that_nobody_reads_is_no_error_and_a_full_disk_is(line, to, code):
    """In one line, without a traceback."""
    shell = f"{shlex.quote(sys.executable)} -m ppmodel {line} {to}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (code, int(code > 0))
