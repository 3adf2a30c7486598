"""A file is there whole, or not at all."""

import csv
import io
import os
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from ppmodel.errors import PPModelError


def checked_target(path, field):
    """The path of a file to write, refused where none can be.

    Parameters
    ----------
    path, field
        As in `write_whole`.

    Returns
    -------
    Path

    Raises
    ------
    PPModelError
        If its folder is not there, or it is no file.
    """
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise PPModelError(field, path, f"lies in {path.parent}, which is no folder", "make it, or name another file")
    if path.exists() and not path.is_file():
        raise PPModelError(field, path, "is there and is no file", "name another file")
    return path


def write_whole(path, text, field):
    """Write a text file; whatever goes wrong, what was there stays.

    Parameters
    ----------
    path : str or Path
        Its folder must exist; a file that is there is replaced.
    text : str
    field : str
        What error messages call the file.

    Raises
    ------
    PPModelError
        If it cannot be written.
    """
    path = checked_target(path, field)
    under_way = path.with_name(f".ppmodel-{token_hex(8)}.tmp")
    try:
        _write(under_way, text.encode())
        os.replace(under_way, path)
    except OSError as error:
        rule = f"cannot be written ({error.strerror})"
        raise PPModelError(field, path, rule, "make room, or name another file") from None
    finally:
        with suppress(OSError):
            under_way.unlink()


def write_rows(path, columns, rows, field, cell):
    """Write rows as CSV, whole or not at all.

    Parameters
    ----------
    path, field
        As in `write_whole`.
    columns : list of str
    rows : list of dict
        Of these columns, and perhaps of others.
    cell : callable
        What is written for a value.

    Raises
    ------
    PPModelError
        If it cannot be written.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell(row[column]) for column in columns] for row in rows)
    write_whole(path, out.getvalue(), field)


def _write(path, data):
    """Write a new file that has its name only when it is whole: nothing is left of one that a signal ends."""
    try:
        number = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o666)
    except OSError:  # a file system without files that have no name
        path.write_bytes(data)
        return
    with open(number, "wb") as file:
        file.write(data)
        file.flush()
        os.link(f"/proc/self/fd/{number}", path, src_dir_fd=number, follow_symlinks=True)
