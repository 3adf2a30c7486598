"""Conclusions for the published parameters give way when a parameter differs, whoever runs the notebook."""

import nbformat
import papermill
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from ppbook.build.notebooks import read
from ppbook.build.run import run

PARAMETERS = """
pp = 8  # count: ranks
p2p = "overlapped"  # p2p: what a transfer occupies
system = "mid_cp_mid_nw"  # system: where it runs
results = "results"  # folder: of what is recorded
"""
CHECK = "%reload_ext ppbook.check"
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
RECORD = "import os\n\nos.makedirs(results)\nopen(results + '/small.json', 'w').write('{\"gain\": 0.25}')"
FINDING = "GPipe wins by {{ small.gain }}, *as* $B$ grows; see {doc}`small`."
LATER = "**Take GPipe.** A second paragraph `{a}`.\n\n- with a list"


@pytest.fixture
def small(tmp_path):
    """A notebook that opens with a conclusion and has another further down."""
    cells = [
        new_markdown_cell("# Small"),
        new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
        new_code_cell(CHECK, metadata={"tags": ["remove-cell"]}),
        new_code_cell(f"%%published\n{FINDING}"),
        new_code_cell(RECORD),
        new_markdown_cell("## Detail"),
        new_code_cell(f"%%published\n{LATER}\n"),
        new_markdown_cell("Always."),
    ]
    path = tmp_path / "notebooks" / "small.ipynb"
    path.parent.mkdir()
    nbformat.write(new_notebook(cells=cells, metadata=KERNEL), path)
    return path


def markdown(notebook):
    return [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]


def test_a_conclusion_is_a_paragraph_of_the_page(small, tmp_path):
    """With published values: the finding, with its number, below the title, the other in its place, also as text."""
    answer, _ = run(small, [("pp", "8"), ("results", "elsewhere")], tmp_path / "out")
    done = read(tmp_path / "out" / "small.ipynb")
    finding = FINDING.replace("{{ small.gain }}", "0.25").replace("{doc}`small`", "the page *small*")
    assert markdown(done) == [f"# Small\n\n{finding}", "## Detail", LATER, "Always."]
    assert "%%published" not in nbformat.writes(done)
    assert "GPipe wins by 0.25" in answer
    assert "Take GPipe." in answer


def test_a_changed_parameter_takes_its_place(small, tmp_path):
    """Where any parameter differs, one line names those that do; the rest of the page stays."""
    answer, _ = run(small, [("pp", "16"), ("p2p", "blocking")], tmp_path / "out")
    done = read(tmp_path / "out" / "small.ipynb")
    title, _, left_out, always = markdown(done)
    assert left_out.startswith("*Left out")
    assert "`pp = 16` (published: `8`), `p2p = blocking` (published: `overlapped`)" in left_out
    assert title == f"# Small\n\n{left_out}"
    assert always == "Always."
    for text in (answer, nbformat.writes(done)):
        assert "GPipe wins" not in text
        assert "Take GPipe" not in text


@pytest.mark.parametrize(("given", "concludes"), [({}, True), ({"pp": 16}, False)])
def test_plain_papermill_leaves_it_out(small, tmp_path, given, concludes):
    """The cell's output is the paragraph, or the line in its place."""
    done = papermill.execute_notebook(
        str(small), None, given, cwd=str(tmp_path), progress_bar=False, kernel_name="python3"
    )
    outputs = str([cell.get("outputs") for cell in done.cells])
    assert ("Take GPipe" in outputs) == concludes
    assert ("Left out" in outputs) == (not concludes)
