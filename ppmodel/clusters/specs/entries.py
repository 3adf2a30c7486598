"""Entries of specification files: a value, its unit and the kind of its source. The only place that converts to SI."""

from copy import copy
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError, create_model

from ppmodel.clusters.specs.document import Form, place_in, read_document, rule_and_remedy
from ppmodel.clusters.specs.files import specification_path
from ppmodel.clusters.specs.units import SIZES, UNITS
from ppmodel.errors import SpecificationError
from ppmodel.given import to_builtin

Kind = Literal["stated", "digest", "inferred", "fitted", "our choice"]
"""How well founded a value is: stated in a primary source; taken from a summary of one (digest); inferred, so that
published figures come out; fitted to measurements; or our choice, because nothing is known."""

_SI_SUFFIX = {"FLOP/s": "_flops", "B/s": "_bytes_per_s", "s": "_s", "B": "_bytes"}


class Sourced(Form):
    """A value with its source and the kind of that source."""

    kind: Kind
    source: Annotated[str, Field(min_length=1)]
    si_suffix: ClassVar = ""
    type_of_value: ClassVar


def entry(value, *units, of_callers=None):
    """The form of an entry in a specification's file, as an annotation of its field.

    The entry has a value and, if that has a dimension, one of the units given; the SI unit comes first. Callers from
    Python may give more than files where `of_callers` says so.
    """
    unit = {"unit": (Literal[units], ...)} if units else {}
    form = create_model("Entry", __base__=Sourced, value=(value, ...), **unit)
    form.si_suffix, form.type_of_value = _SI_SUFFIX[units[0]] if units else "", of_callers or value
    return form


def _number(**limits):
    return Annotated[float, Field(allow_inf_nan=False, strict=True, **limits)]


_Positive, _NotNegative = _number(gt=0, le=1e30), _number(ge=0, le=1e30)
Rate = Annotated[float, entry(_Positive, "FLOP/s", "TFLOP/s", "PFLOP/s")]
Bandwidth = Annotated[float, entry(_Positive, "B/s", "GB/s", "TB/s", "Gbit/s")]
Time = Annotated[float, entry(_NotNegative, "s", "ms", "us", "ns")]
Size = Annotated[float, entry(_Positive, *SIZES)]
Efficiency = Annotated[float, entry(_number(gt=0, le=1), of_callers=_Positive)]
Share = Annotated[float, entry(_number(ge=0, le=1))]
PartialShare = Annotated[float, entry(_number(ge=0, lt=1))]
Slowdown = Annotated[float, entry(_number(ge=1, le=2))]
Number = Annotated[float, entry(_Positive)]
NumberOrZero = Annotated[float, entry(_NotNegative)]
Exponent = Annotated[float, entry(_number(ge=0.1, le=1e3))]
Power = Annotated[float, entry(_number(ge=0, le=25))]
Whole = Annotated[int, entry(Annotated[int, Field(ge=1, le=10**9, strict=True)])]
WholeOrZero = Annotated[int, entry(Annotated[int, Field(ge=0, le=10**9, strict=True)])]
Switch = Annotated[bool, entry(Annotated[bool, Field(strict=True)])]
Name = Annotated[str, entry(Annotated[str, Field(min_length=1)])]
_P2P = "latency", "overlapped", "blocking_send", "blocking_recv", "blocking", "overlapped_nic", "rendezvous", "streams"
Transfers = Annotated[str, entry(Literal[_P2P])]
"""What a point-to-point transfer occupies; the same words as `simulation.P2P`."""


class _Block(Form):
    is_block: ClassVar = True
    specification: ClassVar


@cache
def file_form(spec_type, titled=True):
    """The form of a specification's file, or of a block in it: one entry for each field, named without its SI unit."""
    keys = {"title": (str, ...)} if titled and "title" in spec_type.__dataclass_fields__ else {}
    for field in fields(spec_type):
        if option := field.metadata.get("option"):
            # the layout itself refuses what is neither a word nor a number
            kind = Any if option.words and option.type is int else option.pydantic_type()
            keys[field.name] = (entry(kind), field.default)
    for name, form in _forms(spec_type):
        keys[name.removesuffix(getattr(form, "si_suffix", ""))] = (form, getattr(spec_type, name, ...))
    form = create_model(f"{spec_type.__name__}File", __base__=_Block, **keys)
    form.specification = spec_type
    return form


def _forms(spec_type):
    """The names of a specification's fields that are entries or blocks of its file, with their forms."""
    for name, hint in get_type_hints(spec_type, include_extras=True).items():
        for part in (hint, *get_args(hint)):
            yield from ((name, form) for form in getattr(part, "__metadata__", ()))
            if isinstance(part, type) and issubclass(part, Checked):
                yield name, file_form(part, titled=False)


@cache
def _checks(spec_type):
    """The values of a specification: name, default, and what validates one."""
    options = {field.name: field.metadata.get("option") for field in fields(spec_type)}
    types = {name: option.pydantic_type() for name, option in options.items() if option}
    types |= {name: form.type_of_value for name, form in _forms(spec_type) if not getattr(form, "is_block", False)}
    return [(name, getattr(spec_type, name, None), TypeAdapter(kind).validate_python) for name, kind in types.items()]


class Checked:
    """A specification, whose values are those that its file may have, whoever makes it.

    A method `rules` gives what else must hold, as `PPModelError.require` takes it.
    """

    def __post_init__(self):
        values = self.__dict__
        for name, default, check in _checks(type(self)):
            value = values[name]
            if type(value) is type(default) and value == default:
                continue
            try:
                values[name] = check(to_builtin(value))
            except ValidationError as error:
                rule, remedy = rule_and_remedy(error.errors()[0])
                raise SpecificationError(name, value, rule, remedy) from None
        SpecificationError.require(getattr(self, "rules", tuple)())


def unchecked(specification, **values):
    """A copy with other values, for fits, which make thousands, and whose slopes at a bound take values beyond it."""
    copied = copy(specification)
    copied.__dict__.update(values)
    return copied


def to_unit(value, unit):
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


def load_specification(name, room, spec_type):
    """Read the file of a specification; one that is read already stays as it is."""
    if isinstance(name, spec_type):
        return name
    path = specification_path(name, room)
    entries = read_document(path, file_form(spec_type))
    try:
        values, provenance = _values(entries)
        return spec_type(name=path.stem, title=entries.title, **values, provenance=tuple(provenance))
    except SpecificationError as error:
        error.where = place_in(path, *error.field.split("."))
        raise


def _values(entries, block=""):
    """The values in SI units of the entries of a file, or of a block in it, and their sources."""
    values, provenance = {}, []
    for key in type(entries).model_fields:
        entry = getattr(entries, key)
        if getattr(entry, "is_block", False):
            nodes, sources = _values(entry, f"{key}.")
            values[key] = entry.specification(**nodes)
            provenance += sources
        elif isinstance(entry, Sourced):
            unit = getattr(entry, "unit", "")
            value = tuple(entry.value) if isinstance(entry.value, list) else entry.value
            values[key + entry.si_suffix] = value * UNITS[unit] if unit else value
            provenance.append(Provenance(block + key, entry.value, unit, entry.kind, entry.source))
    return values, provenance
