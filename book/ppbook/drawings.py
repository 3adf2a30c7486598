"""A schedule at a glance, as SVG within a page: its table, and below it a timeline with the transfers.

Text takes the page's colour, so one drawing serves light and dark pages; a second, narrower one is for phones.
"""

from itertools import pairwise
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

import numpy as np
from matplotlib.colors import to_hex

from ppmodel.ops import OpKind
from ppmodel.plot.timelines import KIND_COLOURS, KIND_NAMES, shade
from ppmodel.tables import NO_OPERATION

WIDE, NARROW = 720, 350
"""Pixels."""

_LEFT, _ROW, _GAP, _PANEL, _LETTER = 24, 18, 3, 34, 6.2
_STEPS = (1, 2, 5, 10, 20, 50, 100)
_TICK = 34


class _Panel(NamedTuple):
    """Where operations are drawn: pixels per unit of time, the top edge, and the drawing's name."""

    schedule: object
    scale: float
    top: float
    name: str


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
    both = (_svg(schedule, timeline, f"{name}-{kind}", point, width, kind) for width, kind in _WIDTHS.items())
    return f'<div class="schedule-drawing">{"".join(both)}{_legend(schedule)}</div>'


_WIDTHS = {WIDE: "wide", NARROW: "narrow"}


def _svg(schedule, timeline, name, point, width, kind):
    slots = schedule.slots(backward=2, reduction=1)
    times = timeline.start_s, timeline.end_s
    height = schedule.num_ranks * (_ROW + _GAP) + _PANEL
    parts = [_hatch(name)]
    lasts = [float(np.nanmax(end)) for end in (slots[1], timeline.end_s)]  # reductions that are left out have no time
    scales = _scales(width - _LEFT - 2, *lasts, int(schedule.chunks_per_rank))
    for number, (start, end) in enumerate((slots, times)):
        last = lasts[number]
        panel = _Panel(schedule, scales[number], number * height, name)
        parts += _ranks(panel)
        parts += _operations(panel, start, end)
        parts += _axis(panel, last, ("slots", "time (F)")[number])
    parts += _transfers(panel, timeline)
    size = f'viewBox="0 0 {width} {2 * height}" width="{width}" height="{2 * height}"'
    return f'<svg class="{kind}" role="img" aria-label={quoteattr(point)} {size}>{"".join(parts)}</svg>'


def _scales(room, slots, time, chunks):
    """Pixels of a slot and of a forward of a rank, which has as many slots as the rank has chunks."""
    whole = room / max(slots / chunks, time)
    return whole / chunks, whole


def _hatch(name):
    line = '<path d="M0 6L6 0" stroke="#000" stroke-opacity=".45"/>'
    return f'<pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse">{line}</pattern>'


def _row(panel, rank):
    return panel.top + rank * (_ROW + _GAP)


def _ranks(panel):
    for rank in range(panel.schedule.num_ranks):
        yield f'<text x="{_LEFT - 6}" y="{_row(panel, rank) + 13:g}" text-anchor="end">{rank}</text>'


def _operations(panel, start, end):
    """A box for each operation; those of a pair share their cell, one above the other."""
    schedule = panel.schedule
    cells = [place for place, joined in enumerate(schedule.joined) if not joined] + [schedule.num_operations]
    for first, last in pairwise(cells):
        length = float(end[first] - start[first]) * panel.scale
        if not length > 0:
            continue
        for lane, op in enumerate(range(first, last)):
            height = _ROW / (last - first)
            left, top = _LEFT + float(start[first]) * panel.scale, _row(panel, schedule.rank[op]) + lane * height
            yield _box(panel, op, (left, top, length, height))


def _box(panel, op, place):
    schedule = panel.schedule
    left, top, length, height = place
    colour = shade(KIND_COLOURS[OpKind(schedule.kind[op])], schedule.stage[op] // schedule.num_ranks, schedule)
    size = f'x="{left:.4g}" y="{top:.4g}" width="{length:.4g}" height="{height:.4g}"'
    box = f'<rect {size} fill="{to_hex(colour)}"/>'
    if schedule.replica[op]:
        box += f'<rect {size} fill="url(#{panel.name})"/>'
    number = str(schedule.microbatch[op])
    if schedule.microbatch[op] == NO_OPERATION or length < _LETTER * len(number) + 1:
        return box
    ink, small = "light" if sum(colour) < 1.2 else "dark", height < _ROW
    at = f'x="{left + length / 2:.4g}" y="{top + height / 2 + (2.9 if small else 3.9):.4g}"'
    ink += " small" if small else ""
    return f'{box}<text class="{ink}" {at} text-anchor="middle">{number}</text>'


def _axis(panel, last, unit):
    """Round numbers below a panel, spaced far enough apart, with the unit at the end."""
    under = _row(panel, panel.schedule.num_ranks) + 11
    step = next((step for step in _STEPS if step * panel.scale >= _TICK), _STEPS[-1])
    for value in range(0, int(last - 2.5 * _TICK / panel.scale) + 1, step):
        yield f'<text x="{_LEFT + value * panel.scale:.4g}" y="{under:g}" text-anchor="middle">{value}</text>'
    yield f'<text x="{_LEFT + last * panel.scale:.4g}" y="{under:g}" text-anchor="end">{unit}: {last:.4g}</text>'


def _transfers(panel, timeline):
    """A line from rank to rank for each operation whose input comes from another rank."""
    schedule, waits = panel.schedule, panel.schedule.dependencies
    for consumer in range(schedule.num_operations):
        if waits.remote[consumer]:
            producer = waits.source[consumer]
            begin, end = int(schedule.rank[producer]), int(schedule.rank[consumer])
            down = end > begin
            ends = [
                (_LEFT + float(timeline.sent_s[producer]) * panel.scale, _row(panel, begin) + _ROW * down),
                (_LEFT + float(timeline.arrived_s[producer]) * panel.scale, _row(panel, end) + _ROW * (not down)),
            ]
            yield '<path d="M{:.4g} {:.4g}L{:.4g} {:.4g}"/>'.format(*ends[0], *ends[1])


def _legend(schedule):
    kinds = [kind for kind in OpKind if (schedule.kind == kind).any()]
    said = [f'<span><i style="background:{KIND_COLOURS[kind]}"></i>{KIND_NAMES[kind]}</span>' for kind in kinds]
    said += ["<span>hatched: second copy of the model</span>"] if schedule.num_replicas > 1 else []
    said += ["<span>darker: deeper stage of the rank</span>"] if schedule.chunks_per_rank > 1 else []
    return f"<p>{''.join(said)}</p>"
