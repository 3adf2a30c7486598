"""Commands of the clone, such as claims, run and reproduce; ppmodel finds them as entry points."""

import click

from ppmodel.cli.commands import Command
from ppmodel.errors import PPModelError


class BookCommand(Command):
    """A command that names what is not installed of the book's own packages."""

    section = "Book"

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            remedy = "install what the book needs: pip install -e '.[book,pdf]'"
            raise PPModelError(error.name, None, "is not installed", remedy) from None


def command(name):
    """Decorator for a command's function, as `ppmodel.cli.commands.command`."""
    return click.command(name, cls=BookCommand)
