"""A schedule at a glance, as SVG within a page: its table, and below it a timeline with the transfers.

Text takes the page's colour, so one drawing serves light and dark pages; a second, narrower one is for phones. What is
computed here, ``drawing.html`` writes.
"""

import numpy as np
from matplotlib.colors import to_hex

from ppbook.pages.report import TEMPLATES
from ppmodel.ops import OpKind
from ppmodel.plot.themes import ON_DARK, ink_on
from ppmodel.plot.timelines import lanes, shade
from ppmodel.tables import NO_OPERATION
from ppmodel.tables.kinds import KINDS

WIDE, NARROW = 720, 350
"""Pixels."""

_LEFT, _ROW, _GAP, _PANEL, _LETTER = 24, 18, 3, 34, 6.2
_STEPS = (1, 2, 5, 10, 20, 50, 100)
_TICK = 34


def drawing(schedule, timeline, name, point):
    """A schedule's table and timeline as a wide and a narrow drawing.

    Parameters
    ----------
    schedule : Schedule
    timeline : Timeline
        A timeline of the same table.
    name : str
        Prefix for names of its parts; must be unique in the page.
    point : str
        A description of what the drawing shows, for readers who cannot see it.

    Returns
    -------
    str
        HTML, on one line.

    Examples
    --------
    >>> import ppmodel as pp
    >>> run = pp.simulate("1f1b", 2, 4, forward=1, backward=2, comm=0.2)
    >>> drawing(run.table, run.timeline, "1f1b", "Two ranks").count("<svg")
    2
    """
    sizes = {"wide": WIDE, "narrow": NARROW}
    kinds = [kind for kind in OpKind if (schedule.kind == kind).any()]
    return TEMPLATES.get_template("drawing.html").render(
        pictures={size: _picture(schedule, timeline, width) for size, width in sizes.items()}, name=name, point=point,
        kinds={KINDS[kind].words: KINDS[kind].colour for kind in kinds}, table=schedule,
    )  # fmt: skip


def _picture(table, timeline, width):
    """The table in slots, above the timeline in forwards of a rank, which has as many slots as the rank has chunks."""
    slots, chunks = table.slots(backward=2, reduction=1), int(table.chunks_per_rank)
    height = table.num_ranks * (_ROW + _GAP) + _PANEL
    # reductions that are left out have no time
    last_slot, last = (float(np.nanmax(end)) for end in (slots[1], timeline.end_s))
    forward = (width - _LEFT - 2) / max(last_slot / chunks, last)
    consumers = np.flatnonzero(table.dependencies.remote)
    producers = table.dependencies.source[consumers]
    begin, end = table.rank[producers], table.rank[consumers]
    transfers = np.stack([  # lines from rank to rank
        _LEFT + timeline.sent_s[producers] * forward, height + begin * (_ROW + _GAP) + _ROW * (end > begin),
        _LEFT + timeline.arrived_s[producers] * forward, height + end * (_ROW + _GAP) + _ROW * (end <= begin),
    ], axis=1)  # fmt: skip
    panels = [
        _panel(table, *slots, forward / chunks, 0) | {"unit": "slots", "last": last_slot},
        _panel(table, timeline.start_s, timeline.end_s, forward, height) | {"unit": "time (F)", "last": last},
    ]
    return {"width": width, "height": 2 * height, "panels": panels, "transfers": transfers}


def _panel(table, start, end, scale, top):
    """A box for each operation, with its microbatch if it fits; and round numbers, spaced far enough apart."""
    drawn = []
    for op, box in boxes(table, start, end, scale, _ROW + _GAP, _ROW):
        colour = shade(KINDS[table.kind[op]].colour, table.stage[op] // table.num_ranks, table)
        number = table.microbatch[op]
        fits = number != NO_OPERATION and box["width"] >= _LETTER * len(str(number)) + 1
        drawn.append(box | {
            "left": _LEFT + box["left"], "top": top + box["top"], "colour": to_hex(colour),
            "is_copy": table.replica[op], "number": str(number) if fits else "", "small": box["height"] < _ROW,
            "ink": "light" if ink_on(colour) == ON_DARK else "dark",
        })  # fmt: skip
    step = next((step for step in _STEPS if step * scale >= _TICK), _STEPS[-1])
    ticks = range(0, int(np.nanmax(end) - 2.5 * _TICK / scale) + 1, step)
    return {
        "boxes": drawn, "ranks": [top + rank * (_ROW + _GAP) + 13 for rank in range(table.num_ranks)],
        "ticks": {value: _LEFT + value * scale for value in ticks}, "end": _LEFT + float(np.nanmax(end)) * scale,
        "under": top + table.num_ranks * (_ROW + _GAP) + 11,
    }  # fmt: skip


def boxes(table, start, end, scale, row, high):
    """Where to draw operations: those of a pair share their cell, one above the other.

    Parameters
    ----------
    table : Schedule
    start, end : ndarray of float, shape (num_operations,)
        What takes no time is not drawn.
    scale : float
        Width of a unit of time.
    row, high : float
        From one rank to the next, and the height of a cell.

    Yields
    ------
    op : int
        In the order of the table.
    box : dict of str to float
        ``left``, ``top``, ``width`` and ``height``.
    """
    upper, heights = lanes(table)
    for op in np.flatnonzero(end > start):
        yield op, {
            "left": float(start[op]) * scale, "width": float(end[op] - start[op]) * scale,
            "top": table.rank[op] * row + upper[op] * high, "height": heights[op] * high,
        }  # fmt: skip
