"""Digests of the orders that the authors' fork of Megatron-LM gives; tests/golden/README.md says how they were made."""

import csv
from hashlib import sha256
from pathlib import Path

_FILE = Path(__file__).parent / "golden" / "zero_bubble_fork.csv"


def sizes(name):
    """Ranks, microbatches, chunks, group and digest of every order of a schedule."""
    for row in csv.DictReader(_FILE.read_text().splitlines()):
        if row["schedule"] == name:
            yield *(int(row[key] or 0) for key in ("pp", "microbatches", "chunks", "group")), row["sha256"]


def digest(table):
    """The digest of a table: its operations, apart by spaces and, of two ranks, by line ends."""
    rows = (" ".join(str(op) for (op,) in row) for row in table.rows())
    return sha256("\n".join(rows).encode()).hexdigest()[:16]
