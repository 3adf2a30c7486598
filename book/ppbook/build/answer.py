"""The answer of an executed notebook as text, for the terminal and for readers without the book."""

import json
import re
from textwrap import fill, indent

from jinja2 import Environment, StrictUndefined, UndefinedError

_SUBSTITUTION = re.compile(r"\{\{(.+?)\}\}")
_INCLUDE = re.compile(r"```\{include\} \.\./results/(\S+)\n```")
_ROLE = re.compile(r"\{([\w:]+)\}`([^`<]*?)(?:\s*<([^`>]*)>)?`")
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<![^.]\.\.\.)\s+")  # not behind what stands for a number
_FENCED = re.compile(r"^(```.*?^```)$", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"\n- ")
_STRESS = re.compile(r"(\*{1,2})(?=\S)(.+?)(?<=\S)\1")
_MATHS, _SIGN = re.compile(r"\$([^$`]+)\$"), re.compile(r"\\(\w+|.)")
_SIGNS = {"le": "≤", "ge": "≥", "cdot": "·", "times": "×", "approx": "≈", ",": " "}
_ELSEWHERE, _LEFT_OUT = "...", "*Left out"
_LAST = ("Exercises", "What follows", "Data")
_WIDTH, _MOST_ROWS = 80, 24


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
        text, target = match[2].strip(), match[3] or ""
        if target.startswith("../results/"):
            return f"[{text}]({target.removeprefix('../')})"
        return text or target if target else f"{'the page ' * (match[1] == 'doc')}*{text.rsplit('/', 1)[-1]}*"

    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            source = _INCLUDE.sub(lambda match: (results / match[1]).read_text("utf-8").strip(), cell.source)
            cell.source = _ROLE.sub(link, _SUBSTITUTION.sub(number, source))
    return notebook


def answer(notebook, own=False):
    """Extract the answer of a page: title, first paragraphs, tables with what introduces them, and what opens in bold.

    Parameters
    ----------
    notebook : NotebookNode
        Executed and `resolved`.
    own : bool
        Whether it ran with the user's parameters: what the paper published is then left out.

    Returns
    -------
    str
        Lines of text; only the first rows of long tables, and no sentence with a number from another page.
    """
    title, *opening = _blocks(notebook.cells[0].source)
    parts = [title.lstrip("# "), *(_plain(block) for block in opening if not block.startswith(_LEFT_OUT))]
    heading = introduction = ""
    for cell in notebook.cells[1:]:
        answers, tags = [], {*cell.metadata.get("tags", ())}
        if cell.cell_type == "markdown":
            blocks = _blocks(cell.source)
            answers = [_plain(block) for block in blocks if block.startswith("**")]
            *_, last = _SENTENCE_END.split(" ".join(blocks[-1].split())) if blocks else [""]
            introduction = _plain(last) if last.endswith(":") else ""  # of the table that follows
            heading = next((line.lstrip("# ") for line in cell.source.splitlines() if line.startswith("## ")), heading)
            if heading in _LAST:
                break
        elif cell.cell_type == "code" and not tags & {"hide-output", *["of-the-paper"] * own}:
            for data in (output.get("data", {}) for output in cell.outputs):
                if {"text/html", "text/plain"} <= {*data}:
                    lines = data["text/plain"].splitlines()
                    more = len(lines) - 1 - _MOST_ROWS
                    rest = [f"... and {more} more rows in the notebook"] * (more > 0) + ["none"] * (len(lines) == 1)
                    answers.append("\n".join([*lines[: _MOST_ROWS + 1], *rest]))
            answers = [introduction] * bool(answers and introduction) + answers
        if answers:
            parts += [f"{heading}\n{'-' * len(heading)}"] * bool(heading) + answers
            heading = introduction = ""
    return "\n\n".join(part for part in parts if part)


def _blocks(source):
    """Paragraphs, lists and blocks of code of a Markdown text, without directives and targets."""
    parts = (part if part.startswith("```") else part.split("\n\n") for part in _FENCED.split(source))
    blocks = [block.strip("\n") for part in parts for block in ([part] if isinstance(part, str) else part)]
    return [block for block in blocks if block and not block.startswith(("```{", ":::", "("))]


def _plain(block):
    """A block as text, without the sentences that need a number from another page; code and items keep their lines."""
    if block.startswith("```"):
        return indent("\n".join(block.splitlines()[1:-1]), "    ")
    if block.startswith("- "):
        return "\n".join(fill(f"- {_plain(item)}", _WIDTH, subsequent_indent="  ") for item in _ITEM.split(block[2:]))
    sentences = _SENTENCE_END.split(" ".join(block.split()))
    text = " ".join(sentence for sentence in sentences if _ELSEWHERE not in sentence)
    text = _MATHS.sub(lambda match: _SIGN.sub(lambda sign: _SIGNS.get(sign[1], sign[1]), match[1]), text)
    return fill(_STRESS.sub(r"\2", text), _WIDTH, break_on_hyphens=False)
