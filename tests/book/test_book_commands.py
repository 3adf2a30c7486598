"""Commands of the book: listed beside those of the library, and mistakes in them are one line."""

import re
import subprocess
import sys

import pytest
from click.testing import CliRunner
from commands import ROOT, run

from ppbook.build.reference import write_reference
from ppmodel.cli.process import cli

REFUSED = {
    "run runtim": "notebook = runtim: .*did you mean runtime",
    "run runtime -p microbatch 8": "microbatch = 8: is not a parameter here; did you mean microbatches",
    "run runtime -p microbatches eight": "runtime.ipynb: microbatches = eight: must be",
    "run runtime -p systems [nowhere]": "runtime.ipynb: systems = nowhere: is neither a known name",
    "run which-layout -p memory_limit 80GB/s": "memory_limit = 80GB/s: must be a number above 0, followed by one of",
    "run runtime -p microbatches": "requires 2 arguments",
    "reproduce --system dgx_h100 --memory-limit 64": "--memory-limit = 64: must be a number above 0",
    "reproduce --memory-limit 64GiB": "--memory-limit = 64GiB: has no effect without a system",
    "run nowhere.ipynb": "error: notebook = nowhere.ipynb: ",
}


@pytest.mark.parametrize("line", REFUSED)
def test_mistakes_cost_one_line_and_exit_code_2(capsys, line):
    """What a user typed wrong is named with its value, the rule and a remedy."""
    code, out, err = run(capsys, line)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.search(REFUSED[line], err), err


def test_the_page_of_commands_has_the_help_that_terminals_show():
    """Of every command, whatever ran before."""
    page, shown = write_reference(cli), {"prog_name": "ppmodel", "terminal_width": 80, "max_content_width": 80}
    for name in [[], *([name] for name in cli.list_commands(None))]:
        help_text = CliRunner().invoke(cli, [*name, "--help"], **shown).output
        assert f"```text\n{help_text}```" in page


def test_notebooks_are_listed(capsys):
    """A line each: name and title."""
    code, out, _ = run(capsys, "notebooks")
    lines = [line.split(maxsplit=1) for line in out.splitlines()]
    assert (code, [line[0] for line in lines]) == (
        0,
        sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb")),
    )
    assert all(len(line) == 2 for line in lines)


def test_help_of_a_notebook_lists_its_parameters(capsys):
    """With defaults and kinds."""
    code, out, _ = run(capsys, "run table --help")
    assert (code, re.search(r"\n  pp = 4 +ranks; a whole number of at least 1\n", out) is not None) == (0, True)
    assert run(capsys, "run tabel --help")[::2] == (2, run(capsys, "run tabel")[2])


def test_help_names_the_books_commands(capsys):
    """In a clone they stand beside the others."""
    listed = re.findall(r"^  (\w+) {2,}\S", run(capsys, "--help")[1], re.MULTILINE)
    assert {"compare", "notebooks", "run", "reproduce", "claims", "smoke", "pdf"} <= set(listed)


def test_a_clone_without_the_books_packages_names_their_extras():
    """Where only the library's own dependencies are installed, each command is one line with its remedy."""
    absent = ["bs4", "filelock", "jinja2", "jupyter_client", "nbformat", "papermill", "playwright"]
    lines = ["notebooks", "run table", "reproduce", "claims", "smoke", "pdf"]
    code = f"import sys; sys.modules.update(dict.fromkeys({absent}))\nfrom ppmodel.cli import main\n"
    code += f"print([main(line.split()) for line in {lines}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{[2] * len(lines)}\n"
    said = done.stderr.splitlines()
    assert len(said) == len(lines)
    assert {re.match(r"error: (\w+) is not installed; .*\[book,pdf\]", line)[1] for line in said} <= {*absent}
