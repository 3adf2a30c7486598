"""From rows of cells, as people write a table, to the arrays of a `Schedule`."""

import numpy as np

from ppmodel.errors import TableError
from ppmodel.ops import NO_MICROBATCH, WHOLE, Op, parse_cell
from ppmodel.tables.marked import MarkedTable

COLUMNS = "kind", "stage", "microbatch", "replica", "joined"
"""The arrays of a schedule with an entry for each operation."""

_AS_OP = 'write, for example, Op(OpKind.F, 2, 5) or "2F5"'


def columns_of(rows, optional):
    """Turn the rows of `Schedule.from_rows`, and what does not follow from them, into the fields of a `Schedule`.

    Raises
    ------
    TableError
        If a cell is no cell, numbers have gaps, or what is given besides does not fit.
    """
    cells = [[as_cell(cell, rank) for cell in row] for rank, row in enumerate(rows)]
    ops = [[op for cell in row for op in cell] for row in cells]
    flat = np.array([op for row in ops for op in row], np.int32)
    if not len(flat):
        raise TableError("table", "empty", "must contain operations", "write one row per rank")
    joined = [position > 0 for row in cells for cell in row for position in range(len(cell))]
    rank_start = np.cumsum([0] + [len(row) for row in ops])
    parts, counts = optional.get("microbatch_parts", 1), numbered_without_gap(flat, cells)
    slices = max(1, counts["slice"])
    num_microbatches = optional.get("num_microbatches", max(1, -(-counts["microbatch"] // parts)))
    if num_microbatches * parts > counts["microbatch"]:
        field, rule = f"microbatch {counts['microbatch']}", "has no operation in the table"
        remedy = f"write its operations, or fix the number of microbatches ({num_microbatches})"
        raise TableError(field, "missing", rule, remedy, grid=MarkedTable(texts(cells)))
    if optional.get("stage_shares") is not None and len(optional["stage_shares"]) != counts["stage"]:
        rule = f"must have one share per stage, {counts['stage']}"
        raise TableError("stage_shares", optional["stage_shares"], rule, "fix or delete them")
    placement = majority_placement(flat, np.repeat(np.arange(len(rows)), np.diff(rank_start)))
    if slices > 1:
        for index in np.flatnonzero((flat[:, 4] == WHOLE) & (flat[:, 2] != NO_MICROBATCH))[:1]:
            rule = "is a whole microbatch in a table of slices"
            raise TableError("cell", Op(*flat[index].tolist()), rule, "write its slices, such as 2F5.0 and 2F5.1")
        flat[:, 2] = np.where(flat[:, 4] == WHOLE, NO_MICROBATCH, flat[:, 2] * slices + flat[:, 4])
    columns = dict(zip(COLUMNS, (*flat.T[:4].copy(), np.array(joined)), strict=True))
    columns |= {"placement": placement, "rank_start": rank_start, "slices": slices}
    return columns | optional | {"num_microbatches": num_microbatches}


def as_cell(cell, rank):
    """The operations of a rank's cell that is given as one of them, several of them, or text."""
    if isinstance(cell, str):
        return parse_cell(cell)
    ops = cell if isinstance(cell, tuple | list) and cell and isinstance(cell[0], tuple) else (cell,)
    for op in ops:
        is_op = isinstance(op, tuple) and len(op) == len(Op._fields)
        if not (is_op and all(hasattr(number, "__index__") and abs(number) < 2**31 for number in op)):
            raise TableError(f"rank {rank}", repr(op), "is not an Op, its text or a tuple of Op", _AS_OP)
    return ops


def texts(rows):
    """Each rank's cells as people write them."""
    return [["&".join(map(str, cell)) for cell in row] for row in rows]


def numbered_without_gap(flat, cells):
    """Count stages, microbatches, replicas and slices that operations name; numbers start at 0, without gaps."""
    counts = {}
    for column, name in ((1, "stage"), (2, "microbatch"), (3, "replica"), (4, "slice")):
        numbers = np.unique(flat[:, column])
        numbers = numbers[numbers >= 0]  # neither NO_MICROBATCH nor WHOLE
        gap = np.flatnonzero(numbers != np.arange(len(numbers)))
        if len(gap) or (name != "slice" and not len(numbers)):
            first = gap[0] if len(gap) else 0
            beyond = {(rank, place) for rank, row in enumerate(cells) for place, cell in enumerate(row)
                      if any(op[column] in numbers[first : first + 1] for op in cell)}  # fmt: skip
            rule, remedy = "has no operation in the table", f"number every {name} from 0 without gaps"
            raise TableError(f"{name} {first}", "missing", rule, remedy, grid=MarkedTable(texts(cells), beyond))
        counts[name] = len(numbers)
    return counts


def majority_placement(flat, rank):
    """The rank that has most operations of each (replica, stage); ties go to the lower rank."""
    columns = flat[:, 3], flat[:, 1], rank
    shape = [column.max() + 1 for column in columns]
    places, count = np.unique(np.ravel_multi_index(columns, shape), return_counts=True)
    homes = np.array(np.unravel_index(places, shape))
    replica, stage, home = homes[:, np.lexsort((-homes[2], count))]
    placement = np.zeros(shape[:2], dtype=np.int32)
    placement[replica, stage] = home  # the last entry of a stage has most, or as many on a lower rank
    return placement
