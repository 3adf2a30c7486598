"""Loops that run compiled where that pays, and in plain Python otherwise, with the same results to the last bit.

Numba is loaded, and a loop compiled, only once the work asks for it. Loading takes a third of a second. Compiling takes
a second or more for each loop, once on a machine; so where no folder holds the compiled loop yet, plain Python goes on
until it has worked for about as long as the compiler would.
"""

import os
import sys
import warnings
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path
from threading import Lock
from types import FunctionType

import numpy as np

from ppmodel.errors import PPModelError

LARGE = 2**18
"""From about this many operations on, a compiled loop is faster than a plain one even if Numba must be loaded first."""

MANY = 2 * LARGE
"""Once small pieces of work add up to this many operations, more will follow, and Numba is loaded.

A small run takes about three pieces (dependencies, times, slots), so a single one of less than 2^17 operations never
gets there.
"""

VECTORISED = 32
"""NumPy handles about so many operations in the time of one that plain Python handles."""

_plain_work = 0
_forced = None
_lock = Lock()


@contextmanager
def using(compiled):
    """Run all loops compiled (True), or all in plain Python (False), whatever their size; None is the usual choice.

    Examples
    --------
    >>> from ppmodel import build
    >>> with using(False):
    ...     print(build("gpipe", 2, 2).slots()[1].max())
    9
    """
    global _forced
    before, _forced = _forced, compiled
    try:
        yield
    finally:
        _forced = before


def prepare(size):
    """Tell that many small pieces of work follow, of so many operations together, times the passes over them.

    Examples
    --------
    >>> prepare(10)
    """
    global _plain_work
    _plain_work += MANY if size >= LARGE else 0


class Loop:
    """A loop that exists once, as plain Python, and is compiled where that pays.

    Parameters
    ----------
    plain : callable
        The loop, in the Python that Numba compiles. Where it also runs as it is, see `run`, it indexes one dimension at
        a time, and `filled` and `grid` make its arrays.
    fills : tuple of str
        The parameters that it fills.
    price : int
        The operations that plain Python handles in the time of the compilation.
    """

    def __init__(self, plain, fills=(), price=LARGE):
        names = plain.__code__.co_varnames[: plain.__code__.co_argcount]
        self.plain, self.price, self.work = plain, price, 0
        self.filled = [name in fills for name in names]
        self.__name__, self.__doc__, self.__module__ = plain.__name__, plain.__doc__, plain.__module__

    def compiled(self, size):
        """Return the compiled loop if it is worth its loading, or its compilation, else None.

        Parameters
        ----------
        size : int
            Number of operations, times the number of passes over them, that plain code would have to handle.

        Returns
        -------
        callable or None
        """
        global _plain_work
        if _forced is False:
            return None
        if _forced or "dispatcher" in self.__dict__:
            return self.dispatcher
        self.work += size
        _plain_work += size
        if size < LARGE and _plain_work < MANY and "numba" not in sys.modules:
            return None
        return self.dispatcher if self.work >= self.price or self.is_kept else None

    def run(self, size, *arguments):
        """Run the loop, compiled or as it is: then inputs become lists, and what it fills is written in place."""
        compiled = self.compiled(size)
        if compiled:
            return compiled(*arguments)
        return self.plain(*map(_plain, arguments, self.filled))

    @cached_property
    def is_kept(self):
        """True if the folder of compiled loops holds this one."""
        code = self.plain.__code__
        name = f"{Path(code.co_filename).stem}.{self.__name__}-{code.co_firstlineno}.*.nbi"
        return bool(_folder() and any(_folder().glob(f"*/{name}")))

    @cached_property
    def dispatcher(self):
        """The compiled loop, kept on disk and run without the interpreter's lock."""
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", "Environment variable")  # one of Numba's variables is not a number
                from numba import njit
        except Exception as problem:  # anything a broken installation or variable may cause
            rule, remedy = "cannot be loaded", "fix its variables NUMBA_..., or reinstall it"
            raise PPModelError("numba", str(problem).partition("\n")[0], rule, remedy) from None
        names = self.plain.__globals__ | {
            "filled": njit(lambda value, count: np.full(count, value), inline="always"),
            "grid": njit(lambda value, rows, columns: np.full((rows, columns), value), inline="always"),
        }
        for name, value in self.plain.__globals__.items():
            if isinstance(value, Loop) and name in self.plain.__code__.co_names:
                names[name] = value.dispatcher
            elif hasattr(value, "is_inlined"):
                names[name] = njit(FunctionType(value.__code__, names, name), inline="always")
        function = FunctionType(self.plain.__code__, names, self.__name__)
        wrappers = {"no_cfunc_wrapper": True, "no_cpython_wrapper": self.__name__.startswith("_")}  # only loops call it
        return _kept(njit(function, nogil=True, **wrappers))


@cache
def _folder():
    """The folder of compiled loops, named after all their sources, so that none outlives a change; None without one.

    It is in ``$NUMBA_CACHE_DIR`` if that is set, else in the package or, if that cannot be written, the user's cache.
    """
    from hashlib import sha256

    here, chosen = Path(__file__).parent, os.environ.get("NUMBA_CACHE_DIR")
    sources = [here.parent / "ops.py", *sorted(here.glob("*.py"))]
    digest = sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    users = Path(os.path.expanduser("~"), ".cache", "ppmodel")
    for above in [Path(chosen).absolute()] if chosen else [here / "__pycache__", users]:
        folder = above / f"loops-{digest}"
        with suppress(OSError):
            if not folder.exists():
                folder.mkdir(parents=True)
                from shutil import rmtree  # takes ten times as long as the rest

                for old in set(above.glob("loops-*")) - {folder}:
                    rmtree(old, ignore_errors=True)
            if os.access(folder, os.W_OK):
                return folder
    return None


def _kept(dispatcher):
    """Keep what is compiled in our folder, if there is one; what lies there damaged is compiled again."""
    from numba import config

    if not _folder() or not hasattr(dispatcher, "enable_caching"):  # NUMBA_DISABLE_JIT leaves the plain loop
        return dispatcher
    ours = {"CACHE_DIR": str(_folder()), "CACHE_LOCATOR_CLASSES": ""}
    with _lock, suppress(RuntimeError):  # it can no longer be written
        before = {name: getattr(config, name, "") for name in ours}  # may come from a file in the current folder
        vars(config).update(ours)
        try:
            dispatcher.enable_caching()
        finally:
            vars(config).update(before)
    store = dispatcher._cache
    load, save = store.load_overload, store.save_overload

    def load_overload(*key):
        try:
            return load(*key)
        except Exception:  # anything that damaged bytes may cause
            with suppress(OSError):
                store.flush()

    def save_overload(*key):
        with suppress(Exception):  # it is compiled, even if the disk is full
            save(*key)

    store.load_overload, store.save_overload = load_overload, save_overload
    return dispatcher


def loop(plain=None, **options):
    """Make a function a `Loop`; a decorator, with the options of `Loop`.

    Examples
    --------
    >>> @loop(fills=("doubled",))
    ... def double(numbers, doubled):
    ...     for place in range(len(numbers)):
    ...         doubled[place] = 2 * numbers[place]
    >>> doubled = np.empty(2)
    >>> double.run(2, np.array([1.0, 2.0]), doubled)
    >>> doubled.tolist()
    [2.0, 4.0]
    """
    return Loop(plain, **options) if plain else lambda plain: Loop(plain, **options)


def inlined(function):
    """Mark a function that loops call: compiled, it becomes part of them, so that no array is handed over."""
    function.is_inlined = True
    return function


def filled(value, count):
    """Return a list of equal values; compiled, an array."""
    return [value] * count


def grid(value, rows, columns):
    """Return rows of equal values; compiled, an array."""
    return [[value] * columns for _ in range(rows)]


def _plain(argument, fills):
    """An argument as plain Python handles it fastest: a list, or a view where the loop fills it."""
    if isinstance(argument, tuple):
        return tuple(_plain(part, fills) for part in argument)
    if not isinstance(argument, np.ndarray):
        return argument
    if not fills:
        return argument.tolist()
    return memoryview(argument) if argument.ndim == 1 else [_plain(row, fills) for row in argument]
