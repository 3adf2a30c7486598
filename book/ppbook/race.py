"""A race of schedules within a page: their timelines, and a slider for the transfer time that reverses their order.

What is written here is the picture at one transfer time, for paper and for browsers without scripts. In a book,
``explorer/race.js`` gives it its slider: it simulates with the explorer's engine and moves what is drawn here.
"""

import math
from html import escape
from itertools import groupby, pairwise

import numpy as np

from ppbook import explorer
from ppmodel.errors import PPModelError, shown
from ppmodel.metrics import table_bubble_ratio
from ppmodel.ops import OpKind
from ppmodel.plot.timelines import KIND_COLOURS, KIND_NAMES
from ppmodel.points import compare, simulate
from ppmodel.schedules.cases import legal_cases

STEPS = 100
"""Steps of the slider from end to end."""

SCRIPTS = "orders.js", "engine.js", "race.js"
"""What the page loads from the explorer's folder; the last loads the orders of the schedules."""

_FOLDER = "../explorer/"
_ROOM = 1.13  # the axis ends behind the longest makespan: its number stands there
_HEIGHT, _GAP = 50, 2  # px: of all ranks of a schedule, and between two of them
_EQUAL = 1e6  # values are equal if they round to the same multiple of one over this


class Race:
    """Schedules on one time axis, with uniform costs: a forward of 1, a backward of 2.

    Parameters
    ----------
    schedules : list
        Each as in `cases.as_case`; those that are not defined at the size are left out.
    pp, microbatches : int
        Ranks and microbatches.
    comm : float
        The transfer time that is drawn, in forwards.
    most : float
        The transfer time at the end of the slider.
    p2p : str
        What a transfer occupies.

    Attributes
    ----------
    runs : dict of str to Run
        By label, at `comm`.
    frame : DataFrame
        ``label``, ``comm`` and ``makespan_s`` at every position of the slider.

    Raises
    ------
    PPModelError
        If none of the schedules is defined at the size.

    Examples
    --------
    >>> Race(["v-half", "gpipe"], 4, 8, 0, most=1)
    c/F = 0: V-Half is the fastest; GPipe takes 25 % longer. Their bubbles say the same.
    """

    def __init__(self, schedules, pp, microbatches, comm, most, p2p="overlapped"):
        given = {"forward": 1, "backward": 2, "p2p": p2p}
        self.size, self.comm, self.most, self.p2p = (pp, microbatches), comm, most, p2p
        tables = {case.label: (case, table) for case, table in legal_cases(schedules, pp, microbatches)}
        if not tables:
            rule = f"are not defined at pp = {pp}, microbatches = {microbatches}"
            raise PPModelError("schedules", shown(schedules), rule, "choose another size, or other schedules")
        self.cases = {label: case for label, (case, _) in tables.items()}
        self.bubbles = {label: float(table_bubble_ratio(table)) for label, (_, table) in tables.items()}
        self.runs = {label: simulate(table, **given, comm=comm) for label, (_, table) in tables.items()}
        comms = [round(most * step / STEPS, 9) for step in range(STEPS + 1)]
        frame = compare(list(self.cases.values()), pp, microbatches, **given, comm=comms)
        self.frame = frame[["label", "comm", "makespan_s"]]

    @property
    def _times(self):
        return {label: run.makespan_s for label, run in self.runs.items()}

    def __repr__(self):
        return f"c/F = {self.comm:g}: {sentence(self._times, self.bubbles)}"

    def _repr_html_(self):
        said = escape(sentence(self._times, self.bubbles))
        latest = _ROOM * float(self.frame.makespan_s.max())
        order = [label for level in levels(self._times) for label in level]
        rows = "".join(self._row(label, order.index(label), latest) for label in self.runs)
        return (
            f'<div class="racing" {self._data(latest)}>'
            f'<p class="racing-said" aria-live="polite">{said}</p>'
            f'<div class="racing-control">{self._slider()}{self._strip()}</div>'
            f'<div class="racing-rows" style="--rows: {len(order)}">{rows}</div>'
            f"{self._foot(order)}</div>{self._scripts(order)}"
        )

    def _data(self, latest):
        pp, microbatches = self.size
        return f'data-pp="{pp}" data-microbatches="{microbatches}" data-p2p="{self.p2p}" data-latest="{latest!r}"'

    def _slider(self):
        """The slider is hidden until the script has what it needs."""
        name = 'aria-label="Transfer time, in forwards" autocomplete="off"'
        given = f'{name} min="0" max="{self.most:g}" step="{self.most / STEPS:g}" value="{self.comm:g}"'
        return (
            f"<label><span>Transfer time: <output>{self.comm:.2f}</output> of a forward</span>"
            f'<input type="range" {given} hidden></label>'
        )

    def _strip(self):
        """Which schedule is the fastest, from where to where on the slider."""
        fastest = self.frame.loc[self.frame.groupby("comm").makespan_s.idxmin()].sort_values("comm")
        pieces = fastest[fastest.label != fastest.label.shift()]
        ends = [*pieces.comm, self.most]
        named = zip(pieces.label, pairwise(ends), strict=True)
        parts = (f'<span style="flex: {end - begin:.6g} 0 0">{escape(label)}</span>' for label, (begin, end) in named)
        marks = (f'<span style="left: {100 * one / self.most:.6g}%">{one:g}</span>' for one in ends)
        return f'<div class="racing-strip">{"".join(parts)}</div><div class="racing-scale">{"".join(marks)}</div>'

    def _row(self, label, place, latest):
        case = self.cases[label]
        data = {"key": explorer.written(case), "name": case.name, "bubble": repr(self.bubbles[label])}
        given = " ".join(f'data-{key}="{escape(value)}"' for key, value in data.items())
        title = f"<p><span>{place + 1}</span>. <b>{escape(label)}</b></p>"
        return f'<div class="racing-row" {given} style="--place: {place}">{title}{_svg(self.runs[label], latest)}</div>'

    def _foot(self, order):
        kinds = [kind for kind in OpKind if any((run.table.kind == kind).any() for run in self.runs.values())]
        colours = {KIND_NAMES[kind]: KIND_COLOURS[kind] for kind in kinds}
        said = (f'<span class="op" style="background: {colour}">{name}</span>' for name, colour in colours.items())
        there = self._link(order)
        link = f'<a href="{escape(there)}">Open this point in the explorer</a>' if there else ""
        return f'<p class="racing-foot"><span>{" ".join(said)}</span>{link}</p>'

    def _link(self, order):
        """Into the explorer, with the fastest against the slowest; empty where it lacks this point."""
        first, last = self.cases[order[0]], self.cases[order[-1]]
        point = {"comm": self.comm, "p2p": self.p2p}
        try:
            return explorer.link(first, *self.size, against=last, page=f"../{explorer.PAGE}", **point)
        except PPModelError:
            return ""

    def _scripts(self, order):
        return "".join(f'<script src="{_FOLDER}{name}"></script>' for name in SCRIPTS) if self._link(order) else ""


def levels(values):
    """Labels by value, the smallest first, with equal ones in one list.

    Parameters
    ----------
    values : dict of str to float

    Returns
    -------
    list of list of str

    Examples
    --------
    >>> levels({"A": 11, "B": 10, "C": 11})
    [['B'], ['A', 'C']]
    """

    def whole(label):
        return math.floor(values[label] * _EQUAL + 0.5)

    return [list(level) for _, level in groupby(sorted(values, key=whole), whole)]


def sentence(times, bubbles):
    """Say which schedule is the fastest, how much longer the others take, and what their bubbles say.

    ``explorer/race.js`` says the same.

    Parameters
    ----------
    times, bubbles : dict of str to float
        By label: makespans, and bubble ratios of the tables.

    Returns
    -------
    str

    Examples
    --------
    >>> sentence({"A": 11, "B": 10, "C": 12}, {"A": 0.2, "B": 0.1, "C": 0.3})
    'B is the fastest; A takes 10 % longer, C 20 %. Their bubbles say the same.'
    >>> sentence({"A": 10, "B": 10, "C": 10.04}, {"A": 0.2, "B": 0.1, "C": 0.1})
    'A and B are the fastest; C takes less than 1 % longer. Their bubbles put B and C first.'
    """
    best, *others = levels(times)
    said = f"{' and '.join(best)} {'is' if len(best) == 1 else 'are'} the fastest"
    slower = [(label, _more(times[label] / times[best[0]] - 1)) for level in others for label in level]
    if slower:
        (label, more), *rest = slower
        said += f"; {label} takes {more} longer" + "".join(f", {label} {more}" for label, more in rest)
    return f"{said[0].upper()}{said[1:]}. {_by_bubble(levels(times), levels(bubbles))}"


def _more(share):
    whole = math.floor(100 * share + 0.5)
    return f"{whole} %" if whole else "less than 1 %"


def _by_bubble(found, promised):
    if found == promised:
        return "Their bubbles say the same."
    if found == promised[::-1]:
        return "Their bubbles say the reverse."
    if found[0] == promised[0]:
        return "Their bubbles put the others in another order."
    return f"Their bubbles put {' and '.join(promised[0])} first."


def _svg(run, latest):
    """The ranks of a run as stripes; lengths are shares of the width, so that it fits any."""
    end = 100 * run.makespan_s / latest
    return (
        f'<svg width="100%" height="{_HEIGHT}" aria-hidden="true">{"".join(_boxes(run, latest))}'
        f'<line x1="{end:.6g}%" x2="{end:.6g}%" y1="0" y2="{_HEIGHT}"/>'
        f'<text x="{end:.6g}%" dx="6" y="{_HEIGHT // 2 + 5}">{run.makespan_s:.1f}</text></svg>'
    )


def _boxes(run, latest):
    """A box for each operation, in the order of the table; those of a pair share their cell, one above the other."""
    table, begin, end = run.table, run.timeline.start_s, run.timeline.end_s
    drawn, room = np.flatnonzero(table.kind < OpKind.R), _HEIGHT / table.num_ranks
    cells = np.cumsum(~table.joined[drawn].astype(bool))
    for op, cell in zip(drawn, cells, strict=True):
        together = drawn[cells == cell]
        height = (room - min(_GAP, room / 4)) / len(together)
        top = table.rank[op] * room + (op - together[0]) * height
        place = f'x="{100 * begin[op] / latest:.6g}%" width="{100 * (end[op] - begin[op]) / latest:.6g}%"'
        yield f'<rect {place} y="{top:.4g}" height="{height:.4g}" fill="{KIND_COLOURS[OpKind(table.kind[op])]}"/>'
