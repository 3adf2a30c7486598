"""ppmodel run: one notebook with parameters of one's own."""

import click

from ppmodel.cli.asked import require_folder
from ppmodel.cli.commands import command
from ppmodel.cli.text import say


@command("run")
@click.argument("notebook")
@click.option("-p", "--parameter", "given", nargs=2, multiple=True, metavar="NAME VALUE", help="May be repeated.")
@click.option("--out", type=click.Path(), metavar="FOLDER", help="For notebook and results (default: its name).")
def run_command(notebook, given, out):
    """Run one notebook, by name or file, with parameters of your own.

    "ppmodel notebooks" lists them.
    """
    require_folder(out)
    from ppmodel.artefact.run import run

    say(run(notebook, given, out))
