"""Temporary folders, and folders that replace others, completely or not at all, without touching users' files.

Published folders have a mark, a list of their files with digests. Only a folder in which all files are on its own list
is ever replaced.
"""

import ctypes
import json
import os
import shutil
import signal
import socket
import tempfile
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from ppmodel.errors import ReproduceError
from ppmodel.files import parse_json, read_text

MARK = ".ppmodel.json"
"""The file that lists what was published."""

_WORKSPACE = ".ppmodel-"
_WORKING = "a folder that ppmodel works in; it is removed at the end\n"
_LARGEST_MARK = 2**26
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_PUBLISHED = "what ppmodel wrote here; a folder with anything else in it is not replaced"


# ---- marks ---------------------------------------------------------------------------------------


def mark(folder):
    """List the files of a folder in its mark, so that a later run may replace them.

    Parameters
    ----------
    folder : Path
        Ready to be published.
    """
    files = {name: _digest(folder / name) for name in _files(folder)}
    text = json.dumps({"ppmodel": _PUBLISHED, "files": files}, indent=0, sort_keys=True)
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
    listed = _listed(folder)
    if listed is None:  # whatever it is, it may be large
        if folder.is_dir() and (names := os.listdir(folder)):
            raise _foreign(folder, f"contains {min(names)} but no mark of an earlier run")
        return
    for name in _files(folder):
        if name not in listed:
            raise _foreign(folder, f"contains {name}, which no earlier run wrote")
        if _digest(folder / name) != listed[name]:
            raise _foreign(folder, f"contains {name}, which was changed since it was written")


def _foreign(folder, rule):
    return ReproduceError("out", folder, rule, "move it away, or choose a new folder")


def _listed(folder):
    """What a folder's mark lists; None if there is no valid mark."""
    try:
        read = parse_json(read_text(folder / MARK, _LARGEST_MARK))
        return read["files"] if read["ppmodel"] == _PUBLISHED and isinstance(read["files"], dict) else None
    except (ValueError, KeyError, TypeError):
        return None


def _files(folder):
    """Files, links and empty folders below a folder, except the mark."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir() or _is_empty(path))
    return [name for path in found if (name := path.relative_to(folder).as_posix()) != MARK]


def _is_empty(folder):
    return next(folder.iterdir(), None) is None


def _digest(path):
    if path.is_symlink() or not path.is_file():
        return "link" if path.is_symlink() else "folder"
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "unreadable"


# ---- work ----------------------------------------------------------------------------------------


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
    new = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f"{_WORKSPACE}{_machine()}-{os.getpid()}-", dir=out))
        (work / MARK).write_text(_WORKING, encoding="utf-8")
    except OSError as error:
        rule = f"cannot be written ({error.strerror})"
        raise ReproduceError("out", out, rule, "choose a writable folder") from None
    remove_leftovers(out)
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield work
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        shutil.rmtree(work, ignore_errors=True)
        if new:
            with suppress(OSError):  # not empty, as it should be
                out.rmdir()


def remove_leftovers(out):
    """Remove the temporary folders left by runs on this machine that were killed.

    Parameters
    ----------
    out : Path
        The folder in which they worked.
    """
    for folder in out.glob(f"{_WORKSPACE}{_machine()}-*"):
        owner = folder.name.removeprefix(f"{_WORKSPACE}{_machine()}-").split("-")[0]
        if owner.isdecimal() and not Path("/proc", owner).exists() and _is_workspace(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_workspace(folder):
    with suppress(ReproduceError):
        return read_text(folder / MARK, error=ReproduceError) == _WORKING
    return False


def _machine():
    """An identifier that distinguishes this machine or container from others that use the same folder."""
    with suppress(OSError):
        return sha256(f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:8]
    return sha256(socket.gethostname().encode()).hexdigest()[:8]


# ---- one step ------------------------------------------------------------------------------------


def libc(function, *arguments):
    """Call a function of the C library; -1 if it does not exist."""
    found = getattr(ctypes.CDLL(None), function, None)
    return found(*arguments) if found else -1


def publish(new, target):
    """Replace a folder in one step, so that no reader sees a mixture.

    Parameters
    ----------
    new : Path
        Marked; afterwards, it has the previous contents of the target.
    target : Path
        On the same file system; see `require_ours`.
    """
    mark(new)
    require_ours(target)
    if not target.exists():
        new.rename(target)
        return
    if libc("renameat2", _AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE) == 0:
        return
    old = new.with_name("old")  # a file system that cannot exchange: two steps, with no folder between them
    target.rename(old)
    new.rename(target)
