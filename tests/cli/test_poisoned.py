"""Data never runs, and never names a file: every text of every format, poisoned."""

import os
import sys
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from test_predict import ROW, write

from ppmodel.clusters.specs import DATA, load_layout, load_model, load_system
from ppmodel.errors import PPModelError
from ppmodel.studies.measured import predicted, read_rows
from ppmodel.studies.measured.calibrate import measured_data
from ppmodel.tables import read_table

POISONS = [
    "evil.py", "./evil.py:depth=1", "../../etc/passwd", "/etc/passwd", "evil.yaml",
    "__import__('os').system('touch ran')",
    "!!python/object/apply:os.system ['touch ran']", "$(touch ran)", "=cmd|' /C touch ran'!A0", "{{ 7 * 7 }}", "%s%n",
]  # fmt: skip
SYSTEM = load_system("dgx_h100_nodes")
_watched = []


def _note(event, arguments):
    if _watched and event in ("open", "os.system", "subprocess.Popen", "os.posix_spawn", "exec"):
        _watched[-1].append((event, arguments))


sys.addaudithook(_note)


@contextmanager
def nothing_else(*named):
    """Hold that nothing is started, and nothing opened in the folder or with a poisoned name but the files named."""
    events = []
    _watched.append(events)
    try:
        yield
    finally:
        _watched.clear()
    allowed = {os.path.realpath(path) for path in named}
    for event, (what, *_) in events:
        if event == "open":
            path = os.path.realpath(what) if isinstance(what, str) else ""
            is_far = not path.startswith(os.getcwd()) and "passwd" not in path and "evil" not in path
            assert is_far or path in allowed, (event, what)
        elif event == "exec":
            assert "evil" not in what.co_filename
        else:
            raise AssertionError((event, what))
    assert not Path("ran").exists()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("open('ran', 'w').close()\n")
    Path("evil.yaml").write_text("a: !!python/object/apply:os.system ['touch ran']\n")


def texts(node):
    """The places of all texts of a document."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, dict | list):
            yield from texts(value)
        elif isinstance(value, str):
            yield node, key


FILES = [
    (load_model, "models/deepseek_v3.yaml"), (load_system, "systems/a2_highgpu_8g.yaml"),
    (load_layout, "layouts/llama3_405b_8k.yaml"),
]  # fmt: skip


@pytest.mark.parametrize(("load", "file"), FILES, ids=[file for _, file in FILES])
def test_a_specification_is_data(load, file):
    """A model, a system with its topology or a layout is read or refused, and nothing else happens."""
    document, path, poison = YAML().load((DATA / file).read_text()), Path("own.yaml"), cycle(POISONS)

    def read():
        with open(path, "w", encoding="utf-8") as target:
            YAML().dump(document, target)
        with nothing_else(path), suppress(PPModelError):
            load(path)

    places = list(texts(document))
    for node, key in places:
        if key != "source":
            node[key], kept = next(poison), node[key]
            read()
            node[key] = kept
    for number in range(len(POISONS)):  # sources may say anything: all of them at once
        for place, (node, key) in enumerate(places):
            if key in ("source", "title"):
                node[key] = POISONS[(number + place) % len(POISONS)]
        document[POISONS[number]] = POISONS[number]
        read()
        del document[POISONS[number]]
        read()


@pytest.mark.parametrize("poison", POISONS)
def test_a_row_of_a_measured_run_is_data(poison):
    """In each column, for `predict` and for `calibrate`."""
    for name in (*ROW, "precision", "flushes", "gpus", "status", "source"):
        path = write("rows.csv", ROW | {"iteration_s": "9"} | {name: poison})
        with nothing_else(path), suppress(PPModelError):
            predicted(read_rows(path)[1][0], SYSTEM)
        with nothing_else(path), suppress(PPModelError):
            measured_data([path], SYSTEM)


@pytest.mark.parametrize("poison", POISONS)
def test_a_table_is_data(poison):
    """Its cells, the names of its comments and what they say."""
    lines = ["# ppmodel table 1", "# schedule: mine", "# letters: pytorch", "rank,0,1", "0,0F0,0B0"]
    for place, line in enumerate(lines):
        for text in (poison, line.replace("mine", poison).replace("pytorch", poison).replace("0F0", poison)):
            Path("own.csv").write_text("\n".join([*lines[:place], text, *lines[place + 1 :]]))
            with nothing_else("own.csv"), suppress(PPModelError):
                read_table("own.csv")
