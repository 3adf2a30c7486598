"""Where a book comes from: the commit, and the versions."""

import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

import pandas as pd

from ppbook import ROOT

_SOURCES = ("ppmodel", "notebooks", "book", "data", "pyproject.toml", "requirements.lock")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_PIN = re.compile(r"^([a-z0-9-]+)==([^\s;]+)", re.MULTILINE)


def commit_of(folder=ROOT):
    """The commit that a clone stands at, and whether the files that a book is built from differ from it.

    Parameters
    ----------
    folder : Path
        Top of the clone; the project's own by default.

    Returns
    -------
    commit : str
        In full, or ``no clone`` where the folder is none.
    state : str
        ``as committed``, ``files differ``, or empty where there is no clone.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     commit_of(folder)
    ('no clone', '')
    """
    top = git(folder, "rev-parse", "--show-toplevel")
    if not top or Path(top).resolve() != Path(folder).resolve():
        return "no clone", ""
    differs = git(folder, "status", "--porcelain", "--", *_SOURCES)
    return git(folder, "rev-parse", "HEAD") or "no commit", "files differ" if differs else "as committed"


def write_archive(path, folder=ROOT):
    """Pack the commit that a clone stands at, for those who have only the pages.

    Parameters
    ----------
    path : Path
        The archive, in a folder that exists.
    folder : Path
        Top of the clone; the project's own by default.

    Returns
    -------
    bool
        Whether there is one: not where the folder is no clone.
    """
    if commit_of(folder)[0] == "no clone":
        return False
    git(folder, "archive", "--format=tar.gz", "--prefix=ppmodel/", "--output", path, "HEAD")
    return path.is_file()


def git(folder, *arguments):
    """What git answers; nothing where it is not installed or refuses.

    Parameters
    ----------
    folder : Path
        A folder of the clone.
    *arguments : str
        The command and its options.

    Returns
    -------
    str
        Without the line's end.
    """
    try:
        git = subprocess.run(["git", "--no-optional-locks", "-C", folder, *arguments], capture_output=True, text=True)
    except OSError:
        return ""
    return git.stdout.strip() if git.returncode == 0 else ""


def version_table():
    """Python and every package that the project names, as pinned and as installed.

    Returns
    -------
    DataFrame
        One row a package; columns ``package, pinned, installed``. What is not pinned or not installed is empty there.

    Examples
    --------
    >>> version_table().package.tolist()[:2]
    ['python', 'ppmodel']
    """
    pins = dict(_PIN.findall((ROOT / "requirements.lock").read_text(encoding="utf-8")))
    names = {re.sub(r"[-_.]+", "-", _NAME.match(required)[0]).lower() for required in requires("ppmodel")}
    rows = [(name, pins.get(name), _installed(name)) for name in ("ppmodel", *sorted(names))]
    python = "python", metadata("ppmodel")["Requires-Python"], platform.python_version()
    return pd.DataFrame([python, *rows], columns=["package", "pinned", "installed"])


def _installed(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None
