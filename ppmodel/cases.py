"""A case: a schedule as its user names it, built and compiled once."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from ppmodel import schedules
from ppmodel.errors import ScheduleError, SizeError
from ppmodel.schedules.registry import option_text
from ppmodel.simulation import ALLREDUCE, compile_graph
from ppmodel.tables import Schedule

_KEPT = 1024


class Case(NamedTuple):
    """A schedule by name, by its table, or by a function that generates it.

    Parameters
    ----------
    name : str
        Of the registered schedule; of a table or function, its own.
    options : tuple of (str, object)
        Options where they differ from the defaults; hashable.
    source : Schedule or callable, optional
        The table, or the function of ranks and microbatches that returns one; without it the registered generator.
    """

    name: str
    options: tuple = ()
    source: Schedule | Callable | None = None

    @property
    def label(self):
        """What figures and tables call it."""
        return self.name if self.source is not None else label(self.name, dict(self.options))

    @property
    def size(self):
        """Ranks and microbatches of a table; None where any size may be asked for."""
        return (self.source.num_ranks, self.source.num_microbatches) if isinstance(self.source, Schedule) else None


def as_case(given):
    """The `Case` of what a user names as a schedule.

    Parameters
    ----------
    given : str, (str, dict), Schedule, callable or Case
        A registered name, with options where they differ from the defaults; a table; or a function
        ``(num_ranks, num_microbatches) -> Schedule``.

    Returns
    -------
    Case

    Raises
    ------
    ScheduleError
        If it is none of these, or the name is unknown.

    Examples
    --------
    >>> as_case(["asymmetric-chimera", {"split": [1, 2]}])
    Case(name='asymmetric-chimera', options=(('split', (1, 2)),), source=None)
    """
    if isinstance(given, Case):
        return given
    if isinstance(given, Schedule):
        return Case(given.name, (), given)
    if callable(given):
        return Case(getattr(given, "__name__", type(given).__name__), (), given)
    name, options = (given, {}) if isinstance(given, str) else _pair(given)
    schedules.get(name)
    return Case(
        name, tuple((key, tuple(value) if isinstance(value, list) else value) for key, value in options.items())
    )


def _pair(given):
    if isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[0], str) and isinstance(given[1], dict):
        return given
    rule = "is not a schedule's name, a (name, options) pair, a table, or a function that generates one"
    raise ScheduleError("schedule", repr(given), rule, 'write for example ("interleaved-1f1b", {"chunks": 4})')


def label(name, options=None):
    """A registered schedule and its options as figures and tables call it.

    Parameters
    ----------
    name : str
        Name of the schedule.
    options : dict, optional
        Its options, where they differ from the defaults.

    Returns
    -------
    str

    Examples
    --------
    >>> label("hanayo", {"waves": 2}), label("asymmetric-chimera", {"split": (1, 2)})
    ('Hanayo W = 2', 'asymmetric Chimera 1:2')
    """
    entry = schedules.get(name)
    forms = {option.name: option.form for option in entry.options}
    words = [entry.label]
    for key, value in (options or {}).items():
        words.append(f"{forms[key]} = {value}" if isinstance(value, int) else option_text(value))
    return " ".join(words)


def built(case, num_ranks, num_microbatches):
    """The table of a case at a size; the last ones are kept.

    Raises
    ------
    SizeError
        If the schedule is not defined at the size, or a table has another.
    """
    generate = schedules.get(case.name).generate if case.source is None else None
    return _built(case, generate, num_ranks, num_microbatches)


@lru_cache(_KEPT)
def _built(case, generate, num_ranks, num_microbatches):
    if generate is not None:  # part of the key: a name may be registered anew, with another generator
        return schedules.build(case.name, num_ranks, num_microbatches, **dict(case.options))
    if case.size is None:
        return case.source(num_ranks, num_microbatches)
    if case.size != (num_ranks, num_microbatches):
        rule = "is a table for pp = {}, microbatches = {}".format(*case.size)
        asked = f"{case.name} at pp = {num_ranks}, microbatches = {num_microbatches}"
        raise SizeError("table", asked, rule, "ask for that size")
    return case.source


def compiled(schedule, p2p="overlapped", allreduce="excluded"):
    """The execution graph of a table; the last ones are kept. Without replicas there is no all-reduce to include."""
    return _compiled(
        schedule, p2p, allreduce if schedule.num_replicas > 1 or allreduce not in ALLREDUCE else "excluded"
    )


@lru_cache(_KEPT)
def _compiled(schedule, p2p, allreduce):
    return compile_graph(schedule, p2p, allreduce)


def formula_bubble_ratio(case, num_ranks, num_microbatches):
    """The bubble ratio of a schedule by closed form, published or derived here, over the total time.

    Parameters
    ----------
    case : Case or what `as_case` takes
        The schedule; a table or a function of one's own has no closed form.
    num_ranks, num_microbatches : int
        Ranks S and microbatches B.

    Returns
    -------
    Fraction or float
        Idle time over the total time, without communication; NaN where there is no closed form.

    Examples
    --------
    >>> formula_bubble_ratio("zb-h2", 8, 16), published_bubble_ratio("zb-h2", 8, 16)
    (Fraction(7, 55), Fraction(0, 1))
    """
    return _ratio(as_case(case), "bubble_ratio", num_ranks, num_microbatches)


def published_bubble_ratio(case, num_ranks, num_microbatches):
    """The bubble ratio that a schedule's own authors publish.

    It is over the total time, but for ZB-H2 and ZB-V, whose authors divide by the longest span of a rank. A closed form
    that is derived in this project is not published; see `formula_bubble_ratio`.

    Parameters
    ----------
    case, num_ranks, num_microbatches
        As in `formula_bubble_ratio`.

    Returns
    -------
    Fraction or float
        Idle time over the time that they divide by; NaN where they publish none.

    Examples
    --------
    >>> published_bubble_ratio("chimera", 8, 16), published_bubble_ratio(("hanayo", {"waves": 2}), 8, 8)
    (Fraction(3, 19), Fraction(14, 55))
    """
    return _ratio(as_case(case), "published", num_ranks, num_microbatches)


def _ratio(case, which, num_ranks, num_microbatches):
    formula = None if case.source is not None else getattr(schedules.get(case.name), which)
    ratio = formula and formula(num_ranks, num_microbatches, **dict(case.options))
    return float("nan") if ratio is None else ratio


def legal_cases(cases, num_ranks, num_microbatches):
    """Those of some cases that are defined at a size.

    Parameters
    ----------
    cases : iterable
        Each as in `as_case`.
    num_ranks, num_microbatches : int
        Ranks S and microbatches B.

    Yields
    ------
    case : Case
    schedule : Schedule

    Raises
    ------
    ScheduleError
        If a name or an option is unknown, or the size is none; a case that is not defined at the size is left out.

    Examples
    --------
    >>> [case.name for case, _ in legal_cases(["gpipe", "chimera"], 4, 6)]
    ['gpipe']
    """
    schedules.registry.require_counts(pp=num_ranks, microbatches=num_microbatches)
    for case in map(as_case, cases):
        try:
            yield case, built(case, num_ranks, num_microbatches)
        except SizeError:
            continue
