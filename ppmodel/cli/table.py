"""ppmodel table: print the idealised table of a schedule, as text or CSV."""

from ppmodel.cli import arguments, text
from ppmodel.cli.commands import command
from ppmodel.schedules.cases import built, size_of


@command("table")
@arguments.schedule()
@arguments.option("format form", None, "Output format; pytorch is the CSV that torch.distributed.pipelining loads.",
                  arguments.choice(["text", "csv", "pytorch"]), default="text")  # fmt: skip
@arguments.plot_option
def table_command(name, file, pp, microbatches, form, plot, **options):
    """Print the idealised table of a schedule: ranks x slots, without communication.

    NAME is a schedule, with options as in interleaved-1f1b:chunks=4, or your own file.
    """
    from ppmodel.tables import write_table

    case = arguments.asked_case(name, file, options)
    table = built(case, *size_of(case, pp, microbatches))
    if plot is not None:
        arguments.write_figure(table.plot(), plot)
    text.say(write_table(table, form).removesuffix("\n"))
