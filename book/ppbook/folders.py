"""Temporary folders, and folders that replace others, completely or not at all, without touching users' files.

Published folders have a mark, a list of their files with digests. Only a folder in which all files are on its own list
is ever replaced.
"""

import json
import os
import shutil
import signal
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock, Timeout

from ppmodel.errors import ReproduceError
from ppmodel.files import parse_json, read_text

MARK = ".ppmodel.json"
"""The file that lists what was published."""

LOCK = ".ppmodel.lock"
"""The file in a temporary folder that a run holds locked as long as it lives."""

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

    Raises
    ------
    ReproduceError
        Names the first file that is not ours.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ReproduceError("out", folder, "is a file or a link", "choose a new folder")
    if not folder.is_dir():
        return
    rule = None
    try:
        content = parse_json(read_text(folder / MARK, _LARGEST_MARK))
        listed = dict(content["files"]) if content["ppmodel"] == _PUBLISHED else None
    except (ValueError, KeyError, TypeError):
        listed = None
    if listed is None:  # whatever it is, it may be large
        if names := os.listdir(folder):
            rule = f"contains {min(names)} but no mark of an earlier run"
    else:
        for name, digest in _digests(folder).items():
            if listed.get(name) != digest:
                change = "was changed since it was written" if name in listed else "no earlier run wrote"
                rule = f"contains {name}, which {change}"
                break
    if rule:
        raise ReproduceError("out", folder, rule, "move it away, or choose a new folder")


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
        If the target cannot be written.
    """
    is_new = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        remove_leftovers(out)
        temporary = TemporaryDirectory(prefix=_PREFIX, dir=out, ignore_cleanup_errors=True)
    except OSError as error:
        rule = f"cannot be written ({error.strerror})"
        raise ReproduceError("out", out, rule, "choose a writable folder") from None
    ends = signal.SIGTERM, signal.SIGHUP  # as Ctrl-C: what is temporary is removed
    handlers = [signal.signal(number, signal.default_int_handler) for number in ends]
    try:
        with temporary as work, FileLock(Path(work, LOCK)):
            yield Path(work)
    finally:
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
            shutil.rmtree(lock.parent, ignore_errors=True)


def publish(new, target):
    """Replace a folder, so that no reader sees a mixture.

    Parameters
    ----------
    new : Path
        It takes the place of the target, whose contents are then beside it, in a folder that ends with ``.old``.
    target : Path
        On the same file system; see `require_ours`.
    """
    mark(new)
    require_ours(target)
    old = new.with_name(f"{new.name}.old")
    if target.exists():
        os.replace(target, old)
    try:
        os.replace(new, target)
    except BaseException:
        if old.exists():
            os.replace(old, target)
        raise
