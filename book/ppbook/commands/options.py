"""Options that several commands of the book share."""

import click

from ppmodel.cli.arguments import seconds
from ppmodel.errors import PPModelError

cell_limit = click.option(
    "--time-limit", "cell_limit", type=seconds("above 0"), help="Stop a cell that takes longer (default: wait)."
)
"""Decorator: time limit for a notebook cell."""


class _Folder(click.Path):
    """A folder, whose name is not empty."""

    def convert(self, value, param, ctx):
        if not value.strip():
            raise PPModelError("--out", repr(value), "must name a folder", "pass a folder, or leave --out out")
        return value


def out_folder(text):
    """Decorator: the folder that receives what is made."""
    return click.option("--out", type=_Folder(), metavar="FOLDER", help=text)
