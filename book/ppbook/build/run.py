"""Run one of the project's or the user's notebooks, with the user's parameters."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat

from ppbook import ROOT, parameters
from ppbook.build.answer import answer, resolved
from ppbook.build.folders import publish, require_ours
from ppbook.build.notebooks import CONTEXT, execute_all, named, read
from ppbook.errors import ReproduceError
from ppbook.parameters.files import bring, files_of, given_paths, require_names
from ppmodel.errors import did_you_mean
from ppmodel.studies.workers.progress import passing


def notebook_names():
    """List the notebooks that come with the project.

    Returns
    -------
    dict of str to Path
        Name to file, sorted.

    Examples
    --------
    >>> "table" in notebook_names()
    True
    """
    return {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}


def parameters_of(notebook):
    """Parameters of a notebook, by name or file; see `parameters.declared`.

    Examples
    --------
    >>> parameters_of("runtime")["pp"].about
    'ranks'
    """
    source = _find(notebook)
    with named(source.name):
        return parameters.declared(read(source))


def run(notebook, given=(), out=None, time_limit=None):
    """Execute one notebook with the user's parameters, after checking them all.

    Parameters
    ----------
    notebook : str or Path
        Name of one of the project's notebooks, or a file.
    given : iterable of (str, str)
        Names and texts; see `parameters.parse`.
    out : str or Path, optional
        Folder for the executed notebook and its results, written completely or not at all; by default, one named after
        the notebook, in the current folder. Only the folder of an earlier run of it is replaced.
    time_limit : float, optional
        Time limit per cell in seconds.

    Returns
    -------
    answer : str
        The page's; see `answer.answer`.
    out : Path
        The folder.

    Raises
    ------
    PPModelError
        If the notebook, a parameter or the folder is refused, or a cell fails; the folder is then unchanged.
    """
    source, declared = _find(notebook), parameters_of(notebook)
    with named(source.name):
        values = parameters.parse(given, declared)
        parameters.check({name: parameter.value for name, parameter in declared.items()} | values, declared)
        require_names(files_of(values, declared))
    out, made = Path(os.path.realpath(out or source.stem)), f"ppmodel run {source.stem}"
    require_ours(out, made)
    if out.is_dir() and Path.cwd().is_relative_to(out):
        raise ReproduceError("out", out, "is the current folder", "choose a new folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".ppmodel-", dir=out.parent, ignore_cleanup_errors=True) as work:
        folder = Path(work, "run")
        folder.mkdir()
        brought = bring(values, declared, folder)
        begun, cells = CONTEXT.Value("i", 0), len(read(source).cells)
        with passing(f"running {source.stem}") as show, given_paths(values, brought):
            show(f"running {source.stem}", lambda: max(begun.value - 1, 0) / cells)
            execute_all({source: brought}, folder, folder, 1, lambda *_: None, time_limit, partly=True, begun=begun)
        results = values.get("results", declared["results"].value if "results" in declared else "results")
        page = resolved(read(folder / source.name), folder / results)
        nbformat.write(page, folder / source.name)
        publish(folder, out, made)
    return answer(page, own=bool(values) and not {"setting", "p2p"} & {*values}), out


def _find(notebook):
    """The file of a notebook, by its name in the project or by its path."""
    names = notebook_names()
    if str(notebook) in names:
        return names[str(notebook)]
    if Path(notebook).is_file():
        return Path(notebook)
    remedy = did_you_mean(notebook, names) or f"choose one of {', '.join(names)}, or a file"
    raise ReproduceError("notebook", notebook, "is neither the name nor the file of a notebook", remedy)
