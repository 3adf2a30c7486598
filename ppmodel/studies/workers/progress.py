"""Progress: of a sweep a bar on a terminal, or an occasional line elsewhere; of a search a passing line."""

import sys
from contextlib import contextmanager
from importlib.util import find_spec
from time import monotonic

from ppmodel.errors import counted

_EVERY_S = 10.0


def say(text):
    """Write a line to standard error, above the bar if there is one.

    Parameters
    ----------
    text : str
    """
    from tqdm import tqdm

    tqdm.write(text, file=sys.stderr)


@contextmanager
def passing(text):
    """Show a text as the last line of a terminal until there is an answer, where tqdm is installed.

    Yields
    ------
    callable
        Puts another text in its place.
    """
    if find_spec("tqdm") is None:
        yield str
        return
    from tqdm import tqdm

    with tqdm(desc=text, bar_format="{desc}", leave=False, disable=None, dynamic_ncols=True) as line:
        yield line.set_description_str


@contextmanager
def progress(total, done, file=None):
    """Show how many rows have been computed.

    Parameters
    ----------
    total, done : int
        Rows in the sweep, and those already there.
    file : file object, optional
        Where to write; standard error by default.

    Yields
    ------
    callable
        To be called with the number of additional rows.
    """
    from tqdm import tqdm

    file = file or sys.stderr
    if not file.isatty():
        yield _log_lines(total, done, file)
        return
    form = "{l_bar}{bar}| {n_fmt} of " + counted(total, "row") + ", {elapsed} so far, {remaining} left"
    with tqdm(total=total, initial=done, file=file, bar_format=form, dynamic_ncols=True) as bar:
        yield bar.update


def _log_lines(total, done, file):
    """Like `tqdm.update`, but in plain lines, at most one every ten seconds, for readable logs."""
    from tqdm import tqdm

    before, began = done, monotonic()
    printed = began

    def update(rows):
        nonlocal done, printed
        done, now = done + rows, monotonic()
        if now - printed >= _EVERY_S and done != total:
            printed, left = now, tqdm.format_interval((now - began) / (done - before) * (total - done))
            print(f"{done} of {counted(total, 'row')} ({100 * done // total} %), {left} left", file=file, flush=True)

    return update
