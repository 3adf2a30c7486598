"""Who computes the chunks of a job: this process, worker processes of this machine, or the workers of a Dask cluster.

Each runner is a generator that takes the same tasks and yields the same results; only the order of chunks may differ.
It ends early once `signals`, those that ask the job to stop, is no longer empty.
"""

import asyncio
import logging
import os
import signal
from concurrent.futures import FIRST_COMPLETED, CancelledError, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import islice, takewhile
from multiprocessing import get_context, parent_process, resource_tracker
from threading import Thread
from time import monotonic

from ppmodel.errors import PPModelError, SweepError, cause, shown
from ppmodel.studies.workers.progress import say
from ppmodel.studies.workers.versions import versions

_CONNECT_S, _CLOSE_S = 10, 2
_LOOK_S, _NOTICE_S = 0.5, 30
_CHUNKS_PER_THREAD = 2
_GO_ON = "the same command then goes on"


def require_installed(**extras):
    """Refuse to go on without some libraries, each given with the extra that brings it.

    >>> require_installed(numpy="none", nonsuch="sweep")
    Traceback (most recent call last):
    ppmodel.errors.SweepError: nonsuch = nothing: is not installed; install ppmodel with its extra 'sweep'
    """
    for library, extra in extras.items():
        if find_spec(library) is None:
            raise SweepError(library, None, "is not installed", f"install ppmodel with its extra '{extra}'")


def require_runner(workers, scheduler):
    """Refuse what `run_tasks` cannot take: two runners, an empty address, or a cluster without its library."""
    if workers is not None and scheduler is not None:
        raise SweepError("--workers", workers, "cannot be combined with --scheduler", "pass one of them")
    if scheduler is not None:
        if not scheduler.strip():
            rule, remedy = "must be an address", "write, for example, tcp://host:8786, or leave out --scheduler"
            raise SweepError("--scheduler", repr(scheduler), rule, remedy)
        require_installed(distributed="cluster", tqdm="sweep")


def run_tasks(compute, job, tasks, signals, workers=None, scheduler=None):
    """Compute chunks in processes of this machine, on a Dask cluster, or in this process if neither is given.

    Parameters
    ----------
    compute : callable
        A function of a module, which other processes import; takes the job, and the first entry of a chunk and the one
        after its last.
    job : object
        A `Sweep`, or a plan's `Question`.
    tasks : iterable of (int, int, int)
        Chunks, each with its first entry and the one after its last.
    signals : list of int
        Empty until the job is to stop.
    workers : int, optional
    scheduler : str, optional
        Address of a Dask scheduler.

    Yields
    ------
    chunk : int
    result : object
        What `compute` returns.
    """
    if scheduler is not None:
        yield from run_with_scheduler(compute, job, tasks, signals, scheduler)
    elif workers is not None:
        yield from run_on_workers(compute, job, tasks, signals, workers)
    else:
        for chunk, first, last in takewhile(lambda _: not signals, tasks):
            yield chunk, compute(job, first, last)


def run_on_workers(compute, job, tasks, signals, workers):
    """Compute chunks in processes on this machine; see `run_tasks`.

    Parameters
    ----------
    compute, job, tasks, signals
        As in `run_tasks`.
    workers : int
        Number of processes. If one dies, all are restarted, as long as that completes further chunks.

    Raises
    ------
    SweepError
        If the processes cannot be started, or die without completing a chunk.
    """
    missing = {chunk: (chunk, *rows) for chunk, *rows in tasks}
    while missing and not signals:
        before = len(missing)
        try:
            with _starting():
                resource_tracker.ensure_running()  # starting it later would unblock the signal
            with ProcessPoolExecutor(workers, get_context("spawn"), _end_with_parent) as pool:
                for chunk, result in _completed(pool, lambda: workers, compute, job, list(missing.values()), signals):
                    del missing[chunk]
                    yield chunk, result
                if signals:
                    say("stopping the workers...")  # explains why the prompt does not return at once
        except BrokenProcessPool as error:
            if len(missing) == before and not signals:
                _, first, last = next(iter(missing.values()))
                raise _no_rows(first, last, error) from error
        except OSError as error:
            rule = f"cannot be started ({error})"
            raise SweepError("--workers", workers, rule, "pass fewer, or leave out --workers") from error


def run_with_scheduler(compute, job, tasks, signals, address):
    """Compute chunks on the workers of a Dask cluster; see `run_tasks`.

    Parameters
    ----------
    compute, job, tasks, signals
        As in `run_tasks`.
    address : str
        Address of the scheduler, such as ``tcp://host:8786``. Workers may come and go; only tasks and results are sent,
        so no shared files are needed.

    Raises
    ------
    SweepError
        If the scheduler cannot be reached, or its workers have other versions than this machine.
    """
    from distributed.utils import silence_logging_cmgr

    say(f"connecting to {shown(address)}")
    client, noticed = connect(address), float("-inf")

    def threads():
        nonlocal noticed
        number = sum(client.nthreads().values())
        if number:
            noticed = float("-inf")
        elif monotonic() - noticed > _NOTICE_S:
            noticed = monotonic()
            say(f"waiting for workers; start some with: dask worker {address} --nthreads 1")
        return max(1, number)

    with silence_logging_cmgr(logging.CRITICAL):  # we report errors ourselves, in one line
        try:
            yield from _completed(client.get_executor(pure=False), threads, compute, job, tasks, signals)
        except (OSError, CancelledError) as error:
            raise SweepError("--scheduler", address, "is gone", f"restart it; {_GO_ON}") from error
        finally:
            with suppress(OSError):  # it is gone, as intended
                client.close(timeout=_CLOSE_S)


def _completed(executor, threads, compute, job, tasks, signals):
    """Keep a few chunks per thread under way, and yield each as soon as it is done."""
    waiting, under_way = iter(tasks), {}
    while not signals:
        room = max(0, _CHUNKS_PER_THREAD * threads() - len(under_way))
        with _starting():
            for chunk, *rows in islice(waiting, room):
                under_way[executor.submit(_of_version, versions(), compute, job, *rows)] = chunk, *rows
        if not under_way:
            return
        for future in wait(under_way, _LOOK_S, FIRST_COMPLETED).done:
            chunk, first, last = under_way.pop(future)
            try:
                result = future.result()
            except (PPModelError, CancelledError, BrokenProcessPool):
                raise
            except Exception as error:
                raise _no_rows(first, last, error) from error
            yield chunk, result


@contextmanager
def _starting():
    """Let processes started here import nothing from the current folder, and never see Ctrl-C, which all are sent."""
    name = "PYTHONSAFEPATH"
    before, unblocked = os.environ.get(name), signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)


def _of_version(expected, compute, *arguments):
    """What a function computes on a machine with the same `versions`."""
    if expected != versions():
        raise SweepError("worker", versions(), f"differs from {expected}", "install the same version on all machines")
    return compute(*arguments)


def _no_rows(first, last, error):
    rule = f"cannot be computed ({cause(error)})"
    remedy = f"check the workers' memory and logs, or choose smaller sizes; {_GO_ON}"
    return SweepError("rows", f"{first} to {last - 1}", rule, remedy)


def _end_with_parent():
    """Let a worker end when the process that started it is killed, which its executor does not do."""
    Thread(target=lambda: (parent_process().join(), os._exit(1)), daemon=True).start()


def connect(address):
    """Connect to a scheduler, once something at its address says that it is one: a client would wait forever.

    Parameters
    ----------
    address : str

    Returns
    -------
    distributed.Client

    Raises
    ------
    SweepError
        If nothing answers, or something else.
    """
    from distributed import Client

    try:
        with ThreadPoolExecutor(1) as thread:  # a notebook's thread already runs an event loop
            answer = thread.submit(asyncio.run, asyncio.wait_for(_identity(address), _CONNECT_S)).result()
        if answer.get("type") != "Scheduler":
            raise ValueError("what answers is not a Dask scheduler")
        return Client(address, timeout=_CONNECT_S, set_as_default=False)
    except Exception as error:  # anything that a bad address, network, protocol or version may cause
        why = f"no answer within {_CONNECT_S} s" if isinstance(error, TimeoutError) else str(error) or cause(error)
        remedy = "check that 'dask scheduler' runs there, and write, for example, tcp://host:8786"
        raise SweepError("--scheduler", address, f"cannot be reached ({why})", remedy) from error


async def _identity(address):
    """What a server says it is; nothing if it speaks another protocol."""
    from distributed.core import rpc
    from distributed.security import Security

    certificates = Security().get_connection_args("client")
    async with rpc(address, timeout=_CONNECT_S, connection_args=certificates) as server:
        try:
            return await server.identity()
        except (OSError, TypeError):  # nobody there, or TLS without certificates
            raise
        except Exception:
            return {}
