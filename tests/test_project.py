"""The files around the package agree with one another."""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import nbformat
import pytest
from packaging.requirements import Requirement
from ruamel.yaml import YAML

from ppbook.published import MAGIC

ROOT = Path(__file__).parents[1]
LONGEST_CELL = 25
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lines):
    found = {}
    for line in lines:
        if match := re.match(r"([A-Za-z0-9_.-]+)==([^\s;\\]+)", line):
            found.setdefault(normal(match[1]), set()).add(match[2])
    return found


def test_environment_project_and_lock_agree():
    """Every dependency but torch has a range in pyproject.toml; environment.yml and the lock pin one version in it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = list(project["project"]["dependencies"])
    extras = project["project"]["optional-dependencies"]
    assert list(pins(extras.pop("peer"))) == ["torch"]
    for extra in extras.values():
        wanted += extra
    environment = YAML(typ="safe").load(ROOT / "environment.yml")["dependencies"]
    listed = pins(next(entry["pip"] for entry in environment if isinstance(entry, dict)))
    locked = pins((ROOT / "requirements.lock").read_text().splitlines())
    for requirement in map(Requirement, [*wanted, *project["build-system"]["requires"]]):
        name = normal(requirement.name)
        (version,) = locked[name]
        assert requirement.specifier.contains(version), requirement
        assert not any(part.operator == "==" for part in requirement.specifier), requirement
        assert listed[name] == {version}, name
    assert listed.keys() == {normal(Requirement(text).name) for text in wanted}
    assert f"python{project['project']['requires-python']}" in environment


def test_the_lock_has_a_hash_for_everything():
    """What is installed is what was pinned, to the byte."""
    blocks = re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text().strip())
    assert all("--hash=sha256:" in block for block in blocks)


def test_versions_agree():
    """The package, the project file and the citation name one version."""
    import ppmodel

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = YAML(typ="safe").load(ROOT / "CITATION.cff")
    assert ppmodel.__version__ == project["version"] == citation["version"]


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
    """The cells with code; those that begin with ``%%published`` hold prose."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and not cell.source.startswith(MAGIC)]


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


def test_published_numbers_have_a_kind_and_a_source():
    """Every number that we compare with says where it comes from."""
    from ppbook.claims import published

    numbers = published()
    assert numbers.index.is_unique
    assert numbers.kind.isin(["stated", "digest", "inferred"]).all()
    assert numbers.notna().all().all()


@pytest.mark.parametrize("room", ["system", "model"])
def test_templates_load_and_explain_every_key(room):
    """A template is a legal file, has every key, and each of them follows a comment of its own."""
    from ppmodel import specs

    path = specs.DATA / "templates" / f"{room}.yaml"
    spec = {"system": specs.load_system, "model": specs.load_model}[room](path)
    explained = dict(re.findall(r"^# (.+)\n(?:# .+\n)*(\w+):", path.read_text(), re.MULTILINE))
    keys = {"title", *(entry.field for entry in spec.provenance)}
    assert set(explained.values()) == keys
    assert len(explained) == len(keys)
    for entry in spec.provenance:
        if entry.unit:
            block = path.read_text().split(f"\n{entry.field}:")[0].rpartition("\n\n")[2]
            assert f"{entry.unit}" in block.partition("Units:")[2].replace("\n# ", " ")


def test_the_templates_nodes_are_legal_and_explained(tmp_path):
    """Without their comment signs the optional lines are blocks with every key, each after a comment."""
    from ppmodel import specs

    text = (specs.DATA / "templates" / "system.yaml").read_text()
    rank, start, block = text.partition("# nodes:\n")
    block = re.sub(r"^# ?", "", start + block, flags=re.MULTILINE)
    path = tmp_path / "mine.yaml"
    path.write_text(rank + block)
    given = {entry.field: entry for entry in specs.load_system(path).provenance if "." in entry.field}
    explained = {}
    for name, entries in re.findall(r"^(\w+):\n((?:  .*\n|\n)*)", block, re.MULTILINE):
        for keys in re.finditer(r"^((?:  # .+\n)+)((?:  \w+:\n(?:    .*\n)+)+)", entries, re.MULTILINE):
            explained |= {f"{name}.{key}": keys[1] for key in re.findall(r"^  (\w+):", keys[2], re.MULTILINE)}
    blocks = {
        "nodes": specs.NodeSpec,
        "kernels": specs.KernelSpec,
        "collectives": specs.CollectiveSpec,
        "memory": specs.MemorySpec,
        "framework": specs.FrameworkSpec,
    }
    keys = [f"{name}.{key}" for name, one in blocks.items() for key in specs.entries.file_form(one).model_fields]
    assert list(explained) == keys
    assert set(given) == set(keys)
    assert rank.splitlines()[-1] == "# ---- marker: the block of nodes begins with the next line ----"
    for key, comment in explained.items():
        assert given[key].unit in comment.partition("Units:")[2]


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
    asked = r"^(?:\.venv/bin/)?ppmodel ((?:simulate|compare|table|check|schedules|models|systems|notebooks)\b.*)$"
    lines = [line for text in texts for line in re.findall(asked, text, re.MULTILINE)]
    assert len(lines) >= 12
    for line in lines:
        assert main(shlex.split(line)) == 0, capsys.readouterr().err


def test_the_output_in_the_readme_is_that_of_its_command(capsys):
    """What the first comparison and the layout's example say, line by line."""
    from ppmodel.cli import main

    text = (ROOT / "README.md").read_text()
    command, shown = re.search(
        r"^\.venv/bin/ppmodel ([^\n]*)\n```\n\nsays[^\n]*\n\n```text\n(.*?)```", text, re.M | re.S
    ).groups()
    assert main(shlex.split(command)) == 0
    assert shown in capsys.readouterr().out
    first = re.search(r"^\.venv/bin/ppmodel (compare [^\n]*)$", text, re.M)[1]
    assert main(shlex.split(first)) == 0
    assert textwrap.indent(capsys.readouterr().out, "   ") in text


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
    assert 0 <= min(eval(compile(last, "run.md", "eval"), names)) <= 1


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_import_what_they_use(path):
    """Every imported name is used in a later line."""
    source = "\n".join(cell.source for cell in _python(nbformat.read(path, as_version=4)))
    nodes = list(ast.walk(ast.parse(source)))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {alias.asname or alias.name for node in imports for alias in node.names}
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    assert imported <= used


@pytest.mark.parametrize("name", ["bob's.yaml", "x'; touch f; '", "$(shell touch f)x", "`touch f`", "a  b", "$$HOME"])
def test_make_hands_names_over_as_they_were_written(name, tmp_path):
    """Whatever a name holds, neither make nor the shell reads anything in it."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    command = tmp_path / ".venv" / "bin" / "ppmodel"
    command.parent.mkdir(parents=True)
    program = "import sys; open('said', 'w').write(repr(sys.argv[1:]))"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "{program}" "$@"\n')
    command.chmod(0o755)
    for file in ("requirements.lock", "pyproject.toml", ".venv/.ready"):
        (tmp_path / file).touch()
    given = f"SYSTEM={name}"
    subprocess.run(
        ["make", "book", given], cwd=tmp_path, check=True, capture_output=True, env={"PATH": os.environ["PATH"]}
    )
    assert ast.literal_eval((tmp_path / "said").read_text()) == ["reproduce", "--system", name]
    assert not (tmp_path / "f").exists()
