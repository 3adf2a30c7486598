"""ppmodel compare: schedules side by side, the fastest first."""

import click

from ppmodel.cli import arguments, text
from ppmodel.cli.commands import command
from ppmodel.errors import EXIT_ALL_REFUSED, PPModelError, counted
from ppmodel.schedules.cases import cases_of_text, require_one_each


@command("compare")
@click.argument("names", metavar="NAME|FILE...", nargs=-1)
@arguments.schedule_file
@arguments.sizes
@arguments.run
@arguments.json_option("Print one JSON array with an object for each schedule.")
@arguments.csv_file
@arguments.plot_option
def compare_command(names, file, pp, microbatches, p2p, allreduce, as_json, csv_file, plot, **given):
    """Simulate schedules side by side, and rank them by time.

    A NAME may have options, as in interleaved-1f1b:chunks=4; a FILE is a generator (.py) or a table (.csv). zb-1p and
    zb-2p search for an order that suits the times given. Without --pp and --microbatches, a table's size applies to
    all. All schedules run under one layout (--layout, or --tp, --dp and so on); in Python, pp.compare also takes lists
    of layouts. For each schedule you see its time, the idle share of that time, and the memory of its most loaded rank.

    Exit codes: 0 there is a ranking; 1 every schedule is refused; 2 the command or a file is refused.
    """
    from ppmodel.cli.ranked import ranked, ranked_lines, reordered
    from ppmodel.clusters.specs import load_model, load_system
    from ppmodel.studies.points import compared, resolve, rows_of

    costs = arguments.asked_costs(given)
    cases = _cases([*([] if file is None else [file]), *names])
    columns, rows = compared(cases, pp, microbatches, p2p=p2p, allreduce=allreduce, **costs)
    for name in ("pp", "microbatches"):  # rows of several sizes cannot be ranked
        if len(counts := sorted({row[name] for row in rows})) > 1:
            rule = f"is missing, and the tables differ: {' and '.join(map(str, counts))}"
            raise PPModelError(f"--{name}", None, rule, f"pass, for example, --{name} {counts[0]}")
    pairs, remark, other = ranked(rows), "", "overlapped" if p2p is None else None
    deciding = []
    if rows[0].get("links") and not as_json:
        sent_otherwise = rows_of(resolve(cases, pp, microbatches, p2p=other, allreduce=allreduce, **costs).points())
        way = f"under {other}" if other else "as the framework sends"
        deciding += _decides("the way of sending", way, reordered(rows, sent_otherwise))
    if "tp" in columns and costs.get("slicing") is None and not as_json:
        points = resolve(cases, pp, microbatches, p2p=p2p, allreduce=allreduce, **costs | {"slicing": "work"}).points()
        defined = [point for point, row in zip(points, rows, strict=True) if row["refused"] is None]
        if any(point.table.slices > 1 for point in defined):
            deciding += _decides("slicing", "with --slicing work", reordered(rows, rows_of(points)))
    rows = [{column: row.get(column) for column in columns} for _, row in pairs]
    if plot is not None and any(row["refused"] is None for row in rows):
        from ppmodel.plot import plot_times

        arguments.write_figure(plot_times(rows), plot)
    if "model" in costs and "tp" not in columns:  # a microbatch is the model's share of its global batch
        sequences = load_model(costs["model"]).global_batch // rows[0]["microbatches"]
        remark = f"; microbatches of {counted(sequences, 'sequence')}"
    peaks = text.peaks_text(load_system(costs["system"])) if "system" in costs else ""
    lines = [*ranked_lines(pairs, remark, deciding), *[f"peaks: {peaks}"] * bool(peaks)]
    text.answer(rows, lines, as_json, csv_file, columns)
    return 0 if any(row["refused"] is None for row in rows) else EXIT_ALL_REFUSED


def _decides(choice, otherwise, places):
    """A line on a choice that decides an order: the first of the pairs of schedules that another choice reverses."""
    if not places:
        return []
    (faster, slower), more = places[0], len(places) - 1
    others = f"; so with {counted(more, 'other pair')}" * bool(more)
    return [f"{choice} decides: {otherwise}, {faster} is faster than {slower}{others}"]


def _cases(names):
    """The schedules named, each once; tables with the same name are distinguished by their files."""
    named = dict.fromkeys((name if case.source else "", case) for name in names for case in cases_of_text(name))
    if not named:
        remedy = "pass, for example, 1f1b zb-v, or your own file"
        raise PPModelError("NAME", None, "is missing: there is nothing to compare", remedy)
    labels = [case.label for case in require_one_each({}, [case for _, case in named])]
    return [
        case._replace(name=f"{case.name} ({file})") if file and labels.count(case.label) > 1 else case
        for file, case in named
    ]
