"""Who computes the chunks: this process, worker processes of this machine, or the workers of a Dask cluster.

Each runner is a generator that takes the same tasks and yields the same rows; only the order of chunks may differ. It
ends early once `signals`, those that ask the sweep to stop, is no longer empty.
"""

import asyncio
import logging
import os
import signal
from concurrent.futures import FIRST_COMPLETED, CancelledError, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import islice, takewhile
from multiprocessing import get_context, parent_process, resource_tracker
from threading import Thread
from time import monotonic

from ppmodel.errors import PPModelError, SweepError, cause, shown
from ppmodel.sweep.progress import say
from ppmodel.sweep.rows import compute_rows
from ppmodel.sweep.versions import versions

_CONNECT_S, _CLOSE_S = 10, 2
_LOOK_S, _NOTICE_S = 0.5, 30
_CHUNKS_PER_THREAD = 2
_GO_ON = "the same command then goes on"


def run_tasks(sweep, tasks, signals, workers=None, scheduler=None, compute=None):
    """Compute chunks in processes of this machine, on a Dask cluster, or in this process if neither is given.

    Parameters
    ----------
    sweep : Sweep
    tasks : list of (int, int, int)
        Chunks, each with its first row and the one after its last.
    signals : list of int
        Empty until the sweep is to stop.
    workers : int, optional
    scheduler : str, optional
        Address of a Dask scheduler.
    compute : callable, optional
        What is computed of a chunk, `compute_rows` by default; a function of a module, which other processes import.

    Yields
    ------
    chunk : int
    rows : dict of list
        From `compute_rows`.
    """
    compute = compute or compute_rows
    if scheduler is not None:
        yield from run_with_scheduler(sweep, tasks, signals, scheduler, compute)
    elif workers is not None:
        yield from run_on_workers(sweep, tasks, signals, workers, compute)
    else:
        for chunk, first, last in takewhile(lambda _: not signals, tasks):
            yield chunk, compute(sweep, first, last)


def run_on_workers(sweep, tasks, signals, workers, compute):
    """Compute chunks in processes on this machine; see `run_tasks`.

    Parameters
    ----------
    sweep, tasks, signals, compute
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
            with ProcessPoolExecutor(workers, get_context("spawn"), _end_with_parent) as pool:
                resource_tracker.ensure_running()  # starting it later would unblock the signal
                for chunk, rows in _completed(pool, sweep, list(missing.values()), signals, lambda: workers, compute):
                    del missing[chunk]
                    yield chunk, rows
                if signals:
                    say("stopping the workers...")  # explains why the prompt does not return at once
        except BrokenProcessPool as error:
            if len(missing) == before and not signals:
                _, first, last = next(iter(missing.values()))
                raise _no_rows(first, last, error) from error
        except OSError as error:
            rule = f"cannot be started ({error})"
            raise SweepError("--workers", workers, rule, "pass fewer, or leave out --workers") from error


def run_with_scheduler(sweep, tasks, signals, address, compute):
    """Compute chunks on the workers of a Dask cluster; see `run_tasks`.

    Parameters
    ----------
    sweep, tasks, signals, compute
        As in `run_tasks`.
    address : str
        Address of the scheduler, such as ``tcp://host:8786``. Workers may come and go; only tasks and rows are sent, so
        no shared files are needed.

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
            yield from _completed(client.get_executor(pure=False), sweep, tasks, signals, threads, compute)
        except (OSError, CancelledError) as error:
            raise SweepError("--scheduler", address, "is gone", f"restart it; {_GO_ON}") from error
        finally:
            with suppress(OSError):  # it is gone, as intended
                client.close(timeout=_CLOSE_S)


def _completed(executor, sweep, tasks, signals, threads, compute):
    """Keep a few chunks per thread under way, and yield each as soon as it is done."""
    waiting, under_way = iter(tasks), {}
    while not signals:
        room = max(0, _CHUNKS_PER_THREAD * threads() - len(under_way))
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:  # processes that are started here never see Ctrl-C, which a terminal sends to all of them
            for chunk, *rows in islice(waiting, room):
                under_way[executor.submit(_of_version, versions(), compute, sweep, *rows)] = chunk, *rows
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        if not under_way:
            return
        for future in wait(under_way, _LOOK_S, FIRST_COMPLETED).done:
            chunk, first, last = under_way.pop(future)
            try:
                columns = future.result()
            except (PPModelError, CancelledError, BrokenProcessPool):
                raise
            except Exception as error:
                raise _no_rows(first, last, error) from error
            yield chunk, columns


def _of_version(wanted, compute, *arguments):
    """What a function computes on a machine with the same `versions`."""
    if wanted != versions():
        raise SweepError("worker", versions(), f"differs from {wanted}", "install the same version on all machines")
    return compute(*arguments)


def _no_rows(first, last, error):
    rule = f"cannot be computed ({cause(error)})"
    remedy = f"check the workers' memory and logs, or choose smaller sizes; {_GO_ON}"
    return SweepError("rows", f"{first} to {last - 1}", rule, remedy)


def _end_with_parent():
    """Let a worker end when the sweep is killed, which its executor does not do."""
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
