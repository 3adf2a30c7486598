"""Hostile command lines by the hundred: each ends in a result or in one line, and leaves nothing behind."""

import faulthandler
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from ppmodel import names
from ppmodel.cli import main
from ppmodel.simulation import graph

BAD = Path(__file__).parents[1] / "bad"
SIMULATE = "simulate 1f1b --pp 4 --microbatches 8 --forward 1 --backward 2"
SPECIFIED = "simulate 1f1b --pp 4 --microbatches 8 --model paper --system dgx_h100"
COMPARE = "compare 1f1b --pp 4 --microbatches 8 --forward 1 --backward 2"
MOST, MOST_LINES = 2000, 3
VALUES = [
    "", " ", "0", "-1", "8 ", "0x8", "1e3", "1.5", "1_000", "٤", "nan", "inf", "1e309", "9" * 5000, "1000000000",
    "4194305", "\x1b[2J", "\udcff", "\u202e", "{{7*7}}", "=1+1", "💥", "--", "--pp", "'", "$(id)", "%s", "a" * 10**5,
    "1:2:3:4", ":", "../..", "/dev/zero", "/dev/stdin", "/proc/self/mem", "nowhere.csv", "nowhere.py", "nowhere.yaml",
    ".", "1f1b:", "1f1b:=", "1f1b:chunks=2", "*", "null", "true", "[]",
]  # fmt: skip
OPTIONS = {
    SIMULATE: ["--pp", "--microbatches", "--forward", "--backward", "--comm", "--pair", "--p2p", "--allreduce"],
    SPECIFIED: ["--model", "--system"],
    f"{SIMULATE} ": ["--trace", "--schedule-file", "--chunks", "--reduction", "--input-grad", "--time-limit"],
    COMPARE: ["--csv"],
    "table hanayo --pp 4 --microbatches 4": ["--waves", "--format"],
    "table asymmetric-chimera --pp 4 --microbatches 8": ["--split", "--concat"],
    "table zb-1p --pp 4 --microbatches 8": ["--times", "--limit", "--held"],
    "claims": ["--system", "--model", "--setting", "--of"],
    "sweep sweep.yaml": ["--out", "--workers", "--schedule-file"],
    "run nowhere": ["--out"],
    "reproduce --system nowhere.yaml": ["--memory-limit", "--jobs", "--model"],
}
NAMED = ["table {} --pp 4 --microbatches 8", "check {}", "run {}", "sweep {} --out x.parquet", "{}", "compare {} 1f1b"]
ODD_LINES = [
    "-h -h", "--version x", "simulate", "compare", "check", "run", "sweep", "table --format", "simulate --pp --pp 4",
    "simulate -- -- --", "simulate 1f1b gpipe", f"{SIMULATE} --json --json", f"{SIMULATE} --pp 8", "table --pp=4",
    "schedules x", "models --json", "run table -p a", "run table -p pp &a[*a]", "run table -p nowhere 1",
    "table gpipe --pp 4 --microbatches 8 --waves 2", "claims --nowhere",
    "check 1f1b --pp 1000000000 --microbatches 1000000000", "table 1f1b --pp 8388609 --microbatches 1",
    "table interleaved-1f1b --pp 4 --microbatches 8 --chunks 1000000000",
    "table hanayo --pp 4 --microbatches 4 --waves 999999999",
    "table asymmetric-chimera --pp 4 --microbatches 8 --split 1000000000:1",
    "table 1f1b --pp 4 --microbatches 1000000000", f"{SIMULATE} --time-limit 5",
    f"{SIMULATE} --model paper", f"{SIMULATE} --reduction 1", "table zb-1p --pp 4 --microbatches 8 --limit 9",
]  # fmt: skip
SECONDS = ["5e-324", "1e-30", "1", "1e30", "1.7976931348623157e308"]


@pytest.fixture
def survives(capsys, tmp_path, monkeypatch):
    """Run a command line in an empty folder; what must hold of each does."""
    (tmp_path / "sweep.yaml").write_text("schedules: 1f1b\npp: 4\nmicrobatches: 8\nmodels: paper\nsystems: dgx_h100\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", None)

    def run(line):
        words = line.split(" ") if isinstance(line, str) else line
        before = set(os.listdir())
        code = main(words)
        out, err = capsys.readouterr()
        told = [one for one in err.splitlines() if not re.match(r"rank +\d+ \||\.\.\.$", one)]
        assert code in (0, 1, 2), line
        assert "Traceback" not in err, (line, err)
        assert len(told) <= MOST_LINES, (line, err[:500])
        assert len("".join(told)) < MOST, (line, err[:500])
        assert (code == 2 and not out.startswith("Usage")) == err.startswith("error: "), (line, code, err)
        assert code == 2 or out, line
        assert "".join(err.split("\n")).isprintable(), (line, err)
        left = set(os.listdir()) - before
        assert not left or code != 2, (line, left)
        for name in left:
            os.unlink(name)
        return code, out, err

    return run


@pytest.mark.parametrize("line", OPTIONS)
def test_any_value_of_any_option(survives, line):
    """Values that are no numbers, words or files, too large, or meant for a shell, a template or a terminal."""
    for option, value in product(OPTIONS[line], VALUES):
        words = line.split()
        if option in words:
            place = words.index(option)
            del words[place : place + 2]
        survives([*words, option, value])


@pytest.mark.parametrize("line", NAMED)
def test_any_name(survives, line):
    """The same as the names of schedules, files, notebooks and commands."""
    for value in VALUES:
        survives([value if word == "{}" else word for word in line.split()])


@pytest.mark.parametrize("line", [*map(str.split, ODD_LINES), ["run", "runtime", "-p", "pp", "&a [*a]"]], ids=" ".join)
def test_odd_lines(survives, line):
    """Too few words, too many, twice the same, too large, or without effect."""
    survives(line)


GENERATOR = """
import builtins, ctypes, os, signal, sys, threading, time
from ppmodel import build
from ppmodel.schedules.registry import schedule

def answered(line):
    # write where the answer of the process apart is written
    frame = sys._getframe()
    while "answers" not in frame.f_locals:
        frame = frame.f_back
    os.write(frame.f_locals["answers"], line)

@schedule("mine", label="m", title="t", legal="any")
def mine(s, b):
    {}
    return build("1f1b", s, b)
"""
DEADLY = [
    "os._exit(0)", "os._exit(3)", "sys.exit(0)", "sys.exit('x' * 10**6)", "raise KeyboardInterrupt",
    "raise MemoryError", "raise GeneratorExit", "raise Exception('x' * 10**6)", "raise Exception('\\n' * 99)",
    "raise type('E', (Exception,), {'__str__': lambda e: 1 / 0})()", "raise BaseException",
    "os.kill(os.getpid(), signal.SIGKILL)", "os.kill(os.getpid(), signal.SIGSTOP)", "os.abort()",
    "ctypes.string_at(0)", "mine(s, b)", "while True: pass", "time.sleep(100)", "signal.alarm(1); time.sleep(9)",
    "input()", "[0] * 10**13", "os.closerange(3, 99)", "os.execvp('true', ['true'])", "builtins.len = None",
    "builtins.isinstance = lambda *_: True", "builtins.type = builtins.str = None",
    "builtins.Exception = builtins.BaseException = int; 1 / 0", "os._exit = os.write = None; 1 / 0",
    "sys.stdout.close()", "os.fork()", "os.fork() or time.sleep(100)",
    "threading.Thread(target=time.sleep, args=(100,)).start()", "sys.setrecursionlimit(10**9); mine(s, b)",
    "sys.modules.clear()", "sys.stdout = None", "return None", "return 5", "return build('1f1b', s + 1, b)",
    "return mine", "del builtins.print",
    "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); time.sleep(100)",
    "os.setsid()", "raise SystemExit(None)", "answered(b'[1, 2, 3, 4]\\n')", "answered(b'[{}, 9]\\n')",
    "answered(b'[{\"error\": \"PPModelError\", \"parts\": 5}, 0]\\n')", "answered(b'[{}, 1e9]\\n')",
    "answered(b'[{\"shapes\": [[5, 1], [2], [1, 1]], \"num_microbatches\": \"x\"}, 32]\\n' + b'x' * 32)",
    "answered(b'[' * 5000 + b'\\n')", "answered(b'5\\n')", "while True: answered(b'x' * 2**16)",
]  # fmt: skip
AT_ONCE = [
    "1 / 0",
    "raise SystemExit",
    "import nowhere",
    "x = " + "-" * 10**5 + "1",
    "(" * 500,
    "\0",
    "x = 1",
    "def",
    "#" * 2**20,
    "\u202e",
]


def children():
    """The processes that this one has started and that still run."""
    return {name for name in os.listdir("/proc") if name.isdecimal() and _parent(name) == os.getpid()}


def _parent(process):
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


@pytest.mark.parametrize("deed", DEADLY)
def test_generators_that_end_or_hold_the_process(survives, deed):
    """Whatever a generator does, exits, loops, recurses, forks, replaces builtins, is a result or a line, and soon."""
    Path("mine.py").write_text(GENERATOR.format(deed))
    faulthandler.disable()  # pytest's
    before = children()
    survives("check mine.py --pp 2 --microbatches 2 --time-limit 0.4")
    assert children() == before


@pytest.mark.parametrize("text", AT_ONCE, ids=range(len(AT_ONCE)))
def test_files_that_are_no_generators(survives, text):
    """What is no Python, or registers nothing, is a line."""
    Path("mine.py").write_text(text, encoding="utf-8")
    for command in ("check mine.py", "simulate --schedule-file mine.py --forward 1 --backward 1"):
        assert survives(f"{command} --pp 2 --microbatches 2")[0] == 2


@pytest.mark.parametrize("name", names())
def test_seconds_of_any_size(survives, name):
    """Times at the ends of what a number can be are simulated, or refused; no number of the JSON is undefined."""
    for forward, backward, comm in product(SECONDS, SECONDS, ("0", "1e-30", "1e30")):
        line = f"simulate {name} --pp 4 --microbatches 4 --forward {forward} --backward {backward} --comm {comm} --json"
        code, out, _ = survives(line)
        if code == 0:
            json.loads(out, parse_constant=pytest.fail)


READERS = {
    "check {}": ("csv", "py"), "simulate {} --forward 1 --backward 2": ("csv",), "table {} --format csv": ("csv",),
    "simulate --schedule-file {} --forward 1 --backward 2 --json": ("csv",), "run {}": ("ipynb",),
    "compare {} 1f1b --forward 1 --backward 2": ("csv",), "claims --setting {}": ("yaml",),
    "simulate 1f1b --pp 4 --microbatches 8 --model {} --system dgx_h100": ("yaml",),
    "sweep {} --out x.parquet": ("yaml",),
    "simulate 1f1b --pp 4 --microbatches 8 --model paper --system {}": ("yaml",),
    "sweep sweep.yaml --schedule-file {} --out x.parquet": ("csv",),
}  # fmt: skip
"""Command lines that read a file, and what it is called where one of the kind is meant; all run generators alike."""


@pytest.mark.parametrize("room", ["sweeps", "systems", "tables"])
def test_any_file_in_any_place(survives, room):
    """Every bad file is refused wherever it is named, and every file where another kind is meant."""
    for path, line in product(sorted((BAD / room).iterdir()), READERS):
        words = line.format(path).split()
        code, _, _ = survives(words)
        assert code == 2, words


ODD_FILES = {
    "empty": b"", "nul": b"\0" * 99, "bom": b"\xef\xbb\xbf", "latin": b"\xe9\n", "deep": b"[" * 10**5,
    "deeper": b"{" * 10**5, "commas": b"," * 10**6, "quote": b'"' + b"a," * 10**4, "number": b"1" * 5000,
    "line": b"0F0," + b"9" * 5000, "escape": b"\x1b[2J: \x1b[2J",
    "digits": b"rank,0,1\n" + b"9" * 5000 + b",0F0,0B0\n", "cell": b"0F0" + b"&0F0" * 5000 + b",0B0",
    "far": b"0F0,999999999F0,0B0", "tiny": b"# stage_shares: 1e-300 1\n0F0,0B0\n1F0,1B0",
    "shares": b"# stage_shares: 1e308 1e308\n0F0,0B0\n1F0,1B0", "json": b'{"cells": null}',
    "cells": b'{"cells": [5], "nbformat": 4}', "alias": b"a: &a [1]\n<<: *a\n", "merge": b"<<: [1, 2]",
    "tag": b"!!python/object/apply:os.system [id]", "circle": b"a: &a [*a]", "date": b"title: 2026-01-01",
    "keys": b"? [1, 2]\n: 3\n1: 2\n~: 3\n", "many": b"".join(b"k%d: 1\n" % n for n in range(2000)),
}  # fmt: skip


def odd_files(suffixes):
    """Files that are none: pipes, devices, folders, circles; and such as are too large, or of odd bytes."""
    for suffix in suffixes:
        os.mkfifo(f"pipe.{suffix}")
        os.mkdir(f"folder.{suffix}")
        for name, target in {"loop": f"loop.{suffix}", "zero": "/dev/zero", "memory": "/proc/self/mem"}.items():
            os.symlink(target, f"{name}.{suffix}")
        with open(f"sparse.{suffix}", "wb") as file:
            file.truncate(2**40)
        for name, content in ODD_FILES.items():
            Path(f"{name}.{suffix}").write_bytes(content)
    return sorted(set(os.listdir()) - {"sweep.yaml"})


@pytest.mark.parametrize("line", READERS)
def test_odd_files_in_any_place(survives, line):
    """No file blocks, fills the memory or runs; what cannot be a schedule, a system, a model or a sweep is a line."""
    for name in odd_files(READERS[line]):
        survives(line.format(name).split())


def test_what_does_not_fit_into_memory_is_refused(survives, monkeypatch):
    """A size is refused before it is tried; where memory ends all the same, it is a line, or a refused row."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2**32, 2**32))
    assert "must be at most 4194304" in survives("table 1f1b --pp 4194305 --microbatches 1")[2]
    monkeypatch.setattr(graph, "_kept_graph", lambda *_: np.empty(2**50))
    line = "--pp 6 --microbatches 7 --forward 1 --backward 2"
    assert survives(f"simulate eager-1f1b {line}")[2].startswith("error: memory = full")
    code, out, _ = survives(f"compare gpipe eager-1f1b {line} --json")
    assert (code, {row["refused"].partition(":")[0] for row in json.loads(out)}) == (1, {"memory = full"})


# ---- the process ---------------------------------------------------------------------------------


def process(line, **options):
    """The command line as a process of its own."""
    return subprocess.Popen([sys.executable, "-m", "ppmodel", *line.split()], stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize("milliseconds", [0, 50, 100, 200])
def test_an_interruption_is_one_line_from_the_start(milliseconds):
    """Ctrl-C while modules load, from the first of them on, is no traceback."""
    line = "simulate dualpipe --pp 64 --microbatches 30000 --forward 1 --backward 2"
    running = process(line, stdout=subprocess.DEVNULL)
    while "numpy" not in Path(f"/proc/{running.pid}/maps").read_text():
        time.sleep(0.002)
    time.sleep(milliseconds / 1000)
    running.send_signal(signal.SIGINT)
    err = running.communicate()[1].decode()
    assert (running.returncode, err) == (130, "interrupted\n")


@pytest.mark.parametrize("value", ["0", "x", "-1"])
def test_variables_that_numba_cannot_read_are_one_line(value):
    """A bad number of threads is told by its name, where compiled code is first needed."""
    line = "check 1f1b --pp 64 --microbatches 2100"
    running = process(line, stdout=subprocess.PIPE, env=os.environ | {"NUMBA_NUM_THREADS": value})
    out, err = running.communicate()
    assert (running.returncode, out) == (2, b"")
    assert re.fullmatch(rb"error: numba = .*: cannot be loaded; fix its variables NUMBA_\.\.\., .*\n", err)


@pytest.mark.parametrize("line", ["schedules", "nowhere", "--help", SIMULATE])
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&-", ">/dev/full", "2>/dev/full", "| true"])
def test_closed_streams(line, closed):
    """Whatever nobody reads is no error; a full disk is."""
    shell = f"{shlex.quote(sys.executable)} -m ppmodel {line} {closed}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert done.returncode == (2 if line == "nowhere" or closed == ">/dev/full" else 0)
    assert done.stderr.count("\n") <= 1
