"""The only way in and out for files that a user names.

What is read is UTF-8 of limited size. What is written is complete or not there at all, and takes the place of nothing
that the same command reads.
"""

import csv
import gzip
import io
import json
import os
import re
import shutil
import sys
import zlib
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from secrets import token_hex

from ppmodel.errors import PPModelError

_PACKAGED = Path(__file__).parent / "data"
DATA = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[1] / "data"
"""The folder of the specifications that come with the package."""

LARGEST_BYTES = 2**28
_STREAMS = {"/dev/stdout": 1, "/dev/fd/1": 1, "/dev/stderr": 2, "/dev/fd/2": 2}
_inputs = ContextVar("the real paths of files that are not replaced", default=None)


def as_path(path, field="file", error=PPModelError):
    """The path of a file that a caller names.

    >>> as_path(3)
    Traceback (most recent call last):
    ppmodel.errors.PPModelError: file = 3: is not the name of a file; give its path
    """
    if not isinstance(path, str | os.PathLike):
        raise error(field, repr(path), "is not the name of a file", "give its path")
    with suppress(UnicodeEncodeError):  # a lone surrogate
        if b"\0" not in os.fsencode(path):
            return Path(path)
    raise error(field, path, "cannot be the name of a file", "leave out NUL and what is no character")


@contextmanager
def protect_inputs():
    """Within the context, no output replaces a file that was read there, or given to `protect`."""
    before = _inputs.set(set(_inputs.get() or ()))
    try:
        yield
    finally:
        _inputs.reset(before)


def protect(path):
    """Let no output replace the file at a path; see `protect_inputs`."""
    if _inputs.get() is not None:
        with suppress(ValueError):
            _inputs.get().add(os.path.realpath(path))


def read_text(path, most=LARGEST_BYTES, error=PPModelError):
    """Read a text file.

    Parameters
    ----------
    path : str or Path
        One whose name ends in ``.gz`` is unpacked.
    most : int
        Size limit in bytes.
    error : type of PPModelError
        The exception to raise.

    Returns
    -------
    str
        Without a byte-order mark.

    Raises
    ------
    PPModelError
        If it is not named by a path, missing, too large, unreadable or not UTF-8.

    Examples
    --------
    >>> read_text("nowhere.yaml")
    Traceback (most recent call last):
    ppmodel.errors.PPModelError: file = nowhere.yaml: cannot be read (No such file or directory); check the path
    """
    as_path(path, error=error)
    protect(path)
    try:
        with gzip.open(path, "rb") if str(path).endswith(".gz") else open(path, "rb") as file:
            raw = file.read(most + 1)
    except (OSError, EOFError, ValueError, zlib.error) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise error("file", path, f"cannot be read ({why})", "check the path") from None
    if len(raw) > most:
        rule = f"has more than {most} bytes, which is the limit"
        raise error("file", path, rule, "shorten it, or split it into several files")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = raw[: problem.start].count(b"\n") + 1
        shown, where = f"byte 0x{raw[problem.start]:02x}", f"{Path(path)}:{line}"
        raise error("text", shown, "is not UTF-8", "save the file as UTF-8", where=where) from None


def checked_target(path, field):
    """Check the path of a file to be written, as far as that is possible before its content is there.

    Parameters
    ----------
    path, field
        As in `write_whole`.

    Returns
    -------
    Path
        With links followed; a device or pipe, such as ``/dev/stdout``, as it is given.

    Raises
    ------
    PPModelError
        If it is not named by a path, its folder does not exist, or it is a folder, write-protected or an input of the
        same command, see `protect_inputs`.
    """
    given = as_path(path, field)
    path = Path(os.path.realpath(given))
    if _is_stream(given):
        return given
    missing, remedy = f"is in {path.parent}, which is no folder", "name another file"
    PPModelError.require([
        (field, given, str(path) not in (_inputs.get() or ()), "is what this command reads", remedy),
        (field, given, not os.path.isdir(path), "exists but is not a file", remedy),
        (field, given, os.path.isdir(path.parent), missing, f"create it, or {remedy}"),
        (field, given, os.access(path, os.W_OK) or not os.path.exists(path), "is write-protected", remedy),
    ])  # fmt: skip
    return path


def _is_stream(path):
    """Check if a path is that of a device, a pipe or a stream, which has no content to replace."""
    is_other = os.path.exists(path) and not os.path.isdir(path) and not os.path.isfile(path)
    return os.fspath(path) in _STREAMS or is_other


def write_whole(path, content, field):
    """Write a file; if anything fails, an existing file stays as it was.

    Parameters
    ----------
    path : str or Path
        Its folder must exist; an existing file is replaced, and keeps its mode. What is written to a device, a pipe or
        a stream is added.
    content : str or bytes
    field : str
        Name of the file in error messages.

    Raises
    ------
    PPModelError
        If it cannot be written.
    """
    path = checked_target(path, field)
    content = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    temporary = path.with_name(f".ppmodel-{token_hex(8)}.tmp")
    try:
        if _is_stream(path):
            sys.stdout.flush()
            number = _STREAMS.get(os.fspath(path))  # its own descriptor, so that nothing is written over
            with open(path if number is None else os.dup(number), "ab") as file:
                file.write(content)
            return
        temporary.write_bytes(content)
        if path.exists():
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except OSError as error:
        rule = f"cannot be written ({error.strerror})"
        raise PPModelError(field, path, rule, "free some space, or name another file") from None
    finally:
        temporary.unlink(missing_ok=True)


_ESCAPED = re.compile(r"\\(\\|[nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")


def escaped(text):
    """Write a text on one line: a backslash, whatever is not printable, and spaces at its ends as Python's strings do.

    Names and titles are written to files in this form, so that they can neither end their line nor look like another
    one; `unescaped` reads them.

    >>> escaped("two\\nlines, \\x85"), escaped("plain text")
    ('two\\\\nlines, \\\\x85', 'plain text')
    """
    line = "".join(c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in text)
    return re.sub("^ +| +$", lambda spaces: r"\x20" * len(spaces[0]), line)


def unescaped(text):
    """Read what `escaped` has written; a backslash that begins none of its sequences stands for itself.

    >>> unescaped(r"two\\nlines"), unescaped(r"C:\\Users")
    ('two\\nlines', 'C:\\\\Users')
    """
    return _ESCAPED.sub(lambda match: match[0].encode().decode("unicode_escape"), text)


def csv_lines(path, most):
    """Read the lines of a CSV file that are not empty, one by one, the header first.

    Parameters
    ----------
    path, most
        As in `read_text`.

    Yields
    ------
    values : list of str
    where : str
        File and line.

    Raises
    ------
    PPModelError
        As in `read_text`, or if a line is not CSV.

    Examples
    --------
    >>> list(csv_lines("nowhere.csv", 2**20))
    Traceback (most recent call last):
    ppmodel.errors.PPModelError: file = nowhere.csv: cannot be read (No such file or directory); check the path
    """
    lines = csv.reader(io.StringIO(read_text(path, most), newline=""), strict=True)
    try:
        for values in filter(None, lines):
            yield values, f"{path}:{lines.line_num}"
    except csv.Error as error:
        rule, where = f"is not CSV ({error})", f"{path}:{max(1, lines.line_num)}"
        raise PPModelError("text", "a row", rule, "put its texts in quotes", where=where) from None


def data_rows(name):
    """The rows of a table that comes with the package, each by the names of its columns."""
    lines = csv_lines(DATA / name, LARGEST_BYTES)
    columns, _ = next(lines)
    return [dict(zip(columns, values, strict=True)) for values, _ in lines]


def parse_json(text):
    """Parse JSON from an untrusted source.

    Parameters
    ----------
    text : str or bytes

    Returns
    -------
    object

    Raises
    ------
    ValueError
        Also if it is nested too deeply for Python.

    Examples
    --------
    >>> parse_json("[1]")
    [1]
    >>> parse_json("[" * 10**5)
    Traceback (most recent call last):
    ValueError: nested too deeply
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
