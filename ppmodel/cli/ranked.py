"""The rows of a comparison, ranked by time, as text and as CSV cells."""

from itertools import permutations

from ppmodel.cli import text
from ppmodel.clusters.specs.layout import DIMENSIONS, STAGE_GROUPS
from ppmodel.schedules.registry import get, names
from ppmodel.studies.points import PARTS

_TIE = 1e-9
_LEAST = 0.005
_SIZES = (*DIMENSIONS, "microbatch_size", "zero")


def ranked(rows):
    """Sort rows by time, fastest first; ties by least memory; refused rows last.

    Parameters
    ----------
    rows : list of dict
        From `points.compared`.

    Returns
    -------
    list of (int or None, dict)
        Each row with its place, one more than the number of rows that are faster; None if refused.
    """
    defined = sorted((row for row in rows if row["refused"] is None), key=time_of)
    pairs = [(1 + sum(time_of(other) * (1 + _TIE) < time_of(row) for other in defined), row) for row in defined]

    memory = {id(row): row.get("peak_memory_bytes") or row["peak_activations"] for row in defined}
    pairs.sort(key=lambda pair: (pair[0], memory[id(pair[1])], pair[1]["label"]))
    return pairs + [(None, row) for row in rows if row["refused"] is not None]


def time_of(row):
    """The seconds that rows are ranked by: the iteration's with a layout, otherwise the makespan."""
    return row.get("iteration_s", row["makespan_s"])


def reordered(rows, others):
    """The pairs of labels that are in another order in other rows of the same schedules, the faster one there first.

    The first pair is of the fastest there and the fastest here.
    """
    pairs = [pair for pair in zip(rows, others, strict=True) if all(row["refused"] is None for row in pair)]
    places = [
        (time_of(other_a), time_of(b), a["label"], b["label"])
        for (a, other_a), (b, other_b) in permutations(pairs, 2)
        if time_of(b) * (1 + _TIE) < time_of(a) and time_of(other_a) * (1 + _TIE) < time_of(other_b)
    ]
    return [(faster, slower) for *_, faster, slower in sorted(places)]


def ranked_lines(pairs, remark="", deciding=()):
    """Format what ``compare`` prints.

    Parameters
    ----------
    pairs : list of (int or None, dict)
        From `ranked`; all at the same size, under the same semantics.
    remark : str
        What to add about the model, without a layout.
    deciding : sequence of str
        Lines on choices that decide an order.

    Yields
    ------
    str
        One line per schedule: place, label, time, time over the fastest, idle share of the total time, peak
        activations or memory, messages, with a layout the parts of the iteration that differ; then refused schedules,
        each with its reason.
    """
    first = pairs[0][1]
    has_layout, has_model = "tp" in first, "model" in first
    model = f"; {first['model']} on {first['system']}" if has_model else ""
    remark = model if has_layout else f", all-reduce {first['allreduce']}{model}{remark}"
    yield text.size_and_transfers([row for _, row in pairs]) + remark
    if has_model:
        yield f"framework: {first['framework'] or 'as fitted with the system'}"
    if has_layout:
        if first["refused"] is None:
            ends = ""
            if first["fastest_s"] is not None:
                low, high = (first[name] / first["iteration_s"] for name in ("fastest_s", "slowest_s"))
                ends = f"{low:.2f} to {high:.2f} of the time, "
            yield f"range: {ends}{text.range_from(first)}"
        sizes = ", ".join(f"{name} {first[name]}" for name in _SIZES if first[name] is not None)
        yield f"layout: {sizes}"
    defined = [(place, row) for place, row in pairs if place is not None]
    if defined:
        fastest = defined[0][1]
        time, idle = ("iteration (s)", "idle") if has_layout else ("time (s)", "bubble")
        memory = "peak activations"
        if fastest.get("peak_memory_bytes") is not None:
            memory = f"memory (GiB of {text.gibibytes(fastest['memory_capacity_bytes'])})"
        parts = _parts([row for _, row in defined], time_of(fastest)) if has_layout else {}
        heading = ["", "schedule", time, "relative", idle, memory, "messages"]
        cells = [[*heading, *(f"{name} (s)" for name in parts.values())]]
        for place, row in defined:
            cells.append([*_cells(place, row, time_of(fastest)), *(f"{row[name]:.4g}" for name in parts)])
        yield from text.aligned(cells, right=(0, 2, 3, 4, *range(6, len(cells[0]))))
        yield from deciding
        if any(row.get("fit") in ("tight", "may not fit") for _, row in defined):
            yield f"tight, may not fit: {text.margin_text()}"
        if uneven := [row for _, row in defined if text.unevenness(row)]:
            busier = ", ".join(f"{row['label']} by {row['slowest_over_mean'] - 1:.1%}" for row in uneven)
            yield f"uneven stages: the most loaded rank is busier than the mean: {busier}"
        if has_layout and (not_run := _not_run([row for _, row in defined])):
            yield f"{first['framework'] or 'public code'} does not run, as modelled here (behind it, what has it):"
            yield from (f"  {label}: {frameworks}" for label, frameworks in not_run.items())
    yield from text.refused_lines([row for _, row in pairs])


def _parts(rows, fastest_s):
    """The headings of the parts of an iteration in which rows differ by a share of the fastest."""
    seconds = {name: [row[name] for row in rows] for name in PARTS}
    return {name: PARTS[name] for name in PARTS if max(seconds[name]) - min(seconds[name]) > _LEAST * fastest_s}


def _not_run(rows):
    """The labels of rows with a layout whose framework does not run their schedules, with the code that has these."""
    from ppmodel.clusters.specs.available import frameworks_of, runs_as_modelled

    frameworks = {}
    for row in rows:
        alone = row["ep"] > 1 and all(row[name] == 1 for name in STAGE_GROUPS)
        is_ours = row["schedule"] in names() and get(row["schedule"]).file is None  # users run their own themselves
        if is_ours and not runs_as_modelled(row["schedule"], row["framework"], alone, row["pp"]):
            frameworks[row["label"]] = frameworks_of(row["schedule"])
    return frameworks


def _cells(place, row, fastest_s):
    seconds, memory = time_of(row), f"{row['peak_activations']:.4g}"
    if (size := row.get("peak_memory_bytes")) is not None:
        memory = f"{text.gibibytes(size)} {text.fit_text(row)}".rstrip()
    return [
        str(place), text.plain(row["label"]), f"{seconds:.6g}", f"{seconds / fastest_s if fastest_s else 1.0:.3f}",
        f"{row['bubble_ratio_total']:z.1%}", memory, str(row["messages"]),
    ]  # fmt: skip
