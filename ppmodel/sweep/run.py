"""A whole sweep: what is missing is computed, kept part by part, and joined at the end."""

import os
import signal
import sys
import threading
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ppmodel.errors import SweepError
from ppmodel.export.files import checked_target
from ppmodel.sweep.grid import chunk_bounds
from ppmodel.sweep.progress import counted, progress, say
from ppmodel.sweep.runners import run_here, run_on_workers, run_with_scheduler
from ppmodel.sweep.specification import load_sweep
from ppmodel.sweep.store import Refused, Store, held

_STOP = signal.SIGINT, signal.SIGTERM
_STOP_S = 20
_EXIT_INTERRUPTED = 130


class Summary(NamedTuple):
    """What a sweep came to.

    Parameters
    ----------
    out : Path
        The output.
    rows : int
        Rows of the output.
    computed : int or None
        Those that this run computed; None where the output was there already and nothing was to do.
    refused : Refused
        Those without numbers, and why.
    """

    out: Path
    rows: int
    computed: int | None
    refused: Refused


class SweepStopped(KeyboardInterrupt):
    """A sweep that its user stopped; the text says how far it is."""


def run_sweep(
    specification, out, workers=None, scheduler=None, force=False, process_ends=False, schedule_files=()
):  # fmt: skip
    """Compute a sweep, or what is missing of it, and write it.

    Parameters
    ----------
    specification : str or Path
        A file; see `load_sweep`.
    out : str or Path
        The output, a Parquet file. Until all rows are there, finished ones are kept in a folder beside it, and the
        same call goes on where it was ended. The output's bytes do not depend on that, nor on what computes the rows.
    workers : int, optional
        Processes of a Dask cluster on this machine; without `scheduler` and `workers` this process computes. A
        script that asks for them keeps its own calls under ``if __name__ == "__main__":``.
    scheduler : str, optional
        Address of a Dask scheduler whose workers compute.
    force : bool
        Whether to replace an output, or parts, of another sweep.
    process_ends : bool
        Whether the process ends once the sweep is stopped: Ctrl-C and SIGTERM then stay without effect, and what
        does not stop within 20 seconds, such as a cluster whose connection hangs, is left; all parts are whole.
    schedule_files : sequence of str or Path
        Generators and tables of one's own, beside the schedules of the specification.

    Returns
    -------
    Summary

    Raises
    ------
    PPModelError
        If the specification, the output or the cluster is refused, or rows cannot be computed.
    SweepStopped
        On Ctrl-C or SIGTERM, with how far it is.
    """
    _require("pyarrow", "sweep")
    _require("tqdm", "sweep")
    if workers is not None and scheduler is not None:
        raise SweepError("--workers", workers, "cannot be combined with --scheduler", "pass one of them")
    if scheduler is not None and not scheduler.strip():
        rule, remedy = "must be an address", "write, for example, tcp://host:8786, or leave --scheduler away"
        raise SweepError("--scheduler", repr(scheduler), rule, remedy)
    if workers is not None or scheduler is not None:
        _require("distributed", "cluster")
    out = Path(out)
    if out.suffix != ".parquet":
        raise SweepError("--out", out, "must end in .parquet, behind a name", "write --out results.parquet")
    checked_target(out, "--out")
    sweep = load_sweep(specification, schedule_files)
    store = Store(out, sweep, chunk_bounds(sweep))
    with held(store):
        computed = None
        if force or not out.exists():
            store.begin(force)
            computed = _complete(store, sweep, workers, scheduler, process_ends)
        elif not store.is_finished():
            rule = "is there already, and was made from another specification or by another version"
            raise SweepError("--out", out, rule, "choose another name, or pass --force to replace it")
        return Summary(out, sweep.num_rows, computed, store.refused())


def _require(library, extra):
    if find_spec(library) is None:
        raise SweepError(library, None, "is not installed", f"install ppmodel with its extra '{extra}'")


def _complete(store, sweep, workers, scheduler, process_ends):
    """Compute what is missing and write the output; how many rows that were."""
    tasks = [(chunk, int(store.bounds[chunk]), int(store.bounds[chunk + 1])) for chunk in store.missing()]
    computed = sum(last - first for _, first, last in tasks)
    done = sweep.num_rows - computed

    def how_far():
        return f"{done} of {counted(sweep.num_rows)} done; the same command goes on"

    with _stopped_once(process_ends, how_far) as stopped:
        try:
            with _runner(sweep, tasks, workers, scheduler) as parts, progress(sweep.num_rows, done) as advance:
                for chunk, columns in parts:
                    store.put(chunk, columns)
                    rows = len(columns["refused"])
                    done += rows
                    advance(rows)
                    if stopped.is_set():  # an interrupt that fell into a callback is not shown, but not forgotten
                        raise KeyboardInterrupt
            store.finish()
        except KeyboardInterrupt:
            raise SweepStopped(how_far()) from None
    return computed


def _runner(sweep, tasks, workers, scheduler):
    """Who computes the missing chunks: a context of an iterator over them and their rows, in any order."""
    if scheduler is not None and tasks:
        return run_with_scheduler(sweep, tasks, scheduler)
    if workers is not None and tasks:
        return run_on_workers(sweep, tasks, min(workers, len(tasks)))
    return run_here(sweep, tasks)


@contextmanager
def _stopped_once(process_ends, how_far):
    """Let Ctrl-C and SIGTERM end the sweep with its parts in order; whoever repeats them only waits.

    Yields an event that is set by the first of them.
    """
    stopped, over = threading.Event(), threading.Event()

    def stop(*_):  # not replaced by SIG_IGN: Python raises an error for a signal that comes while that is done
        if not stopped.is_set():
            stopped.set()
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only that one may set handlers
        yield stopped
        return
    before, shown = {number: signal.signal(number, stop) for number in _STOP}, sys.unraisablehook
    sys.unraisablehook = lambda found: None if found.exc_type is KeyboardInterrupt else shown(found)
    if process_ends:
        threading.Thread(target=_give_up, args=(stopped, over, how_far), daemon=True).start()
    try:
        yield stopped
    finally:
        over.set()
        if not (stopped.is_set() and process_ends):
            stopped.set()
            sys.unraisablehook = shown
            for number, handler in before.items():
                signal.signal(number, handler)


def _give_up(stopped, over, how_far):
    """End a process some seconds after it was stopped, whatever it waits for."""
    stopped.wait()
    if not over.wait(_STOP_S):
        say(how_far())
        os._exit(_EXIT_INTERRUPTED)
