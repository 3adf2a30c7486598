"""The installed package without the book: its commands say what they need, and the others are as ever."""

import sys
from pathlib import Path

import pytest

from ppmodel.cli import main


@pytest.fixture
def _installed(monkeypatch):
    """Without a checkout there is no package ppbook."""

    for name in [name for name in sys.modules if name.partition(".")[0] == "ppbook"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if not Path(folder, "ppbook").is_dir()])


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("line", ["run table", "reproduce", "claims", "smoke", "pdf", "notebooks"])
def test_a_command_of_the_book_says_what_it_needs(capsys, line):
    """One line: the command, and where to run it."""
    assert main(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: command = {line.split()[0]}: ")
    assert "clone" in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.usefixtures("_installed")
def test_help_lists_what_there_is(capsys):
    """The commands of the library, and none of the book's."""
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "simulate" in shown
    assert "reproduce" not in shown
