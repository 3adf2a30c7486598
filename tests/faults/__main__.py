"""Seed each fault of `faults.yaml` into a copy of the checkout, and run the two-minute tier there until it is red.

python -m tests.faults [NAME ...]

Prints each fault with the first test that fails. The exit code is 1 if the tier stays green under any of them.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.faults.seeded import ROOT, faults, seed

_COPIED = "ppmodel", "tests", "data", "benchmarks", "pyproject.toml", "Makefile", "README.md"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


def tier():
    """Tests of the two-minute tier, as the Makefile names them."""
    line = subprocess.run(["make", "-n", "test-fast"], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()[-1]
    return [word for word in line.split() if word.startswith("tests/")]


def first_failure(fault, folder):
    """The first test of the tier that fails under a fault; None if all pass."""
    for name in _COPIED:
        source, ignored = ROOT / name, shutil.ignore_patterns("__pycache__")
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    seed(fault, folder)
    environment = os.environ | {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder.parent / "compiled")}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "-p", "no:cacheprovider", *tier()]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    failed = _FAILED.search(done.stdout)
    return failed[1] if failed else None if done.returncode == 0 else done.stdout[-500:]


def main(names):
    """Try the faults of these names, or all; return the exit code."""
    green = 0
    with tempfile.TemporaryDirectory() as above:
        for fault in faults():
            if names and fault.name not in names:
                continue
            folder = Path(above) / fault.name
            folder.mkdir()
            failed = first_failure(fault, folder)
            green += failed is None
            print(f"{'red' if failed else 'GREEN':6}{fault.name:28}{failed or ''}", flush=True)
            shutil.rmtree(folder)
    return int(green > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
