"""Code that does not come with the package runs apart, and only where an argument names a schedule's file."""

import ast
import contextlib
import csv
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import token_hex

import pytest
from refusals import refused

from ppmodel import build, compare
from ppmodel.clusters.specs import DATA, load_layout, load_model, load_system
from ppmodel.errors import PPModelError
from ppmodel.schedules import own_files
from ppmodel.studies.measured import predict_file
from ppmodel.studies.sweep import load_sweep
from ppmodel.tables import parse_table

PACKAGE = Path(__file__).parents[1] / "ppmodel"
MAY_LOAD = {
    "schedules/host.py": {"exec", "compile"},  # a user's file
    "schedules/own_files.py": {"Popen"}, "supervisor.py": {"fork"},  # the processes for it
    "cli/commands.py": {"import_module"}, "specs/__init__.py": {"import_module"},  # modules of the package
    "schedules/__init__.py": {"import_module"}, "__init__.py": {"import_module"},
    "workers/runners.py": {"ProcessPoolExecutor"},  # workers, which compute rows
}  # fmt: skip
"""Which file may call what loads code, or starts a process."""

LOADS = {
    "exec", "eval", "compile", "__import__", "import_module", "run_path", "run_module", "exec_module", "load_module",
    "spec_from_file_location", "SourceFileLoader", "loads_pickle", "Unpickler", "system", "popen", "Popen", "fork",
    "spawnv", "execv", "execve", "execvp", "check_output", "check_call", "getoutput", "ProcessPoolExecutor",
}  # fmt: skip


def test_nothing_else_loads_code():
    """Only the door of users' files compiles and executes text; nothing reads pickles, which may hold code."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree, name = ast.parse(path.read_text()), path.relative_to(PACKAGE).as_posix()
        calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        called = {call.removeprefix("os.").removeprefix("subprocess.") for call in calls} | {
            call.rpartition(".")[2] for call in calls if call.startswith(("importlib.", "runpy."))
        }
        assert called & LOADS <= MAY_LOAD.get(name, set()), name
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        heads = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
        heads |= {node.module for node in imports if isinstance(node, ast.ImportFrom)}
        assert not heads & {"pickle", "marshal", "shelve", "dill", "runpy", "code", "importlib.machinery"}, name
        assert "subprocess" not in heads or name == "schedules/own_files.py"


POISON = ("evil.py", "./evil.py", "evil.py:depth=1", "evil")
DOCUMENTS = {"layout": load_layout, "model": load_model, "system": load_system, "sweep": load_sweep}


def poisoned():
    """Every data format, with a name of a file of code in each of its texts and cells."""
    for name, load in DOCUMENTS.items():
        lines = (DATA / "templates" / f"{name}.yaml").read_text().splitlines()
        for number, line in enumerate(lines):
            if match := re.fullmatch(r"([^#]*?[:-] +)([^#\s][^#]*)(#.*)?", line):
                for text in ("{}", "[{}]", "{{name: {}}}"):
                    yield name, load, [*lines[:number], match[1] + text, *lines[number + 1 :]]
    lines = (DATA / "templates" / "my_table.csv").read_text().splitlines()
    comments = [f"# {key}: {{}}" for key in ("schedule", "letters", "microbatches", "stage_shares", "file", "source")]
    for line in comments:
        yield "table", lambda path: parse_table(path.read_text()), [line, *lines]
    yield "table", lambda path: parse_table(path.read_text()), [re.sub(r"0F0", "{}", line) for line in lines]


def test_no_text_of_a_data_file_runs_code(tmp_path, monkeypatch):
    """A schedule's file is named by the arguments, or by the key of a sweep that is there for it: nowhere else."""
    monkeypatch.chdir(tmp_path)
    for name in ("evil", "evil.py"):
        Path(name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    for kind, load, lines in poisoned():
        for poison in POISON[:1] if kind != "sweep" else POISON:
            path = tmp_path / f"{kind}.yaml"
            path.write_text(
                "\n".join(line.replace("{}", poison).replace("{{", "{").replace("}}", "}") for line in lines)
            )
            with contextlib.suppress(PPModelError):
                load(path)
            assert not Path("ran").exists(), (kind, lines)


def test_no_cell_of_a_row_runs_code(tmp_path, monkeypatch):
    """Each cell of a measured run in turn."""
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("open('ran', 'w').close()\n")
    with open(DATA / "reference" / "measured" / "vtrain_single.csv") as file:
        header, row, *_ = csv.reader(file)
    rows = [
        [*row[:place], poison, *row[place + 1 :]] for place in range(len(row)) for poison in ("evil.py", "./evil.py")
    ]
    for cells in rows:
        with open("rows.csv", "w", newline="") as file:
            csv.writer(file).writerows([header, cells])
        with contextlib.suppress(PPModelError):
            predict_file("rows.csv", load_system("dgx_h100"), "out.csv")
        assert not Path("ran").exists(), cells


def written(path, text="", name="mine", base="1f1b"):
    """A generator's file."""
    path.write_text(
        "import os, time\nfrom ppmodel import build\nfrom ppmodel.schedules.registry import Option, schedule\n"
        f"@schedule({name!r}, label={name!r}, title='t', legal='any', options=[Option.count('depth', 1, 'N', '')])\n"
        f"def mine(s, b, depth=1):\n    {text or 'pass'}\n    return build({base!r}, s, b)\n"
    )
    return path


def test_threads_get_their_own_schedules(tmp_path):
    """Four threads, each with a file of its own that registers the same name as those of others."""
    bases = ["1f1b", "gpipe"] * 2
    paths = []
    for number, base in enumerate(bases):
        (tmp_path / str(number)).mkdir()
        paths.append(written(tmp_path / str(number) / "mine.py", base=base))
    with ThreadPoolExecutor(4) as threads:
        peaks = list(threads.map(lambda path: compare([path], pp=4, microbatches=8, forward=1, backward=2), paths))
    assert [frame.peak_activations[0] for frame in peaks] == [4, 8] * 2


def test_a_fork_meets_no_lock(tmp_path):
    """A process that is forked while another thread loads a file loads its own."""
    slow, fast = written(tmp_path / "slow.py", "time.sleep(1)", "slow"), written(tmp_path / "fast.py", name="fast")
    code = f"""
        import os, threading, time
        from ppmodel import build
        thread = threading.Thread(target=build, args=({str(slow)!r}, 4, 8))
        thread.start()
        time.sleep(0.1)
        child = os.fork()
        if not child:
            os._exit(build({str(fast)!r}, 4, 8).num_ranks)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        thread.join()
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60).stdout == "4\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGQUIT])
def test_a_generator_dies_with_its_command(tmp_path, number):
    """However the command is ended: its generator, and what that has started, do not run on."""
    path = written(
        tmp_path / "mine.py", f"os.fork(); open({str(tmp_path)!r} + f'/{{os.getpid()}}', 'w')\n    while True: pass"
    )
    words = [sys.executable, "-m", "ppmodel", "check", str(path), "--pp", "4", "--microbatches", "8"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, preexec_fn=os.setsid) as command:
        while len(pids := [int(file.name) for file in tmp_path.iterdir() if file.name.isdecimal()]) < 2:
            time.sleep(0.02)
        command.send_signal(number)
    last = time.monotonic() + 10
    while any(_runs(pid) for pid in pids):
        assert time.monotonic() < last
        time.sleep(0.02)


DETACHED = """
    if not os.fork():
        os.setsid()
        if not os.fork():
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            os.closerange(0, 99)
            open(FILE, 'w').write(str(os.getpid()))
            end = time.time() + 100
            while time.time() < end:
                if os.fork():  # by the time that it is seen, it is another one
                    os._exit(0)
                time.sleep(0.001)
        os._exit(0)
    while not os.path.exists(FILE):
        time.sleep(0.01)
"""
"""A process in another session, without a parent, that only SIGKILL ends, and that has a new number each time."""

ENDS = {"returns": "pass", "raises": "1 / 0", "loops": "while True: pass", "exits": "os._exit(0)",
        "kills its parent": "os.kill(os.getppid(), signal.SIGTERM)"}  # fmt: skip
DOORS = {
    "check": "check {} --pp 4 --microbatches 8",
    "simulate": "simulate {} --pp 4 --microbatches 8 --forward 1 --backward 2",
    "compare": "compare {} 1f1b --pp 4 --microbatches 8 --forward 1 --backward 2",
    "sweep": "sweep sweep.yaml --out a.parquet", "two workers": "sweep sweep.yaml --out a.parquet --workers 2",
}  # fmt: skip


@pytest.mark.parametrize(
    ("door", "end", "number"),
    [
        ("check", "returns", None), ("check", "raises", None), ("simulate", "exits", None), ("compare", "loops", None),
        ("check", "kills its parent", None), ("sweep", "returns", None),
        ("simulate", "loops", signal.SIGTERM), ("compare", "loops", signal.SIGHUP), ("check", "loops", signal.SIGKILL),
        ("sweep", "loops", signal.SIGHUP), ("two workers", "loops", signal.SIGKILL),
    ],
)  # fmt: skip
def test_no_process_that_a_generator_detaches_outlives_its_command(tmp_path, door, end, number):
    """However the command ends, and wherever the process has moved to."""
    file, name = tmp_path / "pid", token_hex(7)
    path = written(tmp_path / "mine.py", detached(file, name) + f"    {ENDS[end]}")
    (tmp_path / "sweep.yaml").write_text(
        "schedules: {file: mine.py}\npp: [2, 4]\nmicrobatches: [4, 8]\nmodels: paper\nsystems: dgx_a100\n"
    )
    limit = ["--time-limit", "2"] if number is None else []
    words = [sys.executable, "-m", "ppmodel", *DOORS[door].format(path).split(), *limit]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path) as command:
        while number is not None and not file.exists() and command.poll() is None:
            time.sleep(0.02)
        if number is not None:
            command.send_signal(number)
    assert file.exists()
    require_none_left(name)


def test_no_process_that_a_generator_detaches_outlives_its_interpreter(tmp_path):
    """In Python, also where a process that was forked from it goes on."""
    name = token_hex(7)
    path = written(tmp_path / "mine.py", detached(tmp_path / "pid", name))
    code = f"""
        import os, time
        from ppmodel import build
        build({str(path)!r}, 4, 8)
        if not os.fork():
            time.sleep(20)
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)]
    subprocess.run(command, timeout=60, check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / "pid").exists()
    require_none_left(name)


def detached(file, name):
    """Lines of a generator that start such a process; under a name by which it is found."""
    begin = f"import ctypes, signal\n    ctypes.CDLL(None).prctl(15, {name.encode()!r})"
    return begin + DETACHED.replace("FILE", repr(str(file)))


def require_none_left(name):
    """Soon no process has a name."""
    last = time.monotonic() + 10
    while left := [pid for pid in filter(str.isdecimal, os.listdir("/proc")) if _name(pid) == name]:
        assert time.monotonic() < last, left
        time.sleep(0.02)


def _name(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n") if _runs(pid) else None
    except OSError:
        return None


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_what_a_generator_prints_cannot_control_the_terminal(tmp_path, capsys):
    """Neither through Python nor past it; and a loud one is cut short."""
    path = written(tmp_path / "mine.py", "print('\\x1b[2Ja'); os.write(1, b'\\x1b[2Jb\\n'); print('c' * 10**6)")
    build(path, 4, 8)
    own_files.end_processes()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("\\x1b[2Ja\n\\x1b[2Jb\n")
    assert len(err) < 2**17


def test_an_edited_file_is_another_one(tmp_path):
    """The table follows the file; a case that was made before keeps the text it was made of."""
    path = written(tmp_path / "mine.py")
    before = compare([path, f"{path}:depth=2"], pp=4, microbatches=8, forward=1, backward=2)
    written(path, base="gpipe")
    after = compare([path], pp=4, microbatches=8, forward=1, backward=2)
    assert (before.peak_activations.tolist(), after.peak_activations.tolist()) == ([4, 4], [8])


def test_a_file_has_limited_time_and_memory(tmp_path):
    """An endless loop, and a list without end, are refused in one line."""
    with own_files.time_limit(0.3), refused(PPModelError, "file", "has not finished after 0.3 s"):
        build(written(tmp_path / "loop.py", "while True: pass"), 4, 8)
    with own_files.time_limit(0.3), refused(PPModelError, "file", "has not finished after 0.3 s"):  # decides no row
        compare(["1f1b", tmp_path / "loop.py"], pp=4, microbatches=[8, 16], forward=1, backward=2)
    with refused(PPModelError, "generator", "MemoryError"):
        build(written(tmp_path / "large.py", "x = bytearray(2**50)", "large"), 4, 8)
