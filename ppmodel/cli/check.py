"""ppmodel check: test whether a file is a valid schedule."""

import click

from ppmodel.cli import arguments
from ppmodel.cli.asked import asked_case, given
from ppmodel.cli.commands import command
from ppmodel.cli.text import by_rank, say
from ppmodel.errors import counted
from ppmodel.ops import OpKind
from ppmodel.schedules.cases import Case, built, is_file, size_of


@command("check")
@click.argument("name", metavar="[FILE|NAME]", required=False)
@arguments.schedule_file
@arguments.sizes
@arguments.schedule_options
def check_command(name, file, pp, microbatches, **options):
    """Check your own schedule: every operation occurs once, in its place, and nothing deadlocks.

    FILE is a table, or a generator (.py), which is checked at the size given by --pp and --microbatches.
    """
    from ppmodel import metrics

    if file is None and name is not None and is_file(name):
        name, file = None, name
    if name is None and file is not None and not file.endswith(".py"):
        from ppmodel.export import read_file

        reading = read_file(file)
        case = Case(reading.schedule.name, (), reading.schedule).with_options(given(options))
    else:
        reading, case = None, asked_case(name, file, options)
    schedule = built(case, *size_of(case, pp, microbatches))
    replicas = f", {schedule.num_replicas} replicas" if schedule.num_replicas > 1 else ""
    sums = int((schedule.kind == OpKind.R).sum())
    others = [(sums, "all-reduce"), (len(schedule.steps), "optimizer step")]
    extras = "".join(f" and {counted(count, name)}" for count, name in others if count)
    lines = [
        f"{file or case.label}: a schedule of {int((schedule.kind < OpKind.R).sum())} operations{extras} "
        f"on {counted(schedule.num_ranks, 'rank')}, {counted(schedule.num_stages, 'stage')}{replicas}, "
        f"{counted(schedule.num_microbatches, 'microbatch')}"
    ]
    if reading and (reading.pytorch or reading.letters != "pytorch"):
        lines.append(str(reading))
    lines += [
        f"idealised table (backward of two slots): {metrics.table_slots(schedule)} slots, "
        f"bubble ratio {metrics.table_bubble_ratio(schedule):.4f}",
        f"peak activations by rank: {by_rank(metrics.peak_activations(schedule))}",
    ]
    say("\n".join(lines))
