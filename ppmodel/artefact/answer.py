"""The answer of an executed notebook as text, for the terminal and for readers without the book."""

import json
import math
import re
from textwrap import fill

from jinja2 import ChainableUndefined, Environment

_SUBSTITUTION = re.compile(r"\{\{(.+?)\}\}")
_ROLE = re.compile(r"\{[\w:]+\}`([^`<]*?)(?:\s*<([^`>]*)>)?`")
_NOT_HERE = re.compile(r"\bnan\b")
_WIDTH, _MOST_ROWS = 100, 15


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
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            text = _SUBSTITUTION.sub(lambda found: _NOT_HERE.sub("...", render(found[0]).render(facts)), cell.source)
            cell.source = _ROLE.sub(_link, text)
    return notebook


class _Elsewhere(ChainableUndefined):
    """Stands for a number that another page records."""

    def __str__(self):
        return "..."

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
    """Extract the answer of a page: title, first paragraphs, and tables under their headings.

    Parameters
    ----------
    notebook : NotebookNode
        Executed and `resolved`.

    Returns
    -------
    str
        Lines of text; only the first rows of long tables.
    """
    title, *opening = notebook.cells[0].source.strip().split("\n\n")
    parts = [
        title.lstrip("# "),
        *(fill(" ".join(part.split()), _WIDTH) for part in opening if not part.startswith("```")),
    ]
    heading = ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            heading = next((line.lstrip("# ") for line in cell.source.splitlines() if line.startswith("## ")), heading)
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "text/html" in data and "text/plain" in data and "hide-output" not in cell.metadata.get("tags", ()):
                parts += [f"{heading}\n{'-' * len(heading)}"] * bool(heading) + [_first_rows(data["text/plain"])]
                heading = ""
    return "\n\n".join(parts)


def _first_rows(table):
    lines = table.splitlines()
    more = len(lines) - 1 - _MOST_ROWS
    return "\n".join([*lines[: _MOST_ROWS + 1], f"... and {more} more rows in the notebook"] if more > 0 else lines)
