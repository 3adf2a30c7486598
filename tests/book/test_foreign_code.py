"""Notebooks that others wrote: whatever their code and their text do, one line says it and pages stay whole."""

import os
import re
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from books import notebook, tiny_book
from jupyter_client import AsyncKernelManager
from nbformat.v4 import new_code_cell

from ppbook import ROOT
from ppbook.build.notebooks import execute
from ppbook.build.reproduce import reproduce
from ppbook.build.run import run
from ppbook.errors import ReproduceError
from ppmodel.cli import main

_WORKER = "import os, signal; worker = int(open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1])"
"""A kernel's parent is the server that forked it, whose parent is the worker."""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os._exit(0)", "cannot be run: Kernel died in cell 1"),
        ("import os, time; os.kill(os.getppid(), 9); time.sleep(60)", "cannot be run: Kernel died in cell 1"),
        (f"{_WORKER}; os.kill(worker, 9)", "odd.ipynb, cell 1: was running when its process died"),
        ("import re; re.match('(a+)+$', 'a' * 60 + 'b')", "has not finished cell 1 after 2 s"),
        (f"{_WORKER}; os.kill(worker, signal.SIGSTOP)", "has not finished cell 1 after 2 s"),
        ("import sys; sys.exit(0)", "failed in cell 1: SystemExit: 0"),
        ("import os; os.write(1, b'out\\n'); os.write(2, b'odd\\n' * 9)", "wrote a warning in cell 1: odd; nothing"),
    ],
)
def test_what_becomes_of_a_kernel_is_one_line(tmp_path, capfd, code, said):
    """Dead, with its worker, or in a loop that hears no signal: one line, exit code 2, and nothing is left of it."""
    source = notebook(tmp_path, code, name="odd")
    limit = ["--time-limit", "2"] if "after" in said else []
    assert main(["run", str(source), "--out", str(tmp_path / "out"), *limit]) == 2
    out, err = capfd.readouterr()
    assert said in err
    assert (out, err.count("\n")) == ("", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["notebooks"]
    assert_nothing_runs_below(tmp_path)


def test_a_server_that_a_kernel_has_stopped_ends(tmp_path):
    """It hears of no closed pipe; the process that started it takes it with it."""
    place = tmp_path / "server"
    code = (
        f"import os, signal; open({str(place)!r}, 'w').write(str(os.getppid())); os.kill(os.getppid(), signal.SIGSTOP)"
    )
    assert main(["run", str(notebook(tmp_path, code)), "--out", str(tmp_path / "out"), "--time-limit", "2"]) == 2
    server, until = Path("/proc", place.read_text()), time.monotonic() + 10
    while server.exists() and "Z" not in (server / "stat").read_text().split():
        assert time.monotonic() < until
        time.sleep(0.1)


def assert_nothing_runs_below(folder, seconds=10):
    """No process has its working directory in a folder, or soon none has."""
    until = time.monotonic() + seconds
    while working := [place for place in Path("/proc").glob("[0-9]*/cwd") if below(place, folder)]:
        assert time.monotonic() < until, working
        time.sleep(0.1)


def below(link, folder):
    with suppress(OSError):
        return os.readlink(link).startswith(f"{folder}/")
    return False


@pytest.mark.parametrize(
    ("start", "said"), [("os._exit(3)", "died before"), ("time.sleep(60)", "didn't respond in 1 ")]
)
def test_a_kernel_that_does_not_start_is_one_line(tmp_path, monkeypatch, start, said):
    """Because it dies at once, or because the machine, or what its start loads, is slow."""
    (tmp_path / "sitecustomize.py").write_text(
        f"import os, sys, time\nif 'ipykernel_launcher' in sys.orig_argv: {start}\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), os.pathsep)
    monkeypatch.setattr("ppbook.build.notebooks._START_S", 1)
    with pytest.raises(ReproduceError, match=f"cannot be run: Kernel {said}.* before its first cell; nothing was"):
        execute(notebook(tmp_path), tmp_path, {}, kernels=AsyncKernelManager)


def test_a_kernel_that_dies_at_its_start_is_started_again(tmp_path, monkeypatch):
    """Twice, as when another process took its port."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, pathlib, sys\nif 'ipykernel_launcher' in sys.orig_argv:\n"
        f"    died = pathlib.Path({str(tmp_path / 'died')!r})\n"
        "    before = len(died.read_text()) if died.exists() else 0\n"
        "    if before < 2:\n        died.write_text('.' * (before + 1))\n        os._exit(3)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), os.pathsep)
    execute(notebook(tmp_path), tmp_path, {}, kernels=AsyncKernelManager)
    assert (tmp_path / "died").read_text() == ".."


def test_a_cell_that_takes_long_is_named(tmp_path, capfd, monkeypatch):
    """Which cell of which notebook, and for how long."""
    monkeypatch.setattr("ppbook.build.notebooks._SAY_S", 1)
    assert main(["run", str(notebook(tmp_path, "import time; time.sleep(4)")), "--out", str(tmp_path / "out")]) == 0
    said = re.findall(r"small.ipynb: cell 1 has been running for (\d+) s\n", capfd.readouterr().err)
    assert len(said) > 1
    assert all(0 < int(one) < int(other) for one, other in pairwise(said))  # a busy machine leaves seconds out


@pytest.mark.parametrize("cells", ["null", "[5]", '[{"cell_type": "code"}]', "[" * 10**5, '{"a": 1}'])
def test_what_is_no_notebook_is_refused(tmp_path, capsys, cells):
    """One line, whatever is in the file."""
    (tmp_path / "odd.ipynb").write_text(f'{{"nbformat": 4, "nbformat_minor": 5, "metadata": {{}}, "cells": {cells}}}')
    assert main(["run", str(tmp_path / "odd.ipynb")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    (tmp_path / "odd.ipynb").write_text(f'{{"nbformat": 4, "nbformat_minor": {cells}, "metadata": {{}}, "cells": []}}')
    assert main(["run", str(tmp_path / "odd.ipynb")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("value", ["-" * 10**5 + "1", "(" * 10**5, "[" * 5000])
def test_a_parameter_that_python_cannot_hold_is_refused(tmp_path, capsys, value):
    """In the cell of a notebook as in a generator's file."""
    source = notebook(tmp_path)
    whole = nbformat.read(source, as_version=4)
    whole.cells[0].source = f"generator = 'x.py'  # generator: yours\nodd = {value}"
    nbformat.write(whole, source)
    own = tmp_path / "mine.py"
    own.write_text(value)
    assert main(["run", str(source), "-p", "generator", str(own)]) == 2
    whole.cells[0].source = whole.cells[0].source.partition("\n")[0]
    nbformat.write(whole, source)
    assert main(["run", str(source), "-p", "generator", str(own)]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_a_notebook_of_gigabytes_is_refused_at_once(tmp_path, capsys):
    """Its size is looked at before it is read."""
    with open(tmp_path / "large.ipynb", "wb") as file:
        file.truncate(2**32)
    assert main(["run", str(tmp_path / "large.ipynb")]) == 2
    assert "are allowed" in capsys.readouterr().err


def test_a_loop_of_links_and_a_large_folder_are_refused_at_once(tmp_path, capsys):
    """Nothing below a folder without a mark is looked at."""
    source = notebook(tmp_path, "1 / 0")
    (tmp_path / "loop").symlink_to("loop")
    for out in (tmp_path / "loop", Path("/")):
        assert main(["run", str(source), "--out", str(out)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_name_in_another_script_is_drawn_or_boxed(tmp_path):
    """A glyph that no font has is no warning that ends a run."""
    draw = "from ppmodel.plot import plot_lines\nimport pandas as pd\n"
    draw += "frame = pd.DataFrame(dict(pp=[1, 2], s=[1.0, 2.0], label='東京'))"
    source = notebook(tmp_path, f"{draw}\nplot_lines(frame, 'pp', 's', '東京').savefig('a.png')")
    run(source, out=tmp_path / "out")
    assert (tmp_path / "out" / "a.png").exists()


_HOSTILE = (
    "<script>alert(1)</script> {{ 7*7 }} {{ cycler.__init__.__globals__.os.system('touch ran') }} {% set a = 1 %}"
)


def test_text_from_data_is_text_on_pages(tmp_path, monkeypatch):
    """Neither a recorded text nor a table's cell is evaluated, or becomes markup, wherever a page shows it."""
    monkeypatch.chdir(tmp_path)
    sources = tiny_book(tmp_path / "tiny", _HOSTILE)
    (tmp_path / "tiny" / "book" / "index.md").write_text("# Tiny\n\n{{ small.value }}\n")
    path = tmp_path / "tiny" / "notebooks" / "small.ipynb"
    whole = nbformat.read(path, as_version=4)
    code = "from ppbook.pages.report import show\nimport pandas as pd\n"
    code += f"show(pd.DataFrame({{{_HOSTILE!r}: [{_HOSTILE!r}]}}))"
    whole.cells.append(new_code_cell(code, metadata={"tags": ["remove-input"]}))
    nbformat.write(whole, path)
    reproduce(out=tmp_path / "out", **sources)
    for page in ("index.html", "nb/small.html"):
        text = (tmp_path / "out" / "html" / page).read_text()
        assert "&lt;script&gt;alert(1)" in text
        assert "<script>alert" not in text
        assert "{{ 7*7 }}" in text
    assert not list(tmp_path.rglob("ran"))


def test_headings_hold_no_text_from_data():
    """The theme shows headings beside the page, and there the text of a heading is markup."""
    lines = [line for page in (ROOT / "book").glob("*.md") for line in page.read_text().splitlines()]
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        lines += [line for cell in nbformat.read(path, as_version=4).cells for line in cell.source.splitlines()]
    assert not [line for line in lines if re.match(r"#+ .*\{\{", line)]
