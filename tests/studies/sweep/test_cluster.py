"""Sweeps on a Dask cluster: the same bytes, whoever comes and goes."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager

import pytest
from sweeps import PLAIN, SHORT, Counted, run

from ppmodel.cli import main
from ppmodel.studies.sweep import chunk_bounds, execution, load_sweep, run_sweep, store
from ppmodel.studies.workers import progress, runners


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
    words += ["--schedules", "1f1b", "interleaved-1f1b", "zb-v", "dualpipev"]
    printed = []
    for more in ([], ["--scheduler", address], ["--workers", "2"]):
        assert main([*words, *more]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] == printed[2]


def test_an_empty_address_is_refused(file, tmp_path, capsys):
    """Plainly, and before anything is begun."""
    code, _, said = run(capsys, file(SHORT), "--out", tmp_path / "r.parquet", "--scheduler", "")
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("error: --scheduler = '': must be an address")


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
    path, out, put = file(PLAIN), tmp_path / "results.parquet", store.Store.put

    def put_and_kill(self, chunk, columns):
        put(self, chunk, columns)
        scheduler.send_signal(signal.SIGKILL)

    monkeypatch.setattr(runners, "_LOOK_S", 0.1)
    with monkeypatch.context() as patch:
        patch.setattr(store.Store, "put", put_and_kill)
        code, _, message = run(capsys, path, "--out", out, "--scheduler", address)
    assert (code, message.splitlines()[0]) == (2, f"connecting to {address}")
    assert message.splitlines()[1].startswith(f"error: --scheduler = {address}: is gone; restart it")
    kept = len(list(tmp_path.glob("*.parts/part-*.parquet")))
    assert kept > 0
    counted = Counted()
    monkeypatch.setattr(execution, "compute_rows", counted)
    run_sweep(path, out)
    assert len(counted.calls) == len(chunk_bounds(load_sweep(path))) - 1 - kept
    assert out.read_bytes() == expected[PLAIN]


@pytest.mark.timeout(120)  # who is not told of the second wait starts no second worker
def test_workers_are_waited_for(file, tmp_path, capsys, monkeypatch, cluster, expected):
    """Before the first one comes, and after the last one is killed with chunks under way; each chunk is stored once."""
    address, worker, _ = cluster
    path, out, put, started, stored = file(PLAIN), tmp_path / "results.parquet", store.Store.put, [], []

    def say_and_start(text):
        progress.say(text)
        if text.startswith("waiting"):
            started.append(worker())

    def put_and_kill(self, chunk, columns):
        put(self, chunk, columns)
        stored.append(chunk)
        if len(started) == 1:
            started[0].send_signal(signal.SIGKILL)

    monkeypatch.setattr(runners, "_LOOK_S", 0.1)
    monkeypatch.setattr(runners, "say", say_and_start)
    monkeypatch.setattr(store.Store, "put", put_and_kill)
    code, _, said = run(capsys, path, "--out", out, "--scheduler", address)
    waiting = f"waiting for workers; start some with: dask worker {address} --nthreads 1\n"
    said = re.sub(r".* left\n", "", said)  # progress, on a slow machine
    assert (code, said) == (0, f"connecting to {address}\n{waiting}{waiting}")
    assert sorted(stored) == list(range(len(chunk_bounds(load_sweep(path))) - 1))
    assert out.read_bytes() == expected[PLAIN]


@pytest.mark.parametrize(
    "address", ["nonsense", "foo://127.0.0.1:1", "tcp://127.0.0.1:1", "tls://127.0.0.1:1", "inproc://x"]
)
def test_an_address_without_a_scheduler_costs_one_line(file, tmp_path, capsys, monkeypatch, address):
    """Badly written, of an unknown kind, or nobody there."""
    monkeypatch.setattr(runners, "_CONNECT_S", 0.3)
    code, _, said = run(capsys, file(SHORT), "--out", tmp_path / "r.parquet", "--scheduler", address)
    assert (code, said.count("\n")) == (2, 2)
    assert said.startswith(f"connecting to {address}\nerror: --scheduler = {address}: cannot be reached")
    assert not list(tmp_path.glob("*.parquet"))


def _silent(connection):
    connection.recv(1)


def _web(connection):
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def _garbage(connection):
    connection.sendall(bytes(range(256)) * 9)


@pytest.mark.parametrize("answer", [_silent, _web, _garbage])
def test_a_port_of_something_else_costs_one_line(file, tmp_path, capsys, monkeypatch, answer):
    """Whatever listens there, the answer comes in time and nothing is left."""
    monkeypatch.setattr(runners, "_CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            while True:
                held.append(server.accept()[0])
                answer(held[-1])

        held, address = [], f"tcp://127.0.0.1:{server.getsockname()[1]}"
        threading.Thread(target=serve, daemon=True).start()
        code, _, said = run(capsys, file(SHORT), "--out", tmp_path / "r.parquet", "--scheduler", address)
    assert (code, said.count("\n")) == (2, 2)
    why = "no answer within 0.5 s" if answer is _silent else "what answers is not a Dask scheduler"
    assert f"cannot be reached ({why})" in said
    assert not list(tmp_path.glob("*.parquet*"))
