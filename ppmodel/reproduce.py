"""Run every notebook, build the book, and put it in place at once or not at all.

All work is done in a temporary folder beside the target. A notebook that fails or prints a warning
publishes nothing, and the last good book stays.
"""

import ast
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from pathlib import Path

import nbformat
from ruamel.yaml import YAML
from tqdm import tqdm

from ppmodel.errors import ReproduceError
from ppmodel.specs import load_model, load_system, model_names, system_names
from ppmodel.studies import published

ROOT = Path(__file__).parents[1]
"""The clone: the notebooks and the book's sources live beside the package."""

_KEPT = "nothing was published, the last good book stays"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_WORKSPACE = ".ppmodel-"
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_PR_SET_PDEATHSIG = 1
_JUPYTER_BOOK = "from jupyter_book.cli.main import main; main()"


def reproduce(system=None, model=None, out=None, jobs=2, notebooks=None):
    """Execute the notebooks and build the book.

    Parameters
    ----------
    system, model : str or Path, optional
        Names or files. The model takes the place of the paper's; the system that of a single system, and
        stands in front of the paper's where a figure shows several.
    out : str or Path, optional
        Folder that receives ``html``; ``book/_build`` of the clone by default.
    jobs : int
        Notebooks run at once.
    notebooks : Path, optional
        Folder of the notebooks, the clone's by default.

    Returns
    -------
    str
        What was built, and where.

    Raises
    ------
    PPModelError
        If a specification, a notebook or the build fails; the target is then as it was.
    """
    notebooks = Path(notebooks or ROOT / "notebooks")
    sources = sorted(notebooks.glob("*.ipynb"))
    if not sources or not (ROOT / "book" / "_config.yml").is_file():
        raise ReproduceError(
            "notebooks", notebooks, "holds no notebooks of the book", "run from a clone of the project"
        )
    for name, load, known in ((system, load_system, system_names()), (model, load_model, model_names())):
        if name is not None and load(name).name in known and str(name) not in known:
            rule = f"has the name of one that comes with the project ({load(name).name})"
            raise ReproduceError("file", name, rule, "rename the file")
    out = Path(out or ROOT / "book" / "_build").absolute()
    sources_of_book, built = (ROOT / "book").resolve(), (ROOT / "book" / "_build").resolve()
    if out.resolve().is_relative_to(sources_of_book) and not out.resolve().is_relative_to(built):
        raise ReproduceError("out", out, "lies among the book's sources", "choose a folder outside of book")
    with _workspace(out) as work:
        book = work / "book"
        shutil.copytree(ROOT / "book", book, ignore=shutil.ignore_patterns("_build", "nb", "results"))
        given = {"system": _local(system, book), "model": _local(model, book)}
        with tqdm(total=len(sources) + 1, unit="step", desc="notebooks", file=sys.stderr) as bar:
            _execute_all(sources, book, given, jobs, bar)
            bar.set_description("book")
            _configure(book)
            html = _build(book, work)
            bar.update()
        shutil.copytree(book / "results", html / "results", dirs_exist_ok=True)
        _publish(html, out / "html")
    return f"{len(sources)} notebooks executed; the book is {out / 'html' / 'index.html'}"


@contextmanager
def _workspace(out):
    """A temporary folder on the target's file system, removed at the end whatever happens."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f"{_WORKSPACE}{os.getpid()}-", dir=out))
    except OSError as error:
        rule = f"cannot be written ({error.strerror})"
        raise ReproduceError("out", out, rule, "choose a folder that you may write to") from None
    _remove_leftovers(out)
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield work
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        shutil.rmtree(work, ignore_errors=True)


def _remove_leftovers(out):
    """Remove the workspaces of runs that were killed before they could."""
    for folder in out.glob(f"{_WORKSPACE}*"):
        owner = folder.name.removeprefix(_WORKSPACE).split("-")[0]
        if owner.isdecimal() and not Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _local(name, book):
    """A specification's name, or its file's path in a copy that the notebooks find."""
    if name is None or str(name) in (*system_names(), *model_names()):
        return name
    folder = book / "specifications"
    folder.mkdir(exist_ok=True)
    shutil.copy(name, folder)
    return f"{folder.name}/{Path(name).name}"


# ---- notebooks -----------------------------------------------------------------------------------


def _execute_all(sources, book, given, jobs, bar):
    (book / "nb").mkdir()
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_isolate, initargs=[book.parent]) as pool:
        runs = {pool.submit(execute, source, book, given): source for source in sources}
        try:
            for run in as_completed(runs):
                nbformat.write(run.result(), book / "nb" / runs[run].name)
                bar.update()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in active_children():  # their kernels end with them
                worker.terminate()
            raise


def _isolate(folder):
    """Keep a user's own Jupyter start-up files, random hashes and Ctrl-C out of a worker's kernels."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _libc("prctl", _PR_SET_PDEATHSIG, signal.SIGTERM)  # a worker ends with the run, even if that is killed
    (folder / "ipython").mkdir(exist_ok=True)
    os.environ.update(PYTHONHASHSEED="0", JUPYTER_PLATFORM_DIRS="1", IPYTHONDIR=str(folder / "ipython"))


def execute(source, folder, given):
    """Run one notebook by papermill in a folder, and strip what differs from run to run.

    Parameters
    ----------
    source : Path
    folder : Path
        Working directory of the notebook's kernel.
    given : dict
        A ``model`` and a ``system`` for the notebook, or None; see the command line's help.

    Returns
    -------
    NotebookNode

    Raises
    ------
    ReproduceError
        If a cell raises or warns.
    """
    from papermill import execute_notebook
    from papermill.exceptions import PapermillException, PapermillExecutionError

    notebook = nbformat.read(source, as_version=4)
    try:
        done = execute_notebook(
            notebook, None, parameters=_parameters(notebook, given), kernel_name="python3", cwd=str(folder),
            progress_bar=False, extra_arguments=["--IPKernelApp.log_level=50"],
        )  # fmt: skip
    except PapermillExecutionError as error:
        rule = f"failed in cell {error.cell_index}: {error.ename}: {error.evalue}"
        raise ReproduceError("notebook", source.name, rule, _KEPT) from None
    except PapermillException as error:
        raise ReproduceError("notebook", source.name, f"cannot be run: {error}", _KEPT) from None
    for number, cell in enumerate(done.cells):
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                rule = f"wrote a warning in cell {number}: {output.text.strip().splitlines()[-1]}"
                raise ReproduceError("notebook", source.name, rule, _KEPT)
    return _normalise(done)


def _parameters(notebook, given):
    """What a given model or system changes in a notebook's parameters.

    It takes the place of ``model`` or ``system``, and stands in front of the notebook's own ``systems``.
    """
    cells = [cell.source for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    own = {}
    for node in ast.parse("\n".join(cells)).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            own[node.targets[0].id] = ast.literal_eval(node.value)
    changed = {key: value for key, value in given.items() if value is not None and key in own}
    if given.get("system") is not None and "systems" in own:
        changed["systems"] = [given["system"], *(name for name in own["systems"] if name != given["system"])]
    return changed


def _normalise(notebook):
    """The notebook without times, kernel metadata and addresses: the same bytes from the same results."""
    notebook.metadata.pop("papermill", None)
    notebook.metadata.get("language_info", {}).pop("version", None)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        for key in ("papermill", "execution"):
            cell.metadata.pop(key, None)
        for output in cell.get("outputs", ()):
            for kind, text in output.get("data", {}).items():
                if isinstance(text, str) and kind.startswith("text/"):
                    output["data"][kind] = _ADDRESS.sub("", text)
    return notebook


# ---- book ----------------------------------------------------------------------------------------


def _configure(book):
    """Give the pages the numbers that the notebooks recorded, as substitutions ``{{ notebook.name }}``."""
    facts = {path.stem: json.loads(path.read_text()) for path in sorted((book / "results").glob("*.json"))}
    facts["published"] = published().value.to_dict()
    yaml = YAML()
    config = yaml.load(book / "_config.yml")
    config["sphinx"]["config"]["myst_substitutions"] = facts
    yaml.dump(config, book / "_config.yml")


def _build(book, work):
    """Build the pages, warnings as errors, and return their folder."""
    command = [sys.executable, "-c", _JUPYTER_BOOK, "build", str(book), "--path-output", str(work / "site"),
               "-W", "-n", "--keep-going", "-q"]  # fmt: skip
    environment = os.environ | {"SOURCE_DATE_EPOCH": _commit_time(), "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        problems = [line for line in said if "WARNING" in line or "ERROR" in line] or said[-20:]
        log = "\n".join(line.replace(str(book), "book") for line in problems)
        raise ReproduceError("book", "build", "failed with the warnings below", _KEPT, grid=log)
    return work / "site" / "_build" / "html"


def _commit_time():
    """Seconds of the last commit, which the pages give as their date; of the package where there is no clone."""
    asked = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True)
    return asked.stdout.strip() or str(int(Path(__file__).stat().st_mtime))


def _libc(function, *arguments):
    """The result of a function of the C library, or -1 where it has none."""
    found = getattr(ctypes.CDLL(None), function, None)
    return found(*arguments) if found else -1


def _publish(new, target):
    """Put a folder in the place of another in one step, so that no reader meets a mixture."""
    if not target.exists():
        new.rename(target)
        return
    if _libc("renameat2", _AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE) == 0:
        return
    old = new.with_name("old")  # a file system that cannot exchange: two steps, with no book between them
    target.rename(old)
    new.rename(target)
