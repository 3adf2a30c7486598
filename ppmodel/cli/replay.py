"""ppmodel replay: measured operations through a schedule's table, and through those of others."""

import click

from ppmodel.cli import arguments
from ppmodel.cli.commands import command
from ppmodel.cli.text import aligned, answer, plain, refused_lines, size_and_transfers
from ppmodel.errors import PPModelError

CAUSES = {f"{word.replace(' ', '_')}_s": word for word in ("bubble", "slower ranks", "transfers", "head of line")}


@command("replay")
@click.argument("files", metavar="FILE...", nargs=-1)
@arguments.option("schedule", "NAME|FILE", "The schedule that ran, with options as in interleaved-1f1b:chunks=4.")
@arguments.sizes
@arguments.transfers
@arguments.option("against", "NAME|FILE", "Another schedule to compare with; may be repeated.", multiple=True)
@arguments.option("iteration", None, "Measured time of the iteration (default: from FILE).",
                  arguments.seconds("above 0"))  # fmt: skip
@arguments.csv_file
@arguments.plot_option
@arguments.json_option("Print one JSON array with an object for each schedule.")
def replay_command(files, schedule, pp, microbatches, against, iteration, csv_file, plot, as_json, **transfers):
    """Replay the measured operations of one iteration, and show where its time went.

    FILE is a CSV file with the columns rank, operation (1F3, F3, or F for the mean of a rank's forwards) and either
    start_s and end_s, or seconds, time_ms or time_us (of each operation alone, if two share a cell). Or it is a trace
    of all ranks, or one for each rank, whose slices are named as PyTorch's pipelining names them (PP:1F3, Forward 3).
    Without --comm, transfers take as long as gaps between an end and the start that waits for it show, on average.

    Idle time is divided by cause: bubble, what the table costs on equal ranks; slower ranks, what differences between
    ranks add, below 0 if they shorten the run; transfers, what late arrivals add; head of line, what transfers add by
    what they occupy (--p2p). Other schedules are simulated with the mean times of the same operations.
    """
    from ppmodel.schedules.cases import cases_of_text
    from ppmodel.studies.measured.replay import replayed

    for name, value, example in (("FILE", files, "operations.csv"), ("--schedule", schedule, "--schedule 1f1b")):
        if not value:
            raise PPModelError(name, None, "is missing", f"pass, for example, {example}")
    (case, *more_cases), rivals = cases_of_text(schedule), [case for name in against for case in cases_of_text(name)]
    if more_cases:
        rule, remedy = "defines several schedules", "pass a file with the one that ran"
        raise PPModelError("--schedule", schedule, rule, remedy)
    rows = replayed(list(files), case, pp, microbatches, rivals, iteration, transfers)
    if plot is not None:
        from ppmodel.plot import plot_times

        arguments.write_figure(plot_times(rows, CAUSES), plot)
    answer(rows, _lines(rows, transfers["comm"]), as_json, csv_file)


def _lines(rows, comm):
    ran = rows[0]
    yield f"{plain(ran['label'])}: {size_and_transfers(rows)}"
    unknown = ", as FILE shows no gaps between operations; see --comm"
    source = "" if comm is not None else ", as gaps between operations show" if ran["comm"] else unknown
    yield f"transfers           {ran['comm']:.4g} s each{source}"
    if ran["measured_s"] is not None:
        yield f"measured            {ran['measured_s']:.6g} s"
    error = "" if ran["error"] is None else f" ({ran['error']:+z.1%})"
    yield f"replayed            {ran['makespan_s']:.6g} s{error}"
    yield f"idle                {ran['idle_s']:.4g} s, {ran['idle_ratio']:z.1%} of the ranks' time"
    shares = {name: f"{ran[name] / ran['makespan_s']:z.1%}" for name in CAUSES}
    cells = [[f"  {word}", f"{ran[name]:.4g} s", shares[name]] for name, word in CAUSES.items()]
    yield from aligned(cells, right=(1, 2))
    if defined := [row for row in rows if row["refused"] is None][1:]:
        head = ["schedule", "time (s)", "relative", "idle", *CAUSES.values()]
        cells = [
            [plain(row["label"]), f"{row['makespan_s']:.6g}", f"{row['relative']:.3f}", f"{row['idle_ratio']:z.1%}",
             *(f"{row[name] / row['makespan_s']:z.1%}" for name in CAUSES)]
            for row in [ran, *sorted(defined, key=lambda row: row["makespan_s"])]
        ]  # fmt: skip
        yield from aligned([head, *cells], right=range(1, len(head)))
    yield from refused_lines(rows)
