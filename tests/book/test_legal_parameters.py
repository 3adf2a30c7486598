"""A page shows what is defined at any legal parameters, and says in one line what is not."""

import pandas as pd
import papermill
import pytest
from executed import executed
from legal import REFUSED, legal_sets
from nbformat.v4 import new_code_cell, new_notebook
from sizes import PARAMETERS
from test_published import CHECK, KERNEL

from ppbook.build.notebooks import execute, read
from ppbook.build.run import notebook_names, run
from ppbook.parameters import check, declared
from ppmodel.errors import PPModelError

CHEAP = ["hanayo", "memory", "nodes", "runtime", "table", "timeline"]
"""Notebooks of a second each."""
ONCE_BROKEN = [
    ("table", {"schedules": ["stp", "dualpipe"], "pp": 3}),
    ("asymmetric", {"microbatches": [10]}),
    ("nodes", {"microbatches": 7}),
    ("semantics", {"microbatches": [3]}),
    ("bubble", {"schedules": ["v-half"]}),
    ("field", {"systems": ["mid_cp_mid_nw"], "multiples": [1], "picture_multiple": 2}),
    ("own-schedule", {"schedules": [["interleaved-1f1b", {"chunks": 2}]]}),
]
"""Each ended in an error of Python's own."""


def ran(stem, values, folder):
    """Run a notebook up to what it does not define; a cell may refuse its parameters, and nothing else may fail."""
    try:
        executed(stem, values, folder)
    except PPModelError as error:
        if type(error).__name__ not in REFUSED:
            raise


@pytest.mark.parametrize(("stem", "changed"), ONCE_BROKEN)
def test_a_page_says_what_is_not_defined(stem, changed, tmp_path):
    """In one line, by a name of the page or of the library."""
    ran(stem, PARAMETERS[stem] | changed, tmp_path)


@pytest.mark.parametrize("stem", CHEAP)
def test_random_legal_parameters(stem, tmp_path):
    """Values that their kinds allow never end in an error of Python's own."""
    for values in legal_sets(stem, 1):
        ran(stem, values, tmp_path)


@pytest.mark.parametrize(
    ("stem", "name", "value"),
    [
        ("hanayo", "pp", 1), ("asymmetric", "pp", [1]), ("tensor-pipeline", "max_microbatches", 3),
    ],
)  # fmt: skip
def test_a_size_that_a_page_cannot_have_is_refused_before_the_run(stem, name, value):
    """By the kind of its parameter, with its bound."""
    with pytest.raises(PPModelError) as refused:
        check({name: value}, declared(read(notebook_names()[stem])))
    assert refused.value.field == name


def test_memory_in_which_nothing_fits_is_in_the_chart(tmp_path):
    """Cells in which no schedule fits are empty, and not left out."""
    ran("choose", {"pp": 4, "multiples": [1], "ratios": [0.5], "memories": [0.5, 1.0], "schedules": ["zb-v"]}, tmp_path)
    cells = pd.read_csv(tmp_path / "results" / "choose.csv")
    assert cells.limit[cells.label.isna()].tolist() == [0.5, 0.5]  # with tensor parallelism, and without


SMALL = """
pp = 4  # count: ranks
results = "results"  # folder: of what is recorded
"""


@pytest.fixture
def small(tmp_path):
    """A notebook that shows something, and is then defined for few sizes only."""
    sources = [CHECK, "print(pp)", "import ppmodel\n\nppmodel.build('chimera', pp, 4)", "print('below')"]
    cells = [new_code_cell(SMALL, metadata={"tags": ["parameters"]}), *map(new_code_cell, sources)]
    path = tmp_path / "small.ipynb"
    papermill.iorw.write_ipynb(new_notebook(cells=cells, metadata=KERNEL), str(path))
    return path


def test_a_page_ends_where_its_parameters_are_refused(small, tmp_path, monkeypatch):
    """What is above stays, and one line with field, value, rule and remedy takes the place of the rest."""
    monkeypatch.chdir(tmp_path)
    answer, out = run(small, [("pp", "3")], tmp_path / "out")
    *_, shown, last = read(out / "small.ipynb").cells
    assert shown.outputs[0].text == "3\n"
    assert "pp = 3: must be even for chimera" in last.source
    assert " ".join(last.source.replace("*", "").split()) in " ".join(answer.split())


def test_published_parameters_are_never_refused_halfway(small, tmp_path):
    """A page of the book, or one that shows nothing before it is refused, fails as a whole."""
    with pytest.raises(PPModelError, match="pp = 3: must be even"):
        execute(small, tmp_path, {"pp": 3})
