"""The parameters cell of a notebook: each line has a name, a value, and its kind in a comment.

``microbatches = [8, 16]  # count: of one iteration`` says that each entry is a count. Papermill accepts any text for
any name; here, values are checked against their kinds before a kernel starts.
"""

import ast
import io
import math
import re
import tokenize
from contextlib import suppress
from typing import NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent

from ppbook.kinds import KINDS, Kind, like, shown
from ppbook.published import define_magic
from ppmodel.errors import PPModelError, did_you_mean
from ppmodel.specs import load_model, load_system
from ppmodel.specs.document import refuse_depth


class Parameter(NamedTuple):
    """A line of the parameters cell.

    Parameters
    ----------
    value : object
        The notebook's own.
    word : str
        The name of its kind; empty if no comment gives one.
    kind : Kind
        Kind of the value, or of each of its entries.
    several : bool
        Whether the value is a list.
    """

    value: object
    word: str
    kind: Kind
    several: bool


# ---- the cell ------------------------------------------------------------------------------------


def declared(notebook):
    """List the parameters of a notebook, with its own values and their kinds.

    Parameters
    ----------
    notebook : NotebookNode
        With a cell tagged ``parameters``. Without a kind, values must have the type of the notebook's own.

    Returns
    -------
    dict of str to Parameter
        In the order of the cell.

    Raises
    ------
    PPModelError
        If the cell is missing, contains anything but names with plain values, or a kind is unknown.

    Examples
    --------
    >>> from nbformat.v4 import new_code_cell, new_notebook
    >>> cell = new_code_cell("pp = [4, 8]  # count: ranks\\nresults = 'results'", metadata={"tags": ["parameters"]})
    >>> [(name, one.value, one.word) for name, one in declared(new_notebook(cells=[cell])).items()]
    [('pp', [4, 8], 'count'), ('results', 'results', '')]
    """
    cells = [cell.source for cell in notebook.cells if "parameters" in (cell.metadata.get("tags") or ())]
    if not cells:
        raise PPModelError("tags", "no cell", "is tagged 'parameters'", "tag the cell with the parameters")
    return _declared_in("\n".join(cells))


def _declared_in(source):
    own = {}
    try:
        words = _comments(source)
        for node in ast.parse(source).body:
            name, value = node.targets[0].id, ast.literal_eval(node.value)
            own[name] = _declared_one(name, value, words.get(node.end_lineno, ""))
    except (AttributeError, SyntaxError, tokenize.TokenError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, PPModelError):
            raise
        rule, remedy = "must contain only names with plain values", "write numbers, texts and lists of them"
        raise PPModelError("parameters", "the cell", rule, remedy) from None
    return own


def _comments(source):
    """The first word of each line's comment if a colon follows it."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and (word := re.match(r"#\s*([\w-]+):", token.string)):
            found[token.start[0]] = word[1]
    return found


def _declared_one(name, value, word):
    if word and word not in KINDS:
        remedy = did_you_mean(word, KINDS) or f"choose one of {', '.join(KINDS)}"
        raise PPModelError(name, f"# {word}: ...", "is not a kind of parameter", remedy)
    kind = KINDS[word] if word else like(value)
    return Parameter(value, word, kind, isinstance(value, list) and not kind.holds(value))


# ---- what is given -------------------------------------------------------------------------------


def parse(pairs, own):
    """Parse values from the command line.

    Parameters
    ----------
    pairs : iterable of (str, str)
        Names and texts. A text is read as YAML 1.2, or as it is if the notebook's own value is text.
    own : dict of str to Parameter
        From `declared`.

    Returns
    -------
    dict of str to object
        Not yet checked.

    Raises
    ------
    PPModelError
        If the notebook has no such parameter, a name occurs twice, or a text is not YAML.

    Examples
    --------
    >>> own = {"factors": Parameter([1.0], "factor", KINDS["factor"], True)}
    >>> parse([("factors", "[1e-3, 07]")], own)
    {'factors': [0.001, 7]}
    """
    given = {}
    for name, text in pairs:
        _require_name(name, text, own)
        if name in given:
            raise PPModelError(name, shown(text), "is given twice", "give it once")
        given[name] = text if isinstance(own[name].value, str) else _read_yaml(name, text)
    return given


def _read_yaml(name, text):
    try:
        refuse_depth(text)
        if any(isinstance(event, AliasEvent) for event in YAML(typ="safe", pure=True).parse(text)):
            raise ValueError
        return YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError):
        remedy = "write a number, a word, or a list such as [8, 16]"
        raise PPModelError(name, shown(text), "cannot be read as YAML", remedy) from None


def _require_name(name, value, own):
    if name not in own:
        remedy = did_you_mean(name, own) or f"it has {', '.join(own)}"
        raise PPModelError(name, shown(value), "is not a parameter of this notebook", remedy)


def check(given, own):
    """Refuse illegal parameters of a notebook.

    Parameters
    ----------
    given : dict of str to object
        Values by name.
    own : dict of str to Parameter
        From `declared`. A list or a text may be empty only if the notebook's own is.

    Returns
    -------
    None
        If there is nothing to refuse.

    Raises
    ------
    PPModelError
        In one line: field, value, rule and remedy for the first wrong name, type, unit or value.

    Examples
    --------
    >>> own = {"pp": Parameter(8, "count", KINDS["count"], False)}
    >>> check({"pp": 16}, own)
    >>> check({"pp": 0}, own)
    Traceback (most recent call last):
    ppmodel.errors.PPModelError: pp = 0: must be a whole number of at least 1; write, for example, 8
    """
    for name, value in given.items():
        _require_name(name, value, own)
        if own[name].several:
            _check_list(name, value, own[name])
        elif not value == own[name].value == "":
            _check_one(name, value, own[name].kind)


def check_cell(sources, values):
    """Refuse parameters of the wrong kind inside a notebook, so that plain papermill gives the same message.

    It also defines the cell magic of `published`.

    Parameters
    ----------
    sources : list of str
        The cells that have run, the kernel's ``In``; the last one that declares parameters counts.
    values : dict of str to object
        The kernel's variables, after papermill has set some of them.

    Returns
    -------
    None
        If there is nothing to refuse.

    Raises
    ------
    PPModelError
        As for `check`; a notebook shows it as one line.

    Examples
    --------
    >>> check_cell(["pp = 8  # count: ranks", "pp = 'four'"], {"pp": "four"})
    Traceback (most recent call last):
    ppmodel.errors.PPModelError: pp = four: must be a whole number of at least 1; write, for example, 8
    """
    for source in reversed(sources):
        with suppress(PPModelError, tokenize.TokenError):
            own = _declared_in(source)
            if any(one.word for one in own.values()):
                break
    else:
        return
    check({name: values[name] for name in own}, own)
    define_magic(own, values)


def _check_list(name, values, parameter):
    if not isinstance(values, list) or not (values or not parameter.value):
        rule = f"must be a list, with each entry {parameter.kind.rule.removeprefix('must be ')}"
        raise PPModelError(name, shown(values), rule, f"write, for example, [{parameter.kind.example}]")
    for value in values:
        _check_one(name, value, parameter.kind)


def _check_one(name, value, kind):
    try:
        kind.check(value)
    except PPModelError as error:
        if error.where or "." in error.field:  # a line of a file, or an option of a schedule
            raise
        raise type(error)(name, shown(value), error.rule, error.remedy) from None
    except (ValueError, TypeError):
        raise PPModelError(name, shown(value), kind.rule, f"write, for example, {kind.example}") from None


# ---- the user's own model and system -------------------------------------------------------------


def fitting(own, model):
    """Restrict the sizes in a notebook's parameters to those that a model allows by its batch and blocks.

    Parameters
    ----------
    own : dict of str to Parameter
        From `declared`.
    model : ModelSpec
        The model that replaces, or joins, the notebook's own.

    Returns
    -------
    dict of str to object
        Parameters of the kinds ``microbatches`` and ``waves``: lists become shorter, and a single size becomes the next
        smaller one.

    Raises
    ------
    PPModelError
        If nothing is left of a parameter.

    Examples
    --------
    >>> own = {"microbatches": Parameter([8, 16, 512], "microbatches", KINDS["microbatches"], True)}
    >>> fitting(own, load_model("paper"))
    {'microbatches': [8, 16]}
    """
    batch = math.gcd(model.global_batch, *(load_model(name).global_batch for name in _models_beside(own)))
    ranks = max([own["pp"].value] if isinstance(own["pp"].value, int) else own["pp"].value) if "pp" in own else 1
    stages = 2 * ranks  # of one wave
    rules = {
        "microbatches": (lambda count: batch % count == 0, "global_batch", "is divided by none of"),
        "waves": (lambda waves: stages * waves <= model.blocks, "blocks", "must be at least {least} for"),
    }
    changed = {}
    for name, one in own.items():
        if one.word in rules:
            fits, field, rule = rules[one.word]
            sizes = one.value if one.several else range(one.value, 0, -1)
            kept = [size for size in sizes if fits(size)]
            if not kept:
                rule = rule.format(least=stages * min(sizes))
                remedy = "use another model, or run single notebooks with sizes that it allows, with ppmodel run"
                raise PPModelError(field, getattr(model, field), f"{rule} {name} = {shown(one.value)}", remedy)
            value = kept if one.several else kept[0]
            changed |= {name: value} if value != one.value else {}
    return changed


def _models_beside(own):
    return [name for one in own.values() if one.word == "model" and one.several for name in one.value]


def substitutes(given, own):
    """Compute the parameters that a user's model, system and memory limit change.

    Parameters
    ----------
    given : dict
        A ``model``, a ``system`` and a ``memory_limit``, or None for each.
    own : dict of str to Parameter
        From `declared`.

    Returns
    -------
    dict of str to object
        Each replaces the first single value of its kind, and is put in front of every list; a system is put in front of
        lists of systems with nodes only if it has nodes.

    Examples
    --------
    >>> own = {"systems": Parameter(["mi300x"], "system", KINDS["system"], True)}
    >>> substitutes({"system": "mine.yaml", "model": None}, own)
    {'systems': ['mine.yaml', 'mi300x']}
    """
    words = {"model": "model", "system": "system", "size": "memory_limit"}
    system, kinds = given.get("system"), {one.word for one in own.values()}
    if system is not None and "node-system" in kinds and load_system(system).nodes:
        words["node-system"] = "system"
    changed, placed = {}, set()
    for name, one in own.items():
        new = given.get(words.get(one.word))
        if new is not None and one.several:
            changed[name] = [new, *(other for other in one.value if other != new)]
        elif new is not None and one.word not in placed:
            changed[name] = new
            placed.add(one.word)
    return changed
