"""Imports go one way, and nothing heavy is loaded that is not used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "ppmodel"
MAY_IMPORT = {
    "errors": set(),
    "ops": {"errors"},
    "kernels": {"ops"},
    "compiled": {"kernels"},
    "grid": set(),
    "schedule": {"errors", "ops", "compiled", "grid"},
    "formulas": {"errors"},
    "schedules": {"errors", "ops", "compiled", "schedule", "formulas"},
    "specs": {"errors"},
    "costs": {"errors", "ops", "specs"},
    "graph": {"errors", "ops", "compiled", "schedule"},
    "engine": {"errors", "ops", "compiled", "schedule", "graph", "costs"},
    "metrics": {"errors", "ops", "schedule", "costs", "engine"},
    "optimum": {"errors", "ops", "schedule", "costs", "graph", "engine", "metrics"},
    "uncertainty": {"errors", "ops", "compiled", "engine", "metrics"},
    "export": {"errors", "ops", "schedule", "graph", "engine", "metrics"},
    "studies": {
        "errors",
        "ops",
        "grid",
        "schedule",
        "schedules",
        "formulas",
        "specs",
        "costs",
        "graph",
        "engine",
        "uncertainty",
        "metrics",
        "export",
        "optimum",
    },
    "report": set(),
    "sweep": {"errors", "ops", "compiled", "schedules", "specs", "costs", "graph", "engine", "metrics", "uncertainty"},
    "claims": {
        "report",
        "errors",
        "compiled",
        "schedules",
        "formulas",
        "specs",
        "costs",
        "graph",
        "engine",
        "metrics",
        "studies",
    },
    "plot": {"ops", "schedule", "engine", "metrics"},
    "parameters": {"errors", "schedules", "graph", "specs", "uncertainty", "export"},
    "reproduce": {"errors", "specs", "studies", "claims", "parameters"},
    "cli": {
        "errors",
        "ops",
        "schedule",
        "schedules",
        "specs",
        "costs",
        "graph",
        "engine",
        "metrics",
        "claims",
        "export",
        "sweep",
        "reproduce",
    },
    "__init__": {"errors", "ops", "schedule", "schedules"},
    "__main__": {"cli"},
}
HEAVY = {
    "matplotlib": {"plot", "report"},
    "seaborn": {"plot"},
    "pandas": {"studies", "claims", "report"},
    "papermill": {"reproduce"},
    "numba": {"kernels"},
    "ortools": {"optimum"},
    "pyarrow": {"sweep"},
    "dask": {"sweep"},
    "distributed": {"sweep"},
    "tqdm": {"claims", "reproduce", "sweep"},
    "pydantic": {"specs", "claims", "sweep"},
    "ruamel": {"specs", "parameters", "reproduce"},
    "nbformat": {"reproduce"},
}


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path):
    """Every module that a file imports, at whatever depth."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (
                (f"{node.module}.{alias.name}" for alias in node.names) if node.module == "ppmodel" else [node.module]
            )


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_rooms_import_downwards_only(path):
    """A module imports only the rooms that it may, and only its room loads a heavy library."""
    room = room_of(path)
    for name in imports(path):
        head, *rest = name.split(".")
        if head == "ppmodel" and rest and rest[0] != "__version__":
            assert rest[0] in MAY_IMPORT[room] | {room}, f"{room} must not import {name}"
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
        "main('simulate 1f1b --stages 4 --microbatches 8 --forward 1 --backward 2 --json'.split()); "
        f"print(sorted({{name.split('.')[0] for name in sys.modules}} & {set(HEAVY)}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
