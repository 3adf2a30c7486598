"""Files with users' schedules; their text is part of the sweep, so rows can be computed anywhere."""

from pathlib import Path
from tempfile import TemporaryDirectory

from ppmodel import schedules
from ppmodel.schedules.cases import cases_of_file

_texts = {}  # of each generator as last run, by file name


def read(path):
    """Load the schedules of a file, and its text.

    Parameters
    ----------
    path : Path
        A generator or a table; see `cases.cases_of_file`.

    Returns
    -------
    cases : list of Case
    text : str
    """
    cases = cases_of_file(path)
    _texts[path.name] = text = path.read_text(encoding="utf-8")
    return cases, text


def register(name, text):
    """Register the schedules of a generator's file, even on a machine without that file.

    Parameters
    ----------
    name, text : str
        Name and text of the file. Tables need no registration: they are part of their case.
    """
    if name.endswith(".py") and _texts.get(name) != text:
        with TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_text(text, encoding="utf-8")
            schedules.register_file(path)
        _texts[name] = text
