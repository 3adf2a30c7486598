"""Generators in users' files, which run in this process as any other code of the user's.

Entries carry the text of their file: other processes and machines run that text, and an edited file is another one.
"""

import copyreg
import os
import runpy
import sys
from contextlib import contextmanager
from functools import lru_cache, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from traceback import extract_tb

from ppmodel.errors import PPModelError, ScheduleError, TableError, cause
from ppmodel.files import read_text
from ppmodel.schedules import registry

_lock = RLock()


def register_file(path):
    """Run a Python file that registers its own schedules.

    Parameters
    ----------
    path : str or Path
        A file that decorates each of its generators with `schedule`; ``data/templates/my_schedule.py`` is a template.
        While it is run, modules beside it can be imported.

    Returns
    -------
    list of Entry
        What it registers, from now on also known by name to `build`, `names` and `get`.

    Raises
    ------
    PPModelError
        If there is no such file, it fails or registers nothing; the registry is then unchanged.

    Examples
    --------
    >>> register_file("nowhere.py")
    Traceback (most recent call last):
    ppmodel.errors.ScheduleError: file = nowhere.py: is not a file; check the path
    """
    registry.require(os.path.isfile(path), "file", path, "is not a file", "check the path")
    entries = _loaded(str(path), read_text(path, error=ScheduleError))
    registry.add(entries)
    return entries


@lru_cache
def _loaded(path, code):
    """Return what a file registers; if it is not there, as on another machine, or has changed, run its text."""
    folder = os.path.dirname(os.path.abspath(path))
    with _lock, TemporaryDirectory() as other:  # runpy is not made for several threads
        file = path
        if not os.path.isfile(path) or read_text(path) != code:
            file = os.path.join(other, os.path.basename(path))
            Path(file).write_bytes(code.encode())
        sys.path.append(folder)  # last, so that nothing in it takes the place of a library
        before = registry.collected.set(entries := [])
        try:
            with _failures_refused(file, "file", path, "cannot be run", "fix it"):
                runpy.run_path(file)
        finally:
            registry.collected.reset(before)
            sys.path.remove(folder)
    registry.require(entries, "file", path, "registers no schedule", "write @schedule(...) above its generator")
    return [entry._replace(file=path, code=code, **_checked(entry, file)) for entry in entries]


def _entry(name, path, code):
    """An entry as another process has it."""
    return registry.get(name) if path is None else next(one for one in _loaded(path, code) if one.name == name)


copyreg.pickle(registry.Entry, lambda entry: (_entry, (entry.name, entry.file, entry.code)))


def _checked(entry, file):
    """The functions of an entry, made to tell in which line of their file they fail, and to check their tables."""

    def checked(function, field):
        @wraps(function)
        def call(num_ranks, num_microbatches, **options):
            size, where = f"at S = {num_ranks}, B = {num_microbatches}", registry.place_of(function) or file
            try:
                with _failures_refused(file, field, entry.name, f"fails {size}", "fix the line"):
                    made = function(num_ranks, num_microbatches, **options)
                    if field == "generator":
                        registry.require_made(entry.name, made, num_ranks, num_microbatches, where)
                        made.validate()
            except TableError as error:
                error.where = error.where or _line(error, file) or where
                error.why = f"{error.why}; {size}" if error.why else size
                raise
            return made

        return call

    fields = {"generate": "generator", "bubble_ratio": "closed form", "published": "closed form"}
    functions = {name: getattr(entry, name) for name in fields}
    return {name: function and checked(function, fields[name]) for name, function in functions.items()}


@contextmanager
def _failures_refused(file, field, value, fails, remedy):
    """Turn whatever a user's code raises within the context into a refusal with the line of its file."""
    try:
        yield
    except PPModelError:
        raise
    except (Exception, SystemExit) as error:
        where = _line(error, file) or file
        raise ScheduleError(field, value, f"{fails} ({cause(error)})", remedy, where=where) from None


def _line(error, file):
    """The last line of a file that an error passed through."""
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == file]
    lines += [error.lineno] if isinstance(error, SyntaxError) and error.lineno else []
    return f"{file}:{lines[-1]}" if lines else None
