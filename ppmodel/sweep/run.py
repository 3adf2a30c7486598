"""A whole sweep: what is missing is computed, kept part by part, and joined at the end."""

import signal
import threading
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ppmodel.errors import SweepError
from ppmodel.sweep.grid import chunk_bounds
from ppmodel.sweep.progress import progress
from ppmodel.sweep.runners import run_here, run_on_workers, run_with_scheduler
from ppmodel.sweep.specification import load_sweep
from ppmodel.sweep.store import Store, held


class Summary(NamedTuple):
    """What a sweep came to.

    Parameters
    ----------
    out : Path
        The output.
    rows, computed, refused : int
        Rows of the output, those of them that this run computed, and those without numbers. Nothing was to do where
        `computed` is 0 and `refused` None.
    """

    out: Path
    rows: int
    computed: int
    refused: int | None


class SweepStopped(KeyboardInterrupt):
    """A sweep that its user stopped; the text says how far it is."""


def run_sweep(specification, out, workers=None, scheduler=None, force=False):
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
        raise SweepError("--workers", workers, "cannot stand beside --scheduler", "pass one of them")
    if workers is not None or scheduler is not None:
        _require("distributed", "cluster")
    out = _checked_output(out)
    sweep = load_sweep(specification)
    store = Store(out, sweep, chunk_bounds(sweep))
    with held(store):
        if out.exists() and not force:
            return _finished(store, sweep)
        store.begin(force)
        return _completed(store, sweep, workers, scheduler)


def _require(library, extra):
    if find_spec(library) is None:
        raise SweepError(library, None, "is not installed", f"install ppmodel with its extra '{extra}'")


def _checked_output(out):
    """The output's path, if a file may be written there."""
    path = Path(out)
    if path.suffix != ".parquet":
        raise SweepError("--out", out, "must end in .parquet", "write for example --out results.parquet")
    if path.is_dir():
        raise SweepError("--out", out, "is a folder", "name a file in it")
    if not path.parent.is_dir():
        raise SweepError("--out", out, "lies in a folder that does not exist", f"make it: mkdir -p {path.parent}")
    return path


def _finished(store, sweep):
    """The output is there: fine if it is this sweep's, else it is not to be replaced unasked."""
    if not store.is_finished():
        rule = "is there already, and was made from another specification or by another version"
        raise SweepError("--out", store.out, rule, "choose another name, or pass --force to replace it")
    return Summary(store.out, sweep.num_rows, 0, None)


def _completed(store, sweep, workers, scheduler):
    missing = store.missing()
    computed = sum(map(store.rows, missing))
    done = sweep.num_rows - computed
    with _terminated_like_interrupted():
        try:
            with (
                progress(sweep.num_rows, done) as advance,
                closing(_runner(sweep, store, missing, workers, scheduler)) as parts,
            ):
                for chunk, columns in parts:
                    store.put(chunk, columns)
                    done += store.rows(chunk)
                    advance(store.rows(chunk))
            return Summary(store.out, sweep.num_rows, computed, store.finish())
        except KeyboardInterrupt:
            raise SweepStopped(f"{done} of {sweep.num_rows} rows done; the same command goes on") from None


def _runner(sweep, store, chunks, workers, scheduler):
    """Who computes the missing chunks: an iterator over them and their rows, in any order."""
    tasks = [(chunk, int(store.bounds[chunk]), int(store.bounds[chunk + 1])) for chunk in chunks]
    if scheduler is not None and tasks:
        return run_with_scheduler(sweep, tasks, scheduler)
    if workers is not None and tasks:
        return run_on_workers(sweep, tasks, min(workers, len(tasks)))
    return run_here(sweep, tasks)


@contextmanager
def _terminated_like_interrupted():
    """Let SIGTERM end the sweep as Ctrl-C does, with its parts in order."""
    if threading.current_thread() is not threading.main_thread():  # only that one may set handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
