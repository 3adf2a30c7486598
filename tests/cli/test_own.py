"""Schedules of one's own on the command line, and the page that goes through it."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from commands import ROOT, SECONDS, run

from ppmodel.cli import main
from ppmodel.tables import read_table


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    "named", ["mine.py --pp 4 --microbatches 8", "--schedule-file mine.py --pp 4 --microbatches 8",
              "node-1f1b --schedule-file mine.py --pp 4 --microbatches 8", "mine.csv", "--schedule-file mine.csv"],
)  # fmt: skip
@pytest.mark.parametrize("command", [f"simulate {{}} {SECONDS} --json", "table {} --format pytorch", "check {}"])
def test_own_files_stand_wherever_a_schedule_is_named(capsys, command, named):
    """A generator or a table, as the name or as --schedule-file, in every command that takes one schedule."""
    assert run(capsys, command.format(named))[::2] == (0, "")


@pytest.mark.usefixtures("own")
def test_a_generators_options_are_written_behind_its_name(capsys):
    """At two ranks a node the generator writes the table by hand; PyTorch's form of either is read again."""
    by_name = run(capsys, "table mine.py:node=2 --pp 4 --microbatches 8 --format pytorch")[1]
    by_hand = run(capsys, "table mine.csv --format pytorch")[1]
    assert by_name == by_hand
    Path("theirs.csv").write_text(by_hand)
    assert run(capsys, "table theirs.csv --format pytorch")[1] == by_hand


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("check mine.csv --pp 6", "table = .* at pp = 6, .*: is a table for pp = 4, .*; use that size"),
        ("simulate mine.csv --chunks 4", "--chunks = 4: is not an option of node-aware 1F1B by hand"),
        ("simulate 1f1b --schedule-file mine.csv", "NAME = 1f1b: is not in mine.csv, which has no effect"),
        ("simulate node-2f2b --schedule-file mine.py", "schedule = node-2f2b: .*did you mean node-1f1b"),
        ("simulate two.py --pp 4 --microbatches 8", "registers several schedules: one, two; name one of them"),
        (f"compare mine.py a/mine.py --pp 4 --microbatches 8 {SECONDS}", "a/mine.py: schedule = node-1f1b: .*mine"),
        (f"simulate mine.py --node 2 {SECONDS}", "--node is not an option .* after its file: mine.py:node=.*"),
        ("check broken.py --pp 4 --microbatches 8", "broken.py:1: file = broken.py: cannot be run .*ZeroDivisionError"),
        (f"compare fails.py 1f1b --pp 4 --microbatches 8 {SECONDS}", "fails.py:4: generator = fails: .*NameError"),
        ("check leaves.py --pp 4 --microbatches 8", "leaves.py:1: file = leaves.py: cannot be run .*SystemExit"),
    ],
)
def test_own_files_are_refused_in_one_line(capsys, line, said):
    """Another size than a table's, two schedules for one, a file that cannot run: exit code 2, the file stays."""
    two = "from ppmodel import build\nfrom ppmodel.schedules.registry import schedule\n" + "".join(
        f"@schedule('{name}', label='', title='', legal='')\ndef {name}(s, b): pass\n" for name in ("one", "two")
    )
    before = Path("mine.csv").read_text()
    Path("a").mkdir()
    Path("a/mine.py").write_text(Path("mine.py").read_text().replace("node == 0", "node == 1"))
    fails = two.partition("@")[0] + "@schedule('fails', label='', title='', legal='')\ndef fails(s, b): return rows\n"
    files = {"two.py": two, "fails.py": fails, "broken.py": "1 / 0", "leaves.py": "raise SystemExit(0)"}
    for name, text in files.items():
        Path(name).write_text(text)
    code, out, err = run(capsys, line)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.search(said, err), err
    assert Path("mine.csv").read_text() == before


@pytest.mark.usefixtures("own")
def test_a_row_whose_table_deadlocks_says_how_to_see_the_cells(capsys):
    """Beside others, a generator's table that is none at this size is refused, without its cells."""
    stuck = Path("mine.py").read_text().replace("return Schedule", "rows[-1] = rows[-1][::-1]\n    return Schedule")
    Path("stuck.py").write_text(stuck)
    out = run(capsys, f"compare stuck.py 1f1b --pp 4 --microbatches 8 {SECONDS}")[1]
    assert out.endswith("; ppmodel check stuck.py marks the cells\n")


PAGE = (ROOT / "book" / "idea-to-rank.md").read_text()


def test_what_the_page_shows_is_what_the_commands_print(own, capsys):
    """Every command of the page in turn, in a folder of its own: the same lines, to the character."""
    for path in own.iterdir():
        path.unlink()
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    shown = "".join(blocks).rstrip("\n").split("\n")
    printed = []
    for line in [line for line in shown if line.startswith("$ ")]:
        program, *arguments = shlex.split(line[2:])
        printed.append(line)
        if program == "cp":
            shutil.copy(ROOT / arguments[0], arguments[1])
        else:
            assert program == "ppmodel"
            main(arguments)
            said = capsys.readouterr()
            printed += (said.out + said.err).rstrip("\n").split("\n")
    assert shown == printed


@pytest.mark.usefixtures("own")
def test_the_python_of_the_page_runs():
    """The generator's copy is registered, its table is written and read again, and it is simulated."""
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    variables = {}
    exec(block, variables)
    assert read_table("sixteen.csv").rows() == variables["table"].rows()
    assert variables["run"].makespan_s > 0
