"""Temporary folders, and folders that replace others, completely or not at all, without touching users' files.

Published folders have a mark, a list of their files with digests. Only a folder in which all files are on its own list
is ever replaced.
"""

import ctypes
import json
import os
import shutil
import signal
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp

from filelock import FileLock, Timeout

from ppbook.errors import ReproduceError
from ppmodel.errors import cause
from ppmodel.files import parse_json, read_text

MARK = ".ppmodel.json"
"""The file that lists what was published."""

LOCK = ".ppmodel.lock"
"""The file in a temporary folder that a run holds locked as long as it lives."""

_AT_WORKING_FOLDER, _EXCHANGE = -100, 2  # of renameat2
_PREFIX = ".ppmodel-"
_LARGEST_MARK = 2**26
_PUBLISHED = "what ppmodel wrote here; a folder with anything else in it is not replaced"


def mark(folder):
    """List the files of a folder in its mark, so that a later run may replace them.

    Parameters
    ----------
    folder : Path
        Ready to be published.
    """
    text = json.dumps({"ppmodel": _PUBLISHED, "files": _digests(folder)}, indent=0, sort_keys=True)
    (folder / MARK).write_text(text + "\n", encoding="utf-8")


def require_ours(folder):
    """Refuse to replace a folder unless it is empty or has only files listed in its mark, unchanged.

    Parameters
    ----------
    folder : Path
        It may be missing.

    Returns
    -------
    dict of str to str, or None
        The digests of its files; None for a folder that is missing or empty.

    Raises
    ------
    ReproduceError
        Names the first file that is not ours.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ReproduceError("out", folder, "is a file or a link", "choose a new folder")
    listed, rule = _listed(folder), None
    if listed is None:  # whatever it is, it may be large
        if names := folder.is_dir() and os.listdir(folder):
            rule = f"contains {min(names)} but no mark of an earlier run"
    else:
        for name, digest in _digests(folder).items():
            if listed.get(name) != digest:
                change = "was changed since it was written" if name in listed else "no earlier run wrote"
                rule = f"contains {name}, which {change}"
                break
    if rule:
        raise ReproduceError("out", folder, rule, "move it away, or choose a new folder")
    return listed


def _listed(folder):
    """The files in a folder's mark, with digests; None if it has no mark of ours."""
    try:
        content = parse_json(read_text(folder / MARK, _LARGEST_MARK))
        return dict(content["files"]) if content["ppmodel"] == _PUBLISHED else None
    except (ValueError, KeyError, TypeError):
        return None


def _digests(folder):
    """Files, links and empty folders below a folder, except its mark, each with the digest of what is in it."""
    digests = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            digests[name] = "link"
        elif path.is_file() and name != MARK:
            try:
                digests[name] = sha256(path.read_bytes()).hexdigest()
            except OSError:
                digests[name] = "unreadable"
        elif name != MARK and not (path.is_dir() and any(path.iterdir())):
            digests[name] = "folder"
    return digests


@contextmanager
def workspace(out):
    """Make a temporary folder in a target, removed at the end whatever happens.

    Parameters
    ----------
    out : Path
        Created if missing; in that case, removed again if nothing was put into it.

    Yields
    ------
    Path

    Raises
    ------
    ReproduceError
        If the target, or what is put into it, cannot be written.
    """
    is_new = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        remove_leftovers(out)
        work = Path(mkdtemp(prefix=_PREFIX, dir=out))
    except OSError as error:
        rule = f"cannot be written ({error.strerror})"
        raise ReproduceError("out", out, rule, "choose a writable folder") from None
    ends = signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT  # as Ctrl-C: what is temporary is removed
    handlers = [signal.signal(number, signal.default_int_handler) for number in ends]
    try:
        with FileLock(work / LOCK):
            yield work
    except OSError as error:
        if error.filename is not None or isinstance(error, BrokenPipeError):
            raise
        rule = f"cannot be written ({error.strerror or cause(error)})"
        raise ReproduceError("out", out, rule, "free some space, or choose another folder") from None
    finally:
        _remove(work)
        for number, handler in zip(ends, handlers, strict=True):
            signal.signal(number, handler)
        if is_new:
            with suppress(OSError):  # not empty, as it should be
                out.rmdir()


def remove_leftovers(out):
    """Remove the temporary folders of runs that were killed: nobody holds their locks.

    Parameters
    ----------
    out : Path
        The folder in which they worked.
    """
    for lock in out.glob(f"{_PREFIX}*/{LOCK}"):
        with suppress(Timeout), FileLock(lock, timeout=0):
            _remove(lock.parent)


def _remove(folder):
    """Remove a temporary folder, its lock last: what is left when this is ended, or others still write, has one."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)  # a link to a folder is not followed, and goes at the end
    with suppress(OSError):
        if not any(path.is_dir() and not path.is_symlink() for path in folder.iterdir()):
            shutil.rmtree(folder)


def publish(new, target, before):
    """Put a folder in the place of another, so that no reader sees a mixture and no other run's result is lost.

    Parameters
    ----------
    new : Path
        It takes the place of the target, whose contents are then here.
    target : Path
        On the same file system.
    before : dict or None
        What `require_ours` returned for the target when the run began.

    Raises
    ------
    ReproduceError
        If the target is not ours, or another run has written it since.
    """
    mark(new)
    require_ours(target)
    exists = target.exists()
    _exchange(new, target) if exists else os.rename(new, target)
    if exists and _listed(new) != before:
        _exchange(new, target)
        rule = "was written by another run in the meantime"
        raise ReproduceError("out", target, rule, "run it again, or choose a new folder")


def _exchange(first, second):
    """Exchange the names of two folders; in one step where the system can."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    paths = [(_AT_WORKING_FOLDER, os.fsencode(path)) for path in (first, second)]
    if rename is None or rename(*paths[0], *paths[1], _EXCHANGE) != 0:
        spare = first.with_name(f"{first.name}.old")
        for source, target in ((second, spare), (first, second), (spare, first)):
            os.rename(source, target)


def copy_sources(source, target, left_out=()):
    """Copy a folder of sources, which may be read-only, to one that can be written.

    Parameters
    ----------
    source, target : Path
        The target may be there.
    left_out : sequence of str
        Names that are not copied.
    """
    ignore = shutil.ignore_patterns(*left_out)
    shutil.copytree(source, target, ignore=ignore, copy_function=shutil.copyfile, dirs_exist_ok=True)
    for folder in (target, *target.rglob("*/")):
        folder.chmod(0o755)


def rewrite(html, change):
    """Change all pages of a built book.

    Parameters
    ----------
    html : Path
        The pages, with `index.html`.
    change : callable
        Takes the text of a page and the way from there to `html`, such as ``../``; returns the text to write.
    """
    for page in sorted(html.rglob("*.html")):
        if "_static" not in page.parts:
            up = "../" * len(page.relative_to(html).parts[:-1])
            page.write_text(change(page.read_text(encoding="utf-8"), up), encoding="utf-8")
