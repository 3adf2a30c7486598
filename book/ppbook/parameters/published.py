"""Paragraphs that conclude something for the published parameters, and give way when a parameter differs.

A notebook writes such a paragraph as a cell of its own: ``%%published`` on the first line, Markdown below it. The cell
that checks the parameters defines this magic, so that plain papermill and Jupyter leave the same paragraphs out as
``ppmodel run`` and ``ppmodel reproduce``, which turn the cells into Markdown.
"""

from pathlib import Path

from IPython.display import display_markdown
from nbformat.v4 import new_markdown_cell

from ppbook.parameters.kinds import shown

MAGIC = "%%published"
"""The first line of such a cell."""

_LEFT_OUT = "*Left out: a conclusion drawn for the published parameters. Changed here: {}.*"
_CHANGE = "`{} = {}` (published: `{}`)"
_ABOVE = {"parameters", "injected-parameters", "remove-cell"}


def define_magic(shell, parameters, values):
    """Define ``%%published`` in a running kernel.

    Parameters
    ----------
    shell : InteractiveShell
        The kernel's.
    parameters : dict of str to Parameter
        From `parameters.declared`, with the published values. Folders change no result, and do not count.
    values : dict of str to object
        The values that the notebook runs with.
    """
    changed = ", ".join(
        _CHANGE.format(name, *(_code(value, parameter) for value in (values[name], parameter.value)))
        for name, parameter in parameters.items()
        if parameter.word != "folder" and values[name] != parameter.value
    )

    def published(_, paragraph):
        """Show a paragraph, or that it is left out because parameters changed."""
        display_markdown(_LEFT_OUT.format(changed) if changed else paragraph, raw=True)

    shell.register_magic_function(published, "cell")


def _code(value, parameter):
    """A value in a span of code, which no sign in it ends, and without the folder of a file."""
    if parameter.kind.files:
        value = [Path(name).stem for name in value] if parameter.several else Path(value).stem
    return " ".join(shown(value).split()).replace("`", "'").replace("{{", "{ {") or '""'


def as_markdown(notebook):
    """Turn the ``%%published`` cells of an executed notebook into Markdown.

    Parameters
    ----------
    notebook : NotebookNode
        Changed in place. Those right behind the parameters join the title above them: a page opens with its finding.
    """
    title, *cells = notebook.cells
    notebook.cells = [title]
    for cell in cells:
        if cell.cell_type == "code" and cell.source.startswith(MAGIC):
            text = cell.outputs[0].data["text/markdown"].strip()
            opens = all(_ABOVE & set(above.metadata.get("tags", ())) for above in notebook.cells[1:])
            if opens and title.cell_type == "markdown":
                title.source += f"\n\n{text}"
                continue
            cell = new_markdown_cell(text)
        notebook.cells.append(cell)
