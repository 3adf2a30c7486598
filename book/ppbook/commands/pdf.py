"""ppmodel pdf: print the built book as one PDF."""

import click

from ppbook.commands.options import require_folder
from ppmodel.cli.commands import command
from ppmodel.cli.text import say


@command("pdf")
@click.option("--out", type=click.Path(), metavar="FOLDER", help="Folder of the built book (default book/_build).")
def pdf_command(out):
    """Print the built book as one PDF, next to its pages and linked from them; needs Chromium."""
    require_folder(out)
    from ppbook.pdf import pdf

    say(pdf(out))
