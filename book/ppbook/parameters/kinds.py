"""The kinds of values that a notebook's parameters can have: a type that pydantic checks, the rule, and an example."""

import json
from functools import reduce
from operator import or_
from pathlib import PurePath
from typing import Annotated, Literal, NamedTuple

from annotated_types import Predicate
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from ppbook.parameters.setting import load_setting
from ppmodel import schedules
from ppmodel.clusters import specs
from ppmodel.errors import PPModelError, ScheduleError
from ppmodel.schedules.cases import Case
from ppmodel.simulation import P2P
from ppmodel.studies.measured import fitted_systems
from ppmodel.tables import read_table

_MOST_SHOWN = 120


class Kind(NamedTuple):
    """The rule for the values of a parameter.

    Parameters
    ----------
    adapter : TypeAdapter
        Refuses other values, and is given them as they are.
    rule : str
        What the value must be, with its unit if it has one.
    example : str
        A legal value, as written on the command line.
    files : str
        If a value may name a file: the folder of the project's own files, or the suffix of its templates.
    """

    adapter: TypeAdapter
    rule: str
    example: str
    files: str = ""

    def holds(self, value):
        """Whether a value is of this kind."""
        try:
            self.adapter.validate_python(value, strict=True)
        except ValidationError:
            return False
        return True

    def check(self, name, value):
        """Refuse a parameter's value that is not of this kind, in one line.

        >>> KINDS["count"].check("pp", 0)
        Traceback (most recent call last):
        ppmodel.errors.PPModelError: pp = 0: must be a whole number of at least 1; write, for example, 8
        """
        try:
            self.adapter.validate_python(value, strict=True)
        except ValidationError as error:
            cause = error.errors(include_url=False)[0].get("ctx", {}).get("error")
            if not isinstance(cause, PPModelError):
                cause = PPModelError(name, value, self.rule, f"write, for example, {self.example}")
            elif cause.where or "." in cause.field:  # a line of a file, or an option of a schedule
                raise cause from None
            raise type(cause)(name, shown(value), cause.rule, cause.remedy) from None


def shown(value):
    """Write a value as its user would, shortened if it is long.

    >>> shown([8, "x"]), shown("x")
    ('[8, "x"]', 'x')
    """
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


# ---- types ---------------------------------------------------------------------------------------


def _is_below(folder):
    path = PurePath(folder)
    return bool(folder.strip()) and not path.is_absolute() and ".." not in path.parts


def _require_schedule(value):
    """Refuse what is neither a registered schedule's name nor its name with legal options."""
    name, options = [value, {}] if isinstance(value, str) else value  # a ValueError if there are not two
    if not (isinstance(name, str) and isinstance(options, dict)):
        raise ValueError(value)
    case = Case(schedules.get(name).name)
    try:
        case.with_options(options)
    except ScheduleError as error:
        raise PPModelError(f"{name}.{error.field}", shown(error.value), error.rule, error.remedy) from None


_LARGEST = 10**9
_COUNT = Annotated[int, Field(ge=1, le=_LARGEST)]
_NAME = Annotated[str, Field(min_length=1)]


def _kind(type_, rule, example, files="", check=None):
    """A kind; its rule goes on after "must be"."""
    type_ = type_ if check is None else Annotated[type_, AfterValidator(check)]
    return Kind(TypeAdapter(type_), f"must be {rule}", example, files)


def _number(rule, example, **limits):
    return _kind(Annotated[float, Field(allow_inf_nan=False, **limits)], rule, example)


def _whole(rule, example, least, most=_LARGEST, **limits):
    return _kind(Annotated[int, Field(ge=least, le=most, **limits)], rule, example)


# ---- kinds ---------------------------------------------------------------------------------------


def count_from(least):
    """The kind of a count that is not smaller than a number.

    >>> count_from(2).rule
    'must be a whole number of at least 2'
    """
    return _whole(f"a whole number of at least {least}", str(max(8, least)), least)


_A_COUNT = count_from(1)
_TABLE = "the name or file of a table", "my_table.csv", ".csv"

KINDS = {
    "count": _A_COUNT,
    "even": _whole("an even number of at least 2", "8", 1, multiple_of=2),
    "microbatches": _A_COUNT,
    "waves": _A_COUNT,
    "seed": _whole("a whole number of at least 0", "1", 0),
    "factor": _number("a number above 0, without a unit", "0.5", gt=0),
    "share": _number("a number from 0 to 1", "0.1", ge=0, le=1),
    "seconds": _number("a number of seconds above 0", "2.5", gt=0),
    "delay": _number("a number of seconds, 0 or more", "0.5", ge=0),
    "forwards": _number("a number of forwards, 0 or more", "2.5", ge=0),
    "split": _kind(
        Annotated[list[_COUNT], Field(min_length=2, max_length=2)], "two whole numbers of at least 1", "[1, 2]"
    ),
    "schedule": _kind(
        str | list, "the name of a schedule, or [name, {option: value}]", "[chimera, {concat: direct}]",
        check=_require_schedule,
    ),
    "model": _kind(_NAME, "the name or file of a model", "paper", "models", specs.load_model),
    "system": _kind(_NAME, "the name or file of a system", "dgx_h100", "systems", specs.load_system),
    "fitted-system": _kind(
        Annotated[str, Predicate(lambda name: name in fitted_systems())],
        "the name of a system fitted to measured runs", "a100_selene",
    ),
    "node-system": _kind(
        Annotated[_NAME, AfterValidator(specs.load_system), Predicate(lambda system: system.nodes is not None)],
        "the name or file of a system with nodes", "a2_highgpu_8g", "systems",
    ),
    "layout": _kind(_NAME, "the name or file of a run layout", "bloom_176b", "layouts", specs.load_layout),
    "setting": _kind(_NAME, "the name or file of a setting", "default", "settings", load_setting),
    "table": _kind(_NAME, *_TABLE, lambda name: read_table(specs.template_path(name, ".csv"))),
    "table-file": _kind(_NAME, *_TABLE, lambda name: specs.template_path(name, ".csv")),
    "generator": _kind(
        _NAME, "the name or file of a generator", "my_schedule.py", ".py", lambda name: specs.template_path(name, ".py")
    ),
    "recording": _kind(_NAME, "runs, or a file of python -m benchmarks.executed", "mine.csv", ".csv"),
    "size": _kind(
        str, "a size with its unit, or empty", "80 GiB", check=lambda size: size.strip() and specs.parse_size(size)
    ),
    "folder": _kind(Annotated[str, Predicate(_is_below)], "a folder below the current one", "results"),
    "p2p": _kind(Literal[P2P], f"one of {', '.join(P2P)}", P2P[0]),
    "zero": _whole("a ZeRO stage, 0 to 3", "1", 0, 3),
    "switch": _kind(bool, "true or false", "true"),
}  # fmt: skip
"""The kinds, by the first word of a parameter's comment. ``microbatches`` and ``waves`` are counts that a model may not
allow; a ``paper-model`` is a model that is kept when a book is built for another one, and so on (see `parameters`)."""


def like(default):
    """The kind of a parameter without one in its comment: the type of the notebook's own value, or of its entries.

    >>> like([1.5]).rule
    'must have the type float'
    """
    examples = default if isinstance(default, list) and default else [default]
    types = sorted({type(example) for example in examples}, key=lambda type_: type_.__name__)
    rule = f"must have the type {' or '.join(type_.__name__ for type_ in types)}"
    return Kind(TypeAdapter(reduce(or_, types)), rule, shown(examples[0]))
