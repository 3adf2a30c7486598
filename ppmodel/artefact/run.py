"""Run one notebook of the project, or one of the user's own, with parameters of one's own."""

import os
import sys
from difflib import get_close_matches
from pathlib import Path

import nbformat
from tqdm import tqdm

from ppmodel.artefact import parameters
from ppmodel.artefact.answer import answer, resolved
from ppmodel.artefact.files import bring, files_of, given_paths, require_names
from ppmodel.artefact.folders import publish, require_ours, workspace
from ppmodel.artefact.notebooks import execute_all, named, read
from ppmodel.errors import ReproduceError

ROOT = Path(__file__).parents[2]
"""The clone: the notebooks and the book's sources live beside the package."""


def notebook_names():
    """The notebooks that come with the project.

    Returns
    -------
    dict of str to Path
        From names to files, sorted.

    Examples
    --------
    >>> "table" in notebook_names()
    True
    """
    return {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}


def run(notebook, given=(), out=None, time_limit=None):
    """Execute one notebook with parameters of one's own, all of them checked before.

    Parameters
    ----------
    notebook : str or Path
        Name of one of the project's notebooks, or a file.
    given : iterable of (str, str)
        Names and texts; see `parameters.parse`.
    out : str or Path, optional
        Folder that receives the executed notebook and its results, whole or not at all; by default one that is
        named after the notebook, in the current folder. Only a folder that an earlier run wrote is replaced.
    time_limit : float, optional
        Seconds that a cell may take.

    Returns
    -------
    str
        The page's answer, then what was executed and where it is.

    Raises
    ------
    PPModelError
        If the notebook, a parameter or the folder is refused, or a cell fails; the folder is then as it was.
    """
    source = _find(notebook)
    with named(source.name):
        own = parameters.declared(read(source))
        values = parameters.parse(given, own)
        parameters.check({name: one.value for name, one in own.items()} | values, own)
        require_names(files_of(values, own))
    out = Path(os.path.realpath(out or source.stem))
    _require_target(out)
    with workspace(out.parent) as work:
        folder = work / "run"
        folder.mkdir()
        brought = bring(values, own, folder)
        with tqdm(total=1, desc="notebook", file=sys.stderr, disable=None) as bar, given_paths(values, brought):
            execute_all({source: brought}, folder, folder, 1, bar, time_limit)
        done = resolved(read(folder / source.name), folder / _results(values, own))
        nbformat.write(done, folder / source.name)
        publish(folder, out)
    return f"{answer(done)}\n\n{source.name} executed; it and its results are in {out}"


def _results(values, own):
    """The folder, below that of the run, into which a notebook writes; most have a parameter that says it."""
    return values.get("results", own["results"].value if "results" in own else "results")


def _find(notebook):
    """The file of a notebook, by the name that it has in the project or by its path."""
    known = notebook_names()
    if str(notebook) in known:
        return known[str(notebook)]
    if Path(notebook).is_file():
        return Path(notebook)
    near = get_close_matches(str(notebook), known, n=1, cutoff=0.4)
    remedy = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(known)}, or a file"
    if not known:
        remedy = "run from a clone of the project, or pass a file: an installed package has no notebooks"
    raise ReproduceError("notebook", notebook, "is neither a notebook's name nor its file", remedy)


def _require_target(out):
    require_ours(out)
    if out.is_dir() and Path.cwd().is_relative_to(out):
        raise ReproduceError("out", out, "is the current folder", "choose a new folder")
