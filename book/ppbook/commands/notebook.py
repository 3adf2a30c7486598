"""ppmodel run, ppmodel notebooks: run one notebook with your own parameters, and list the notebooks."""

import json

import click

from ppbook.commands.options import cell_limit, out_folder
from ppmodel.cli.commands import command
from ppmodel.cli.listing import say_titles
from ppmodel.cli.text import say
from ppmodel.errors import PPModelError


@command("run")
@click.argument("notebook")
@click.option(
    "-p", "--parameter", "given", nargs=2, multiple=True, metavar="NAME VALUE", help="Set a parameter; may be repeated."
)
@out_folder("Where to put notebook and results (default: the notebook's name).")
@cell_limit
def run_command(notebook, given, out, cell_limit):
    """Run one notebook, by name or file, with your own parameters.

    "ppmodel notebooks" lists them.
    """
    from ppbook.run import run

    answer, folder = run(notebook, given, out, cell_limit)
    say(f"{answer}\n\nnotebook and results are in {folder}")


@command("notebooks")
def notebooks_command():
    """List the notebooks that "ppmodel run" can run."""
    from ppbook.run import ROOT, notebook_names

    titles = {}
    for name, path in sorted(notebook_names().items()):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        lines = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown").splitlines()
        titles[name] = next((line[2:].strip() for line in lines if line.startswith("# ")), "")
    if not titles:
        remedy = "run ppmodel from a clone of the project"
        raise PPModelError("notebooks", ROOT / "notebooks", "has none: they do not come with the package", remedy)
    say_titles(titles)
