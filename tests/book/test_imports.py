"""The book's package: rooms that import downwards only, and modules without a circle."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "book" / "ppbook"
ORDER = ("errors", "parameters", "check", "measured", "unseen", "pages", "claims", "build", "commands")
"""The rooms, from the bottom up: each may import those before it."""


def module_of(path):
    """The dotted name of a file."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports(path):
    """The book's modules that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "ppbook":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else node.module for name in names)


def test_rooms_import_downwards_only():
    """A module imports only the rooms below its own."""
    for name, path in MODULES.items():
        for other in imports(path):
            rooms = [f"{module}.".split(".")[1] for module in (name, other)]
            places = [ORDER.index(room) if room else -1 for room in rooms]
            assert places[1] <= places[0], f"{name} must not import {other}"


def test_modules_import_in_no_circle():
    """There is an order in which each module finds what it imports."""
    order = TopologicalSorter({name: set(imports(path)) for name, path in MODULES.items()}).static_order()
    assert set(order) == {*MODULES}
