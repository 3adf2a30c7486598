"""The table files of `torch.distributed.pipelining`: what `_dump_csv` writes and `_load_csv` reads (torch 2.13).

One row per rank, one operation per cell, ``<stage><F|B|I|W><microbatch>``; ``(0F4;7B0)OVERLAP_F_B`` is a forward and
a backward (full or half) that may overlap.
Idle steps are empty cells, or left out. There are no comments and no header. Files with ``compute_comms`` also contain
actions for sharded weights, our gathers, drops and reductions (UNSHARD, RESHARD, REDUCE_GRAD), and transfers (SEND_F,
RECV_F, SEND_B, RECV_B), which here follow from the table.
"""

import re

import numpy as np

from ppmodel.errors import TableError
from ppmodel.ops import Op, OpKind
from ppmodel.tables.letters import read_operation

_SHARDING = {"UNSHARD": OpKind.G, "RESHARD": OpKind.D, "REDUCE_GRAD": OpKind.R}
TRANSFER = re.compile(r"(\d{1,9})((?:SEND|RECV)_[FB])(\d{1,9})", re.ASCII)
_ACTION = re.compile(rf"(\d{{1,9}})({'|'.join(_SHARDING)})", re.ASCII)
_PAIR = re.compile(r"\(([^()]+)\)OVERLAP_F_B")


def write(schedule):
    """Format a schedule as PyTorch's CSV: operations in each rank's order, without idle steps and transfers.

    Parameters
    ----------
    schedule : Schedule

    Returns
    -------
    str
        One line per rank; `_load_csv(..., format="compute_only")` reads it, and adds actions for sharded weights unless
        they are there, which `_Action.from_str` reads.

    Raises
    ------
    TableError
        If the table has something that this format cannot express: replicas, parts of microbatches, uneven stages,
        optimizer steps, reductions without gathers, or cells with several operations other than a forward and a
        backward.

    Examples
    --------
    >>> from ppmodel import build
    >>> print(write(build("1f1b", 2, 2)), end="")
    0F0,0F1,0B0,0B1
    1F0,1B0,1F1,1B1
    """
    ranks, parts = " and ".join(map(str, schedule.placement[:, 0])), schedule.microbatch_parts * schedule.slices
    several = schedule.joined & (~schedule.overlaps | np.append(schedule.joined[1:], False))
    for inexpressible, rule in (
        (schedule.num_replicas > 1, f"has stage 0 on ranks {ranks}; in PyTorch's format, a stage is on one rank"),
        (parts > 1, f"splits microbatches into {parts} parts, which PyTorch's format cannot express"),
        (np.ptp(schedule.stage_shares), "has stages of different sizes, which PyTorch's format cannot express"),
        (schedule.has_shards, "has passes of a divided output layer, which PyTorch's format lacks"),
        (schedule.reduces and not schedule.gathers, "has reductions without gathers, which PyTorch's format lacks"),
        (len(schedule.steps), "has optimizer steps, which PyTorch's format lacks"),
        (several.any(), "has cells with several operations other than a forward and a backward, as OVERLAP_F_B needs"),
    ):
        TableError.require([("schedule", schedule.name, not inexpressible, rule, "use our own format, --format csv")])
    words = {kind: word for word, kind in _SHARDING.items()}
    rows = [
        [";".join(f"{op.stage}{words[op.kind]}" if op.kind in words else str(op) for op in cell) for cell in row]
        for row in schedule.rows()
    ]
    return "".join(",".join(f"({cell})OVERLAP_F_B" if ";" in cell else cell for cell in row) + "\n" for row in rows)


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
    >>> texts = "(0F4;7B0)OVERLAP_F_B", "0F4&7B0", "0UNSHARD"
    >>> [" ".join(map(str, read_cell(text, "pytorch"))) for text in texts]
    ['0F4 7B0', '0F4 7B0', '0G']
    >>> read_cell("(0B0;0B1)OVERLAP_F_B", "pytorch")
    Traceback (most recent call last):
    ppmodel.errors.TableError: cell = (0B0;0B1)OVERLAP_F_B: must be a forward and a backward; write 0B0&0B1, or separate
    """
    if action := _ACTION.fullmatch(text):
        return (Op(_SHARDING[action[2]], int(action[1])),)
    pair = _PAIR.fullmatch(text)
    cell = tuple(read_operation(part, letters) for part in (pair[1].split(";") if pair else text.split("&")))
    if pair and (len(cell) != 2 or sum(op.kind == OpKind.F for op in cell) != 1):
        remedy = f"write {'&'.join(map(str, cell))}, or separate"
        raise TableError("cell", text, "must be a forward and a backward", remedy)
    return cell


def check_extras(schedule, extras):
    """Refuse transfers that contradict the table.

    The RECVs of a link need not be in the order of its SENDs: PyTorch's ``defer_pp_recv`` moves RECVs after later ones
    (ZB-V, DualPipeV, interleaved ZB).

    Each must be in the row of its stage. Either all transfers between different ranks are present or none; a SEND comes
    after the operation that produces its data, a RECV before the one that needs it.

    Parameters
    ----------
    schedule : Schedule
    extras : list of tuple
        Of each transfer: the match of `TRANSFER`, its row, the cells with operations before it there, and its line and
        column in the file, for messages.

    Raises
    ------
    TableError
        With line and column.
    """
    operation_of, seen = {}, set()  # by word, stage and microbatch, the operation that sends the data or needs it
    for consumer in np.flatnonzero(schedule.dependencies.remote).tolist():
        way = "F" if schedule.kind[consumer] == OpKind.F else "B"
        for word, index in ("SEND", int(schedule.dependencies.source[consumer])), ("RECV", consumer):
            operation_of[f"{word}_{way}", int(schedule.stage[index]), int(schedule.microbatch[index])] = index
    place = schedule.cell - schedule.cell[schedule.rank_start[:-1]][schedule.rank]
    for match, rank, cells_before, where, field in extras:
        key, sends = (match[2], int(match[1]), int(match[3])), match[2].startswith("SEND")
        index = operation_of.get(key, -1)
        operation, is_behind = schedule.op(index), place[index] >= cells_before
        for is_wrong, rule, remedy in (
            (schedule.num_replicas > 1, "is ambiguous in a table with several replicas", "delete all such words"),
            (index < 0 or schedule.rank[index] != rank, "is not a transfer of this row", "move or delete it"),
            (key in seen, "occurs twice in the table", "delete one of them"),
            (sends and is_behind, f"comes before {operation}, which produces its data", f"put it after {operation}"),
            (not (sends or is_behind), f"comes after {operation}, which needs its data", f"put it before {operation}"),
        ):
            if is_wrong:
                raise TableError(field, match[0], rule, remedy, where=where)
        seen.add(key)
    for word, stage, microbatch in sorted(operation_of.keys() - seen)[:1] if seen else ():
        rule = "is missing: a table has all transfers between its ranks, or none"
        remedy = "add it, or delete every SEND and RECV"
        raise TableError(f"rank {schedule.placement[0, stage]}", f"{stage}{word}{microbatch}", rule, remedy)
