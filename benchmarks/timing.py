"""How times are taken: one thread, garbage collector off, a first call that does not count, best and median of five.

Wall-clock time from ``time.perf_counter_ns``. Arguments are prepared outside the timed part, anew for every call if
something is cached between calls. The first call warms up: it compiles kernels and fills caches.

Before anything is measured, `benchmarks.stages.warm_up` passes a table four times the measured size through all stages
once, as in any process that has worked for a while. Until a process has freed larger blocks of memory, glibc returns
freed pages to the operating system and requests them again with every call, which can double the time of a compile,
depending on what the process did before. A separate row gives the time of a compile with such fresh pages.
"""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
REPEATS = 5
ONE_THREAD = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Seconds(NamedTuple):
    """Times of one call.

    Parameters
    ----------
    best, median : float
        In seconds.
    runs : int
        Number of calls; fewer than five if a call takes long.
    """

    best: float
    median: float
    runs: int

    @classmethod
    def of(cls, seconds):
        """Compute the best and the median of some times.

        >>> Seconds.of([3.0, 1.0, 2.0])
        Seconds(best=1.0, median=2.0, runs=3)
        """
        return cls(min(seconds), median(seconds), len(seconds))


def timed(run, *arguments):
    """Time one call with the garbage collector off; return the seconds and the result.

    Examples
    --------
    >>> timed(sum, [1, 2])[1]
    3
    """
    gc.disable()
    try:
        began = perf_counter_ns()
        result = run(*arguments)
        return (perf_counter_ns() - began) * 1e-9, result
    finally:
        gc.enable()


def measure(run, prepare=tuple, budget_s=20.0, repeats=REPEATS):
    """Time a function after a first call that does not count.

    Parameters
    ----------
    run : callable
        The function to time.
    prepare : callable
        Returns the arguments for one call; not timed.
    budget_s : float
        Seconds for all calls; a slower function is called less often, but at least once.
    repeats : int
        Number of calls, if the budget allows.

    Returns
    -------
    Seconds

    Examples
    --------
    >>> measure(sum, lambda: ([1, 2],)).runs
    5
    """
    gc.collect()
    first, _ = timed(run, *prepare())
    affordable = int(budget_s / max(first, 1e-9)) - 1
    return Seconds.of([timed(run, *prepare())[0] for _ in range(max(1, min(repeats, affordable)))])


def environment(**changes):
    """The environment of a fresh process: this clone on the path, one thread."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | dict.fromkeys(ONE_THREAD, "1") | {"PYTHONPATH": path} | changes


def in_fresh_process(task, *arguments, timeout_s=120.0, **changes):
    """Run a task of `benchmarks.fresh` in a separate process, and return its report.

    Parameters
    ----------
    task : str
        Name of the task.
    *arguments : int
        Its arguments.
    timeout_s : float
        Time limit in seconds.
    **changes : str
        Environment variables.

    Returns
    -------
    dict
        Empty if it ran out of time or memory.
    """
    command = [sys.executable, "-m", "benchmarks.fresh", task, *map(str, arguments)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, cwd=ROOT, env=environment(**changes)
        )
    except subprocess.TimeoutExpired:
        return {}
    if done.returncode and "MemoryError" not in done.stderr:
        raise RuntimeError(f"benchmarks.fresh {task}: {done.stderr.strip()}")
    return json.loads(done.stdout) if not done.returncode else {}


def process_seconds(command):
    """Time a whole process, from start to end.

    Parameters
    ----------
    command : list of str

    Returns
    -------
    float
    """
    begin = {"cwd": ROOT, "env": environment(), "stdout": subprocess.DEVNULL, "check": True}
    return timed(lambda: subprocess.run(command, **begin))[0]
