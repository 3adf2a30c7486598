"""Progress: a bar or a passing line on a terminal, or an occasional line elsewhere."""

import os
import sys
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic

from ppmodel.errors import counted

_EVERY_S, _TICK_S, _USUAL_WIDTH = 10.0, 0.5, 80


def say(text):
    """Write a line to standard error, above the bar if there is one.

    Parameters
    ----------
    text : str
    """
    from tqdm import tqdm

    tqdm.write(text, file=sys.stderr)


@contextmanager
def passing(text, file=None):
    """Show a text, the time so far and what is left as the last line of a terminal; elsewhere in a line now and then.

    Parameters
    ----------
    text : str
    file : file object, optional
        Where to write; standard error by default.

    Yields
    ------
    callable
        Puts another text in its place and, with a second argument, a number or a function, says which share of the work
        is done.
    """
    file, began, over = file or sys.stderr, monotonic(), Event()
    shown, on_terminal = [text, 0.0], file.isatty()

    def show(text, share=0.0):
        shown[:] = text, share

    def write():
        while not over.wait(_TICK_S if on_terminal else _EVERY_S):
            (text, share), passed = shown, monotonic() - began
            share = share() if callable(share) else share
            left = f", about {_clock(passed / share - passed)} left" if 0 < share < 1 else ""
            line = f"{_clock(passed)} so far{left}: {text}"
            file.write(f"\r{line[: _width(file) - 1]}\x1b[K" if on_terminal else f"{line}\n")
            file.flush()

    writer = Thread(target=write, daemon=True)
    writer.start()
    try:
        yield show
    finally:
        over.set()
        writer.join()
        if on_terminal:
            print(end="\r\x1b[K", file=file, flush=True)


def following(items, text):
    """Items one after the other, while a terminal or a log says how many there have been; see `passing`."""
    with passing(text) as show:
        for number, item in enumerate(items):
            show(f"{text}, {number} of {len(items)}", number / len(items))
            yield item


def _width(file):
    """Columns of the terminal behind a file."""
    try:
        return os.get_terminal_size(file.fileno()).columns or _USUAL_WIDTH
    except OSError:
        return _USUAL_WIDTH


def _clock(seconds):
    """Seconds as minutes and seconds.

    >>> _clock(75.9), _clock(7200)
    ('1:15', '120:00')
    """
    return "{}:{:02}".format(*divmod(int(seconds), 60))


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
