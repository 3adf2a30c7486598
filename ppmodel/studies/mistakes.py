"""What is wrong with a table file, and in which of its cells."""

from typing import NamedTuple

import pandas as pd

from ppmodel.errors import TableError
from ppmodel.export import read_table
from ppmodel.grid import Grid


class Refusal(NamedTuple):
    """What is wrong with a table file.

    Parameters
    ----------
    said : str
        The error in one line, the file without its folder.
    short : str
        The operation and the rule that it breaks, in a few words.
    grid : Grid or None
        The table with the cells in question marked; None where there is none.
    """

    said: str
    short: str
    grid: Grid | None


def refusal(path):
    """Why a table file is no schedule.

    Parameters
    ----------
    path : Path
        A text or CSV file; see `export.read_table`.

    Returns
    -------
    Refusal or None
        None where it is a schedule.

    Examples
    --------
    >>> from ppmodel.specs import template_path
    >>> refusal(template_path("wrong_rank", ".csv")).short
    '3F4 is misplaced'
    """
    try:
        read_table(path)
    except TableError as error:
        return Refusal(str(error).replace(str(path), path.name), f"{error.value} {error.rule}", error.grid)
    return None


def marked_cells(refusals):
    """The marked cells of some refusals.

    Parameters
    ----------
    refusals : dict of str to Refusal or None
        By the name of the table.

    Returns
    -------
    DataFrame
        One row a marked cell; columns ``table, rank, operation``. A table that is a schedule has none.

    Examples
    --------
    >>> marked_cells({"mine": Refusal("", "", Grid([["0F0", "0B0"]], {(0, 1)}))}).values.tolist()
    [['mine', 0, '0B0']]
    """
    grids = {name: refused.grid for name, refused in refusals.items() if refused and refused.grid}
    found = [(name, rank, grid.rows[rank][place]) for name, grid in grids.items() for rank, place in sorted(grid.marks)]
    return pd.DataFrame(found, columns=["table", "rank", "operation"])


def refusal_text(refusals):
    """What `ppmodel check` says of some tables.

    Parameters
    ----------
    refusals : dict of str to Refusal or None
        By the name of the table.

    Returns
    -------
    str
        In Markdown: the error in one line, and the grid with the cells in question marked.

    Examples
    --------
    >>> print(refusal_text({"mine": None}))
    **mine**: a schedule, nothing to mark.
    """
    parts = []
    for name, refused in refusals.items():
        if refused is None:
            parts.append(f"**{name}**: a schedule, nothing to mark.")
            continue
        grid = f"\n\n```text\n{refused.grid}\n```" if refused.grid else ""
        file, _, said = refused.said.partition(":")
        parts.append(f"**{file}**:{said}{grid}")
    return "\n\n".join(parts)
