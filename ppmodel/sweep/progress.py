"""Progress of a sweep: a bar with the remaining time on a terminal, an occasional line elsewhere."""

import sys
from contextlib import contextmanager
from time import monotonic

_EVERY_S = 10.0
_ENOUGH = 0.03


def say(text):
    """Write a line to standard error, above the bar if there is one.

    Parameters
    ----------
    text : str
    """
    from tqdm import tqdm

    tqdm.write(text, file=sys.stderr)


def counted(rows):
    """Count rows in words.

    Parameters
    ----------
    rows : int

    Returns
    -------
    str

    Examples
    --------
    >>> counted(1), counted(2)
    ('1 row', '2 rows')
    """
    return "1 row" if rows == 1 else f"{rows} rows"


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
    form = "{l_bar}{bar}| {n_fmt} of " + counted(total) + ", {elapsed} so far, {remaining} left"
    terminal = file.isatty()
    with tqdm(
        total=total, initial=done, file=file, disable=not terminal, bar_format=form, dynamic_ncols=True, smoothing=0.05
    ) as bar:
        yield _bar(bar) if terminal else _lines(total, done, file)


def _bar(bar):
    """Like `tqdm.update`, but the first rows, which wait for code to be compiled, do not count for the time left."""

    def update(rows):
        if bar.initial != before:
            bar.update(rows)
            return
        bar.n += rows
        bar.initial = bar.last_print_n = bar.n
        bar.last_print_t = bar.start_t + bar.format_dict["elapsed"]
        bar.refresh()

    before = bar.initial
    return update


def _lines(total, before, file):
    """Like `_bar`, but in plain lines, at most one every ten seconds, for readable logs."""
    done, said, first = before, monotonic(), None

    def update(rows):
        nonlocal done, said, first
        done, now = done + rows, monotonic()
        first = first or (done, now)
        if now - said >= _EVERY_S and done != total:
            said = now
            line = f"{done} of {counted(total)} ({100 * done // total} %)"
            print(f"{line}, {_left(total - done, done - first[0], now - first[1])}", file=file, flush=True)

    return update


def _left(rows, done, seconds):
    """The time that rows will take, if enough are done to tell.

    >>> _left(900, 100, 10.0), _left(990, 10, 1.0)
    ('about 90 s left', 'too early to say how long is left')
    """
    if done < _ENOUGH * (rows + done):
        return "too early to say how long is left"
    return f"about {_duration(seconds * rows / done)} left"


def _duration(seconds):
    """Write a duration as people do.

    >>> _duration(42), _duration(700), _duration(9000)
    ('42 s', '12 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
