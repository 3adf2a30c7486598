"""Files with schedules of one's own, wherever the rows are computed: their text travels with the sweep."""

from pathlib import Path
from tempfile import TemporaryDirectory

from ppmodel import schedules
from ppmodel.cases import cases_of_file

_known = {}  # the text of each generator's file that was run last, by the file's name


def read(path):
    """The schedules of a file, and its text.

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
    _known[path.name] = text = path.read_text(encoding="utf-8")
    return cases, text


def know(name, text):
    """Have the schedules of a generator's file registered, also where there is no such file.

    Parameters
    ----------
    name, text : str
        Of the file. A table need not be known: it is part of its case.
    """
    if name.endswith(".py") and _known.get(name) != text:
        with TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_text(text, encoding="utf-8")
            schedules.register_file(path)
        _known[name] = text
