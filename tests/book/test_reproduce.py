"""A book appears whole or not at all."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import nbformat
import pytest
from books import notebook, tiny_book
from sizes import PARAMETERS

from ppbook import ROOT
from ppbook.build import reproduce as build
from ppbook.build.folders import MARK, copy_sources, publish
from ppbook.build.notebooks import execute, execute_all
from ppbook.build.reproduce import LONGEST, NO_SOURCES, reproduce
from ppbook.build.run import run
from ppbook.errors import ReproduceError
from ppmodel.cli import main
from ppmodel.errors import PPModelError


@pytest.fixture
def good_book(tmp_path):
    """A folder with a book that must not be touched."""
    html = tmp_path / "out" / "html"
    html.mkdir(parents=True)
    (html / "index.html").write_text("the last good book")
    (html / MARK).write_text("ppmodel reproduce")
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("1 / 0", "failed in cell 1: ZeroDivisionError"),
        ("import warnings; warnings.warn('odd')", "wrote a warning in cell 1"),
    ],
)
def test_a_failed_notebook_publishes_nothing(tmp_path, good_book, source, said):
    """An error and a warning both leave the last good book, and nothing half-written beside it."""
    notebook(tmp_path, source)
    with pytest.raises(ReproduceError, match=said):
        reproduce(out=good_book, notebooks=tmp_path / "notebooks", jobs=1)
    assert (good_book / "html" / "index.html").read_text() == "the last good book"
    assert [path.name for path in good_book.iterdir()] == ["html"]


def test_a_broken_page_publishes_nothing(tmp_path, good_book):
    """Notebooks that succeed but leave the pages without their numbers stop the build."""
    sources = tiny_book(tmp_path / "tiny", "unused")
    notebook(tmp_path / "tiny", "print(results)")
    with pytest.raises(ReproduceError, match="failed with the warnings below") as caught:
        reproduce(out=good_book, **sources)
    assert re.search(r"WARNING.*small", caught.value.grid)
    assert [path.name for path in good_book.iterdir()] == ["html"]


# ---- nobody else's files -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["results/thesis.csv", "small.ipynb", "html/index.html"])
def test_a_folder_that_is_not_ours_is_not_replaced(tmp_path, name):
    """A run and a build name what they find, and it stays."""
    source, out = notebook(tmp_path, "1 / 0"), tmp_path / "out"
    for folder, make in ((out, lambda: run(source, out=out)),
                         (out / "html", lambda: reproduce(out=out, notebooks=source.parent, jobs=1))):  # fmt: skip
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("mine")
        with pytest.raises(ReproduceError, match=r"contains .* but no mark of an earlier run; move it away"):
            make()
        assert (folder / name).read_text() == "mine"


def test_only_an_earlier_run_of_the_same_is_replaced(tmp_path, good_book):
    """Also through a link, which stays; not that of another notebook, nor the paper's book by one of your own."""
    source, out = notebook(tmp_path, "from pathlib import Path\nPath(results).mkdir()"), tmp_path / "link"
    out.symlink_to(tmp_path / "there")
    for _ in range(2):
        run(source, out=out)
    assert out.is_symlink()
    assert (tmp_path / "there" / "small.ipynb").exists()
    other = source.with_name("other.ipynb")
    shutil.copy(source, other)
    with pytest.raises(ReproduceError, match=r"was made by ppmodel run small, not by ppmodel run other"):
        run(other, out=out)
    with pytest.raises(ReproduceError, match=r"was made by ppmodel reproduce, not by ppmodel reproduce dgx_h100"):
        reproduce("dgx_h100", out=good_book, notebooks=source.parent)


@pytest.mark.parametrize("stem", ["{{x}}", "{% x %}", "<b>", "`x`", "=1+1", "a\nb"])
def test_a_file_whose_name_is_no_plain_text_is_refused(tmp_path, capsys, stem):
    """Names of files become labels and parts of pages."""
    own = tmp_path / f"{stem}.yaml"
    shutil.copy(ROOT / "data" / "systems" / "dgx_h100.yaml", own)
    for line in (["reproduce", "--system", str(own)], ["run", str(notebook(tmp_path)), "-p", "system", str(own)]):
        assert main(line) == 2
        said = capsys.readouterr().err
        assert "has a name with characters other than" in said
        assert said.count("\n") == 1


# ---- one notebook --------------------------------------------------------------------------------


def test_two_runs_of_a_notebook_are_the_same_bytes(tmp_path):
    """Times, kernel metadata and addresses do not reach the page."""
    path = notebook(tmp_path, "object()", "print(system)")
    first, second = (nbformat.writes(execute(path, tmp_path, {})) for _ in range(2))
    assert first == second
    assert "papermill" not in first
    assert " at 0x" not in first


def test_a_folder_takes_the_place_of_another(tmp_path):
    """The new book replaces the old one whole, and one that is not there."""
    for target in ("old", "first"):
        for name in ("work/new", "old"):
            (tmp_path / name).mkdir(parents=True)
            (tmp_path / name / Path(name).name).touch()
        publish(tmp_path / "work" / "new", tmp_path / target, "test")
        assert {path.name for path in (tmp_path / target).iterdir()} == {"new", MARK}
        shutil.rmtree(tmp_path / "old")


def test_read_only_sources_are_copied_to_a_folder_that_can_be_written(tmp_path):
    """A clone that may only be read can be built from."""
    source = tmp_path / "source" / "below"
    source.mkdir(parents=True)
    (source / "page.md").touch(0o444)
    for folder in (source, source.parent):
        folder.chmod(0o555)
    copy_sources(source.parent, tmp_path / "copy")
    copies = [tmp_path / "copy", *(tmp_path / "copy").rglob("*")]
    assert len(copies) == 3
    assert all(path.stat().st_mode & 0o200 for path in copies)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_leaves_the_last_good_book(tmp_path, good_book, how):
    """Interrupted or killed: the book stays, and nothing that the build started outlives it."""
    notebook(tmp_path, f"import time\nopen({str(tmp_path / 'begun')!r}, 'w').close()\ntime.sleep(60)")
    arguments = {"out": str(good_book), "notebooks": str(tmp_path / "notebooks")}
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # as in a terminal
    code = f"{hears}\nif __name__ == '__main__':\n    from ppbook.build.reproduce import reproduce"
    (tmp_path / "build.py").write_text(f"{code}; reproduce(**{arguments!r})")
    command = [sys.executable, tmp_path / "build.py"]
    build = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    while not (tmp_path / "begun").exists():
        assert build.poll() is None
        time.sleep(0.1)
    os.killpg(build.pid, how) if how == signal.SIGINT else build.send_signal(how)
    assert build.wait(60) != 0
    assert how == signal.SIGKILL or [path.name for path in good_book.iterdir()] == ["html"]
    assert (good_book / "html" / "index.html").read_text() == "the last good book"
    waited = time.monotonic() + 30
    while left := processes_of(build.pid):
        assert time.monotonic() < waited, left
        time.sleep(0.2)


def processes_of(session):
    """The processes of a session that are still there."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(stat.parent.name)
    return found


# ---- a whole book in a few seconds ---------------------------------------------------------------


def digests(folder):
    """Every file of a folder with its content."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in files}


_MARKUP = "<script>alert(1)</script> {{ 7*7 }} {{ cycler.__init__.__globals__.os.system('touch ran') }} {% set a = 1 %}"


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    """Two builds of a book whose text looks like code, in a folder of which that text would write a file."""
    folder = tmp_path_factory.mktemp("builds")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        sources, outs = tiny_book(folder / "tiny", _MARKUP), [folder / "here", folder / "there" / "deep"]
        for out in outs:
            reproduce(out=out, **sources)
    return outs


@pytest.mark.long
def test_two_builds_are_the_same_bytes(builds):
    """Wherever a book is built and however long it takes: the same files, byte by byte, and times beside them."""
    assert all({path.name for path in out.iterdir()} == {"html", "run.js"} for out in builds)
    first, second = (digests(out / "html") for out in builds)
    assert first == second
    assert "index.html" in first
    records = [json.loads((out / "run.js").read_text().removeprefix("ppmodelRun = ").rstrip(";\n")) for out in builds]
    assert records[0]["id"] == records[1]["id"]
    assert records[0]["seconds"] > records[0]["notebooks"]["small"] > 0


@pytest.mark.parametrize("page", ["index.html", "nb/small.html"])
def test_text_from_data_is_text_on_pages(builds, page):
    """Neither a recorded text nor a table's cell is evaluated, or becomes markup, wherever a page shows it."""
    text = (builds[0] / "html" / page).read_text()
    assert "&lt;script&gt;alert(1)" in text
    assert "<script>alert" not in text
    assert "{{ 7*7 }}" in text
    assert not list(builds[0].parent.rglob("ran"))


@pytest.mark.parametrize(
    "line",
    [
        ["reproduce", "--system", "nowhere"],
        ["reproduce", "--system", str(ROOT / "data" / "systems" / "dgx_h100.yaml")],
        ["reproduce", "--model", "nowhere.yaml"],
        ["reproduce", "--jobs", "0"],
        ["reproduce", "--out", "/dev/null/book"],
        ["run", "README.md"],
        ["run", str(ROOT / "README.md")],
        ["run", "runtime", "--out", str(ROOT / "data")],
    ],
)
def test_mistakes_are_refused_before_anything_runs(capsys, line):
    """One line, exit code 2, at once."""
    assert main(line) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1


def test_the_packaged_file_itself_is_asked_for_by_its_name(tmp_path, capsys):
    """Of two files with a name of the project's, the project's own is to be named, and another one renamed."""
    ours = ROOT / "data" / "systems" / "dgx_h100.yaml"
    theirs = tmp_path / ours.name
    shutil.copy(ours, theirs)
    for path, remedy in ((ours, "write its name instead: dgx_h100"), (theirs, "rename the file")):
        assert main(["reproduce", "--system", str(path)]) == 2
        assert capsys.readouterr().err.endswith(f"(dgx_h100); {remedy}\n")


def test_one_notebook_runs_into_a_folder_of_its_own(tmp_path, monkeypatch):
    """Notebook, results and a copy of the given system arrive together, and replace an earlier run."""
    monkeypatch.chdir(tmp_path)
    source = notebook(tmp_path, "from pathlib import Path\nPath(results).mkdir()\nPath(results, system[-9:]).touch()")
    shutil.copy(ROOT / "data" / "systems" / "dgx_h100.yaml", tmp_path / "mine.yaml")
    for system in ("dgx_h100", "mine.yaml"):
        assert main(["run", str(source), "-p", "system", system]) == 0
    found = {path.relative_to(tmp_path / "small").as_posix() for path in (tmp_path / "small").rglob("*.*")}
    assert found == {MARK, "small.ipynb", "specifications/systems/mine.yaml", "results/mine.yaml"}
    assert str(tmp_path) not in (tmp_path / "small" / "small.ipynb").read_text()


def test_a_home_that_cannot_be_written_is_no_matter(tmp_path, monkeypatch):
    """As in a container with another user: nothing of a page depends on the user's settings."""
    monkeypatch.setenv("HOME", "/proc")
    monkeypatch.setenv("MPLCONFIGDIR", "/proc/settings")
    run(notebook(tmp_path, "import matplotlib.pyplot\nmatplotlib.get_configdir()"), out=tmp_path / "out")


def test_a_refused_table_keeps_its_grid(tmp_path):
    """What a page says below a message comes with the error of the run, too."""
    source = notebook(tmp_path, "from ppmodel.tables import parse_table\nparse_table('0F0,0F1,0B0')")
    with pytest.raises(ReproduceError, match="TableError: rank 0 = 0B1: is missing") as caught:
        run(source, out=tmp_path / "failed")
    assert caught.value.grid == "rank 0 | 0F0 >0F1< 0B0"


def test_a_failed_run_names_files_as_they_were_given_and_leaves_no_folder(tmp_path):
    """Not by the copy in a folder that is gone."""
    own = tmp_path / "mine.yaml"
    shutil.copy(ROOT / "data" / "systems" / "dgx_h100.yaml", own)
    with pytest.raises(ReproduceError) as caught:
        run(notebook(tmp_path, "raise ValueError(system)"), [("system", str(own))], out=tmp_path / "deep" / "failed")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == []
    assert caught.value.rule.endswith(f": ValueError: {own}")


def test_notebooks_that_begin_first_are_notebooks():
    """One that is renamed would otherwise wait for its letter, unnoticed."""
    assert set(LONGEST) <= {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}


def test_notebooks_are_needed(tmp_path):
    """An empty folder of notebooks is refused."""
    with pytest.raises(PPModelError, match="holds no notebooks"):
        reproduce(notebooks=tmp_path)


@pytest.mark.long
def test_a_book_for_another_system_in_a_folder_with_spaces_and_braces(tmp_path, monkeypatch):
    """A user's own system gives a book in a folder of its own, which begins with it; its file's path appears nowhere.

    Of one notebook at small sizes: what it refers to is not there.
    """
    mine, out, sources = tmp_path / "my {own} system.yaml", tmp_path / "a {book} of mine", tmp_path / "book"
    shutil.copy(ROOT / "data" / "systems" / "dgx_h100.yaml", mine)
    copy_sources(ROOT / "book", sources, (*NO_SOURCES, "explorer", "schedules"))
    config = (sources / "_config.yml").read_text()
    config = config.replace("  config:\n", "  config:\n    suppress_warnings: [ref, myst]\n")
    (sources / "_config.yml").write_text(config)
    (sources / "index.md").write_text("# Mine")
    chapters = "{file: nb/which-layout}, {file: references}"
    (sources / "_toc.yml").write_text(
        f"{{format: jb-book, root: index, parts: [{{caption: A part, chapters: [{chapters}]}}]}}"
    )
    (notebooks := tmp_path / "notebooks").mkdir()
    shutil.copy(ROOT / "notebooks" / "which-layout.ipynb", notebooks)
    small = PARAMETERS["which-layout"] | {"schedules": ["1f1b"], "gpus": 4, "fitted": ["a100_bigscience"]}

    def at_small_sizes(changes, *arguments):
        return execute_all({path: small | values for path, values in changes.items()}, *arguments)

    monkeypatch.setattr(build, "execute_all", at_small_sizes)
    reproduce(system=mine, memory_limit="64 GiB", out=out, notebooks=notebooks, book=sources)
    text = (out / "html" / "nb" / "which-layout.html").read_text()
    assert "my {own} system" in text
    assert str(tmp_path) not in text
    assert "url=nb/which-layout.html" in (out / "html" / "index.html").read_text()
    assert "64 GiB" in text
    assert (out / "html" / "introduction.html").exists()
    assert {path.name for path in out.iterdir()} == {"html", "run.js"}
