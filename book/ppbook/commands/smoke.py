"""ppmodel smoke: reproduce one figure, and say what it was compared with."""

from ppbook.commands.options import out_folder
from ppmodel.cli.commands import command
from ppmodel.cli.text import say


@command("smoke")
@out_folder("Where to put numbers and picture (default results/smoke).")
def smoke_command(out):
    """Reproduce a figure of the paper (number 3) in half a minute and compare its numbers.

    Exit code 1 if any is off by too much.
    """
    from ppbook.smoke import smoke

    lines, passed = smoke(out)
    say("\n".join(lines))
    return 0 if passed else 1
