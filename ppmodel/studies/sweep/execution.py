"""The execution of a sweep: missing rows are computed, stored in parts, and joined at the end."""

import os
import signal
import threading
import warnings
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ppmodel.errors import EXIT_INTERRUPTED, SweepError, counted
from ppmodel.files import checked_target, inputs_spared
from ppmodel.studies.points import NoEffectWarning, without_effect
from ppmodel.studies.sweep.grid import chunk_bounds
from ppmodel.studies.sweep.rows import compute_rows
from ppmodel.studies.sweep.specification import load_sweep
from ppmodel.studies.sweep.store import Store
from ppmodel.studies.workers.progress import progress, say
from ppmodel.studies.workers.runners import require_installed, require_runner, run_tasks

_STOP = signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGQUIT", signal.SIGTERM)
_LOOK_S, _STOP_S = 0.2, 20


class Summary(NamedTuple):
    """The outcome of a sweep.

    Parameters
    ----------
    out : Path
        The output.
    rows : int
        Rows in the output.
    computed : int or None
        Rows that this run computed; None if the output was already complete.
    refused, alike : int
        Rows without numbers, and those of them with the most common reason, apart from numbers in it.
    example : str or None
        The reason of the first of the latter.
    """

    out: Path
    rows: int
    computed: int | None
    refused: int
    alike: int
    example: str | None


class SweepStopped(KeyboardInterrupt):
    """A sweep stopped by its user; the text says how far it got."""


def run_sweep(
    specification, out, workers=None, scheduler=None, force=False, process_ends=False, schedule_files=(),
    links=None,
):  # fmt: skip
    """Compute a sweep, or the part of it that is missing, and write it.

    Parameters
    ----------
    specification : str or Path
        A YAML file; see `load_sweep`.
    out : str or Path
        The output, a Parquet file. Until it is complete, finished rows are kept in a folder next to it, and the same
        call resumes where it stopped. The output is the same to the byte however often it was interrupted and whoever
        computed the rows.
    workers : int, optional
        Processes on this machine; without `scheduler` and `workers`, this process computes. Scripts that use workers
        must guard their calls with ``if __name__ == "__main__":``.
    scheduler : str, optional
        Address of a Dask scheduler; its workers compute.
    force : bool
        Whether to replace the output, or parts, of another sweep.
    process_ends : bool
        Whether the process ends after the sweep is stopped: further signals then have no effect, and
        anything that does not stop within 20 seconds, such as a hanging connection, is abandoned; all parts are intact.
    schedule_files : sequence of str or Path
        Your own generators and tables, in addition to the schedules in the specification.
    links : dict or str, optional
        The links of all rows, as in `simulate`, if the specification has none.

    Returns
    -------
    Summary

    Raises
    ------
    PPModelError
        If the specification, the output or the cluster is refused, or rows cannot be computed.
    SweepStopped
        On Ctrl-C, SIGTERM or SIGQUIT, with the progress so far.
    """
    require_runner(workers, scheduler)
    require_installed(pyarrow="sweep", tqdm="sweep", filelock="sweep")
    out = Path(out)
    if out.suffix != ".parquet":
        raise SweepError("--out", out, "must be a name ending in .parquet", "write --out results.parquet")
    with inputs_spared():
        sweep = load_sweep(specification, schedule_files, links)
        checked_target(out, "--out")
        idle = without_effect(sweep.spread_points(), sweep.asked) if sweep.asked else []
    sweep = replace(sweep, without_effect=tuple(idle))
    for name, value in idle:
        warnings.warn(NoEffectWarning(name, value), stacklevel=2)
    store = Store(out, sweep, chunk_bounds(sweep))
    with store.locked():
        computed = None
        if out.exists():
            store.require_ours(force)
        if force or not out.exists():
            store.begin(force)
            computed = _complete(store, sweep, workers, scheduler, process_ends)
        return Summary(out, sweep.num_rows, computed, *store.refused())


def _complete(store, sweep, workers, scheduler, process_ends):
    """Compute what is missing and write the output; return the number of rows computed."""
    tasks = [(chunk, int(store.bounds[chunk]), int(store.bounds[chunk + 1])) for chunk in store.missing()]
    computed = sum(last - first for _, first, last in tasks)
    done = sweep.num_rows - computed

    def how_far():
        return f"{done} of {counted(sweep.num_rows, 'row')} done; the same command goes on"

    with _stop_signals(process_ends, how_far) as signals:
        runner = workers and min(workers, len(tasks)), scheduler if tasks else None
        parts = run_tasks(compute_rows, sweep, tasks, signals, *runner)
        with closing(parts), progress(sweep.num_rows, done) as advance:
            for chunk, columns in parts:
                store.put(chunk, columns)
                rows = len(columns["refused"])
                done += rows
                advance(rows)
        if signals:
            raise SweepStopped(how_far())
        store.finish()
    return computed


@contextmanager
def _stop_signals(process_ends, how_far):
    """Collect signals that stop: nothing is interrupted, and whoever computes looks at the list now and then."""
    signals, over = [], threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield signals
        return

    def give_up():
        """End the process some seconds after it was asked to stop, whatever it is waiting for."""
        while not signals and not over.wait(_LOOK_S):
            pass
        if not over.wait(_STOP_S):
            say(how_far())
            os._exit(EXIT_INTERRUPTED)

    handlers = {number: signal.signal(number, lambda number, _: signals.append(number)) for number in _STOP}
    if process_ends:
        threading.Thread(target=give_up, daemon=True).start()
    try:
        yield signals
    finally:
        over.set()
        if not (signals and process_ends):
            for number, handler in handlers.items():
                signal.signal(number, handler)
