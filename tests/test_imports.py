"""Imports go one way, and nothing heavy is loaded that is not used."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "ppmodel"
CORE = (
    "errors", "caches", "given", "files", "ops", "loops", "tables", "formulas", "schedules", "simulation", "metrics",
)  # fmt: skip
"""The rooms of the core, from the bottom up."""

ORDER = (
    *CORE, "clusters.specs", "clusters.costs", "clusters.memory", "clusters.launch", "export", "studies.points",
    "studies.noise", "studies.analysis", "studies.workers", "studies.measured", "studies.sweep",
    "studies.planning", "plot", "execution", "cli", "execution.__main__", "__main__",
)  # fmt: skip
"""All rooms of the library, from the bottom up: each may import those before it."""

DRAWS = {"tables.schedule", "studies.points.run"}
"""Modules whose classes draw themselves when asked, by `plot`; nothing else imports what lies above it."""

HEAVY = {
    "matplotlib": {"plot"}, "seaborn": {"plot"}, "pandas": {"studies", "plot", "tables"}, "papermill": set(),
    "numba": {"loops"}, "pyarrow": {"studies.sweep", "studies.workers"},
    "dask": {"studies.workers"}, "distributed": {"studies.workers"},
    "pydantic": {"clusters", "studies"}, "ruamel": {"clusters.specs"}, "nbformat": set(), "torch": {"execution"},
}  # fmt: skip


def room_of(name):
    """The room of a module, by the longest name in `ORDER` that begins it; None for the package's own face."""
    return max((room for room in ORDER if f"{name}.".startswith(f"{room}.")), key=len, default=None)


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


def test_rooms_import_downwards_only():
    """A module imports only the rooms below its own, and only its room loads a heavy library."""
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        room = room_of(module)
        for name, inside in imports(path):
            head, _, rest = name.partition(".")
            other = room_of(rest) if head == "ppmodel" else None
            if room and other and not (module in DRAWS and inside and other == "plot"):
                assert ORDER.index(other) <= ORDER.index(room), f"{module} must not import {name}"
            rooms = HEAVY.get(head)
            assert rooms is None or any(f"{module}.".startswith(f"{one}.") for one in rooms), f"{module} loads {head}"


def test_small_runs_load_nothing_heavy():
    """Importing ppmodel and a small simulation load no plotting, tables, notebooks, specifications or clusters."""
    code = (
        "import sys; from ppmodel.cli import main; "
        "main('simulate 1f1b --pp 4 --microbatches 8 --forward 1 --backward 2 --json'.split()); "
        f"print(sorted({{name.split('.')[0] for name in sys.modules}} & {set(HEAVY)}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def code_lines(path):
    """How many lines of a file have code: no docstring, comment or blank."""
    text = path.read_text(encoding="utf-8")
    strings = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr))
    docs = {
        line for node in strings if isinstance(node, ast.Constant) for line in range(node.lineno, node.end_lineno + 1)
    }
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = (token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in layout)
    return len({line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - docs)


def test_the_core_reads_in_an_hour():
    """The reading order names twelve files, from one operation to the bubble, of at most 1,000 lines of code."""
    page = (PACKAGE / "READING.md").read_text()
    files = re.findall(r"^\| \d+ \| \[`(.+?)`\]\(\1\)", page, re.M)
    assert (len(files), files[0], files[-1]) == (12, "ops.py", "metrics/bubbles.py")
    assert all(file.split("/")[0].removesuffix(".py") in CORE for file in files)
    lines = {file: code_lines(PACKAGE / file) for file in files}
    assert sum(lines.values()) <= 1000, lines


def test_no_package_exports_a_name_of_its_modules():
    """Module and function would hide each other."""
    for face in [*Path("ppmodel").rglob("__init__.py"), *Path("book/ppbook").rglob("__init__.py")]:
        modules = {path.stem for path in face.parent.iterdir()}
        nodes = [node for node in ast.walk(ast.parse(face.read_text())) if isinstance(node, ast.ImportFrom)]
        assert not modules & {alias.asname or alias.name for node in nodes for alias in node.names}, face


def test_first_lines_of_studies_say_what_is_returned_or_done():
    """None is a riddle that begins with "What", "Whether" or "Where"."""
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef
    for path in (PACKAGE / "studies").rglob("*.py"):
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]
        assert not [text for node in nodes if (text := ast.get_docstring(node) or "").startswith(("What", "Whe"))]
