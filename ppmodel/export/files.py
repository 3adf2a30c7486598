"""Write files completely or not at all."""

import csv
import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from ppmodel.errors import PPModelError
from ppmodel.files import named


def checked_target(path, field):
    """Check the path of a file to be written.

    Parameters
    ----------
    path, field
        As in `write_whole`.

    Returns
    -------
    Path
        With links followed; a stream of a process, such as ``/dev/stdout``, as it is given.

    Raises
    ------
    PPModelError
        If it is not named by a path, its folder does not exist, or it is neither a regular file nor a stream.
    """
    stream = Path(os.path.abspath(named(path, field)))
    if _is_stream(stream) and stream.exists():
        if stream.is_file() and not any(_is_output(stream, number) for number in (1, 2)):
            raise PPModelError(field, stream, "is a file that was redirected", "name the file itself")
        return stream
    path = Path(os.path.realpath(stream))
    if not path.parent.is_dir():
        raise PPModelError(field, path, f"is in {path.parent}, which is no folder", "create it, or name another file")
    if path.exists() and not path.is_file():
        raise PPModelError(field, path, "exists but is not a file", "name another file")
    return path


def _is_stream(path):
    """Whether a path names a device or an open stream of a process."""
    return path.is_relative_to("/dev") or path.is_relative_to("/proc")


def _is_output(path, number):
    """Whether a path leads to the file that standard output (1) or standard error (2) goes to."""
    try:
        return os.path.samestat(path.stat(), os.fstat(number))
    except OSError:
        return False


def write_whole(path, text, field):
    """Write a text file; if anything fails, an existing file stays as it was.

    Parameters
    ----------
    path : str or Path
        Its folder must exist; an existing file is replaced.
    text : str
    field : str
        Name of the file in error messages.

    Raises
    ------
    PPModelError
        If it cannot be written.
    """
    path = checked_target(path, field)
    if _is_stream(path):  # what a shell has redirected is added to, not replaced
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
            with open(path, "a", encoding="utf-8", newline="") as file:
                file.write(text)
        except OSError as error:
            rule = f"cannot be written ({error.strerror})"
            raise PPModelError(field, path, rule, "name another file") from None
        return
    under_way = path.with_name(f".ppmodel-{token_hex(8)}.tmp")
    try:
        try:  # a file without a name until it is complete: if a signal ends the process, nothing is left
            number = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o666)
        except (AttributeError, OSError):  # a system, or a file system, without such files
            under_way.write_text(text, encoding="utf-8", newline="")
        else:
            with open(number, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.link(f"/proc/self/fd/{number}", under_way, src_dir_fd=number, follow_symlinks=True)
        os.replace(under_way, path)
    except OSError as error:
        rule = f"cannot be written ({error.strerror})"
        raise PPModelError(field, path, rule, "free some space, or name another file") from None
    finally:
        with suppress(OSError):
            under_way.unlink()


def write_rows(path, columns, rows, field, cell):
    """Write rows as CSV, completely or not at all.

    Parameters
    ----------
    path, field
        As in `write_whole`.
    columns : list of str
    rows : list of dict
        With these columns and possibly others.
    cell : callable
        Formats a value.

    Raises
    ------
    PPModelError
        If it cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell(row[column]) for column in columns] for row in rows)
    write_whole(path, text.getvalue(), field)
