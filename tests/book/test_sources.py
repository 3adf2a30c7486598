"""What the book is written as: clean notebooks, and commands, code and facts in its pages that exist."""

import ast
import json
import re
import shlex
import shutil
from pathlib import Path

import nbformat
import pytest
from ruamel.yaml import YAML

from ppbook.build import review

ROOT = Path(__file__).parents[2]
LONGEST_CELL = 25
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_clean(path):
    """No outputs, no counts, one cell of parameters; what a reader sees of the code is short."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    tagged = [cell for cell in code if "parameters" in cell.metadata.get("tags", ())]
    assert len(tagged) == 1
    assert "results" in tagged[0].source
    hidden = {"remove-input", "remove-cell", "hide-input", "hide-cell", "parameters"}
    shown = [cell.source for cell in _python(notebook) if not hidden & set(cell.metadata.get("tags", ()))]
    assert all(len(source.splitlines()) <= LONGEST_CELL for source in shown)


def _python(notebook):
    """The cells with code; those that begin with ``%`` hold prose, or load the check of parameters."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and not cell.source.startswith("%")]


def test_every_notebook_is_a_page():
    """The table of contents lists each notebook once, and nothing that is not there."""
    text = (ROOT / "book" / "_toc.yml").read_text()
    listed = re.findall(r"file: nb/(\S+)", text)
    assert sorted(listed) == sorted(path.stem for path in NOTEBOOKS)
    for page in re.findall(r"(?:file|root): (?!nb/)(\S+)", text):
        assert (ROOT / "book" / f"{page}.md").is_file()


def test_a_quoted_fact_is_not_called_as_a_method_of_a_dict():
    """A substitution ``{{ page.clear }}`` would quote the method of the record, not the fact of that name."""
    pages = [*(ROOT / "book").glob("*.md"), *NOTEBOOKS]
    quoted = {fact for path in pages for fact in re.findall(r"\{\{ \w+\.(\w+) \}\}", path.read_text())}
    assert quoted
    assert not quoted & set(dir(dict))
    spans = [span for path in pages for line in path.read_text().splitlines() for span in re.findall("`([^`]*)`", line)]
    assert not [span for span in spans if re.search(r"\{\{ \w+\.", span)]  # inside a code span nothing is substituted


def test_commands_in_the_guide_name_parameters_that_exist():
    """Every `ppmodel run` line of README and book passes the check that comes before a kernel."""
    from ppbook import parameters

    texts = [(ROOT / "README.md").read_text(), *(path.read_text() for path in (ROOT / "book").glob("*.md"))]
    lines = [line for text in texts for line in re.findall(r"^(?:\.venv/bin/)?ppmodel run (.*)$", text, re.MULTILINE)]
    assert len(lines) >= 3
    for line in lines:
        name, *words = shlex.split(line)
        pairs = [(words[n + 1], words[n + 2]) for n, word in enumerate(words) if word == "-p"]
        own = parameters.declared(nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4))
        given = parameters.parse(pairs, own)
        files = re.compile(r"\.(yaml|csv|py)\b")  # of a reader, who has them
        parameters.check({key: value for key, value in given.items() if not files.search(str(value))}, own)


def test_commands_in_the_guide_run(tmp_path, monkeypatch, capsys):
    """Every line of README and book that asks about a schedule does what it says, with files copied as they say."""
    from ppmodel import simulate
    from ppmodel.cli import main

    monkeypatch.chdir(tmp_path)
    for template, copy in (
        ("my_table.csv", "mine.csv"),
        ("my_schedule.py", "mine.py"),
        ("system.yaml", "mine.yaml"),
        ("layout.yaml", "my-layout.yaml"),
    ):
        shutil.copy(ROOT / "data" / "templates" / template, copy)
    texts = [(ROOT / "README.md").read_text(), *(path.read_text() for path in (ROOT / "book").glob("*.md"))]
    simulate("1f1b", 4, 12, forward=1, backward=2).to_frame().to_csv("operations.csv", index=False)
    asked = (
        r"^(?:\.venv/bin/)?ppmodel ((?:replay|simulate|compare|table|check|schedules|models|systems|notebooks)\b.*)$"
    )
    lines = [line for text in texts for line in re.findall(asked, text, re.MULTILINE)]
    assert len(lines) >= 12
    for line in lines:
        command, _, _ = line.partition(" > ")  # into a file
        assert main(shlex.split(command)) == 0, capsys.readouterr().err


def test_python_in_the_guide_runs():
    """Every block of Python on the page about running runs as it stands, and its last line has a value."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "book" / "run.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        code = ast.parse(block)
        last = ast.Expression(code.body.pop().value)
        names = {}
        exec(compile(code, "run.md", "exec"), names)
        assert eval(compile(last, "run.md", "eval"), names) is not None
    assert 0 <= eval(compile(last, "run.md", "eval"), names) <= 1


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_import_what_they_use(path):
    """Every imported name is used in a later line."""
    source = "\n".join(cell.source for cell in _python(nbformat.read(path, as_version=4)))
    nodes = list(ast.walk(ast.parse(source)))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {alias.asname or alias.name for node in imports for alias in node.names}
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    assert imported <= used


def test_every_figure_of_the_paper_has_a_command_for_reviewers():
    """A card names, for each, the notebook behind the page that `claims.yaml` gives it."""
    claims, cards = (YAML(typ="safe").load(ROOT / "data" / f"{name}.yaml") for name in ("claims", "cards"))
    runs = [card for card in cards if card["command"].startswith("run ")]
    assert all(card["page"] == f"nb/{card['command'].removeprefix('run ')}" for card in runs)
    assert all((ROOT / "notebooks" / f"{card['page'][3:]}.ipynb").is_file() for card in cards)
    for figure in claims["figures"]:
        assert any(card["card"].startswith(figure["figure"]) and card["page"] == figure["page"] for card in runs)


def test_a_review_notices_what_is_not_as_expected(tmp_path, monkeypatch, capsys):
    """What is expected stands beside what is obtained, and one line ends it; a commit is noted where all is well."""
    cards = [
        {"card": "a", "command": "--version", "expected": "ppmodel", "seconds": 1, "page": "nb/table", "review": True}
    ]
    cards.append(cards[0] | {"expected": "ppmodle"})
    monkeypatch.setattr(review, "CARDS", tmp_path / "cards.yaml")
    YAML().dump(cards, review.CARDS)
    assert not review.review(record=True)
    good, bad = YAML(typ="safe").load(review.CARDS)
    assert "verified" in good
    assert "verified" not in bad
    printed = capsys.readouterr().out
    assert re.findall(r"^(ok  |FAIL)", printed, re.MULTILINE) == ["ok  ", "FAIL"]
    assert re.search(r"expected  ppmodle .*\n +obtained  ppmodel", printed)
    assert re.search(r"review FAILED: 1 of 2 commands as expected, \d+ s\n$", printed)


def test_a_review_runs_the_executed_claim_where_there_is_torch(tmp_path, monkeypatch, capsys):
    """Without PyTorch a line says so, which is no failure; with it, the times that are printed decide."""
    card = {"card": "a", "command": "execute", "expected": "by over 20 %, gradients equal", "seconds": 1}
    monkeypatch.setattr(review, "CARDS", tmp_path / "cards.yaml")
    monkeypatch.setattr(review, "EXECUTE", tmp_path / "python")
    monkeypatch.setattr(review, "find_spec", lambda _: None)
    YAML().dump([card | {"page": "nb/executed", "review": True, "torch": True}], review.CARDS)
    assert review.review()
    assert re.match(r"skip .*PyTorch is missing.*\nreview passed: 0 of 0 ", capsys.readouterr().out)
    for seconds, passes in ((1.3, True), (1.1, False)):
        rows = [
            {"schedule": name, "measured_s": time, "gradients_equal": True}
            for name, time in (("1f1b", seconds), ("gpipe", 1))
        ]
        review.EXECUTE.write_text(f"#!/bin/sh\necho '{json.dumps(rows)}'\n")
        review.EXECUTE.chmod(0o755)
        assert review.review() == passes
    assert "obtained  1F1B slower than GPipe by no more than 20 %, gradients equal (10%)" in capsys.readouterr().out


def words_of(text):
    """Words of prose: without code, directives and markup; a number that is put in is one."""
    text = re.sub(r"\{\{.*?\}\}", "0", text)
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r":::.*|<[^>]+>", "", text)
    return len(re.findall(r"[A-Za-z0-9][\w'’.,-]*", text))


def test_the_main_path_is_short():
    """At most 35 pages before the appendix, 25,000 words, 1,200 to a page and 500 to the first."""
    contents = YAML(typ="safe").load(ROOT / "book" / "_toc.yml")
    parts = [part["chapters"] for part in contents["parts"] if part["caption"] != "Appendix"]
    chapters = [chapter for part in parts for chapter in part]
    pages = [entry["file"] for chapter in chapters for entry in (chapter, *chapter.get("sections", ()))]
    words = {"index": words_of((ROOT / "book" / "index.md").read_text())}
    for page in pages:
        if page.startswith("nb/"):
            cells = nbformat.read(ROOT / "notebooks" / f"{page[3:]}.ipynb", as_version=4).cells
            prose = [
                cell.source for cell in cells if cell.cell_type == "markdown" or cell.source.startswith("%%published")
            ]
            words[page] = sum(map(words_of, prose))
        else:
            words[page] = words_of((ROOT / "book" / f"{page}.md").read_text())
    assert len(words) <= 35
    assert words["index"] <= 500
    assert max(words.values()) <= 1200, max(words, key=words.get)
    assert sum(words.values()) <= 25_000
