"""Imports go one way, and nothing heavy is loaded that is not used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "ppmodel"
_TABLE = {"caches", "errors", "ops", "marked", "compiled", "kernels", "tables"}
_GRAPH = {
    "errors",
    "ops",
    "given",
    "caches",
    "compiled",
    "kernels",
    "tables",
    "schedules",
    "specs",
    "costs",
    "simulation",
    "metrics",
}
MAY_IMPORT = {
    "caches": set(),
    "errors": set(),
    "ops": {"errors"},
    "compiled": {"errors", "caches"},
    "kernels": {"ops", "compiled"},
    "marked": set(),
    "given": set(),
    "files": {"errors"},
    "tables": _TABLE - {"tables"},
    "formulas": {"errors"},
    "schedules": {"errors", "files", "ops", "compiled", "kernels", "tables", "formulas", "given", "caches"},
    "specs": {"errors", "files", "given"},
    "costs": {"errors", "given", "caches", "ops", "compiled", "kernels", "specs"},
    "simulation": {"errors", "ops", "compiled", "kernels", "caches", "tables", "costs"},
    "metrics": {"errors", "ops", "compiled", "kernels", "tables", "costs", "simulation"},
    "optimum": {"errors", "caches", "ops", "tables", "schedules", "costs", "simulation", "metrics"},
    "export": _TABLE | {"files", "costs", "simulation", "metrics"},
    "points": _GRAPH,
    "noise": _GRAPH | {"points"},
    "analysis": _GRAPH | {"noise", "points", "formulas", "optimum"},
    "measured": _GRAPH | {"files", "points", "export"},
    "workers": {"errors", "files"},
    "sweep": _GRAPH | {"files", "export", "noise", "points", "workers"},
    "planning": _GRAPH | {"files", "points", "noise", "workers"},
    "plot": {"errors", "files", "ops", "tables", "schedules", "simulation", "metrics", "marked", "points"},
    "__init__": {"errors", "ops", "tables", "schedules"},
}
"""The rooms of the library, from the bottom to the top, and what each may import of the others."""

THE_LIBRARY = set(MAY_IMPORT) - {"__init__"}
MAY_IMPORT |= {"cli": THE_LIBRARY, "__main__": {"cli"}}

DOORS = {
    "tables": {"export", "plot"},  # a table writes, shows and draws itself
    "schedules": {"export"},  # a user's table is read from its file
    "points": {"plot", "export"},  # a run draws and writes itself
    "__init__": {"points", "specs", "export", "planning"},
}
"""What a room may import inside a function, when it is asked for, although it lies above."""

HEAVY = {
    "matplotlib": {"plot"},
    "seaborn": {"plot"},
    "pandas": {"analysis", "measured", "noise", "planning", "plot", "points", "tables"},
    "papermill": set(),
    "numba": {"compiled"},
    "ortools": {"optimum"},
    "pyarrow": {"sweep"},
    "dask": {"workers"},
    "distributed": {"workers"},
    "tqdm": {"workers"},
    "pydantic": {"specs", "sweep", "planning", "measured"},
    "ruamel": {"specs"},
    "nbformat": set(),
    "torch": set(),  # benchmarks and tests alone
}


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path):
    """Every module that a file imports when it runs, and whether it does so inside a function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    tree.body = [node for node in tree.body if node not in for_types]
    inside = {id(node) for outer in ast.walk(tree) if isinstance(outer, ast.FunctionDef) for node in ast.walk(outer)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            whole = node.module == "ppmodel"
            found = [f"{node.module}.{alias.name}" for alias in node.names] if whole else [node.module]
        else:
            continue
        yield from ((name, id(node) in inside) for name in found)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_rooms_import_downwards_only(path):
    """A module imports only the rooms that it may, and only its room loads a heavy library."""
    room = room_of(path)
    for name, inside in imports(path):
        head, *rest = name.split(".")
        if head == "ppmodel" and rest and rest[0] != "__version__":
            doors = DOORS.get(room, set()) if inside else set()
            assert rest[0] in MAY_IMPORT[room] | {room} | doors, f"{room} must not import {name}"
        assert room in HEAVY.get(head, {room}), f"{room} must not import {head}"


def test_the_rule_has_no_cycle():
    """The allowed imports themselves go one way."""
    order = list(MAY_IMPORT)
    for room, allowed in MAY_IMPORT.items():
        assert all(order.index(other) < order.index(room) or room.startswith("__") for other in allowed)


def test_small_runs_load_nothing_heavy():
    """Importing ppmodel and a small simulation load no plotting, tables, notebooks, specifications or clusters."""
    code = (
        "import sys; from ppmodel.cli import main; "
        "main('simulate 1f1b --pp 4 --microbatches 8 --forward 1 --backward 2 --json'.split()); "
        f"print(sorted({{name.split('.')[0] for name in sys.modules}} & {set(HEAVY)}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_other_systems_simulate_and_refuse_generators(tmp_path):
    """Without fork, resource and fcntl a simulation works, and a generator's file is refused in one line."""
    (tmp_path / "mine.py").write_text("")
    code = (
        "import os, sys; del os.fork; sys.modules |= dict.fromkeys(('resource', 'fcntl')); "
        "from ppmodel.cli import main; costs = '--pp 4 --microbatches 8 --forward 1 --backward 2'.split(); "
        "print(main(['simulate', '1f1b', *costs]), main(['simulate', 'mine.py', *costs]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 2"
    (line,) = done.stderr.splitlines()
    assert "mine.py" in line
    assert "Linux or macOS" in line
