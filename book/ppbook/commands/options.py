"""Options that several commands of the book share."""

import click

from ppmodel.cli.arguments import seconds
from ppmodel.errors import PPModelError

cell_limit = click.option(
    "--time-limit", "cell_limit", type=seconds("above 0"), help="Stop a cell that takes longer (default: wait)."
)
"""Decorator: time limit for a notebook cell."""


def require_folder(out):
    """Refuse an empty folder name."""
    if out is not None and not out.strip():
        raise PPModelError("--out", repr(out), "must name a folder", "pass a folder, or leave --out out")
