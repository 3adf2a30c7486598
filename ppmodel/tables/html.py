"""A table as notebooks show it: the first slots, one cell per operation, coloured by kind."""

import re
from html import escape
from itertools import starmap

from ppmodel.errors import PPModelError
from ppmodel.ops import OpKind
from ppmodel.tables.kinds import KINDS
from ppmodel.tables.slots import CONTINUED

_CELL = "border:1px solid #555;padding:1px 4px;text-align:center;color:#000;background:"
_SLOT = '<td style="min-width:2.8em;padding:0"></td>'


def table_html(schedule, slots=32, ranks=16):
    """Render the first slots of the idealised table as HTML.

    Parameters
    ----------
    schedule : Schedule
    slots, ranks : int
        Largest number to show.

    Returns
    -------
    str
        A caption and a table; if it is broken or too large to be drawn, only the caption and why.

    Examples
    --------
    >>> from ppmodel import build
    >>> html = table_html(build("1f1b", 2, 2))
    >>> html.count("<tr>"), html.count(">1F0<")
    (2, 1)
    """
    caption = escape(repr(schedule)[1:-1])
    try:
        grid = schedule.table()
    except PPModelError as error:
        return f"<p>{caption}<br>{escape(str(error))}</p>"
    size, shown = (len(grid[0]), len(grid)), (min(slots, len(grid[0])), min(ranks, len(grid)))
    if shown != size:
        caption += f"; shown: {shown[0]} of {size[0]} slots, {shown[1]} of {size[1]} ranks"
    rows = f'<tr style="line-height:0"><td></td>{_SLOT * shown[0]}</tr>'  # all as wide: time runs across
    for rank, texts in enumerate(grid[: shown[1]]):
        cells = re.findall(rf"(\S+)((?: {CONTINUED})*)", " ".join(texts[: shown[0]]))
        rows += f"<tr><th>rank {rank}</th>{''.join(starmap(_cell, cells))}</tr>"
    table = f'<table style="border-collapse:collapse;font-size:80%;white-space:nowrap">{rows}</table>'
    return f'<div class="slots" style="overflow-x:auto"><p>{caption}</p>{table}</div>'


def _cell(text, rest):
    """A cell of the table, and the slots that it goes on."""
    colours = list(dict.fromkeys(KINDS[OpKind[letter]].colour for letter in re.findall("[A-Z]", text)))
    if not colours:
        return "<td></td>"
    fill = f"linear-gradient({','.join(colours)})" if len(colours) > 1 else colours[0]
    return f'<td colspan="{1 + rest.count(CONTINUED)}" style="{_CELL}{fill}">{escape(text)}</td>'
