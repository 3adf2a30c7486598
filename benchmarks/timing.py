"""How a time is taken: one thread, collector off, a first call that does not count, best and median of five.

Wall-clock time of ``time.perf_counter_ns``. What a call needs is prepared outside the timed part, anew for every
call where something is kept between calls. The first call warms up: it compiles kernels and fills caches.

Before anything is measured, `benchmarks.stages.warm_up` lets a table four times the measured size go once through all
stages, as in any process that has worked for a while. Until a process has freed larger blocks of memory, glibc gives
freed pages back to the operating system and takes them anew with every call, which can double the time of a compile;
whether it does depends on what the process did before. A row of its own says what compile takes with such fresh pages.
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
        How many calls they are of; fewer than five where a call takes long.
    """

    best: float
    median: float
    runs: int

    @classmethod
    def of(cls, seconds):
        """The best and the median of some times.

        >>> Seconds.of([3.0, 1.0, 2.0])
        Seconds(best=1.0, median=2.0, runs=3)
        """
        return cls(min(seconds), median(seconds), len(seconds))


def timed(run, *arguments):
    """Seconds of one call, and what it returns; the garbage collector is off until it is done.

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
    """Times of a call after a first one that does not count.

    Parameters
    ----------
    run : callable
        What is timed.
    prepare : callable
        Returns the arguments of one call; not timed.
    budget_s : float
        Seconds for all calls: one that would need more of them runs less often, but once.
    repeats : int
        Calls that count, where the budget allows them.

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
    """What a fresh process is started with: this clone on the path, one thread."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | dict.fromkeys(ONE_THREAD, "1") | {"PYTHONPATH": path} | changes


def in_fresh_process(task, *arguments, timeout_s=120.0, **changes):
    """What a task of `benchmarks.fresh` reports from a process of its own.

    Parameters
    ----------
    task : str
        Its name.
    *arguments : int
        What it is given.
    timeout_s : float
        Seconds after which it is ended.
    **changes : str
        Variables of the environment.

    Returns
    -------
    dict
        Empty where it ran out of time or memory.
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
    """Seconds of a whole process, from its start to its end.

    Parameters
    ----------
    command : list of str

    Returns
    -------
    float
    """
    begin = {"cwd": ROOT, "env": environment(), "stdout": subprocess.DEVNULL, "check": True}
    return timed(lambda: subprocess.run(command, **begin))[0]
