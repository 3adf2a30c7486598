"""ppmodel smoke: one figure again, and what it was compared with."""

import click

from ppmodel.cli.asked import require_folder
from ppmodel.cli.commands import command
from ppmodel.cli.text import say


@command("smoke")
@click.option("--out", type=click.Path(), metavar="FOLDER", help="For numbers and picture (default results/smoke).")
def smoke_command(out):
    """Make the paper's Fig. 3 again in half a minute and compare its numbers; exit code 1 where one is off."""
    require_folder(out)
    from ppmodel.artefact.smoke import smoke

    lines, passed = smoke(out)
    say("\n".join(lines))
    return 0 if passed else 1
