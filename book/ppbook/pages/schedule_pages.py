"""A section for every registered schedule: a drawing, its rule, and facts computed from its table."""

import re
from contextlib import suppress

from ppbook.pages import explorer
from ppbook.pages.drawings import drawing
from ppbook.pages.report import TEMPLATES, MyST, list_table, literal
from ppmodel import schedules
from ppmodel.clusters.specs.available import frameworks_of
from ppmodel.errors import PPModelError
from ppmodel.metrics import messages_sent, peak_activations, table_bubble_ratio
from ppmodel.schedules.cases import as_case
from ppmodel.schedules.options import option_text
from ppmodel.schedules.ratios import formula_bubble_ratio
from ppmodel.studies.points import simulate
from ppmodel.tables import family

PAGES = {
    "one chunk": "one-stage", "one chunk, split backward": "split-backward", "loop": "loops", "V or waves": "zigzag",
    "two directions": "two-directions",
}  # fmt: skip
"""The page of each family, in ``schedules/``; those whose cells hold pairs, and those with an output layer on all
ranks, are on pages of their own."""

PAIRS, SHARDS = "pairs", "output-layer"

SECTIONS, OVERVIEW = "<!-- sections -->", "<!-- overview -->"
"""Where a family's page and the page above them have what is written here."""

_TIMES = {"forward": 1, "backward": 2, "comm": 0.2}
_LARGE = ((8, 32), (8, 8))
_BASE = "1f1b"
_POINT = "{} leaves {:.0%} of its slots empty, and {:.0%} of the time where transfers take 0.2 F"


def section(name, note=""):
    """The section of a schedule for a page in ``schedules/``: the template ``schedule.md``, filled in.

    Parameters
    ----------
    name : str
        Of a registered schedule.
    note : str
        What is to be said of it beside its facts, in MyST; ``<!-- drawing CASE S B -->`` in it is drawn.

    Returns
    -------
    str
        In MyST.
    """
    entry, table, large = schedules.get(name), schedules.small(name), None
    for size in _LARGE:  # a usual one; the first that is legal
        with suppress(PPModelError):
            large = schedules.build(name, *size)
            break
    shown = {"page": f"../{explorer.PAGE}", "comm": _TIMES["comm"]}
    link = explorer.link(name, table.num_ranks, table.num_microbatches, **shown)
    note = re.sub("<!-- drawing ([a-z0-9:=-]+) ([0-9]+) ([0-9]+) -->", _drawn, note)
    run, base = simulate(table, **_TIMES), _base_of(table)
    point = _POINT.format(entry.label, _bubble(table), run.idle_ratio)
    return TEMPLATES.get_template("schedule.md").render(
        entry=entry, table=table, large=large, base=base, large_base=large and _base_of(large), is_base=name == _BASE,
        picture=drawing(table, run.timeline, f"drawing-{name}", f"{point}."), point=point, link=link, note=note,
        chunks=int(table.chunks_per_rank), held=peak_activations(table), sent=messages_sent(table),
        base_sent=messages_sent(base), frameworks=frameworks_of(name), option_text=option_text, bubble=_bubble,
        peak=_peak, makespan=lambda other: simulate(other, **_TIMES).makespan_s,
        size=lambda other: f"at S = {other.num_ranks}, B = {other.num_microbatches}",
        formula=float(formula_bubble_ratio(as_case(name), table.num_ranks, table.num_microbatches)),
    )  # fmt: skip


def _drawn(match):
    case, *size = match.groups()
    run = simulate(case, *map(int, size), **_TIMES)
    point = _POINT.format(as_case(case).label, _bubble(run.table), run.idle_ratio)
    picture = drawing(run.table, run.timeline, f"drawing-{re.sub('[:=]', '-', case)}", f"{point}.")
    return f"```{{raw}} html\n{picture}\n```\n\nIts table and timeline at $S = {size[0]}$, $B = {size[1]}$: {point}."


def exercises(entries, page=""):
    """Two exercises on the schedules of a page: what transfers cost each, as the drawings have it, and the page's idea.

    Parameters
    ----------
    entries : list of Entry
        Registered schedules.
    page : str
        A value of `PAGES`; others count transfers in the second exercise, too.

    Returns
    -------
    str
        In MyST.
    """
    tables = [schedules.small(entry.name) for entry in entries]
    comms = (0.0, _TIMES["comm"])
    times = [[simulate(table, **_TIMES | {"comm": comm}).makespan_s for comm in comms] for table in tables]
    lost = [round((slower - span) / comms[1], 6) for span, slower in times]
    rows = [(entry.label, *spans, count) for entry, spans, count in zip(entries, times, lost, strict=True)]
    asked = []
    for entry in entries if page in _ASKED else ():
        with suppress(PPModelError):  # not defined at that size
            asked.append((entry.label, _ASKED[page](entry.name)))
    return TEMPLATES.get_template("exercises.md").render(rows=rows, comm=comms[1], page=page, asked=asked)


def _held(name):
    """The peak with 32 and with 64 microbatches."""
    return [_peak(schedules.build(name, 8, microbatches)) for microbatches in (32, 64)]


def _idle(name):
    """The time beyond that of the operations, if the halves of a backward take as long, and if they do not."""
    halves = ((1, 1), (1.5, 0.5))
    runs = (simulate(name, 8, 32, forward=1, input_grad=first, weight_grad=second) for first, second in halves)
    return [run.makespan_s - 32 * 3 for run in runs]


def _in_chunks(name):
    """The time beyond that of the operations, without and with transfers, and messages; with two chunks, and four."""
    tables = [schedules.build(name, 8, 32, chunks=chunks) for chunks in (2, 4)]
    times = [simulate(table, **_TIMES | {"comm": comm}).makespan_s - 32 * 3 for comm in (0, 0.2) for table in tables]
    return [*times, *(messages_sent(table).sum() for table in tables)]


_ASKED = {"one-stage": _held, "split-backward": _idle, "loops": _in_chunks}
"""What the second exercise of a page asks of each of its schedules, on eight ranks."""


def _bubble(table):
    return float(table_bubble_ratio(table))


def _peak(table):
    return float(peak_activations(table).max())


def _base_of(table):
    return schedules.build(_BASE, table.num_ranks, table.num_microbatches)


def write(book):
    """Write the sections of all registered schedules into the pages of a book.

    Parameters
    ----------
    book : Path
        Its sources. Where it has pages on schedules, they are changed in place: one for each family, with `SECTIONS`
        where sections go, notes on a schedule beside it in ``notes/``, and ``schedules.md``, with `OVERVIEW` where a
        table of all of them goes.
    """
    folder = book / "schedules"
    if not folder.is_dir():
        return
    pages = {page: [] for page in (*PAGES.values(), PAIRS, SHARDS)}
    for entry in schedules.entries():
        table = schedules.small(entry.name)
        page = PAIRS if table.joined.any() else SHARDS if table.has_shards else PAGES[family(table)]
        pages[page].append(entry)
    rows = []
    for page, entries in pages.items():
        sections = []
        for entry in entries:
            note, table = folder / "notes" / f"{entry.name}.md", schedules.small(entry.name)
            sections.append(section(entry.name, note.read_text(encoding="utf-8") if note.is_file() else ""))
            link = MyST(f"[{literal(entry.label)}](#schedule-{entry.name})")
            size = table.num_ranks, table.num_microbatches
            where = "" if size == (4, 8) else " (S = {}, B = {})".format(*size)
            rows.append((link, entry.title, f"{_bubble(table):.0%}{where}", f"{_peak(table):.3g}"))
        _replace(folder / f"{page}.md", SECTIONS, "\n".join([*sections, exercises(entries, page) if entries else ""]))
    overview = list_table(rows, ["schedule", "what it does", "bubble", "peak"], [24, 50, 13, 13])
    _replace(book / "schedules.md", OVERVIEW, overview)


def _replace(page, mark, text):
    page.write_text(page.read_text(encoding="utf-8").replace(mark, text), encoding="utf-8")
