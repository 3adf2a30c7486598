"""The kinds of values that a notebook's parameters can have: the rule for each, and an example."""

import ast
import json
import math
from collections.abc import Callable
from pathlib import PurePath
from typing import NamedTuple

from ppmodel import schedules
from ppmodel.errors import PPModelError
from ppmodel.export import read_table
from ppmodel.files import read_text
from ppmodel.noise import MAX_JITTER, MAX_SLOWDOWN
from ppmodel.schedules.chimera import CONCATENATIONS
from ppmodel.schedules.options import option_text
from ppmodel.simulation import ALLREDUCE, P2P
from ppmodel.specs import PLACEMENTS, load_layout, load_model, load_setting, load_system, parse_size, template_path
from ppmodel.specs.layout import RECOMPUTE

_MAX_COUNT = 10**9
_MAX_SHOWN = 120
_LAST_ZERO = 3
_STAGES_OF_WORK = ("generation", "compile", "one evaluation", "many systems")


class Kind(NamedTuple):
    """The rule for the values of a parameter.

    Parameters
    ----------
    check : callable
        Raises a `PPModelError` that names the rule itself, or otherwise a ``ValueError`` or ``TypeError``.
    rule : str
        What the value must be, with its unit if it has one.
    example : str
        A legal value, as written on the command line.
    files : str
        If a value may name a file: the folder of the project's own files, or the suffix of its templates.
    """

    check: Callable
    rule: str
    example: str
    files: str = ""

    def holds(self, value):
        """Whether a value is of this kind."""
        try:
            self.check(value)
        except (ValueError, TypeError):
            return False
        return True


def shown(value):
    """Write a value as its user would.

    Parameters
    ----------
    value : object
        Any.

    Returns
    -------
    str
        Shortened if it is long.
    """
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


# ---- the checks of one value ---------------------------------------------------------------------


def _require(holds):
    if not holds:
        raise ValueError


def _is_whole(value, smallest=1):
    return isinstance(value, int) and not isinstance(value, bool) and smallest <= value <= _MAX_COUNT


def _positive(value):
    _require(isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf)


def _not_negative(value):
    _require(isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf)


def _share(value):
    _not_negative(value)
    _require(value <= 1)


def _jitter(value):
    _positive(value)
    _require(value <= MAX_JITTER)


def _slowdown(value):
    _positive(value)
    _require(1 < value <= MAX_SLOWDOWN)


def _folder(value):
    _require(isinstance(value, str) and value.strip())
    _require(not PurePath(value).is_absolute() and ".." not in PurePath(value).parts)


def _split(value):
    _require(isinstance(value, list) and len(value) == 2 and all(_is_whole(part) for part in value))


def _size(value):
    _require(isinstance(value, str))
    if value.strip():
        parse_size(value)


def _text_for(load):
    """Check that a text is a name or a file that loads."""

    def check(value):
        _require(isinstance(value, str) and value)
        load(value)

    return check


def _with_nodes(value):
    """Check a name or a file of a system with nodes."""
    _text_for(load_system)(value)
    _require(load_system(value).nodes)


def _table_that_reads(value):
    """Check a template's name or a file that is a schedule."""
    _require(isinstance(value, str) and value)
    read_table(template_path(value, ".csv"))


def _table_file(value):
    """Check a template's name or a file, whatever its contents."""
    _require(isinstance(value, str) and value)
    template_path(value, ".csv")


def _generator(value):
    """Check a template's name or a Python file, which runs only with the notebook."""
    _require(isinstance(value, str) and value)
    path = template_path(value, ".py")
    try:
        ast.parse(read_text(path))
    except SyntaxError as error:
        rule = f"is not Python ({error.msg})"
        raise PPModelError("generator", value, rule, "fix the line", where=f"{path}:{error.lineno}") from None
    except (RecursionError, MemoryError):
        raise PPModelError("generator", value, "is nested too deeply", "fix it", where=str(path)) from None


def _zero(value):
    _require(_is_whole(value, 0) and value <= _LAST_ZERO)


def _one_of(words):
    return Kind(lambda value: _require(value in words), f"must be one of {', '.join(words)}", words[0])


def _schedule(value):
    """Check a schedule's name, with legal options if any."""
    name, options = [value, {}] if isinstance(value, str) else value  # a ValueError if there are not two
    _require(isinstance(name, str) and isinstance(options, dict))
    entry = schedules.get(name)
    known = {option.name: option for option in entry.options}
    for key, given in options.items():
        if key not in known:
            listed = ", ".join(known) or "none"
            raise PPModelError(f"{name}.{key}", shown(given), f"is not an option of {name}", f"its options: {listed}")
        option, plain = known[key], tuple(given) if isinstance(given, list) else given
        try:
            _require(option.parse(option_text(plain)) == plain)
        except ValueError:
            raise PPModelError(f"{name}.{key}", shown(given), option.rule, f"write {key} as {option.form}") from None


# ---- kinds ---------------------------------------------------------------------------------------

_COUNT = Kind(lambda value: _require(_is_whole(value)), "must be a whole number of at least 1", "8")
_MODEL = Kind(_text_for(load_model), "must be the name or file of a model", "paper", "models")
_SYSTEM = Kind(_text_for(load_system), "must be the name or file of a system", "dgx_h100", "systems")

KINDS = {
    "count": _COUNT,
    "microbatches": _COUNT,
    "waves": _COUNT,
    "seed": Kind(lambda value: _require(_is_whole(value, 0)), "must be a whole number of at least 0", "1"),
    "factor": Kind(_positive, "must be a number above 0, without a unit", "0.5"),
    "share": Kind(_share, "must be a number from 0 to 1", "0.1"),
    "jitter": Kind(_jitter, f"must be a number above 0 and at most {MAX_JITTER:g}", "0.1"),
    "slowdown": Kind(_slowdown, f"must be a factor above 1 and at most {MAX_SLOWDOWN:.0f}", "1.3"),
    "seconds": Kind(_positive, "must be a number of seconds above 0", "2.5"),
    "delay": Kind(_not_negative, "must be a number of seconds, 0 or more", "0.5"),
    "forwards": Kind(_not_negative, "must be a number of forwards, 0 or more", "2.5"),
    "split": Kind(_split, "must be two whole numbers of at least 1", "[1, 2]"),
    "schedule": Kind(
        _schedule, "must be the name of a schedule, or [name, {option: value}]", "[chimera, {concat: direct}]"
    ),
    "model": _MODEL,
    "paper-model": _MODEL,
    "system": _SYSTEM,
    "paper-system": _SYSTEM,
    "node-system": Kind(_with_nodes, "must be the name or file of a system with nodes", "a2_highgpu_8g", "systems"),
    "layout": Kind(_text_for(load_layout), "must be the name or file of a run layout", "bloom_176b", "layouts"),
    "setting": Kind(_text_for(load_setting), "must be the name or file of a setting", "default", "settings"),
    "table": Kind(_table_that_reads, "must be the name or file of a table", "my_table.csv", ".csv"),
    "table-file": Kind(_table_file, "must be the name or file of a table", "my_table.csv", ".csv"),
    "generator": Kind(_generator, "must be the name or file of a generator", "my_schedule.py", ".py"),
    "size": Kind(_size, "must be a size with its unit, or empty", "80 GiB"),
    "folder": Kind(_folder, "must be a folder below the current one", "results"),
    "p2p": _one_of(P2P),
    "allreduce": _one_of(ALLREDUCE),
    "concat": _one_of(CONCATENATIONS),
    "placement": _one_of(PLACEMENTS),
    "recompute": _one_of(RECOMPUTE),
    "zero": Kind(_zero, "must be a ZeRO stage, 0 to 3", "1"),
    "switch": Kind(lambda value: _require(isinstance(value, bool)), "must be true or false", "true"),
    "stage-of-work": _one_of(_STAGES_OF_WORK),
}
"""The kinds, by the first word of a parameter's comment. ``microbatches`` and ``waves`` are counts that a model may not
allow; a ``paper-model`` or ``paper-system`` is kept when a book is built for another one (see `parameters`)."""


def like(default):
    """Determine the kind of a parameter without one in its comment: the type of the notebook's own value.

    Parameters
    ----------
    default : object
        The notebook's own.

    Returns
    -------
    Kind
    """
    examples = default if isinstance(default, list) and default else [default]
    own = {type(one) for one in examples}
    rule = f"must have the type {' or '.join(sorted(one.__name__ for one in own))}"
    return Kind(lambda value: _require(type(value) in own), rule, shown(examples[0]))
