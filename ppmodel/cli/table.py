"""ppmodel table: print the idealised table of a schedule, as text or CSV."""

import click

from ppmodel.cli import arguments
from ppmodel.cli.asked import asked_case, given
from ppmodel.cli.commands import command
from ppmodel.cli.text import say
from ppmodel.errors import PPModelError
from ppmodel.schedules.cases import built, size_of

_SLOTS = {
    "backward": "a backward (default 2)", "input_grad": "the gradient of the input (default 1)",
    "weight_grad": "the gradient of the weights (default 1)",
}  # fmt: skip


@command("table")
@click.argument("name", metavar="[NAME|FILE]", required=False)
@arguments.schedule_file
@arguments.sizes
@arguments.schedule_options
@arguments.option("format form", None, "Output format; pytorch is the CSV that torch.distributed.pipelining loads.",
                  arguments.choice(["text", "csv", "pytorch"]), default="text")  # fmt: skip
@arguments.combined(*(
    arguments.option(f"{name.replace('_', '-')}-slots", "N", f"Slots of {what}.", arguments.count())
    for name, what in _SLOTS.items()
))  # fmt: skip
def table_command(name, file, pp, microbatches, form, **options):
    """Print the idealised table of a schedule: ranks x slots, without communication.

    NAME is a schedule, with options as in interleaved-1f1b:chunks=4, or your own file.
    """
    from ppmodel.export import write_table

    slots = given({kind: options.pop(f"{kind}_slots") for kind in _SLOTS})
    for kind, count in slots.items():
        if form == "pytorch":
            option = f"--{kind.replace('_', '-')}-slots"
            raise PPModelError(option, count, "has no effect on PyTorch's format, which has no slots", "leave it out")
    case = asked_case(name, file, options)
    say(write_table(built(case, *size_of(case, pp, microbatches)), form, **slots), newline=False)
