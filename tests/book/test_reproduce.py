"""A book appears whole or not at all."""

import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
import pytest
from books import HTML, notebook, tiny_book
from filelock import FileLock
from refusals import refused
from sizes import PARAMETERS

from ppbook import ROOT, parameters
from ppbook.build import reproduce as build
from ppbook.build.folders import LOCK, MARK, copy_sources, mark, publish, remove_leftovers, require_ours, workspace
from ppbook.build.notebooks import execute, read
from ppbook.build.reproduce import LONGEST, _quoted, reproduce
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
    mark(html)
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


def tree(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["results/thesis.csv", "data/mine.csv", "small.ipynb", "deep/er/x", MARK])
def test_a_folder_that_is_not_ours_is_not_replaced(tmp_path, name):
    """Whatever is in it, with the names that a run would use, too, it is refused by name and stays."""
    source, out = notebook(tmp_path, "1 / 0"), tmp_path / "out"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text('{"ppmodel": "mine", "files": {}}')
    (out / "another").touch()
    before = tree(out)
    with pytest.raises(ReproduceError, match=r"contains .* but no mark of an earlier run; move it away"):
        run(source, [("results", "data")], out=out)
    assert tree(out) == before
    assert {path.name for path in tmp_path.iterdir()} == {"notebooks", "out"}


def test_what_was_added_to_or_changed_in_our_folder_is_not_lost(tmp_path):
    """An earlier run is replaced as it was written, and in no other state."""
    source, out = notebook(tmp_path, "from pathlib import Path\nPath(results).mkdir()"), tmp_path / "out"
    run(source, out=out)
    run(source, out=out)
    other = source.with_name("other.ipynb")
    shutil.copy(source, other)
    with pytest.raises(ReproduceError, match=r"contains small.ipynb, not other.ipynb; choose a new folder"):
        run(other, out=out)
    (out / "results" / "thesis.csv").touch()
    with pytest.raises(ReproduceError, match=r"contains results/thesis.csv, which no earlier run wrote"):
        run(source, out=out)
    (out / "results" / "thesis.csv").unlink()
    (out / "small.ipynb").write_text((out / "small.ipynb").read_text() + " ")
    with pytest.raises(ReproduceError, match=r"contains small.ipynb, which was changed since it was written"):
        run(source, out=out)
    assert (out / "small.ipynb").read_text().endswith(" ")


def test_what_is_added_while_a_notebook_runs_is_not_lost(tmp_path):
    """The folder is looked at again before it is replaced."""
    source, out = notebook(tmp_path, "from pathlib import Path"), tmp_path / "out"
    run(source, out=out)
    late = notebook(tmp_path, f"from pathlib import Path\nPath({str(out)!r}, 'thesis.csv').touch()")
    with pytest.raises(ReproduceError, match=r"contains thesis.csv, which no earlier run wrote"):
        run(late, out=out)
    assert (out / "thesis.csv").exists()


@pytest.mark.parametrize("earlier", [False, True])
def test_of_two_runs_into_one_folder_the_second_to_end_is_refused(tmp_path, earlier):
    """Neither result is lost without a word, whether the folder was new or had an earlier run."""
    out, other = tmp_path / "out", tmp_path / "other"
    if earlier:
        run(notebook(tmp_path, "1"), out=out)
    publishes = f"""from pathlib import Path
from ppbook.build.folders import publish, require_ours
out, other = Path({str(out)!r}), Path({str(other)!r})
other.mkdir()
(other / "small.ipynb").touch()
publish(other, out, require_ours(out))"""
    with refused(ReproduceError, "out", "was written by another run"):
        run(notebook(tmp_path, publishes), out=out)
    assert (out / "small.ipynb").read_text() == ""


def test_a_mark_that_is_none_blocks_nothing(tmp_path, capsys):
    """A pipe, or JSON that is deeper than Python can follow: the folder is not ours, and that is said at once."""
    source, out = notebook(tmp_path, "1 / 0"), tmp_path / "out"
    out.mkdir()
    for make in (lambda: os.mkfifo(out / MARK), lambda: (out / MARK).write_text("[" * 10**5)):
        make()
        assert main(["run", str(source), "--out", str(out)]) == 2
        assert "no mark of an earlier run" in capsys.readouterr().err
        (out / MARK).unlink()
    (out / "run.js").write_text("ppmodelRun = " + "[" * 10**5)
    with pytest.raises(ReproduceError, match="was not written by an earlier build"):
        reproduce(out=out, notebooks=tmp_path / "notebooks", jobs=1)


@pytest.mark.parametrize("name", ["html/index.html", "html/more/x", "run.js"])
def test_a_foreign_site_is_not_replaced(tmp_path, name):
    """A folder `html` or a file `run.js` of somebody else's is refused before anything runs."""
    site = tmp_path / "site"
    (site / name).parent.mkdir(parents=True)
    (site / name).write_text("ppmodelRun = mine")
    notebook(tmp_path, "1 / 0")
    with pytest.raises(ReproduceError, match=r"no mark of an earlier run|was not written by an earlier build"):
        reproduce(out=site, notebooks=tmp_path / "notebooks", jobs=1)
    assert tree(site) == {name: b"ppmodelRun = mine"}


def test_a_link_is_followed_and_stays(tmp_path):
    """A run into a link writes where it leads."""
    source = notebook(tmp_path, "print(system)")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    for _ in range(2):
        run(source, out=tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "small.ipynb").exists()


def test_only_what_a_killed_run_left_is_removed(tmp_path):
    """The workspace of a run that goes on, here or on another machine, and a folder that only has such a name, stay."""
    left, working, foreign = (tmp_path / f".ppmodel-{name}" for name in ("left", "working", "foreign"))
    for folder in (left, working, foreign):
        folder.mkdir()
        (folder / ("mine" if folder == foreign else LOCK)).touch()
    with FileLock(working / LOCK):
        remove_leftovers(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([working, foreign])


@pytest.mark.parametrize("stem", ["{{cycler.__init__}}", "{% x %}", "a{#b", "<b>", "`x`", "=1+1", "@x", "a\nb", "-x"])
def test_a_file_whose_name_is_no_plain_text_is_refused(tmp_path, capsys, stem):
    """Names of files become labels and parts of pages."""
    own = tmp_path / f"{stem}.yaml"
    shutil.copy(ROOT / "data" / "systems" / "dgx_h100.yaml", own)
    for line in (["reproduce", "--system", str(own)], ["run", str(notebook(tmp_path)), "-p", "system", str(own)]):
        assert main(line) == 2
        said = capsys.readouterr().err
        assert "has a name with characters other than" in said
        assert said.count("\n") == 1


def test_recorded_texts_are_plain_text_in_pages():
    """What a notebook recorded is neither evaluated nor markup where a page quotes it."""
    assert _quoted({"a": ["{{ x }}", 1], "b": "*c*"}) == {"a": ["\\{\\{ x \\}\\}", 1], "b": "\\*c\\*"}


# ---- one notebook --------------------------------------------------------------------------------


def test_two_runs_of_a_notebook_are_the_same_bytes(tmp_path):
    """Times, kernel metadata and addresses do not reach the page."""
    path = notebook(tmp_path, "object()", "print(system)")
    first, second = (nbformat.writes(execute(path, tmp_path, {})) for _ in range(2))
    assert first == second
    assert "papermill" not in first
    assert " at 0x" not in first


def test_given_parameters_reach_the_cells(tmp_path):
    """Papermill puts them in place of the notebook's own."""
    done = execute(notebook(tmp_path, "print(system)"), tmp_path, {"system": "dgx_h100"})
    assert "dgx_h100" in str(done.cells[-1].outputs)


def test_a_folder_takes_the_place_of_another(tmp_path):
    """The new book replaces the old one whole, and one that is not there."""
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
        mark(tmp_path / name)
    publish(tmp_path / "new", tmp_path / "old", require_ours(tmp_path / "old"))
    assert [path.name for path in (tmp_path / "old").glob("[!.]*")] == ["new"]
    publish(tmp_path / "old", tmp_path / "first", None)
    assert [path.name for path in (tmp_path / "first").glob("[!.]*")] == ["new"]


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


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_ended_removes_its_workspace(tmp_path, how):
    """As after Ctrl-C, and the signal is again what it was."""
    before = signal.getsignal(how)
    with pytest.raises(KeyboardInterrupt), workspace(tmp_path / "out"):
        signal.raise_signal(how)
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(how) == before


def test_what_cannot_be_removed_keeps_its_lock_for_the_next_run(tmp_path, monkeypatch):
    """A process that still writes when a run is ended."""
    remove = shutil.rmtree
    with monkeypatch.context() as patch, workspace(tmp_path) as work:
        book = work / "book"
        book.mkdir()
        patch.setattr(shutil, "rmtree", lambda path, **given: (remove(path, **given), book.mkdir(parents=True)))
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named_with_the_folder(tmp_path):
    """Without the name of a file, which an error of writing does not have; nothing is left."""
    with refused(ReproduceError, "out", "cannot be written"), workspace(tmp_path / "out") as work:
        (work / "half").touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not any(tmp_path.rglob(".ppmodel*"))


@pytest.fixture
def short():
    """A folder whose path leaves room for a socket's, of at most 107 characters."""
    with TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_leaves_the_last_good_book(tmp_path, monkeypatch, short, good_book, how):
    """Interrupted, ended or killed: the book stays; what a killed run leaves is removed by the next."""
    notebook(tmp_path, "import time; time.sleep(60)")
    monkeypatch.setenv("TMPDIR", str(short))
    run = started(out=str(good_book), notebooks=str(tmp_path / "notebooks"))
    while not list(good_book.glob(".ppmodel-*/**/*.cell")):  # its kernel runs
        assert run.poll() is None
        time.sleep(0.1)
    os.killpg(run.pid, how) if how == signal.SIGINT else run.send_signal(how)
    assert run.wait(60) != 0
    if how == signal.SIGKILL:
        remove_leftovers(good_book)
    else:
        assert list(short.iterdir()) == []
    assert [path.name for path in good_book.iterdir()] == ["html"]
    assert (good_book / "html" / "index.html").read_text() == "the last good book"
    assert_ended(run)


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


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Two books that differ, built: of each its sources and the folder that it is in."""
    folder, books = tmp_path_factory.mktemp("built"), {}
    for value in ("old", "new"):
        books[value] = tiny_book(folder / value, value), folder / f"{value} built"
        reproduce(out=books[value][1], **books[value][0])
    return books


@pytest.mark.long
def test_two_builds_are_the_same_bytes(tmp_path, built):
    """Wherever a book is built and however long it takes: the same files, byte by byte, and times beside them."""
    sources, here = built["new"]
    outs = [here, tmp_path / "there" / "deep"]
    reproduce(out=outs[1], **sources)
    for out in outs:
        assert {path.name for path in out.iterdir()} == {"html", "run.js"}
    first, second = (digests(out / "html") for out in outs)
    assert first == second
    assert "index.html" in first
    records = [json.loads((out / "run.js").read_text().removeprefix("ppmodelRun = ").rstrip(";\n")) for out in outs]
    assert records[0]["id"] == records[1]["id"]
    assert records[0]["seconds"] > records[0]["notebooks"]["small"] > 0


@pytest.mark.long
def test_a_killed_run_leaves_the_old_book_or_the_new_one(tmp_path, built):
    """Killed early, while pages are built, and while the book is put in place; the next run cleans up."""
    (_, old), (sources, new) = built["old"], built["new"]
    books = [digests(folder / "html") for folder in (old, new)]
    assert books[0] != books[1]
    out, runs, chance = tmp_path / "out", [], random.Random(2605)
    moments = (signal.SIGKILL, LOCK, 2), (signal.SIGTERM, "site", 1), (signal.SIGKILL, "run.js", 0.05)
    for how, begun, most_s in moments:
        shutil.rmtree(out / "html", ignore_errors=True)  # each run begins over the old book
        shutil.copytree(old / "html", out / "html")
        left = {*out.glob(".ppmodel-*")}
        runs.append(killed := started(out=str(out), **sources))
        while all(path.parent in left for path in out.glob(f".ppmodel-*/{begun}")):
            assert killed.poll() is None
            time.sleep(0.01)
        time.sleep(chance.random() * most_s)
        killed.send_signal(how)
        killed.wait(60)
        assert digests(out / "html") in books
    for killed in runs:
        assert_ended(killed)
    assert started(out=str(out), **sources).wait(60) == 0
    assert digests(out / "html") == books[1]
    assert {path.name for path in out.iterdir()} == {"html", "run.js"}


def started(**arguments):
    """A process of its own, and session, that builds a book."""
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # as in a terminal
    code = f"{hears}\nfrom ppbook.build.reproduce import reproduce; reproduce(**{arguments!r})"
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL, start_new_session=True)


def assert_ended(process):
    """Nothing that a process started outlives it."""
    waited = time.monotonic() + 30
    while (left := processes_of(process.pid)) and time.monotonic() < waited:
        time.sleep(0.2)
    assert left == []


@pytest.mark.parametrize(
    "line",
    [
        ["reproduce", "--system", "nowhere"],
        ["reproduce", "--system", str(ROOT / "data" / "systems" / "dgx_h100.yaml")],
        ["reproduce", "--model", "nowhere.yaml"],
        ["reproduce", "--jobs", "0"],
        ["reproduce", "--out", "/dev/null/book"],
        ["reproduce", "--out", str(ROOT / "book")],
        ["reproduce", "--out", str(ROOT / "book" / "_build" / "html" / "nb")],
        ["reproduce", "--system", "dgx_h100", "--out", str(ROOT / "book" / "_build")],
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


def test_one_notebook_runs_into_a_folder_of_its_own(tmp_path, monkeypatch, capsys):
    """Notebook, results and a copy of the given system arrive together, and replace an earlier run."""
    monkeypatch.chdir(tmp_path)
    source = notebook(tmp_path, "from pathlib import Path\nPath(results).mkdir()\nPath(results, system[-9:]).touch()")
    shutil.copy(ROOT / "data" / "systems" / "dgx_h100.yaml", tmp_path / "mine.yaml")
    for system in ("dgx_h100", "mine.yaml"):
        assert main(["run", str(source), "-p", "system", system]) == 0
    found = {path.relative_to(tmp_path / "small").as_posix() for path in (tmp_path / "small").rglob("*.*")}
    assert found == {MARK, "small.ipynb", "specifications/systems/mine.yaml", "results/mine.yaml"}
    assert str(tmp_path) not in (tmp_path / "small" / "small.ipynb").read_text()
    (tmp_path / "small" / "notes.txt").touch()
    assert main(["run", str(source)]) == 2
    assert "contains notes.txt, which no earlier run wrote; move it away, or choose" in capsys.readouterr().err


def test_a_notebook_that_fails_leaves_no_folder(tmp_path):
    """What a failed run computed is not kept."""
    source = notebook(tmp_path, "1 / 0")
    with pytest.raises(ReproduceError, match="ZeroDivisionError"):
        run(source, out=tmp_path / "deep" / "failed")
    assert [path.name for path in tmp_path.iterdir()] == ["notebooks"]


def test_a_home_that_cannot_be_written_is_no_matter(tmp_path, monkeypatch):
    """As in a container with another user: nothing of a page depends on the user's settings."""
    monkeypatch.setenv("HOME", "/proc")
    monkeypatch.setenv("MPLCONFIGDIR", "/proc/settings")
    run(notebook(tmp_path, "import matplotlib.pyplot\nmatplotlib.get_configdir()"), out=tmp_path / "out")


def test_a_refused_table_keeps_its_grid(tmp_path):
    """What a page says below a message comes with the error of the run, too."""
    source = notebook(tmp_path, "from ppmodel.export import parse_table\nparse_table('0F0,0F1,0B0')")
    with pytest.raises(ReproduceError, match="TableError: rank 0 = 0B1: is missing") as caught:
        run(source, out=tmp_path / "failed")
    assert caught.value.grid == "rank 0 | 0F0 >0F1< 0B0"


def test_a_failed_run_names_files_as_they_were_given(tmp_path):
    """Not by the copy in a folder that is gone."""
    own = tmp_path / "mine.yaml"
    shutil.copy(ROOT / "data" / "systems" / "dgx_h100.yaml", own)
    with pytest.raises(ReproduceError) as caught:
        run(notebook(tmp_path, "raise ValueError(system)"), [("system", str(own))], out=tmp_path / "failed")
    assert caught.value.rule.endswith(f": ValueError: {own}")


def test_notebooks_that_begin_first_are_notebooks():
    """One that is renamed would otherwise wait for its letter, unnoticed."""
    assert set(LONGEST) <= {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}


def test_notebooks_are_needed(tmp_path):
    """An empty folder of notebooks is refused."""
    with pytest.raises(PPModelError, match="holds no notebooks"):
        reproduce(notebooks=tmp_path)


@pytest.mark.long
def test_the_whole_book_for_another_system_in_a_folder_with_spaces_and_braces(tmp_path, monkeypatch):
    """A user's own system gives a whole book in a folder of its own; its file's path appears nowhere."""
    mine = tmp_path / "my {own} system.yaml"
    shutil.copy(ROOT / "data" / "systems" / "dgx_h100.yaml", mine)
    out, clone = tmp_path / "a {book} of mine", tmp_path / "clone"
    shortened({"system": str(mine), "model": None, "memory_limit": "64 GiB"}, clone / "notebooks")
    for name in (".git", "book", "pyproject.toml"):
        (clone / name).symlink_to(ROOT / name)
    monkeypatch.setattr(build, "ROOT", clone)
    assert main(["reproduce", "--system", str(mine), "--memory-limit", "64 GiB", "--out", str(out)]) == 0
    for page in ("runtime", "which-layout"):
        text = (out / "html" / "nb" / f"{page}.html").read_text()
        assert "my {own} system" in text
        assert str(tmp_path) not in text
    assert "url=nb/which-layout.html" in (out / "html" / "index.html").read_text()
    assert "64 GiB" in text
    assert (out / "html" / "introduction.html").exists()
    assert {path.name for path in out.iterdir()} == {"html", "run.js"}


def shortened(given, folder):
    """Write the book's notebooks, three that a system of one's own concerns at small sizes.

    The rest computes nothing: its figures are empty, and its numbers are those of the book as built. Each of them runs
    on another system than its own in the tests of notebooks, and with a file for its system in those of parameters.
    """
    folder.mkdir(parents=True)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        whole = read(path)
        own = parameters.declared(whole)
        changed = parameters.substitutes(given, own)
        first, check, *others = [cell for cell in whole.cells if cell.cell_type == "code"]
        if path.stem not in SMALL:
            check.source += f"\n{_COPY.format(str(HTML / 'results'))}"
            for cell in others:
                if not cell.source.startswith("%%published"):
                    cell.source = _EMPTY if "figure" in cell.metadata.get("mystnb", {}) else ""
        else:
            small = {key: value for key, value in SMALL[path.stem].items() if key not in changed}
            lines = [f"{key} = {value!r}  # {own[key].word}: small" for key, value in small.items()]
            first.source = "\n".join([first.source, *lines])
        nbformat.write(whole, folder / path.name)


SMALL = {name: PARAMETERS[name] for name in ("memory", "runtime")}
SMALL["which-layout"] = PARAMETERS["which-layout"]
_EMPTY = "from matplotlib.figure import Figure\n\nFigure(figsize=(1, 1))"
_COPY = """import shutil
from pathlib import Path

Path(results).mkdir(exist_ok=True)
for path in Path({!r}).glob("*.*"):
    if not (Path(results) / path.name).exists():
        shutil.copy(path, results)"""
