"""What a page leaves behind, and the tables that it shows."""

import json

import pandas as pd
import pytest
from markdown_it import MarkdownIt
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import ppmodel as pp
from ppbook.build.answer import answer, resolved
from ppbook.build.run import notebook_names
from ppbook.pages.report import MyST, list_table, literal, record, show
from ppmodel.plot import plot_lines


def test_records_are_the_same_bytes_every_time(tmp_path):
    """Figure, table and facts written twice are equal, and the numbers keep all their digits."""
    frame = pp.compare(["gpipe", "chimera"], 4, [4, 8], model="paper", system="mid_cp_mid_nw")
    for folder in ("one", "two"):
        figure = plot_lines(frame, "microbatches", "makespan_s", "title", "context")
        record("x", tmp_path / folder, figure, frame, answer=1 / 3)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["x.csv", "x.json", "x.png", "x.svg"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    again = pd.read_csv(tmp_path / "one" / "x.csv")
    assert again.makespan_s.tolist() == frame.makespan_s.tolist()
    assert show(frame).to_html() == show(frame).to_html()


def test_whole_numbers_are_no_shares():
    """A count among shares is shown as it is."""
    text = str(show(pd.DataFrame({"recompute": [22], "share": [0.5]}), {}, "{:.1%}"))
    assert text.split()[-2:] == ["22", "50.0%"]


def test_rows_that_are_shown_twice_are_two_rows():
    """The index, which is not shown, need not be unique."""
    assert show(pd.DataFrame({"pp": [4, 4]}, index=[0, 0])).to_html().count("</tr>") == 3


def test_numbers_share_a_form_but_for_those_that_have_their_own():
    """One format for all columns of numbers, another for one of them; words and whole numbers in headings stay."""
    table = pd.DataFrame({"system": ["a"], 8: [0.25], "least": [0.5]})
    page = show(table, {"least": "least c / F"}, "{:.1%}", least="{:g}").to_html()
    for said in (">a<", ">25.0%<", ">0.5<", ">least c / F<", ">8<"):
        assert said in page


def test_answers_and_fractions_are_written_as_people_do():
    """Yes and no, and no zeros behind a fraction."""
    page = show(pd.DataFrame({"fits": [True, False], "share": [1.0, 0.125], 4: [2, 3]})).to_html()
    assert [word in page for word in (">yes<", ">no<", ">1<", ">0.125<", ">2<", "True", "1.000")] == [True] * 5 + [
        False
    ] * 2


def test_facts_without_a_number_are_null(tmp_path):
    """JSON has no NaN: what strict readers take."""
    record("x", tmp_path, gain=float("nan"), points=[1, 2])
    assert (tmp_path / "x.json").read_text() == '{\n "gain": null,\n "points": [\n  1,\n  2\n ]\n}\n'


_ODD = ["<script>alert(1)</script>", "{{ x }}", "*a* `b` [c](d) $e$ ^f^ | & &amp;", "- g", "# h", "1. i", "a\nb"]


@pytest.mark.parametrize("odd", _ODD)
def test_text_in_a_table_comes_out_as_text(odd):
    """In a heading, in a cell, and in a cell of a column with a format of its own."""
    page = show(pd.DataFrame({odd: [odd], "plain": [odd]}), plain="{}").to_html()
    assert "<script" not in page
    assert "&lt;script" in page or "<" not in odd


@pytest.mark.parametrize("odd", _ODD)
def test_literal_text_is_one_paragraph_of_text(odd):
    """No markup, no list, no substitution."""
    (outer, inner, _) = MarkdownIt("commonmark").parse(literal(odd))
    assert outer.type == "paragraph_open"
    assert [(one.type, one.content) for one in inner.children] == [("text", " ".join(odd.split()))]
    assert "{{" not in literal(odd)


def test_cells_are_text_unless_they_are_myst():
    """A cell that holds a link says so."""
    table = list_table([["{doc}`a`", MyST("{doc}`b`")]], ["*"], [50, 50])
    assert "{doc}`b`" in table
    assert "{doc}`a`" not in table
    assert "* - \\*\n" in table


def test_a_run_says_its_answer(tmp_path):
    """Numbers of the results stand in the prose, links are plain, tables are text, and cautions in bold are kept."""
    (tmp_path / "mine.json").write_text('{"gain": 0.125, "none": null}')
    prose = """# Title

It gains {{ "%.1f" | format(100 * mine.gain) }} %, else {{ "%.1f" | format(100 * theirs.gain) }}, {{ mine.none }},
{{ "%.1f" | format(-mine.none) }}, {{ '{:,}'.format(theirs.gain) }}; {{ theirs.name }}.
See {doc}`../method` and {download}`a.csv <../results/a.csv>`."""
    table = show(pd.DataFrame({"pp": range(40), "label": "x's < y"}))
    data = {"text/html": table.to_html(), "text/plain": repr(table)}
    cell = new_code_cell("", outputs=[new_output("execute_result", data, execution_count=1)])
    caution = new_markdown_cell("Not said.\n\n**Beside it**: 7 % in {doc}`b`.")
    cells = [new_markdown_cell(prose), new_markdown_cell("## All\n\nNot said. Of each rank:"), cell, caution]
    notebook = resolved(new_notebook(cells=cells), tmp_path)
    assert "12.5 %, else ..., ...,\n..., ...; ..." in notebook.cells[0].source
    assert "*method*" in notebook.cells[0].source
    assert "[a.csv](results/a.csv)" in notebook.cells[0].source
    lines = answer(notebook).splitlines()
    assert lines[0] == "Title"
    assert lines[lines.index("All") + 5].split() == ["S", "schedule"]
    assert lines[lines.index("All") + 6].split(maxsplit=1) == ["0", "x's < y"]
    assert lines[lines.index("All") + 3] == "Of each rank:"
    assert lines[-3] == "... and 16 more rows in the notebook"
    assert lines[-1] == "Beside it: 7 % in the page b."
    assert lines[2].startswith("See the page method")  # the sentence with theirs needs a number that is not here


def test_an_answer_can_be_read(tmp_path):
    """Code and items keep their lines; signs of emphasis and formulas go, and the paper's numbers where yours are."""
    (tmp_path / "asked.md").write_text("```\nppmodel plan\n```\n")
    opening = "# Title\n\n```{include} ../results/asked.md\n```\n\nFor *small* $B \\le 16$:\n\n- one\n- **two**"
    table = {"text/html": "", "text/plain": "B\n8"}
    output = new_output("execute_result", table, execution_count=1)
    papers = new_code_cell("", outputs=[output], metadata={"tags": ["of-the-paper"]})
    cells = [new_markdown_cell(opening), papers, new_markdown_cell("## Exercises\n\n**Guess.** Who?")]
    notebook = resolved(new_notebook(cells=cells), tmp_path)
    expected = "Title\n\n    ppmodel plan\n\nFor small B ≤ 16:\n\n- one\n- two"
    assert answer(notebook, own=True) == expected
    assert answer(notebook) == f"{expected}\n\nB\n8"


def test_every_notebook_checks_its_parameters():
    """The cell behind the parameters does, so that plain papermill refuses what `ppmodel run` does."""
    for path in notebook_names().values():
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        places = [place for place, cell in enumerate(cells) if "parameters" in cell["metadata"].get("tags", ())]
        assert ["%reload_ext ppbook.check" in "".join(cells[place + 1]["source"]) for place in places] == [True], path


def test_runs_are_titled_where_they_are_named_and_not_where_they_are_counted():
    """Names of files of runs have titles; numbers of runs keep their format."""
    named, counted = pd.DataFrame({"runs": ["vtrain_multi"]}), pd.DataFrame({"runs": [3]})
    assert "vTrain, several nodes" in show(named).to_html()
    assert ">3<" in show(counted, runs="{:d}").to_html()


def test_names_are_words_or_code():
    """Systems and semantics are in words, files and fields as they are typed, numbers among words without zeros."""
    cells = ["h100_playbook", "p2p: blocking_recv", "data/systems/fast_cp_fast_nw.yaml", "a_b, c.d_e", "T_sim", 128.0]
    shown = show(pd.DataFrame({"value": cells}, dtype=object))
    texts = ["H100, Playbook", "p2p: blocking receive", "<code>data/systems/fast_cp_fast_nw.yaml</code>"]
    texts += ["<code>a_b</code>, <code>c.d_e</code>", "T_sim", "128"]
    assert [text for text in texts if f">{text}</td>" not in shown.to_html()] == []
    assert "code" not in str(shown)
