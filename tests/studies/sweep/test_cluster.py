"""Sweeps on a Dask cluster: the same bytes, whoever comes and goes."""

import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import pytest
from sweeps import PLAIN, SHORT, Counted, run

from ppmodel.cli import main
from ppmodel.studies.sweep import execution, load_sweep, run_sweep
from ppmodel.studies.workers import progress, runners
from ppmodel.studies.workers.store import Store


@contextmanager
def process(*words):
    """A Dask process that is ended with the test, and its standard error."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    started = subprocess.Popen(
        [sys.executable, "-m", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


@pytest.fixture
def cluster():
    """A real scheduler on the loopback; its address, and a function that starts a worker."""
    with ExitStack() as stack:
        words = ("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        scheduler = stack.enter_context(process(*words))
        address = next(found[1] for line in scheduler.stderr if (found := re.search(r"(tcp://[\d.:]+)", line)))

        def worker():
            """Start one, and wait until the scheduler knows it."""
            words = ("distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard")
            started = stack.enter_context(process(*words))
            assert any("Registered to" in line for line in started.stderr)
            return started

        yield address, worker, scheduler


@pytest.mark.long
def test_a_plan_is_the_same_whoever_computes(capsys, cluster):
    """Two workers of a cluster, two processes, and this process alone print the same bytes."""
    address, worker, _ = cluster
    worker(), worker()
    words = ["plan", "--model", "llama3_8b", "--system", "h100", "--gpus", "8", "--global-batch", "16", "--json"]
    words += ["--schedules", "1f1b", "zb-v", "--fix", "pp=4", "cp=1"]
    printed = []
    for more in ([], ["--scheduler", address], ["--workers", "2"]):
        assert main([*words, *more]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] == printed[2]


def test_a_cluster_that_cannot_serve_is_named(file, tmp_path, capsys, monkeypatch, cluster):
    """Workers of another version: one line, and the same workers compute what they can."""
    address, worker, _ = cluster
    words = (file(SHORT), "--out", tmp_path / "r.parquet", "--scheduler", address)
    worker()
    with monkeypatch.context() as patch:
        patch.setattr(runners, "versions", lambda: "ppmodel 9.9")
        said = run(capsys, *words)[2]
        assert re.search(r"\nerror: worker = ppmodel 0.*: differs from ppmodel 9.9; install the same", said)
    assert run(capsys, *words)[0] == 0


def test_a_scheduler_that_goes_away_leaves_the_parts(file, tmp_path, capsys, monkeypatch, cluster, expected):
    """One line, and what is stored stays: this process computes the rest, to the same bytes."""
    address, worker, scheduler = cluster
    worker()
    path, out, put = file(PLAIN), tmp_path / "results.parquet", Store.put

    def put_and_kill(self, chunk, columns):
        put(self, chunk, columns)
        scheduler.send_signal(signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", put_and_kill)
        code, _, message = run(capsys, path, "--out", out, "--scheduler", address)
    assert (code, message.splitlines()[0]) == (2, f"connecting to {address}")
    assert message.splitlines()[1].startswith(f"error: --scheduler = {address}: is gone; restart it")
    kept = len(list(tmp_path.glob("*.parts/part-*.parquet")))
    assert kept > 0
    counted = Counted()
    monkeypatch.setattr(execution, "compute_rows", counted)
    run_sweep(path, out)
    assert len(counted.calls) == len(load_sweep(path).chunks()) - kept
    assert out.read_bytes() == expected[PLAIN]


@pytest.mark.timeout(120)  # who is not told of the wait starts no worker
def test_workers_are_waited_for(file, tmp_path, capsys, monkeypatch, cluster, expected):
    """Before the first one comes, and after it is killed with chunks under way; each chunk is stored once."""
    address, worker, _ = cluster
    path, out, put, started, stored = file(PLAIN), tmp_path / "results.parquet", Store.put, [], []

    def say_and_start(text):
        progress.say(text)
        if text.startswith("waiting"):
            started.append(worker())

    def put_and_kill(self, chunk, columns):
        put(self, chunk, columns)
        stored.append(chunk)
        if len(started) == 1:
            started[0].send_signal(signal.SIGKILL)
            started.append(worker())

    monkeypatch.setattr(runners, "say", say_and_start)
    monkeypatch.setattr(Store, "put", put_and_kill)
    code, _, said = run(capsys, path, "--out", out, "--scheduler", address)
    said = re.sub(r".* so far.*\n", "", said)  # progress, on a slow machine
    waiting = f"waiting for workers; start some with: dask worker {address} --nthreads 1\n"
    assert (code, said) == (0, f"connecting to {address}\n{waiting}")
    assert sorted(stored) == list(range(len(load_sweep(path).chunks())))
    assert out.read_bytes() == expected[PLAIN]


@pytest.mark.parametrize(
    "address", ["nonsense", "foo://127.0.0.1:1", "tcp://127.0.0.1:1", "tls://127.0.0.1:1", "inproc://x"]
)
def test_an_address_without_a_scheduler_costs_one_line(file, tmp_path, capsys, monkeypatch, address):
    """Badly written, of an unknown kind, or nobody there."""
    monkeypatch.setattr(runners, "_CONNECT_S", 1)
    if address in ("nonsense", "foo://127.0.0.1:1"):  # a client that cannot read it complains when it is collected
        monkeypatch.setattr("distributed.Client", lambda *_, **__: pytest.fail("made a client"))
    code, _, said = run(capsys, file(SHORT), "--out", tmp_path / "r.parquet", "--scheduler", address)
    assert (code, said.count("\n")) == (2, 2)
    assert said.startswith(f"connecting to {address}\nerror: --scheduler = {address}: cannot be reached")
    assert not list(tmp_path.glob("*.parquet"))
