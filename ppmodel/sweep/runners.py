"""Who computes the chunks: this process, workers on this machine, or the workers of an existing Dask cluster.

Each runner is a context that takes the same tasks and yields the same rows; only the order of chunks may differ.
"""

import logging
import signal
from contextlib import closing, contextmanager, suppress
from itertools import islice
from multiprocessing import resource_tracker
from queue import Empty, SimpleQueue
from time import monotonic

from ppmodel.errors import PPModelError, SweepError, cause, shown
from ppmodel.sweep.progress import say
from ppmodel.sweep.rows import compute_rows
from ppmodel.sweep.scheduler import require_scheduler, unreachable
from ppmodel.sweep.versions import versions

_CONNECT_S = 10
_SAY_S = 30
_LOOK_S = 5
_CLOSE_S, _END_S = 2, 10  # of a connection; of workers, which end what they compute: cut short, Dask waits at exit
_CHUNKS_A_THREAD = 2
_GO_ON = "the same command then goes on"


@contextmanager
def run_here(sweep, tasks):
    """Compute chunks in this process.

    Parameters
    ----------
    sweep : Sweep
    tasks : list of (int, int, int)
        Chunks, each with its first row and the one after its last.

    Yields
    ------
    iterator of (int, dict of list)
        Chunks, and the result of `compute_rows` for each.
    """
    yield ((chunk, compute_rows(sweep, first, last)) for chunk, first, last in tasks)


@contextmanager
def run_on_workers(sweep, tasks, workers):
    """Compute chunks in processes on this machine; see `run_here`.

    Parameters
    ----------
    sweep : Sweep
    tasks : list of (int, int, int)
    workers : int
        Number of processes, with one thread each. If one dies, it is restarted.
    """
    with _local_cluster(workers) as cluster, _client(cluster) as client, closing(_run(client, sweep, tasks)) as rows:
        try:
            yield rows
        except KeyboardInterrupt:
            say("stopping the workers...")  # explains why the prompt does not return at once
            raise


@contextmanager
def run_with_scheduler(sweep, tasks, address):
    """Compute chunks on the workers of a Dask cluster; see `run_here`.

    Parameters
    ----------
    sweep : Sweep
    tasks : list of (int, int, int)
    address : str
        Address of the scheduler, such as ``tcp://host:8786``. Workers may come and go; only tasks and rows are sent, so
        no shared files are needed.

    Raises
    ------
    SweepError
        If the scheduler cannot be reached, or its workers have other versions than this machine.
    """
    say(f"connecting to {shown(address)}")
    require_scheduler(address, _CONNECT_S)
    with _client(address) as client, closing(_run(client, sweep, tasks)) as rows:
        _wait_for_workers(client)
        _require_same_versions(client)
        yield rows


@contextmanager
def _local_cluster(workers):
    """Worker processes that ignore Ctrl-C, print nothing and serve no pages."""
    import dask
    from distributed import LocalCluster

    quiet = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with dask.config.set({"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}):
        resource_tracker.ensure_running()  # starting it later would unblock the signal
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # threads and processes inherit it
        try:
            cluster = LocalCluster(
                n_workers=workers, threads_per_worker=1, memory_limit=None, silence_logs=logging.CRITICAL,
                scheduler_kwargs=quiet,
            )  # fmt: skip
        except (OSError, RuntimeError) as error:
            rule = f"cannot be started ({error})"
            raise SweepError("--workers", workers, rule, "pass fewer, or leave out --workers") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            yield cluster
        finally:
            with suppress(OSError):
                cluster.close(timeout=_END_S)


@contextmanager
def _client(address):
    from distributed import Client
    from distributed.utils import silence_logging_cmgr

    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    except Exception as error:  # anything a scheduler of another version may cause
        raise unreachable(address, error) from error
    with silence_logging_cmgr(logging.CRITICAL):  # we report errors ourselves, in one line
        try:
            yield client
        finally:
            with suppress(OSError):  # it is gone, as intended
                client.close(timeout=_CLOSE_S)


def _wait_for_workers(client):
    """Wait as long as it takes, with an occasional message."""
    from distributed import TimeoutError

    with _connected(client):
        while not client.nthreads():
            _say_waiting(client)
            with suppress(TimeoutError):
                client.wait_for_workers(1, timeout=_SAY_S)


def _say_waiting(client):
    say(f"waiting for workers; start some with: dask worker {_address(client)} --nthreads 1")


def _require_same_versions(client):
    """Refuse a cluster with a worker that would compute different rows."""
    here = versions()
    for worker, answer in client.run(versions, on_error="return").items():
        if answer != here:
            failed = isinstance(answer, Exception)
            rule = f"cannot run this ppmodel ({answer})" if failed else f"has {answer}, but this machine has {here}"
            raise SweepError("worker", worker, rule, "install the same on all machines")


def _run(client, sweep, tasks):
    """Keep a few chunks per thread in flight, and yield each as soon as it is done."""
    waiting, under_way, ended, said = iter(tasks), {}, SimpleQueue(), float("-inf")
    while True:
        with _connected(client):
            threads = sum(client.nthreads().values())
            for task in islice(waiting, max(0, _CHUNKS_A_THREAD * max(1, threads) - len(under_way))):
                future = client.submit(compute_rows, sweep, *task[1:], versions(), pure=False)
                under_way[future] = task
                future.add_done_callback(ended.put)
        if not under_way:
            return
        if not threads and monotonic() - said > _SAY_S:
            said = monotonic()
            _say_waiting(client)
        try:
            future = ended.get(timeout=_LOOK_S)
        except Empty:
            continue
        chunk, first, last = under_way[future]
        with _connected(client):
            try:
                rows = _rows_of(future, first, last)
            except TimeoutError:  # its worker is gone, with its rows: compute them again
                ended.put(future)
                continue
        del under_way[future]
        yield chunk, rows


def _rows_of(future, first, last):
    """The rows of a chunk, or a one-line error; `TimeoutError` if no worker delivers them soon."""
    from distributed import CancelledError

    error = future.exception(timeout=_LOOK_S)
    if error is None:
        return future.result(timeout=_LOOK_S)
    if isinstance(error, PPModelError | CancelledError):
        raise error
    rule = f"cannot be computed ({cause(error)})"
    remedy = f"check the workers' memory and logs, or choose smaller sizes; {_GO_ON}"
    raise SweepError("rows", f"{first} to {last - 1}", rule, remedy)


@contextmanager
def _connected(client):
    """Report in one line that the scheduler is gone."""
    from distributed import CancelledError

    try:
        yield
    except (OSError, CancelledError) as error:
        raise SweepError("scheduler", _address(client), "is gone", f"restart it; {_GO_ON}") from error


def _address(client):
    return client.scheduler.address if client.scheduler else "connection"
