"""One hostile input: a command line in a folder of its own, run as a process, and what must hold whatever it meets."""

import atexit
import ctypes
import os
import re
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MOST_BYTES, MOST_LINES, MOST_OUT = 2000, 3, 2**22
MEMORY = 2**31
"""Bytes that any process may hold at its peak."""
FILE_SIZE = 2**26
ERROR = re.compile(r"^error: .+; .+$", re.MULTILINE)
_GRID = re.compile(r"rank +\d+ \||\.\.\.$|.* (ERROR|WARNING): ")
_SET_CHILD_SUBREAPER = 36
_RAN = "ran"
"""What injected commands would make."""


class Done(NamedTuple):
    """What became of a process: its exit code, below 0 for a signal, and what it wrote."""

    code: int | None
    out: str
    err: str
    seconds: float
    peak: int


class Attack(NamedTuple):
    """A hostile input.

    Parameters
    ----------
    category, name : str
        What it attacks, and what it is.
    words : list of str
        The command line.
    files : dict of str to str or bytes
        What is in the folder before.
    codes : tuple of int
        The exit codes that are right: 0 a result, 1 a result with refused rows, 2 refused, 130 interrupted.
    seconds : float
        By then it has ended.
    writes : str
        A regular expression of the names that it may write.
    keeps : str
        The same, of those that may stay where it is refused: parts of a sweep that the next one goes on with.
    prepare, begin : callable, optional
        Called with the folder before: in our process, and in the one that is attacked.
    during : callable, optional
        Called with the process's number and the folder while it runs.
    holds : callable, optional
        Called with the folder and the `Done`; what it returns is a fault.
    loud : bool
        Whether the code that is attacked with writes itself; what is written is then not judged.
    memory : int
        Bytes that it may hold at its peak.
    environment : dict, optional
        Variables; with them, or with `fresh`, a new interpreter is started.
    program : bool
        Whether the words are a Python program and its arguments.
    """

    category: str
    name: str
    words: list
    files: dict = {}  # noqa: RUF012 - never changed
    codes: tuple = (0, 1, 2)
    seconds: float = 20
    writes: str = ""
    keeps: str = ""
    prepare: Callable | None = None
    begin: Callable | None = None
    during: Callable | None = None
    holds: Callable | None = None
    environment: dict = {}  # noqa: RUF012 - never changed
    loud: bool = False
    memory: int = MEMORY
    fresh: bool = False
    program: bool = False


def attempt(attack, folder):
    """Run an attack in an empty folder.

    Parameters
    ----------
    attack : Attack
    folder : Path

    Returns
    -------
    faults : list of str
        Empty where everything held.
    done : Done
    """
    work = folder / "work"
    (work / "theirs").mkdir(parents=True)
    (work / "theirs" / "thesis.csv").write_text("theirs")
    for name, content in attack.files.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode(errors="surrogateescape"))
    if attack.prepare:
        attack.prepare(work)
    before = state(work)
    done, left = run(attack, work, folder)
    faults = [f"a process is left: {name}" for name in left] + said(attack, done) + changed(attack, done, work, before)
    own = attack.holds and attack.holds(work, done)
    return faults + ([own] if own else []), done


# ---- what must hold ------------------------------------------------------------------------------


def said(attack, done):
    """Faults of what a process said, how it ended, and how much it took."""
    if done.code is None:
        return [f"has not ended after {attack.seconds} s"]
    told = [line for line in done.err.splitlines() if not _GRID.match(line)]
    odd = [one for one in done.out + done.err if not one.isprintable() and one != "\n" and one not in "\r\t"]
    checks = {
        f"exit code {done.code}": done.code not in attack.codes,
        "a traceback": "Traceback" in done.err or "Traceback" in done.out,
        f"{len(told)} lines, {len(done.err)} characters of error": len(told) > MOST_LINES
        or len("".join(told)) > MOST_BYTES,
        "refused without 'error: ...; remedy'": done.code == 2 and not ERROR.search(done.err) and done.err != "",
        "an error with an exit code of success": done.code in (0, 1) and "error: " in done.err,
        f"{len(done.out)} characters of output": len(done.out) > MOST_OUT,
        f"control characters {odd[:5]}": bool(odd),
        f"{done.peak >> 20} MiB": done.peak > attack.memory,
    }
    found = [fault for fault, is_so in checks.items() if is_so and not (attack.loud and fault in list(checks)[1:7])]
    return [f"{'; '.join(found)}: {done.err[-300:]!r}"] if found else []


def changed(attack, done, work, before):
    """Faults of what a process changed: files that were there, and files that it must not leave."""
    after = state(work)
    lost = [name for name in before if after.get(name) != before[name] and not re.fullmatch(attack.writes or "/", name)]
    may = attack.keeps if done.code == 2 else attack.writes
    new = [name for name in after.keys() - before.keys() if not re.fullmatch(may, name)]
    ran = [name for name in after if Path(name).name == _RAN]
    faults = {"lost or changed": lost, "left": new, "ran": ran}
    return [f"{fault}: {sorted(names)[:3]}" for fault, names in faults.items() if names]


def state(folder):
    """What is in a folder, and where: contents of files, targets of links."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(root, name)
            inside = path.relative_to(folder).as_posix()
            if path.is_symlink():
                found[inside] = os.readlink(path)
            elif path.is_file():
                found[inside] = path.read_bytes() if path.stat().st_size < FILE_SIZE else path.stat().st_size
            else:
                found[inside] = "folder" if path.is_dir() else "other"
    return found


# ---- the process ---------------------------------------------------------------------------------


def run(attack, work, folder):
    """Run the command line; return what became of it, and the processes that it left."""
    streams = [folder / "out", folder / "err"]
    for path in streams:  # a process that is killed at once may not get to open them
        path.touch(0o600)
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)  # what a session loses is found, too
    before, began = {*processes_of(None, os.getpid())}, time.monotonic()
    child = os.fork()
    if not child:
        _become(attack, work, streams)
    if attack.during:
        attack.during(child, work)
    code, usage = _waited(child, began + attack.seconds)
    left = _ended(child, before)
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 0)
    out, err = (path.read_bytes()[: 4 * MOST_OUT].decode(errors="replace") for path in streams)
    return Done(code, out, err, time.monotonic() - began, usage), left


def _become(attack, work, streams):
    """In the new process: the command line, and nothing else of the one that it was forked from."""
    code = 99
    try:
        os.setsid()
        os.chdir(work)
        for number, path in enumerate([os.devnull, *streams]):
            os.dup2(os.open(path, (os.O_WRONLY | os.O_CREAT) if number else os.O_RDONLY, 0o600), number)
        os.closerange(3, 64)
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])} | attack.environment
        if attack.begin:
            attack.begin(work)
        if attack.fresh or attack.environment or attack.program:
            environment = {key: value for key, value in environment.items() if value is not None}
            module = [] if attack.program else ["-m", "ppmodel"]
            os.execve(sys.executable, [sys.executable, *module, *attack.words], environment)
        code = _main(attack.words)
    finally:
        os._exit(code)


def _main(words):
    """The command line as its process runs it, in an interpreter that has loaded it already."""
    from ppmodel.cli import run as cli

    atexit._clear()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        setattr(sys, name, os.fdopen(number, mode, errors="surrogateescape" if mode == "r" else "backslashreplace"))
    sys.argv, sys.excepthook = ["ppmodel", *words], sys.__excepthook__
    code = 1
    try:
        cli()
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    return code


def _waited(child, until):
    """The exit code of a process, None where it has not ended in time, and its largest size in memory."""
    while True:
        number, status, usage = os.wait4(child, os.WNOHANG)
        if number:
            return os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024
        if time.monotonic() > until:
            with suppress(ProcessLookupError):  # it has not made its own group yet
                os.killpg(child, signal.SIGKILL)
            os.kill(child, signal.SIGKILL)
            return os.wait4(child, 0)[0] and None, 0
        time.sleep(0.003)


def _ended(session, before):
    """The processes of a session, and others that are ours now, that are left after a while; they are ended."""
    until = time.monotonic() + 5
    while (left := {*processes_of(session, os.getpid())} - before) and time.monotonic() < until:
        time.sleep(0.05)
    for number in left:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    return sorted(left)


def processes_of(session, parent=None):
    """The processes of a session, or of a parent, that are still there."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if (int(fields[3]) == session or int(fields[1]) == parent) and fields[0] != "Z":
            found.append(int(name))
    return found


def tried(attack, folder):
    """As `attempt`, in a folder that is made, and removed."""
    folder.mkdir()
    try:
        return attempt(attack, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
