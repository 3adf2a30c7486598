"""Sweeps that are interrupted, however often: the same rows in the same order."""

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from sweeps import PLAIN, SHORT, Counted, run

from ppmodel.studies.sweep import SweepStopped, chunk_bounds, execution, load_sweep, run_sweep, store


def test_an_interrupted_sweep_goes_on(file, tmp_path, monkeypatch, expected):
    """Interrupted again and again: no chunk is computed twice, none is left out, the bytes are the same."""
    path, out, seen = file(PLAIN), tmp_path / "results.parquet", []
    bounds = chunk_bounds(load_sweep(path)).tolist()
    for chunks in (1, 3, 1, 5):
        counted = Counted(chunks)
        monkeypatch.setattr(execution, "compute_rows", counted)
        with pytest.raises(SweepStopped) as caught:
            run_sweep(path, out)
        seen += counted.calls
        done = bounds[len(seen)]
        assert str(caught.value) == f"{done} of {bounds[-1]} rows done; the same command goes on"
        assert not out.exists()
    counted = Counted()
    monkeypatch.setattr(execution, "compute_rows", counted)
    summary = run_sweep(path, out)
    assert seen + counted.calls == list(itertools.pairwise(bounds))
    assert summary.computed == bounds[-1] - done
    assert out.read_bytes() == expected[PLAIN]


CHILD = """
import os, signal, sys
from ppmodel.cli import run
name, before, number = sys.argv[1], sys.argv[2] == "before", int(sys.argv[3])
replace, listdir, count = os.replace, os.listdir, 0
def again(folder):
    os.kill(os.getpid(), signal.SIGINT)
    return listdir(folder)
def counted(*paths):
    global count
    count += 1
    if count == number and before:
        os.kill(os.getpid(), getattr(signal, name))
    replace(*paths)
    if count == number and not before:
        os.listdir = again
        os.kill(os.getpid(), getattr(signal, name))
os.replace = counted
sys.argv[1:] = ["sweep", *sys.argv[4:]]
run()
"""


@pytest.mark.parametrize(
    ("name", "moment", "number"),
    [
        ("SIGKILL", "before", 1),  # the record of the sweep
        ("SIGKILL", "before", 3),  # a part
        ("SIGKILL", "before", -1),  # the output
        ("SIGKILL", "after", -1),
        ("SIGTERM", "after", 4),
        ("SIGQUIT", "after", 3),
    ],
)
def test_a_sweep_may_be_ended_at_any_moment(file, tmp_path, capsys, expected, name, moment, number):
    """Killed around any rename, or stopped and stopped again on its way out: the same command gives the same bytes."""
    path, out = file(SHORT), tmp_path / "results.parquet"
    chunks = len(chunk_bounds(load_sweep(path))) - 1
    number = chunks + 2 if number == -1 else number
    command = [sys.executable, "-c", CHILD, name, moment, str(number), str(path), "--out", str(out)]
    ended = subprocess.run(command, capture_output=True, text=True)
    parts = {part: part.stat().st_mtime_ns for part in tmp_path.glob("*.parts/part-*.parquet")}
    stored = min(number - (2 if moment == "before" else 1), chunks) if number <= chunks + 1 else chunks
    assert len(parts) == max(0, stored)
    messages = re.sub(r".* left\n", "", ended.stderr)  # without progress, which a slow machine shows
    if name == "SIGKILL":
        assert (ended.returncode, messages) == (-signal.SIGKILL, "")
    else:
        assert ended.returncode == 130
        assert re.fullmatch(r"\d+ of 96 rows done; the same command goes on\n", messages)

    if not out.exists():
        with resuming(path, out) as kept:
            assert {part: part.stat().st_mtime_ns for part in kept} == parts
    code, said, _ = run(capsys, path, "--out", out)
    assert code == 0
    assert ("nothing to do" in said) == (name == "SIGKILL" and (moment, number) == ("after", chunks + 2))
    assert out.read_bytes() == expected[SHORT]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.parquet", "sweep.yaml"]


def test_whoever_repeats_ctrl_c_only_waits(file, tmp_path):
    """With workers, signals that follow the first one change nothing, until the process has ended."""
    path = file(PLAIN.replace("systems:", "noise: {jitter: 0.1}\nseeds: {from: 1, to: 100}\nsystems:"))
    command = [sys.executable, "-m", "ppmodel", "sweep", path, "--out", tmp_path / "r.parquet", "--workers", "2"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as child:
        _wait_for_a_part(tmp_path, child)
        os.killpg(child.pid, signal.SIGINT)  # a terminal sends it to the workers, too
        try:
            for number in itertools.islice(itertools.cycle((signal.SIGINT, signal.SIGTERM)), 10_000):
                child.send_signal(number)
                time.sleep(0.01)
                if child.poll() is not None:
                    break
        finally:
            child.kill()  # where it has not ended
        _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    said = re.sub(r".* left\n", "", said)  # progress, on a slow machine
    assert re.fullmatch(r"stopping the workers...\n\d+ of \d+ rows done; the same command goes on\n", said)


def _wait_for_a_part(folder, child):
    while not list(folder.glob("*.parts/part-*.parquet")):
        assert child.poll() is None
        time.sleep(0.02)


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks for processes in /proc")
@pytest.mark.parametrize("whole", [True, False])
def test_a_dead_process_leaves_nothing_behind(file, tmp_path, expected, whole):
    """A killed worker is replaced, and the bytes are the same; the workers of a killed sweep end by themselves."""
    path, out = file(PLAIN), tmp_path / "results.parquet"
    command = [sys.executable, "-m", "ppmodel", "sweep", path, "--out", out, "--workers", "2"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        _wait_for_a_part(tmp_path, child)
        workers = [process for process in _children(child.pid) if "spawn_main" in _command_line(process)]
        assert len(workers) == 2
        os.kill(child.pid if whole else workers[0], signal.SIGKILL)
        child.wait()
    if whole:
        deadline = time.monotonic() + 20
        while any(map(_command_line, workers)):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    else:
        assert child.returncode == 0
        assert out.read_bytes() == expected[PLAIN]


def _children(parent):
    with open(f"/proc/{parent}/task/{parent}/children") as file:
        return [int(process) for process in file.read().split()]


def _command_line(process):
    """The command line of a process; empty if it has ended."""
    try:
        with open(f"/proc/{process}/cmdline") as file:
            return file.read()
    except OSError:
        return ""


STUCK = """
import importlib, os, signal, threading
from ppmodel.cli import run
running = importlib.import_module("ppmodel.studies.sweep.execution")
running._STOP_S = 0.2
run_tasks = running.run_tasks
def stuck(*args):
    try:
        yield from run_tasks(*args)
    finally:
        threading.Event().wait()
running.run_tasks = stuck
put = running.Store.put
def put_and_stop(*args):
    put(*args)
    os.kill(os.getpid(), signal.SIGTERM)
running.Store.put = put_and_stop
run()
"""


def test_a_stop_that_hangs_is_cut_short(file, tmp_path):
    """Whatever a stopped sweep waits for, its process ends in one line, and what was done is kept."""
    path, out = file(SHORT), tmp_path / "r.parquet"
    ended = subprocess.run(
        [sys.executable, "-c", STUCK, "sweep", path, "--out", out], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 130
    assert re.fullmatch(r"\d+ of 96 rows done; the same command goes on\n", ended.stderr)
    with resuming(path, out) as kept:
        assert len(kept) == 1


@contextmanager
def resuming(path, out):
    """The parts as the next run finds them."""
    sweep = load_sweep(path)
    mine = store.Store(out, sweep, chunk_bounds(sweep))
    with mine.locked():
        mine.begin()
        missing = set(mine.missing())
        yield [mine._paths[chunk] for chunk in range(len(mine.bounds) - 1) if chunk not in missing]


def interrupted(path, out, monkeypatch, chunks=2):
    with monkeypatch.context() as patch:
        patch.setattr(execution, "compute_rows", Counted(chunks))
        with pytest.raises(SweepStopped):
            run_sweep(path, out)


def cut_off(one, _):
    one.write_bytes(one.read_bytes()[:-10])


def damage(one, _):
    data = bytearray(one.read_bytes())
    data[len(data) // 2] ^= 1
    one.write_bytes(data)


def swap(one, other):
    both = one.read_bytes(), other.read_bytes()
    one.write_bytes(both[1])
    other.write_bytes(both[0])


def exchange_names(one, other):
    numbers = [path.name[:12] for path in (one, other)]
    one.rename(one.with_name(numbers[1] + one.name[12:]))
    other.rename(other.with_name(numbers[0] + other.name[12:]))


@pytest.mark.parametrize(("change", "lost"), [(cut_off, 1), (damage, 1), (swap, 2), (exchange_names, 2)])
def test_a_part_that_was_changed_is_computed_again(file, tmp_path, monkeypatch, expected, change, lost):
    """Cut off by a loss of power, damaged, or in the place of another: it costs its own rows only."""
    path, out = file(SHORT), tmp_path / "results.parquet"
    interrupted(path, out, monkeypatch)
    parts = sorted((tmp_path / "results.parquet.parts").glob("part-*"))
    change(*parts)
    counted = Counted()
    monkeypatch.setattr(execution, "compute_rows", counted)
    run_sweep(path, out)
    assert len(counted.calls) == len(chunk_bounds(load_sweep(path))) - 1 - len(parts) + lost
    assert out.read_bytes() == expected[SHORT]


def test_a_part_that_is_changed_meanwhile_is_named(file, tmp_path, capsys, monkeypatch, expected):
    """Changed between its writing and the end: one line, and the same command computes it again."""
    path, out, finish = file(SHORT), tmp_path / "results.parquet", store.Store.finish

    def damaged(self):
        damage(next(self.folder.glob("part-000001-*")), None)
        return finish(self)

    with monkeypatch.context() as patch:
        patch.setattr(store.Store, "finish", damaged)
        code, _, said = run(capsys, path, "--out", out)
    assert (code, said.count("\n")) == (2, 1)
    assert re.match("error: part = .*part-000001-.*: has been changed since it was written; the same command", said)
    assert run(capsys, path, "--out", out)[0] == 0
    assert out.read_bytes() == expected[SHORT]


def test_parts_of_another_sweep_are_refused(file, tmp_path, capsys, monkeypatch, expected):
    """Rows of two sweeps or of two versions are never mixed; the message says what differs."""
    path, out = file(SHORT), tmp_path / "results.parquet"
    interrupted(path, out, monkeypatch)
    path.write_text(SHORT.replace("[2, 3, 4, 5]", "[2, 3, 4]"))
    _, _, said = run(capsys, path, "--out", out)
    assert re.match(r"error: parts = .*were begun with another specification \(changed: pp\); resume that one", said)
    path.write_text(SHORT)
    with monkeypatch.context() as patch:
        patch.setattr(store, "versions", lambda: "ppmodel 9.9")
        assert re.search("were begun with ppmodel 0.*, and this is ppmodel 9.9", run(capsys, path, "--out", out)[2])
    path.write_text(PLAIN)
    assert run(capsys, path, "--out", out, "--force")[0] == 0
    assert out.read_bytes() == expected[PLAIN]


@pytest.mark.parametrize("text", ["mine", "", "[[]]", "[" * 10**5, '{"sweep": 1}'])
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_foreign_record_stays(file, tmp_path, capsys, text, force):
    """A file of somebody else's that has the name of the record is refused and left, also what lies beside it."""
    folder, part = tmp_path / "results.parquet.parts", f"part-000000-{16 * '0'}.parquet"
    folder.mkdir()
    for name in ("sweep.json", part):
        (folder / name).write_text(text)
        code, _, said = run(capsys, file(SHORT), "--out", tmp_path / "results.parquet", *force)
        assert (code, f"contain another file ({min(os.listdir(folder))})" in said) == (2, True)
    assert {(folder / name).read_text() for name in ("sweep.json", part)} == {text}


def test_force_replaces_nothing_but_a_sweep(file, tmp_path, capsys):
    """What another program wrote, and what the sweep itself reads, whatever it is called, stay as they are."""
    path = file(SHORT)
    table = tmp_path / "table.parquet"
    table.write_text("0F0,0B0")
    theirs = tmp_path / "theirs.parquet"
    theirs.write_text("theirs")
    (tmp_path / "link.parquet").hardlink_to(path)
    for name, rule in (("theirs", "from another program"), ("link", "is what this"), ("table", "is what this")):
        out = tmp_path / f"{name}.parquet"
        before = out.read_bytes()
        code, _, said = run(capsys, path, "--out", out, "--force", "--schedule-file", table)
        assert (code, rule in said, out.read_bytes()) == (2, True, before), said


def _text(path):
    path.write_text("mine")


def _link(path):
    path.symlink_to("../elsewhere")


STRANGE = [
    (name, _text) for name in ("thesis.txt", "output-0.tmp", "part-mine.parquet", "part-000001-00.parquet", "lock")
]
STRANGE += itertools.product(("lock", "part-000001-" + "0" * 16 + ".parquet"), (os.mkfifo, os.mkdir, _link))


@pytest.mark.parametrize(("name", "make"), STRANGE)
def test_nothing_that_is_not_a_part_is_touched(file, tmp_path, capsys, name, make):
    """A folder that holds anything else is refused and left as it is; pipes are not waited for, links not followed."""
    folder = tmp_path / "results.parquet.parts"
    folder.mkdir()
    make(folder / name)
    before = os.lstat(folder / name)
    code, _, said = run(capsys, file(SHORT), "--out", tmp_path / "results.parquet", "--force")
    assert (code, said.count("\n")) == (2, 1)
    assert f"contain another file ({name})" in said
    after = os.lstat(folder / name)
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
    assert not (tmp_path / "elsewhere").exists()


def test_a_link_in_the_place_of_the_parts_is_not_followed(file, tmp_path, capsys):
    """Nothing is written to what it leads to."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "results.parquet.parts").symlink_to("elsewhere")
    code, _, said = run(capsys, file(SHORT), "--out", tmp_path / "results.parquet", "--force")
    assert (code, said.count("\n")) == (2, 1)
    assert re.search(r"parts = .*: are a link; move them, or choose another --out", said)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_one_sweep_at_a_time_writes_an_output(file, tmp_path, capsys):
    """A second one for the same output is refused while the first one holds it."""
    path, out = file(SHORT), tmp_path / "results.parquet"
    with resuming(path, out):
        code, _, said = run(capsys, path, "--out", out)
    assert (code, said.count("\n")) == (2, 1)
    assert "are being written by another sweep" in said
    assert run(capsys, path, "--out", out)[0] == 0
