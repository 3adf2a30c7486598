"""A text that is not YAML: the line where the mistake is, and what mends it."""

import re

from ruamel.yaml.constructor import DuplicateKeyError

from ppmodel.errors import SpecificationError

_REMEDIES = (
    ("mapping values are not allowed", r"\s*[\w-]+:\S", "write a space after the first colon"),
    ("mapping values are not allowed", r".*: ", "put the text after the first colon in quotes"),
    ("expected <block end>", r"\s*$", "indent the line as the others of its block"),
    ("expected ','", "", "add the missing comma, or put a text that has a colon in quotes"),
)
"""How a parser's problem begins, what is before it on its line, and what mends it."""


def malformed(error, text, path, form):
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
    line = min(mark.line if mark else 0, len(lines) - 1)
    end_of_file = mark is not None and mark.line > line
    shown = "end of file" if end_of_file else lines[line].strip() or "end of file"
    where = f"{path}:{(mark.line if mark else 0) + 1}"
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
    remedies = (remedy for begins, shape, remedy in _REMEDIES if problem.startswith(begins) and re.match(shape, before))
    rule = f"is not YAML ({error.problem or error.context})"
    return SpecificationError("text", shown, rule, next(remedies, form), where=where)
