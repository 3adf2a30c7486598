"""Progress: a passing line on a terminal, or an occasional line elsewhere."""

import os
import sys
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic

_EVERY_S, _TICK_S, _USUAL_WIDTH = 10.0, 0.5, 80


def say(text):
    """Write a line to standard error, in place of a passing one."""
    print("\r\x1b[K" * sys.stderr.isatty() + text, file=sys.stderr)


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
