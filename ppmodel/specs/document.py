"""Read a YAML file against a form, or report the first thing wrong with it in one line."""

import re
from functools import lru_cache
from typing import get_args

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from ppmodel.errors import SpecificationError
from ppmodel.files import read_text
from ppmodel.specs.malformed import malformed
from ppmodel.specs.meant import looks_like, meant_key

_LARGEST_BYTES, _MOST_BRACKETS = 2**18, 100
_KEPT = 64
_MOST_VALUES, _DEEPEST = 10**5, 20  # a sweep of 10,000 seeds has as many; no file is deeper than five

_REMEDIES = {
    "float_type": "write a number, without quotes",
    "int_type": "write a whole number, without quotes",
    "bool_type": "write true or false",
    "greater_than": "write a number above 0",
    "greater_than_equal": "write {ge:g} or a larger number",
    "less_than_equal": "write {le:g} or a smaller number",
    "finite_number": "write an ordinary number",
    "literal_error": "choose one of them",
    "string_type": "write text; put a number in quotes",
    "string_too_short": "say where the value comes from",
    "placement": "write, for example, [0, 0, 1, 1]",
}


def read_document(path, file_type, form=None):
    """Read a YAML file that follows a form.

    Parameters
    ----------
    path : Path
        The file.
    file_type : type of pydantic.BaseModel
        The form: its keys, with their types and rules.
    form : str, optional
        How such a file is written; the remedy if the file is nothing like it. By default, entries with sources.

    Returns
    -------
    BaseModel
        An instance of `file_type`.

    Raises
    ------
    SpecificationError
        For the first mistake, in one line: file, line, field, value, rule and remedy.
    """
    form = form or f"{_file_text(file_type)}, as the files in data do"
    document = _read_yaml(path, form)
    try:
        return file_type.model_validate(_plain(document, path))
    except ValidationError as error:
        raise _first_problem(error, document, path, file_type, form) from None


def read_last_block(path, key):
    """Read the last block of a packaged file without the rest of it, which would take 20 times as long.

    Parameters
    ----------
    path : Path
        A file that is known to be valid.
    key : str
        Of the block.

    Returns
    -------
    dict
        Its entries as they are written.

    Examples
    --------
    >>> from ppmodel.specs import DATA
    >>> read_last_block(DATA / "systems" / "b200_simumax.yaml", "errors")["memory"]["kind"]
    'fitted'
    """
    return _parsed(read_text(path).partition(f"\n{key}:\n")[2])


def place_in(path, *location):
    """Locate an entry of a YAML file, for error messages.

    Parameters
    ----------
    path : Path
        The file.
    *location : str or int
        Mapping keys and list indices, outermost first; those that the file does not have are ignored.

    Returns
    -------
    str
        File and line.

    Examples
    --------
    >>> from ppmodel.specs import DATA
    >>> place_in(DATA / "systems" / "dgx_h100.yaml", "title").endswith("dgx_h100.yaml:2")
    True
    """
    return f"{path}:{_line(_read_yaml(path), location)}"


def _read_yaml(path, form=None):
    """The document with its line numbers; raises a one-line error if it cannot be read."""
    text = read_text(path, _LARGEST_BYTES, SpecificationError)
    try:
        document = _parsed(text)
    except MarkedYAMLError as error:
        raise malformed(error, text, path, form) from None
    except RecursionError:
        rule = "is nested too deeply"
        raise SpecificationError("text", "brackets", rule, form, where=str(path)) from None
    except (YAMLError, ValueError) as error:
        rule = f"is not YAML ({error})"
        raise SpecificationError("text", "unreadable", rule, form, where=str(path)) from None
    if not isinstance(document, dict):
        rule = "must be a mapping of keys to values"
        shown = "a list" if isinstance(document, list) else repr(document)
        raise SpecificationError("document", shown, rule, form, where=str(path))
    return document


@lru_cache(_KEPT)
def _parsed(text):
    """The document of a text, which nobody changes; a study reads the same few files again and again."""
    refuse_depth(text)
    return YAML().load(text)


def refuse_depth(text):
    """Raise RecursionError for brackets nested by the hundred, which would take the parser minutes."""
    depth = 0
    for bracket in re.findall(r"[][{}]", text):
        depth += 1 if bracket in "[{" else -1
        if depth > _MOST_BRACKETS:
            raise RecursionError


def _plain(node, path, budget=None, depth=0):
    """The document in plain types, as the strict check requires, with aliases expanded."""
    budget = [_MOST_VALUES] if budget is None else budget
    budget[0] -= 1
    if budget[0] < 0 or depth > _DEEPEST:
        rule = f"expands to more than {_MOST_VALUES} values" if depth <= _DEEPEST else "is nested too deeply"
        raise SpecificationError("document", "with its aliases", rule, "write fewer values", where=str(path))
    if isinstance(node, dict):
        return {str(key): _plain(value, path, budget, depth + 1) for key, value in node.items()}
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return [_plain(entry, path, budget, depth + 1) for entry in node] if isinstance(node, list) else node


def _first_problem(error, document, path, file_type, form):
    """The first mistake in a document, as an error: in order of lines, with missing keys last.

    A misspelt key is also missing under its right name; the misspelling is the mistake that its writer can see.
    """

    other = looks_like(document, file_type)
    if other:
        return SpecificationError("file", path, f"looks like a {other} file", f"give it as the {other}")

    def place(problem):
        return problem["type"] == "missing", _line(document, problem["loc"]), problem["loc"]

    problem = min(error.errors(), key=place)
    *parents, last = problem["loc"]
    name = _written_name(document, problem["loc"])
    where = f"{path}:{_line(document, problem['loc'])}"
    if _is_half_a_number(document, problem["loc"]):
        parent = ".".join(map(str, parents))
        number = "{},{}".format(_entry_at(document, parents)["value"], last)
        remedy = f"write {number.replace(',', '.')}, or, for thousands, the number without commas"
        return SpecificationError(f"{parent}.value", number, "has a comma in a number", remedy, where=where)
    if problem["type"] == "extra_forbidden":
        fields = _form_at(file_type, parents).model_fields
        allowed = [field.alias or key for key, field in fields.items()]
        remedy = meant_key(last, allowed, parents) or f"delete it; the keys are {', '.join(allowed)}"
        return SpecificationError(name, problem["input"], "is not a known key", remedy, where=where)
    if problem["type"] == "missing":
        return SpecificationError(name, "nothing", "is missing", f"add the key {last}", where=where)
    not_a_mapping = problem["type"] == "model_type"
    block = _form_at(file_type, problem["loc"]) if not_a_mapping else None
    if getattr(block, "is_block", False):
        remedy = f"write {', '.join(block.model_fields)} below it, or delete it"
        return SpecificationError(name, _shown(problem["input"]), "must be a block of entries", remedy, where=where)
    rule = re.sub("(?:valid dictionary or )?instance of .*", "mapping of keys to values", problem["msg"])
    rule = rule.replace("Input should be", "must be")
    remedy = form
    if not_a_mapping and "value" in getattr(block, "model_fields", ()):
        remedy = _entry_text(block, last, _shown(problem["input"]))
    elif parents and not not_a_mapping:
        remedy = _REMEDIES.get(problem["type"], "fix the value").format(**problem.get("ctx", {}))
        remedy = (list_text(problem["input"]) if isinstance(last, int) else "") or remedy
    return SpecificationError(name, _shown(problem["input"]), rule, remedy, where=where)


def _file_text(file_type):
    """How the entries of a file are written."""
    entries = (getattr(field.annotation, "model_fields", ()) for field in file_type.model_fields.values())
    unit = "unit: ..., " if any("unit" in entry for entry in entries) else ""
    return f"write 'key: {{value: ..., {unit}kind: ..., source: ...}}'"


def _entry_text(entry, key, value):
    """How a value that stands alone is written as an entry."""
    units = " or ".join(get_args(entry.model_fields["unit"].annotation)) if "unit" in entry.model_fields else ""
    unit = f"unit: {units}, " if units else ""
    return f"write '{key}: {{value: {value}, {unit}kind: ..., source: ...}}'"


def _is_half_a_number(document, location):
    """Whether a key is what YAML makes of the second half of ``4,8`` in an entry."""
    *parents, last = location
    entry = _entry_at(document, parents)
    return str(last).isdecimal() and isinstance(entry, dict) and isinstance(entry.get("value"), int)


def _entry_at(document, location):
    """What a document has at a place; None if there is nothing."""
    for key in location:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _written_name(document, location):
    """A location, by the keys that its file has: a single value may stand where a list or mapping belongs."""
    name, node = [], document
    for key in location:
        if isinstance(node, list if isinstance(key, int) else dict):
            name.append(str(key))
            node = node[key] if isinstance(key, int) else node.get(key)
    return ".".join(name)


def _form_at(file_type, parents):
    """The form of the mapping at a place in a document."""
    for key in parents:
        if isinstance(key, str):
            annotation = file_type.model_fields[key].annotation
            file_type = (*get_args(annotation), annotation)[0]  # all entries of a list have one form
    return file_type


def list_text(text):
    """The remedy for a text with commas where a list may stand; empty for any other value.

    >>> list_text("4, 8"), list_text(4)
    ('write [4, 8]', '')
    """
    return f"write [{text}]" if isinstance(text, str) and "," in text.strip(",") else ""


def _shown(value):
    """A value as its file would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, str | dict | list) else value


def _line(document, location):
    """The line, counted from 1, of the deepest key of a location that the document has."""
    line, node = 1, document
    for key in location:
        if isinstance(node, list) and isinstance(key, int) and key < len(node):
            line = node.lc.item(key)[0] + 1
        elif isinstance(node, dict):
            lines = node.lc.data or ()  # merged keys have none
            if key not in lines:
                key = next((one for one in lines if str(one) == key), None)
            if key is None:
                break
            line = node.lc.key(key)[0] + 1
        else:
            break
        node = node[key]
    return line
