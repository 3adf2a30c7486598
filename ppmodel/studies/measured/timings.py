"""Timings that people have: tables of kernels, output of nccl-tests, traces of PyTorch's profiler, the probe's file."""

import re
from collections import Counter
from contextlib import suppress
from functools import partial
from itertools import groupby
from math import isclose, nan, prod
from pathlib import Path
from statistics import median
from typing import NamedTuple

from ppmodel.errors import PPModelError, did_you_mean, shown
from ppmodel.files import csv_lines, parse_json, read_text
from ppmodel.studies.measured.kernel_fits import COLLECTIVES, PASSES

_MOST_BYTES = 2**29
_SMALLEST, LARGEST = 1e-18, 1e18  # below and above any size, time or rate
_MALFORMED = KeyError, IndexError, AttributeError, TypeError, ValueError, OverflowError
_PRECISIONS = {
    "c10::BFloat16": "bf16", "c10::Half": "fp16", "float": "fp32", "c10::Float8_e4m3fn": "fp8",
} | {name: name for name in ("bf16", "fp16", "tf32", "fp32", "fp8")}  # fmt: skip
_BYTES = {"BFloat16": 2, "Half": 2, "Float": 4, "Byte": 1, "Int": 4, "Long": 8, "Double": 8}
_WORDS = {"precision": _PRECISIONS, "kernel": {name: name for name in PASSES}, "op": {op: op for op in COLLECTIVES}}
_DIRECTIONS = {"forward": False, "fwd": False, "backward": True, "bwd": True}
_PRODUCTS = {"aten::mm": 0, "aten::_scaled_mm": 0, "aten::addmm": 1}
_TRACED = {
    "allreduce": "all_reduce", "_allgather_base": "all_gather", "allgather": "all_gather",
    "_reduce_scatter_base": "reduce_scatter", "reduce_scatter": "reduce_scatter", "all_to_all": "alltoall",
    "all_to_allv": "alltoall",
}  # fmt: skip
_PREFIX = re.compile(r"^(?:\[[\d,]+\](?:<\w+>)?:?|\d+:) ?")
_RANK = re.compile(r"^#\s+Rank\s+\d+\b.*?\bon\s+(\S+)\s+device\b")
_STARTS = re.compile(r"^# (?:nThread\b|Collective test starting: (\w+?)_perf\b)")
_ROUNDED = 0.1  # how far two columns that give the same time may be apart
SECONDS = {"latency_us": 1e-6, "time_us": 1e-6, "time_ms": 1e-3, "seconds": 1.0}


class ProductTiming(NamedTuple):
    """A matrix product of m rows, n columns and depth k, and its time."""

    m: float
    n: float
    k: float
    precision: str
    seconds: float


class AttentionTiming(NamedTuple):
    """The rate of fused attention, forward or backward (2.5 times the arithmetic); causal counts half of the scores."""

    keys: float
    is_backward: bool
    flops_per_s: float


class CollectiveTiming(NamedTuple):
    """A collective by its name in nccl-tests, and its time; bytes are the whole tensor's, or a message's."""

    op: str
    gpus: int
    nodes: int
    bytes: float
    seconds: float


class PassTiming(NamedTuple):
    """A pass over memory by its kernel, a key of `PASSES`: the bytes that the model counts for it, and its time."""

    kernel: str
    bytes: float
    seconds: float


class LaunchTiming(NamedTuple):
    """The time that the host takes to launch one phase of a transformer block."""

    seconds: float


_SECTIONS = {
    "products": ProductTiming, "attention": AttentionTiming, "collectives": CollectiveTiming, "passes": PassTiming,
    "host": LaunchTiming,
}  # fmt: skip


class Timings(NamedTuple):
    """The timings of a file.

    Parameters
    ----------
    file : str
        Its name.
    rows : list
        Of the types above.
    device : str
        The processor's name, if known; ``cpu`` for one that runs operations in the launching thread.
    """

    file: str
    rows: list
    device: str = ""


def read_gemm_table(path):
    """Read timings of matrix products.

    Parameters
    ----------
    path : str or Path
        CSV with the columns m, n, k, one of latency_us, time_ms, seconds and tflops, and optionally precision (bf16 if
        missing or empty). In fp8, the time of the product alone.

    Returns
    -------
    Timings

    Raises
    ------
    PPModelError
        With file, line and column of what is missing or wrong.
    """
    rows = []
    for row, where in read_table(path, ("m", "n", "k"), "tflops"):
        seconds = read_seconds(row, where, prod((read_number(row, name, where) for name in "mnk"), start=2))
        complete = {"precision": row.get("precision") or "bf16", "seconds": seconds}
        rows.append(_timing(ProductTiming, row | complete, where))
    return Timings(Path(path).name, rows)


def read_attention_table(path):
    """Read timings of fused attention.

    Parameters
    ----------
    path : str or Path
        CSV with the columns sequence and pass (forward or backward), and either tflops, or batch, heads, head_size,
        causal (true or false) and one of latency_us, time_ms and seconds.

    Returns
    -------
    Timings

    Raises
    ------
    PPModelError
        As in `read_gemm_table`.
    """
    rows = read_table(path, ("sequence", "pass"), "tflops")
    return Timings(Path(path).name, [_attention(row, where) for row, where in rows])


def _attention(row, where):
    keys, is_backward = read_number(row, "sequence", where), _word(row, "pass", _DIRECTIONS, where)
    if row.get("tflops"):
        return AttentionTiming(keys, is_backward, 1e12 * read_number(row, "tflops", where))
    batch, heads, size = (read_number(row, name, where) for name in ("batch", "heads", "head_size"))
    pairs = batch * heads * keys**2 * _word(row, "causal", {"true": 0.5, "false": 1.0}, where)
    flops = (10.0 if is_backward else 4.0) * pairs * size
    return AttentionTiming(keys, is_backward, flops / read_seconds(row, where, flops))


def read_nccl_tests(path, op=None):
    """Read what nccl-tests prints.

    Parameters
    ----------
    path : str or Path
        Its output, of one or several tests; prefixes of mpirun and srun are skipped. GPUs and nodes are counted in the
        lines that begin with ``#  Rank``, and times are those out of place.
    op : str, optional
        The collective, a key of `COLLECTIVES`; must be that of each line ``# Collective test starting``.

    Returns
    -------
    Timings

    Raises
    ------
    PPModelError
        If a line is not understood, its results were wrong, or collective, ranks or timings are missing.
    """
    rows, hosts, columns, asked = [], [], [], op
    for number, text in enumerate(read_text(path, _MOST_BYTES).splitlines(), 1):
        line, where = _PREFIX.sub("", text).strip(), f"{path}:{number}"
        if started := _STARTS.match(line):
            op, hosts = started[1] or op, []
            if asked not in (None, op):
                _refuse("collective", asked, f"is not what was tested: {op}", f"write {op}=FILE, or FILE alone", where)
        elif rank := _RANK.match(line):
            hosts.append(rank[1])
        elif re.match(r"#\s+size\s+count\s", line):
            columns = line.split()[1:]
        elif re.match(r"[1-9]\d*\s+\d+\s", line):
            if op not in COLLECTIVES:
                remedy = did_you_mean(op, COLLECTIVES) or "name it, as in --collectives all_gather=FILE"
                _refuse("collective", op, f"must be one of {', '.join(COLLECTIVES)}", remedy, where)
            nodes = _num_nodes(hosts)
            if len(hosts) < 2 or not nodes:
                rule = "must list two GPUs or more, as many on each node"
                _refuse("# Rank lines", len(hosts), rule, "keep the whole output of the test", where)
            cells = [*zip(columns, line.split(), strict=False)]
            for name, cell in cells:
                if name == "#wrong" and cell not in ("0", "N/A"):
                    _refuse(name, cell, "must be 0", "find out why results were wrong, and test again", where)
            row = dict(reversed(cells))  # of the two halves, the first: out of place
            size, time_us = (read_number(row, name, where) for name in ("size", "time"))
            rows.append(CollectiveTiming(op, len(hosts), nodes, size, 1e-6 * time_us))
    if not rows:
        _refuse("timings", "none", "must be in the output of nccl-tests", "name a file with its lines of sizes", path)
    return Timings(Path(path).name, rows)


def read_trace(path, devices_per_node=1):
    """Read a trace of one step by PyTorch's profiler, recorded with ``record_shapes=True``.

    Parameters
    ----------
    path : str or Path
        As `export_chrome_trace` writes it, ``.json`` or ``.json.gz``.
    devices_per_node : int
        To count the nodes of a collective's ranks.

    Returns
    -------
    Timings
        Of each shape of product, the median time of its kernels (without kernels in the trace, that of the operation);
        of each collective with recorded sizes, the shortest, because others include waiting for other ranks.

    Raises
    ------
    PPModelError
        If it is not such a trace, or no product in it has a shape.
    """
    events = [event for event in read_events(path)[1] if isinstance(event.get("args"), dict)]
    kernels, products, collectives = Counter(), [], []
    launched, called = ([event for event in events if event.get("cat") == name] for name in ("kernel", "cpu_op"))
    for event in launched:
        with suppress(*_MALFORMED):
            seconds = 1e-6 * float(event["dur"])
            kernels[event["args"].get("External id")] += seconds
            collectives += _traced_collective(event["args"], seconds, devices_per_node)
    for event in called:
        with suppress(*_MALFORMED):
            args, first = event["args"], _PRODUCTS[event["name"]]
            (m, k), (_, n) = args["Input Dims"][first : first + 2]
            seconds = kernels[args["External id"]] if kernels else 1e-6 * float(event["dur"])
            if all(_SMALLEST < value < LARGEST for value in (m, n, k, seconds)):
                products.append(ProductTiming(m, n, k, _PRECISIONS[args["Input type"][first]], seconds))
    if not products:
        rule = "must be in the trace, with shapes and kernels"
        _refuse("aten::mm, aten::addmm", "none", rule, "record it with record_shapes=True", path)
    return Timings(Path(path).name, _by_shape(products, median) + _by_shape(collectives, min))


def _num_nodes(hosts):
    """The number of nodes among the hosts of ranks; None if some have more ranks than others."""
    counts = Counter(hosts)
    return len(counts) if len({*counts.values()}) == 1 else None


def _traced_collective(args, seconds, devices_per_node):
    """The collective of a kernel of NCCL's, if its sizes and all its ranks were recorded, as many on each node."""
    op = _TRACED.get(args.get("Collective name"))
    if op is None or not _SMALLEST < seconds < LARGEST:
        return []
    ranks = [int(rank) for rank in args["Process Group Ranks"].strip("[]").split(",")]
    num_bytes = max(args["In msg nelems"], args["Out msg nelems"]) * _BYTES[args["dtype"]]
    nodes = _num_nodes([rank // devices_per_node for rank in ranks])
    is_complete = len(ranks) == args["Group size"] > 1 and nodes is not None and 0 < num_bytes < LARGEST
    return [CollectiveTiming(op, len(ranks), nodes, float(num_bytes), seconds)] if is_complete else []


def _by_shape(rows, pick):
    """One timing for all rows that differ in their seconds alone."""
    groups = groupby(sorted(rows), key=lambda row: row[:-1])
    return [type(rows[0])(*shape, pick([row.seconds for row in group])) for shape, group in groups]


def read_probe(path):
    """Read what ``data/templates/probe.py`` writes.

    Parameters
    ----------
    path : str or Path
        JSON: lists of objects, under products, attention, collectives, passes and host.

    Returns
    -------
    Timings

    Raises
    ------
    PPModelError
        If a list, a key or a number is missing or wrong.
    """
    document, rows = read_document(path), []
    if not isinstance(document, dict) or document.get("probe") != 1:
        _refuse("probe", "missing", "must be 1, as probe.py writes it", "name the file that probe.py wrote", path)
    for name, kind in _SECTIONS.items():
        section = document.get(name, [])
        if not isinstance(section, list) or not all(isinstance(row, dict) for row in section):
            _refuse(name, "no list of objects", "must be as probe.py writes it", "run probe.py again", path)
        read = _attention if kind is AttentionTiming else partial(_timing, kind)
        rows += [read(row, f"{path}: {name} {index}") for index, row in enumerate(section)]
    return Timings(Path(path).name, rows, shown(document.get("device", "")))


def _timing(kind, row, where):
    """A timing, from numbers and words by its fields' names."""
    read = {name: _word(row, name, _WORDS[name], where) if name in _WORDS else read_number(row, name, where)
            for name in kind._fields}  # fmt: skip
    gpus, nodes = read.get("gpus", 2), read.get("nodes", 1)
    if gpus == 1 or gpus % nodes or gpus % 1:
        _refuse("gpus", gpus, f"must be two or more, a multiple of nodes ({nodes:g})", "run probe.py again", where)
    return kind(**read)


def read_table(path, needed, other_time):
    """The rows of a CSV file, each with its place, after a check of its columns: one of `SECONDS`, or another time."""
    lines, times = csv_lines(path, _MOST_BYTES), (*SECONDS, other_time)
    columns, _ = next(lines, ([], ""))
    rows = [(dict.fromkeys(columns, "") | dict(zip(columns, values, strict=False)), where) for values, where in lines]
    if missing := [name for name in needed if name not in columns]:
        rule = f"must have the columns {', '.join(needed)}"
        _refuse("columns", f"without {missing[0]}", rule, "add a header with these names", f"{path}:1")
    if not set(times) & set(columns):
        _refuse("columns", "without a time", f"must have one of {', '.join(times)}", "name the column so", f"{path}:1")
    if not rows:
        _refuse("rows", "none", "must be at least one", "write one row for each timing", path)
    return rows


def read_seconds(row, where, flops=None, **times):
    """The time in a row, under whichever names it has, from the TFLOP/s of `flops`, or in `times` by their columns."""
    given = {name for name, value in row.items() if value not in (None, "")}
    times |= {name: to_s * read_number(row, name, where) for name, to_s in SECONDS.items() if name in given}
    if flops and ("tflops" in given or not times):
        times["tflops"] = flops / (1e12 * read_number(row, "tflops", where))
    times = times or {"seconds": read_number(row, "seconds", where)}
    first, seconds = next(iter(times.items()))
    for name, time_s in times.items():
        if not isclose(seconds, time_s, rel_tol=_ROUNDED):
            _refuse(name, row[name], f"contradicts {first} = {row[first]}", "leave out the wrong column", where)
    return seconds


def read_number(row, name, where, least=_SMALLEST):
    """A number in a row, above `least`."""
    value = row.get(name)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = nan
    if isinstance(value, bool) or not least < number < LARGEST:
        given, rule = "missing" if value is None else repr(value), "must be a number" + " above 0" * (least > 0)
        _refuse(name, given, rule, "write, for example, 12.5", where)
    return number


def _word(row, name, meanings, where):
    """Value of a word in a row; true and false may be those of JSON."""
    word = str(row.get(name, "missing")).strip()
    word = word if word in meanings else word.lower()
    if word not in meanings:
        remedy = did_you_mean(word, meanings) or "correct it"
        _refuse(name, word, f"must be one of {', '.join(meanings)}", remedy, where)
    return meanings[word]


def read_document(path):
    """A JSON document, which may be compressed."""
    text = read_text(path, _MOST_BYTES)
    try:
        return parse_json(text)
    except ValueError as error:
        _refuse("JSON", "unreadable", f"must be JSON ({shown(error)})", "write the file again", path)


def read_events(path):
    """Head and events of a trace in Chrome's format; no events if it is no such trace."""
    document = read_document(path)
    about = document if isinstance(document, dict) else {"traceEvents": document}
    events = about.get("traceEvents")
    return about, [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []


def _refuse(field, value, rule, remedy, where):
    raise PPModelError(field, value, rule, remedy, where=str(where))
