"""Sweeps that are interrupted, however often: the same rows in the same order."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from sweeps import PLAIN, SHORT, Counted, run

from ppmodel.studies.sweep import execution, load_sweep, run_sweep


def test_an_interrupted_sweep_goes_on(file, tmp_path, monkeypatch, expected):
    """Interrupted again and again: no chunk is computed twice, none is left out, the bytes are the same."""
    path, out, seen = file(PLAIN), tmp_path / "results.parquet", []
    chunks = load_sweep(path).chunks()
    total = chunks[-1][1]
    for stop_after in (0, 1, 3, 1, 5):
        counted = Counted(stop_after)
        monkeypatch.setattr(execution, "compute_rows", counted)
        with pytest.raises(KeyboardInterrupt) as caught:
            run_sweep(path, out)
        seen += counted.calls
        done = chunks[len(seen)][0]
        assert str(caught.value) == f"{done} of {total} rows done; the same command goes on"
        assert not out.exists()
    counted = Counted()
    monkeypatch.setattr(execution, "compute_rows", counted)
    summary = run_sweep(path, out)
    assert seen + counted.calls == chunks
    assert summary.computed == total - done
    assert out.read_bytes() == expected[PLAIN]


KILLED = """
import os, signal, sys
from ppmodel.cli import run
before, number, replace = sys.argv[1] == "before", int(sys.argv[2]), os.replace
def counted(*paths):
    global number
    number -= 1
    if number or not before:
        replace(*paths)
    if not number:
        os.kill(os.getpid(), signal.SIGKILL)
os.replace = counted
sys.argv[1:] = ["sweep", *sys.argv[3:]]
run()
"""


@pytest.mark.parametrize(("moment", "number"), [("before", 1), ("before", 3), ("before", -1), ("after", -1)])
def test_a_sweep_may_be_ended_at_any_moment(file, tmp_path, capsys, expected, moment, number):
    """Killed around the renaming of its record, of a part, or of the output: the same command gives the same bytes."""
    path, out = file(SHORT), tmp_path / "results.parquet"
    number = len(load_sweep(path).chunks()) + 2 if number == -1 else number
    command = [sys.executable, "-c", KILLED, moment, str(number), path, "--out", out]
    assert subprocess.run(command, stderr=subprocess.DEVNULL).returncode == -signal.SIGKILL
    assert out.exists() == (moment == "after")
    code, said, _ = run(capsys, path, "--out", out)
    assert (code, "nothing to do" in said) == (0, moment == "after")
    assert out.read_bytes() == expected[SHORT]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.parquet", "sweep.yaml"]


COMMAND = """
import signal
from ppmodel.cli import run
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
    run()
"""


@contextmanager
def sweep_with_workers(text, folder):
    """A sweep in a session of its own with two workers, once it has stored a part."""
    (folder / "sweep.yaml").write_text(text)
    (folder / "command.py").write_text(COMMAND)
    words = ["sweep", "sweep.yaml", "--out", "results.parquet", "--workers", "2"]
    with subprocess.Popen(
        [sys.executable, "command.py", *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, start_new_session=True,
    ) as child:  # fmt: skip
        try:
            while not list(folder.glob("*.parts/part-*.parquet")):
                assert child.poll() is None
                time.sleep(0.02)
            yield child
        finally:
            child.kill()  # where it has not ended


def test_ctrl_c_ends_a_sweep_and_its_workers_in_one_line(tmp_path):
    """A terminal sends it to the workers, too."""
    text = PLAIN.replace("systems:", "noise: {jitter: 0.1}\nseeds: {from: 1, to: 100}\nsystems:")
    with sweep_with_workers(text, tmp_path) as child:
        os.killpg(child.pid, signal.SIGINT)
        _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    said = re.sub(r".* so far.*\n", "", said)  # progress, on a slow machine
    assert re.fullmatch(r"\d+ of \d+ rows done; the same command goes on\n", said)


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks for processes in /proc")
@pytest.mark.parametrize("whole", [True, False])
def test_a_killed_process_takes_the_others_with_it(tmp_path, capsys, expected, whole):
    """The workers of a killed sweep end by themselves; a killed worker ends its sweep in one line; both go on."""
    with sweep_with_workers(PLAIN, tmp_path) as child:
        with open(f"/proc/{child.pid}/task/{child.pid}/children") as children:
            workers = [int(number) for number in children.read().split() if "spawn_main" in _command_line(number)]
        assert len(workers) == 2
        os.kill(child.pid if whole else workers[0], signal.SIGKILL)
        _, said = child.communicate(timeout=60)
    if whole:
        deadline = time.monotonic() + 20
        while any(map(_command_line, workers)):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    else:
        assert child.returncode == 2
        line = r"error: --workers = 2: have lost one, which was killed or failed; .*\n"
        assert re.fullmatch(line, re.sub(r".* so far.*\n", "", said))  # without progress, on a slow machine
    out = tmp_path / "results.parquet"
    assert run(capsys, tmp_path / "sweep.yaml", "--out", out)[0] == 0
    assert out.read_bytes() == expected[PLAIN]


def _command_line(process):
    """The command line of a process; empty if it has ended."""
    try:
        with open(f"/proc/{process}/cmdline") as file:
            return file.read()
    except OSError:
        return ""


def interrupted(path, out, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(execution, "compute_rows", Counted(2))
        with pytest.raises(KeyboardInterrupt):
            run_sweep(path, out)


def test_parts_of_another_sweep_are_refused(file, tmp_path, capsys, monkeypatch, expected):
    """Rows of two sweeps or of two versions are never mixed."""
    path, out = file(SHORT), tmp_path / "results.parquet"
    interrupted(path, out, monkeypatch)
    rule = "was begun with another specification or version of ppmodel; pass --force to start again, or choose another"
    path.write_text(SHORT.replace("[2, 3, 4, 5]", "[2, 3, 4]"))
    code, _, said = run(capsys, path, "--out", out)
    assert (code, said.count("\n"), rule in said) == (2, 1, True)
    path.write_text(SHORT)
    with monkeypatch.context() as patch:
        patch.setattr(execution, "versions", lambda: "ppmodel 9.9")
        assert rule in run(capsys, path, "--out", out)[2]
    path.write_text(PLAIN)
    assert run(capsys, path, "--out", out, "--force")[0] == 0
    assert out.read_bytes() == expected[PLAIN]


def test_a_folder_of_somebody_else_stays(file, tmp_path, capsys):
    """What is in the place of the parts is refused and left, also with --force."""
    folder = tmp_path / "results.parquet.parts"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    code, _, said = run(capsys, file(SHORT), "--out", tmp_path / "results.parquet", "--force")
    assert (code, said.count("\n"), "exists, and is no folder of parts" in said) == (2, 1, True)
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


def test_force_replaces_nothing_but_a_sweep(file, tmp_path, capsys):
    """What another program wrote, and what the sweep itself reads, whatever it is called, stay as they are."""
    path = file(SHORT)
    table = tmp_path / "table.parquet"
    table.write_text("0F0,0B0")
    theirs = tmp_path / "theirs.parquet"
    theirs.write_text("theirs")
    (tmp_path / "link.parquet").symlink_to(path)
    for name, rule in (("theirs", "from another program"), ("link", "is what this"), ("table", "is what this")):
        out = tmp_path / f"{name}.parquet"
        before = out.read_bytes()
        code, _, said = run(capsys, path, "--out", out, "--force", "--schedule-file", table)
        assert (code, rule in said, out.read_bytes()) == (2, True, before), said


def test_one_sweep_at_a_time_writes_an_output(file, tmp_path, capsys, monkeypatch):
    """A second one for the same output is refused while the first one computes."""
    path, out, seconds = file(SHORT), tmp_path / "results.parquet", []

    def compute(*rows):
        if not seconds:
            seconds.append(run(capsys, path, "--out", out))
        return Counted()(*rows)

    monkeypatch.setattr(execution, "compute_rows", compute)
    assert run_sweep(path, out).computed
    ((code, _, said),) = seconds
    assert (code, said.count("\n"), "is in use by another command" in said) == (2, 1, True)


def test_a_full_disk_costs_one_line(file, tmp_path, capsys, monkeypatch, expected):
    """What is stored stays, and the same command goes on when there is room."""
    path, out, replace, renamed = file(SHORT), tmp_path / "results.parquet", os.replace, []

    def full(*paths):
        renamed.append(paths)
        if len(renamed) == 4:
            raise OSError(28, "No space left on device")
        replace(*paths)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        code, _, said = run(capsys, path, "--out", out)
    assert (code, said.count("\n")) == (2, 1)
    assert re.search(r"cannot be read or written \(No space left on device\); free some space", said)
    assert len(list(tmp_path.glob("*.parts/part-*.parquet"))) == 2
    assert run(capsys, path, "--out", out)[0] == 0
    assert out.read_bytes() == expected[SHORT]
