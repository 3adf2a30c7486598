"""PyTorch's frozen orders; tests/golden/pytorch says how they were made."""

import csv
import re
from pathlib import Path
from typing import NamedTuple

GOLDEN = Path(__file__).parent / "golden" / "pytorch"
FILES = sorted(path.stem for path in GOLDEN.glob("*.csv"))
_HEAD = re.compile(r"S=(\d+) B=(\d+) chunks=(\d+)")


class Block(NamedTuple):
    """One schedule of a golden file; a row is a rank's cells, idle steps left out, which the source still has."""

    file: str
    stages: int
    microbatches: int
    chunks: int
    rows: list
    source: str

    def __str__(self):
        return f"{self.file}-{self.stages}-{self.microbatches}-{self.chunks}"

    @property
    def text(self):
        """The block as PyTorch writes it, without its idle steps."""
        return "".join(",".join(row) + "\n" for row in self.rows)


def blocks(file):
    """The blocks of a golden file."""
    for block in (GOLDEN / f"{file}.csv").read_text().split("# ")[1:]:
        head, *lines = block.splitlines()
        rows = [[cell for cell in row if cell] for row in csv.reader(lines)]
        yield Block(file, *map(int, _HEAD.fullmatch(head).groups()), rows, f"# {block}")
