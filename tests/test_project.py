"""The files around the package agree with one another."""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
LONGEST_SUBJECT = 72
FREE_UNTIL = "4dd51f94"


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
    assert list(pins(extras.pop("execute"))) == ["torch"]
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
    """The package, the project file, the citation, the archive and the changelog name one version."""
    import ppmodel

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = YAML(typ="safe").load(ROOT / "CITATION.cff")
    archive = json.loads((ROOT / ".zenodo.json").read_text())
    released = re.search(r"^## ([\d.]+), [\d-]+$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    assert ppmodel.__version__ == project["version"] == citation["version"] == archive["version"] == released


def test_commit_subjects_are_short():
    """Subjects have at most 72 characters, in every commit since that became a rule; the why stands below."""
    git = ["git", "-C", str(ROOT), "log", "--no-merges", "--format=%s", f"{FREE_UNTIL}..HEAD"]
    log = subprocess.run(git, capture_output=True, text=True)
    if log.returncode:
        pytest.skip("no history here")
    assert [subject for subject in log.stdout.splitlines() if len(subject) > LONGEST_SUBJECT] == []


@pytest.mark.parametrize("room", ["system", "model"])
def test_templates_load_and_explain_every_key(room):
    """A template is a legal file, has every key, and each of them follows a comment of its own."""
    from ppmodel.clusters import specs

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
    from ppmodel.clusters import specs
    from ppmodel.clusters.specs.forms import file_form

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
    forms = {name: file_form(one, titled=False) for name, one in blocks.items()}
    keys = [f"{name}.{key}" for name, form in forms.items() for key in form.model_fields]
    assert list(explained) == keys
    assert set(given) == set(keys)
    assert rank.splitlines()[-1] == "# ---- marker: the block of nodes begins with the next line ----"
    for key, comment in explained.items():
        assert given[key].unit in comment.partition("Units:")[2]


def test_nodes_come_from_between_the_markers_of_the_system_template(tmp_path):
    """Examples that follow, of slow links or of a framework, come along with no one who asks for nodes."""
    from ppmodel.clusters import specs

    text = (specs.DATA / "templates" / "system.yaml").read_text()
    before, nodes, after = re.split(r"^[# ]*---- marker.*\n", text, flags=re.MULTILINE)
    path = tmp_path / "mine.yaml"
    path.write_text(before + re.sub("^# ?", "", nodes, flags=re.MULTILINE) + after)
    system = specs.load_system(path)
    assert system.nodes
    assert not any([system.links, system.kernels, system.collectives, system.memory, system.framework])


def test_the_output_in_the_readme_is_that_of_its_command(capsys):
    """What the first comparison says, line by line."""
    from ppmodel.cli import main

    text = (ROOT / "README.md").read_text()
    first = re.search(r"^\.venv/bin/ppmodel (compare [^\n]*)$", text, re.M)[1]
    assert main(shlex.split(first)) == 0
    assert textwrap.indent(capsys.readouterr().out, "   ") in text


def test_python_in_the_readme_runs():
    """Every block runs as it stands."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize(("guide", "most"), [("README.md", 1500), ("CONTRIBUTING.md", 1800)])
def test_guides_are_short_and_name_what_exists(guide, most):
    """Every path, test and target of make in a guide is there; NAME stands for one of yours."""
    text = (ROOT / guide).read_text()
    assert len(text.split()) <= most
    quoted = [word for code in re.findall(r"`([^`\n]+)`", text) for word in code.split()]
    tests = [path for line in re.findall(r"pytest ([^\n`]+)", text) for path in line.split()]
    paths = [word for word in quoted if re.fullmatch(r"[\w.-]+(/[\w.*-]+)+/?|[\w-]+\.(py|md|toml|cff|lock)|\w+/", word)]
    named = [path for path in {*paths, *tests} if not re.search(r"NAME|_build|\.venv|^/|mine", path)]
    assert len(named) > 12
    roots = ROOT, ROOT / "ppmodel", ROOT / "book" / "ppbook"
    assert [path for path in named if not any([*root.glob(path)] for root in roots)] == []
    made = re.findall(r"^([\w.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z][\w-]*)`", text)) <= set(made)


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
