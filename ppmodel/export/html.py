"""A table as notebooks show it: the first slots, one cell per operation, coloured by kind."""

from html import escape
from itertools import pairwise

import numpy as np

from ppmodel.errors import PPModelError
from ppmodel.ops import OpKind

_COLOURS = {OpKind.F: "#56B4E9", OpKind.B: "#E69F00", OpKind.I: "#F0E442", OpKind.W: "#CC79A7", OpKind.R: "#BBBBBB",
            OpKind.O: "#009E73"}  # fmt: skip
_MAX_OPERATIONS = 2**20
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
        A caption and a table; only the caption if the schedule is broken or has more than a million operations.

    Examples
    --------
    >>> from ppmodel import build
    >>> html = table_html(build("1f1b", 2, 2))
    >>> html.count("<tr>"), html.count(">1F0<")
    (2, 1)
    """
    caption = escape(repr(schedule)[1:-1])
    if schedule.num_operations > _MAX_OPERATIONS:
        return f"<p>{caption}</p>"
    try:
        start, end = schedule.slots()
    except PPModelError as error:
        return f"<p>{caption}<br>{escape(str(error))}</p>"
    shown = min(slots, int(end.max())), min(ranks, schedule.num_ranks)
    if shown != (int(end.max()), schedule.num_ranks):
        caption += f"; shown: {shown[0]} of {end.max()} slots, {shown[1]} of {schedule.num_ranks} ranks"
    rows = "".join(_row(schedule, rank, start, end, shown[0]) for rank in range(shown[1]))
    style = "border-collapse:collapse;font-size:80%;white-space:nowrap"
    slots = f'<tr style="line-height:0"><td></td>{_SLOT * shown[0]}</tr>'  # all as wide: time runs across
    table = f'<table style="{style}">{slots}{rows}</table>'
    return f'<div class="slots" style="overflow-x:auto"><p>{caption}</p>{table}</div>'


def _row(schedule, rank, start, end, slots):
    """The cells of a rank, including idle ones."""
    first, last = schedule.rank_start[rank : rank + 2]
    heads = first + np.flatnonzero(~schedule.joined[first:last])
    cells, free = [f"<th>rank {rank}</th>"], 0
    for head, following in pairwise([*heads[start[heads] < slots].tolist(), int(last)]):
        begin, until = int(start[head]), min(int(end[head]), slots)
        following = head + 1 + int(np.argmin(np.append(schedule.joined[head + 1 : following], False)))
        cells += ["<td></td>"] * (begin - free)
        if until > begin:
            ops = [schedule.op(index) for index in range(head, following)]
            colours = dict.fromkeys(_COLOURS[op.kind] for op in ops)
            fill = f"linear-gradient({','.join(colours)})" if len(colours) > 1 else _COLOURS[ops[0].kind]
            text = escape("&".join(map(str, ops)))
            cells.append(f'<td colspan="{until - begin}" style="{_CELL}{fill}">{text}</td>')
        free = until
    return f"<tr>{''.join(cells)}{'<td></td>' * (slots - free)}</tr>"
