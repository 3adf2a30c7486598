"""The registry of schedules: their names and legal sizes."""

import re
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from inspect import unwrap
from typing import NamedTuple

from ppmodel.caches import cached
from ppmodel.errors import ScheduleError, SizeError, did_you_mean
from ppmodel.given import to_builtin
from ppmodel.schedules.options import Option, is_count
from ppmodel.tables import Schedule

_MAX_CELLS = 2**24
_SMALL = ((4, 8), (4, 4), (4, 12), (4, 16), *((ranks, count) for ranks in range(1, 9) for count in range(1, 25)))
_registry = {}
collected = ContextVar("entries that are listed instead of registered", default=None)
_ZERO_BUBBLE = "zb-h1, zb-h2, zb-1p, zb-2p or zb-v"
ALSO_CALLED = {
    "vpp": "interleaved-1f1b", "virtual-pipeline": "interleaved-1f1b", "interleaved-pipeline": "interleaved-1f1b",
    "zb": _ZERO_BUBBLE, "zero-bubble": _ZERO_BUBBLE, "zbpp": _ZERO_BUBBLE, "bfs": "looped-bfs",
    "breadth-first": "looped-bfs", "afab": "gpipe", "fill-drain": "gpipe", "dapple": "1f1b", "pipedream-flush": "1f1b",
    "cut-in-half": "dualpipev", "gis": "grouped-interleaving", "pipeoffload": "grouped-interleaving", "v1f1b": "1f1b-v",
}  # fmt: skip
"""What people, papers and frameworks call schedules, and the names here."""
_PLAIN = re.compile(r"\w[^$]{0,79}")


class Entry(NamedTuple):
    """A registered schedule.

    Attributes
    ----------
    name : str
        Name for `build` and the command line.
    generate : callable
        ``(num_ranks, num_microbatches, **options) -> Schedule``.
    label : str
        Name in figures and tables.
    title : str
        What it does, in one line.
    legal : str
        The sizes at which it is defined.
    options : tuple of Option
    bubble_ratio : callable or None
        Maps ``(num_ranks, num_microbatches, **options)`` to the bubble ratio in closed form, over the total time,
        without communication and with Bw = 2 F unless the closed form says otherwise. It returns None at sizes to
        which it does not apply; None if there is no closed form.
    published : callable or None
        With the same arguments, the bubble ratio that the schedule's own authors publish, over their own
        denominator; None if they publish none. If it differs from `bubble_ratio`, the latter is derived in this
        project.
    searched : bool
        Whether the order is found by simulation, operation by operation, rather than written down directly.
    when : str
        When to use it, in one sentence; empty if unknown.
    source : str
        The publication, as a key of a bibliography; empty if unpublished.
    file : str or None
        The user's file that registered it.
    texts : tuple of (str, str)
        Name and text of that file, and of the modules beside it that it imports.
    """

    name: str
    generate: Callable
    label: str
    title: str
    legal: str
    options: tuple[Option, ...]
    bubble_ratio: Callable | None
    published: Callable | None
    searched: bool = False
    when: str = ""
    source: str = ""
    file: str | None = None
    texts: tuple[tuple[str, str], ...] = ()


def schedule(name, *, label, options=(), bubble_ratio=None, published=True, **about):
    """Register the decorated generator; the arguments are those of `Entry`.

    `published` may also be True, meaning `bubble_ratio` itself, or False, meaning none.

    Raises
    ------
    ScheduleError
        If another generator has this name, or if name or label is not plain text, as pages, figures and files need.
    """
    for field, text in (("schedule", name), ("label", label or name)):
        is_plain = isinstance(text, str) and _PLAIN.fullmatch(text) and text.isprintable()
        require(is_plain, field, text, "must be a short text without $ that begins with a letter or digit", "rename it")

    def register(generate):
        authors = published if callable(published) else bubble_ratio if published else None
        formulas = {"bubble_ratio": bubble_ratio, "published": authors}
        entry = Entry(name, generate, label or name, options=tuple(options), **formulas, **about)
        entries = collected.get()
        add([entry]) if entries is None else entries.append(entry)
        return generate

    return register


def place_of(generate):
    """File and line of a generator, with its decorator; None if it has no code of its own."""
    code = getattr(unwrap(generate), "__code__", None)
    return code and f"{code.co_filename}:{code.co_firstlineno}"


def add(entries):
    """Make entries known by name; what the same module, or another file of a user's, has registered is replaced.

    Raises
    ------
    ScheduleError
        If a generator of another module has one of these names.
    """
    for entry in entries:
        other = _registry.get(entry.name, entry)
        if other.generate.__module__ != entry.generate.__module__:
            owner = f"in {other.file}" if other.file else "that comes with the project"
            rule, remedy = f"is also the name of the schedule {owner}", "choose a different name in @schedule"
            raise ScheduleError("schedule", entry.name, rule, remedy, where=place_of(entry.generate))
    _registry.update({entry.name: entry for entry in entries})


def names() -> list[str]:
    """List the registered schedules by name.

    >>> "1f1b" in names()
    True
    """
    return sorted(_registry)


def entries():
    """List the `Entry` of every schedule, in order of registration.

    >>> [entry.name for entry in entries()] == names()
    False
    """
    return list(_registry.values())


def get(name):
    """Look up the `Entry` of a schedule.

    Raises
    ------
    ScheduleError
        If no schedule has this name.

    Examples
    --------
    >>> get("chimera").legal
    'S even, B a multiple of S (of 2S for forward-doubling, B > S)'
    """
    if name not in _registry:
        here = ALSO_CALLED.get(str(name).lower().replace("_", "-").replace(" ", "-"))
        remedy = f"here it is {here}" if here else did_you_mean(name, names()) or f"choose one of {', '.join(names())}"
        raise ScheduleError("schedule", name, "is not a known schedule", remedy)
    return _registry[name]


def build(name, num_ranks, num_microbatches, **options):
    """Build the table of a registered schedule at a given size, for `cases.build`, which users call.

    Parameters
    ----------
    name : str or Entry
        One of `names`, or an entry itself.
    num_ranks, num_microbatches : int
        Ranks S and microbatches B.
    **options
        The schedule's own options, which `cases.Case.with_options` checks.

    Returns
    -------
    Schedule

    Raises
    ------
    ScheduleError
        If the name is unknown, or the schedule is not defined at this size; the message gives the rule.

    Examples
    --------
    >>> build("hanayo", 4, 4, waves=2)
    <Schedule hanayo: pp=4, microbatches=4, stages=16, operations=128>
    """
    entry = name if isinstance(name, Entry) else get(name)
    size = require_counts(pp=num_ranks, microbatches=num_microbatches)
    require_size(*size)
    return entry.generate(*size, **options)


def small(name):
    """Build a schedule at a small legal size: 4 ranks and 8 microbatches if possible.

    Raises
    ------
    ScheduleError
        If no small size is legal.

    Examples
    --------
    >>> small("1f1b").num_microbatches, small("hanayo").num_microbatches
    (8, 4)
    """
    return _small(name, get(name).generate)


@cached(lambda table: table.num_operations)
def _small(name, _generate):
    for size in _SMALL:
        with suppress(SizeError):
            return build(name, *size)
    raise ScheduleError("schedule", name, "is not legal at any small size", f"relax its rule: {get(name).legal}")


def require_made(name, made, num_ranks, num_microbatches, where=None):
    """Refuse what a user's generator returns unless it is a schedule of the requested size.

    Raises
    ------
    ScheduleError
    """
    size, remedy = f"at S = {num_ranks}, B = {num_microbatches}", "return one row per rank, and all microbatches"
    if not isinstance(made, Schedule):
        rule = f"returns a value of type {type(made).__name__} {size}; it must return a Schedule"
        remedy = f'end it with return Schedule.from_rows("{name}", rows)'
    elif (made.num_ranks, made.num_microbatches) != (num_ranks, num_microbatches):
        rule = f"returns {made.num_ranks} ranks and {made.num_microbatches} microbatches {size}"
    else:
        return
    raise ScheduleError("generator", name, rule, remedy, where=where)


def require_counts(**values):
    """Return sizes as Python's own numbers; refuse those that are not whole numbers of at least 1.

    Raises
    ------
    ScheduleError
        For the first of them.

    Examples
    --------
    >>> require_counts(pp=4, microbatches=8)
    (4, 8)
    """
    values = {field: to_builtin(value) for field, value in values.items()}
    for field, value in values.items():
        if not is_count(value):
            shown = repr(value) if isinstance(value, str) else value
            raise ScheduleError(field, shown, "must be a whole number of at least 1", f"pass {field} of 1 or more")
    return tuple(values.values())


def require_size(num_ranks, num_microbatches, chunks=2, note="", remedy="choose a smaller size"):
    """Refuse a table with more than 2^24 stages times microbatches.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        S and B.
    chunks : int
        Stages per rank; one counts as two, so that the same sizes are legal with one and with two.
    note, remedy : str
        What the message adds to the rule, and what to do.

    Raises
    ------
    ScheduleError
        If the table is too large.

    Examples
    --------
    >>> require_size(4, 8, chunks=10**6, note=" with 1000000 chunks", remedy="pass fewer chunks")
    Traceback (most recent call last):
    ppmodel.errors.ScheduleError: pp x microbatches = 32: must be at most 16 with 1000000 chunks; pass fewer chunks
    """
    most, size = _MAX_CELLS // max(2, chunks), num_ranks * num_microbatches
    if size > most:
        raise ScheduleError("pp x microbatches", size, f"must be at most {most}{note}", remedy)


def require_even_ranks(name, num_ranks):
    """Refuse an odd number of ranks.

    Raises
    ------
    ScheduleError
        Names the nearest even numbers.

    Examples
    --------
    >>> require_even_ranks("chimera", 5)
    Traceback (most recent call last):
    ppmodel.errors.SizeError: pp = 5: must be even for chimera; pass pp 4 or 6
    """
    beside = f"{num_ranks - 1} or {num_ranks + 1}" if num_ranks > 1 else "2"
    require_legal(num_ranks % 2 == 0, "pp", num_ranks, f"must be even for {name}", f"pass pp {beside}")


def require_microbatches(name, num_microbatches, least, note="", instead=""):
    """Refuse fewer microbatches than a schedule needs.

    Parameters
    ----------
    name, num_microbatches, least
        The schedule, what it is asked for, and what it needs.
    note, instead : str
        What the message adds to the rule, and to the remedy.

    Raises
    ------
    SizeError

    Examples
    --------
    >>> require_microbatches("zb-h1", 2, 4, instead=", or use zb-1p")
    Traceback (most recent call last):
    ppmodel.errors.SizeError: microbatches = 2: must be at least 4 for zb-h1; pass microbatches 4 or more, or use zb-1p
    """
    rule, remedy = f"must be at least {least} for {name}{note}", f"pass microbatches {least} or more{instead}"
    require_legal(num_microbatches >= least, "microbatches", num_microbatches, rule, remedy)


def require_legal(condition, field, value, rule, remedy):
    """Refuse a size at which a schedule is not defined.

    Raises
    ------
    SizeError
        Unless `condition` holds.
    """
    SizeError.require([(field, value, condition, rule, remedy)])


def require(condition, field, value, rule, remedy):
    """Refuse an illegal option of a schedule.

    Raises
    ------
    ScheduleError
        Unless `condition` holds.
    """
    ScheduleError.require([(field, value, condition, rule, remedy)])
