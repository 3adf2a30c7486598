"""Processes on this machine that execute a job: one for each rank, and none is left when it ends."""

import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from ppmodel.errors import PPModelError

_POLL_S = 0.02


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
        raise PPModelError("torch", None, "is not installed", "make execute, or pip install -e '.[execute]'")
    size = str(len(job["programs"][0]["rows"]))
    world = os.environ | {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "OMP_NUM_THREADS": "1"}
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with tempfile.TemporaryDirectory(prefix="ppmodel-") as name:
        folder, done = Path(name), 0
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        command = [sys.executable, "-P", "-m", "ppmodel.execution.rank", name]
        with subprocess.Popen(command, env=world, text=True, **streams) as process:  # all end when their input does
            while process.poll() is None or (folder / f"done-{done}").exists():
                if (folder / f"done-{done}").exists():
                    say(done)
                    done += 1
                else:
                    time.sleep(_POLL_S)
            if process.returncode:
                field, _, rule = process.stderr.read().strip().rpartition("\n")[-1].partition(": ")
                remedy = "see whether memory suffices" if "killed" in rule else "check the table and the workload"
                raise PPModelError(field, None, rule, remedy)
        return json.loads((folder / "results-0.json").read_text(encoding="utf-8"))
