"""A section for every registered schedule: a drawing, its rule, and facts computed from its table."""

from typing import NamedTuple

from ppbook import explorer
from ppbook.drawings import drawing
from ppbook.frameworks import frameworks_of
from ppbook.report import MyST, list_table, literal
from ppmodel import schedules
from ppmodel.errors import PPModelError
from ppmodel.metrics import messages_sent, peak_activations, table_bubble_ratio
from ppmodel.points import simulate
from ppmodel.schedules.cases import as_case, formula_bubble_ratio
from ppmodel.schedules.options import option_text
from ppmodel.schedules.registry import Entry
from ppmodel.tables import Schedule, family

PAGES = {
    "one chunk": "one-stage", "one chunk, split backward": "split-backward", "loop": "loops", "V or waves": "zigzag",
    "two directions": "two-directions",
}  # fmt: skip
"""The page of each family, in ``schedules/``; those whose cells hold pairs are on a page of their own."""

PAIRS = "pairs"

SECTIONS, OVERVIEW = "<!-- sections -->", "<!-- overview -->"
"""Where a family's page and the page above them have what is written here."""

_TIMES = {"forward": 1, "backward": 2, "comm": 0.2}
_LARGE = ((8, 32), (8, 8))
_BASE = "1f1b"


class Facts(NamedTuple):
    """What a section says of a schedule.

    Attributes
    ----------
    entry : Entry
    table : Schedule
        At the small size of the drawing.
    rule, when, legal, options, frameworks, source, bubble, peak, messages, link : str
        In MyST.
    point : str
        What the drawing shows, in plain text.
    """

    entry: Entry
    table: Schedule
    rule: str
    when: str
    bubble: str
    peak: str
    messages: str
    legal: str
    options: str
    frameworks: str
    source: str
    link: str
    point: str


def facts(name):
    """The facts of a registered schedule, all from its entry, its table, and one simulation.

    Parameters
    ----------
    name : str

    Returns
    -------
    Facts

    Examples
    --------
    >>> facts("1f1b").point
    '1F1B leaves 27% of its slots empty, and 34% of the time where transfers take 0.2 F'
    """
    entry, table = schedules.get(name), schedules.small(name)
    idle, empty = _run(table).idle_ratio, float(table_bubble_ratio(table))
    point = (
        f"{entry.label} leaves {empty:.0%} of its slots empty, and {idle:.0%} of the time where transfers take 0.2 F"
    )
    return Facts(
        entry, table, MyST(literal(f"{entry.title[:1].upper()}{entry.title[1:]}.")), _when(entry, table),
        _bubble(entry, table, empty), _peak(entry, table), _messages(table), literal(entry.legal), _options(entry),
        literal(frameworks_of(name)),
        f"{{cite:t}}`{entry.source}`" if entry.source else f"`{entry.generate.__module__}`, unpublished",
        _link(name, table), point,
    )  # fmt: skip


def section(name):
    """The section of a schedule, in MyST, for a page in ``schedules/``.

    Parameters
    ----------
    name : str

    Returns
    -------
    str
    """
    found = facts(name)
    rows = [
        ("name", f"`{name}`"), ("when to take it", found.when),
        ("bubble", found.bubble), ("peak activations", found.peak), ("messages", found.messages),
        ("legal sizes", found.legal), ("options", found.options),
        ("in frameworks", found.frameworks),
        ("source", found.source), ("to try", found.link),
    ]  # fmt: skip
    table = list_table([(fact, MyST(said)) for fact, said in rows], None, [24, 76])
    picture = drawing(found.table, _run(found.table).timeline, f"drawing-{name}", f"{found.point}.")
    size = f"Its table and, below, its timeline at $S = {found.table.num_ranks}$, $B = {found.table.num_microbatches}$"
    point = literal(found.point[:1].upper() + found.point[1:])
    shown = f"{size}; {_slot(found.table)}a backward takes two forwards, a transfer 0.2. {point}."
    return (
        f"(schedule-{name})=\n## {literal(found.entry.label)}\n\n{found.rule}\n\n"
        f"```{{raw}} html\n{picture}\n```\n\n{shown}\n\n{table}"
    )


def _slot(table):
    """How long a slot is, where it is not a whole forward of a rank."""
    chunks = int(table.chunks_per_rank)
    return f"a slot is $F/{chunks}$; " if chunks > 1 else ""


def overview():
    """All schedules in one short table, in MyST: what each does, and where its section is.

    Returns
    -------
    MyST
    """
    rows = []
    for names in _pages().values():
        for name in names:
            entry, table = schedules.get(name), schedules.small(name)
            there = MyST(f"[{literal(entry.label)}](#schedule-{name})")
            bubble, peak = float(table_bubble_ratio(table)), _number(float(peak_activations(table).max()))
            rows.append((there, entry.title, f"{bubble:.0%}", peak))
    return list_table(rows, ["schedule", "what it does", "bubble", "peak"], [24, 50, 13, 13])


def _pages():
    """The names of the schedules on each page, in the order in which they were registered."""
    pages = {page: [] for page in (*PAGES.values(), PAIRS)}
    for entry in schedules.entries():
        table = schedules.small(entry.name)
        pages[PAIRS if table.joined.any() else PAGES[family(table)]].append(entry.name)
    return pages


def write(book):
    """Write the sections of all registered schedules into the pages of a book.

    Parameters
    ----------
    book : Path
        Its sources. Where it has pages on schedules, they are changed in place: one for each family, with `SECTIONS`
        where sections go, notes on a schedule beside it in ``notes/``, and ``schedules.md``.
    """
    if not (book / "schedules").is_dir():
        return
    for name, there in _pages().items():
        page = book / "schedules" / f"{name}.md"
        whole = "\n".join(section(one) + _note(book, one) for one in there)
        page.write_text(page.read_text(encoding="utf-8").replace(SECTIONS, whole), encoding="utf-8")
    page = book / "schedules.md"
    page.write_text(page.read_text(encoding="utf-8").replace(OVERVIEW, overview()), encoding="utf-8")


def _note(book, name):
    """What is to be said of a schedule beside its facts; nothing where nobody has."""
    path = book / "schedules" / "notes" / f"{name}.md"
    return f"\n{path.read_text(encoding='utf-8')}" if path.is_file() else ""


# ---- facts ---------------------------------------------------------------------------------------


def _run(table):
    return simulate(table, **_TIMES)


def _when(entry, table):
    """When to take a schedule: as its author says, or how it compares with 1F1B."""
    if entry.when:
        return literal(entry.when)
    base = schedules.build(_BASE, table.num_ranks, table.num_microbatches)
    times = [_run(one).makespan_s for one in (table, base)]
    held = [_number(float(peak_activations(one).max())) for one in (table, base)]
    said = "Nobody has said yet. Drawn here it takes {:.3g} F and holds {} microbatches, 1F1B {:.3g} F and {}."
    return literal(said.format(times[0], held[0], times[1], held[1]))


def _bubble(entry, table, empty):
    """The bubble by table at the size of the drawing and at a larger one, and by formula where there is one."""
    said = [f"{empty:.1%} of the total, by table"]
    large = _large(entry)
    if large is not None:
        at = f"S = {large.num_ranks}, B = {large.num_microbatches}"
        said.append(f"{float(table_bubble_ratio(large)):.1%} at {at}")
    formula = formula_bubble_ratio(as_case(entry.name), table.num_ranks, table.num_microbatches)
    said.append(f"{float(formula):.1%} by formula" if formula == formula else "no closed form")
    return literal("; ".join(said))


def _large(entry):
    """The table at a size that is usual; None where none is legal."""
    for size in _LARGE:
        try:
            return schedules.build(entry.name, *size)
        except PPModelError:
            continue
    return None


def _peak(entry, table):
    """The most that a rank holds, beside 1F1B; at a larger size, too, if it is less than 1F1B's there."""
    held = peak_activations(table)
    mean = _number(float(held.mean()))
    beside = (
        "on every rank" if held.min() == held.max() else f"on the most loaded of {len(held)} ranks, {mean} in the mean"
    )
    said, large = f"{_number(_most(table))} microbatches {beside}", _large(entry)
    if entry.name == _BASE:
        return literal(said)
    said += f" (1F1B: {_number(_most_of_base(table))})"
    if large is not None and _most(large) < _most_of_base(large):
        at = f"S = {large.num_ranks}, B = {large.num_microbatches}"
        said += f"; {_number(_most(large))} at {at} (1F1B: {_number(_most_of_base(large))})"
    return literal(said)


def _most(table):
    return float(peak_activations(table).max())


def _most_of_base(table):
    return _most(schedules.build(_BASE, table.num_ranks, table.num_microbatches))


def _messages(table):
    sent = messages_sent(table)
    base = int(messages_sent(schedules.build(_BASE, table.num_ranks, table.num_microbatches)).sum())
    times = ", as many as under 1F1B" if base == sent.sum() else f", {sent.sum() / base:.3g} times those of 1F1B"
    return literal(f"{int(sent.sum())} in all{times}; {int(sent.max())} from the rank that sends most")


def _options(entry):
    """The options of a schedule with their forms; that there are none, where there are none."""
    if not entry.options:
        return literal("none")
    said = (
        f"`--{option.written} {option.form}`: {literal(option.help)}, "
        + (f"default {literal(option_text(option.default))}" if option.default is not None else "default by size")
        for option in entry.options
    )
    return "; ".join(said)


def _link(name, table):
    """A link into the explorer at the size of the drawing; how to draw it where the explorer does not have it."""
    try:
        there = explorer.link(name, table.num_ranks, table.num_microbatches, page=f"../{explorer.PAGE}", comm=0.2)
    except PPModelError:
        return f"`ppmodel table {name} --pp {table.num_ranks} --microbatches {table.num_microbatches}`"
    return f'<a href="{there.replace("&", "&amp;")}">in the explorer, at this size</a>'


def _number(value):
    return f"{value:.3g}"
