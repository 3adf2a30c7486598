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
from collections import defaultdict
from itertools import pairwise, starmap

import numpy as np

from ppmodel import __version__
from ppmodel.clusters.memory import activation_bytes
from ppmodel.files import write_whole
from ppmodel.metrics import activations_in_use, offloaded_levels
from ppmodel.ops import NO_MICROBATCH, WHOLE, OpKind
from ppmodel.tables.kinds import KINDS

_RANKS, _LINKS, _ACTIVATIONS = 1, 2, 3
_GROUPS = {_RANKS: "ranks", _LINKS: "links", _ACTIVATIONS: "activations"}
_STREAMS = "compute", "communication"
_FIELDS = {
    "compute_s": ("", None), "comm_s": (" collective", OpKind.R), "weight_s": (" weight gradient", OpKind.W),
    "weight_comm_s": (" gathers its input", OpKind.R),
}  # fmt: skip
"""The suffix for each field of a unit, and the kind whose colour it has."""
_FIRST = 1001
"""The first thread, and process of a rank: Perfetto shows it after a track's name; it must not look like a rank."""


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
        If the file cannot be written.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from ppmodel import build
    >>> from ppmodel.simulation import uniform_costs
    >>> from ppmodel.simulation import compile_graph, run_graph
    >>> schedule = build("gpipe", 2, 1)
    >>> timeline = run_graph(compile_graph(schedule), uniform_costs(schedule, 1, 2, 0.5))
    >>> with TemporaryDirectory() as folder:
    ...     write_trace(Path(folder) / "gpipe.json", timeline)
    32
    """
    events = trace_events(timeline, stages, streams)
    graph, schedule = timeline.graph, timeline.graph.schedule
    facts = {
        "program": f"ppmodel {__version__}", "schedule": schedule.name, "ranks": schedule.num_ranks,
        "stages": schedule.num_stages, "replicas": schedule.num_replicas, "microbatches": schedule.num_microbatches,
        "p2p": graph.p2p, "allreduce": graph.allreduce, "makespan_s": timeline.makespan_s,
        "activations": "microbatches on 1/S of the model",
    }  # fmt: skip
    head = json.dumps({"displayTimeUnit": "ms", "otherData": facts | about}, ensure_ascii=False)
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    write_whole(path, f'{head[:-1]}, "traceEvents": [\n{lines}\n]}}\n', "trace")
    return len(events)


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

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.simulation import uniform_costs
    >>> from ppmodel.simulation import compile_graph, run_graph
    >>> schedule = build("gpipe", 1, 1)
    >>> events = trace_events(run_graph(compile_graph(schedule), uniform_costs(schedule, 1, 2)))
    >>> [(event["name"], event["ts"], event["dur"]) for event in events if event["ph"] == "X"]
    [('0F0', 0.0, 1000000.0), ('0B0', 1000000.0, 2000000.0)]
    """
    graph, schedule, is_run = timeline.graph, timeline.graph.schedule, timeline.graph.is_operation
    begin, end = spans = (_nanoseconds(timeline.start_s), _nanoseconds(timeline.end_s))
    stream = schedule.rank.astype(np.int64)
    stream[graph.index[is_run]] = graph.stream[is_run]  # the ranks, then collectives that overlap their computing
    ranks, events = [f"rank {rank}" for rank in range(schedule.num_ranks)], _Events()
    beside = "collectives" if schedule.gathers else "all-reduce"
    tracks = np.array([*ranks, *(f"{rank}, {beside}" for rank in ranks)])[stream].tolist()
    for group, name in _GROUPS.items():
        events.name("process", {"pid": group, "tid": 0}, name, group)
    for rank in ranks:
        events.track(_RANKS, rank)
    for first, ops in _cells(schedule, begin):  # one slice per cell; that of a pair names both operations
        name, kind = "&".join(map(str, ops)), "&".join(op.kind.name for op in ops)
        args = _args(ops[0]) if len(ops) == 1 else {str(op): _args(op) for op in ops}
        colour = {"cname": KINDS[ops[0].kind].traced} if len(ops) == 1 else {}
        events.slice(_RANKS, tracks[first], name, (begin[first], end[first]), cat=kind, **colour, args=args)
    _add_messages(events, timeline, tracks, begin, end)
    copied = np.full((4, 0), -1) if timeline.copies is None else _nanoseconds(timeline.copied_s)
    for index in np.flatnonzero(copied[0] >= 0).tolist():
        op, rank = schedule.op(index), ranks[schedule.rank[index]]
        for way, span in zip(("out", "back"), copied[:, index].reshape(2, 2), strict=True):
            events.slice(_RANKS, f"{rank}, copies {way}", str(op), span, cat="copy", args=_args(op))
    counters = {"holds": ("microbatches", 1, _levels(schedule, *spans, activations_in_use(schedule)))}
    if stages is not None:
        kept = activation_bytes(stages)
        levels = _levels(schedule, *spans, activations_in_use(schedule, *kept, None, stages.shard_bytes))
        if timeline.copies:
            held = offloaded_levels(timeline, *kept, stages.shard_bytes)
            levels = ((_nanoseconds(times), np.maximum(level, 0)) for times, level in held)
        counters["memory"] = "GiB", 2**30, levels
    for name, (unit, size, of_ranks) in counters.items():
        for rank, (times, levels) in enumerate(of_ranks):
            for time, level in zip([0, *times.tolist()], [0.0, *(levels / size).tolist()], strict=True):
                place = {"pid": _ACTIVATIONS, "tid": 0, "ts": time / 1000}
                events.append({"ph": "C", "name": f"rank {rank} {name}", **place, "args": {unit: round(level, 9)}})
    if streams is not None:
        _add_streams(events, schedule, *spans, streams)
    return list(events)


def _nanoseconds(seconds):
    """Whole nanoseconds; -1 if there is no time."""
    return np.where(np.isnan(seconds), -1, np.rint(np.nan_to_num(seconds) * 1e9)).astype(np.int64)


class _Events(list):
    """Events; the tracks of their processes are numbered and named as they are first used."""

    def __init__(self):
        self._tracks = {}

    def name(self, what, where, name, place):
        """Name a process or a thread, and set its position."""
        for key, value in (("name", name), ("sort_index", place)):
            self.append({"ph": "M", "name": f"{what}_{key}", **where, "args": {key: value}})

    def track(self, process, name):
        """Where a track is."""
        if (process, name) not in self._tracks:
            where = self._tracks[process, name] = {"pid": process, "tid": _FIRST + len(self._tracks)}
            self.name("thread", where, name, where["tid"])
        return self._tracks[process, name]

    def slice(self, process, track, name, span, **fields):
        """Add a slice to a track, from a begin to an end in nanoseconds."""
        begin, end = map(int, span)
        place = {**self.track(process, track), "ts": begin / 1000, "dur": (end - begin) / 1000}
        self.append({"ph": "X", "name": name, **place, **fields})


def _cells(schedule, begin):
    """The first operation of each cell, and all its operations, except excluded all-reduces."""
    bounds = [*np.flatnonzero(~schedule.joined).tolist(), schedule.num_operations]
    for first, last in pairwise(bounds):
        if begin[first] >= 0:
            yield first, [schedule.op(index) for index in range(first, last)]


def _args(op):
    microbatch = {} if op.microbatch == NO_MICROBATCH else {"microbatch": op.microbatch}
    part = {} if op.slice == WHOLE else {"slice": op.slice}
    return {"kind": op.kind.name, "stage": op.stage, **microbatch, **part, "replica": op.replica}


def _add_messages(events, timeline, tracks, begin, end):
    """Add the messages by link and time, each with an arrow.

    A message takes the first track of its link on which the previous message has arrived when it leaves. Its arrow has
    three events: in its sender, just before it leaves or the cell ends; on departure; where it is needed.
    """
    schedule, dependencies = timeline.graph.schedule, timeline.graph.schedule.dependencies
    consumers = np.flatnonzero(dependencies.remote)
    producers = dependencies.source[consumers]
    departures, arrivals = (_nanoseconds(times[producers]) for times in (timeline.sent_s, timeline.arrived_s))
    senders, receivers = schedule.rank[producers], schedule.rank[consumers]
    first_of_cell = np.flatnonzero(~schedule.joined)[schedule.cell]  # a cell's slice is where its first operation is
    messages = np.stack([senders, receivers, departures, producers, consumers, arrivals], axis=1).tolist()
    free_of = defaultdict(list)
    for number, (sender, receiver, departure, producer, consumer, arrival) in enumerate(sorted(messages)):
        free = free_of[sender, receiver]
        lane = next((lane for lane, until in enumerate(free) if until <= departure), len(free))
        free[lane : lane + 1] = [arrival]
        link = f"{sender} -> {receiver}" + (f", track {lane + 1}" if lane else "")
        result, needed_by = schedule.op(producer), schedule.op(consumer)
        args = {"result of": str(result), "needed by": str(needed_by), "microbatch": result.microbatch}
        kind = "activations" if result.kind == OpKind.F else "gradients"
        events.slice(_LINKS, link, str(result), (departure, arrival), cat=kind, args=args)
        tail, head = first_of_cell[producer], first_of_cell[consumer]
        leaves = max(begin[tail], min(end[tail], departure) - 1)
        for phase, process, track, time in (
            ({"ph": "s"}, _RANKS, tracks[tail], leaves), ({"ph": "t"}, _LINKS, link, departure),
            ({"ph": "f", "bp": "e"}, _RANKS, tracks[head], begin[head]),
        ):  # fmt: skip
            arrow = {**phase, "name": "transfer", "cat": "transfer", "id": number}
            events.append({**arrow, **events.track(process, track), "ts": int(time) / 1000})


def _add_streams(events, schedule, begin, end, streams):
    """Add a process with tracks for kernels and collectives of each rank."""
    for process in range(_FIRST, _FIRST + schedule.num_ranks):
        events.name("process", {"pid": process, "tid": 0}, f"rank {process - _FIRST}, two streams", process)
    for first, ops in ((first, ops) for first, ops in _cells(schedule, begin) if ops[0].kind < OpKind.R):
        pair = streams(tuple((op.kind, op.stage) for op in ops))
        process, start = _FIRST + int(schedule.rank[first]), int(begin[first])
        pace = (int(end[first]) - start) / pair.end_s if pair.end_s else 0.0
        for track, units in zip(_STREAMS, pair, strict=True):
            for unit in units:
                op, span = ops[unit.operation], [start + round(time * pace) for time in (unit.start_s, unit.end_s)]
                suffix, kind = _FIELDS[unit.field]
                fields = {"cname": KINDS[kind or op.kind].traced, "args": {**_args(op), "unit": unit.unit}}
                events.slice(process, track, f"{op}{suffix}", span, cat=track, **fields)


def _levels(schedule, begin, end, levels):
    """What each rank has during its cells and after each: the times at which that changes, and the new values.

    What a cell releases is combined with what the next one takes, if that starts immediately.
    """
    first = np.flatnonzero(~schedule.joined)
    first = first[(begin[first] >= 0) & (schedule.kind[first] < OpKind.G)]
    during, after = (level[schedule.cell[first]] for level in levels)
    bounds = np.searchsorted(schedule.rank[first], np.arange(schedule.num_ranks + 1)).tolist()
    for cells in starmap(slice, pairwise(bounds)):
        times = np.stack([begin[first[cells]], end[first[cells]]], axis=1).ravel()
        values = np.stack([during[cells], after[cells]], axis=1).ravel().astype(float)
        kept = np.ones(len(times), bool)
        kept[1:-1:2] = times[1:-1:2] != times[2::2]
        times, values = times[kept], values[kept]
        changed = np.diff(values, prepend=0.0) != 0
        yield times[changed], values[changed]
