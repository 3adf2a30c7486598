"""The rows of a comparison, ranked by time, as text and as CSV cells."""

from ppmodel.cli.text import TIGHT, counted, gibibytes, plain, uneven_text
from ppmodel.cli.text import columns as aligned

_TIE = 1e-9
_FORMULA = "=+-@\t\r"
_SIZES = ("tp", "cp", "ep", "dp", "microbatch_size", "zero")


def ranked(rows):
    """Sort rows by time, fastest first; ties by least memory; refused rows last.

    Parameters
    ----------
    rows : list of dict
        From `evaluate.compared`.

    Returns
    -------
    list of (int or None, dict)
        Each row with its place, which equally fast rows share; None if refused.
    """
    good = sorted((row for row in rows if row["refused"] is None), key=time_of)
    places = []
    for number, row in enumerate(good, start=1):
        tied = places and time_of(row) <= time_of(good[number - 2]) * (1 + _TIE)
        places.append(places[-1] if tied else number)
    pairs = sorted(zip(places, good, strict=True), key=lambda pair: (pair[0], *_held(pair[1])))
    return pairs + [(None, row) for row in rows if row["refused"] is not None]


def time_of(row):
    """The seconds that rows are ranked by: the iteration's with a layout, otherwise the makespan."""
    return row.get("iteration_s", row["makespan_s"])


def _held(row):
    return row.get("peak_memory_bytes") or row["peak_activations"], row["label"]


def ranked_text(pairs, not_kept=""):
    """Format what ``compare`` prints.

    Parameters
    ----------
    pairs : list of (int or None, dict)
        From `ranked`; all at the same size, under the same semantics.
    not_kept : str
        What to add about the layout.

    Returns
    -------
    str
        One line per schedule: place, label, time, time over the fastest, idle share of the total time, peak
        activations or memory, messages; then refused schedules, each with its reason.
    """
    first = pairs[0][1]
    head = f"{counted(first['pp'], 'rank')}, {counted(first['microbatches'], 'microbatch')}"
    head += f"; transfers {first['p2p']}" + ("" if "tp" in first else f", all-reduce {first['allreduce']}")
    lines = [head + (f"; {first['model']} on {first['system']}" if "model" in first else "")]
    if "tp" in first:
        lines.append("layout: " + ", ".join(f"{name} {first[name]}" for name in _SIZES) + not_kept)
    good = [(place, row) for place, row in pairs if place is not None]
    if good:
        time, idle = ("iteration (s)", "idle") if "tp" in first else ("time (s)", "bubble")
        heading = ["", "schedule", time, "relative", idle, _memory_heading(good[0][1]), "messages"]
        best = time_of(good[0][1])
        lines.append(aligned([heading, *(_cells(place, row, best) for place, row in good)], right=(0, 2, 3, 4, 6)))
    if any(_is_tight(row) for _, row in good):
        lines.append(_tight_text())
    uneven = [f"  {row['label']}: {uneven_text(row)}" for _, row in good if uneven_text(row)]
    if uneven:
        lines += ["uneven stages:", *uneven]
    if len(good) < len(pairs):
        lines += ["refused:", *(f"  {row['label']}: {row['refused']}" for _, row in pairs[len(good) :])]
    return "\n".join(lines)


def _cells(place, row, best):
    time = time_of(row)
    return [
        str(place), plain(row["label"]), f"{time:.6g}", f"{time / best if best else 1.0:.3f}",
        f"{row['bubble_ratio_total']:z.1%}", _memory(row), str(row["messages"]),
    ]  # fmt: skip


def _memory_heading(row):
    if row.get("peak_memory_bytes") is None:
        return "peak activations"
    return f"memory (GiB of {gibibytes(row['memory_capacity_bytes'])})"


def _memory(row):
    if row.get("peak_memory_bytes") is None:
        return f"{row['peak_activations']:.4g}"
    held, room = row["peak_memory_bytes"], row["memory_capacity_bytes"]
    return f"{gibibytes(held)}{' does not fit' if held > room else ' tight' if _is_tight(row) else ''}"


def _is_tight(row):
    """Whether a layout fits by little. Without a layout nothing is said: much of the memory is not counted then."""
    if "tp" not in row:
        return False
    from ppmodel.measured import is_tight

    return is_tight(row["peak_memory_bytes"], row["memory_capacity_bytes"])


def _tight_text():
    from ppmodel.measured import memory_errors

    return f"tight: {TIGHT} ({max(memory_errors().values()):.0%})"


def csv_cell(value):
    """Format a value for a CSV file: text that a spreadsheet would take for a formula gets an apostrophe in front.

    Examples
    --------
    >>> csv_cell("=1+1"), csv_cell(-1)
    ("'=1+1", -1)
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(tuple(_FORMULA)) else value
