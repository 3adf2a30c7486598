"""Forms of specification files, made from what their fields declare; and values of callers, checked alike."""

import re
from functools import cache, lru_cache, partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, ValidationError, WrapValidator, create_model

from ppmodel.clusters.specs import document
from ppmodel.clusters.specs.entries import Entry, Provenance, declared, file_keys
from ppmodel.clusters.specs.units import UNITS
from ppmodel.errors import SpecificationError, did_you_mean
from ppmodel.files import read_text
from ppmodel.given import to_builtin


def _each(joined, text, check):
    """The text, if it is a legal word, or different ones joined by ``+``."""
    words = text.split("+") if isinstance(text, str) else [text]
    return text if len(words) > 1 and len({*words} & {*joined}) == len(words) else check(text)


def _type_of(entry):
    """The type of a value, as pydantic checks it."""
    words = Literal[entry.words] if entry.words else None
    if entry.joined:
        words = Annotated[words, WrapValidator(partial(_each, entry.joined))]
    if entry.type in (int, float):
        limits = {name: getattr(entry, name) for name in ("gt", "ge", "lt", "le")}
        limits |= {"allow_inf_nan": False} if entry.type is float else {}
        number = Annotated[entry.type, Field(strict=True, **limits)]
        return (words | number if entry.type is int else number | words) if words else number
    return words or {bool: StrictBool, str: Annotated[str, Field(min_length=1)]}.get(entry.type, Any)


def _with_source(given):
    """A value alone as an entry: it is the file's own choice."""
    is_bare = isinstance(given, dict) and not given.keys() & {"value", "kind", "source"}
    return {"value": given, "kind": "our choice", "source": "this file"} if is_bare else given


@cache
def _entry_form(entry):
    """The form of an entry: a value and, if that has a dimension, one of its units."""
    if entry.is_bare:
        links = create_model("Entry", __base__=document.Sourced, value=(dict[str, dict[str, Any]], ...))
        return Annotated[links, BeforeValidator(_with_source)]
    # the specification itself refuses what is neither a word nor a number
    value = Any if entry.words and entry.type in (int, float) else _type_of(entry)
    unit = {"unit": (Literal[entry.units], ...)} if entry.units else {}
    return create_model("Entry", __base__=document.Sourced, value=(value, ...), **unit)


@cache
def file_form(spec_type, titled=True):
    """The form of a specification's file, or of a block in it: one entry for each field, named without its SI unit."""
    keys = {"title": (document.Line, ...)} if titled and "title" in spec_type.__dataclass_fields__ else {}
    if titled and "kernels" in spec_type.__dataclass_fields__:  # a system may leave values open, and name another
        keys["like"] = str | None, None
    for key, name in file_keys(spec_type).items():
        entry = declared(spec_type)[name]
        form = _entry_form(entry) if isinstance(entry, Entry) else file_form(entry, titled=False)
        keys[key] = form, getattr(spec_type, name, ...)
    return create_model(f"{spec_type.__name__}File", __base__=document.Block, **keys)


@cache
def _form_of_callers(spec_type):
    """The form of values that callers give, and their defaults."""
    entries = {name: entry for name, entry in declared(spec_type).items() if isinstance(entry, Entry)}
    values = {name: (_type_of(entry.of_callers or entry), None) for name, entry in entries.items()}
    return create_model(spec_type.__name__, **values), {name: getattr(spec_type, name, ...) for name in entries}


def check_values(spec_type, values):
    """Check the values of a specification that callers give.

    Parameters
    ----------
    spec_type : type of Checked
    values : dict
        By field.

    Returns
    -------
    dict
        Those that differ from their defaults, as Python's own.

    Raises
    ------
    SpecificationError
        For the first illegal value.
    """
    form, defaults = _form_of_callers(spec_type)
    changed = {
        name: to_builtin(values[name]) for name, default in defaults.items()
        if type(values[name]) is not type(default) or values[name] != default
    }  # fmt: skip
    try:
        checked = form(**changed)
    except ValidationError as error:
        problem, *others = error.errors()
        name = problem["loc"][0]
        if isinstance(values[name], str):  # where a number or a word may stand
            words = (other for other in others if other["loc"][0] == name and "literal" in other["type"])
            problem = next(words, problem)
        rule, remedy = document.rule_and_remedy(problem)
        if problem["type"] == "int_type" and not str(values[name]).isdecimal():  # "8" has its quotes to lose
            thousands = str(values[name]).removesuffix("k")  # as in 8k
            remedy = f"write it in digits, such as {1024 * int(thousands) if thousands.isdecimal() else 8}"
        remedy = did_you_mean(values[name], re.findall(r"'(\w+)'", rule)) or remedy
        raise SpecificationError(name, values[name], rule, remedy) from None
    return {name: getattr(checked, name) for name in changed}


def read_file(path, spec_type, release=""):
    """Read a specification from its file.

    Parameters
    ----------
    path : Path
    spec_type : type of Checked
    release : str, optional
        Of a framework; the newest otherwise.

    Returns
    -------
    spec_type
        In SI units.

    Raises
    ------
    SpecificationError
        In one line: file, line, field, value, rule and remedy.
    """
    return _read(path, read_text(path, document.LARGEST_BYTES, SpecificationError), spec_type, release)


@lru_cache(256)
def _read(path, text, spec_type, release):  # noqa: ARG001 - the text is part of the cache's key
    """The specification of a file while it has this text: a study reads the same few files again."""
    form, provenance = document.read_document(path, file_form(spec_type), release=release), []
    try:
        values = _values(form, spec_type, "", provenance)
        return spec_type(name=path.stem, title=form.title, **values, provenance=tuple(provenance))
    except SpecificationError as error:
        error.where = document.place_in(path, *error.field.split("."))
        raise


def _values(form, spec_type, block, provenance):
    """The values of a file, or of a block in it, in SI units; their sources are added to `provenance`."""
    values = {}
    for key, name in file_keys(spec_type).items():
        entry = getattr(form, key)
        if isinstance(entry, document.Block):
            nested = declared(spec_type)[name]
            values[name] = nested(**_values(entry, nested, f"{key}.", provenance))
        elif isinstance(entry, document.Sourced):
            unit = getattr(entry, "unit", "")
            value = tuple(entry.value) if isinstance(entry.value, list) else entry.value
            values[name] = value * UNITS[unit] if unit else value
            provenance.append(Provenance(f"{block}{key}", entry.value, unit, entry.kind, entry.source))
    return values
