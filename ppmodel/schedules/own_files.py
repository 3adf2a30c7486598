"""Generators in users' files: the only place where code is loaded that does not come with the package.

Each file runs in a process of its own (`host`), whose time and memory are limited and which ends with this one. What
it registers is called through that process, so that a file's errors, loops, output and threads stay there. Entries
carry the text of their file: they can be sent to other machines, and a file that is edited is another one.
"""

import json
import os
import signal
import subprocess
import sys
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from threading import Event, RLock, Thread, Timer

import numpy as np

from ppmodel import errors
from ppmodel.errors import PPModelError, ScheduleError, StoppedError, shown
from ppmodel.files import parse_json, read_text
from ppmodel.schedules import registry
from ppmodel.schedules.host import tupled
from ppmodel.schedules.registry import Option
from ppmodel.tables import Schedule

_time_limit_s = ContextVar("time limit", default=60.0)
_START_S, _END_S, _LONGEST_S = 60.0, 5.0, 10**6
_LARGEST_LINE = 2**32
_MALFORMED = KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError
_MOST_PRINTED, _LONGEST_PRINTED = 2**16, 1000
_KEPT = 8
_START = """import sys; sys.path[:] = sys.argv[1:]
from ppmodel.supervisor import supervise; supervise()
from ppmodel.schedules.host import serve; serve()"""
_hosts, _lock = OrderedDict(), RLock()


@contextmanager
def time_limit(seconds):
    """Within the context, let files take so long to load, and their generators for one table; a minute by default."""
    before = _time_limit_s.set(seconds)
    try:
        yield
    finally:
        _time_limit_s.reset(before)


def register_file(path):
    """Run a Python file that registers its own schedules, in a process of its own.

    Parameters
    ----------
    path : str or Path
        A file that decorates each of its generators with `schedule`; ``data/templates/my_schedule.py`` is a template.

    Returns
    -------
    list of Entry
        What it registers, from now on also known by name to `build`, `names` and `get` in this process.

    Raises
    ------
    PPModelError
        If there is no such file, it fails, takes longer than `time_limit` or registers nothing; the registry is then
        unchanged.

    Examples
    --------
    >>> register_file("nowhere.py")
    Traceback (most recent call last):
    ppmodel.errors.ScheduleError: file = nowhere.py: is not a file; check the path
    """
    registry.require(os.path.isfile(path), "file", path, "is not a file", "check the path")
    path, code, entries = str(path), read_text(path, error=ScheduleError), []
    try:
        for sent in _host(path, code).described():
            of_file = path, code, str(sent["name"]), str(sent["where"] or path)
            options = [_made(Option, option, *of_file, place=place) for place, option in enumerate(sent["options"])]
            entries.append(_made(registry.Entry, sent, *of_file)._replace(options=tuple(options), file=path))
    except PPModelError:
        raise
    except _MALFORMED:
        raise _ended(path) from None
    registry.add(entries)
    return entries


def _made(kind, sent, *of_file, place=None):
    """An `Entry` or `Option` from its fields as `host` sent them; its functions are called in the file's process."""
    values = {}
    for name, annotation in kind.__annotations__.items():
        if annotation is Callable or (annotation == Callable | None and sent[name]):
            values[name] = Remote(*of_file, name, place)
        else:
            values[name] = annotation(sent[name]) if annotation in (str, bool) else tupled(sent[name])
    return kind(**values)


@dataclass(frozen=True)
class Remote:
    """A function of a user's file, called in the process that runs the file.

    Parameters
    ----------
    path, code : str
        The file, and its text.
    name : str
        The schedule.
    where : str
        Where its generator begins, for messages.
    function : str
        The field of its `Entry`, or of the option at `place`.
    """

    path: str
    code: str
    name: str
    where: str
    function: str
    place: int | None

    def __call__(self, *arguments, **options):
        answer = _host(self.path, self.code).ask([self.name, self.function, self.place, arguments, options])
        if self.function == "generate":
            return self._table(answer, *arguments)
        if "raised" in answer:
            raise ValueError(answer["raised"])
        value = tupled(answer.get("value"))
        is_ratio = isinstance(value, str) and self.function in ("bubble_ratio", "published")
        return Fraction(value) if is_ratio else value

    def _table(self, answer, num_ranks, num_microbatches):
        """The table that was sent, checked in full: the process may send anything."""
        try:
            arrays = {name: np.frombuffer(b64decode(text), "<i4") for name, text in answer.pop("arrays").items()}
            arrays["placement"] = arrays["placement"].reshape(answer.pop("num_replicas"), -1)
            if arrays["placement"].min() < 0 or answer["num_microbatches"] < 1 or answer["microbatch_parts"] < 1:
                raise ValueError
            table = Schedule(**answer, **arrays)
            if len(table.stage_shares) != table.num_stages:
                raise ValueError
            registry.require_made(self.name, table, num_ranks, num_microbatches, self.where)
            table.validate()
        except PPModelError as error:
            error.where = error.where or self.where
            error.why = error.why or f"at S = {num_ranks}, B = {num_microbatches}"
            raise
        except _MALFORMED:
            raise _ended(self.path) from None
        return table


# ---- the process ---------------------------------------------------------------------------------


def _host(path, code):
    """The process that runs a file, which may have to be started."""
    with _lock:
        host = _hosts.pop((path, code), None) or _Host(path, code)
        _hosts[path, code] = host
        unused = [_hosts.pop(key) for key in [*_hosts][:-_KEPT]]
    for other in unused:
        other.close()
    return host


def end_processes():
    """End the processes of all files; a later call starts its own again."""
    with _lock:
        while _hosts:
            _hosts.popitem()[1].close()


def _forget():
    """After a fork: the processes belong to the parent, and end with it; a lock of another thread stays locked."""
    global _hosts, _lock
    null = os.open(os.devnull, os.O_WRONLY)
    for host in _hosts.values():
        if host.process is not None:
            with suppress(OSError, ValueError):  # it is being closed
                os.dup2(null, host.process.stdin.fileno(), inheritable=False)
    os.close(null)
    _hosts, _lock = OrderedDict(), RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class _Host:
    """A process that runs a file, once it is asked. One thread at a time asks it."""

    def __init__(self, path, code):
        self.path, self.code, self.lock, self.process, self.entries = path, code, RLock(), None, None

    def described(self):
        """What the file registers, a dict each."""
        with self.lock:  # not a cached property, whose lock is of all threads, and stays locked after a fork
            if self.entries is None:
                self.entries = self._start()["entries"]
            return self.entries

    def _start(self):
        """Start the process, and let it run the file."""
        if not hasattr(os, "fork"):
            rule = "is run in a separate process, which this system cannot fork"
            raise ScheduleError("file", self.path, rule, "use Linux or macOS, or pass its function in Python")
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen([sys.executable, "-c", _START, *sys.path], process_group=0, **pipes)
        self.relay = Thread(target=_print_lines, args=(self.process.stderr,), daemon=True)
        self.relay.start()
        return self._exchanged([self.path, self.code], _START_S)

    def close(self):
        """End the process, and all that it has started."""
        with self.lock:
            if self.process is not None:
                self._end()
                try:
                    self.process.wait(_END_S)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                self.relay.join(_END_S)
                self.process.stdout.close()
                with suppress(OSError):  # what was not sent
                    self.process.stdin.close()
                self.process = None

    def _end(self):
        """Ask the supervisor to end the process, and all that it has started."""
        if (process := self.process) is not None:  # it may have ended meanwhile
            for number in (signal.SIGTERM, signal.SIGCONT):  # the file may have stopped it
                process.send_signal(number)

    def ask(self, request):
        """Send a request, and wait for the answer.

        Returns
        -------
        dict

        Raises
        ------
        PPModelError
            What the file raises; or if it takes too long, or ends the process.
        """
        with self.lock:
            if self.process is None:
                self._start()
            return self._exchanged(request)

    def _exchanged(self, request, start_s=None):
        """Send a request, the first one when the process has started; its answer."""
        try:
            if start_s is not None:
                self._answer(start_s)
            with suppress(OSError):  # it has ended
                self.process.stdin.write(json.dumps(request).encode() + b"\n")
                self.process.stdin.flush()
            answer = self._answer(_time_limit_s.get())
        except BaseException:  # also an interruption: what it sends later is no answer to the next request
            self.close()
            raise
        if "error" not in answer:
            return answer
        kind, parts = getattr(errors, str(answer["error"]), None), answer.get("parts")
        is_error = isinstance(kind, type) and issubclass(kind, PPModelError)
        is_whole = isinstance(parts, dict) and parts.keys() == {*errors.PARTS}
        if not (is_error and is_whole and all(isinstance(text, str | None) for text in parts.values())):
            raise _ended(self.path)
        raise kind(**parts)

    def _answer(self, seconds):
        """The answer to a request."""
        is_late = Event()  # before the pipe is closed; a timer says that it has finished only after that
        timer = Timer(min(seconds, _LONGEST_S), lambda: (is_late.set(), self._end()))
        timer.daemon = True
        timer.start()
        try:
            answer = parse_json(self.process.stdout.readline(_LARGEST_LINE))
            if not isinstance(answer, dict):
                raise ValueError
        except ValueError:  # it has ended; or the file has written to the same pipe
            if is_late.is_set():
                longer = f"fix its loop, or pass, for example, --time-limit {2 * seconds:g}"
                raise StoppedError("file", self.path, f"has not finished after {seconds:g} s", longer) from None
            raise _ended(self.path) from None
        finally:
            timer.cancel()
        return answer


def _print_lines(stream):
    """Print what a file prints, without control characters, until it is too much."""
    left = _MOST_PRINTED
    with stream:
        while line := stream.readline(_LONGEST_PRINTED):
            if (left := left - len(line)) > 0:
                with suppress(OSError, ValueError, AttributeError):
                    print(shown(line.decode(errors="replace").rstrip("\n"), _LONGEST_PRINTED), file=sys.stderr)


def _ended(path):
    return StoppedError("file", path, "ends the process that it runs in", "let it return a Schedule or raise an error")
