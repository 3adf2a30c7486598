"""Odd notebooks: one line says what becomes of them, and text from data stays text on pages."""

import os
import re

import nbformat
import pytest
from books import notebook, tiny_book
from nbformat.v4 import new_code_cell

from ppbook import ROOT
from ppbook.build.notebooks import execute
from ppbook.build.reproduce import reproduce
from ppbook.build.run import run
from ppmodel.cli import main


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os._exit(0)", "cannot be run: Kernel died in cell 1"),
        ("import re; re.match('(a+)+$', 'a' * 60 + 'b')", "has not finished cell 1 after 2 s"),
        ("import sys; sys.exit(0)", "failed in cell 1: SystemExit: 0"),
    ],
)
def test_what_becomes_of_a_kernel_is_one_line(tmp_path, capfd, code, said):
    """Dead, or in a loop that hears no signal: one line, exit code 2, and no output."""
    source = notebook(tmp_path, code, name="odd")
    limit = ["--time-limit", "2"] if "after" in said else []
    assert main(["run", str(source), "--out", str(tmp_path / "out"), *limit]) == 2
    out, err = capfd.readouterr()
    assert said in err
    assert (out, err.count("\n")) == ("", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["notebooks"]


def test_a_kernel_that_dies_at_its_start_is_started_again(tmp_path, monkeypatch):
    """Twice, as when another process took its port."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, pathlib, sys\nif 'ipykernel_launcher' in sys.orig_argv:\n"
        f"    died = pathlib.Path({str(tmp_path / 'died')!r})\n"
        "    before = len(died.read_text()) if died.exists() else 0\n"
        "    if before < 2:\n        died.write_text('.' * (before + 1))\n        os._exit(3)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), os.pathsep)
    execute(notebook(tmp_path), tmp_path, {})
    assert (tmp_path / "died").read_text() == ".."


@pytest.mark.parametrize("cells", ["null", "[5]", '[{"cell_type": "code"}]', "[" * 10**5, '{"a": 1}'])
def test_what_is_no_notebook_is_refused(tmp_path, capsys, cells):
    """One line, whatever is in the file."""
    (tmp_path / "odd.ipynb").write_text(f'{{"nbformat": 4, "nbformat_minor": 5, "metadata": {{}}, "cells": {cells}}}')
    assert main(["run", str(tmp_path / "odd.ipynb")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    (tmp_path / "odd.ipynb").write_text(f'{{"nbformat": 4, "nbformat_minor": {cells}, "metadata": {{}}, "cells": []}}')
    assert main(["run", str(tmp_path / "odd.ipynb")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_name_in_another_script_is_drawn_or_boxed(tmp_path):
    """A glyph that no font has is no warning that ends a run."""
    draw = "from ppmodel.plot import plot_lines\nimport pandas as pd\n"
    draw += "frame = pd.DataFrame(dict(pp=[1, 2], s=[1.0, 2.0], label='東京'))"
    source = notebook(tmp_path, f"{draw}\nplot_lines(frame, 'pp', 's', '東京').savefig('a.png')")
    run(source, out=tmp_path / "out")
    assert (tmp_path / "out" / "a.png").exists()


_MARKUP = "<script>alert(1)</script> {{ 7*7 }} {{ cycler.__init__.__globals__.os.system('touch ran') }} {% set a = 1 %}"


def test_text_from_data_is_text_on_pages(tmp_path, monkeypatch):
    """Neither a recorded text nor a table's cell is evaluated, or becomes markup, wherever a page shows it."""
    monkeypatch.chdir(tmp_path)
    sources = tiny_book(tmp_path / "tiny", _MARKUP)
    (tmp_path / "tiny" / "book" / "index.md").write_text("# Tiny\n\n{{ small.value }}\n")
    path = tmp_path / "tiny" / "notebooks" / "small.ipynb"
    whole = nbformat.read(path, as_version=4)
    code = "from ppbook.pages.report import show\nimport pandas as pd\n"
    code += f"show(pd.DataFrame({{{_MARKUP!r}: [{_MARKUP!r}]}}))"
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
