"""Run notebooks, build the book, and put either in place at once or not at all.

All work is done in a temporary folder beside the target. A notebook that fails or prints a warning
publishes nothing, and what was there stays.
"""

import ctypes
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from difflib import get_close_matches
from hashlib import sha256
from multiprocessing import active_children, get_context
from pathlib import Path
from time import perf_counter

import nbformat
from ruamel.yaml import YAML
from tqdm import tqdm

from ppmodel.artefact import parameters
from ppmodel.artefact.claims import published
from ppmodel.artefact.provenance import git
from ppmodel.errors import PPModelError, ReproduceError, SpecificationError, TableError
from ppmodel.specs import (
    DATA,
    load_model,
    load_system,
    model_names,
    one_node_text,
    same_name,
    setting_names,
    system_names,
    template_names,
)

ROOT = Path(__file__).parents[2]
"""The clone: the notebooks and the book's sources live beside the package."""

_KEPT = "nothing was written, and what was there stays"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_WORKSPACE = ".ppmodel-"
_SPECIFIED = {"system", "systems", "node_systems", "model", "models"}
_WRITTEN_FOR = (
    "The text of this page was written for the paper's systems and model. Its tables and figures are for those that "
    "the parameters below name, and where the two disagree, they are right."
)
_OWN_PAGE = "nb/your-system"
_ROOMS = {
    **dict.fromkeys(("model", "models", "other_model", "paper_model"), "models"),
    **dict.fromkeys(("system", "systems", "other_system", "picture_systems", "node_systems"), "systems"),
    **dict.fromkeys(("setting", "implied"), "settings"),
}
_TEMPLATES = {"table": ".csv", "mistakes": ".csv", "generator": ".py"}
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_PR_SET_PDEATHSIG = 1
_JUPYTER_BOOK = (  # it ends with the run that waits for it, even if that is killed
    f"import ctypes; getattr(ctypes.CDLL(None), 'prctl', lambda *_: 0)({_PR_SET_PDEATHSIG}, {int(signal.SIGTERM)}); "
    "from jupyter_book.cli.main import main; main()"
)


def reproduce(system=None, model=None, out=None, jobs=2, notebooks=None, book=None, memory_limit=None):
    """Execute the notebooks and build the book.

    Parameters
    ----------
    system, model : str or Path, optional
        Names or files. The model takes the place of the paper's, the system that of a single system; both
        stand in front of the others where a page shows several.
    out : str or Path, optional
        Folder that receives ``html`` and ``run.js``; by default ``_build`` of the book's sources, and a folder in it
        that is named after `system` and `model` where one of them is given.
    jobs : int
        Notebooks run at once.
    notebooks, book : Path, optional
        Folders of the notebooks and of the book's sources, the clone's by default.
    memory_limit : str, optional
        Bytes that a schedule may take of a rank, such as ``64 GiB``; all of its memory by default.

    Returns
    -------
    str
        What was built, and where.

    Raises
    ------
    PPModelError
        If a specification, a notebook or the build fails; the target is then as it was.
    """
    began = perf_counter()
    notebooks, pages = Path(notebooks or ROOT / "notebooks"), Path(book or ROOT / "book")
    sources = sorted(notebooks.glob("*.ipynb"))
    if not sources or not (pages / "_config.yml").is_file():
        raise ReproduceError(
            "notebooks", notebooks, "holds no notebooks of the book", "run from a clone of the project"
        )
    given = {"system": system, "model": model, "memory_limit": memory_limit}
    own = _name_of(given)
    changes = _checked(sources, given)
    out = _target(out, pages, own)
    with _workspace(out) as work:
        copy = work / "book"
        shutil.copytree(pages, copy, ignore=shutil.ignore_patterns("_build", "nb", "results"))
        shutil.copytree(DATA / "templates", copy / "templates")
        (copy / "results").mkdir()
        changes = {source: bring(values, copy) for source, values in changes.items()}
        with tqdm(total=len(sources) + 1, unit="step", desc="notebooks", file=sys.stderr) as bar:
            seconds = _execute_all(changes, copy, copy / "nb", jobs, bar)
            bar.set_description("book")
            identity = _configure(copy, own)
            html = _build(copy, work)
            bar.update()
        shutil.copytree(copy / "results", html / "results", dirs_exist_ok=True)
        record = work / "run.js"
        record.write_text(_run_record(identity, seconds, perf_counter() - began), encoding="utf-8")
        _publish(html, out / "html")
        record.replace(out / "run.js")
    return f"{len(sources)} notebooks executed; the book is {out / 'html' / 'index.html'}"


def run(notebook, given=(), out=None):
    """Execute one notebook with parameters of one's own, all of them checked before.

    Parameters
    ----------
    notebook : str or Path
        Name of one of the project's notebooks, or a file.
    given : iterable of (str, str)
        Names and texts; see `parameters.parse`.
    out : str or Path, optional
        Folder that receives the executed notebook and its results, whole or not at all; by default one that is
        named after the notebook, in the current folder.

    Returns
    -------
    str
        What was executed, and where it is.

    Raises
    ------
    PPModelError
        If the notebook, a parameter or the folder is refused, or a cell fails; the folder is then as it was.
    """
    source = _find(notebook)
    with _named(source.name):
        own = parameters.defaults(_read(source))
        values = parameters.parse(given, own)
        parameters.check(own | values, own)
        _refuse_known_names(values)
    out = Path(out or source.stem).absolute()
    _require_own_folder(out, {source.name, "specifications", own.get("results"), values.get("results")})
    with _workspace(out.parent) as work:
        folder = work / "run"
        folder.mkdir()
        brought = bring(values, folder)
        with tqdm(disable=True) as bar, _given_paths(values, brought):
            _execute_all({source: brought}, folder, folder, 1, bar)
        _publish(folder, out)
    return f"{source.name} executed; it and its results are in {out}"


# ---- what is asked for ---------------------------------------------------------------------------


def _find(notebook):
    """The file of a notebook, by the name that it has in the project or by its path."""
    known = {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
    if str(notebook) in known:
        return known[str(notebook)]
    if Path(notebook).is_file():
        return Path(notebook)
    near = get_close_matches(str(notebook), known, n=1, cutoff=0.4)
    remedy = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(known)}, or a file"
    raise ReproduceError("notebook", notebook, "is neither a notebook's name nor its file", remedy)


def _read(source):
    try:
        return nbformat.read(source, as_version=4)
    except (OSError, ValueError, AttributeError, nbformat.ValidationError):
        raise ReproduceError("notebook", source, "cannot be read as a notebook", "pass an .ipynb file") from None


@contextmanager
def _named(place):
    """Name the file in errors that do not name one themselves."""
    try:
        yield
    except PPModelError as error:
        error.where = error.where or place
        raise


@contextmanager
def _given_paths(given, brought):
    """Name files in errors of a notebook as its user did, and not as the copies that it reads."""
    try:
        yield
    except ReproduceError as error:
        for key, copy in brought.items():
            if isinstance(copy, str) and copy != given[key]:
                error.rule = error.rule.replace(copy, given[key])
        raise


def _name_of(given):
    """What a book is called that is built for a given system or model; nothing for the paper's."""
    loads = {"system": load_system, "model": load_model}
    name = "-".join(load(given[key]).name for key, load in loads.items() if given[key] is not None)
    if given["memory_limit"] is not None:
        parameters.check({"memory_limit": given["memory_limit"]}, {"memory_limit": ""})
        if not name:
            rule = "has no effect without a system or model of your own"
            raise ReproduceError("memory_limit", given["memory_limit"], rule, "give the system, too")
    _refuse_known_names(given)
    return name


def _refuse_known_names(values):
    """Refuse a file that pages could not tell from a specification of the project."""
    for key, room in _ROOMS.items():
        value = values.get(key)
        for name in value if isinstance(value, list) else [value]:
            if name is not None and not _is_known(name, room) and _is_known(Path(name).stem, room):
                raise ReproduceError("file", name, *same_name(name, room))


def _is_known(name, room):
    if room in _TEMPLATES.values():
        return str(name) in template_names(room)
    return str(name) in {"systems": system_names, "models": model_names, "settings": setting_names}[room]()


def _checked(sources, given):
    """What is changed in the parameters of each notebook."""
    given = {key: value if value is None else str(value) for key, value in given.items()}
    model = None if given["model"] is None else load_model(given["model"])
    changes = {}
    for source in sources:
        with _named(source.name):
            own = parameters.defaults(_read(source))
            changes[source] = parameters.substitutes(given, own)
            if model and {"model", "models"} & changes[source].keys():
                changes[source] |= parameters.fitting(own, model)
            parameters.check(changes[source], own)
    return changes


def _target(out, pages, own):
    """The folder for a book: never among the sources, and a book of one's own never where the paper's stands."""
    built = pages / "_build"
    out = Path(out or built / own).absolute()
    place = out.resolve()
    if place.is_relative_to(pages.resolve()) and not place.is_relative_to(built.resolve()):
        raise ReproduceError("out", out, "lies among the book's sources", "choose a folder outside of book")
    if place.is_relative_to(built.resolve() / "html"):
        raise ReproduceError("out", out, "lies among the pages of the book", "choose another folder")
    if own and place == built.resolve():
        raise ReproduceError("out", out, "is the folder of the paper's book", "choose another, or leave it away")
    return out


def _require_own_folder(out, names):
    """Refuse to replace a folder that holds more than a run of the notebook leaves."""
    if out.is_dir():
        strangers = sorted({path.name for path in out.iterdir()} - names)
        if strangers:
            raise ReproduceError("out", out, f"holds other files ({strangers[0]})", "choose a new folder")
        if Path.cwd().is_relative_to(out.resolve()):
            raise ReproduceError("out", out, "is the current folder", "choose a new folder")
    elif out.exists():
        raise ReproduceError("out", out, "is a file", "choose a new folder")


def bring(values, folder):
    """Copy the files that parameters name to where notebooks find them: no page shows a path.

    Parameters
    ----------
    values : dict of str to object
        Parameters of a notebook, by name.
    folder : Path
        Where the notebook runs.

    Returns
    -------
    dict of str to object
        The same values, with a path in `folder` for each file.

    Raises
    ------
    ReproduceError
        If two files of one kind share a name.
    """
    rooms = _ROOMS | _TEMPLATES
    return {key: _copied(value, rooms[key], folder) if key in rooms else value for key, value in values.items()}


def _copied(value, room, folder):
    if isinstance(value, list):
        return [_copied(name, room, folder) for name in value]
    if _is_known(value, room):
        return value
    copy = folder / "specifications" / room.removeprefix(".") / Path(value).name
    copy.parent.mkdir(parents=True, exist_ok=True)
    if copy.exists() and copy.read_bytes() != Path(value).read_bytes():
        raise ReproduceError("file", value, "has the name of another file that is given", "rename one of them")
    shutil.copyfile(value, copy)
    return str(copy.relative_to(folder))


# ---- a folder to work in -------------------------------------------------------------------------


@contextmanager
def _workspace(out):
    """A temporary folder on the target's file system, removed at the end whatever happens."""
    new = not out.exists()
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
        if new:
            with suppress(OSError):  # not empty, as it should be
                out.rmdir()


def _remove_leftovers(out):
    """Remove the workspaces of runs that were killed before they could."""
    for folder in out.glob(f"{_WORKSPACE}*"):
        owner = folder.name.removeprefix(_WORKSPACE).split("-")[0]
        if owner.isdecimal() and not Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)


# ---- notebooks -----------------------------------------------------------------------------------


def _execute_all(changes, folder, into, jobs, bar):
    """Run notebooks side by side, write them into a folder, and return the seconds of each."""
    into.mkdir(exist_ok=True)
    seconds = {}
    with ProcessPoolExecutor(
        jobs, get_context("spawn"), initializer=_isolate, initargs=[folder.parent, os.getpid()]
    ) as pool:
        runs = {pool.submit(_timed, source, folder, values): source for source, values in changes.items()}
        try:
            for done in as_completed(runs):
                notebook, seconds[runs[done].stem] = done.result()
                nbformat.write(notebook, into / runs[done].name)
                bar.update()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in active_children():  # their kernels end with them
                worker.terminate()
            raise
    return seconds


def _isolate(folder, parent):
    """Keep a user's own Jupyter start-up files, random hashes and Ctrl-C out of a worker's kernels."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _libc("prctl", _PR_SET_PDEATHSIG, signal.SIGTERM)  # a worker ends with the run, even if that is killed
    if os.getppid() != parent:  # it was, before this worker asked for it
        os._exit(1)
    (folder / "ipython").mkdir(exist_ok=True)
    os.environ.update(PYTHONHASHSEED="0", JUPYTER_PLATFORM_DIRS="1", IPYTHONDIR=str(folder / "ipython"))


def _timed(source, folder, values):
    began = perf_counter()
    notebook = execute(source, folder, values)
    return notebook, perf_counter() - began


def execute(source, folder, values):
    """Run one notebook by papermill in a folder, and strip what differs from run to run.

    Parameters
    ----------
    source : Path
    folder : Path
        Working directory of the notebook's kernel.
    values : dict
        Parameters in place of the notebook's own; see `parameters.check`.

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

    try:
        done = execute_notebook(
            _read(source), None, parameters=values, kernel_name="python3", cwd=str(folder),
            progress_bar=False, extra_arguments=["--IPKernelApp.log_level=50"],
        )  # fmt: skip
    except PapermillExecutionError as error:
        rule = f"failed in cell {error.cell_index}: {error.ename}: {error.evalue}"
        raise ReproduceError("notebook", source.name, rule, _KEPT, grid=_grid_of(error)) from None
    except PapermillException as error:
        raise ReproduceError("notebook", source.name, f"cannot be run: {error}", _KEPT) from None
    for number, cell in enumerate(done.cells):
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                rule = f"wrote a warning in cell {number}: {output.text.strip().splitlines()[-1]}"
                raise ReproduceError("notebook", source.name, rule, _KEPT)
    if _SPECIFIED & values.keys() and f"nb/{source.stem}" != _OWN_PAGE:
        done.cells[0].source += f"\n\n> {_WRITTEN_FOR} {_one_node(source, folder, values)}".rstrip()
    return _normalise(done)


def _grid_of(error):
    """The grid of a refused table, which stands below its message in a notebook; None for any other error."""
    return "\n".join(error.traceback[1:]) or None if error.ename == TableError.__name__ else None


def _one_node(source, folder, values):
    """Say of a page's own sizes at which of them all ranks of a given system lie on one node."""
    name = values.get("system") or next(iter(values.get("systems", ())), None)
    sizes = (parameters.defaults(_read(source)) | values).get("stages")
    if name is None or sizes is None:
        return ""
    system = load_system(name if _is_known(name, "systems") else folder / name)
    with suppress(SpecificationError):  # a list of nodes for other sizes, on a page that does not use them
        return one_node_text(system, sizes if isinstance(sizes, list) else [sizes])
    return ""


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


def _configure(book, own):
    """Give the pages what the notebooks recorded, as substitutions ``{{ notebook.name }}``; return the book's id."""
    facts = {path.stem: json.loads(path.read_text()) for path in sorted((book / "results").glob("*.json"))}
    facts["published"] = published().value.to_dict()
    facts["build"] = {"id": _digest(book)}
    yaml = YAML()
    config = yaml.load(book / "_config.yml")
    config["sphinx"]["config"]["myst_substitutions"] = facts
    if own and (book / f"{_OWN_PAGE}.ipynb").exists():
        config["title"] = f"{config['title']}: {own}"
        _lead_with(_OWN_PAGE, book)
    yaml.dump(config, book / "_config.yml")
    return facts["build"]["id"]


def _lead_with(page, book):
    """Make a page the first of the book, and the introduction its first chapter."""
    yaml = YAML()
    contents = yaml.load(book / "_toc.yml")
    for part in contents["parts"]:
        part["chapters"] = [chapter for chapter in part["chapters"] if chapter["file"] != page]
    contents["root"] = page
    contents["parts"][0]["chapters"].insert(0, {"file": "introduction"})
    yaml.dump(contents, book / "_toc.yml")
    (book / "index.md").rename(book / "introduction.md")  # index.html becomes a way to the first page


def _digest(folder):
    """One number for all that a book is built from."""
    whole = sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        whole.update(f"{path.relative_to(folder)}\0{sha256(path.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()[:16]


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
    return git(ROOT, "log", "-1", "--format=%ct") or str(int(Path(__file__).stat().st_mtime))


def _run_record(identity, seconds, total):
    """How long a build took, as a script that the provenance page loads: times in a page would change its bytes."""
    record = {
        "id": identity,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "seconds": round(total, 1),
        "notebooks": {name: round(value, 1) for name, value in sorted(seconds.items())},
    }
    return f"ppmodelRun = {json.dumps(record)};\n"


def _processor():
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()


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
