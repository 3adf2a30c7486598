"""Where a book comes from."""

import subprocess
from pathlib import Path

from ppbook import ROOT

_SOURCES = ("ppmodel", "notebooks", "book", "data", "pyproject.toml", "requirements.lock")


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
