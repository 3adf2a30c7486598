"""Cases: schedules as users name them, built and compiled once."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from ppmodel import schedules
from ppmodel.caches import cached
from ppmodel.errors import ScheduleError, SizeError
from ppmodel.given import as_list
from ppmodel.schedules.options import SHARDING, option_text
from ppmodel.tables import Schedule, read_table
from ppmodel.tables.gathers import FSDP

_Name: TypeAlias = str | os.PathLike[str]
ScheduleLike: TypeAlias = Schedule | _Name | tuple[_Name, Mapping[str, Any]] | Callable[[int, int], Schedule]
"""Whatever a user may give as a schedule; see `build`."""

_TABLES = (".csv", ".txt")
_SHARDING = {option.name for option in SHARDING}
_WRITTEN = re.compile(r"(.+?)(?::([a-z_-]+=.*))?", re.DOTALL)


class Case(NamedTuple):
    """A schedule given by name, as a table, or as a function that generates one.

    Parameters
    ----------
    name : str
        Name of the registered schedule, or of the table or function.
    options : tuple of (str, object)
        Options that differ from the defaults; hashable.
    source : Schedule or callable, optional
        The table, or a function of ranks and microbatches that returns one; by default, the registered generator.
    user_entry : Entry, optional
        The generator of a user's file, whatever its name stands for by now.
    """

    name: str
    options: tuple = ()
    source: Schedule | Callable | None = None
    user_entry: schedules.registry.Entry | None = None

    @property
    def entry(self):
        """The `Entry` of a generator."""
        return self.user_entry or schedules.get(self.name)

    @property
    def user_defined(self):
        """True for a user's table, function or generator."""
        return self.user_entry is not None or self.source is not None

    @property
    def label(self):
        """The name in figures and tables."""
        if self.user_entry is None and self.name not in schedules.names():
            return self.name
        forms = {option.name: option.form for option in self.entry.options if option.form.isalpha()}
        values = (f"{forms.get(key, key)} = {v}" if isinstance(v, int) else option_text(v) for key, v in self.options)
        values = (f"FSDP {value}" if value in FSDP else value for value in values)
        return " ".join((self.entry.label, *values))

    @property
    def size(self):
        """Ranks and microbatches of a table; None if the size is open."""
        return (self.source.num_ranks, self.source.num_microbatches) if isinstance(self.source, Schedule) else None

    @property
    def known_options(self):
        """The available options by name: those of a generator, and of every schedule."""
        own = () if self.source is not None else self.entry.options
        return {option.name: option for option in (*own, *SHARDING)}

    @property
    def own_options(self):
        """The options of the generator."""
        return {name: value for name, value in self.options if name not in _SHARDING}

    @property
    def sharding(self):
        """The arguments of `with_gathers`; empty if weights are not sharded."""
        return {name: value for name, value in self.options if name in _SHARDING}

    def with_options(self, given):
        """Add options.

        Parameters
        ----------
        given : dict of str to object
            Option name to value, which may be a text, as people write it.

        Raises
        ------
        ScheduleError
            If the case is a table, it has no such option, or a value is illegal.

        Examples
        --------
        >>> Case("hanayo").with_options({"waves": "2"}).label
        'Hanayo W = 2'
        """
        known_options, values = self.known_options, dict(self.options)
        for key, value in given.items():
            if key not in known_options:
                remedy = f"its options: {', '.join(sorted(known_options.keys() - _SHARDING)) or 'none'}"
                raise ScheduleError(key, value, f"is not an option of {self.name}", remedy)
            values[key] = known_options[key].checked(value)
        return self._replace(options=tuple(values.items()))


def as_case(given):
    """Turn whatever a user gives as a schedule into a `Case`.

    Parameters
    ----------
    given : str, Path, (str, dict), Schedule, callable or Case
        A registered name or your own file, if need be with options (``("hanayo", {"waves": 2})`` or
        ``"hanayo:waves=2"``); a table; or a function of ranks and microbatches that returns one.

    Returns
    -------
    Case

    Raises
    ------
    ScheduleError
        If it is none of these, the name is unknown, or a file has several schedules.

    Examples
    --------
    >>> as_case(["asymmetric-chimera", {"split": [1, 2]}])
    Case(name='asymmetric-chimera', options=(('split', (1, 2)),), source=None, user_entry=None)
    """
    cases = _cases_of(given)
    if len(cases) > 1:
        rule = f"registers several schedules: {', '.join(case.name for case in cases)}"
        raise ScheduleError("schedule", given, rule, "name one of them")
    return cases[0]


def _cases_of(given):
    """The cases that one entry names: one, unless it is a generator's file that registers several."""
    if isinstance(given, Case):
        return [given]
    if isinstance(given, Schedule):
        return [Case(given.name, (), given)]
    if callable(given) and not isinstance(given, type):
        try:
            inspect.signature(given).bind(4, 8)
        except TypeError as error:
            shown, remedy = getattr(given, "__name__", repr(given)), "write a function (pp, microbatches) -> Schedule"
            raise ScheduleError("schedule", shown, f"cannot be called with two sizes: {error}", remedy) from None
        registered = [Case(name) for name in schedules.names() if schedules.get(name).generate is given]
        return registered[:1] or [Case(getattr(given, "__name__", type(given).__name__), (), given)]
    if isinstance(given, os.PathLike):
        return cases_of_file(given)
    if isinstance(given, str):
        return cases_of_text(given)
    if not _is_pair(given):
        rule = "is not a schedule's name, a (name, options) pair, a table, or a function that generates one"
        raise ScheduleError("schedule", repr(given), rule, 'write, for example, ("interleaved-1f1b", {"chunks": 4})')
    return [case.with_options(given[1]) for case in _cases_of(given[0])]


def as_cases(given):
    """Turn a list of schedules, or a single one, into cases; see `as_case`.

    A generator's file stands for all schedules that it registers.

    Raises
    ------
    ScheduleError
        As for `as_case`; and for two different generators of one name, of which only the last could run.

    Examples
    --------
    >>> [case.label for case in as_cases(["gpipe", ("hanayo", {"waves": 2})])]
    ['GPipe', 'Hanayo W = 2']
    """
    entries = [given] if isinstance(given, Case) or _is_pair(given) else as_list(given)
    cases, generators = [], {}
    for entry in entries:
        cases += require_one_each(generators, _cases_of(entry))
    return cases


def require_one_each(first, cases):
    """Refuse a generator that has replaced another one of the same name; a copy changes nothing.

    Parameters
    ----------
    first : dict
        What each name stood for before; the names of these cases are added.
    cases : list of Case
        The next ones.

    Returns
    -------
    list of Case
        The same.
    """
    for case in cases:
        if case.source is None and (before := first.setdefault(case.name, case.entry)) != case.entry:
            rule = f"is also the name of a schedule in {before.file}"
            raise ScheduleError("schedule", case.name, rule, "choose a different name", where=case.entry.file)
    return cases


def _is_pair(given):
    return isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[1], dict)


def cases_of_file(path):
    """Load the schedules that a user's file defines.

    Parameters
    ----------
    path : str or Path
        A generator ending in ``.py``, which is run; or a table, in our format or PyTorch's.

    Returns
    -------
    list of Case
        One for a table; for a generator, all schedules that it registers, which can then be used by name.

    Raises
    ------
    PPModelError
        If the file cannot be read or run, or has no schedule; with file and line if possible.

    Examples
    --------
    >>> from ppmodel.clusters.specs import template_path
    >>> [case.size for case in cases_of_file(template_path("my_table", ".csv"))]
    [(4, 8)]
    """
    if str(path).endswith(".py"):
        return [Case(entry.name, user_entry=entry) for entry in schedules.register_file(path)]
    return _cases_of(read_table(path))


def cases_of_text(text):
    """Find the schedules that a text names, by name or file, with options after a colon.

    Parameters
    ----------
    text : str
        Such as ``1f1b``, ``interleaved-1f1b:chunks=4``, ``mine.csv``, ``mine.py:node=2,depth=1``.

    Returns
    -------
    list of Case
        One, unless a generator's file registers several. Options apply to the schedules that have them.

    Raises
    ------
    PPModelError
        If the name is unknown, the file is refused, or an option is unknown or illegal.

    Examples
    --------
    >>> cases_of_text("stp:warm-up=memory-saving")[0].label
    'STP memory-saving'
    """
    name, options = split_options(text)
    cases = cases_of_file(name) if is_file(name) else [Case(schedules.get(name).name)]
    if options is None:
        return cases
    texts = {}
    for part in options.split(","):
        written, sign, value = part.partition("=")
        key = written.replace("-", "_")
        if not sign:
            key, first = texts.popitem()
            remedy = f"name the schedule once per value: {name}:{key}={first} {name}:{key}={part.strip()}"
            raise ScheduleError(key, f"{first},{part}", "must be a single value", remedy)
        if key in texts:
            raise ScheduleError(written, value, "is given twice", "leave out all but one")
        texts[key] = value
    return [case.with_options(texts) for case in cases]


def case_of_data(given):
    """The schedule that a file of data names, alone or in a list with its options: a registered one, never a file.

    >>> case_of_data("hanayo:waves=2").label
    'Hanayo W = 2'
    """
    schedules.get(split_options(given if isinstance(given, str) else given[0])[0])
    return as_case(given)


def split_options(text):
    """Split a text into the name or file of a schedule and the options after it, which may be None.

    >>> split_options("mine.py:node=2,warm-up=1"), split_options("1f1b")
    (('mine.py', 'node=2,warm-up=1'), ('1f1b', None))
    """
    return _WRITTEN.fullmatch(text).groups() if text else ("", None)


def is_file(name):
    """Check if a text names a user's file rather than a registered schedule.

    >>> is_file("mine.csv"), is_file("1f1b")
    (True, False)
    """
    if name in schedules.names():
        return False
    return name.endswith((".py", *_TABLES)) or os.sep in name or os.path.isfile(name)


def label(name, options=None):
    """Name a registered schedule with its options, for figures and tables.

    Parameters
    ----------
    name : str
        Name of the schedule.
    options : dict, optional
        Options that differ from the defaults.

    Examples
    --------
    >>> label("hanayo", {"waves": 2}), label("asymmetric-chimera", {"split": (1, 2)})
    ('Hanayo W = 2', 'asymmetric Chimera 1:2')
    """
    return Case(schedules.get(name).name, tuple((options or {}).items())).label


def build(schedule: ScheduleLike, pp: int | None = None, microbatches: int | None = None, **options: Any) -> Schedule:
    """Build the table of a schedule.

    Parameters
    ----------
    schedule : str, Path, (str, dict), Schedule or callable
        One of `ppmodel.names`; your own file; either with options, as in ``("hanayo", {"waves": 2})`` or
        ``"hanayo:waves=2"``; a table; or a function ``(pp, microbatches) -> Schedule``.
    pp, microbatches : int, optional
        Ranks and microbatches per iteration, S and B; not needed for a table. A schedule with v chunks per rank has
        v S stages.
    **options
        The schedule's own options, such as ``chunks`` or ``waves``; ``ppmodel schedules`` lists them.

    Returns
    -------
    Schedule

    Raises
    ------
    PPModelError
        If a name or option is unknown, the file is refused, or the schedule is not defined at this size.

    Examples
    --------
    >>> import ppmodel as pp
    >>> pp.build("hanayo", 4, 4, waves=2)
    <Schedule hanayo: pp=4, microbatches=4, stages=16, operations=128>
    """
    case = as_case(schedule).with_options(options)
    return generated(case, *size_of(case, pp, microbatches))


def size_of(case, pp=None, microbatches=None, beside=()):
    """Ranks and microbatches to build a case at: as given, else its table's, else that of all tables beside it.

    Raises
    ------
    ScheduleError
        If one is missing.

    Examples
    --------
    >>> table = as_case(build("1f1b", 4, 8))
    >>> size_of(as_case("gpipe"), 4, 8), size_of(table, 4), size_of(as_case("gpipe"), beside=[table])
    ((4, 8), (4, 8), (4, 8))
    """
    size, tables = [], [case] if case.size else [table for table in beside if table.size]
    for place, (field, count) in enumerate({"pp": pp, "microbatches": microbatches}.items()):
        counts = sorted({table.size[place] for table in tables}) if count is None else [count]
        if len(counts) != 1:
            differ = f", and the tables differ: {' and '.join(map(str, counts))}" if counts else ""
            remedy = f"give, for example, {{field}}={counts[0] if counts else 8}"
            raise ScheduleError(field, None, f"is missing{differ}", remedy, names_fields=True)
        size += counts
    return tuple(size)


def built(case, num_ranks, num_microbatches):
    """Build the table of a case at a size; recent tables of registered schedules are cached.

    What a function or object of the user's returns may have changed since, so it is asked again.

    Raises
    ------
    SizeError
        If the schedule is not defined at this size, or the table has a different size.
    """
    size = schedules.registry.require_counts(pp=num_ranks, microbatches=num_microbatches)  # 8.0 would be found as 8
    if case.source is not None:
        return generated(case, *size)
    return _built(case, case.entry.generate, *size)  # a schedule that is registered again is built again


def generated(case, num_ranks, num_microbatches):
    """As `built`, without keeping the table."""
    made = case.source
    if made is None:
        made = schedules.build(case.entry, num_ranks, num_microbatches, **case.own_options)
    elif case.size is None:
        made = case.source(num_ranks, num_microbatches)
        schedules.registry.require_made(case.name, made, num_ranks, num_microbatches)
    elif case.size != (num_ranks, num_microbatches):
        rule = "is a table for pp = {}, microbatches = {}".format(*case.size)
        value = f"{case.name} at pp = {num_ranks}, microbatches = {num_microbatches}"
        raise SizeError("table", value, rule, "use that size")
    return made.with_gathers(**case.sharding) if case.sharding else made


_built = cached(lambda table: table.num_operations)(lambda case, _generate, *size: generated(case, *size))


def legal_cases(cases, num_ranks, num_microbatches):
    """Yield the cases that are defined at a size, with their tables; others are left out.

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
        If a name or option is unknown, or the size is invalid.

    Examples
    --------
    >>> [case.name for case, _ in legal_cases(["gpipe", "chimera"], 4, 6)]
    ['gpipe']
    """
    for case in map(as_case, cases):
        with suppress(SizeError):
            yield case, built(case, num_ranks, num_microbatches)
