"""The machine on which the times were taken."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("numpy", "numba", "simpy", "networkx", "torch")


def machine():
    """Describe processor, caches, memory, versions, day and commit.

    Returns
    -------
    dict
        Texts and numbers; packages that are not installed are left out.
    """
    from ppbook.build.provenance import commit_of

    commit, state = commit_of()
    return {
        "processor": _first("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "caches": _caches(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "day": datetime.now(UTC).date().isoformat(),
        "commit": commit,
        "state": state,
    }


def _first(file, key):
    """The value of the first line ``key : value`` of a file."""
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


def _caches():
    """The caches of the first core, such as ``L1 data 48K``."""
    found = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found)


def _version(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None
