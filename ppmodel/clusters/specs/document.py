"""Read a YAML file against a form, or report the first thing wrong with it in one line."""

import re
from functools import lru_cache
from itertools import takewhile
from typing import Annotated, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml import events as yaml
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from ppmodel.clusters.specs.entries import RENAMED, Kind
from ppmodel.clusters.specs.files import packaged
from ppmodel.clusters.specs.published import read_config
from ppmodel.clusters.specs.suggest import guess_file_type, suggest_key
from ppmodel.errors import SpecificationError, did_you_mean
from ppmodel.files import DATA, data_rows, read_text

LARGEST_BYTES = 10**7

_REMEDIES = {row["problem"]: row["remedy"] for row in data_rows("remedies.csv")}
"""What mends each of pydantic's problems."""

_MALFORMED = (
    ("mapping values are not allowed", r"\s*[\w-]+:\S", "write a space after the first colon"),
    ("mapping values are not allowed", r".*: ", "put the text after the first colon in quotes"),
    ("expected <block end>", r"\s*$", "indent the line as the others of its block"),
    ("expected ','", "", "add the missing comma, or put a text that has a colon in quotes"),
)
"""Beginning of a parser's problem, pattern of its line before it, and remedy."""

_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_WHOLE = re.compile("[-+]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"([-+]?)(([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=e))(e[-+]?[0-9]+)?|\.(inf)|\.(nan))")


Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$")]
"""A text that is printed on one line."""


class Form(BaseModel):
    """The keys of a file, or of a block in it, with their types and rules; no others are known."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Sourced(Form):
    """A value with its source and the kind of that source."""

    kind: Kind
    source: Annotated[str, Field(min_length=1)]


class Block(Form):
    """A file of entries, or a block of them."""


def read_document(path, file_type, form=None, release=""):
    """Read a YAML file that follows a form.

    Parameters
    ----------
    path : Path
        The file.
    file_type : type of Form
    form : str, optional
        How such a file is written; the remedy if the file is nothing like it. By default, entries with sources.
    release : str, optional
        Of a framework, whose newest it is otherwise; see `_of_release`.

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
    entries = f"write 'key: {{value: ..., {unit}kind: ..., source: ...}}', as the files in data do"
    form = form or ("give the whole config.json, as published" if path.suffix == ".json" else entries)
    places = _read_places(path, form)
    document = places[()][1]
    if path.suffix == ".json":
        document = _read_places(DATA / "templates" / "config.yaml")[()][1] | read_config(document, path)
        places = {(): (1, document)} | {(key, *end): (1, document[key]) for key in document for end in ((), ("value",))}
    if "like" in file_type.model_fields and (name := document.get("like")) is not None:
        if name not in (names := packaged("systems")):
            remedy = did_you_mean(str(name), names) or "choose one that ppmodel systems lists"
            raise SpecificationError("like", name, "is no packaged system", remedy, where=place_in(path, "like"))
        document = _completed(document, _read_places(DATA / "systems" / f"{name}.yaml")[()][1])
    if "release" in file_type.model_fields and isinstance(document.get("releases"), dict):
        document = _of_release(document, release)
    try:
        return file_type.model_validate(document)
    except ValidationError as error:
        raise _first_mistake(error.errors(), places, path, file_type, form) from None


def _completed(document, other, name=None):
    """A document with what it leaves open taken from the system that it names in ``like``, and sources that say so.

    The other's title and errors are its own.
    """
    name, completed = name or document["like"], dict(document)
    for key, entry in other.items():
        if key in ("title", "errors"):
            continue
        if "source" in entry:
            completed.setdefault(key, entry | {"source": f"as {name}: {entry['source']}"})
        elif isinstance(given := completed.get(key, {}), dict):
            completed[key] = _completed(given, entry, name)
    return completed


def release_number(release):
    """A release as numbers, which tell the newer one.

    >>> release_number("26.02.01") < release_number("26.04")
    True
    """
    return [int(number) for number in re.findall(r"\d+", release)]


def _of_release(document, asked):
    """A framework's document with the values of a release: the newest, or the last known up to the one asked for."""
    releases = sorted(document["releases"], key=release_number)
    up_to = [name for name in releases if not asked or release_number(name) <= release_number(asked)]
    known, source = (up_to or releases[:1])[-1], f"known releases: {', '.join(releases)}"
    is_known = not asked or release_number(asked)[:2] == release_number(known)[:2]  # 26.02.01 is as 26.02
    names = {"release": asked or known} | ({} if is_known else {"as_release": known})
    named = {key: {"value": name, "kind": "stated", "source": source} for key, name in names.items()}
    return {key: value for key, value in document.items() if key != "releases"} | document["releases"][known] | named


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
    places = _read_places(path)
    return f"{path}:{places[_nearest(places, location)][0]}"


def _read_places(path, form=None):
    """The places of a file's mapping, as `_places` gives them."""
    text = read_text(path, LARGEST_BYTES, SpecificationError)
    try:
        places = _places(text)
    except MarkedYAMLError as error:
        raise _malformed(error, text, path, form) from None
    except SpecificationError as error:
        error.where = f"{path}:{error.where}"
        raise
    except (RecursionError, YAMLError, ValueError) as error:
        rule = "is nested too deeply" if isinstance(error, RecursionError) else f"is not YAML ({error})"
        raise SpecificationError("text", "unreadable", rule, form, where=str(path)) from None
    document = places[()][1]
    if not isinstance(document, dict):
        rule = "must be a mapping of keys to values"
        shown = "a list" if isinstance(document, list) else repr(document)
        raise SpecificationError("document", shown, rule, form, where=str(path))
    return places


@lru_cache(64)
def _places(text):
    """The line and the value of each place in a text, by its keys and indices; () is the whole.

    Keys are text, whatever they look like. Nobody changes what is returned: a study reads the same few files again.
    """
    places, lines = {(): (1, None)}, text.splitlines()
    events = YAML(typ="safe", pure=True).parse(text)

    def refuse(event, field, rule, remedy):
        line = event.start_mark.line
        raise SpecificationError(field, lines[line].strip(), rule, remedy, where=line + 1)

    def read(event, location, line):
        if event.anchor or getattr(event, "tag", None):
            refuse(event, "text", "has an anchor, an alias or a tag, which are not read", "write the value itself")
        if isinstance(event, yaml.MappingStartEvent):
            value = {}
            for key in takewhile(lambda event: not isinstance(event, yaml.MappingEndEvent), events):
                if not isinstance(key, yaml.ScalarEvent):
                    refuse(key, "text", "has a key that is not a word", "write 'key: value'")
                if (name := RENAMED.get(key.value, key.value)) in value:
                    refuse(key, name, "is given twice", "keep one of the two lines")
                value[name] = read(next(events), (*location, name), key.start_mark.line + 1)
        elif isinstance(event, yaml.SequenceStartEvent):
            entries = takewhile(lambda event: not isinstance(event, yaml.SequenceEndEvent), events)
            value = [read(entry, (*location, index), entry.start_mark.line + 1) for index, entry in enumerate(entries)]
        else:
            value = _scalar(event.value) if event.implicit[0] else event.value
        places[location] = line, value
        return value

    next(events)  # the stream
    if isinstance(next(events), yaml.DocumentStartEvent):
        read(next(events), (), 1)
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            refuse(event, "text", "has more than one document", "keep one of them")
    return places


def _scalar(text):
    """A text without quotes as a value. Numbers are decimal digits, possibly with a point and an exponent."""
    word = text.lower()
    if word in _WORDS:
        return _WORDS[word]
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(word.replace(".inf", "inf").replace(".nan", "nan")) if _DECIMAL.fullmatch(word) else text


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
    line, where = min(mark.line, len(lines) - 1), f"{path}:{mark.line + 1}"
    shown = (lines[line].strip() if mark.line == line else "") or "end of file"
    if "\t" in lines[line]:
        rule = "has a tab where YAML allows only spaces"
        return SpecificationError("indentation", repr(shown), rule, "replace the tab with spaces", where=where)
    began = error.context_mark.line if error.context_mark else line
    if began != mark.line and re.search("flow|quoted", error.context or ""):
        rule, remedy = "has a bracket or quotation mark that is not closed", "close it, or add the missing comma"
        return SpecificationError("text", lines[began].strip(), rule, remedy, where=f"{path}:{began + 1}")
    problem, before = error.problem or "", lines[line][: mark.column]
    remedies = (mends for start, shape, mends in _MALFORMED if problem.startswith(start) and re.match(shape, before))
    rule = f"is not {'JSON' if path.suffix == '.json' else 'YAML'} ({error.problem or error.context})"
    return SpecificationError("text", shown, rule, next(remedies, form), where=where)


def _first_mistake(problems, places, path, file_type, form):
    """The first of pydantic's problems with a document as an error: in order of lines, with missing keys last.

    A misspelt key is also missing under its right name; the misspelling is the mistake that its writer can see.
    """
    if other := guess_file_type(places[()][1], file_type.model_fields):
        return SpecificationError("file", path, f"looks like a {other} file", f"give it as the {other}")

    def order(problem):
        return problem["type"] == "missing", places[_nearest(places, problem["loc"])][0], problem["loc"]

    problem = min(problems, key=order)
    *parents, key = problem["loc"]
    location, parent = _nearest(places, problem["loc"]), _nearest(places, parents)
    name, entry = ".".join(map(str, location)), places[parent][1]
    value = problem["input"]
    if isinstance(value, bool | str | dict | list):  # as the file would write it
        value = str(value).lower() if isinstance(value, bool) else repr(value)
    (rule, mended), remedy, line = rule_and_remedy(problem), form, places[location][0]
    match problem["type"]:
        case "missing":
            name, value, line = ".".join(map(str, (*parent, key))), None, location and line  # of its block, if any
            rule, remedy = "is missing", f"add the key {key}"
        case "model_type":
            block = _form_at(file_type, problem["loc"])
            keys = block.model_fields
            if issubclass(block, Block):
                rule, remedy = "must be a block of entries", f"write {', '.join(keys)} below it, or delete it"
            elif "value" in keys:
                units = f"unit: {' or '.join(get_args(keys['unit'].annotation))}, " if "unit" in keys else ""
                remedy = f"write '{key}: {{value: {value}, {units}kind: ..., source: ...}}'"
        case "extra_forbidden" if key.isdecimal() and isinstance(entry.get("value"), int):
            # what YAML makes of 4,8 in an entry: the value 4, and a key 8
            name, value = ".".join(map(str, (*parent, "value"))), f"{entry['value']},{key}"
            rule = "has a comma in a number"
            remedy = f"write {entry['value']}.{key}, or, for thousands, the number without commas"
        case "extra_forbidden":
            keys = [field.alias or key for key, field in _form_at(file_type, parents).model_fields.items()]
            rule, value = "is not a known key", None if isinstance(problem["input"], dict | list) else value
            remedy = suggest_key(key, keys, parents) or f"delete it; the keys are {', '.join(keys)}"
        case "string_pattern_mismatch":
            rule, remedy = "must be one line, without control characters", "write it on one line"
        case _ if parents:
            remedy = (list_text(problem["input"]) if isinstance(key, int) else "") or mended
    return SpecificationError(name, value, rule, remedy, where=f"{path}:{line}" if line else str(path))


def rule_and_remedy(problem):
    """Turn one of pydantic's problems into the rule that a value breaks, and what mends it."""
    rule = re.sub("(?:valid dictionary or )?instance of .*", "mapping of keys to values", problem["msg"])
    remedy = _REMEDIES.get(problem["type"], "fix the value").format(**problem.get("ctx", {}))
    return rule.replace("Input should be", "must be").replace("a valid integer", "a whole number"), remedy


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
    """Suggest a list for a text with commas where a list may stand; empty for any other value.

    >>> list_text("4, 8"), list_text(4)
    ('write [4, 8]', '')
    """
    return f"write [{text}]" if isinstance(text, str) and "," in text.strip(",") else ""


def _nearest(places, location):
    """The place that a location leads to; keys that the file does not have are left out.

    A single value may stand where a list or mapping belongs.
    """
    nearest = ()
    for key in location:
        if (*nearest, key) in places:
            nearest = *nearest, key
    return nearest
