"""The wheel holds the library alone, and works where nothing of the checkout is."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy
import pytest

ROOT = Path(__file__).parents[1]
_MODEL = "--model llama3_70b --system dgx_h100_nodes"
BOOK_COMMANDS = ["notebooks", "run table", "reproduce", "claims", "smoke", "pdf"]


def ran(*command, **options):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # may lead to a clone
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment, **options)


def succeed(*command, **options):
    done = ran(*command, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built as an installer builds it."""
    folder = tmp_path_factory.mktemp("dist")
    succeed(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The command in an environment with the wheel and its dependencies, but without the checkout."""
    folder = tmp_path_factory.mktemp("environment")
    succeed(sys.executable, "-m", "venv", "--without-pip", folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Python reads no further .pth files there, so what is installed in place, as a checkout is, is not found.
    (packages / "dependencies.pth").write_text(str(Path(numpy.__file__).parents[1]))
    pip = sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install"
    succeed(*pip, "--quiet", "--ignore-installed", "--no-deps", "--no-index", "--disable-pip-version-check", wheel)
    return folder / "bin" / "ppmodel"


def test_the_wheel_has_the_library_alone(wheel):
    """Modules of ppmodel and the data that they read: no book, claims, reference data or tests."""
    with zipfile.ZipFile(wheel) as archive:
        names = {Path(name) for name in archive.namelist()}
    modules = {path.relative_to(ROOT) for path in (ROOT / "ppmodel").rglob("*.py")}
    packed = {name for name in names if name.parts[0] == "ppmodel" and name.parts[1] != "data"}
    assert packed == modules | {Path("ppmodel/py.typed"), Path("ppmodel/__init__.pyi")}
    rooms = {name.parts[2] for name in names if name.parts[:2] == ("ppmodel", "data")}
    specifications = {"frameworks", "launchers", "layouts", "models", "systems", "templates"}
    tables = {"columns.csv", "options.csv", "recipes.csv", "remedies.csv", "sources.csv"}
    assert rooms == {"aliases.yaml", "available.yaml", "words.yaml"} | tables | specifications
    assert {name.parts[0] for name in names} == {"ppmodel", wheel.name.replace("-py3-none-any.whl", ".dist-info")}


@pytest.mark.parametrize("costs", ["--forward 1 --backward 2", _MODEL, f"{_MODEL} --tp 8"])
def test_an_installed_library_compares(installed, tmp_path, costs):
    """A comparison in an empty folder, by plain numbers, with a model and a system of the wheel, and with a layout."""
    line = f"compare 1f1b gpipe --pp 4 --microbatches 8 {costs} --csv out.csv"
    assert "1F1B" in succeed(installed, *line.split(), cwd=tmp_path)
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 3


def test_an_installed_library_shows_its_commands(installed, tmp_path):
    """Help needs no book, and names none of its commands."""
    listed = succeed(installed, "--help", cwd=tmp_path)
    assert "compare" in listed
    assert "reproduce" not in listed


@pytest.mark.parametrize("line", BOOK_COMMANDS)
def test_the_books_commands_say_what_they_need(installed, tmp_path, line):
    """Without the book each of its commands is refused in one line, whose remedy is a clone."""
    done = ran(installed, *line.split(), cwd=tmp_path)
    (said,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert "from a clone" in said
