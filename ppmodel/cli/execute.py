"""ppmodel execute: schedules run for real, the fastest first, beside what is predicted for them."""

from functools import partial
from pathlib import Path

import click

from ppmodel.cli import arguments
from ppmodel.cli.commands import command
from ppmodel.cli.replay import CAUSES
from ppmodel.cli.text import aligned, answer, plain, refused_lines, say
from ppmodel.clusters.specs.units import parse_quantity
from ppmodel.errors import EXIT_ALL_REFUSED, PPModelError, counted
from ppmodel.files import write_whole


def _quantity(name, units, example, positive=False):
    """The type of an option that is a number with a unit, or without one in SI units."""
    rule = f"must be a number {'above 0' if positive else 'of 0 or more'}, in {', '.join(filter(None, units))}"
    is_legal = lambda value: value is not None and (value > 0 or not positive)  # noqa: E731
    return arguments.Value(name, partial(parse_quantity, units=units), is_legal, rule, f"write {{option}} {example}")


_some_time = _quantity("TIME", ("s", "ms", "us", ""), "20ms", positive=True)
_any_time = _quantity("TIME", ("s", "ms", "us", ""), "5ms")


@command("execute")
@click.argument("names", metavar="NAME|FILE...", nargs=-1)
@arguments.sizes
@arguments.option("forward", "TIME", "What a stage with 1/S of the model sleeps in a forward, such as 20ms.",
                  _some_time)  # fmt: skip
@arguments.option("backward", "TIME", "The same in a backward.", _some_time)
@arguments.option("input-grad", "TIME", "In the first half of a split backward.", _some_time)
@arguments.option("weight-grad", "TIME", "In its second half.", _some_time)
@arguments.option("model", "NAME|FILE", "Run this model's blocks; with --forward, send messages of their size.")
@arguments.option("message", "BYTES", "Least size of a message, such as 8MB.",
                  _quantity("SIZE", ("B", "GB", "GiB", ""), "65536"))  # fmt: skip
@arguments.option("p2p", "WORD", "How transfers are sent: latency, overlapped, blocking_send, rendezvous, streams.",
                  default="latency", show_default=True)  # fmt: skip
@arguments.option("comm", "TIME", "Seconds by which every transfer takes longer.", _any_time, default=0.0)
@arguments.links
@arguments.option("allreduce", "WORD", "Gradient sums of replicas: excluded, overlapped, blocking.",
                  default="excluded", show_default=True)  # fmt: skip
@arguments.option("reduction", "TIME", "What a gradient all-reduce of 1/S of the model takes at least.", _any_time,
                  default=0.0)  # fmt: skip
@arguments.option("repetitions", "N", "Timed iterations.", arguments.count(1000), default=5, show_default=True)
@arguments.option("device", "WORD", "cpu or cuda.", arguments.choice(("cpu", "cuda")), default="cpu", show_default=True)
@arguments.option("out", "FILE", "Also write the measured operations, for ppmodel replay; one file per schedule.",
                  arguments.Output(".csv"))  # fmt: skip
@arguments.option("trace", "FILE", "Also write a trace of the fastest for Perfetto.", arguments.Output(".json"))
@arguments.plot_option
@arguments.option("write-script", "FILE", "Do not run: write a script for torchrun that needs PyTorch alone.",
                  arguments.Output(".py"))  # fmt: skip
@arguments.csv_file
@arguments.json_option("Print one JSON array with an object for each schedule.")
def execute_command(names, pp, microbatches, out, trace, plot, write_script, csv_file, as_json, message, **given):
    """Run schedules for real, one process per rank, and compare with what is predicted.

    Every rank walks its row of the table: it runs stages that sleep, or blocks of a model, and sends and receives real
    messages; all gradients are compared with those of one process. Links with a delay (--link 1-2:delay=20ms) are
    imitated by their senders. The simulation is given what an operation and a transfer cost here, from a run of their
    own. Needs PyTorch: pip install 'ppmodel[execute]'. On a cluster, the same arguments follow
    torchrun --nnodes 2 --nproc-per-node 8 -m ppmodel.execution.
    """
    from ppmodel.execution.comparison import COLUMNS, execute, script_of
    from ppmodel.export import write_rows, write_trace
    from ppmodel.studies.workers.progress import passing

    if not names:
        raise PPModelError("NAME", None, "is missing", "pass, for example, 1f1b zb-h1 chimera")
    given |= {"schedules": list(names), "pp": pp, "microbatches": microbatches, "message_bytes": message or 0}
    if write_script:
        jobs = []
        execute(**given, runner=lambda job, _: jobs.append(job))
        if not jobs:
            raise PPModelError("NAME", None, "has no schedule that can run at this size", "see ppmodel schedules")
        write_whole(write_script, script_of(jobs[0]), "script")
        ranks = len(jobs[0]["programs"][0]["rows"])
        return say(f"{write_script}: start it with torchrun --nproc-per-node {ranks} {write_script}")
    done = []
    with passing("starting") as show:
        given["on_progress"] = lambda label, number, of: show(f"{number} of {of}: {label}", (number - 1) / of)
        execute(**given, on_result=lambda row, timeline: done.append((row, timeline)))
    if not done:
        return 0
    done.sort(key=lambda result: result[0]["measured_s"] or float("inf"))
    rows, ran = [row for row, _ in done], [(row, timeline) for row, timeline in done if timeline]
    for row, timeline in ran if out else ():
        label = "".join(char if char.isalnum() else "-" for char in row["label"].lower())
        path = Path(out) if len(ran) == 1 else Path(out).with_stem(f"{Path(out).stem}-{label}")
        times = {"start_s": timeline.start_s, "end_s": timeline.end_s}
        frame = timeline.graph.schedule.frame_with(times).dropna()[["rank", "operation", *times]]
        write_rows(str(path), list(frame), frame.to_dict("records"), "--out")
    if trace and ran:
        write_trace(trace, ran[0][1])
    if plot and ran:
        _draw(plot, ran)
    answer(rows, _lines(rows), as_json, csv_file, COLUMNS)
    return 0 if ran else EXIT_ALL_REFUSED


def _draw(path, ran):
    from ppmodel.plot import plot_timelines

    timelines, row = {row["label"]: timeline for row, timeline in ran}, ran[0][0]
    best = f"{row['label']} was the fastest: {1e3 * row['measured_s']:.4g} ms" if len(ran) > 1 else "measured"
    arguments.write_figure(plot_timelines(timelines, best, f"measured on {row['pp']} ranks, p2p = {row['p2p']}"), path)


def _lines(rows):
    ran = [row for row in rows if row["measured_s"] is not None]
    if ran:
        first = ran[0]
        yield (
            f"{counted(first['pp'], 'rank')}, {counted(first['microbatches'], 'microbatch')}, p2p = {first['p2p']}"
            f"{', ' + first['links'] if first['links'] else ''}; beside its work, an operation costs "
            f"{1e3 * first['operation_cost_s']:.2f} ms and a transfer {1e3 * first['transfer_s']:.2f} ms"
        )
        head = ["", "measured (ms)", "from", "to", "simulated", "off", "replayed", "off", "idle", *CAUSES.values(),
                "stored", "in table", "gradients"]  # fmt: skip
        cells = []
        for row in ran:
            measured, times = row["measured_s"], [f"{1e3 * row[f'{name}_s']:.1f}" for name in ("fastest", "slowest")]
            equal = "-" if row["gradients_equal"] is None else "equal" if row["gradients_equal"] else "DIFFER"
            cells.append([
                plain(row["label"]), f"{1e3 * measured:.1f}", *times, f"{1e3 * row['simulated_s']:.1f}",
                f"{row['error']:+z.1%}", f"{1e3 * row['replayed_s']:.1f}", f"{row['replay_error']:+z.1%}",
                *(f"{row[name] / row['replayed_s']:z.1%}" for name in ("idle_s", *CAUSES)),
                f"{row['peak_activations']:.4g}", f"{row['table_peak_activations']:.4g}", equal,
            ])  # fmt: skip
        yield from aligned([head, *cells], right=range(1, len(head)))
    yield from refused_lines(rows)
