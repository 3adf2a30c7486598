"""The parent of the process that runs a user's file: when that ends, so does everything that the file has started.

On Linux, a process whose parent has ended becomes a child of this one, whatever group or session it has moved to.
Elsewhere only the file's own process and its group end.
"""

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
_LONGER_S, _LONGEST_S = 1e-5, 0.02


def supervise():
    """Fork. The child returns; the parent ends, with all descendants, when the child does or nobody asks it any more.

    That is at SIGTERM, or when the pipe of requests, standard input, loses its other end.
    """
    control = ctypes.CDLL(None).prctl if sys.platform == "linux" else lambda *_: None
    control(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # until it is known what they do
    child = os.fork()
    if not child:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.setpgid(0, 0)
        control(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        return
    try:
        _wait(child)
    finally:
        _end(child)
        os._exit(0)


def _wait(child):
    os.closerange(1, 3)  # whoever reads their other ends waits for the file's processes alone
    signals, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    poll = select.poll()
    poll.register(0, 0)  # only the end is waited for
    poll.register(signals, select.POLLIN)
    while child not in iter(lambda: os.waitpid(-1, os.WNOHANG)[0], 0):  # all that have ended are waited for
        if 0 in dict(poll.poll()) or signal.SIGTERM in os.read(signals, 2**10):
            return


def _end(child):
    """Kill the children until there are none: those of a child that is dead are the next."""
    for kill in (os.killpg, os.kill):
        with suppress(OSError):
            kill(child, signal.SIGKILL)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    pause_s = 0.0  # at first none: some fork and end faster than they are found
    with suppress(ChildProcessError):
        while children.exists():
            for number in children.read_text().split():
                with suppress(OSError):  # it runs as another user
                    os.kill(int(number), signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(pause_s := min(pause_s + _LONGER_S, _LONGEST_S))
