"""Run chunks here, in processes, or on Dask."""

import logging
import os
import signal
from concurrent.futures import FIRST_COMPLETED, CancelledError, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import islice
from multiprocessing import get_context, parent_process, resource_tracker
from threading import Thread

from ppmodel.errors import PPModelError, SweepError, cause, shown
from ppmodel.studies.workers.progress import say
from ppmodel.studies.workers.versions import versions

_CONNECT_S, _CLOSE_S = 10, 2
_CHUNKS_PER_THREAD = 2
_GO_ON = "the same command then goes on"


def require_installed(**extras):
    """Refuse to go on without some libraries, each given with the extra that brings it.

    >>> require_installed(numpy="none", nonsuch="sweep")
    Traceback (most recent call last):
    ppmodel.errors.SweepError: nonsuch is not installed; in the clone, pip install -e '.[sweep]'
    """
    for library, extra in extras.items():
        if find_spec(library) is None:
            raise SweepError(library, None, "is not installed", f"in the clone, pip install -e '.[{extra}]'")


def require_runner(workers, scheduler):
    """Refuse what `run_tasks` cannot take: two runners, an empty address, or a cluster without its library."""
    if workers is not None and scheduler is not None:
        raise SweepError("--workers", workers, "cannot be combined with --scheduler", "pass one of them")
    if scheduler is not None:
        if not scheduler.strip():
            rule, remedy = "must be an address", "write, for example, tcp://host:8786, or leave out --scheduler"
            raise SweepError("--scheduler", repr(scheduler), rule, remedy)
        require_installed(distributed="cluster")


def run_tasks(compute, job, tasks, workers=None, scheduler=None):
    """Compute chunks in processes of this machine, on a Dask cluster, or in this process if neither is given.

    Close it when it is interrupted, so that its workers end; `contextlib.closing` does.

    Parameters
    ----------
    compute : callable
        A function of a module, which other processes import; takes the job, and the first entry of a chunk and the one
        after its last.
    job : object
        A `Sweep`, or a plan's `Limits`, sent as they are when a task begins.
    tasks : iterable of (int, int, int)
        Chunks, each with its first entry and the one after its last. They are taken when somebody is free to compute.
    workers : int, optional
    scheduler : str, optional
        Address of a Dask scheduler. Workers may come and go; only tasks and results are sent, so no shared files are
        needed.

    Yields
    ------
    chunk : int
    result : object
        What `compute` returns. Only the order of chunks depends on who computes.

    Raises
    ------
    SweepError
        If a worker dies or has other versions than this machine, or a scheduler cannot be reached or is lost.
    """
    if workers is None and scheduler is None:
        for chunk, first, last in tasks:
            with _named(first, last):
                result = compute(job, first, last)
            yield chunk, result
        return
    waiting, under_way = iter(tasks), {}
    with _processes(workers) if scheduler is None else _cluster(scheduler) as (executor, threads):
        while True:
            free = max(0, _CHUNKS_PER_THREAD * threads() - len(under_way))
            unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:  # processes that are started here never see Ctrl-C, which a terminal sends to all of them
                for chunk, *rows in islice(waiting, free):
                    under_way[executor.submit(_of_version, versions(), compute, job, *rows)] = chunk, *rows
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
            if not under_way:
                return
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                chunk, first, last = under_way.pop(future)
                with _named(first, last):
                    result = future.result()
                yield chunk, result


@contextmanager
def _named(first, last):
    """Let errors that are no fault of a row name the rows that cannot be computed."""
    try:
        yield
    except (PPModelError, CancelledError, BrokenProcessPool):
        raise
    except Exception as error:
        rule = f"cannot be computed ({cause(error)})"
        remedy = f"check memory and the workers' logs, choose smaller sizes, or report it; {_GO_ON}"
        raise SweepError("rows", f"{first} to {last - 1}", rule, remedy) from error


def _of_version(expected, compute, *arguments):
    """Call a function on a machine with the same `versions`."""
    if expected != versions():
        raise SweepError("worker", versions(), f"differs from {expected}", "install the same version on all machines")
    return compute(*arguments)


@contextmanager
def _processes(workers):
    """Worker processes of this machine, which import nothing from the current folder."""
    name = "PYTHONSAFEPATH"
    before, os.environ[name] = os.environ.get(name), "1"
    resource_tracker.ensure_running()  # started later, it would unblock Ctrl-C
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin_worker)
    try:
        yield pool, lambda: workers
    except BrokenProcessPool as error:
        remedy = f"check the memory of this machine, or pass fewer; {_GO_ON}"
        raise SweepError("--workers", workers, "have lost one, which was killed or failed", remedy) from error
    except OSError as error:
        rule = f"cannot be started ({error})"
        raise SweepError("--workers", workers, rule, "pass fewer, or leave out --workers") from error
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})
        pool.shutdown(cancel_futures=True)


def _begin_worker():
    """Leave Ctrl-C, which all processes are sent, to the one that started this; end when it has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=lambda: (parent_process().join(), os._exit(1)), daemon=True).start()


@contextmanager
def _cluster(address):
    """The workers of a Dask scheduler, of which there may be none yet."""
    from distributed import Client
    from distributed.comm import resolve_address
    from distributed.utils import silence_logging_cmgr

    say(f"connecting to {shown(address)}")
    with silence_logging_cmgr(logging.CRITICAL):  # we report errors ourselves, in one line
        try:
            resolve_address(address)  # a client that cannot read it waits for 20 s to close
            client = Client(address, timeout=_CONNECT_S, set_as_default=False)
        except Exception as error:  # anything that a bad address, network, protocol or version may cause
            rule = f"cannot be reached ({str(error) or cause(error)})"
            remedy = "check that 'dask scheduler' runs there, and write, for example, tcp://host:8786"
            raise SweepError("--scheduler", address, rule, remedy) from error
        try:
            if not client.nthreads():
                say(f"waiting for workers; start some with: dask worker {address} --nthreads 1")
            yield client.get_executor(pure=False), lambda: max(1, sum(client.nthreads().values()))
        except (OSError, CancelledError) as error:
            raise SweepError("--scheduler", address, "is gone", f"restart it; {_GO_ON}") from error
        finally:
            with suppress(OSError):  # it is gone, as intended
                client.close(timeout=_CLOSE_S)
