"""Reading table files, text or CSV; `writing` writes them.

Our own format begins with comment lines (``# key: value``). With a header row ``rank, 0, 1, 2, ...``, columns are
slots, and every operation must start after the slots of the operations it needs; without one, rows are ranks and only
the order within a row counts. An idle cell is empty or ``.``; a ``~`` continues the operation before it. `pytorch`
describes PyTorch's format: no comments, no header, and additional words, which are understood in every file. `letters`
says which letters a file may use.
"""

import csv
import os
import re
from typing import NamedTuple

import numpy as np

from ppmodel.errors import TableError, did_you_mean
from ppmodel.files import as_path, read_text, unescaped
from ppmodel.tables import pytorch
from ppmodel.tables.dependencies import NO_OPERATION
from ppmodel.tables.further import direct
from ppmodel.tables.letters import MEANINGS, ZERO_BUBBLE, convention
from ppmodel.tables.schedule import Schedule
from ppmodel.tables.slots import CONTINUED, IDLE
from ppmodel.tables.writing import VERSION

LARGEST_BYTES = 2**23
"""Size limit of table files; a million operations take eight million bytes."""
_SIZES = "microbatches", "microbatch_parts", "stage_shares", "held_for_weight_grad"
_KEYS = ("letters", "schedule", *_SIZES)
_NOTE = re.compile(r"[\s#]*([^:=]+?)\s*([:=])\s*(.*?)\s*")
_EMPTY = ("", IDLE, "None")
_RANK = ("rank", "device")  # the second in files of older versions


class Reading(NamedTuple):
    """A table, and how its file was interpreted.

    Attributes
    ----------
    schedule : Schedule
    pytorch : bool
        Whether the file is in PyTorch's format: comma-separated rows without comments or header, or its words.
    letters : {"pytorch", "zero-bubble"}
    transfers : int
        Number of SEND and RECV that agree with the table.
    """

    schedule: Schedule
    pytorch: bool
    letters: str
    transfers: int

    def __str__(self):
        form = "PyTorch's CSV" if self.pytorch else "table"
        text = f"format: {form}; letters: {self.letters} (B is {MEANINGS[self.letters]['B']})"
        return f"{text}; {self.transfers} transfers checked" if self.transfers else text


def read_table(path: str | os.PathLike[str]) -> Schedule:
    """Read and check a table file, generated or written by hand.

    Parameters
    ----------
    path : str or Path
        A UTF-8 text or CSV file, in our own format (as ``Schedule.to_csv`` writes) or PyTorch's.

    Returns
    -------
    Schedule
        Named by a comment in the file, or after the file.

    Raises
    ------
    TableError
        With file, cell, rule and remedy; if possible, with the table and the faulty cells marked.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "mine.csv"
    ...     _ = path.write_text("0F0,0F1,0B0,0B1")
    ...     read_table(path).name
    'mine'
    """
    return read_file(path).schedule


def read_file(path):
    """Read a table file as `read_table` does, and say how it was interpreted.

    Parameters
    ----------
    path : str or Path
        As for `read_table`.

    Returns
    -------
    Reading

    Raises
    ------
    TableError
        As for `read_table`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "old.csv"
    ...     _ = path.write_text("0F0,0B0,0W0")
    ...     print(read_file(path))
    format: PyTorch's CSV; letters: zero-bubble (B is input gradient)
    """
    path = as_path(path, error=TableError)
    if path.suffix == ".py":
        raise TableError("table", path, "is a generator, not a table", "pass it to ppmodel.build")
    text = read_text(path, LARGEST_BYTES, TableError)
    try:
        return _parse(text, path.stem)
    except TableError as error:
        error.where = f"{path}:{error.where}" if error.where else str(path)
        raise


def parse_table(text, name="table"):
    """Read a table from its text; see `read_table`.

    Parameters
    ----------
    text : str
        Text or CSV, in one of the formats that the module describes.
    name : str
        Name of the schedule if no comment gives one.

    Returns
    -------
    Schedule
        Checked: every operation occurs once, and no rank waits forever.

    Raises
    ------
    TableError
        With line or rank, cell, rule and remedy.

    Examples
    --------
    >>> parse_table("0F0, 0F1, 0B0, 0B1").num_microbatches
    2
    """
    return _parse(text, name).schedule


def _parse(text, name):
    """Interpret the text of a file."""
    notes, lines = {}, []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("#"):
            _read_note(line, number, notes)
        elif line.strip(" ,\t"):
            lines.append((number, line))
    if not lines:
        raise TableError("table", "empty", "must contain operations", "write one row per rank")
    comma = any("," in line for _, line in lines)
    rows = []
    for number, line in lines:
        try:
            cells = next(csv.reader([line], strict=True)) if comma else line.split()
        except csv.Error as error:
            raise TableError("row", line[:20], f"is not CSV ({error})", "fix the quotes", where=number) from None
        rows.append((number, [cell.strip() for cell in cells]))
    slotted = rows[0][1][0].lower() in _RANK
    if slotted:
        rows = _without_ranks(*rows)
    elif rows[0][1][0].isdecimal():
        rule = "is a rank's number, but the file has no header row"
        remedy = "begin with a row rank,0,1,2,... or delete the numbers"
        raise TableError("cell", rows[0][1][0], rule, remedy, where=rows[0][0])
    letters = convention(notes.get("letters"), lines)
    cells, slots, extras = _read_cells(rows, letters, slotted)
    try:
        name = unescaped(notes["schedule"][1]) if "schedule" in notes else name
        schedule = Schedule.from_rows(name, cells, **_sizes(notes))
    except TableError as error:
        if letters == ZERO_BUBBLE:
            translated = "in our letters, I is the file's B, and B is its BW"
            error.why = f"{error.why}; {translated}" if error.why else translated
        raise
    pytorch.check_extras(schedule, extras)
    if slotted:
        _check_slots(schedule, *np.repeat(slots, [len(cell) for row in cells for cell in row], axis=0).T)
    bare = comma and not notes and not slotted
    return Reading(schedule, bare or bool(extras), letters, len(extras))


def _read_note(line, number, notes):
    """Add a comment line to the notes if it gives a key; other comments are the reader's own, unless nearly a key."""
    notes["comment"] = text = line.strip("# \t")
    if text.startswith("ppmodel table") and text != VERSION:
        raise TableError("version", text, f"is not {VERSION!r}", "write the table again", where=number)
    key, sign, value = match.groups() if (match := _NOTE.fullmatch(line)) else ("", "", "")
    if key in _KEYS and sign == ":":
        if notes.setdefault(key, (number, value))[1] != value:
            rule = f"contradicts line {notes[key][0]}, which says {notes[key][1]}"
            raise TableError(key, value, rule, "delete one of the comments", where=number)
    elif meant := did_you_mean(re.sub(r"[\s_-]+", "_", key), _KEYS):
        rule = "is not a key of a table, and would be ignored"
        raise TableError("comment", key, rule, f"{meant} Write # key: value", where=number)


def _without_ranks(header, *rows):
    """The rows without their numbers, which must be in order, as must those of the slots in the header."""
    number, (_, *slots) = header
    if slots != [str(slot) for slot in range(len(slots))]:
        rule = "must number the slots 0, 1, 2, ..."
        raise TableError("header", ",".join(slots), rule, "fix or delete the first row", where=number)
    for rank, (number, (written, *cells)) in enumerate(rows):
        if any(cells[len(slots) :]):
            field, rule = f"row of rank {rank}", f"is longer than the header, which has {len(slots)} slots"
            raise TableError(field, f"{len(cells)} cells", rule, "lengthen the header", where=number)
        if written != str(rank):
            rule = f"must number the rows from 0 to {len(rows) - 1}, in order"
            raise TableError("rank", written, rule, "fix the first column", where=number)
    return [(number, cells) for number, (_, *cells) in rows]


def _read_cells(rows, letters, slotted):
    """Rows of cells, each cell's first and last slots rank by rank, and words that are not operations."""
    cells, slots, extras = [], [], []
    for number, row in rows:
        cells.append([])
        for slot, text in enumerate(row):
            field = f"slot {slot}" if slotted else f"column {slot + 1}"
            if text in _EMPTY:
                continue
            if text == CONTINUED:
                if not cells[-1] or slots[-1][1] != slot:
                    remedy = "put it right after an operation"
                    raise TableError(field, CONTINUED, "continues no operation", remedy, where=number)
                slots[-1][1] += 1
            elif transfer := pytorch.TRANSFER.fullmatch(text):
                extras.append((transfer, len(cells) - 1, len(cells[-1]), number, field))
            else:
                slots.append([slot, slot + 1])
                try:
                    cells[-1].append(pytorch.read_cell(text, letters))
                except TableError as error:
                    error.where, error.field = number, field
                    raise
    return cells, slots, extras


def _sizes(notes):
    """The sizes that the file's comments give."""
    sizes = {}
    for key in [key for key in _SIZES if key in notes]:
        number, value = notes[key]
        is_share, is_held = key == "stage_shares", key == "held_for_weight_grad"
        try:
            size = np.array(value.split(), float)
        except ValueError:
            size = np.full(1, -1.0)
        is_written = is_share or (size.size == 1 if is_held else re.fullmatch(r"[0-9]{1,9}", value))
        if not (size.size and 0 <= size.min() <= size.max() < np.inf and is_written and (is_held or size.min())):
            rule = "must be a number of at least 0" if is_held else "must be a positive number"
            raise TableError(key, value, rule, "fix the comment", where=number)
        name = "num_microbatches" if key == "microbatches" else key
        sizes[name] = size if is_share else float(value) if is_held else int(value)
    return sizes


def _check_slots(schedule, begin, end):
    """Refuse an operation that starts before the operations it needs have ended."""
    source, further = schedule.dependencies.source, schedule.dependencies.further
    takers = np.flatnonzero((source != NO_OPERATION) & schedule.computes)
    pairs, ended = np.stack((takers, source[takers])), end
    if further is not None:
        waits = further[0] >= len(end)  # barriers
        ended = np.append(end, np.zeros(max(0, further.max() + 1 - len(end)), dtype=end.dtype))
        np.maximum.at(ended, further[0, waits], end[further[1, waits]])
        pairs = np.append(pairs, further[:, ~waits], axis=1)
    taker, maker = pairs[:, begin[pairs[0]] < ended[pairs[1]]]
    for first in np.argsort(begin[taker], kind="stable")[:1]:
        index = taker[first]
        inputs = [maker[first]] if maker[first] < len(end) else direct(index, further, len(end))
        needed = next(needed for needed in inputs if begin[index] < end[needed])
        rule = f"starts in slot {begin[index]}, before {schedule.op(needed)} has ended (slot {end[needed] - 1})"
        remedy = "move the cell to the right, or delete the header row to keep only the order"
        field = f"rank {schedule.rank[index]}"
        raise TableError(field, schedule.op(index), rule, remedy, grid=schedule.marked([index, needed]))
