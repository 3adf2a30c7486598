"""Processes on this machine that execute a job: one for each rank, and none is left when it ends."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
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
        As `comparison.execute` makes it.
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
        raise PPModelError("torch", None, "is not installed", "pip install 'ppmodel[execute]'")
    size = str(len(job["programs"][0]["rows"]))
    world = os.environ | {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="ppmodel-") as name, ExitStack() as stack:
        folder, processes = Path(name), []
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        command = [sys.executable, "-P", "-m", "ppmodel.execution.rank", name]
        output = stack.enter_context((folder / "output").open("wb"))
        for rank in range(int(size)):
            environment = world | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            streams = {"stdin": subprocess.PIPE, "stdout": output, "stderr": output}  # a rank ends when its input does
            processes.append(stack.enter_context(subprocess.Popen(command, env=environment, **streams)))
            stack.callback(processes[-1].kill)
        codes, done = [None], 0
        while None in codes and not any(codes):
            time.sleep(_POLL_S)
            codes = [process.poll() for process in processes]
            while (folder / f"done-{done}").exists():
                say(done)
                done += 1
        if any(codes):
            raise _failure(processes, folder)
        return json.loads((folder / "results.json").read_text(encoding="utf-8"))


def _failure(processes, folder):
    """The error of the rank that failed first."""
    codes = [process.poll() for process in processes]
    for rank, code in enumerate(codes):
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            return PPModelError(f"rank {rank}", None, f"was killed by {name}", "see whether memory suffices")
    time.sleep(_GRACE_S)
    files = [folder / f"error-{rank}.json" for rank, process in enumerate(processes) if process.poll()]
    errors = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]
    if errors:
        _, rank, text = min(errors, key=lambda error: ("closed by peer" in error[2], error))  # causes before effects
        return PPModelError(f"rank {rank}", None, f"has failed: {text}", "check the table and the workload")
    rank, code = next((rank, code) for rank, code in enumerate(codes) if code)
    output = (folder / "output").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    reason = f": {output[-1]}" if output else ""
    return PPModelError(f"rank {rank}", None, f"has ended with {code}{reason}", "check PyTorch")
