"""The only way in for text files that a user names: regular, of limited size, in UTF-8; anything else is refused."""

import gzip
import json
import os
import re
import stat
import zlib
from pathlib import Path

from ppmodel.errors import PPModelError

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
