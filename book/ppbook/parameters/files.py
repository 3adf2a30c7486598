"""Users' files for notebooks: legal names, and copies where notebooks find them."""

import re
import shutil
from contextlib import contextmanager
from pathlib import Path

from ppbook.errors import ReproduceError
from ppmodel.clusters.specs import DATA, packaged

_GOOD_NAME = re.compile(r"(?!.*(\{[{%#]|[}%#]\}))\w[\w .,+'(){}-]*")


def files_of(values, parameters):
    """Find the files among the values of parameters.

    Parameters
    ----------
    values : dict of str to object
        Parameters of a notebook, by name.
    parameters : dict of str to Parameter
        From `parameters.declared`.

    Yields
    ------
    name : str
        The file, as given.
    room : str
        Where the project keeps its own files of that kind, as in `Kind.files`.
    """
    for key, value in values.items():
        room = parameters[key].kind.files
        for name in (value if isinstance(value, list) else [value]) if room else ():
            if str(name) not in _project_names(room):
                yield str(name), room


def _project_names(room):
    """Of specifications or, by their suffix, of templates."""
    if not room.startswith("."):
        return packaged(room)
    return ["runs", *packaged("templates", room)]  # and our own recording


def require_names(files):
    """Refuse files that pages could confuse with the project's, or with names that are not plain text.

    Parameters
    ----------
    files : iterable of (str, str)
        From `files_of`.

    Raises
    ------
    ReproduceError
        Before anything is run. File names become labels, and parts of pages and of other files.
    """
    for name, room in files:
        stem = Path(name).stem
        if not _GOOD_NAME.fullmatch(stem):
            rule = "has a name with characters other than letters, digits, spaces and single . , _ - + ' ( ) { }"
            raise ReproduceError("file", repr(name), rule, "rename the file")
        if not room.startswith(".") and stem in _project_names(room):
            raise ReproduceError("file", name, *same_name(name, room))


def bring(values, parameters, folder):
    """Copy the files that parameters name to where notebooks find them, so that no page shows a path.

    Parameters
    ----------
    values : dict of str to object
        Parameters of a notebook, by name.
    parameters : dict of str to Parameter
        From `parameters.declared`.
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
    copies = {}
    for name, room in files_of(values, parameters):
        copy = folder / "specifications" / room.removeprefix(".") / Path(name).name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if copy.exists() and copy.read_bytes() != Path(name).read_bytes():
            raise ReproduceError("file", name, "has the same name as another given file", "rename one of them")
        shutil.copyfile(name, copy)
        copies[name] = str(copy.relative_to(folder))

    def brought(value):
        return [brought(name) for name in value] if isinstance(value, list) else copies.get(str(value), value)

    return {key: brought(value) if parameters[key].kind.files else value for key, value in values.items()}


@contextmanager
def given_paths(given, brought):
    """Make a notebook's errors name files as the user did, not the copies that it reads.

    Parameters
    ----------
    given, brought : dict of str to object
        Values as the user wrote them, and those from `bring`.
    """
    try:
        yield
    except ReproduceError as error:
        for key, copy in brought.items():
            if isinstance(copy, str) and copy != given[key]:
                error.rule = error.rule.replace(copy, given[key])
        raise


def same_name(path, room):
    """Explain why a file with the name of a packaged specification is refused, and what to do.

    Parameters
    ----------
    path : str or Path
        The file.
    room : str
        As in `specs.files.specification_path`.

    Returns
    -------
    rule, remedy : str
        The packaged file itself is given by its name; any other file must be renamed.

    Examples
    --------
    >>> same_name(DATA / "models" / "paper.yaml", "models")[1], same_name("paper.yaml", "models")[1]
    ('write its name instead: paper', 'rename the file')
    """
    stem = Path(path).stem
    packaged = Path(path).resolve() == (DATA / room / f"{stem}.yaml").resolve()
    remedy = f"write its name instead: {stem}" if packaged else "rename the file"
    return f"has the same name as one that comes with the project ({stem})", remedy
