"""Schedules by name: what each is called, what may be set, and where it is legal."""

from difflib import get_close_matches
from typing import NamedTuple

from ppmodel.errors import ScheduleError

_MAX_CELLS = 2**23
_registry = {}


class Option(NamedTuple):
    """Something that may be set on a schedule, beside its size.

    Attributes
    ----------
    name : str
        Keyword of the generator; with two dashes before it, the option of the command line.
    parse : callable
        From text to value; raises ``ValueError``.
    default : object
    form : str
        How the value is written, for help.
    rule : str
        What it must be, for error messages.
    help : str
    """

    name: str
    parse: type
    default: object
    form: str
    rule: str
    help: str


class Entry(NamedTuple):
    """A registered schedule."""

    name: str
    generate: type
    title: str
    legal: str
    options: tuple[Option, ...]


def schedule(name, *, title, legal, options=()):
    """Register the decorated generator ``(num_stages, num_microbatches, **options) -> Schedule``."""

    def register(generate):
        _registry[name] = Entry(name, generate, title, legal, tuple(options))
        return generate

    return register


def names():
    """The registered schedules.

    >>> "1f1b" in names()
    True
    """
    return sorted(_registry)


def get(name):
    """The `Entry` of a schedule.

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
        near = get_close_matches(str(name).lower(), names(), n=1, cutoff=0.3)
        remedy = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(names())}"
        raise ScheduleError("schedule", name, "is not a known schedule", remedy)
    return _registry[name]


def build(name, num_stages, num_microbatches, **options):
    """Generate a schedule by name.

    Parameters
    ----------
    name : str
        One of `names`.
    num_stages : int
        Devices, S; a schedule with v chunks has v S stages.
    num_microbatches : int
        Microbatches of one iteration, B.
    **options
        What the schedule's `Entry` lists.

    Returns
    -------
    Schedule

    Raises
    ------
    ScheduleError
        If the name, an option or the size is illegal; the message gives the rule.

    Examples
    --------
    >>> build("hanayo", 4, 4, waves=2).num_stages
    16
    """
    entry = get(name)
    for field, value in (("stages", num_stages), ("microbatches", num_microbatches)):
        whole = isinstance(value, int) and not isinstance(value, bool)
        require(
            whole and value >= 1, field, value, "must be a whole number of at least 1", f"pass {field} of 1 or more"
        )
    size = num_stages * num_microbatches
    require(size <= _MAX_CELLS, "stages x microbatches", size, f"must be at most {_MAX_CELLS}", "choose a smaller size")
    known = {option.name for option in entry.options}
    for option, value in options.items():
        listed = ", ".join(sorted(known)) or "none"
        require(option in known, option, value, f"is not an option of {name}", f"its options: {listed}")
    return entry.generate(num_stages, num_microbatches, **options)


def require(condition, field, value, rule, remedy):
    """Refuse an illegal size or option of a schedule.

    Raises
    ------
    ScheduleError
        Unless `condition` holds.
    """
    if not condition:
        raise ScheduleError(field, value, rule, remedy)
