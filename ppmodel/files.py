"""The only way in and out for files that a user names.

What is read is regular, of limited size and in UTF-8. What is written is complete or not there at all, replaces neither
what a command reads nor what comes with the package, and is added to streams.
"""

import csv
import gzip
import io
import json
import os
import re
import stat
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

_spared = ContextVar("device and inode of files that are not replaced", default=None)

LARGEST_BYTES = 2**20
"""Size limit of Python files; real ones have a few thousand bytes."""


def named(path, field="file", error=PPModelError):
    """The path of a file that a caller names.

    >>> named(3)
    Traceback (most recent call last):
    ppmodel.errors.PPModelError: file = 3: is not the name of a file; give its path
    """
    if not isinstance(path, str | os.PathLike):
        raise error(field, repr(path), "is not the name of a file", "give its path")
    try:
        if "\0" not in os.fsdecode(os.fsencode(path)):
            return Path(path)
    except UnicodeEncodeError:  # a lone surrogate
        pass
    raise error(field, path, "cannot be the name of a file", "leave out NUL and what is no character")


@contextmanager
def inputs_spared():
    """Within the context, no output replaces a file that was read there, or given to `spare`, under any name."""
    before = _spared.set(set(_spared.get() or ()))
    try:
        yield
    finally:
        _spared.reset(before)


def spare(path):
    """Let no output replace a file, if there is one at the path; see `inputs_spared`."""
    if _spared.get() is not None:
        with suppress(ValueError):
            _spared.get().add(identity(path))


def identity(path):
    """Identify a file under any name: by device and inode, or by where it would be made."""
    try:
        return os.stat(path)[1:3]
    except OSError:
        return os.path.realpath(path)


def read_text(path, most=LARGEST_BYTES, error=PPModelError):
    """Read a text file.

    Parameters
    ----------
    path : str or Path
        A regular file; devices, pipes and folders are refused unread. One whose name ends in ``.gz`` is unpacked.
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
        If it is not named by a path, missing, not a regular file, too large, unreadable or not UTF-8.

    Examples
    --------
    >>> read_text("nowhere.yaml")
    Traceback (most recent call last):
    ppmodel.errors.PPModelError: file = nowhere.yaml: cannot be read (No such file or directory); check the path
    """
    named(path, error=error)
    spare(path)
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise error("file", path, "is not a regular file", "name a text file")
        if status.st_size > most:
            rule = f"has {status.st_size} bytes; at most {most} are allowed"
            raise error("file", path, rule, "shorten it, or split it into several files")
        with gzip.open(path, "rb") if str(path).endswith(".gz") else open(path, "rb") as file:
            raw = file.read(most + 1)
        if len(raw) > most:
            raise error("file", path, f"has more than {most} bytes, which is the limit", "shorten it")
    except (OSError, EOFError, ValueError, zlib.error) as problem:
        if isinstance(problem, PPModelError):
            raise
        why = getattr(problem, "strerror", None) or problem
        raise error("file", path, f"cannot be read ({why})", "check the path") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = raw[: problem.start].count(b"\n") + 1
        shown, where = f"byte 0x{raw[problem.start]:02x}", f"{Path(path)}:{line}"
        raise error("text", shown, "is not UTF-8", "save the file as UTF-8", where=where) from None


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
        If it is not named by a path, its folder does not exist, it is neither a regular file nor a stream, it is
        write-protected, or it is not to be replaced: see `inputs_spared`, and files that come with the package.
    """
    given = named(path, field)
    path = Path(os.path.abspath(given))
    if _is_stream(path):
        return path
    rule, remedy = None, "name another file"
    try:
        status = os.stat(path)
    except FileNotFoundError:
        path = Path(os.path.realpath(path))
        if not os.path.isdir(path.parent):
            rule, remedy = f"is in {path.parent}, which is no folder", "create it, or name another file"
        elif path.is_relative_to(os.path.realpath(_PACKAGED)):
            rule = "is in a folder of the installed package"
    except OSError as error:
        rule = f"cannot be written ({error.strerror})"
    else:
        if not stat.S_ISREG(status.st_mode):
            rule = "exists but is not a file"
        elif identity(path) in (_spared.get() or ()) or _is_same(0, status):
            rule = "is what this command reads"
        elif path.is_relative_to("/proc") or path.is_relative_to("/dev/fd"):
            rule, remedy = "is a file that was redirected", "name the file itself"
        elif (path := Path(os.path.realpath(path))).is_relative_to(os.path.realpath(DATA)):
            rule = "comes with the package"
        elif not os.access(path, os.W_OK):
            rule = "is write-protected"
    if rule:
        raise PPModelError(field, given, rule, remedy)
    return path


def _is_stream(path):
    """Check if a path leads to a device or pipe of the process, or to the file that its output or errors go to."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    if stat.S_ISREG(status.st_mode):
        return _is_same(1, status) or _is_same(2, status)
    return path.is_relative_to("/dev") or path.is_relative_to("/proc")


def _is_same(number, status):
    try:
        return os.path.samestat(os.fstat(number), status)
    except OSError:
        return False


def write_whole(path, content, field):
    """Write a file; if anything fails, an existing file stays as it was.

    Parameters
    ----------
    path : str or Path
        Its folder must exist; an existing file is replaced, and keeps its mode.
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
    try:
        if _is_stream(path):
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
            status = os.stat(path)  # our own is written to through its own descriptor: nothing is written over
            ours = [number for number in (1, 2) if _is_same(number, status)]
            with open(os.dup(ours[0]) if ours else path, "ab") as file:
                file.write(content)
            return
    except OSError as error:
        raise PPModelError(field, path, f"cannot be written ({error.strerror})", "name another file") from None
    under_way = path.with_name(f".ppmodel-{token_hex(8)}.tmp")
    try:
        try:  # a file without a name until it is complete: if a signal ends the process, nothing is left
            number = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o666)
        except (AttributeError, OSError):  # a system, or a file system, without such files
            under_way.write_bytes(content)
            with suppress(FileNotFoundError):
                os.chmod(under_way, stat.S_IMODE(os.stat(path).st_mode))
        else:
            with open(number, "wb") as file:
                file.write(content)
                file.flush()
                with suppress(FileNotFoundError):
                    os.fchmod(number, stat.S_IMODE(os.stat(path).st_mode))
                os.link(f"/proc/self/fd/{number}", under_way, src_dir_fd=number, follow_symlinks=True)
        os.replace(under_way, path)
    except OSError as error:
        rule = f"cannot be written ({error.strerror})"
        raise PPModelError(field, path, rule, "free some space, or name another file") from None
    finally:
        with suppress(OSError):
            under_way.unlink()


_ESCAPED = re.compile(r"\\(\\|[nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")


def escaped(text):
    """Write a text on one line: a backslash, whatever is not printable, and spaces at its ends as in Python's strings.

    Names and titles are written to files in this form, so that they can neither end their line nor look like another
    one; `unescaped` reads them.

    >>> escaped("two\\nlines, \\x85"), escaped("plain text")
    ('two\\\\nlines,\\\\x20\\\\x85', 'plain text')
    """
    inner = range(len(text) - len(text.lstrip()), len(text.rstrip()))
    return "".join(
        char if char.isprintable() and char != "\\" and (char != " " or place in inner)
        else "\\x20" if char == " " else char.encode("unicode_escape").decode()
        for place, char in enumerate(text)
    )  # fmt: skip


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
