"""ppmodel check: test whether a file is a valid schedule."""

from ppmodel.cli import arguments, text
from ppmodel.cli.commands import command
from ppmodel.errors import counted
from ppmodel.ops import OpKind
from ppmodel.schedules.cases import Case, built, is_file, size_of


@command("check")
@arguments.schedule("[FILE|NAME]")
def check_command(name, file, pp, microbatches, **options):
    """Check your own schedule: every operation occurs once, in its place, and nothing deadlocks.

    FILE is a table, or a generator (.py), which is checked at the size given by --pp and --microbatches.
    """
    from ppmodel import metrics

    if file is None and name is not None and is_file(name):
        name, file = None, name
    if name is None and file is not None and not file.endswith(".py"):
        from ppmodel.tables import read_file

        reading = read_file(file)
        case = Case(reading.schedule.name, (), reading.schedule).with_options(arguments.given(options))
    else:
        reading, case = None, arguments.asked_case(name, file, options)
    schedule = built(case, *size_of(case, pp, microbatches))
    replicas = f", {schedule.num_replicas} replicas" if schedule.num_replicas > 1 else ""
    slices = f" of {schedule.slices} slices" if schedule.slices > 1 else ""
    names = {OpKind.R: "all-reduce", OpKind.G: "gather", OpKind.O: "optimizer step"}
    counts = [(int((schedule.kind == kind).sum()), name) for kind, name in names.items()]
    extras = "".join(f" and {counted(count, name)}" for count, name in counts if count)
    slots, ratio = metrics.table_slots(schedule), metrics.table_bubble_ratio(schedule)
    text.say(
        f"{file or case.label}: a schedule of {int(schedule.computes.sum())} operations{extras} "
        f"on {counted(schedule.num_ranks, 'rank')}, {counted(schedule.num_stages, 'stage')}{replicas}, "
        f"{counted(schedule.num_microbatches, 'microbatch')}{slices}"
    )
    if reading and (reading.pytorch or reading.letters != "pytorch"):
        text.say(str(reading))
    text.say(f"idealised table (backward of two slots): {slots} slots, bubble ratio {ratio:.4f}")
    text.say(f"peak activations by rank: {text.by_rank(metrics.peak_activations(schedule))}")
