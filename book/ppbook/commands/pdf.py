"""ppmodel pdf: print the built book as one PDF."""

from ppbook.commands.options import out_folder
from ppmodel.cli.commands import command
from ppmodel.cli.text import say


@command("pdf")
@out_folder("Folder of the built book (default book/_build).")
def pdf_command(out):
    """Print the built book as one PDF, next to its pages and linked from them; needs Chromium."""
    from ppbook.pdf import pdf

    say(pdf(out))
