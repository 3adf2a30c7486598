"""Odd notebooks: one line says what becomes of them, and their text stays text."""

import os
import re

import nbformat
import pytest
from books import notebook

from ppbook import ROOT
from ppbook.build.notebooks import execute
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


def test_headings_hold_no_text_from_data():
    """The theme shows headings beside the page, and there the text of a heading is markup."""
    lines = [line for page in (ROOT / "book").glob("*.md") for line in page.read_text().splitlines()]
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        lines += [line for cell in nbformat.read(path, as_version=4).cells for line in cell.source.splitlines()]
    assert not [line for line in lines if re.match(r"#+ .*\{\{", line)]
