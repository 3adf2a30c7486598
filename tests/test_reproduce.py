"""A book appears whole or not at all."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from ppmodel.cli import main
from ppmodel.errors import PPModelError, ReproduceError
from ppmodel.reproduce import ROOT, _parameters, _publish, _remove_leftovers, execute, reproduce


def notebook(tmp_path, *sources, name="small"):
    cells = [new_code_cell('results = "results"\nsystem = "mid_cp_mid_nw"', metadata={"tags": ["parameters"]})]
    cells += [new_code_cell(source) for source in sources]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    folder = tmp_path / "notebooks"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.ipynb"
    nbformat.write(new_notebook(cells=cells, metadata=kernel), path)
    return path


@pytest.fixture
def good_book(tmp_path):
    """A folder with a book that must not be touched."""
    html = tmp_path / "out" / "html"
    html.mkdir(parents=True)
    (html / "index.html").write_text("the last good book")
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("1 / 0", "failed in cell 1: ZeroDivisionError"),
        ("import warnings; warnings.warn('odd')", "wrote a warning in cell 1"),
    ],
)
def test_a_failed_notebook_publishes_nothing(tmp_path, good_book, source, said):
    """An error and a warning both leave the last good book, and nothing half-written beside it."""
    notebook(tmp_path, source)
    with pytest.raises(ReproduceError, match=said):
        reproduce(out=good_book, notebooks=tmp_path / "notebooks", jobs=1)
    assert (good_book / "html" / "index.html").read_text() == "the last good book"
    assert [path.name for path in good_book.iterdir()] == ["html"]


def test_a_broken_page_publishes_nothing(tmp_path, good_book):
    """Notebooks that succeed but leave the pages without their numbers stop the build."""
    notebook(tmp_path, "print(results)")
    with pytest.raises(ReproduceError, match="failed with the warnings below") as caught:
        reproduce(out=good_book, notebooks=tmp_path / "notebooks", jobs=1)
    assert "WARNING" in caught.value.grid
    assert [path.name for path in good_book.iterdir()] == ["html"]


def test_two_runs_of_a_notebook_are_the_same_bytes(tmp_path):
    """Times, kernel metadata and addresses do not reach the page."""
    path = notebook(tmp_path, "object()", "print(system)")
    first, second = (nbformat.writes(execute(path, tmp_path, {})) for _ in range(2))
    assert first == second
    assert "papermill" not in first
    assert " at 0x" not in first


def test_parameters_replace_what_a_notebook_has(tmp_path):
    """A given system replaces `system` and stands in front of `systems`, where the notebook has them."""
    path = notebook(tmp_path, "print(system)")
    read = nbformat.read(path, as_version=4)
    assert _parameters(read, {"system": "dgx_h100", "model": "paper"}) == {"system": "dgx_h100"}
    assert _parameters(read, {"system": None, "model": None}) == {}
    read.cells[0].source = "systems = ['x', 'a']\nmodel = 'x'"
    assert _parameters(read, {"system": "a", "model": "b"}) == {"systems": ["a", "x"], "model": "b"}
    done = execute(path, tmp_path, {"system": "dgx_h100"})
    assert "dgx_h100" in str(done.cells[-1].outputs)


def test_a_folder_takes_the_place_of_another(tmp_path):
    """The new book replaces the old one whole; the old one is left where the new one was."""
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    _publish(tmp_path / "new", tmp_path / "old")
    assert [path.name for path in (tmp_path / "old").iterdir()] == ["new"]
    _publish(tmp_path / "old", tmp_path / "first")
    assert [path.name for path in (tmp_path / "first").iterdir()] == ["new"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_an_interrupted_run_leaves_the_last_good_book(tmp_path, good_book, how):
    """Interrupted, ended or killed: the book stays; what a killed run leaves is removed by the next."""
    notebook(tmp_path, "import time; time.sleep(60)")
    call = f"reproduce(out={str(good_book)!r}, notebooks={str(tmp_path / 'notebooks')!r})"
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # as in a terminal
    code = f"{hears}\nfrom ppmodel.reproduce import reproduce; {call}"
    run = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL, start_new_session=True)
    while not list(good_book.glob(".ppmodel-*/book/nb")):
        time.sleep(0.1)
    time.sleep(1)
    os.killpg(run.pid, how) if how == signal.SIGINT else run.send_signal(how)
    assert run.wait(60) != 0
    if how == signal.SIGKILL:
        _remove_leftovers(good_book)
    assert [path.name for path in good_book.iterdir()] == ["html"]
    assert (good_book / "html" / "index.html").read_text() == "the last good book"
    waited = time.monotonic() + 30
    while (left := processes_of(run.pid)) and time.monotonic() < waited:
        time.sleep(0.2)
    assert left == []


def processes_of(session):
    """The processes of a session that are still there."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(stat.parent.name)
    return found


@pytest.mark.parametrize(
    "line",
    [
        ["reproduce", "--system", "nowhere"],
        ["reproduce", "--system", str(ROOT / "data" / "systems" / "dgx_h100.yaml")],
        ["reproduce", "--model", "nowhere.yaml"],
        ["reproduce", "--jobs", "0"],
        ["reproduce", "--out", "/dev/null/book"],
        ["reproduce", "--out", str(ROOT / "book")],
    ],
)
def test_mistakes_are_refused_before_anything_runs(capsys, line):
    """One line, exit code 2, at once."""
    assert main(line) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1


def test_notebooks_are_needed(tmp_path):
    """An empty folder of notebooks is refused."""
    with pytest.raises(PPModelError, match="holds no notebooks"):
        reproduce(notebooks=tmp_path)


def test_the_whole_book_for_another_system_in_a_folder_with_spaces_and_braces(tmp_path):
    """A user's own system gives a whole book in a folder of its own; its file's path appears nowhere."""
    mine = tmp_path / "my {own} system.yaml"
    shutil.copy(ROOT / "data" / "systems" / "dgx_h100.yaml", mine)
    out = tmp_path / "a {book} of mine"
    assert main(["reproduce", "--system", str(mine), "--out", str(out)]) == 0
    page = (out / "html" / "nb" / "runtime.html").read_text()
    assert "my {own} system" in page
    assert str(tmp_path) not in page
    assert [path.name for path in out.iterdir()] == ["html"]
