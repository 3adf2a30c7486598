"""Who computes the chunks: this process, workers on this machine, or the workers of an existing Dask cluster.

Each runner is a context that takes the same tasks and gives the same rows; only the order of the chunks may differ.
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
_CLOSE_S = 2
_CHUNKS_A_THREAD = 2
_GO_ON = "the same command then goes on"


@contextmanager
def run_here(sweep, tasks):
    """Compute chunks in this process.

    Parameters
    ----------
    sweep : Sweep
    tasks : list of (int, int, int)
        Chunks, with their first row and the one after their last.

    Yields
    ------
    iterator of (int, dict of list)
        Chunks, and what `compute_rows` gives of them.
    """
    yield ((chunk, compute_rows(sweep, first, last)) for chunk, first, last in tasks)


@contextmanager
def run_on_workers(sweep, tasks, workers):
    """Compute chunks on processes of this machine; see `run_here`.

    Parameters
    ----------
    sweep : Sweep
    tasks : list of (int, int, int)
    workers : int
        Processes of one thread each. One that dies is started again.
    """
    with _local_cluster(workers) as cluster, _client(cluster) as client, closing(_run(client, sweep, tasks)) as rows:
        try:
            yield rows
        except KeyboardInterrupt:
            say("stopping the workers...")  # why the prompt is not back at once
            raise


@contextmanager
def run_with_scheduler(sweep, tasks, address):
    """Compute chunks on the workers of a Dask cluster; see `run_here`.

    Parameters
    ----------
    sweep : Sweep
    tasks : list of (int, int, int)
    address : str
        Of the scheduler, such as ``tcp://host:8786``. Workers may come and go; nothing but the tasks and their rows
        travels, so that they need no common files.

    Raises
    ------
    SweepError
        If the scheduler cannot be reached, or the versions of its workers differ from those here.
    """
    say(f"connecting to {shown(address)}")
    require_scheduler(address, _CONNECT_S)
    with _client(address) as client, closing(_run(client, sweep, tasks)) as rows:
        _wait_for_workers(client)
        _require_same_versions(client)
        yield rows


@contextmanager
def _local_cluster(workers):
    """Worker processes that hear nothing of Ctrl-C, write nothing, and serve no pages."""
    import dask
    from distributed import LocalCluster

    quiet = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with dask.config.set({"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}):
        resource_tracker.ensure_running()  # whose start would unblock the signal again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # threads and processes inherit it
        try:
            cluster = LocalCluster(
                n_workers=workers, threads_per_worker=1, memory_limit=None, silence_logs=logging.CRITICAL,
                scheduler_kwargs=quiet,
            )  # fmt: skip
        except (OSError, RuntimeError) as error:
            rule = f"cannot be started ({error})"
            raise SweepError("--workers", workers, rule, "pass fewer, or leave --workers away") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            yield cluster
        finally:
            with suppress(OSError):
                cluster.close(timeout=_CLOSE_S)


@contextmanager
def _client(address):
    from distributed import Client
    from distributed.utils import silence_logging_cmgr

    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    except Exception as error:  # whatever a scheduler of another version comes to
        raise unreachable(address, error) from error
    with silence_logging_cmgr(logging.CRITICAL):  # what goes wrong is said in one line, by us
        try:
            yield client
        finally:
            with suppress(OSError):  # it has gone, which is what is wanted
                client.close(timeout=_CLOSE_S)


def _wait_for_workers(client):
    """Wait, as long as it takes, and say so now and then."""
    from distributed import TimeoutError

    with _connected(client):
        while not client.nthreads():
            _say_waiting(client)
            with suppress(TimeoutError):
                client.wait_for_workers(1, timeout=_SAY_S)


def _say_waiting(client):
    say(f"waiting for workers; start some with: dask worker {_address(client)} --nthreads 1")


def _require_same_versions(client):
    """Refuse a cluster with a worker that would compute other rows."""
    here = versions()
    for worker, answer in client.run(versions, on_error="return").items():
        if answer != here:
            failed = isinstance(answer, Exception)
            rule = f"cannot run this ppmodel ({answer})" if failed else f"has {answer}, and here is {here}"
            raise SweepError("worker", worker, rule, "install the same on all machines")


def _run(client, sweep, tasks):
    """Keep some chunks a thread under way, and yield each as soon as it is done."""
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
            except TimeoutError:  # its worker has gone and took the rows along: they are computed again
                ended.put(future)
                continue
        del under_way[future]
        yield chunk, rows


def _rows_of(future, first, last):
    """The rows of a chunk, or why there are none, in one line; `TimeoutError` if no worker gives them soon."""
    from distributed import CancelledError

    error = future.exception(timeout=_LOOK_S)
    if error is None:
        return future.result(timeout=_LOOK_S)
    if isinstance(error, PPModelError | CancelledError):
        raise error
    rule = f"cannot be computed ({cause(error)})"
    remedy = f"look at the workers' memory and logs, or choose smaller sizes; {_GO_ON}"
    raise SweepError("rows", f"{first} to {last - 1}", rule, remedy)


@contextmanager
def _connected(client):
    """Say in one line that the scheduler is gone."""
    from distributed import CancelledError

    try:
        yield
    except (OSError, CancelledError) as error:
        raise SweepError("scheduler", _address(client), "has gone", f"start it again; {_GO_ON}") from error


def _address(client):
    return client.scheduler.address if client.scheduler else "connection"
