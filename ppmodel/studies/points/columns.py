"""The columns of every frame, of a sweep's rows and of the command line's JSON: one table that all of them read.

It is ``data/columns.csv``; the values of a layout are declared in `specs.layout`.
"""

from typing import NamedTuple

from ppmodel.clusters.specs.layout import LAYOUT_OPTIONS
from ppmodel.files import data_rows


class Column(NamedTuple):
    """A column of the rows that `points` computes.

    Parameters
    ----------
    name : str
    type : type
        ``int``, ``float``, ``bool`` or ``str``; a value that does not exist is None.
    unit : str
        SI; empty if the column has no dimension.
    heading : str
        For tables and figures.
    doc : str
        What it is, in one line.
    group : str
        ``schedule``, ``system``, ``noise``, ``seconds``, ``links``, ``change``, ``layout``, ``result``, ``iteration``
        or ``remark``; frames have the columns of a group all together, or not at all.
    """

    name: str
    type: type
    unit: str
    heading: str
    doc: str
    group: str


def _columns():
    """The columns of the file, with those of a layout's values behind its name."""
    types = {kind.__name__: kind for kind in (str, int, float, bool)}
    for row in data_rows("columns.csv"):
        yield Column(**row | {"type": types[row["type"]]})
        for name, option in LAYOUT_OPTIONS.items() if row["name"] == "layout" else ():
            if option.column:
                kind = str if option.entry.words and option.entry.type is not float else option.entry.type
                yield Column(name, kind, "", name, option.described, "layout")


COLUMNS = tuple(_columns())
"""Every column, in the order in which frames have them."""


def column_names(*groups):
    """The names of the columns of some groups, in order.

    Parameters
    ----------
    *groups : str
        As in `Column`.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> column_names("change", "remark")
    ('change', 'ordered_for', 'refused')
    """
    return tuple(column.name for column in COLUMNS if column.group in groups)


SECONDS = column_names("seconds")
"""Costs that may be given in seconds, instead of a model and a system; see `simulation.uniform_costs`."""

NUMBERS = column_names("result")
"""The columns with the results of a point."""

ENDS = "iteration_s", "fastest_s", "slowest_s"
"""An iteration's predicted time, and the ends of the range in which it was measured to be."""

HEADINGS = {column.name: column.heading for column in COLUMNS}
"""The heading of each column."""

PARTS = {name: HEADINGS[name] for name in column_names("iteration") if name.endswith("_s") and name not in ENDS}
"""The parts of an iteration's time on its most loaded rank, with their headings; they sum to ``iteration_s``."""

_BYTES = [name for name in column_names("iteration") if name.endswith("_bytes")]
MEMORY_PARTS = (*_BYTES[:3], "activations_bytes", *_BYTES[3:])
"""The parts of a GPU's memory on the most loaded rank; they sum to ``peak_memory_bytes``."""
