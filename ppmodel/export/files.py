"""Rows as CSV files."""

import csv
import io

from ppmodel.files import write_whole


def write_rows(path, columns, rows, field, cell):
    """Write rows as CSV, completely or not at all.

    Parameters
    ----------
    path, field
        As in `write_whole`.
    columns : list of str
    rows : list of dict
        With these columns and possibly others.
    cell : callable
        Formats a value.

    Raises
    ------
    PPModelError
        If it cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell(row[column]) for column in columns] for row in rows)
    write_whole(path, text.getvalue(), field)
