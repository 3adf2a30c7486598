"""ppmodel smoke: reproduce one figure, and say what it was compared with."""

import click

from ppbook.commands.options import require_folder
from ppmodel.cli.commands import command
from ppmodel.cli.text import say


@command("smoke")
@click.option(
    "--out", type=click.Path(), metavar="FOLDER", help="Where to put numbers and picture (default results/smoke)."
)
def smoke_command(out):
    """Reproduce a figure of the paper (number 3) in half a minute and compare its numbers.

    Exit code 1 if any is off by too much.
    """
    require_folder(out)
    from ppbook.smoke import smoke

    lines, passed = smoke(out)
    say("\n".join(lines))
    return 0 if passed else 1
