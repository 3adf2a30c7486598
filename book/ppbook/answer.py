"""The answer of an executed notebook as text, for the terminal and for readers without the book."""

import json
import math
import re
from textwrap import fill

from jinja2 import ChainableUndefined, Environment

_SUBSTITUTION = re.compile(r"\{\{(.+?)\}\}")
_ROLE = re.compile(r"\{[\w:]+\}`([^`<]*?)(?:\s*<([^`>]*)>)?`")
_NOT_HERE = re.compile(r"\bnan\b")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_ELSEWHERE = "..."
_WIDTH, _MOST_ROWS = 100, 24


def resolved(notebook, results):
    """Replace what only the book resolves in a notebook's prose: recorded numbers, and links to other pages.

    Parameters
    ----------
    notebook : NotebookNode
        Executed; its Markdown cells are changed.
    results : Path
        The folder with what the notebook recorded. Numbers from other pages, which are not there, become "...".

    Returns
    -------
    NotebookNode
        The same object.
    """
    facts = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("*.json"))}
    render = Environment(undefined=_Elsewhere, autoescape=False).from_string

    def known(found):
        return _NOT_HERE.sub(_ELSEWHERE, render(found[0]).render(facts))

    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _ROLE.sub(_link, _SUBSTITUTION.sub(known, cell.source))
    return notebook


class _Elsewhere(ChainableUndefined):
    """Stands for a number that another page records."""

    def __str__(self):
        return _ELSEWHERE

    def __float__(self):
        return math.nan

    __mul__ = __rmul__ = __add__ = __radd__ = __sub__ = __rsub__ = __truediv__ = __rtruediv__ = lambda self, _: self


def _link(found):
    """A role as plain Markdown: a file next to the notebook becomes a link, a page of the book its name."""
    text, target = found[1].strip(), found[2] or ""
    if target.startswith("../results/"):
        return f"[{text}]({target.removeprefix('../')})"
    return text or target if target else f"*{text.rsplit('/', 1)[-1]}*"


def answer(notebook):
    """Extract the answer of a page: title, first paragraphs, tables with what introduces them, and what opens in bold.

    Parameters
    ----------
    notebook : NotebookNode
        Executed and `resolved`.

    Returns
    -------
    str
        Lines of text; only the first rows of long tables, and no sentence with a number from another page.
    """
    title, *opening = notebook.cells[0].source.strip().split("\n\n")
    parts = [title.lstrip("# "), *(_plain(part) for part in opening if not part.startswith("```"))]
    heading = introduced = ""
    for cell in notebook.cells[1:]:
        if cell.cell_type == "markdown":
            introduced = _introduction(cell)
            heading = next((line.lstrip("# ") for line in cell.source.splitlines() if line.startswith("## ")), heading)
        if said := _said(cell):
            parts += [f"{heading}\n{'-' * len(heading)}"] * bool(heading)
            parts += [introduced] * (bool(introduced) and cell.cell_type == "code") + said
            heading = introduced = ""
    return "\n\n".join(parts)


def _introduction(cell):
    """The last sentence of a cell, if it ends with a colon: what it says is of the table that follows."""
    *_, last = _SENTENCE_END.split(" ".join(cell.source.split("\n\n")[-1].split()))
    return _plain(last) if last.endswith(":") else ""


def _said(cell):
    """What a cell contributes: paragraphs that open in bold, or tables that are shown."""
    if cell.cell_type == "markdown":
        return [_plain(part) for part in cell.source.split("\n\n") if part.startswith("**")]
    if cell.cell_type != "code" or "hide-output" in cell.metadata.get("tags", ()):
        return []
    shown = [output.get("data", {}) for output in cell.outputs]
    return [_first_rows(data["text/plain"]) for data in shown if "text/html" in data and "text/plain" in data]


def _plain(part):
    """A paragraph as text, without the sentences that need a number from another page."""
    sentences = _SENTENCE_END.split(" ".join(part.replace("**", "").split()))
    return fill(" ".join(one for one in sentences if _ELSEWHERE not in one), _WIDTH)


def _first_rows(table):
    lines = table.splitlines()
    more = len(lines) - 1 - _MOST_ROWS
    return "\n".join([*lines[: _MOST_ROWS + 1], f"... and {more} more rows in the notebook"] if more > 0 else lines)
