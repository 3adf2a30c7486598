"""Rows as CSV files."""

import csv
import io
import re

from ppmodel.files import write_whole

_FORMULA = re.compile(r"'*(?:[=@\t\r]|[-+](?![0-9.]+(?:[eE][-+]?[0-9]+)?$))")
"""How a text begins that spreadsheets take for a formula, and one with apostrophes in front of that."""


def csv_cell(value):
    """A value for a CSV file: true and false in lower case, nothing for NaN, and no text that is taken for a formula.

    Such a text gets an apostrophe in front, which `text_of_cell` takes away.

    Examples
    --------
    >>> csv_cell("=1+1"), csv_cell("-1.5"), csv_cell(-1), csv_cell(True), csv_cell(float("nan"))
    ("'=1+1", '-1.5', -1, 'true', '')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if value != value:
        return ""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def text_of_cell(text):
    """Read a text that `csv_cell` has written.

    >>> text_of_cell("'=1+1"), text_of_cell("'quoted'")
    ('=1+1', "'quoted'")
    """
    return text[1:] if text[:1] == "'" and _FORMULA.match(text) else text


def write_rows(path, columns, rows, field):
    """Write rows as CSV, completely or not at all; see `csv_cell`.

    Parameters
    ----------
    path, field
        As in `write_whole`.
    columns : list of str
    rows : list of dict
        With these columns and possibly others.

    Raises
    ------
    PPModelError
        If it cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(map(csv_cell, line) for line in [columns, *([row[name] for name in columns] for row in rows)])
    write_whole(path, text.getvalue(), field)
