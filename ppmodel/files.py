"""The one door for text files that a user names: regular, of bounded size, UTF-8; else one line about why not."""

import json
import os
import stat
from pathlib import Path

from ppmodel.errors import PPModelError

LARGEST_BYTES = 2**20
"""Largest file of Python: real ones have a few thousand bytes."""


def read_text(path, most=LARGEST_BYTES, error=PPModelError):
    """The text of a file.

    Parameters
    ----------
    path : str or Path
        A regular file; a device, a pipe or a folder is refused without reading from it.
    most : int
        Bytes that it may have at most.
    error : type of PPModelError
        What is raised.

    Returns
    -------
    str
        Without a byte-order mark.

    Raises
    ------
    PPModelError
        If there is no such file, or it is not regular, too large, not readable or not UTF-8.

    Examples
    --------
    >>> read_text("nowhere.yaml")
    Traceback (most recent call last):
    ppmodel.errors.PPModelError: file = nowhere.yaml: cannot be read (No such file or directory); check the path
    """
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise error("file", path, "is not a regular file", "name a file of text")
        if found.st_size > most:
            rule = f"has {found.st_size} bytes, and must have at most {most}"
            raise error("file", path, rule, "shorten it, or cut it into several files")
        with open(path, "rb") as file:
            raw = file.read(most + 1)
    except (OSError, ValueError) as problem:
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


def parse_json(text):
    """The value of a JSON text that somebody else may have written.

    Parameters
    ----------
    text : str or bytes

    Returns
    -------
    object

    Raises
    ------
    ValueError
        Also if it is nested deeper than Python can follow.

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
