"""What the parameters cell of a notebook may hold: every name with its type, its rule and its unit.

Papermill takes any text for any name, and says nothing. Here a value is checked before a kernel starts.
"""

import ast
import json
import math
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import PurePath
from typing import NamedTuple, get_args

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ppmodel import schedules
from ppmodel.errors import PPModelError
from ppmodel.export import read_table
from ppmodel.noise import MAX_JITTER, MAX_SLOWDOWN
from ppmodel.schedules.chimera import CONCATENATIONS
from ppmodel.schedules.registry import option_text
from ppmodel.simulation import ALLREDUCE, P2P
from ppmodel.specs import PLACEMENTS, Recompute, load_model, load_setting, load_system, parse_size, template_path

_MAX_COUNT = 10**9


class Parameter(NamedTuple):
    """What one value of a parameter must be; a list of them where the notebook's own value is a list.

    Parameters
    ----------
    check : callable
        Raises a `PPModelError`, which names the rule itself, or else a ``ValueError``.
    rule : str
        What the value must be, with its unit where it has a dimension.
    example : str
        A good value, as it is written on the command line.
    """

    check: Callable
    rule: str
    example: str


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
    """A check that a text is a name or a file that loads."""

    def check(value):
        _require(isinstance(value, str) and value)
        load(value)

    return check


def _with_nodes(value):
    """A name or a file of a system with nodes."""
    _text_for(load_system)(value)
    _require(load_system(value).nodes)


def _table_that_reads(value):
    """A template's name or a file, and a schedule."""
    _require(isinstance(value, str) and value)
    read_table(template_path(value, ".csv"))


def _table_file(value):
    """A template's name or a file, whatever is in it."""
    _require(isinstance(value, str) and value)
    template_path(value, ".csv")


def _generator(value):
    """A template's name or a file of Python; it is not run before the notebook is."""
    _require(isinstance(value, str) and value)
    path = template_path(value, ".py")
    try:
        ast.parse(path.read_bytes())
    except SyntaxError as error:
        rule = f"is not Python ({error.msg})"
        raise PPModelError("generator", value, rule, "mend the line", where=f"{path}:{error.lineno}") from None


def _one_of(words):
    return Parameter(lambda value: _require(value in words), f"must be one of {', '.join(words)}", words[0])


def _schedule(value):
    """A schedule's name, or its name with options that it has and that are legal."""
    name, options = [value, {}] if isinstance(value, str) else value
    _require(isinstance(name, str) and isinstance(options, dict))
    entry = schedules.get(name)
    known = {option.name: option for option in entry.options}
    for key, given in options.items():
        if key not in known:
            listed = ", ".join(known) or "none"
            raise PPModelError(f"{name}.{key}", _shown(given), f"is not an option of {name}", f"its options: {listed}")
        option, plain = known[key], tuple(given) if isinstance(given, list) else given
        try:
            _require(option.parse(option_text(plain)) == plain)
        except ValueError:
            raise PPModelError(f"{name}.{key}", _shown(given), option.rule, f"write {key} as {option.form}") from None


# ---- the parameters ------------------------------------------------------------------------------

_COUNT = Parameter(lambda value: _require(_is_whole(value)), "must be a whole number of at least 1", "8")
_FACTOR = Parameter(_positive, "must be a number above 0, without a unit", "0.5")
_MODEL = Parameter(_text_for(load_model), "must be the name or the file of a model", "paper")
_SETTING = Parameter(_text_for(load_setting), "must be the name or the file of a setting", "default")
_SYSTEM = Parameter(_text_for(load_system), "must be the name or the file of a system", "dgx_h100")
_NODE_SYSTEM = Parameter(_with_nodes, "must be the name or the file of a system that has nodes", "a2_highgpu_8g")
_SCHEDULE = Parameter(
    _schedule, "must be the name of a schedule, or [name, {option: value}]", "[chimera, {concat: direct}]"
)

_COUNTS = (
    "stages", "placed_stages", "max_stages", "microbatches", "max_microbatches", "waves", "waves_of_paper",
    "parts", "placed_parts", "front_back", "units", "sequences", "form_microbatches", "sizes", "multiples",
    "ratio_steps", "largest_microbatches", "picture_stages", "picture_microbatches", "runs", "search_stages",
    "search_microbatches", "inside_devices_per_node", "devices_per_node", "span_stages", "span_multiples",
    "large_stages", "large_multiple", "picture_multiple", "long_multiples", "largest_searched",
)  # fmt: skip

_FACTORS = (
    "factors", "collectives", "slownesses", "ratio", "ratios", "picture_ratio", "smallest_ratio", "largest_ratio",
    "compute_efficiencies", "memory_efficiencies", "fine_compute", "fine_memory", "fine_backwards",
    "inside_ratio", "work",
)  # fmt: skip

_JITTER = Parameter(_jitter, f"must be a number above 0 and at most {MAX_JITTER:g}", "0.1")

KNOWN = dict.fromkeys(_COUNTS, _COUNT) | {
    "schedules": _SCHEDULE,
    "more_schedules": _SCHEDULE,
    "span_schedules": _SCHEDULE,
    "table": Parameter(_table_that_reads, "must be the name or the file of a table", "my_table.csv"),
    "mistakes": Parameter(_table_file, "must be the name or the file of a table", "my_table.csv"),
    "generator": Parameter(_generator, "must be the name or the file of a generator", "my_schedule.py"),
    "base": _SCHEDULE,
    "splits": Parameter(_split, "must be two whole numbers of at least 1", "[1, 2]"),
    **dict.fromkeys(_FACTORS, _FACTOR),
    **dict.fromkeys(("jitters", "picture_jitter"), _JITTER),
    **dict.fromkeys(("forward", "backward"), Parameter(_positive, "must be a number of seconds above 0", "2.5")),
    **dict.fromkeys(("comm", "node_comm"), Parameter(_not_negative, "must be a number of seconds, 0 or more", "0.5")),
    "comms": Parameter(_not_negative, "must be the time of a transfer in forwards, 0 or more", "0.25"),
    "insides": Parameter(_not_negative, "must be a number of transfers between nodes, 0 or more", "0.5"),
    "backwards": Parameter(_not_negative, "must be a number of forwards, 0 or more", "2.5"),
    "straggling": Parameter(_share, "must be a probability, 0 to 1", "0.02"),
    "slowdown": Parameter(_slowdown, f"must be a factor above 1 and at most {MAX_SLOWDOWN:.0f}", "1.3"),
    **dict.fromkeys(("close", "short"), Parameter(_share, "must be a share, 0 to 1", "0.1")),
    "clear": Parameter(_share, "must be a share, 0 to 1", "0.01"),
    "seed": Parameter(lambda value: _require(_is_whole(value, 0)), "must be a whole number of at least 0", "1"),
    "concats": _one_of(CONCATENATIONS),
    "model": _MODEL,
    "models": _MODEL,
    "other_model": _MODEL,
    "paper_model": _MODEL,
    "setting": _SETTING,
    "implied": _SETTING,
    "system": _SYSTEM,
    "other_system": _SYSTEM,
    "picture_systems": _SYSTEM,
    "systems": _SYSTEM,
    "node_systems": _NODE_SYSTEM,
    "shown": _one_of(("generation", "compile", "one evaluation", "many systems")),
    "picture_placement": _one_of(PLACEMENTS),
    **dict.fromkeys(("p2p", "other_p2p", "p2ps"), _one_of(P2P)),
    **dict.fromkeys(("allreduce", "allreduces"), _one_of(ALLREDUCE)),
    "recompute": _one_of(get_args(Recompute)),
    "memory_limit": Parameter(_size, "must be a size with its unit, or empty", "80 GiB"),
    "results": Parameter(_folder, "must be a folder below the current one", "results"),
}
"""Every parameter of the project's notebooks, by name."""


def defaults(notebook):
    """The parameters that a notebook has, with its own values.

    Parameters
    ----------
    notebook : NotebookNode
        With a cell that is tagged ``parameters``.

    Returns
    -------
    dict of str to object
        In the order of the cell.

    Raises
    ------
    PPModelError
        If the cell is missing, or holds something other than names with plain values.

    Examples
    --------
    >>> from nbformat.v4 import new_code_cell, new_notebook
    >>> cell = new_code_cell("stages = [4, 8]\\nresults = 'results'", metadata={"tags": ["parameters"]})
    >>> defaults(new_notebook(cells=[cell]))
    {'stages': [4, 8], 'results': 'results'}
    """
    cells = [cell.source for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    if not cells:
        raise PPModelError("tags", "no cell", "is tagged 'parameters'", "tag the cell that holds them")
    own = {}
    try:
        for node in ast.parse("\n".join(cells)).body:
            own[node.targets[0].id] = ast.literal_eval(node.value)
    except (AttributeError, SyntaxError, ValueError):
        rule, remedy = "must hold names with plain values only", "write numbers, texts and lists of them"
        raise PPModelError("parameters", "the cell", rule, remedy) from None
    return own


def parse(pairs, own):
    """Values from the texts of a command line.

    Parameters
    ----------
    pairs : iterable of (str, str)
        Names and texts. A text is read as YAML 1.2; where the notebook's own value is a text, it stands as it is.
    own : dict
        From `defaults`.

    Returns
    -------
    dict of str to object
        Not checked yet.

    Raises
    ------
    PPModelError
        If the notebook has no such parameter, a name comes twice, or a text is not YAML.

    Examples
    --------
    >>> parse([("factors", "[1e-3, 07]"), ("p2p", "07")], {"factors": [1.0], "p2p": "overlapped"})
    {'factors': [0.001, 7], 'p2p': '07'}
    """
    given = {}
    for name, text in pairs:
        _require_name(name, text, own)
        if name in given:
            raise PPModelError(name, text, "is given twice", "give it once")
        given[name] = text if isinstance(own[name], str) else _read_yaml(name, text)
    return given


def _read_yaml(name, text):
    try:
        return YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError):
        remedy = "write a number, a word, or a list such as [8, 16]"
        raise PPModelError(name, text, "cannot be read as YAML", remedy) from None


def _require_name(name, value, own):
    if name not in own:
        near = get_close_matches(name, own, n=1, cutoff=0.5)
        remedy = f"did you mean {near[0]}?" if near else f"it has {', '.join(own)}"
        raise PPModelError(name, _shown(value), "is not a parameter of this notebook", remedy)


def check(given, own):
    """Refuse what a notebook must not be given.

    Parameters
    ----------
    given : dict of str to object
        Values by name.
    own : dict
        From `defaults`. A parameter is a list of values where the notebook's own value is one; one that `KNOWN`
        does not list must be of the type of the notebook's own value. It may be empty where that is.

    Returns
    -------
    None
        If there is nothing to refuse.

    Raises
    ------
    PPModelError
        One line with field, value, rule and remedy for the first wrong name, type, unit or value.

    Examples
    --------
    >>> check({"stages": 16}, {"stages": 8})
    >>> check({"stages": 0}, {"stages": 8})
    Traceback (most recent call last):
    ppmodel.errors.PPModelError: stages = 0: must be a whole number of at least 1; write for example 8
    """
    for name, value in given.items():
        _require_name(name, value, own)
        parameter = KNOWN.get(name) or _like(own[name])
        if isinstance(own[name], list):
            _check_list(name, value, parameter, not own[name])
        else:
            _check_one(name, value, parameter)


def _check_list(name, values, parameter, may_be_empty):
    if not isinstance(values, list) or not (values or may_be_empty):
        rule = f"must be a list, each of it {parameter.rule.removeprefix('must be ')}"
        raise PPModelError(name, _shown(values), rule, f"write for example [{parameter.example}]")
    for value in values:
        _check_one(name, value, parameter)


def _check_one(name, value, parameter):
    try:
        parameter.check(value)
    except PPModelError as error:
        if error.where or "." in error.field:  # a line of a file, or an option of a schedule
            raise
        raise type(error)(name, _shown(value), error.rule, error.remedy) from None
    except (ValueError, TypeError):
        raise PPModelError(name, _shown(value), parameter.rule, f"write for example {parameter.example}") from None


def _like(default):
    """The rule of a parameter that only the notebook knows: the type of its own value."""
    example = default[0] if isinstance(default, list) and default else default
    kind = type(example)
    return Parameter(
        lambda value: _require(type(value) is kind), f"must be of the type {kind.__name__}", _shown(example)
    )


def _shown(value):
    """A value as its user would write it."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def fitting(own, model):
    """The sizes in a notebook's parameters that a model has: B and W that its batch and blocks allow.

    Parameters
    ----------
    own : dict
        From `defaults`.
    model : ModelSpec
        The model that takes the place of the notebook's own, or stands beside them.

    Returns
    -------
    dict
        Lists become shorter, a single size becomes the next smaller one.

    Raises
    ------
    PPModelError
        If nothing of a parameter is left.

    Examples
    --------
    >>> fitting({"microbatches": [8, 16, 512], "stages": 8}, load_model("paper"))
    {'microbatches': [8, 16]}
    """

    def enough(waves):
        return 2 * waves * own.get("stages", 1) <= model.blocks

    def divides(count):
        return batch % count == 0

    batch = math.gcd(model.global_batch, *(load_model(name).global_batch for name in own.get("models", ())))
    rules = {
        "microbatches": (divides, "global_batch", "is divided by none of"),
        "search_microbatches": (divides, "global_batch", "is divided by none of"),
        "waves": (enough, "blocks", "is too few for"),
        "waves_of_paper": (enough, "blocks", "is too few for"),
    }
    changed = {}
    for name in [name for name in rules if name in own]:
        fits, field, rule = rules[name]
        several = isinstance(own[name], list)
        kept = [size for size in (own[name] if several else range(own[name], 0, -1)) if fits(size)]
        if not kept:
            remedy = "take another model, or run single notebooks with sizes that it has, by ppmodel run"
            raise PPModelError(field, getattr(model, field), f"{rule} {name} = {_shown(own[name])}", remedy)
        value = kept if several else kept[0]
        if value != own[name]:
            changed[name] = value
    return changed


def substitutes(given, own):
    """What a model, a system and a memory limit of a user change in a notebook's own parameters.

    Parameters
    ----------
    given : dict
        A ``model``, a ``system`` and a ``memory_limit``, or None for each.
    own : dict
        From `defaults`.

    Returns
    -------
    dict
        Each takes the place of its namesake; a model or system also stands in front of ``models`` or ``systems`` and
        ``picture_systems``, a system that has nodes in front of ``node_systems``. On a page that shows several systems
        and has no ``system`` it is the ``other_system`` as well.

    Examples
    --------
    >>> substitutes({"system": "mine.yaml", "model": None}, {"systems": ["mi300x"], "model": "paper"})
    {'systems': ['mine.yaml', 'mi300x']}
    """
    system = given.get("system")
    changed = {name: value for name, value in given.items() if value is not None and name in own}
    places = [("model", "models"), ("system", "systems"), ("system", "picture_systems")]
    if system is not None and "other_system" in own and "system" not in own:
        changed["other_system"] = system
    if system is not None and "node_systems" in own and load_system(system).nodes:
        places.append(("system", "node_systems"))
    for name, several in places:
        if given.get(name) is not None and several in own:
            changed[several] = [given[name], *(other for other in own[several] if other != given[name])]
    return changed
