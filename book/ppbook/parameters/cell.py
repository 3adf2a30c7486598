"""The parameters cell of a notebook: each line has a name, a value, and its kind in a comment.

``microbatches = [8, 16]  # count from 4: of one iteration`` says that each entry is a count of at least 4;
``gpus = [8, 64]  # count: for each of models`` that the list is as long as another. Papermill accepts any text for any
name; here, values are checked against their kinds before a kernel starts.
"""

import ast
import math
import re
from contextlib import suppress
from typing import NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ppbook.parameters.kinds import KINDS, Kind, count_from, like, shown
from ppmodel.clusters.specs import load_model, load_system
from ppmodel.errors import PPModelError, did_you_mean

_COMMENT = re.compile(
    r"\s*#\s*([\w-]+)(?: from (\d{1,9}))?:(\s*(?:.*\bfor each of (\w+))?.*)"
)  # behind a value: its kind

_NUMERAL = re.compile(r"(?<!\w)(0[xob]\w+|\d+_[\d_]*)(?!\w)|&")  # 0x4, 1_0 and anchors, which only YAML has


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
    each_of : str
        The name of another list, for each of whose entries this one has one; empty if no comment gives one.
    about : str
        What the comment says behind the kind.
    """

    value: object
    word: str
    kind: Kind
    several: bool
    each_of: str = ""
    about: str = ""


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
    >>> [(name, parameter.value, parameter.word) for name, parameter in declared(new_notebook(cells=[cell])).items()]
    [('pp', [4, 8], 'count'), ('results', 'results', '')]
    """
    cells = [cell.source for cell in notebook.cells if "parameters" in (cell.metadata.get("tags") or ())]
    if not cells:
        raise PPModelError("tags", "no cell", "is tagged 'parameters'", "tag the cell with the parameters")
    return _declared_in("\n".join(cells))


def _declared_in(source):
    """The parameters of a cell. (Papermill's own inspection leaves out, silently, what it cannot read.)"""
    parameters, lines = {}, source.encode(errors="replace").splitlines()
    try:
        for node in ast.parse(source).body:
            name, value = node.targets[0].id, ast.literal_eval(node.value)
            comment = _COMMENT.match(lines[node.end_lineno - 1][node.end_col_offset :].decode())
            word, least, about, each_of = comment.groups(default="") if comment else ("", "", "", "")
            kind = count_from(int(least)) if least else KINDS.get(word.removeprefix("paper-"))
            if word and kind is None:
                remedy = did_you_mean(word, KINDS) or f"choose one of {', '.join(KINDS)}"
                raise PPModelError(name, f"# {word}: ...", "is not a kind of parameter", remedy)
            kind = kind or like(value)
            several = isinstance(value, list) and not kind.holds(value)
            parameters[name] = Parameter(value, word, kind, several, each_of, about.strip())
    except PPModelError:
        raise
    except (AttributeError, SyntaxError, ValueError):
        rule, remedy = "must contain only names with plain values", "write numbers, texts and lists of them"
        raise PPModelError("parameters", "the cell", rule, remedy) from None
    return parameters


# ---- what is given -------------------------------------------------------------------------------


def parse(pairs, parameters):
    """Parse values from the command line.

    Parameters
    ----------
    pairs : iterable of (str, str)
        Names and texts. A text is read as YAML 1.2, or as it is if the notebook's own value is text.
    parameters : dict of str to Parameter
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
    >>> parameters = {"factors": Parameter([1.0], "factor", KINDS["factor"], True)}
    >>> parse([("factors", "[1e-3, 07]")], parameters)
    {'factors': [0.001, 7]}
    """
    given = {}
    for name, text in pairs:
        if name not in parameters:
            remedy = did_you_mean(name, parameters) or f"it has {', '.join(parameters)}"
            raise PPModelError(name, shown(text), "is not a parameter here", remedy)
        if name in given:
            raise PPModelError(name, shown(text), "is given twice", "give it once")
        if isinstance(parameters[name].value, str):
            given[name] = text
            continue
        try:
            if _NUMERAL.search(text):
                raise ValueError
            given[name] = YAML(typ="safe", pure=True).load(text)
        except (YAMLError, ValueError, RecursionError):
            remedy = "write a decimal number, a word, or a list such as [8, 16]"
            raise PPModelError(name, shown(text), "cannot be read as YAML", remedy) from None
    return given


def check(given, parameters):
    """Refuse illegal parameters of a notebook.

    Parameters
    ----------
    given : dict of str to object
        Values by name.
    parameters : dict of str to Parameter
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
    >>> parameters = {"pp": Parameter(8, "count", KINDS["count"], False)}
    >>> check({"pp": 16}, parameters)
    >>> check({"pp": 0}, parameters)
    Traceback (most recent call last):
    ppmodel.errors.PPModelError: pp = 0: must be a whole number of at least 1; write, for example, 8
    """
    for name, value in given.items():
        default, _, kind, several, *_ = parameters[name]
        if several and not (isinstance(value, list) and (value or not default)):
            what = "must not be empty" if value == [] else "must be a list"
            rule = f"{what}, with each entry {kind.rule.removeprefix('must be ')}"
            example = shown(value) if value else kind.example
            raise PPModelError(name, shown(value), rule, f"write, for example, [{example}]")
        for entry in value if several else [value]:
            if several or not value == default == "":
                kind.check(name, entry)
    values = {name: parameter.value for name, parameter in parameters.items()} | given
    lists = {name: values[name] for name, parameter in parameters.items() if parameter.several}
    first_lists = {parameters[name].each_of for name in lists}
    for name, entries in lists.items():
        each_of = parameters[name].each_of
        repeats = [entry for number, entry in enumerate(entries) if entry in entries[:number]]
        if repeats and not each_of and name not in first_lists:
            raise PPModelError(name, shown(repeats[0]), "is in the list twice", "name it once")
        if each_of in lists and len(entries) != len(lists[each_of]):
            rule = f"must have an entry for each of {each_of} = {shown(lists[each_of])}"
            raise PPModelError(name, shown(entries), rule, "give both lists the same length")


def check_cell(sources, values):
    """Refuse parameters of the wrong kind inside a notebook, so that plain papermill gives the same message.

    Parameters
    ----------
    sources : list of str
        The cells that have run, the kernel's ``In``; the last one that declares parameters counts.
    values : dict of str to object
        The kernel's variables, after papermill has set some of them.

    Returns
    -------
    dict of str to Parameter
        Those of that cell, with the notebook's own values; none if there is no such cell.

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
        with suppress(PPModelError):
            parameters = _declared_in(source)
            if any(parameter.word for parameter in parameters.values()):
                break
    else:
        return {}
    check({name: values[name] for name in parameters}, parameters)
    return parameters


# ---- the user's own model and system -------------------------------------------------------------


def fitting(parameters, model):
    """Restrict the sizes in a notebook's parameters to those that a model allows by its batch and blocks.

    Parameters
    ----------
    parameters : dict of str to Parameter
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
    >>> sizes = {"microbatches": Parameter([8, 16, 512], "microbatches", KINDS["microbatches"], True)}
    >>> fitting(sizes, load_model("paper"))
    {'microbatches': [8, 16]}
    """
    listed = [parameter.value for parameter in parameters.values() if parameter.word == "model" and parameter.several]
    models = [model, *(load_model(name) for names in listed for name in names)]
    batch = math.gcd(*(each.global_batch for each in models))
    ranks = parameters["pp"].value if "pp" in parameters else 1
    stages = 2 * (max(ranks) if isinstance(ranks, list) else ranks)  # of one wave
    changed = {}
    for name, (default, word, _, several, *_) in parameters.items():
        if word not in ("microbatches", "waves"):
            continue
        sizes = default if several else range(default, 0, -1)
        if word == "microbatches":
            field, rule, legal = "global_batch", "is divided by none of", [size for size in sizes if batch % size == 0]
        else:
            field, rule = "blocks", f"must be at least {stages * min(sizes)} for"
            legal = [waves for waves in sizes if stages * waves <= model.blocks]
        if not legal:
            remedy = "use another model, or run single notebooks with sizes that it allows, with ppmodel run"
            raise PPModelError(field, getattr(model, field), f"{rule} {name} = {shown(default)}", remedy)
        value = legal if several else legal[0]
        if value != default:
            changed[name] = value
    return changed


def substitutes(given, parameters):
    """Compute the parameters that a user's model, system and memory limit change.

    Parameters
    ----------
    given : dict
        A ``model``, a ``system`` and a ``memory_limit``, or None for each.
    parameters : dict of str to Parameter
        From `declared`.

    Returns
    -------
    dict of str to object
        Each replaces the first single value of its kind, and is put in front of every list; a system is put in front of
        lists of systems with nodes only if it has nodes.

    Examples
    --------
    >>> systems = {"systems": Parameter(["mi300x"], "system", KINDS["system"], True)}
    >>> substitutes({"system": "mine.yaml", "model": None}, systems)
    {'systems': ['mine.yaml', 'mi300x']}
    """
    changed, placed = {}, set()
    for name, (default, word, _, several, *_) in parameters.items():
        value = given.get({"size": "memory_limit", "node-system": "system"}.get(word, word))
        if value is None or (word == "node-system" and not load_system(value).nodes):
            continue
        if several:
            changed[name] = [value, *(other for other in default if other != value)]
        elif word not in placed:
            changed[name] = value
            placed.add(word)
    return changed
