"""ppmodel compare: schedules side by side, the fastest first."""

import click

from ppmodel.cases import cases_of_file, cases_of_text, require_one_each
from ppmodel.cli import arguments
from ppmodel.cli.asked import COSTS, asked_costs, asked_layout, refuse_target
from ppmodel.cli.commands import command
from ppmodel.cli.text import say, say_json
from ppmodel.errors import PPModelError
from ppmodel.layouts import layout_size

EXIT_ALL_REFUSED = 1
_SIZES = "--pp", "--microbatches"


@command("compare")
@click.argument("names", metavar="NAME|FILE...", nargs=-1)
@arguments.schedule_file
@arguments.sizes
@arguments.semantics
@arguments.costs
@arguments.layout
@arguments.json_option("Print one JSON array with an object for each schedule.")
@click.option("--csv", "csv_file", type=click.Path(), metavar="FILE", help="Also write the rows to a CSV file.")
def compare_command(names, file, pp, microbatches, p2p, allreduce, as_json, csv_file, **given):
    """Simulate schedules side by side, and rank them by time.

    A NAME may have options, as in interleaved-1f1b:chunks=4; a FILE is a generator (.py) or a table (.csv). zb-1p and
    zb-2p search for an order that suits the times given. If a schedule is a table and no size is given, the table's
    size applies. All schedules run under one layout (--tp, --dp, ... or --layout); in Python, pp.compare also takes
    lists of layouts. For each schedule you see its time, the idle share of that time, and the memory of its most
    loaded rank.

    Exit codes: 0 there is a ranking; 1 every schedule is refused; 2 the command or a file is refused.
    """
    from ppmodel.cli.ranked import csv_cell, ranked, ranked_text
    from ppmodel.evaluate import compared
    from ppmodel.export import write_rows

    costs = asked_costs({key: given.pop(key) for key in COSTS})
    layout_file = given["layout"]
    layout, not_kept = asked_layout(given, costs, pp)
    if csv_file is not None:
        refuse_target("--csv", csv_file, file, costs.get("model"), costs.get("system"), layout_file, *names)
    cases = _cases(names, file)
    size = _size(cases, pp, microbatches, layout)
    columns, rows = compared(cases, *size, p2p=p2p, allreduce=allreduce, layout=layout, **costs)
    pairs = ranked(rows)
    rows = [{column: row.get(column) for column in columns} for _, row in pairs]
    if csv_file is not None:
        write_rows(csv_file, columns, rows, "--csv", csv_cell)
    say_json(rows) if as_json else say(ranked_text(pairs, not_kept))
    return 0 if any(row["refused"] is None for row in rows) else EXIT_ALL_REFUSED


def _cases(names, file):
    """The schedules named, each once; tables with the same name are distinguished by their files."""
    found = [] if file is None else [(file, case) for case in cases_of_file(file)]
    first = {}
    require_one_each(first, [case for _, case in found])
    for name in names:
        for case in require_one_each(first, cases_of_text(name)):
            same = [place for place, known in found if known == case]
            if not same or (case.source and name not in same):
                found.append((name, case))
    if not found:
        remedy = "pass, for example, 1f1b zb-v, or your own file"
        raise PPModelError("NAME", None, "is missing: there is nothing to compare", remedy)
    labels = [case.label for _, case in found]
    return [
        case._replace(name=f"{case.name} ({place})") if case.source and labels.count(case.label) > 1 else case
        for place, case in found
    ]


def _size(cases, pp, microbatches, layout):
    """The size to compare at: as given, or else the layout's or the tables'."""
    sizes = []
    for place, (option, value) in enumerate(zip(_SIZES, layout_size(layout, pp, microbatches), strict=True)):
        own = sorted({case.size[place] for case in cases if case.size})
        if value is None and len(own) != 1:
            rule = f"is missing, and the tables differ: {' and '.join(map(str, own))}" if own else "is missing"
            raise PPModelError(option, None, rule, f"pass, for example, {option} {own[0] if own else 8}")
        sizes.append(own[0] if value is None else value)
    return tuple(sizes)
