"""Read and execute notebooks: the same results give the same bytes."""

import logging
import os
import re
import signal
import threading
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from tempfile import TemporaryDirectory
from time import perf_counter

import nbformat
from nbformat.v4 import new_markdown_cell

from ppbook.errors import ReproduceError
from ppbook.parameters.published import MAGIC, as_markdown
from ppmodel import errors
from ppmodel.errors import PPModelError, TableError
from ppmodel.files import read_text

KEPT = "nothing was written, and existing files are unchanged"
"""What a failed run says about its output."""

CONTEXT = get_context("spawn")
_LARGEST_BYTES = 2**26  # of a notebook with its pictures
_WARNINGS = re.compile(r"\b\w+Warning(?=: )")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_ENDS = "**The page ends here.** What follows is not defined for these parameters. {}"
_begun = []  # in a worker, what is told of the cells that it has begun
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
    text = read_text(source, _LARGEST_BYTES, ReproduceError)
    try:
        notebook = nbformat.reads(text, as_version=4)
        nbformat.validate(notebook)
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


def execute_all(changes, folder, into, jobs, show, limit=None, first=None, partly=False, begun=None):
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
    show : callable
        Takes a text that names those that run, and the share of notebooks that are done; see `progress.passing`.
    limit, first, partly
        As in `execute`.
    begun : multiprocessing Value, optional
        Receives the number of the cell that a notebook has begun.

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
    seconds, waiting, running = {}, list(changes.items()), {}
    with TemporaryDirectory() as settings, ProcessPoolExecutor(jobs, CONTEXT, _isolate, [settings, begun]) as pool:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    source, values = waiting.pop(0)
                    running[pool.submit(_timed, source, folder, values, limit, first, partly)] = source
                names = ", ".join(source.stem for source in running.values())
                show(f"{len(seconds)} of {len(changes)} notebooks, running {names}", len(seconds) / len(changes))
                for run in wait(running, return_when=FIRST_COMPLETED).done:
                    notebook, seconds[running[run].stem] = run.result()
                    nbformat.write(notebook, into / running.pop(run).name)
        except BaseException as error:
            for worker in active_children():  # papermill ends its kernel
                worker.terminate()
            if isinstance(error, BrokenProcessPool):
                names = " or ".join(source.name for source in running.values())
                raise ReproduceError("notebook", names, "was running when its process died", KEPT) from None
            raise
    return seconds


def _isolate(settings, begun):
    """Keep a user's settings of Jupyter and Matplotlib, random hashes and Ctrl-C out of a worker and its kernels."""
    _begun.append(begun)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=lambda: (parent_process().join(), os._exit(1)), daemon=True).start()  # end with the parent
    for stream in (1, 2):  # a cell's output is in the notebook; here it would mix with our messages
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    logging.disable()  # errors are one line
    os.environ |= {
        "IPYTHONDIR": settings, "MPLCONFIGDIR": settings, "JUPYTER_PLATFORM_DIRS": "1", "PYTHONHASHSEED": "0",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }  # fmt: skip
    os.environ.pop("SOURCE_DATE_EPOCH", None)


def _timed(*arguments):
    began = perf_counter()
    return execute(*arguments), perf_counter() - began


# ---- one -----------------------------------------------------------------------------------------


def execute(source, folder, values, limit=None, first=None, partly=False):
    """Run one notebook with papermill in a folder, and remove what differs from run to run.

    Parameters
    ----------
    source : Path
        The notebook.
    folder : Path
        Working directory of its kernel.
    values : dict of str to object
        Parameters that replace the notebook's own; see `parameters.check`.
    limit : float, optional
        Time limit per cell in seconds.
    first : str, optional
        A line that the kernel runs before all cells.
    partly : bool, optional
        Whether a page that has shown something may end, with one line, at a cell that refuses the given parameters.

    Returns
    -------
    NotebookNode

    Raises
    ------
    ReproduceError
        If a cell raises or warns, takes too long, or the kernel dies.
    """
    notebook = _run_by_papermill(source, folder, values, limit, first, partly)
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


def _run_by_papermill(source, folder, values, limit, first, partly, starts=3):
    """A kernel that dies before it answers is started again: another process may have taken a port chosen for it."""
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill import execute_notebook
    from papermill.exceptions import PapermillExecutionError

    begun = []

    def note(cell, **_):
        begun.append(cell)
        if _begun and _begun[0]:
            _begun[0].value = len(begun)

    arguments = ["--IPKernelApp.log_level=50"] + ([f"--IPKernelApp.exec_lines={first}"] if first else [])
    try:
        return execute_notebook(
            read(source), None, values, kernel_name="python3", cwd=str(folder), progress_bar=False,
            execution_timeout=limit, extra_arguments=arguments, on_cell_start=note,
        )  # fmt: skip
    except PapermillExecutionError as error:
        shown = begun[:-1]
        has_outputs = any(cell.get("outputs") and not cell.source.startswith(MAGIC) for cell in shown)
        if partly and values and error.ename in _REFUSALS and has_outputs:  # the page ends where it refused
            notebook = read(source)
            notebook.cells = [*shown, new_markdown_cell(_ENDS.format(error.evalue))]
            return notebook
        rule = f"failed in cell {error.cell_index}: {error.ename}: {error.evalue}"
        grid = "\n".join(error.traceback[1:]) if error.ename == TableError.__name__ else None
        raise ReproduceError("notebook", source.name, rule, KEPT, grid=grid or None) from None
    except CellTimeoutError:
        rule = f"has not finished cell {len(begun) - 1} after {limit:g} s"
        raise ReproduceError("notebook", source.name, rule, f"fix its loop, or allow more time; {KEPT}") from None
    except (RuntimeError, DeadKernelError) as error:
        if not begun and starts > 1:
            return _run_by_papermill(source, folder, values, limit, first, partly, starts - 1)
        place = f"in cell {len(begun) - 1}" if begun else "before its first cell"
        raise ReproduceError("notebook", source.name, f"cannot be run: {error} {place}", KEPT) from None


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
