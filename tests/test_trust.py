"""The three promises: data never runs code, a generator's file is its user's code, an output is whole or absent."""

import re
import string
from contextlib import suppress
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from test_predict import ROW, write

from ppmodel import build, compare
from ppmodel.clusters.specs import DATA, load_layout, load_model, load_system
from ppmodel.errors import PPModelError
from ppmodel.studies.measured import predicted, read_rows
from ppmodel.studies.measured.calibrate import measured_data
from ppmodel.studies.sweep import load_sweep
from ppmodel.tables import parse_table, read_table

TEMPLATES = DATA / "templates"
DOCUMENTS = {"layout": load_layout, "model": load_model, "system": load_system, "sweep": load_sweep}
POISONS = [
    "evil.py", "./evil.py:depth=1", "evil", "evil.yaml", "__import__('os').system('touch ran')",
    "!!python/object/apply:os.system ['touch ran']", "$(touch ran)", "{{ 7 * 7 }}", "../../etc/passwd", "%s%n",
]  # fmt: skip


@pytest.fixture
def poisoned(tmp_path, monkeypatch):
    """A folder whose files leave a mark if they run."""
    monkeypatch.chdir(tmp_path)
    for name in ("evil", "evil.py"):
        Path(name).write_text("open('ran', 'w').close()\n")
    Path("evil.yaml").write_text("a: !!python/object/apply:os.system ['touch ran']\n")
    yield
    assert not Path("ran").exists()


def places(node):
    """The places of all values of a document."""
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        yield node, key
        if isinstance(value, dict | list):
            yield from places(value)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_specification_runs_no_code(kind):
    """Whatever text stands in place of a value, here of every third; a sweep alone has a key for files of code."""
    document, poisons = YAML().load((TEMPLATES / f"{kind}.yaml").read_text()), cycle(POISONS)
    for node, key in list(places(document))[::3]:
        kept, node[key] = node[key], next(poisons)
        with open("own.yaml", "w", encoding="utf-8") as target:
            YAML().dump(document, target)
        with suppress(PPModelError):
            DOCUMENTS[kind]("own.yaml")
        node[key] = kept


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("poison", POISONS)
def test_a_row_or_a_table_runs_no_code(poison):
    """In each column of a measured run, and each line of a table."""
    system = load_system("dgx_h100_nodes")
    for name in (*ROW, "precision", "pipeline_runs", "gpus", "status", "source"):
        path = write("rows.csv", ROW | {"iteration_s": "9"} | {name: poison})
        with suppress(PPModelError):
            predicted(read_rows(path)[1][0], system)
        with suppress(PPModelError):
            measured_data([path], system)
    lines = ["# ppmodel table 1", "# schedule: mine", "# letters: pytorch", "rank,0,1", "0,0F0,0B0"]
    for place, line in enumerate(lines):
        for text in (poison, line.replace("mine", poison).replace("pytorch", poison).replace("0F0", poison)):
            Path("own.csv").write_text("\n".join([*lines[:place], text, *lines[place + 1 :]]))
            with suppress(PPModelError):
                read_table("own.csv")


def test_an_edited_generator_is_another_one(tmp_path):
    """The table follows the file, which may import a module beside it; a case that was made before keeps its own."""
    path = tmp_path / "mine.py"
    text = (
        "from beside_mine import BASE\nfrom ppmodel import build\nfrom ppmodel.schedules.registry import schedule\n"
        "@schedule('mine', label='mine', title='t', legal='any')\ndef mine(s, b): return build(BASE, s, b)\n"
    )
    (tmp_path / "beside_mine.py").write_text("BASE = '1f1b'\n")
    path.write_text(text)
    before = compare([path], pp=4, microbatches=8, forward=1, backward=2)
    path.write_text(text.replace("BASE,", "'gpipe',"))
    after = compare([path], pp=4, microbatches=8, forward=1, backward=2)
    assert (before.peak_activations.tolist(), after.peak_activations.tolist()) == ([4], [8])
    assert build(path, 4, 8).rows() == build("gpipe", 4, 8).rows()


NASTY = [
    "", " ", "\t", "\n", "\0", "\x1b[31m", "\ufeff", "\u202e", "日本", "😀", "*a", "&a [*a]", "<<: *a", "{{ 7*7 }}",
    "<script>alert(1)</script>", "=1+1", "---", "[" * 100, "{" * 50, "]", "}", ":", "'", '"', "#", "|", ">", "1e309",
    "nan", ".inf", "-0", "0x10", "1_000", "9" * 5000, "true", "null", "2026-01-01", "%", "@", "`", "0F0&", "0F0@99999",
    "0F999999999", "999999999F0", "R", "0R", "0I0", ";", "OVERLAP_F_B", "(0F0;0B0)OVERLAP_F_B", "# letters: other",
    "# stage_shares: 1e308 1e308", "# stage_shares: 1e-300 1", "# microbatches: 0", "# microbatches: 99999999999",
]  # fmt: skip


@st.composite
def mutated(draw, text):
    """A good file with a few pieces cut out, doubled, swapped or replaced by something nasty."""
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.integers(0, 40)))
        piece = draw(st.sampled_from([*NASTY, text[begin:end] * 2, text[end : end + 30]]) | st.text(max_size=8))
        text = text[:begin] + piece + text[end:]
    return text


def read_or_refused(read, given):
    """Hold that reading comes to a value, or to an error that is one plain, short line."""
    try:
        read(given)
    except PPModelError as error:
        line = str(error)
        assert line.isprintable()
        assert len(line) < 1500
        assert re.match(r"(.* = .*:|.* is) .*; .*", line), line


@pytest.mark.parametrize("kind", DOCUMENTS)
@settings(max_examples=60)
@given(data=st.data())
def test_any_file_is_read_or_refused(kind, data, tmp_path_factory):
    """A specification with anything in its file is read, or refused in one line."""
    path = tmp_path_factory.mktemp("files") / "mine.yaml"
    lines = (TEMPLATES / f"{kind}.yaml").read_text().splitlines(keepends=True)
    text = mutated("".join(line for line in lines if kind != "sweep" or not line.startswith("#")))
    drawn = data.draw(text | st.text(alphabet=string.printable, max_size=100))
    path.write_text(drawn, encoding="utf-8", errors="surrogateescape")
    read_or_refused(DOCUMENTS[kind], path)


@settings(max_examples=200)
@given(text=mutated((TEMPLATES / "my_table.csv").read_text()) | st.text(max_size=100))
def test_any_table_is_read_or_refused(text):
    """A table with anything in it is a schedule, or refused in one line."""
    read_or_refused(parse_table, text)
