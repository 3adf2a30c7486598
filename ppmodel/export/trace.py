"""A simulated run as a trace in Chrome's trace-event format, for Perfetto and chrome://tracing.

There are three groups. *Ranks*: one track per rank, with one slice per cell of the table, and two more tracks for
copies if the rank offloads activations to its host. *Links*: one track per directed link that carries messages, with a
slice for each message from departure to arrival. *Activations*: what each rank holds, in microbatches on 1/S of the
model and, if a model is given, in GiB. If a layout has collectives, each rank is also a process with two threads, one
for the kernels and one for the collectives of its cells. An arrow leads from the sending operation, along its message,
to the one that needs it. A link with several messages in flight has further tracks, because viewers drop overlapping
slices.

Times are microseconds with three decimals: start and end are rounded to whole nanoseconds, and durations are their
difference. Format: "Trace Event Format", the Chromium project.
"""

import json
from itertools import pairwise

import numpy as np

from ppmodel import __version__
from ppmodel.errors import PPModelError
from ppmodel.export.files import checked_target, write_whole
from ppmodel.metrics import activation_bytes, activations_in_use, offloaded_levels
from ppmodel.ops import NO_MICROBATCH, OpKind

_RANKS, _LINKS, _ACTIVATIONS = 1, 2, 3
_GROUPS = {_RANKS: "ranks", _LINKS: "links", _ACTIVATIONS: "activations"}
_NAMES = "rail_response", "rail_idle", "startup", "rail_load", "generic_work", "good"
_COLOURS = dict(zip("FBIWRO", _NAMES, strict=True))
"""Colour names that chrome://tracing knows; Perfetto chooses colours by the name of the slice."""
MAX_EVENTS = 10**6
"""Viewers can hardly open larger traces."""
_MAX_NS = 2**53
_STREAMS = "compute", "communication"
_FIELDS = {
    "compute_s": ("", None), "comm_s": (" collective", "R"), "weight_s": (" weight gradient", "W"),
    "weight_comm_s": (" gathers its input", "R"),
}  # fmt: skip
"""The suffix for each field of a unit, and the kind whose colour it has."""
_FIRST_PROCESS = 1001
_FIRST_THREAD = 1001  # Perfetto shows it after the name of a track, where it must not look like a rank


def write_trace(path, timeline, stages=None, streams=None, **about):
    """Write a timeline as a trace file, completely or not at all.

    Parameters
    ----------
    path : str or Path
        Usually ends in ``.json``; its folder must exist. An existing file is replaced.
    timeline, stages, streams
        As in `trace_events`.
    **about : str or number
        Further entries of the file's ``otherData``, such as the model's name.

    Returns
    -------
    int
        Number of events written.

    Raises
    ------
    PPModelError
        If the file cannot be written, and as for `trace_events`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> from ppmodel.simulation import compile_graph, run_graph
    >>> schedule = build("gpipe", 2, 1)
    >>> timeline = run_graph(compile_graph(schedule), uniform_costs(schedule, 1, 2, 0.5))
    >>> with TemporaryDirectory() as folder:
    ...     write_trace(Path(folder) / "gpipe.json", timeline)
    32
    """
    path = checked_target(path, "trace")
    events = trace_events(timeline, stages, streams)
    head = {"displayTimeUnit": "ms", "otherData": {**_about(timeline), **about}}
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    text = json.dumps(head, ensure_ascii=False)[:-1] + ', "traceEvents": [\n' + lines + "\n]}\n"
    write_whole(path, text, "trace")
    return len(events)


def _about(timeline):
    graph, schedule = timeline.graph, timeline.graph.schedule
    return {
        "program": f"ppmodel {__version__}", "schedule": schedule.name, "ranks": schedule.num_ranks,
        "stages": schedule.num_stages, "replicas": schedule.num_replicas, "microbatches": schedule.num_microbatches,
        "p2p": graph.p2p, "allreduce": graph.allreduce, "makespan_s": timeline.makespan_s,
        "activations": "microbatches on 1/S of the model",
    }  # fmt: skip


def trace_events(timeline, stages=None, streams=None):
    """Compute the events of a trace: names and order of the tracks, slices, arrows and counters.

    Parameters
    ----------
    timeline : Timeline
        From `simulation.run_graph`.
    stages : Stages, optional
        From `costs.stages`; with them, activations are also counted in GiB.
    streams : callable, optional
        From `costs.cell_streams_of`; with it, each rank has two streams. If jitter or a factor makes a cell longer or
        shorter than its units, they are scaled evenly.

    Returns
    -------
    list of dict
        In a reproducible order.

    Raises
    ------
    PPModelError
        If there are more than a million events, or they last longer than 2^53 nanoseconds (104 days). If streams would
        exceed the limit, they are left out, and a label on the ranks says so.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> from ppmodel.simulation import compile_graph, run_graph
    >>> schedule = build("gpipe", 1, 1)
    >>> events = trace_events(run_graph(compile_graph(schedule), uniform_costs(schedule, 1, 2)))
    >>> [(event["name"], event["ts"], event["dur"]) for event in events if event["ph"] == "X"]
    [('0F0', 0.0, 1000000.0), ('0B0', 1000000.0, 2000000.0)]
    """
    schedule = timeline.graph.schedule
    at_most = _refuse_too_much(timeline, 1 + (stages is not None))
    spans = (_nanoseconds(timeline.start_s), _nanoseconds(timeline.end_s))
    thread, names = _rank_tracks(timeline.graph)
    first_link = _FIRST_THREAD + len(names)
    messages, links = _messages(timeline, first_link)
    events = [event for group, name in _GROUPS.items() for event in _named("process", group, 0, name, group)]
    copies, ways = _copies(timeline, first_link + len(links))
    named = (_RANKS, names, _FIRST_THREAD), (_LINKS, links, first_link), (_RANKS, ways, first_link + len(links))
    for group, tracks, first in named:
        for number, name in enumerate(tracks, start=first):
            events += _named("thread", group, number, name, number)
    events += _operations(schedule, thread, *spans)
    events += [_message(schedule, *message) for message in messages]
    events += copies
    events += _arrows(schedule, thread, *spans, messages)
    events += _counters(schedule, *spans, "holds", "microbatches", activations_in_use(schedule))
    if stages is not None and timeline.copies:
        events += _moments(offloaded_levels(timeline, *activation_bytes(stages)), 2**30)
    elif stages is not None:
        gibibytes = [level / 2**30 for level in activations_in_use(schedule, *activation_bytes(stages))]
        events += _counters(schedule, *spans, "memory", "GiB", gibibytes)
    if streams is not None:
        events += _stream_events(schedule, *spans, streams, first_link + len(links), MAX_EVENTS - at_most)
    return events


def _refuse_too_much(timeline, num_counters):
    """An upper bound on the number of events."""
    schedule = timeline.graph.schedule
    at_most = schedule.num_operations * (1 + 2 * num_counters) + 4 * int(schedule.dependencies.remote.sum())
    if at_most > MAX_EVENTS:
        rule = f"must be at most {MAX_EVENTS}; viewers can hardly open more"
        raise PPModelError("events of the trace", at_most, rule, "trace fewer stages or microbatches")
    if timeline.makespan_s * 1e9 > _MAX_NS:
        rule = f"must be at most {_MAX_NS / 1e9:.0f} s, to be exact in nanoseconds"
        raise PPModelError("makespan", f"{timeline.makespan_s:g} s", rule, "use shorter durations")
    return at_most


def _nanoseconds(seconds):
    """Whole nanoseconds; -1 if there is no time."""
    return np.where(np.isnan(seconds), -1, np.rint(np.nan_to_num(seconds) * 1e9)).astype(np.int64)


def _us(nanoseconds):
    return int(nanoseconds) / 1000


# ---- names ---------------------------------------------------------------------------------------


def _named(what, group, thread, name, place):
    """Name a group or track, and set its position."""
    for key, value in (("name", name), ("sort_index", place)):
        yield {"ph": "M", "name": f"{what}_{key}", "pid": group, "tid": thread, "args": {key: value}}


def _rank_tracks(graph):
    """The track of each operation, and the names of tracks: ranks, and all-reduces that overlap their computation."""
    schedule = graph.schedule
    stream = schedule.rank.astype(np.int64)
    stream[graph.index] = graph.stream
    beside = np.unique(stream[stream >= schedule.num_ranks])
    names = [f"rank {rank}" for rank in range(schedule.num_ranks)]
    names += [f"rank {rank - schedule.num_ranks}, all-reduce" for rank in beside.tolist()]
    aside = schedule.num_ranks + np.searchsorted(beside, stream)
    return _FIRST_THREAD + np.where(stream < schedule.num_ranks, stream, aside), names


# ---- slices --------------------------------------------------------------------------------------


def _slice(name, group, thread, begin, end, **more):
    times = {"ts": _us(begin), "dur": _us(end - begin)}
    return {"ph": "X", "name": name, "pid": group, "tid": int(thread), **times, **more}


def _operations(schedule, thread, begin, end):
    """One slice per cell; a pair's slice names both operations."""
    for first, ops in _cells(schedule, begin):
        name, kind = "&".join(map(str, ops)), "&".join(op.kind.name for op in ops)
        args = _args(ops[0]) if len(ops) == 1 else {str(op): _args(op) for op in ops}
        colour = {"cname": _COLOURS[ops[0].kind.name]} if len(ops) == 1 else {}
        yield _slice(name, _RANKS, thread[first], begin[first], end[first], cat=kind, **colour, args=args)


def _cells(schedule, begin):
    """The first operation of each cell, and all its operations, except excluded all-reduces."""
    bounds = [*np.flatnonzero(~schedule.joined).tolist(), schedule.num_operations]
    for first, last in pairwise(bounds):
        if begin[first] >= 0:
            yield first, [schedule.op(index) for index in range(first, last)]


def _args(op):
    microbatch = {} if op.microbatch == NO_MICROBATCH else {"microbatch": op.microbatch}
    return {"kind": op.kind.name, "stage": op.stage, **microbatch, "replica": op.replica}


def _messages(timeline, first_thread):
    """Messages as (producer, consumer, track, start, end), by link and time, and the names of the links' tracks.

    A message takes the first track of its link on which the previous message has arrived when it leaves.
    """
    schedule, dependencies = timeline.graph.schedule, timeline.graph.schedule.dependencies
    consumer = np.flatnonzero(dependencies.remote)
    producer = dependencies.source[consumer]
    begin, end = (_nanoseconds(column[producer]) for column in (timeline.sent_s, timeline.arrived_s))
    ways = schedule.rank[producer], schedule.rank[consumer]
    names, messages, way, free, base = [], [], None, [], 0
    for index in np.lexsort((producer, begin, *ways[::-1])).tolist():
        here = (int(ways[0][index]), int(ways[1][index]))
        if here != way:
            way, free, base = here, [], len(names)
        lane = next((lane for lane, until in enumerate(free) if until <= begin[index]), len(free))
        if lane == len(free):
            free.append(0)
            names.append(f"{here[0]} -> {here[1]}" + (f", track {lane + 1}" if lane else ""))
        free[lane] = end[index]
        found = (producer[index], consumer[index], first_thread + base + lane, begin[index], end[index])
        messages.append(tuple(map(int, found)))
    return messages, names


def _message(schedule, producer, consumer, thread, begin, end):
    sends, needs = schedule.op(producer), schedule.op(consumer)
    what = "activations" if sends.kind == OpKind.F else "gradients"
    args = {"result of": str(sends), "needed by": str(needs), "microbatch": sends.microbatch}
    return _slice(str(sends), _LINKS, thread, begin, end, cat=what, args=args)


def _copies(timeline, first_thread):
    """One slice per copy to the host and back, and the names of the tracks, two for each rank that has any."""
    if timeline.copies is None:
        return [], []
    schedule, (out, gone, back, there) = timeline.graph.schedule, _nanoseconds(timeline.copied_s)
    copied = np.flatnonzero(out >= 0)
    ranks = np.unique(schedule.rank[copied]).tolist()
    names = [f"rank {rank}, copies {way}" for rank in ranks for way in ("out", "back")]
    slices = []
    for index in copied.tolist():
        op, thread = schedule.op(index), first_thread + 2 * ranks.index(schedule.rank[index])
        for way, times in enumerate(((out, gone), (back, there))):
            begin, end = (int(column[index]) for column in times)
            slices.append(_slice(str(op), _RANKS, thread + way, begin, end, cat="copy", args=_args(op)))
    return slices, names


def _arrows(schedule, thread, begin, end, messages):
    """Three events per message: in its sender, just before it leaves or the cell ends; on departure; where needed."""
    first = np.flatnonzero(~schedule.joined)[schedule.cell]  # a cell's slice is where its first operation is
    for number, (producer, consumer, link, leaves, _) in enumerate(messages):
        tail, head = first[producer], first[consumer]
        same = {"name": "transfer", "cat": "transfer", "id": number}
        at = max(begin[tail], min(end[tail], leaves) - 1)
        yield {"ph": "s", **same, "pid": _RANKS, "tid": int(thread[tail]), "ts": _us(at)}
        yield {"ph": "t", **same, "pid": _LINKS, "tid": link, "ts": _us(leaves)}
        yield {"ph": "f", "bp": "e", **same, "pid": _RANKS, "tid": int(thread[head]), "ts": _us(begin[head])}


# ---- streams -------------------------------------------------------------------------------------


def _stream_events(schedule, begin, end, streams, first_thread, at_most):
    """For each rank, a process with tracks for kernels and collectives; a note if there would be too many events."""
    cells = [
        (first, ops, streams(tuple((op.kind, op.stage) for op in ops)))
        for first, ops in _cells(schedule, begin)
        if ops[0].kind < OpKind.R
    ]
    if sum(len(stream) for _, _, found in cells for stream in found) > at_most:
        labels = {"labels": f"streams left out: more than {MAX_EVENTS} events"}
        return [{"ph": "M", "name": "process_labels", "pid": _RANKS, "tid": 0, "args": labels}]
    events = []
    for rank in range(schedule.num_ranks):
        process = _FIRST_PROCESS + rank
        events += _named("process", process, 0, f"rank {rank}, two streams", process)
        for number, name in enumerate(_STREAMS, start=first_thread + len(_STREAMS) * rank):
            events += _named("thread", process, number, name, number)
    for first, ops, found in cells:
        rank = int(schedule.rank[first])
        where = _FIRST_PROCESS + rank, first_thread + len(_STREAMS) * rank
        events += _stream_slices(ops, int(begin[first]), int(end[first]), found, *where)
    return events


def _stream_slices(ops, begin, end, found, process, first_thread):
    """The slices of a cell, from start to end."""
    pace = (end - begin) / found.end_s if found.end_s else 0.0
    for place, stream in enumerate(found):
        for one in stream:
            op, span = ops[one.operation], (begin + round(at * pace) for at in (one.start_s, one.end_s))
            what, kind = _FIELDS[one.field]
            colour = _COLOURS[kind or op.kind.name]
            more = {"cat": _STREAMS[place], "cname": colour, "args": {**_args(op), "unit": one.unit}}
            yield _slice(f"{op}{what}", process, first_thread + place, *span, **more)


# ---- counters ------------------------------------------------------------------------------------


def _counters(schedule, begin, end, name, unit, levels):
    """What each rank holds, one counter per rank."""
    first = np.flatnonzero(~schedule.joined)
    first = first[begin[first] >= 0]
    columns = (begin[first], end[first], *(level[schedule.cell[first]] for level in levels))
    bounds = np.searchsorted(schedule.rank[first], np.arange(schedule.num_ranks + 1)).tolist()
    for rank, (start, stop) in enumerate(pairwise(bounds)):
        same = {"ph": "C", "name": f"rank {rank} {name}", "pid": _ACTIVATIONS, "tid": 0}
        for time, level in _steps(*(column[start:stop].tolist() for column in columns)):
            yield {**same, "ts": _us(time), "args": {unit: round(level, 9)}}


def _moments(levels, unit_bytes):
    """The memory that each rank holds while it offloads."""
    for rank, (times, held) in enumerate(levels):
        same = {"ph": "C", "name": f"rank {rank} memory", "pid": _ACTIVATIONS, "tid": 0}
        yield {**same, "ts": 0.0, "args": {"GiB": 0.0}}
        for time, level in zip(_nanoseconds(times).tolist(), (held / unit_bytes).tolist(), strict=True):
            yield {**same, "ts": _us(time), "args": {"GiB": round(max(level, 0.0), 9)}}


def _steps(begin, end, during, after):
    """Times and levels of a counter: 0 at the start, then a value whenever it changes.

    What a cell releases is combined with what the next one takes, if that starts immediately.
    """
    level = 0.0
    yield 0, level
    for place in range(len(begin)):
        if during[place] != level:
            level = during[place]
            yield begin[place], level
        if begin[place + 1 : place + 2] != [end[place]] and after[place] != level:
            level = after[place]
            yield end[place], level
