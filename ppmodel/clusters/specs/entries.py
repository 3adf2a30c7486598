"""Entries of specification files: a value, its unit and the kind of its source, declared by the field that they give.

Nothing here loads pydantic or ruamel.yaml before a specification is made or read.
"""

from copy import copy
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

from ppmodel.clusters.specs.files import specification_path
from ppmodel.clusters.specs.units import SIZES, UNITS
from ppmodel.errors import SpecificationError

Kind = Literal["stated", "digest", "inferred", "fitted", "our choice"]
"""Kind of a value's source: stated in a primary source; taken from a summary of one (digest); inferred, so that
published figures come out; fitted to measurements; or our choice, because nothing is known."""

_SI_SUFFIX = {"FLOP/s": "_flops", "B/s": "_bytes_per_s", "s": "_s", "B": "_bytes", "": ""}


RENAMED = {"crowded_from": "slow_above_memory_share", "hand_on": "send_results"}
"""Keys of version 0.1.0, and what they are called now; the old ones are read as well."""


class Entry(NamedTuple):
    """The declaration of a specification's field, for files and callers.

    Parameters
    ----------
    type : type
        ``float``, ``int``, ``bool`` or ``str``; ``Any`` if the specification itself checks the value.
    gt, ge, lt, le : float, optional
        Bounds of a number.
    units : tuple of str
        Units of a value that has a dimension; the SI unit comes first.
    words : tuple of str
        The legal words, if it is a word; with the type ``int``, also a number is legal.
    joined : collection of str
        Words of which several joined by ``+`` are legal, too.
    of_callers : Entry, optional
        What callers from Python may give, if that is more than files may.
    is_bare : bool
        Whether a file may give the value alone, which is then its own choice.
    """

    type: Any
    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None
    units: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    of_callers: Any = None
    is_bare: bool = False

    def key(self, name: str) -> str:
        """The key of a field in a file: its name without its SI unit."""
        return name.removesuffix(_SI_SUFFIX[(*self.units, "")[0]])


_POSITIVE = Entry(float, gt=0, le=1e30)
_NOT_NEGATIVE = Entry(float, ge=0, le=1e30)
Rate = Annotated[float, _POSITIVE._replace(units=("FLOP/s", "TFLOP/s", "PFLOP/s"))]
Bandwidth = Annotated[float, _POSITIVE._replace(units=("B/s", "GB/s", "TB/s", "Gbit/s"))]
Time = Annotated[float, _NOT_NEGATIVE._replace(units=("s", "ms", "us", "ns"))]
Size = Annotated[float, _POSITIVE._replace(units=SIZES)]
Attained = Annotated[float, Entry(float, gt=0, le=1)]
Efficiency = Annotated[float, Entry(float, gt=0, le=1, of_callers=_POSITIVE)]
Share = Annotated[float, Entry(float, ge=0, le=1)]
PartialShare = Annotated[float, Entry(float, ge=0, lt=1)]
Slowdown = Annotated[float, Entry(float, ge=1, le=2)]
Number = Annotated[float, _POSITIVE]
NumberOrZero = Annotated[float, _NOT_NEGATIVE]
Exponent = Annotated[float, Entry(float, ge=0.1, le=1e3)]
Power = Annotated[float, Entry(float, ge=0, le=25)]
Whole = Annotated[int, Entry(int, ge=1, le=10**9)]
WholeOrZero = Annotated[int, Entry(int, ge=0, le=10**9)]
Switch = Annotated[bool, Entry(bool)]
Name = Annotated[str, Entry(str)]
_P2P = "latency", "overlapped", "blocking_send", "blocking_recv", "blocking", "overlapped_nic", "rendezvous", "streams"
Transfers = Annotated[str, Entry(str, words=_P2P)]
"""Semantics of point-to-point transfers; the same words as `simulation.P2P`."""


def _forms():
    """The module that makes forms; it loads pydantic and ruamel.yaml, 0.15 s that costs in seconds do without."""
    from ppmodel.clusters.specs import forms

    return forms


class Checked:
    """A specification, whose values are those that its file may have, whoever makes it.

    A method `rules` gives what else must hold, as `PPModelError.require` takes it.
    """

    def __post_init__(self):
        self.__dict__.update(_forms().check_values(type(self), self.__dict__))
        SpecificationError.require(getattr(self, "rules", tuple)())


@cache
def declared(spec_type):
    """The entries of a specification's file, and the specifications of its blocks, by the fields that they give."""
    options = {field.name: field.metadata.get("option") for field in fields(spec_type)}
    entries = {name: option.entry for name, option in options.items() if option}
    for name, hint in get_type_hints(spec_type, include_extras=True).items():
        for part in (hint, *get_args(hint)):
            if hasattr(part, "__metadata__"):
                (entries[name],) = part.__metadata__
            elif isinstance(part, type) and issubclass(part, Checked):
                entries[name] = part
    return entries


def file_keys(spec_type):
    """The fields of a specification by their keys in its file, or in a block of it."""
    return {entry.key(name) if isinstance(entry, Entry) else name: name for name, entry in declared(spec_type).items()}


def unchecked(specification, **values):
    """A copy with other values, for fits, which make thousands, and whose slopes at a bound take values beyond it."""
    copied = copy(specification)
    copied.__dict__.update(values)
    return copied


def to_unit(value: float, unit: str) -> float:
    """Convert a value from SI to the unit that a file uses; without a unit, return it unchanged.

    Examples
    --------
    >>> to_unit(0.002, "ms"), to_unit(0.5, "")
    (2.0, 0.5)
    """
    return value / UNITS[unit] if unit else value


class Provenance(NamedTuple):
    """A value as its file gives it, and its source.

    Parameters
    ----------
    field : str
        Key in the file; inside a block, with the block's name and a dot in front.
    value : object
        As written, not converted.
    unit : str
        As written; empty if the value has no dimension.
    kind : str
        How well founded the value is, one of `Kind`.
    source : str
        Where it was found, or why it was chosen.
    """

    field: str
    value: object
    unit: str
    kind: str
    source: str


def load_specification(name, folder, spec_type, release=""):
    """Read the file of a specification; one that is read already stays as it is.

    Parameters
    ----------
    name : str, Path or spec_type
        A name that comes with the package, or the path of a file.
    folder : str
        The folder of packaged files, such as ``models``.
    spec_type : type of Checked
    release : str, optional
        Of a framework; the newest otherwise.
    """
    if isinstance(name, spec_type):
        return name
    return _forms().read_file(specification_path(name, folder), spec_type, release)
