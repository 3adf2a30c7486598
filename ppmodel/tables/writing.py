"""Writing a table as text or CSV, in our own format or PyTorch's; `text` describes and reads both."""

import numpy as np

from ppmodel.files import escaped
from ppmodel.tables import pytorch
from ppmodel.tables.slots import IDLE

VERSION = "ppmodel table 1"
_LETTERS = (
    "F forward, B full backward, I input gradient, W weight gradient, R gradient reduction; @1 second replica; "
    "~ goes on, . idle, & as one"
)


def write_table(schedule, form="text", **slots):
    """Format the idealised table of a schedule as the text of a file.

    Parameters
    ----------
    schedule : Schedule
        The table to write.
    form : {"text", "csv", "pytorch"}
        Our own format with columns aligned by spaces, or separated by commas with idle cells empty; or the format that
        `torch.distributed.pipelining` loads, which keeps only the order.
    **slots : int
        Slots per operation; see `Schedule.table`.

    Returns
    -------
    str
        Comment lines, a header row of slots, and one row per rank; in PyTorch's format, only the rows.

    Raises
    ------
    ScheduleError
        If the table has too many cells to be drawn.
    TableError
        If PyTorch's format cannot express it; see `pytorch.write`.

    Examples
    --------
    >>> from ppmodel import build
    >>> print(write_table(build("1f1b", 2, 2), "csv", backward=1).splitlines()[-2])
    0,0F0,0F1,,0B0,,0B1
    """
    if form == "pytorch":
        return pytorch.write(schedule)
    grid = schedule.table(**slots)
    letters = _LETTERS.replace(";", ", O optimizer step;", 1) if len(schedule.steps) else _LETTERS
    letters += ", G gather of weights, D their drop" if schedule.gathers else ""
    letters += ", 0F0.1 second slice" if schedule.slices > 1 else ""
    letters += ", S output layer, T its gradients" if schedule.has_shards else ""
    name, shares = escaped(schedule.name), " ".join(map(repr, schedule.stage_shares.tolist()))
    notes = (
        ("letters", letters, True), ("schedule", name.replace(",", r"\x2c") if form == "csv" else name, True),
        ("microbatches", schedule.num_microbatches, True),
        ("microbatch_parts", schedule.microbatch_parts, schedule.microbatch_parts > 1),
        ("stage_shares", shares, np.ptp(schedule.stage_shares)),
        ("held_for_weight_grad", schedule.held_for_weight_grad, schedule.held_for_weight_grad != 1),
    )  # fmt: skip
    lines = [f"# {VERSION}", *(f"# {key}: {value}" for key, value, is_needed in notes if is_needed)]
    rows = [["rank", *map(str, range(len(grid[0])))]]
    rows += [[str(rank), *row] for rank, row in enumerate(grid)]
    if form == "csv":
        lines += [",".join("" if cell == IDLE else cell for cell in row) for row in rows]
    else:
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join(lines) + "\n"
