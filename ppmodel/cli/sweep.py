"""ppmodel sweep: compute a grid of points into a file."""

import click

from ppmodel.cli import arguments, text
from ppmodel.cli.commands import command
from ppmodel.errors import EXIT_ALL_REFUSED, counted


@command("sweep")
@click.argument("specification", metavar="SPEC", type=click.Path())
@arguments.option("out", "FILE", "The output; must end in .parquet.", arguments.Output(".parquet"), required=True)
@arguments.workers
@arguments.option(
    "schedule-file files", "FILE", "Your own schedule, in addition to those in SPEC: a generator (.py) or a table "
    "(.csv); may be repeated.", multiple=True,
)  # fmt: skip
@arguments.links
@click.option("--force", is_flag=True, help="Replace the output, or the unfinished parts, of another sweep.")
def sweep_command(specification, out, workers, scheduler, files, links, force):
    """Compute a grid of points, one row each; the same command resumes an interrupted sweep.

    SPEC is a YAML file; copy data/templates/sweep.yaml, which explains the keys.

    Exit codes: 0 the output is complete; 1 it is complete, but every row is refused; 2 the command, the file or the
    cluster is refused, or rows cannot be computed; 130 interrupted.
    """
    from ppmodel.studies.sweep import run_sweep

    summary = run_sweep(specification, out, workers, scheduler, force, schedule_files=files, links=links)
    refused, alike, example = summary.refused, summary.alike, summary.example
    line = f"{summary.out}: {counted(summary.rows, 'row')}, "
    line += "already complete, nothing to do" if summary.computed is None else f"{summary.computed} computed now"
    line += f"; {'every row is' if refused == summary.rows else refused} refused"
    if example:
        line += f", {'all' if alike == refused else alike} like this: {example}" if refused > 1 else f": {example}"
    text.say(line)
    return EXIT_ALL_REFUSED if refused == summary.rows else 0
