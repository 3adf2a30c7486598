"""A race of schedules within a page: their timelines, and a slider for the transfer time that changes their order.

What is written here, by ``race.html``, is the picture at one transfer time, for paper and for browsers without scripts.
In a book, ``explorer/race.js`` gives it its slider: it simulates with the explorer's engine and moves what is drawn.
"""

import math

import pandas as pd

from ppbook.pages import explorer
from ppbook.pages.drawings import boxes
from ppbook.pages.report import TEMPLATES
from ppmodel.errors import PPModelError, shown
from ppmodel.ops import OpKind
from ppmodel.schedules.cases import legal_cases
from ppmodel.studies.points import compare, simulate
from ppmodel.tables.kinds import KINDS

STEPS = 100
"""Steps of the slider from end to end."""

SCRIPTS = "orders.js", "engine.js", "race.js"
"""What the page loads from the explorer's folder; the last loads the orders of the schedules."""

_ROOM = 1.13  # the axis ends behind the longest makespan: its number stands there
_HEIGHT, _GAP = 50, 2  # px: of all ranks of a schedule, and between two of them
_EQUAL = 1e6  # makespans are equal if they round to the same multiple of one over this


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
    order : DataFrame
        At `comm`, from the first to the last: ``label``, ``makespan_s``, ``longer`` (how much longer than the first),
        ``table_bubble_ratio``.

    Raises
    ------
    PPModelError
        If none of the schedules is defined at the size.

    Examples
    --------
    >>> Race(["v-half", "gpipe"], 4, 8, 0, most=1)
        label  makespan_s  longer  table_bubble_ratio
    1  V-Half        26.5   0.000               0.094
    2   GPipe        33.0   0.245               0.273
    """

    def __init__(self, schedules, pp, microbatches, comm, most, p2p="overlapped"):
        costs = {"forward": 1, "backward": 2, "p2p": p2p}
        self.size, self.comm, self.most, self.p2p = (pp, microbatches), comm, most, p2p
        self.cases, self.runs = {}, {}
        for case, table in legal_cases(schedules, pp, microbatches):
            self.cases[case.label], self.runs[case.label] = case, simulate(table, **costs, comm=comm)
        if not self.runs:
            rule = f"are not defined at pp = {pp}, microbatches = {microbatches}"
            raise PPModelError("schedules", shown(schedules), rule, "choose another size, or other schedules")
        comms = [round(most * step / STEPS, 9) for step in range(STEPS + 1)]
        frame = compare(list(self.cases.values()), pp, microbatches, **costs, comm=comms)
        self.frame = frame[["label", "comm", "makespan_s"]]
        rows = [(label, run.makespan_s, run.table_bubble_ratio) for label, run in self.runs.items()]
        rows = sorted(rows, key=lambda row: math.floor(row[1] * _EQUAL + 0.5))
        order = pd.DataFrame(rows, columns=["label", "makespan_s", "table_bubble_ratio"], index=range(1, len(rows) + 1))
        order.insert(2, "longer", order.makespan_s / order.makespan_s[1] - 1)
        self.order = order

    def __repr__(self):
        return self.order.round(3).to_string()

    def _repr_html_(self):
        latest = _ROOM * float(self.frame.makespan_s.max())
        fastest = self.frame.loc[self.frame.groupby("comm").makespan_s.idxmin()].sort_values("comm")
        pieces = fastest[fastest.label != fastest.label.shift()]
        ends = [*pieces.comm[1:], self.most]
        kinds = [kind for kind in OpKind if any((run.table.kind == kind).any() for run in self.runs.values())]
        ends_of_order = [self.cases[label] for label in self.order.label.iloc[[0, -1]]]
        rows = []  # what the page needs of each schedule; lengths are shares of the width, so that it fits any
        for label, run in self.runs.items():
            (standing,) = self.order[self.order.label == label].itertuples()
            room = _HEIGHT / run.table.num_ranks
            begin_end = run.timeline.start_s, run.timeline.end_s
            drawn = boxes(run.table, *begin_end, 100 / latest, room, room - min(_GAP, room / 4))
            rows.append({
                "place": standing.Index - 1, "label": label, "key": explorer.written(self.cases[label]),
                "name": self.cases[label].name, "makespan": run.makespan_s, "end": 100 * run.makespan_s / latest,
                "bubble": standing.table_bubble_ratio, "longer": math.floor(100 * standing.longer + 0.5),
                "boxes": [box | {"colour": KINDS[run.table.kind[op]].colour} for op, box in drawn],
            })  # fmt: skip
        explorer.offer(self, ends_of_order, *self.size, comm=self.comm, p2p=self.p2p)
        return TEMPLATES.get_template("race.html").render(
            pp=self.size[0], microbatches=self.size[1], p2p=self.p2p, latest=latest, comm=self.comm, most=self.most,
            step=self.most / STEPS, fastest=list(zip(pieces.label, pieces.comm, ends, strict=True)), height=_HEIGHT,
            rows=rows, link=self.explorer, scripts=SCRIPTS,
            colours={KINDS[kind].words: KINDS[kind].colour for kind in kinds},
        )  # fmt: skip
