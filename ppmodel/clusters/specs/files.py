"""The specifications and templates that come with the package, and the file that a name or a path stands for."""

import os
from pathlib import Path

from ppmodel.errors import SpecificationError, did_you_mean
from ppmodel.files import DATA

RENAMED_FRAMEWORKS = {"megatron_deepspeed": "vtrain"}
"""Names of version 0.1.0, and what the frameworks are called now; the old ones are read as well."""


def packaged(folder: str, suffix: str = ".yaml") -> dict[str, Path]:
    """The files of a kind that come with the package, by name.

    Parameters
    ----------
    folder : str
        ``systems``, ``models``, ``layouts``, ``frameworks``, ``launchers`` or ``templates``.
    suffix : str
        How their names end.

    Returns
    -------
    dict of str to Path
        Sorted by name, as `load_system`, `load_model` and so on take it.

    Examples
    --------
    >>> [*packaged("launchers")]
    ['deepspeed', 'megatron', 'megatron-bridge', 'nemo', 'torchtitan']
    """
    return {path.stem: path for path in sorted((DATA / folder).rglob(f"*{suffix}"), key=lambda path: path.stem)}


def specification_path(name, folder):
    """Find the file of a model, system, framework or layout.

    Parameters
    ----------
    name : str or Path
        A name that comes with the package, or the path of a ``.yaml`` or ``.yml`` file; of a model also a ``.json``.
    folder : str
        The folder of packaged specifications in which to look up a name, such as ``models``.

    Returns
    -------
    Path
        A file that exists.

    Raises
    ------
    SpecificationError
        If there is no such name or file.

    Examples
    --------
    >>> specification_path("paper", "models").name
    'paper.yaml'
    """
    suffixes = (".yaml", ".yml", *[".json"] * (folder == "models"))
    return _path_of(name, packaged(folder), folder[:-1], suffixes)


def _path_of(name, paths, field, suffixes):
    """The packaged file of that name, or else the file at that path."""
    if str(name) in paths:
        return paths[str(name)]
    if not isinstance(name, str | os.PathLike):
        remedy = "give a single one; only ppmodel.compare takes several"
        raise SpecificationError(field, repr(name), "is neither a name nor a path", remedy)
    if os.path.isfile(name):
        if not str(name).endswith(suffixes):  # whatever else a file of data names is not even read
            raise SpecificationError(field, name, f"must end in {' or '.join(suffixes)}", "name another, or rename it")
        return Path(name)
    if os.sep in str(name) or str(name).endswith(suffixes):
        raise SpecificationError(field, name, "is not a file", "check the path")
    written = [f"write {name}{suffix}" for suffix in suffixes if os.path.isfile(f"{name}{suffix}")]
    remedy = next(iter(written), did_you_mean(name, paths) or f"choose one of {', '.join(paths)}")
    raise SpecificationError(field, name, f"is neither a known name nor a path to a {suffixes[0]} file", remedy)


def template_path(name: str | os.PathLike[str], suffix: str) -> Path:
    """Find the file of a table or a generator.

    Parameters
    ----------
    name : str or Path
        A template that comes with the package, or a path to a file.
    suffix : str
        ``.csv`` for tables, ``.py`` for generators.

    Returns
    -------
    Path
        A file that exists.

    Raises
    ------
    SpecificationError
        If there is no such template or file.

    Examples
    --------
    >>> template_path("my_table", ".csv").name
    'my_table.csv'
    """
    return _path_of(name, packaged("templates", suffix), "file", (suffix,))
