"""Text for the terminal: without control characters, with readable numbers and columns."""

import json
import re
import sys
from itertools import accumulate
from shutil import get_terminal_size

import click

from ppmodel.errors import counted

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text, keep=""):
    """Escape control characters and lone surrogates, so that data cannot control the terminal.

    >>> plain("1F1B\\x1b[2J")
    '1F1B\\\\x1b[2J'
    """
    return _CONTROL.sub(lambda match: match[0] if match[0] in keep else repr(match[0])[1:-1], str(text))


MANY, _FIRST = 16, 8


_PROSE = re.compile(r"( +|\S+ {2,})?\S+( \S+)*")
"""A line without columns, but for a word before a sentence."""


def _room():
    """The columns of the terminal; what goes elsewhere has all that it needs."""
    return get_terminal_size().columns if sys.stdout and sys.stdout.isatty() else sys.maxsize


def say(lines):
    """Print a text, or lines of text, of which none is printed unless all can be computed; a terminal wraps prose."""
    click.echo(plain(lines if isinstance(lines, str) else "\n".join(map(_wrapped, lines)), keep="\n"))


def _wrapped(line):
    prose = len(line) > _room() and _PROSE.fullmatch(line)
    return click.wrap_text(line, _room(), "", " " * len(prose[1] or "")) if prose else line


def say_json(value):
    """Print JSON; undefined numbers become null."""
    say(json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None)))


def answer(rows, lines, as_json, csv_file=None, columns=None):
    """Print rows as JSON, or else their lines, and write them as CSV if a file is named."""
    if csv_file is not None:
        from ppmodel.export import write_rows

        write_rows(csv_file, columns or list(rows[0]), rows, "--csv")
    say_json(rows) if as_json else say(lines)


def refused_lines(rows):
    """The rows that are refused, and why; nothing if there are none."""
    refused = [f"  {plain(row['label'])}: {plain(row['refused'])}" for row in rows if row["refused"] is not None]
    return ["refused:", *refused] if refused else []


def by_rank(values):
    """One number per rank, to four digits; if there are many, only the largest, the smallest and the first few.

    >>> by_rank([4, 2.5]), by_rank(range(20, 0, -1))
    ('4 2.5', 'largest 20, smallest 1; from rank 0 on 20 19 18 17 16 15 14 13 ...')
    """
    numbers = [f"{value:.4g}" for value in values]
    if len(numbers) <= MANY:
        return " ".join(numbers)
    few = f"largest {max(values):.4g}, smallest {min(values):.4g}"
    return f"{few}; from rank 0 on {' '.join(numbers[:_FIRST])} ..."


def gibibytes(size):
    """Bytes in GiB, to four digits, or as an integer from 10,000 GiB on.

    >>> gibibytes(2**30 * 1.5), gibibytes(2**30 * 11320.4)
    ('1.5', '11320')
    """
    size = size / 2**30
    return f"{size:.0f}" if 1e4 <= size < 1e9 else f"{size:.4g}"


def in_words(number):
    """A large number in thousands, millions and so on, to three digits.

    >>> in_words(28_640_000_000), in_words(9_500_000), in_words(15e12), in_words(12)
    ('28.6 billion', '9.5 million', '15 trillion', '12')
    """
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if number >= size:
            return f"{number / size:.3g} {word}"
    return f"{number:.3g}"


def aligned(rows, right=()):
    """Lines of rows of texts, aligned in columns; those whose index is in `right` are right-aligned.

    In a terminal, columns that do not fit a line follow in a second block, which repeats the first column.

    >>> aligned([["GPipe", "33"], ["1F1B", "9"]], right=[1])
    ['GPipe  33', '1F1B    9']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [str.rjust if place in right else str.ljust for place in range(len(widths))]
    gap = "  " if sum(widths) + 2 * len(widths) - 2 <= _room() else " "
    fitting = max(2, sum(end <= _room() + 1 for end in accumulate(width + 1 for width in widths)))
    if fitting < len(widths):
        below, rest = [[row[0], *row[fitting:]] for row in rows], [place - fitting + 1 for place in right]
        rest = [place for place in rest if place > 0] + [0] * (0 in right)
        return [*aligned([row[:fitting] for row in rows], right), "", *aligned(below, rest)]
    return [gap.join(side(*cell) for side, *cell in zip(sides, row, widths, strict=True)).rstrip() for row in rows]


def table(cells, texts):
    """Lines of a table whose first row has headings; what all rows say alike is said once, above; texts align left.

    >>> table([["schedule", "tp", "s"], ["GPipe", "8", "33"], ["1F1B", "8", "9"]], ["schedule"])
    ['every row: tp 8', 'schedule   s', 'GPipe     33', '1F1B       9']
    """
    columns = [*zip(*cells, strict=True)]
    alike = [column for column in columns if len(set(column[1:])) == 1 < len(cells) - 1]
    said = ", ".join(head if head == cell else f"{head} {cell}" for head, cell, *_ in alike if cell)
    differ = [column for column in columns if column not in alike]
    right = [place for place, (head, *_) in enumerate(differ) if head not in texts]
    return [f"every row: {said}"] * bool(said) + aligned([*zip(*differ, strict=True)], right)


def size_and_transfers(rows):
    """The size of a pipeline, and what transfers occupy in its rows.

    >>> size = {"pp": 4, "microbatches": 8, "links": "0-1:delay=1"}
    >>> size_and_transfers([size | {"p2p": "rendezvous", "label": "1F1B"}, size | {"p2p": "streams", "label": "ZB-H1"}])
    '4 ranks, 8 microbatches; transfers rendezvous (1F1B), streams (ZB-H1), links 0-1:delay=1'
    """
    row, labels = rows[0], {}
    for each in rows:
        labels.setdefault(each["p2p"], []).append(each["label"])
    words = ", ".join(f"{word} ({', '.join(names)})" if len(labels) > 1 else word for word, names in labels.items())
    size = f"{counted(row['pp'], 'rank')}, {counted(row['microbatches'], 'microbatch')}"
    return f"{size}; transfers {words}" + (f", links {row['links']}" if row.get("links") else "")


_UNEVEN = 1.02


def size_text(model):
    """The parameters of a model, which show a slip in its file.

    >>> from ppmodel.clusters.specs import load_model
    >>> size_text(load_model("mixtral_8x7b"))
    '46.7 billion parameters, 12.9 billion active'
    """
    from ppmodel.clusters.costs import parameters

    count = parameters(model)
    active = f", {in_words(count.active)} active" if model.experts else ""
    return f"{in_words(count.total)} parameters{active}"


def network_text(system, members="GPUs"):
    """The bandwidths of a system in both units, which show a slip in its file.

    >>> from ppmodel.clusters.specs import load_system
    >>> network_text(load_system("h100"))
    '50 GB/s (400 Gbit/s) between nodes, 450 GB/s inside'
    """
    bandwidth, nodes = system.network_bandwidth_bytes_per_s, system.nodes
    inside = f", {nodes.node_bandwidth_bytes_per_s / 1e9:.4g} GB/s inside" if nodes else ""
    ends = "nodes" if nodes else members
    return f"{bandwidth / 1e9:.4g} GB/s ({bandwidth / 125e6:.4g} Gbit/s) between {ends}{inside}"


def peaks_text(system):
    """What a system of peaks alone does not say, and the packaged one that does; empty for one that says it.

    >>> from ppmodel.clusters.specs import load_system
    >>> peaks_text(load_system("h100"))
    ''
    """
    if system.kernels is not None and system.collectives is not None:
        return ""
    from ppmodel.clusters.specs.system import similar_system

    name = similar_system(system)
    remedy = f"; {name} has them ('like: {name}' in a file of yours)" if name else ""
    rule = "not what kernels and collectives attain: times may be up to 30 % off, mostly too short"
    return f"{system.name} gives peaks, {rule}{remedy}"


def unevenness(row):
    """How much busier the most loaded rank is than the mean, if by more than 2 %; otherwise an empty string.

    Examples
    --------
    >>> unevenness({"slowest_over_mean": 1.2}), unevenness({"slowest_over_mean": 1.01}), unevenness({})
    ('the most loaded rank is 20.0% busier than the mean', '', '')
    """
    ratio = row.get("slowest_over_mean") or 1.0
    return f"the most loaded rank is {ratio - 1:.1%} busier than the mean" if ratio > _UNEVEN else ""


def fit_text(row):
    """Whether a row's layout fits, in a word.

    Without a layout much of the memory is not counted: only what exceeds a GPU is said not to fit.
    """
    if "fit" in row:
        return row["fit"]
    return "does not fit" if row["peak_memory_bytes"] > row["memory_capacity_bytes"] else ""


def framework_text(system):
    """The framework of a run, or that under which its system was fitted, if the system says so."""
    framework = system.framework
    return framework.label if framework.name else f"{framework.profile}, as {system.name} was fitted".removeprefix(", ")


def range_text(row):
    """Between which times nine of ten measured runs of a row's kind were; empty if that is not known."""
    low, high = row["fastest_s"], row["slowest_s"]
    return "" if low is None or low != low else f" (nine of ten: {low:.4g} to {high:.4g} s)"


def mfu_text(row):
    """The share of the GPUs' peak that a row attains, under both counts of attention scores.

    >>> mfu_text({"model_flops_utilization": 0.482, "causal_flops_utilization": 0.451})
    'MFU 48.2% (45.1% without masked scores)'
    """
    whole, causal = (row[f"{name}_flops_utilization"] for name in ("model", "causal"))
    return f"MFU {whole:.1%} ({causal:.1%} without masked scores)"


def range_from(row):
    """Which measured runs a row's range is from, or why it has none."""
    is_known = row["fastest_s"] is not None and row["fastest_s"] == row["fastest_s"]
    return f"{'nine of ten of such runs, by' if is_known else 'none:'} {row['range_from']}"


def margin_text():
    """By how much predictions of memory are off, where a row is within that of a GPU's capacity."""
    from ppmodel.studies.measured import memory_margin

    return f"nine of ten predictions of memory are off by at most {memory_margin():.0%}"
