"""A schedule at a glance, as SVG within a page: its table, and below it a timeline with the transfers.

Text takes the page's colour, so one drawing serves light and dark pages; a second, narrower one is for phones.
"""

from typing import NamedTuple
from xml.sax.saxutils import quoteattr

import numpy as np
from matplotlib.colors import to_hex

from ppmodel.ops import OpKind
from ppmodel.plot.themes import ON_DARK, ink_on
from ppmodel.plot.timelines import KIND_COLOURS, KIND_NAMES, lanes, shade
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

    def x(self, time):
        """Where a time is."""
        return _LEFT + float(time) * self.scale

    def y(self, rank):
        """The upper edge of a rank."""
        return self.top + int(rank) * (_ROW + _GAP)


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
    both = (_svg(schedule, timeline, f"{name}-{kind}", point, width, kind) for kind, width in sizes.items())
    kinds = [kind for kind in OpKind if (schedule.kind == kind).any()]
    legend = [f'<span><i style="background:{KIND_COLOURS[kind]}"></i>{KIND_NAMES[kind]}</span>' for kind in kinds]
    legend += ["<span>hatched: second copy of the model</span>"] * (schedule.num_replicas > 1)
    legend += ["<span>darker: deeper stage of the rank</span>"] * bool(schedule.chunks_per_rank > 1)
    return f'<div class="schedule-drawing">{"".join(both)}<p>{"".join(legend)}</p></div>'


def _svg(schedule, timeline, name, point, width, kind):
    """The table in slots, above the timeline in forwards of a rank, which has as many slots as the rank has chunks."""
    slots, chunks = schedule.slots(backward=2, reduction=1), int(schedule.chunks_per_rank)
    height = schedule.num_ranks * (_ROW + _GAP) + _PANEL
    # reductions that are left out have no time
    last_slot, last = (float(np.nanmax(end)) for end in (slots[1], timeline.end_s))
    forward = (width - _LEFT - 2) / max(last_slot / chunks, last)
    table = _Panel(schedule, forward / chunks, 0, name)
    times = _Panel(schedule, forward, height, name)
    hatch = '<path d="M0 6L6 0" stroke="#000" stroke-opacity=".45"/>'
    parts = [f'<pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse">{hatch}</pattern>']
    parts += [*_operations(table, *slots), *_axis(table, last_slot, "slots")]
    parts += [*_operations(times, timeline.start_s, timeline.end_s), *_axis(times, last, "time (F)")]
    for consumer in np.flatnonzero(schedule.dependencies.remote):  # a line from rank to rank
        producer = schedule.dependencies.source[consumer]
        begin, end = schedule.rank[producer], schedule.rank[consumer]
        start = times.x(timeline.sent_s[producer]), times.y(begin) + _ROW * (end > begin)
        arrival = times.x(timeline.arrived_s[producer]), times.y(end) + _ROW * (end <= begin)
        parts.append('<path d="M{:.4g} {:.4g}L{:.4g} {:.4g}"/>'.format(*start, *arrival))
    size = f'viewBox="0 0 {width} {2 * height}" width="{width}" height="{2 * height}"'
    return f'<svg class="{kind}" role="img" aria-label={quoteattr(point)} {size}>{"".join(parts)}</svg>'


def _operations(panel, start, end):
    """The ranks' numbers, and a box for each operation, with its microbatch if it fits."""
    schedule, (upper, heights) = panel.schedule, lanes(panel.schedule)
    for rank in range(schedule.num_ranks):
        yield f'<text x="{_LEFT - 6}" y="{panel.y(rank) + 13:g}" text-anchor="end">{rank}</text>'
    for op in np.flatnonzero(end > start):
        length, height = float(end[op] - start[op]) * panel.scale, _ROW * heights[op]
        left, top = panel.x(start[op]), panel.y(schedule.rank[op]) + _ROW * upper[op]
        colour = shade(KIND_COLOURS[OpKind(schedule.kind[op])], schedule.stage[op] // schedule.num_ranks, schedule)
        size = f'x="{left:.4g}" y="{top:.4g}" width="{length:.4g}" height="{height:.4g}"'
        yield f'<rect {size} fill="{to_hex(colour)}"/>'
        if schedule.replica[op]:
            yield f'<rect {size} fill="url(#{panel.name})"/>'
        number, small = str(schedule.microbatch[op]), height < _ROW
        if schedule.microbatch[op] != NO_OPERATION and length >= _LETTER * len(number) + 1:
            ink = ("light" if ink_on(colour) == ON_DARK else "dark") + (" small" if small else "")
            at = f'x="{left + length / 2:.4g}" y="{top + height / 2 + (2.9 if small else 3.9):.4g}"'
            yield f'<text class="{ink}" {at} text-anchor="middle">{number}</text>'


def _axis(panel, last, unit):
    """Round numbers below a panel, spaced far enough apart, with the unit at the end."""
    under = panel.y(panel.schedule.num_ranks) + 11
    step = next((step for step in _STEPS if step * panel.scale >= _TICK), _STEPS[-1])
    for value in range(0, int(last - 2.5 * _TICK / panel.scale) + 1, step):
        yield f'<text x="{panel.x(value):.4g}" y="{under:g}" text-anchor="middle">{value}</text>'
    yield f'<text x="{panel.x(last):.4g}" y="{under:g}" text-anchor="end">{unit}: {last:.4g}</text>'
