"""Read a YAML file against a form, or report the first thing wrong with it in one line."""

import re
from functools import lru_cache
from itertools import accumulate, count
from typing import get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.constructor import ConstructorError, DuplicateKeyError, RoundTripConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from ppmodel.clusters.specs.meant import looks_like, meant_key
from ppmodel.errors import SpecificationError
from ppmodel.files import read_text

_LARGEST_BYTES, _MOST_BRACKETS = 2**18, 100
_MOST_VALUES, _DEEPEST = 10**5, 20  # a sweep of 10,000 seeds has as many; no file is deeper than five
_MOST_MISTAKES = 100  # to find the line of each takes a while

_REMEDIES = {
    "float_type": "write a number, without quotes",
    "int_type": "write a whole number, without quotes",
    "bool_type": "write true or false",
    "greater_than": "write a number above 0",
    "greater_than_equal": "write {ge:g} or a larger number",
    "less_than": "write a number below {lt:g}",
    "less_than_equal": "write {le:g} or a smaller number",
    "finite_number": "write an ordinary number",
    "literal_error": "choose one of them",
    "string_type": "write text; put a number in quotes",
    "string_too_short": "say where the value comes from",
}

_MALFORMED = (
    ("mapping values are not allowed", r"\s*[\w-]+:\S", "write a space after the first colon"),
    ("mapping values are not allowed", r".*: ", "put the text after the first colon in quotes"),
    ("expected <block end>", r"\s*$", "indent the line as the others of its block"),
    ("expected ','", "", "add the missing comma, or put a text that has a colon in quotes"),
)
"""How a parser's problem begins, what is before it on its line, and what mends it."""


class Form(BaseModel):
    """The keys of a file, or of a block in it, with their types and rules; no others are known."""

    model_config = ConfigDict(extra="forbid", strict=True)


def read_document(path, file_type, form=None):
    """Read a YAML file that follows a form.

    Parameters
    ----------
    path : Path
        The file.
    file_type : type of Form
    form : str, optional
        How such a file is written; the remedy if the file is nothing like it. By default, entries with sources.

    Returns
    -------
    Form
        An instance of `file_type`.

    Raises
    ------
    SpecificationError
        For the first mistake, in one line: file, line, field, value, rule and remedy.
    """
    keys = {key for field in file_type.model_fields.values() for key in getattr(field.annotation, "model_fields", ())}
    unit = "unit: ..., " if "unit" in keys else ""
    form = form or f"write 'key: {{value: ..., {unit}kind: ..., source: ...}}', as the files in data do"
    document = _read_yaml(path, form)
    try:
        return file_type.model_validate(_plain(document, path, count()))
    except ValidationError as error:
        raise _first_mistake(error.errors(), document, path, file_type, form) from None


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
    >>> from ppmodel.clusters.specs import DATA
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
    >>> from ppmodel.clusters.specs import DATA
    >>> place_in(DATA / "systems" / "dgx_h100.yaml", "title").endswith("dgx_h100.yaml:2")
    True
    """
    return f"{path}:{_locate(_read_yaml(path), location)[0]}"


def _read_yaml(path, form=None):
    """The document with its line numbers; raises a one-line error if it cannot be read."""
    text = read_text(path, _LARGEST_BYTES, SpecificationError)
    try:
        document = _parsed(text)
    except MarkedYAMLError as error:
        raise _malformed(error, text, path, form) from None
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


@lru_cache(64)
def _parsed(text):
    """The document of a text, which nobody changes; a study reads the same few files again and again."""
    refuse_depth(text)
    yaml = YAML()
    yaml.Constructor = _Constructor
    return yaml.load(text)


class _Constructor(RoundTripConstructor):
    """Numbers are decimal digits, possibly with a point and an exponent; anything else is text, as 1_0 and 010.

    So is what is tagged as a number or a truth value and is none. Other tags, such as those of Python, mean nothing.
    """

    def construct_yaml_int(self, node):
        return int(node.value) if re.fullmatch("[-+]?(0|[1-9][0-9]*)", node.value) else self.construct_scalar(node)

    def construct_yaml_float(self, node):
        return self.construct_scalar(node) if "_" in node.value else super().construct_yaml_float(node)

    def construct_yaml_bool(self, node):
        return self.bool_values.get(node.value.lower(), node.value)

    def construct_undefined(self, node):
        raise ConstructorError(None, None, f"the tag {node.tag} means nothing here", node.start_mark)


for _kind in ("int", "float", "bool"):
    _Constructor.add_constructor(f"tag:yaml.org,2002:{_kind}", getattr(_Constructor, f"construct_yaml_{_kind}"))
for _tag in (None, *(f"tag:yaml.org,2002:{_kind}" for _kind in ("binary", "omap", "pairs", "set"))):
    _Constructor.add_constructor(_tag, _Constructor.construct_undefined)


def refuse_depth(text):
    """Raise RecursionError for brackets nested by the hundred, which would take the parser minutes."""
    depths = accumulate(1 if bracket in "[{" else -1 for bracket in re.findall(r"[][{}]", text))
    if max(depths, default=0) > _MOST_BRACKETS:
        raise RecursionError


def _plain(node, path, values, depth=0):
    """The document in plain types, as the strict check requires, with aliases expanded; `values` counts them."""
    if depth > _DEEPEST or next(values) >= _MOST_VALUES:
        rule = "is nested too deeply" if depth > _DEEPEST else f"expands to more than {_MOST_VALUES} values"
        raise SpecificationError("document", "with its aliases", rule, "write fewer values", where=str(path))
    if isinstance(node, dict):
        return {str(key): _plain(value, path, values, depth + 1) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(value, path, values, depth + 1) for value in node]
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node


def _malformed(error, text, path, form):
    """Describe a parser's error in one line.

    Parameters
    ----------
    error : ruamel.yaml.error.MarkedYAMLError
        From the parser.
    text : str
        Of the file.
    path : Path
        Of the file.
    form : str
        How such a file is written; the remedy if there is no better one.

    Returns
    -------
    SpecificationError
    """
    mark = error.problem_mark or error.context_mark
    lines = text.splitlines() or [""]
    number = mark.line if mark else 0
    line, where = min(number, len(lines) - 1), f"{path}:{number + 1}"
    shown = (lines[line].strip() if number == line else "") or "end of file"
    if isinstance(error, DuplicateKeyError):
        key = re.search(r'found duplicate key "(.*?)"', error.problem or f'found duplicate key "{shown}"')[1]
        return SpecificationError(key, shown, "is given twice", "keep one of the two lines", where=where)
    if "\t" in lines[line]:
        rule = "has a tab where YAML allows only spaces"
        return SpecificationError("indentation", repr(shown), rule, "replace the tab with spaces", where=where)
    began = error.context_mark.line if error.context_mark else line
    if began != mark.line and re.search("flow|quoted", error.context or ""):
        rule, remedy = "has a bracket or quotation mark that is not closed", "close it, or add the missing comma"
        return SpecificationError("text", lines[began].strip(), rule, remedy, where=f"{path}:{began + 1}")
    problem, before = error.problem or "", lines[line][: error.problem_mark.column]
    remedies = (mends for start, shape, mends in _MALFORMED if problem.startswith(start) and re.match(shape, before))
    rule = f"is not YAML ({error.problem or error.context})"
    return SpecificationError("text", shown, rule, next(remedies, form), where=where)


def _first_mistake(problems, document, path, file_type, form):
    """The first of pydantic's problems with a document as an error: in order of lines, with missing keys last.

    A misspelt key is also missing under its right name; the misspelling is the mistake that its writer can see.
    """
    if other := looks_like(document, file_type):
        return SpecificationError("file", path, f"looks like a {other} file", f"give it as the {other}")

    def order(problem):
        return problem["type"] == "missing", _locate(document, problem["loc"])[0], problem["loc"]

    problem = min(problems[:_MOST_MISTAKES], key=order)
    *parents, key = problem["loc"]
    line, name, _ = _locate(document, problem["loc"])
    _, parent, entry = _locate(document, parents)
    value = problem["input"]
    if isinstance(value, bool | str | dict | list):  # as the file would write it
        value = str(value).lower() if isinstance(value, bool) else repr(value)
    rule, remedy = rule_and_remedy(problem)[0], form
    match problem["type"]:
        case "missing":
            value, rule, remedy = None, "is missing", f"add the key {key}"
        case "model_type":
            block = _form_at(file_type, problem["loc"])
            keys = block.model_fields
            if getattr(block, "is_block", False):
                rule, remedy = "must be a block of entries", f"write {', '.join(keys)} below it, or delete it"
            elif "value" in keys:
                units = f"unit: {' or '.join(get_args(keys['unit'].annotation))}, " if "unit" in keys else ""
                remedy = f"write '{key}: {{value: {value}, {units}kind: ..., source: ...}}'"
        case "extra_forbidden" if str(key).isdecimal() and entry and isinstance(entry.get("value"), int):
            # what YAML makes of 4,8 in an entry: the value 4, and a key 8
            name, value, rule = f"{parent}.value", f"{entry['value']},{key}", "has a comma in a number"
            remedy = f"write {entry['value']}.{key}, or, for thousands, the number without commas"
        case "extra_forbidden":
            keys = [field.alias or key for key, field in _form_at(file_type, parents).model_fields.items()]
            rule = "is not a known key"
            remedy = meant_key(key, keys, parents) or f"delete it; the keys are {', '.join(keys)}"
        case _ if parents:
            remedy = (list_text(problem["input"]) if isinstance(key, int) else "") or rule_and_remedy(problem)[1]
    return SpecificationError(name, value, rule, remedy, where=f"{path}:{line}")


def rule_and_remedy(problem):
    """What one of pydantic's problems says of a value: the rule that it breaks, and what mends it."""
    rule = re.sub("(?:valid dictionary or )?instance of .*", "mapping of keys to values", problem["msg"])
    remedy = _REMEDIES.get(problem["type"], "fix the value").format(**problem.get("ctx", {}))
    return rule.replace("Input should be", "must be"), remedy


def _form_at(file_type, location):
    """The form of the mapping at a place in a document."""
    for key in location:
        if isinstance(key, str):
            is_mapping = get_origin(file_type) is dict
            annotation = get_args(file_type)[1] if is_mapping else file_type.model_fields[key].annotation
            is_mapping = get_origin(annotation) is dict
            file_type = annotation if is_mapping else (*get_args(annotation), annotation)[0]  # entries of a list: alike
    return file_type


def list_text(text):
    """The remedy for a text with commas where a list may stand; empty for any other value.

    >>> list_text("4, 8"), list_text(4)
    ('write [4, 8]', '')
    """
    return f"write [{text}]" if isinstance(text, str) and "," in text.strip(",") else ""


def _locate(document, location):
    """Follow a location into a document, as far as it goes.

    Returns
    -------
    line : int
        Of the deepest key that the document has, counted from 1.
    name : str
        The location in the file's own keys: a single value may stand where a list or mapping belongs.
    node : object
        What is there; None if there is nothing.
    """
    line, names, node = 1, [], document
    for key in location:
        if isinstance(node, list) and isinstance(key, int):
            line = node.lc.item(key)[0] + 1
            node = node[key]
        elif isinstance(node, dict) and isinstance(key, str):
            written = key if key in node else next((other for other in node if str(other) == key), None)
            if written in (node.lc.data or ()):  # merged keys have no line
                line = node.lc.key(written)[0] + 1
            node = node.get(written)
        else:
            continue
        names.append(str(key))
    return line, ".".join(names), node
