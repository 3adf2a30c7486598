"""ppmodel reproduce: run all notebooks and build the book."""

import click

from ppbook.commands.options import cell_limit, out_folder
from ppmodel.cli import arguments
from ppmodel.cli.commands import command
from ppmodel.cli.text import say


@command("reproduce")
@click.option("--system", metavar="NAME|FILE", help="Your system, in addition to the paper's.")
@click.option("--model", metavar="NAME|FILE", help="Your model, instead of the paper's.")
@click.option("--memory-limit", metavar="SIZE", help='Memory that a rank may use, such as "64 GiB" (default: all).')
@click.option("--gpus", type=arguments.count(2**20), metavar="N", help="GPUs of the plan that your book begins with.")
@click.option("--global-batch", type=arguments.count(2**24), metavar="N", help="Sequences of its iterations.")
@out_folder("Where to put the built book (default book/_build, or a folder in it).")
@click.option(
    "--jobs", type=arguments.count(), default=2, metavar="N", help="Number of notebooks to run at once (default 2)."
)
@cell_limit
def reproduce_command(out, jobs, cell_limit, **given):
    """Run every notebook and build the book; for your own system or model, a separate book."""
    from ppbook.build import reproduce

    page = reproduce(out=out, jobs=jobs, time_limit=cell_limit, **given)
    say(f"the book is {page}")
