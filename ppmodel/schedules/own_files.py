"""Generators in users' files, which run in this process as any other code of the user's.

Entries carry the text of their file and of the modules beside it that it imports: other processes and machines run
these texts, and an edited file is another one.
"""

import ast
import copyreg
import os
import runpy
import sys
from contextlib import contextmanager, redirect_stdout, suppress
from functools import lru_cache, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from traceback import extract_tb

from ppmodel.errors import GeneratorError, PPModelError, ScheduleError, TableError, cause
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
    entries = _loaded(str(path), texts_of(path))
    registry.add(entries)
    return entries


def texts_of(path):
    """Text of a generator's file, and of all modules beside it that it imports: names in its folder, and texts."""
    folder, texts, waiting = Path(path).parent, {}, [Path(path).name]
    while waiting:
        name = waiting.pop()
        texts[name] = read_text(folder / name, error=ScheduleError)
        with suppress(SyntaxError):  # named when it is run
            nodes = list(ast.walk(ast.parse(texts[name])))
            modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
            modules |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
            beside = {module.replace(".", os.sep) + ".py" for module in modules} - texts.keys()
            waiting += sorted(name for name in beside if (folder / name).is_file())
    return tuple(texts.items())


@lru_cache
def _loaded(path, texts):
    """Return what a file registers; if it is not there, as on another machine, or has changed, run its texts."""
    with _lock, TemporaryDirectory() as other:  # runpy is not made for several threads
        file = path
        if not os.path.isfile(path) or texts_of(path) != texts:
            for name, text in texts:
                Path(other, name).parent.mkdir(exist_ok=True, parents=True)
                Path(other, name).write_bytes(text.encode())
            file = os.path.join(other, os.path.basename(path))
        before = registry.collected.set(entries := [])
        try:
            with _as_users_code(file, texts, "file", path, "cannot be run", "fix it"):
                runpy.run_path(file)
        finally:
            registry.collected.reset(before)
    registry.require(entries, "file", path, "registers no schedule", "write @schedule(...) above its generator")
    return [entry._replace(file=path, texts=texts, **_checked(entry, file, texts)) for entry in entries]


@contextmanager
def _as_users_code(file, texts, field, value, fails, remedy):
    """Let a user's code import what lies beside its file, and print on standard error, away from a command's output.

    Whatever it raises becomes a refusal with the line of its file.
    """
    before, known = (sys.path, sys.dont_write_bytecode), set(sys.modules)
    sys.path = [*sys.path, os.path.dirname(os.path.abspath(file))]  # last, to take the place of no library
    sys.dont_write_bytecode = True  # which an edit in the same second leaves stale
    try:
        with redirect_stdout(sys.stderr):
            yield
    except PPModelError:
        raise
    except (Exception, SystemExit) as error:
        where = _line(error, file) or file
        raise GeneratorError(field, value, f"{fails} ({cause(error)})", remedy, where=where) from None
    finally:
        sys.path, sys.dont_write_bytecode = before
        for module in {name.removesuffix(".py").replace(os.sep, ".") for name, _ in texts} - known:
            sys.modules.pop(module, None)  # another file may have a module of this name beside it


def _entry(name, path, texts):
    """An entry as another process has it."""
    return registry.get(name) if path is None else next(one for one in _loaded(path, texts) if one.name == name)


copyreg.pickle(registry.Entry, lambda entry: (_entry, (entry.name, entry.file, entry.texts)))


def _checked(entry, file, texts):
    """The functions of an entry, made to tell in which line of their file they fail, and to check their tables."""

    def checked(function, field):
        @wraps(function)
        def call(num_ranks, num_microbatches, **options):
            size, where = f"at S = {num_ranks}, B = {num_microbatches}", registry.place_of(function) or file
            try:
                with _as_users_code(file, texts, field, entry.name, f"fails {size}", "fix the line"):
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
    return {name: checked(getattr(entry, name), field) for name, field in fields.items() if getattr(entry, name)}


def _line(error, file):
    """The last line of a file, or of a module beside it, that an error passed through."""
    folder = os.path.dirname(file)
    places = [(frame.filename, frame.lineno) for frame in extract_tb(error.__traceback__)]
    places += [(error.filename, error.lineno)] if isinstance(error, SyntaxError) and error.lineno else []
    for name, line in reversed(places):
        if os.path.dirname(os.path.abspath(name)) == os.path.abspath(folder):
            return f"{os.path.join(folder, os.path.basename(name))}:{line}"
    return None
