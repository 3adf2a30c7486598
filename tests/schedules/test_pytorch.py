"""PyTorch's orders: ours are equal to them, operation for operation; tests/golden/pytorch says how they were made."""

import importlib.util
import re
from itertools import zip_longest

import pytest
from pytorch_orders import FILES, GOLDEN, blocks

from ppmodel import build
from ppmodel.schedules import get

WITHOUT_OWN_NAME = {"1f1b-run": "1f1b"}


def ours(block):
    """The rows of our own table, written as PyTorch writes them."""
    name = WITHOUT_OWN_NAME.get(block.file, block.file)
    if (name, block.chunks) == ("interleaved-1f1b", 1):
        name = "eager-1f1b"  # with one chunk PyTorch still warms up twice as long; ours is then Megatron's, 1F1B
    options = {"chunks": block.chunks} if any(option.name == "chunks" for option in get(name).options) else {}
    rows = build(name, block.stages, block.microbatches, **options).rows()
    return [[_written(cell) for cell in row] for row in rows]


def _written(cell):
    return str(cell[0]) if len(cell) == 1 else f"({';'.join(map(str, cell))})OVERLAP_F_B"


def right(block):
    """PyTorch's rows, the last rank's forwards of its plan of 1F1B numbered from 0 as its run numbers them."""
    if block.file != "1f1b":
        return block.rows
    renumbered = [re.sub(r"F(\d+)", lambda found: f"F{int(found[1]) - 1}", cell) for cell in block.rows[-1]]
    return [*block.rows[:-1], renumbered]


def differences(block):
    """Device, place, our operation and PyTorch's, wherever they are not the same."""
    pairs = enumerate(zip_longest(ours(block), right(block), fillvalue=[]))
    return [(rank, place, *ops) for rank, rows in pairs for place, ops in _unequal(*rows)]


def _unequal(row, other):
    return [(place, ops) for place, ops in enumerate(zip_longest(row, other)) if ops[0] != ops[1]]


@pytest.mark.parametrize("file", FILES)
def test_our_order_is_pytorchs(file):
    """Every operation of every rank stands where PyTorch has it."""
    assert {str(block): found for block in blocks(file) if (found := differences(block))} == {}


def test_pytorchs_plan_of_1f1b_is_off_by_one():
    """The last rank's forwards are 1 .. B in the plan, so that 0 is missing and B does not exist; nothing else is."""
    for block in blocks("1f1b"):
        assert [cell for cell in block.rows[-1] if "F" in cell] == [
            f"{block.stages - 1}F{number}" for number in range(1, block.microbatches + 1)
        ]
        assert {rank for rank, *_ in differences(block._replace(file="1f1b-run"))} == {block.stages - 1}


def test_the_files_are_what_pytorch_gives():
    """Where torch is installed, its orders are written anew and are the frozen bytes."""
    pytest.importorskip("torch.distributed.pipelining")
    place = importlib.util.spec_from_file_location("make", GOLDEN / "make.py")
    place.loader.exec_module(make := importlib.util.module_from_spec(place))
    assert {path.stem for path in GOLDEN.glob("*.csv")} == set(make.CASES)
    for file in make.CASES:
        assert make.text(file) == (GOLDEN / f"{file}.csv").read_text(), file
