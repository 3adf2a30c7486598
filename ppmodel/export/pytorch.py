"""The table files of `torch.distributed.pipelining`: what `_dump_csv` writes and `_load_csv` reads (torch 2.13).

One row per rank, one operation per cell, ``<stage><F|B|I|W><microbatch>``; ``(0F4;7B0)OVERLAP_F_B`` is a forward and
a backward (full or half) that may overlap.
Idle steps are empty cells, or left out. There are no comments and no header. Files with ``compute_comms`` also contain
transfers (SEND_F, RECV_F, SEND_B, RECV_B) and actions for sharded weights (UNSHARD, RESHARD, REDUCE_GRAD). Both are
ignored: transfers follow from the table.
"""

import re
from itertools import pairwise

import numpy as np

from ppmodel.errors import TableError
from ppmodel.export.letters import read_operation
from ppmodel.ops import OpKind

EXTRA = re.compile(r"[0-9]{1,9}(?:(?:SEND|RECV)_[FB][0-9]{1,9}|UNSHARD|RESHARD|REDUCE_GRAD)")
"""A word that is no operation: a transfer, or an action for sharded weights."""

_PAIR = re.compile(r"\(([^()]+)\)OVERLAP_F_B")


def write(schedule):
    """Format a schedule as PyTorch's CSV: only operations, in each rank's order, without idle steps.

    Parameters
    ----------
    schedule : Schedule

    Returns
    -------
    str
        One line per rank; `_load_csv(..., format="compute_only")` reads it.

    Raises
    ------
    TableError
        If the table has something that this format cannot express: replicas, parts of microbatches, uneven stages,
        reductions, optimizer steps, or cells with several operations other than a forward and a backward.

    Examples
    --------
    >>> from ppmodel import build
    >>> print(write(build("1f1b", 2, 2)), end="")
    0F0,0F1,0B0,0B1
    1F0,1B0,1F1,1B1
    """
    ranks, parts = " and ".join(map(str, schedule.placement[:, 0])), schedule.microbatch_parts
    several = schedule.joined & (~schedule.overlaps | np.append(schedule.joined[1:], False))
    for inexpressible, rule in (
        (schedule.num_replicas > 1, f"has stage 0 on ranks {ranks}; in PyTorch's format, a stage is on one rank"),
        (parts > 1, f"splits microbatches into {parts} parts, which PyTorch's format cannot express"),
        (np.ptp(schedule.stage_shares), "has stages of different sizes, which PyTorch's format cannot express"),
        ((schedule.kind >= OpKind.R).any(), "has gradient reductions or optimizer steps, which PyTorch's format lacks"),
        (several.any(), "has cells with several operations other than a forward and a backward, as OVERLAP_F_B needs"),
    ):
        if inexpressible:
            raise TableError("schedule", schedule.name, rule, "use our own format, --format csv")
    columns = (schedule.stage, schedule.kind, schedule.microbatch, schedule.joined)
    letters, cells = [kind.name for kind in OpKind], []
    for stage, kind, microbatch, joined in zip(*(column.tolist() for column in columns), strict=True):
        text = f"{stage}{letters[kind]}{microbatch}"
        if joined:
            cells[-1] = f"({cells[-1]};{text})OVERLAP_F_B"
        else:
            cells.append(text)
    bounds = np.append(schedule.cell, len(cells))[schedule.rank_start].tolist()
    return "".join(",".join(cells[first:last]) + "\n" for first, last in pairwise(bounds))


def read_cell(text, letters):
    """Read the operations of a cell: one, or those of a pair in either notation.

    An OVERLAP_F_B is a forward and a backward; our own ``&`` joins any operations.

    Parameters
    ----------
    text : str
        The cell as in the file.
    letters : {"pytorch", "zero-bubble"}
        The convention of the file.

    Returns
    -------
    tuple of Op

    Raises
    ------
    TableError
        Without the place in the file.

    Examples
    --------
    >>> [" ".join(map(str, read_cell(text, "pytorch"))) for text in ("(0F4;7B0)OVERLAP_F_B", "0F4&7B0", "0F4")]
    ['0F4 7B0', '0F4 7B0', '0F4']
    >>> read_cell("(0B0;0B1)OVERLAP_F_B", "pytorch")
    Traceback (most recent call last):
    ppmodel.errors.TableError: cell = (0B0;0B1)OVERLAP_F_B: must be a forward and a backward; write 0B0&0B1, or separate
    """
    pair = _PAIR.fullmatch(text)
    cell = tuple(read_operation(part, letters) for part in (pair[1].split(";") if pair else text.split("&")))
    if pair and (len(cell) != 2 or sum(op.kind == OpKind.F for op in cell) != 1):
        remedy = f"write {'&'.join(map(str, cell))}, or separate"
        raise TableError("cell", text, "must be a forward and a backward", remedy)
    return cell
