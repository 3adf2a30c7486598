"""What is published with the code: citation, records, workflow, Binder, buttons, the smoke test and the PDF."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pandas as pd
import pytest
from books import HTML
from bs4 import BeautifulSoup
from jsonschema import Draft7Validator
from jsonschema.validators import validator_for
from ruamel.yaml import YAML

import ppmodel
from ppbook.build import smoke
from ppbook.pages.theme import add_buttons, how_to_get, mended, repository
from ppmodel.cli import main

ROOT = Path(__file__).parents[2]


def yaml(path):
    """A YAML file, its days as text, as its schema has them."""
    return json.loads(json.dumps(YAML(typ="safe").load(ROOT / path), default=str))


def faults(document, schema):
    """What a schema of the package check-jsonschema finds in a document."""
    schema = json.loads((files("check_jsonschema") / "builtin_schemas" / "vendor" / schema).read_text())
    found = validator_for(schema, Draft7Validator)(schema).iter_errors(document)
    return [f"{'/'.join(map(str, one.path))}: {one.message[:200]}" for one in found]


# ---- records -------------------------------------------------------------------------------------


def test_the_citation_is_valid():
    """CITATION.cff follows the schema of its format, and the schema notices a field that is missing."""
    citation = yaml("CITATION.cff")
    assert faults(citation, "citation-file-format.json") == []
    assert faults({key: value for key, value in citation.items() if key != "authors"}, "citation-file-format.json")


def test_records_agree():
    """Citation, Zenodo record, changelog and package name one version, title, licence and repository."""
    citation, record = yaml("CITATION.cff"), json.loads((ROOT / ".zenodo.json").read_text())
    versions = re.findall(r"^## (\d+\.\d+\.\d+), (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == (citation["version"], citation["date-released"]) == (record["version"], versions[0][1])
    assert ppmodel.__version__ == record["version"]
    assert record["title"] == citation["title"]
    assert record["license"] == citation["license"] == "MIT"
    assert record["upload_type"] == citation["type"] == "software"
    assert [one["name"] for one in record["creators"]] == [one["name"] for one in citation["authors"]]
    assert record["keywords"] == citation["keywords"]
    assert {one["identifier"] for one in record["related_identifiers"]} == {citation["references"][0]["notes"]}
    assert citation.get("repository-code") == repository(ROOT / "pyproject.toml")


# ---- workflow, Binder ----------------------------------------------------------------------------


def test_the_workflow_is_valid_and_publishes_what_was_tested():
    """It follows the schema of its format; it runs .ci/run before it uploads, and may write pages in one job alone."""
    workflow = yaml(".github/workflows/book.yml")
    assert faults(workflow, "github-workflows.json") == []
    assert faults(workflow | {"jobs": {"build": {"runs-on": "x", "stepz": []}}}, "github-workflows.json")
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    done = [step.get("run") or step["uses"].partition("@")[0] for step in build["steps"]]
    assert done.index(".ci/run") < done.index("make pdf") < done.index("actions/upload-pages-artifact")
    assert build["steps"][-1]["with"]["path"] == "book/_build/html"
    assert publish["needs"] == "build"
    assert workflow["permissions"] == {"contents": "read"}
    assert publish["permissions"] == {"pages": "write", "id-token": "write"}
    assert "permissions" not in build


def test_a_tag_makes_a_release():
    """The workflow follows the schema of its format, checks the version, and alone may write."""
    workflow = yaml(".github/workflows/release.yml")
    assert faults(workflow, "github-workflows.json") == []
    (job,) = workflow["jobs"].values()
    assert (workflow["permissions"], job["permissions"]) == ({"contents": "read"}, {"contents": "write"})
    text = "\n".join(step.get("run", "") for step in job["steps"])
    assert text.index("__version__") < text.index("make archive") < text.index("pip wheel") < text.index("gh release")


def test_colab_clones_the_repository_that_the_project_names():
    """Its notebook has the address of pyproject.toml, and the book links to it where there is one."""
    cells = json.loads((ROOT / ".binder" / "colab.ipynb").read_text())["cells"]
    address = re.match(r'address = "(.*)"', cells[1]["source"][0])[1]
    assert address == (repository(ROOT / "pyproject.toml") or "")
    assert "colab.research.google.com/github/a/b/blob/main/.binder/colab.ipynb" in how_to_get("https://github.com/a/b/")


def test_every_shell_line_of_workflow_and_binder_parses():
    """Steps, .ci/run and postBuild are shell that bash accepts; files that are run may be."""
    steps = [
        step["run"]
        for name in ("book", "release")
        for job in yaml(f".github/workflows/{name}.yml")["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    scripts = [ROOT / ".ci" / "run", ROOT / ".ci" / "lowest", ROOT / ".binder" / "postBuild"]
    for text in [*steps, *(path.read_text() for path in scripts)]:
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    assert all(os.access(path, os.X_OK) for path in scripts)


def test_binder_makes_the_locked_environment_its_kernel(tmp_path):
    """postBuild makes the environment as `make` does, and puts its kernel where Binder's own stands."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in ("make", ".venv/bin/python"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" >> said\n')
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "NB_PYTHON_PREFIX": "/there"}
    subprocess.run([ROOT / ".binder" / "postBuild"], cwd=tmp_path, env=environment, check=True)
    made, installed = (tmp_path / "said").read_text().splitlines()
    assert made == "make .venv/.ready"
    assert installed.startswith(".venv/bin/python -m ipykernel install --prefix /there --name python3")
    assert (ROOT / ".binder" / "runtime.txt").read_text().strip() == "python-3.11"


# ---- buttons -------------------------------------------------------------------------------------


def test_buttons_need_an_address(tmp_path):
    """Without an address the book's configuration stays as it was; with one there are three buttons."""
    project = tmp_path / "pyproject.toml"
    project.write_text('[project]\nname = "x"\n')
    assert repository(project) is None
    project.write_text('[project.urls]\nRepository = "https://github.com/someone/ppmodel/"\n')
    config = {"html": {"favicon": "x"}}
    add_buttons(config, repository(project))
    assert config["repository"]["url"] == "https://github.com/someone/ppmodel"
    assert config["html"] == {"favicon": "x", "use_repository_button": True, "use_issues_button": True}
    assert config["launch_buttons"]["binderhub_url"]


def test_binder_opens_the_notebook_and_not_the_page():
    """A launch button names the notebook where the repository has it."""
    text = '<a href="https://mybinder.org/v2/gh/a/b/main?urlpath=lab/tree/book/nb/table.ipynb">'
    assert mended(text).endswith('?urlpath=lab/tree/notebooks/table.ipynb">')


def test_the_book_has_buttons_where_an_address_is_configured():
    """As built: buttons and links to a repository if, and only if, pyproject.toml names one."""
    page = (HTML / "nb" / "bubble.html").read_text()
    configured = repository(ROOT / "pyproject.toml") is not None
    assert ("source-issues-button" in page, "mybinder.org" in page) == (configured, configured)


# ---- contributing --------------------------------------------------------------------------------


def test_the_schedule_in_the_guide_registers_and_runs():
    """The example of CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    code = re.search(r"   ```python\n(.*?)   ```", text, re.DOTALL)[1]
    names = {}
    exec(compile(re.sub(r"^   ", "", code, flags=re.MULTILINE), "CONTRIBUTING.md", "exec"), names)
    assert " ".join(names["serial"](2, 2).table(backward=1)[1]) == ". 1F0 1B0 . . 1F1 1B1 ."
    assert ppmodel.simulate("serial", 2, 2, forward=1, backward=2).makespan_s == 2 * 2 * 3


def test_the_appendix_names_rows_and_files_that_exist():
    """What reviewers are told to look for is there: rows of claims, commands, and result files."""
    from ppbook.claims import load_claims

    text = (ROOT / "book" / "appendix.md").read_text() + (ROOT / "data" / "cards.yaml").read_text()
    assert "reversals_by_network" in text
    assert "reversals_by_network" in {row.id for claim in load_claims() for row in claim.rows}
    made = re.findall(r"^([\w.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"`make (\w+)", text)) <= set(made)
    assert "measured_errors.csv" in text
    assert (HTML / "results" / "measured_errors.csv").is_file()


# ---- smoke test ----------------------------------------------------------------------------------


@pytest.fixture
def results(tmp_path):
    """A copy of what the smoke test's notebooks write, as it stands in the book."""
    for notebook, (_, picture, numbers) in smoke.PICTURES.items():
        folder = tmp_path / notebook / "results"
        folder.mkdir(parents=True)
        for name in (f"{picture}.csv", f"{picture}.svg", f"{numbers}.csv"):
            shutil.copy(HTML / "results" / name, folder)
    return tmp_path


def test_the_smoke_test_passes_on_what_the_book_has(results):
    """Numbers and statements of Fig. 3 and Table I, both pictures, and the closed form."""
    checks = smoke.compared(results)
    assert sum("published" in said and said.endswith(": met") for said, _ in checks) == len(checks) - 3 > 12
    assert all(holds for _, holds in checks)


@pytest.mark.parametrize(
    ("name", "column", "row", "failing"),
    [
        ("bubble/results/fig3_bubble", "table_bubble_ratio", 0, "GPipe"),
        ("bubble/results/fig3_bubble", "table_bubble_ratio", 7, "1F1B"),
        ("bubble/results/fig3_published", "measured", 4, "from the table"),
        ("hanayo/results/table1_published", "measured", 3, "largest gain"),
    ],
)
def test_the_smoke_test_notices_a_number_that_is_off(results, name, column, row, failing):
    """A twentieth more, and the comparison that concerns it fails, and no other."""
    path = results / f"{name}.csv"
    frame = pd.read_csv(path)
    frame.loc[row, column] *= 1.05
    frame.to_csv(path, index=False)
    (said,) = [said for said, holds in smoke.compared(results) if not holds]
    assert failing in said


def test_the_smoke_test_ends_with_1_where_something_is_off(results, monkeypatch, capsys, tmp_path):
    """The command runs the notebook, says what it compared, and its exit code is the verdict."""
    out = tmp_path / "smoke"
    monkeypatch.setattr(smoke, "run", lambda name, out: shutil.copytree(results / name, out))
    assert main(["smoke", "--out", str(out)]) == 0
    assert "FAIL" not in capsys.readouterr().out
    (results / "bubble" / "results" / "fig3_bubble.svg").write_text("")
    shutil.rmtree(out)
    assert main(["smoke", "--out", str(out)]) == 1
    assert "FAIL Fig. 3 is drawn" in capsys.readouterr().out


# ---- one PDF -------------------------------------------------------------------------------------

SOME = ("index.html", "method.html", "nb/bubble.html", "references.html")


@pytest.fixture(scope="module")
def some_pages(tmp_path_factory):
    """A book of a few chapters of the built one."""
    out = tmp_path_factory.mktemp("book")
    shutil.copytree(HTML, out / "html")
    for page in (out / "html").rglob("*.html"):
        name = page.relative_to(out / "html").as_posix()
        if name not in SOME and "_static" not in page.parts:
            page.unlink()
    chapters = ", ".join(f"{{file: {name.removesuffix('.html')}}}" for name in SOME[1:])
    (out / "html" / "_sources" / "_toc.yml").write_text(
        f"{{format: jb-book, root: index, parts: [{{caption: A part, chapters: [{chapters}]}}]}}"
    )
    return out


@pytest.fixture(scope="module")
def printed(some_pages, tmp_path_factory):
    """Their single page, ready to be printed."""
    from ppbook.build.pdf import single_page

    return single_page(some_pages / "html", tmp_path_factory.mktemp("printed"))


def test_one_document_holds_every_chapter(printed):
    """In the order of the contents; links lead to names that are unique, or to the web."""
    text = printed.read_text()
    document = BeautifulSoup(text, "html.parser")
    places = [entry["data-place"] for entry in document.select(".print-page")]
    assert places[1:] == ["document-method", "document-nb/bubble", "document-references"]
    assert [part.get_text() for part in document.select(".print-part, .print-part-title")] == ["A part"] * 2
    names = Counter(part["id"] for part in document.select("[id]"))
    links = [link["href"] for link in document.select("a[href]")]
    assert {names[link[1:]] for link in links if link.startswith("#")} == {1}
    assert all(link.startswith(("#", "https://", "http://", "mailto:")) for link in links)
    sources = [part["src"] for part in document.select("img[src], script[src]")]
    assert [source for source in sources if not (printed.parent / source).is_file()] == []
    assert not document.select(".cell_input, .headerlink, .only-dark, a[href*='=']")
    assert str(ROOT) not in text


@pytest.mark.long
def test_the_book_prints_as_one_pdf(some_pages, browser):
    """Numbered chapters, links, maths and pictures are in it, nothing is cut at the right, and the pages link it."""
    from pypdf import PdfReader

    from ppbook.build import pdf

    assert browser.is_connected()  # a skip where there is none; playwright wants a process for each
    command = [sys.executable, "-m", "ppmodel", "pdf", "--out", str(some_pages)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    target = some_pages / "html" / pdf.NAME
    reader = PdfReader(target)
    assert said.startswith(f"{len(reader.pages)} pages")
    contents = reader.pages[1].extract_text()
    for chapter in ("How time is computed", "Bubbles: by formula and by table", "References"):
        number = int(re.search(rf"{chapter}\s+(\d+)", contents)[1])
        assert chapter in reader.pages[number - 1].extract_text()
    assert [one["/Title"] for one in reader.outline if isinstance(one, dict)]
    kinds = {note.get_object()["/Subtype"] for page in reader.pages for note in page.get("/Annots", [])}
    assert kinds == {"/Link"}
    assert sum(len(page.images) for page in reader.pages) >= 1
    whole = target.read_bytes()
    assert b"file://" not in whole
    assert str(some_pages).encode() not in whole
    for name in SOME:
        page = BeautifulSoup((some_pages / "html" / name).read_text(), "html.parser")
        links = [one["href"] for one in page.select("a[href$='.pdf']")]
        assert len(links) == 2
        assert all((some_pages / "html" / name).parent.joinpath(one).resolve() == target for one in links)


def test_nothing_is_cut_on_paper(printed, browser):
    """At the width of the paper nothing of the document reaches beyond it, and every picture fits a page."""
    from ppbook.build import pdf

    page = browser.new_page(viewport=pdf.PAPER)
    page.emulate_media(media="print")
    page.goto(printed.as_uri())
    page.evaluate("ready()")
    page.evaluate("fit()")
    wide = page.evaluate("""() => [...document.querySelectorAll('.print-chapter *')].filter(part =>
        part.getBoundingClientRect().right > document.body.clientWidth + 2 && !part.closest('mjx-assistive-mml'))
        .map(part => part.outerHTML.slice(0, 150))""")
    tall = page.evaluate("[...document.images].filter(image => image.getBoundingClientRect().height > 980).length")
    assert (wide, tall) == ([], 0)
    assert page.locator("mjx-merror").count() == 0
    page.close()


def test_a_book_without_pages_is_refused(tmp_path, capsys):
    """There must be something to print."""
    assert main(["pdf", "--out", str(tmp_path)]) == 2
    assert "contains no built book" in capsys.readouterr().err
