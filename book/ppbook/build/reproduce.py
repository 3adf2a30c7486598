"""Run every notebook and build the book in a fresh folder, which then takes the place of the old one.

A notebook that fails or prints a warning publishes nothing, and what was there stays.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from ruamel.yaml import YAML

from ppbook import ROOT, parameters
from ppbook.build.folders import copy_sources, publish, require_ours, rewrite, slim
from ppbook.build.notebooks import KEPT, execute_all, named, read
from ppbook.build.provenance import commit_of, git, write_archive
from ppbook.build.reference import write_reference
from ppbook.build.review import cards_page
from ppbook.claims import published
from ppbook.errors import ReproduceError
from ppbook.pages import pictures, planner, schedule_pages
from ppbook.pages.explorer_data import write_explorer
from ppbook.pages.report import literal
from ppbook.pages.theme import ARCHIVE, add_buttons, how_to_get, mended, repository
from ppbook.parameters import KINDS
from ppbook.parameters.files import bring, files_of, require_names
from ppmodel.cli.process import cli
from ppmodel.clusters.specs import DATA, load_model, load_system
from ppmodel.studies.workers.progress import passing

NO_SOURCES = ("_build", "nb", "results", "ppbook")
"""What is in the folder of the book's sources, or may be, and is none of them."""

_EXPLORER = "explorer"
OWN_PAGE = "nb/which-layout"
"""The page about the user's own system."""
LONGEST = (
    "measured", "which-layout", "claims", "tensor-pipeline", "schedules-measured", "asymmetric", "field",
)  # fmt: skip
"""Notebooks that run first, so that no worker is left with a long one while the others have ended."""


def reproduce(
    system=None, model=None, out=None, jobs=2, notebooks=None, book=None, memory_limit=None, time_limit=None, gpus=None,
    global_batch=None,
):  # fmt: skip
    """Execute the notebooks and build the book.

    Parameters
    ----------
    system, model : str or Path, optional
        Names or files. The model takes the place of the paper's, the system that of a single system; both
        stand in front of the others where a page shows several.
    out : str or Path, optional
        Folder that receives ``html`` and ``run.js``; by default ``_build`` of the book's sources, and a folder in it
        that is named after `system` and `model` where one of them is given. Only an earlier build is replaced.
    jobs : int
        Notebooks run at once.
    notebooks, book : Path, optional
        Folders of the notebooks and of the book's sources, the clone's by default.
    memory_limit : str, optional
        Bytes that a schedule may take of a rank, such as ``64 GiB``; all of its memory by default.
    time_limit : float, optional
        Seconds that a cell of a notebook may take.
    gpus, global_batch : int, optional
        Of the plan that a book of one's own begins with.

    Returns
    -------
    Path
        The first page.

    Raises
    ------
    PPModelError
        If a specification, a notebook or the build fails; the target is then as it was.
    """
    began = perf_counter()
    notebooks, pages = Path(notebooks or ROOT / "notebooks"), Path(book or ROOT / "book")
    turns = {name: turn for turn, name in enumerate(LONGEST)}
    sources = sorted(notebooks.glob("*.ipynb"), key=lambda path: (turns.get(path.stem, len(turns)), path.stem))
    if not sources or not (pages / "_config.yml").is_file():
        rule, remedy = "holds no notebooks of the book", "run from a clone of the project"
        raise ReproduceError("notebooks", notebooks, rule, remedy)
    given = {"system": system, "model": model, "memory_limit": memory_limit}
    size = {name: count for name, count in (("gpus", gpus), ("global_batch", global_batch)) if count is not None}
    name, changes = _asked(sources, {key: str(value) for key, value in given.items() if value is not None}, size)
    out, made = Path(out or pages / "_build" / name).absolute(), f"ppmodel reproduce {name}".strip()
    require_ours(out / "html", made)
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".ppmodel-", dir=out, ignore_cleanup_errors=True) as work:
        work = Path(work)
        copy = work / "book"
        copy_sources(pages, copy, NO_SOURCES)
        copy_sources(DATA / "templates", copy / "templates")
        (copy / "results").mkdir()
        made_pages = {
            "commands": write_reference(cli), "cards_claims": cards_page(False), "cards_parts": cards_page(True),
        }  # fmt: skip
        for page, text in made_pages.items():
            (copy / "results" / f"{page}.md").write_text(text, encoding="utf-8")
        changes = {source: bring(values, parameters.declared(read(source)), copy) for source, values in changes.items()}
        with passing("running notebooks") as show:
            seconds = execute_all(changes, copy, copy / "nb", jobs, show, time_limit, pictures.HAND_OVER)
            pictures.take_out(copy / "nb", work / "pictures")
            show("building the book")
            schedule_pages.write(copy)
            archived = write_archive(work / ARCHIVE)
            identity = _configure(copy, name, archived)
            html = _with_explorer(copy, work)
            files = {path.stem: path for path in [*copy.glob("results/*.png"), *work.glob("pictures/*.png")]}
            rewrite(html, lambda text, _: mended(pictures.choose(text, html / "_images", files)))
            if archived:
                shutil.move(work / ARCHIVE, html)
            for setting in ("_config.yml", "_toc.yml"):  # with them, the pages' sources can be built again
                shutil.copy(copy / setting, html / "_sources")
        pictures_shown = shutil.ignore_patterns("*.png")  # pages have them, and link to the SVG
        shutil.copytree(copy / "results", html / "results", dirs_exist_ok=True, ignore=pictures_shown)
        slim(html)
        record = work / "run.js"
        record.write_text(_run_record(identity, seconds, perf_counter() - began), encoding="utf-8")
        publish(html, out / "html", made)
        record.replace(out / "run.js")
    return out / "html" / "index.html"


# ---- what is asked for ---------------------------------------------------------------------------


def _asked(sources, given, size):
    """The name of a book, empty for the paper's, and what is changed in the parameters of each notebook."""
    loads = {"system": load_system, "model": load_model}
    specs = {key: load(given[key]) for key, load in loads.items() if key in given}
    words = {"system": "system", "model": "model", "memory_limit": "size"}
    options = {key: parameters.Parameter("", word, KINDS[word], False) for key, word in words.items()}
    require_names(files_of(given, options))
    parameters.check(given, options)
    if (given | size) and not specs:
        rule = "has no effect without a system or model of your own"
        raise ReproduceError(*next(iter((given | size).items())), rule, "give the system, too")
    changes = {}
    for source in sources:
        with named(source.name):
            declared = parameters.declared(read(source))
            changes[source] = parameters.substitutes(given, declared)
            if "model" in specs and any(declared[name].word == "model" for name in changes[source]):
                changes[source] |= parameters.fitting(declared, specs["model"])
            if f"nb/{source.stem}" == OWN_PAGE:
                changes[source] |= size
            parameters.check(changes[source], declared)
    return "-".join(spec.name for spec in specs.values()), changes


# ---- book ----------------------------------------------------------------------------------------


def _configure(book, name, archived):
    """Give the pages what the notebooks recorded, as substitutions ``{{ notebook.name }}``; return the book's id."""
    identity = sha256()
    for path in sorted(path for path in book.rglob("*") if path.is_file()):
        identity.update(f"{path.relative_to(book)}\0{sha256(path.read_bytes()).hexdigest()}\n".encode())
    facts = {path.stem: _quoted(json.loads(path.read_text())) for path in sorted((book / "results").glob("*.json"))}
    facts["published"] = published().value.to_dict()
    facts["build"] = {"id": identity.hexdigest()[:16]} | dict(zip(("commit", "state"), commit_of(), strict=True))
    timed = json.loads((DATA / "reference" / "benchmarks.json").read_text(encoding="utf-8"))
    facts["speed"] = timed["machine"] | {row["peer"]: row["ratio"] for row in timed["peers"] if row["pp"] == 64}
    facts["project"] = {"get_it": how_to_get(address := repository(ROOT / "pyproject.toml"), archived)}
    yaml = YAML()
    yaml.width = 2**20  # a line that is folded at a backslash of a fact gets a space there
    config, contents = (yaml.load(book / file) for file in ("_config.yml", "_toc.yml"))
    config["sphinx"]["config"]["myst_substitutions"] = facts
    add_buttons(config, address)
    if name and (book / f"{OWN_PAGE}.ipynb").exists():  # the page about it comes first, then the introduction
        config["title"] = f"{config['title']}: {name}"
        for part in contents["parts"]:
            part["chapters"] = [chapter for chapter in part["chapters"] if chapter["file"] != OWN_PAGE]
        contents["root"] = OWN_PAGE
        contents["parts"][0]["chapters"].insert(0, {"file": "introduction"})
        yaml.dump(contents, book / "_toc.yml")
        (book / "index.md").rename(book / "introduction.md")  # index.html becomes a way to the first page
    yaml.dump(config, book / "_config.yml")
    return facts["build"]["id"]


def _quoted(fact):
    """What a notebook recorded, with every text in it as plain text: pages would read it as MyST, and evaluate it."""
    if isinstance(fact, dict):
        return {key: _quoted(value) for key, value in fact.items()}
    if isinstance(fact, list):
        return [_quoted(value) for value in fact]
    return str(literal(fact)) if isinstance(fact, str) else fact


def build_pages(book, work, builder="html"):
    """Build the pages of a book with jupyter-book.

    Parameters
    ----------
    book, work : Path
        Its sources, and a temporary folder.
    builder : str
        ``html``, whose warnings are errors, or ``singlehtml``.

    Returns
    -------
    Path
        The folder of the pages.

    Raises
    ------
    ReproduceError
        With the warnings.
    """
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", str(book)]
    command += ["--path-output", str(work / "site"), "--builder", builder, "-q"]
    command += ["-W", "-n", "--keep-going"] if builder == "html" else []
    environment = os.environ | {"SOURCE_DATE_EPOCH": commit_time(), "PYTHONHASHSEED": "0"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    if run.returncode:
        lines = [line for line in (run.stdout + run.stderr).splitlines() if line.strip()]
        problems = [line for line in lines if "WARNING" in line or "ERROR" in line] or lines[-20:]
        log = "\n".join(line.replace(str(book), "book") for line in problems)
        raise ReproduceError("book", "build", "failed with the warnings below", KEPT, grid=log)
    return work / "site" / "_build" / builder


def _with_explorer(book, work):
    """Build the pages, and beside them what the explorer loads, its scripts and all orders, and the planner.

    The scripts are no static files of the book: those are loaded by every page.
    """
    if not (book / _EXPLORER).is_dir():
        return build_pages(book, work)
    with ThreadPoolExecutor(2) as pool:
        orders = pool.submit(write_explorer, book / _EXPLORER / "data")
        answers = pool.submit(planner.write_planner, work / planner.PAGE)
        html = build_pages(book, work)
        orders.result()
        answers.result()
    shutil.copytree(book / _EXPLORER, html / _EXPLORER)
    shutil.move(work / planner.PAGE, html)
    return html


def commit_time():
    """When the last commit was made, which the pages give as their date; of the package where there is no clone.

    Returns
    -------
    str
        Seconds since 1970.
    """
    return git(ROOT, "log", "-1", "--format=%ct") or str(int(Path(__file__).stat().st_mtime))


def _run_record(identity, seconds, total):
    """How long a build took, as a script that the artefact appendix loads: times in a page would change its bytes."""
    cpus = Path("/proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.+)$", cpus.read_text() if cpus.is_file() else "", re.MULTILINE)
    record = {
        "id": identity, "date": datetime.now(UTC).isoformat(timespec="seconds"), "cores": os.cpu_count(),
        "processor": model[1] if model else platform.machine(), "seconds": round(total, 1),
        "notebooks": {name: round(value, 1) for name, value in sorted(seconds.items())},
    }  # fmt: skip
    return f"ppmodelRun = {json.dumps(record)};\n"
