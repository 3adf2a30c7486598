"""Commands with a user's generator run in a separate process: whatever the file does, the user sees one line."""

import io
import json
import os
import signal
import sys
from contextlib import redirect_stdout, suppress
from select import select
from time import monotonic

from ppmodel.cli import text
from ppmodel.errors import PPModelError, cause
from ppmodel.files import parse_json
from ppmodel.schedules.cases import split_options

TIME_LIMIT_S = 60.0
_MEMORY_SHARE = 2
_LONGEST_S = 10**6
_LARGEST_ANSWER = 2**28
_CODES = (None, 0, 1)


def generators(names):
    """Pick the generator files among the names given.

    >>> generators(["1f1b", None, "mine.py:depth=2", "mine.py:warm-up=1", "mine.csv"])
    ['mine.py', 'mine.py']
    """
    files = [split_options(name)[0] for name in names if name]
    return [file for file in files if file.endswith(".py")]


def apart(run, file, seconds=None):
    """Call a function in a separate process, and print what it prints.

    Parameters
    ----------
    run : callable
        Returns an exit code or None.
    file : str
        The generator, for error messages.
    seconds : float, optional
        Time limit; one minute by default.

    Returns
    -------
    int or None
        What `run` returned.

    Raises
    ------
    PPModelError
        What `run` raised; or if the process ended without an answer, or ran out of time; or on a system that cannot
        fork, which is any but Linux and macOS.
    """
    if not hasattr(os, "fork"):
        rule = "is run in a separate process, which this system cannot fork"
        raise PPModelError("file", file, rule, "use Linux or macOS, or call its function from Python")
    seconds = TIME_LIMIT_S if seconds is None else seconds
    pipe, end = os.pipe()
    child = os.fork()
    if not child:
        _answer(run, end)
    os.close(end)
    try:
        answer = _received(pipe, seconds)
    finally:
        os.close(pipe)
        for kill in (os.killpg, os.kill):  # the child, and everything it has started
            with suppress(OSError):
                kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if answer is None:
        longer = f"fix its loop, or pass, for example, --time-limit {2 * seconds:g}"
        raise PPModelError("file", file, f"has not finished after {seconds:g} s", longer)
    return _given(answer, file)


def _answer(run, end, leave=os._exit):
    """In the child process: call, send one line of JSON, and exit."""
    try:
        import resource  # Linux and macOS have it

        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MEMORY_SHARE
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))
        text.out = printed = io.StringIO()
        with redirect_stdout(sys.stderr):  # keep what the file prints apart from our own output
            answer = _outcome(run)
        line = json.dumps([printed.getvalue(), *answer]).encode() + b"\n"
        while line:
            line = line[os.write(end, line) :]
    finally:  # the file may have replaced anything the lines above rely on
        leave(0)


def _outcome(run):
    """What a call returns, or the text of what it raises."""
    try:
        return run(), None, None
    except PPModelError as error:
        return None, str(error), str(error.grid or "")
    except BaseException as error:  # SystemExit, KeyboardInterrupt, or any error after builtins were replaced
        return None, None, cause(error)


def _received(pipe, seconds):
    """What the child process has sent when it ends: b"" if it died, None if it ran out of time."""
    received, last = bytearray(), monotonic() + min(seconds, _LONGEST_S)
    while (left := last - monotonic()) > 0 and select([pipe], [], [], left)[0]:
        piece = os.read(pipe, 2**16)
        received += piece
        if not piece or piece.endswith(b"\n"):
            return bytes(received)
        if len(received) > _LARGEST_ANSWER:  # not our answer
            return b""
    return None


def _given(answer, file):
    try:
        printed, code, error, detail = parse_json(answer)
        texts = [printed, *(text for text in (error, detail) if text is not None)]
        if code not in _CODES or not all(isinstance(text, str) for text in texts):
            raise ValueError
    except (ValueError, TypeError):  # the file can write to the same pipe
        rule, remedy = "ends the process that it runs in", "let it return a Schedule or raise an error"
        raise PPModelError("file", file, rule, remedy) from None
    text.say(printed, newline=False)
    if error is not None:
        raise RefusedError(error, detail)
    if detail is not None:
        raise PPModelError("file", file, f"fails ({detail})", "fix it")
    return code


class RefusedError(PPModelError):
    """An error raised in another process, known by its text."""

    def __init__(self, message, grid):
        super().__init__(None, None, None, None, grid=grid)
        self._message = message

    def __str__(self):
        return self._message
