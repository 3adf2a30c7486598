"""Processes on this machine that execute a job: one for each rank, and none is left when it ends."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from ppmodel.errors import PPModelError

_POLL_S = 0.02
_GRACE_S = 1.0  # for the ranks that fail because another has


def launch(job, say=print):
    """Execute a job in processes on this machine.

    Parameters
    ----------
    job : dict
        From `job_of`.
    say : callable
        Told the number of each program that has ended.

    Returns
    -------
    list of dict
        As `rank.execute` returns them.

    Raises
    ------
    PPModelError
        If PyTorch is missing, or a rank fails or is killed; no process is left.
    """
    if find_spec("torch") is None:
        rule, remedy = "is not installed", "pip install 'ppmodel[execute]'"
        raise PPModelError("torch", None, rule, remedy)
    environment = {name: value for name, value in os.environ.items() if name != "WORLD_SIZE"} | {"OMP_NUM_THREADS": "1"}
    ranks = range(len(job["programs"][0]["rows"]))
    with tempfile.TemporaryDirectory(prefix="ppmodel-") as folder:
        (Path(folder) / "job.json").write_text(json.dumps(job), encoding="utf-8")
        command = [sys.executable, "-P", "-m", "ppmodel.execution.rank", folder]
        with Path(folder, "output").open("wb") as output:
            processes = []
            try:
                for rank in ranks:
                    processes.append(subprocess.Popen(
                        command, env=environment | {"RANK": str(rank)}, stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE if rank == 0 else output, stderr=output,
                    ))  # fmt: skip
                _wait(processes, Path(folder), say)
            finally:
                for process in processes:
                    process.kill()
                for process in processes:
                    process.wait()
                    process.stdin.close()
                    if process.stdout:
                        process.stdout.close()
        return json.loads(Path(folder, "results.json").read_text(encoding="utf-8"))


def _wait(processes, folder, say):
    """Wait for all ranks, and say what has ended."""
    os.set_blocking(processes[0].stdout.fileno(), False)
    text = b""
    while True:
        codes = [process.poll() for process in processes]
        with suppress(BlockingIOError):
            text += processes[0].stdout.read() or b""
        *lines, text = text.split(b"\n")
        for line in lines:
            if line.isdigit():
                say(int(line))
        if any(codes):
            raise _failure(processes, folder)
        if codes == [0] * len(codes):
            return
        time.sleep(_POLL_S)


def _failure(processes, folder):
    """The error of the rank that failed first."""
    for rank, process in enumerate(processes):
        code = process.poll()
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            return PPModelError(f"rank {rank}", None, f"was killed by {name}", "see whether memory suffices")
    time.sleep(_GRACE_S)
    errors = []
    for rank in range(len(processes)):
        with suppress(FileNotFoundError, json.JSONDecodeError):
            errors.append((*json.loads((folder / f"error-{rank}.json").read_text(encoding="utf-8")), rank))
    if errors:
        _, text, rank = min(errors)
        return PPModelError(f"rank {rank}", None, f"has failed: {text}", "check the table and the workload")
    output = (folder / "output").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    rank = next(rank for rank, process in enumerate(processes) if process.poll())
    reason = f": {output[-1]}" if output else ""
    return PPModelError(f"rank {rank}", None, f"has ended with {processes[rank].poll()}{reason}", "check PyTorch")
