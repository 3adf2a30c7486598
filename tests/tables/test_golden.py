"""Known tables: the command that writes each, and the file that it must write."""

from pathlib import Path

import pytest

from ppmodel.cli import main

GOLDEN = Path(__file__).parents[1] / "golden"
COMMANDS = {
    "hanayo_4_4_w2.txt": "table hanayo --pp 4 --microbatches 4 --waves 2",
    "chimera_4_8_direct.txt": "table chimera --pp 4 --microbatches 8",
    "chimera_4_8_overlapping.txt": "table chimera --pp 4 --microbatches 8 --concat overlapping",
    "eager_4_6.txt": "table eager-1f1b --pp 4 --microbatches 6",
}


def test_every_known_table_is_tested():
    """The folder and the list name the same files."""
    assert {path.name for path in GOLDEN.glob("*.txt")} == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_tables_are_the_known_ones(capsys, name):
    """The same bytes as in the file."""
    assert main(COMMANDS[name].split()) == 0
    assert capsys.readouterr().out == (GOLDEN / name).read_text()
