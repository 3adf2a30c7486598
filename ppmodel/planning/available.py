"""``data/frameworks.yaml``: which public code runs which schedule, and what its pairs hide there."""

from functools import cache
from typing import Annotated, Literal

from pydantic import Field

from ppmodel import schedules
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

    schedule: Literal[tuple(schedules.names())]
    framework: Annotated[str, Field(min_length=1)]
    has: Literal["yes", "experts", "order", "authors"]


class _File(Sourced.__base__):
    model_config = Sourced.model_config
    entries: list[Entry]


@cache
def entries():
    """The entries of the file.

    Returns
    -------
    list of Entry

    Raises
    ------
    SpecificationError
        If it is not as its form, or names a schedule that is not registered.
    """
    return read_document(DATA / "frameworks.yaml", _File).entries


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
