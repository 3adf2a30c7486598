"""Read and execute notebooks: the same results give the same bytes."""

import logging
import os
import re
import signal
import sys
import tempfile
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, time

import nbformat
from nbformat.v4 import new_markdown_cell

from ppbook.build.forked import ForkedKernels, end_with_parent, load_nothing
from ppbook.errors import ReproduceError
from ppbook.parameters.published import MAGIC, as_markdown
from ppmodel import errors
from ppmodel.errors import PPModelError, TableError
from ppmodel.files import read_text

KEPT = "nothing was written, and existing files are unchanged"
"""What a failed run says about its output."""


_LARGEST_BYTES = 2**26  # of a notebook with its pictures
_WARNINGS = re.compile(r"\b\w+Warning(?=: )")
_SAY_S, _LOOK_S, _START_S = 30, 1, 60
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_REFUSED_TAG = "papermill-error-cell-tag"
_ENDS = "**The page ends here.** What follows is not defined for these parameters. {}"
_REFUSALS = {
    name for name, entry in vars(errors).items() if isinstance(entry, type) and issubclass(entry, PPModelError)
}


def read(source):
    """Read a notebook.

    Parameters
    ----------
    source : Path
        An ``.ipynb`` file.

    Returns
    -------
    NotebookNode

    Raises
    ------
    ReproduceError
        If it is not a notebook.
    """
    try:
        notebook = nbformat.reads(read_text(source, _LARGEST_BYTES, ReproduceError), as_version=4)
        nbformat.validate(notebook)
    except ReproduceError:
        raise
    except Exception:  # anything a library may raise for another kind of file
        raise ReproduceError("notebook", source, "cannot be read as a notebook", "pass an .ipynb file") from None
    return notebook


@contextmanager
def named(place):
    """Name the file in errors that do not name one themselves.

    Parameters
    ----------
    place : str
        The file.
    """
    try:
        yield
    except PPModelError as error:
        error.where = error.where or place
        raise


# ---- many ----------------------------------------------------------------------------------------


def execute_all(changes, folder, into, jobs, bar, limit=None, first=None, partly=False):
    """Run notebooks in parallel and write them into a folder.

    Parameters
    ----------
    changes : dict of Path to dict
        Notebook to the values of its parameters.
    folder : Path
        Working directory of their kernels.
    into : Path
        Created if missing.
    jobs : int
        Number of notebooks to run at once.
    bar : tqdm
        Advances by one for each and names those that are running, with an occasional message about slow cells.
    limit : float, optional
        Time limit per cell in seconds.
    first : str, optional
        A line that each kernel runs before all cells.
    partly : bool, optional
        Whether a page may end where its parameters are refused; see `execute`.

    Returns
    -------
    dict of str to float
        Run time of each in seconds.

    Raises
    ------
    ReproduceError
        If a cell raises or warns, takes too long, or its process dies; the others are stopped.
    """
    into.mkdir(exist_ok=True)
    seconds, cells = {}, folder.parent
    temporary = TemporaryDirectory(ignore_cleanup_errors=True)  # of workers, which are killed before they clean up
    arguments = cells, temporary.name, len(changes)
    with temporary, ProcessPoolExecutor(jobs, get_context("spawn"), _isolate, arguments) as pool:
        how = folder, first, partly
        runs = {pool.submit(_timed, source, values, *how): source for source, values in changes.items()}
        try:
            for run in _as_completed(runs, cells, bar, limit):
                notebook, seconds[runs[run].stem] = run.result()
                nbformat.write(notebook, into / runs[run].name)
                bar.update()
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in active_children():  # their kernels end with them
                worker.kill()  # reaches even a worker whose kernel has stopped it
            if isinstance(error, BrokenProcessPool):
                places = [f"{source.name}, cell {cell}" for source, cell, _ in _running(runs.values(), cells)]
                rule = "was running when its process died, or was killed"
                raise ReproduceError("notebook", " or ".join(places) or "the first", rule, KEPT) from None
            raise
    return seconds


def _as_completed(runs, cells, bar, limit):
    """Yield runs as they end; meanwhile, report slow cells, and refuse one that takes too long."""
    pending, reported = set(runs), time()
    while pending:
        completed, pending = wait(pending, _LOOK_S, FIRST_COMPLETED)
        yield from completed
        running = list(_running([runs[run] for run in pending], cells))
        bar.set_postfix_str(", ".join(f"{source.stem} (cell {cell})" for source, cell, _ in running), False)
        if sys.stderr.isatty():
            bar.refresh()
        for source, cell, since in running:
            if limit is not None and time() - since > limit:
                rule = f"has not finished cell {cell} after {limit:g} s"
                raise ReproduceError("notebook", source.name, rule, f"fix its loop, or allow more time; {KEPT}")
            if time() - max(since, reported) > _SAY_S:
                text = f"{source.name}: cell {cell} has been running for {time() - since:.0f} s"
                bar.write(text, file=sys.stderr)
        reported = time() if time() - reported > _SAY_S else reported


def _running(sources, cells):
    """Notebooks, the current cell of each, and when it started, in seconds."""
    for source in sources:
        path = cells / f"{source.stem}.cell"
        with suppress(OSError, ValueError):
            yield source, int(path.read_text()), path.stat().st_mtime


def _isolate(folder, temporary, num_notebooks):
    """Keep a user's own settings of Jupyter and Matplotlib, random hashes and Ctrl-C out of a worker's kernels."""
    os.environ["TMPDIR"] = tempfile.tempdir = temporary
    if num_notebooks == 1:
        load_nothing()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    if os.getppid() != parent_process().pid:  # it died before
        os._exit(1)
    for stream in (1, 2):  # a cell's output is in the notebook; here it would mix with our messages
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    logging.disable()  # we report errors ourselves, in one line
    settings = folder / "settings"
    settings.mkdir(exist_ok=True)
    os.environ.update(dict.fromkeys(("IPYTHONDIR", "MPLCONFIGDIR"), str(settings)))
    os.environ.update(PYTHONHASHSEED="0", JUPYTER_PLATFORM_DIRS="1")
    os.environ.pop("SOURCE_DATE_EPOCH", None)
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # whatever the surrounding shell prefers


def _timed(source, values, folder, first, partly):
    """Run a notebook, with a file that says which of its cells is running."""
    began, path = perf_counter(), folder.parent / f"{source.stem}.cell"
    notebook = execute(source, folder, values, lambda number: path.write_text(str(number)), first, partly=partly)
    path.unlink(missing_ok=True)
    return notebook, perf_counter() - began


# ---- one -----------------------------------------------------------------------------------------


def execute(source, folder, values, at_cell=str, first=None, kernels=ForkedKernels, partly=False):
    """Run one notebook with papermill in a folder, and remove what differs from run to run.

    Parameters
    ----------
    source : Path
        The notebook.
    folder : Path
        Working directory of its kernel.
    values : dict of str to object
        Parameters that replace the notebook's own; see `parameters.check`.
    at_cell : callable, optional
        Called with the number of each cell as it starts.
    first : str, optional
        As in `execute_all`.
    kernels : type, optional
        Kernel manager that starts the kernel.
    partly : bool, optional
        Whether a page that has shown something may end, with one line, at a cell that refuses the given parameters.

    Returns
    -------
    NotebookNode

    Raises
    ------
    ReproduceError
        If a cell raises or warns, or the kernel dies.
    """
    with TemporaryDirectory() as work:
        output = Path(work, source.name) if partly and values else None
        notebook = _run_by_papermill(source, folder, values, at_cell, first, kernels, output)
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", ()):
            rule = None
            if output.output_type == "error":  # papermill lets SystemExit pass
                rule = f"failed in cell {number}: {output.ename}: {output.evalue}"
            elif output.get("name") == "stderr" and set(_WARNINGS.findall(output.text)) != {"NoEffectWarning"}:
                rule = f"wrote a warning in cell {number}: {output.text.strip().splitlines()[-1]}"
            if rule:
                raise ReproduceError("notebook", source.name, rule, KEPT)
        if "outputs" in cell:  # a page shows what its parameters do, also those that do nothing
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    as_markdown(notebook)
    _normalise(notebook)
    return notebook


def _run_by_papermill(source, folder, values, at_cell, first, kernels, output, starts=3):
    """A kernel that dies before it answers is started again: another process may have taken a port chosen for it."""
    from papermill import execute_notebook
    from papermill.exceptions import PapermillExecutionError

    place = before = "before its first cell"

    def begun(cell_index, **_):
        nonlocal place
        place = f"in cell {cell_index}"
        at_cell(cell_index)

    arguments = ["--IPKernelApp.log_level=50"] + ([f"--IPKernelApp.exec_lines={first}"] if first else [])
    try:
        return execute_notebook(
            read(source), output, parameters=values, kernel_name="python3", cwd=str(folder), progress_bar=False,
            start_timeout=_START_S, extra_arguments=arguments, on_cell_start=begun, kernel_manager_class=kernels,
        )  # fmt: skip
    except PapermillExecutionError as error:
        if output and error.ename in _REFUSALS:  # a page that has shown something ends where it refused
            notebook = read(output)
            cells = [cell for cell in notebook.cells if _REFUSED_TAG not in cell.metadata.get("tags", ())]
            place = next(n for n, cell in enumerate(cells) if cell.metadata.get("papermill", {}).get("exception"))
            notebook.cells = [*cells[:place], new_markdown_cell(_ENDS.format(error.evalue))]
            if any(cell.get("outputs") for cell in cells[:place] if not cell.source.startswith(MAGIC)):
                return notebook
        rule = f"failed in cell {error.cell_index}: {error.ename}: {error.evalue}"
        grid = "\n".join(error.traceback[1:]) if error.ename == TableError.__name__ else None
        raise ReproduceError("notebook", source.name, rule, KEPT, grid=grid or None) from None
    except Exception as error:  # anything that may happen to a process running foreign code
        if place == before and "died" in str(error) and starts > 1:
            return _run_by_papermill(source, folder, values, at_cell, first, kernels, output, starts - 1)
        rule = f"cannot be run: {str(error) or type(error).__name__} {place}"
        raise ReproduceError("notebook", source.name, rule, KEPT) from None


def _normalise(notebook):
    """Remove times, kernel metadata and addresses, so that the same results give the same bytes."""
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
