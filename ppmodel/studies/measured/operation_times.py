"""Measured times of a pipeline's operations: rows of a CSV file or a frame, or traces of one iteration."""

import re
from typing import NamedTuple

import numpy as np

from ppmodel.errors import PPModelError
from ppmodel.given import to_builtin
from ppmodel.ops import OpKind
from ppmodel.studies.measured.timings import LARGEST, read_events, read_number, read_seconds, read_table

_MOST_RANKS = 4096
_NAME = re.compile(r"(?:PP:)?(\d{1,6})?(Forward|Backward|F|B|I|W)[ .]?(\d{1,7})?(?:@\d{1,4})?", re.ASCII)
_AFTERWARDS = re.compile(r"\d{1,9}[RO](@\d{1,4})?")
"""Reductions of gradients and optimizer steps, which are no part of the pipeline."""

_RANK = re.compile(r"rank (\d{1,6})", re.ASCII)
_COLUMNS = ("rank", "operation")


class OperationTime(NamedTuple):
    """Time of one operation, or of one kind of operation on average.

    Attributes
    ----------
    rank : int
    kind : OpKind
        F, B, I or W.
    stage, microbatch : int or None
        None where the source does not say: the stage if a rank has only one, the microbatch of a mean.
    seconds, start_s : float
        Its duration, and its start, in seconds on the clock of all ranks; NaN where the source has durations alone.
    where : str
        File and line or slice, or the row of a frame.
    """

    rank: int
    kind: OpKind
    stage: int | None
    microbatch: int | None
    seconds: float
    start_s: float
    where: str


def read_operation_times(sources):
    """Read the times of the operations of one iteration.

    Parameters
    ----------
    sources : str, Path, DataFrame or list of them
        CSV files (``.csv``) or frames with the columns ``rank`` and ``operation`` (``1F3`` with the stage, ``F3``, or
        ``F`` for the mean of a rank's forwards), and either ``start_s`` and ``end_s`` or one of time_us, time_ms and
        seconds, which of operations in one cell are each one's own; what `Run.to_frame` returns is such a frame. Or
        traces, of all ranks or one file for each, in which operations are named like this, as PyTorch's pipelining and
        Megatron-LM's zero-bubble schedules do (``PP:1F3``, ``Forward 3``, ``F3``).

    Returns
    -------
    list of OperationTime
        In a source with W and without I, B is the gradient of the input alone (Zero Bubble's letters), so I here.

    Raises
    ------
    PPModelError
        With file, line and column of what is missing or wrong.
    """
    named = []
    for place, source in enumerate(sources if isinstance(sources, list | tuple) else [sources]):
        is_table = hasattr(source, "itertuples") or str(source).endswith(".csv")
        named += _of_table(source) if is_table else _of_trace(source, place)
    if not named:
        rule, remedy = "must be in the source", "name rows or slices 1F3, F3 or Forward 3, as PyTorch's pipelining does"
        where = None if hasattr(sources, "itertuples") else str(sources)
        raise PPModelError("operations", "none", rule, remedy, where=where)
    letters, rows, first_rows = {match[2][0] for _, match, *_ in named}, [], {}
    backward = OpKind.I if "W" in letters and "I" not in letters else OpKind.B
    for rank, match, *time in named:
        kind = backward if match[2][0] == "B" else OpKind[match[2][0]]
        stage, microbatch = (None if digits is None else int(digits) for digits in (match[1], match[3]))
        rows.append(OperationTime(rank, kind, stage, microbatch, *time))
    for row in rows:
        if (first := first_rows.setdefault(row[:4], row)) is not row:
            name = f"rank {row.rank} {row.kind.name}{'' if row.microbatch is None else row.microbatch}"
            rule = f"is there twice, first in {first.where}"
            raise PPModelError("operation", name, rule, "keep one iteration, and one row for each", where=row.where)
    return rows


def _of_table(source):
    """Rank, matched name, seconds, start and place of the rows of a CSV file, or of a frame."""
    if hasattr(source, "itertuples"):
        if missing := [name for name in _COLUMNS if name not in source]:
            raise PPModelError("columns", f"without {missing[0]}", "must be in the frame", "name the column so")
        records = enumerate(source.to_dict("records"))
        table = [({name: to_builtin(value) for name, value in row.items()}, f"row {at}") for at, row in records]
    else:
        table = read_table(source, _COLUMNS, "end_s")
    rows = []
    for row, where in table:
        match = _NAME.fullmatch(str(row["operation"]).strip())
        if match is None:
            if _AFTERWARDS.fullmatch(str(row["operation"])):
                continue
            remedy = "write stage, kind and microbatch, as in 1F3; or F for the mean of all"
            raise PPModelError("operation", row["operation"], "must be F, B, I or W", remedy, where=where)
        rank = str(row["rank"]).strip()
        if not (rank.isascii() and rank.isdecimal() and int(rank) < _MOST_RANKS):
            rule = f"must be a whole number from 0 to {_MOST_RANKS - 1}"
            raise PPModelError("rank", row["rank"], rule, "count ranks from 0", where=where)
        rows.append((int(rank), match, *_span(row, where), where))
    return rows


def _span(row, where):
    """Seconds and start of a row; NaN without a start."""
    if row.get("end_s") in (None, ""):
        return read_seconds(row, where), np.nan
    start, end = (read_number(row, name, where, -LARGEST) for name in ("start_s", "end_s"))
    if not 0 < end - start < LARGEST:
        raise PPModelError("end_s", end, "must be after start_s", "use one clock for a rank", where=where)
    length_s = float(f"{end - start:.10g}")  # as the clock's digits end: equal operations are equal
    return read_seconds(row, where, end_s=length_s), start


def _of_trace(path, place):
    """As `_of_table`, of a trace in Chrome's format: slices named like operations; the GPU's if it has any."""
    about, events = read_events(path)
    ranks = about.get("distributedInfo")
    default = ranks["rank"] if isinstance(ranks, dict) and isinstance(ranks.get("rank"), int) else place
    tracks = {}
    for event in events:
        args = event.get("args") if event.get("name") == "thread_name" else None
        if isinstance(args, dict) and (match := _RANK.fullmatch(str(args.get("name")))):
            tracks[_track(event)] = int(match[1])
    slices = [(event, match) for event in events if event.get("ph") == "X"
              and (match := _NAME.fullmatch(str(event.get("name")))) and match[3]]  # fmt: skip
    if tracks:  # ours: a message has the name of what made it
        slices = [pair for pair in slices if _track(pair[0]) in tracks]
    of_gpu = [pair for pair in slices if pair[0].get("cat") == "gpu_user_annotation"]
    rows = []
    for event, match in of_gpu or slices:
        where, rank = f"{path}: {match[0]}", tracks.get(_track(event), default)
        seconds, start = read_number(event, "dur", where), read_number(event, "ts", where, -LARGEST)
        rows.append((rank, match, 1e-6 * seconds, 1e-6 * start, where))
    return rows


def _track(event):
    return str(event.get("pid")), str(event.get("tid"))
