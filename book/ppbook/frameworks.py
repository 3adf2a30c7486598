"""``data/frameworks.yaml``: which public code runs which schedule, and what its pairs hide there."""

from functools import cache
from typing import Annotated, Literal

from pydantic import Field

from ppmodel import schedules
from ppmodel.errors import SpecificationError
from ppmodel.specs import DATA, read_document
from ppmodel.specs.entries import Sourced

_NOTES = {
    "yes": "", "experts": "for expert parallelism only", "order": "the order only",
    "authors": "research code",
}  # fmt: skip
NOWHERE = "none known"
"""What is said of a schedule that no framework has."""


class Entry(Sourced):
    """A schedule in a framework: the head of the file explains ``has``."""

    schedule: str
    framework: Annotated[str, Field(min_length=1)]
    has: Literal["yes", "experts", "order", "authors"]


class _File(Sourced.__base__):
    model_config = Sourced.model_config
    entries: list[Entry]


@cache
def entries():
    """The entries of the file, checked against the registered schedules.

    Returns
    -------
    tuple of Entry

    Raises
    ------
    SpecificationError
        If an entry names a schedule that is not registered, or is given twice.
    """
    path, seen = DATA / "frameworks.yaml", set()
    listed = read_document(path, _File).entries
    for entry in listed:
        if entry.schedule not in schedules.names():
            rule, remedy = "is not a registered schedule", f"choose one of {', '.join(schedules.names())}"
            raise SpecificationError("schedule", entry.schedule, rule, remedy, where=str(path))
        if (entry.schedule, entry.framework) in seen:
            raise SpecificationError("framework", entry.framework, "is given twice", "leave one out", where=str(path))
        seen.add((entry.schedule, entry.framework))
    return tuple(listed)


def frameworks_of(name):
    """The names of the frameworks that have a schedule, each with what limits it there.

    Parameters
    ----------
    name : str
        Of a schedule.

    Returns
    -------
    str

    Examples
    --------
    >>> frameworks_of("1f1b")
    'Megatron-LM, PyTorch'
    >>> frameworks_of("combined-1f1b")
    'Megatron-LM (for expert parallelism only)'
    """
    names = [
        f"{entry.framework} ({_NOTES[entry.has]})" if _NOTES[entry.has] else entry.framework
        for entry in entries()
        if entry.schedule == name
    ]
    return ", ".join(names) or NOWHERE


def runs_as_modelled(name):
    """Whether a framework runs a schedule as it is modelled here, with dense models too.

    Parameters
    ----------
    name : str
        Of a schedule.

    Returns
    -------
    bool

    Examples
    --------
    >>> runs_as_modelled("zb-v"), runs_as_modelled("dualpipev")
    (True, False)
    """
    return any(entry.has == "yes" for entry in entries() if entry.schedule == name)
