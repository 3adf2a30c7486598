"""The answer of an executed notebook as text, for the terminal and for readers without the book."""

import json
import re
from textwrap import fill

from jinja2 import Environment, StrictUndefined, UndefinedError

_SUBSTITUTION = re.compile(r"\{\{(.+?)\}\}")
_ROLE = re.compile(r"\{[\w:]+\}`([^`<]*?)(?:\s*<([^`>]*)>)?`")
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
        The folder with what the notebook recorded. What needs numbers from other pages, which are not there, becomes
        "...", and so does what is not defined for its parameters.

    Returns
    -------
    NotebookNode
        The same object.
    """
    facts = {path.stem: json.loads(path.read_text("utf-8")) for path in results.glob("*.json")}
    jinja = Environment(undefined=StrictUndefined, finalize=lambda value: _ELSEWHERE if value is None else value)

    def number(match):
        try:
            return jinja.from_string(match[0]).render(facts)
        except (UndefinedError, TypeError):  # of another page; null, which has no format
            return _ELSEWHERE

    def link(match):  # to a file next to the notebook, or the name of a page of the book
        text, target = match[1].strip(), match[2] or ""
        if target.startswith("../results/"):
            return f"[{text}]({target.removeprefix('../')})"
        return text or target if target else f"*{text.rsplit('/', 1)[-1]}*"

    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _ROLE.sub(link, _SUBSTITUTION.sub(number, cell.source))
    return notebook


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
    heading = introduction = ""
    for cell in notebook.cells[1:]:
        answers = []
        if cell.cell_type == "markdown":
            paragraphs = cell.source.split("\n\n")
            answers = [_plain(part) for part in paragraphs if part.startswith("**")]
            *_, last = _SENTENCE_END.split(" ".join(paragraphs[-1].split()))
            introduction = _plain(last) if last.endswith(":") else ""  # of the table that follows
            heading = next((line.lstrip("# ") for line in cell.source.splitlines() if line.startswith("## ")), heading)
        elif cell.cell_type == "code" and "hide-output" not in cell.metadata.get("tags", ()):
            for data in (output.get("data", {}) for output in cell.outputs):
                if {"text/html", "text/plain"} <= {*data}:
                    lines = data["text/plain"].splitlines()
                    more = len(lines) - 1 - _MOST_ROWS
                    rest = [f"... and {more} more rows in the notebook"] if more > 0 else []
                    answers.append("\n".join([*lines[: _MOST_ROWS + 1], *rest]))
            answers = [introduction] * bool(answers and introduction) + answers
        if answers:
            parts += [f"{heading}\n{'-' * len(heading)}"] * bool(heading) + answers
            heading = introduction = ""
    return "\n\n".join(parts)


def _plain(part):
    """A paragraph as text, without the sentences that need a number from another page."""
    sentences = _SENTENCE_END.split(" ".join(part.replace("**", "").split()))
    return fill(" ".join(sentence for sentence in sentences if _ELSEWHERE not in sentence), _WIDTH)
