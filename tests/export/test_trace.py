"""Traces: the format is kept, and slices, arrows and counters say what the timeline says."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from strategies import allreduces, cases, p2ps, random_cases

from ppmodel import build
from ppmodel.clusters.costs import cell_streams_of, model_costs, stages
from ppmodel.clusters.costs.units import Unit, cell_streams
from ppmodel.clusters.memory import memory
from ppmodel.clusters.specs import LayoutSpec, load_model, load_system
from ppmodel.export import trace_events, write_trace
from ppmodel.metrics import peak_activations
from ppmodel.ops import OpKind
from ppmodel.simulation import OpCosts, compile_graph, run_graph, uniform_costs
from ppmodel.tables import Schedule

SCHEMA = jsonschema.Draft202012Validator(
    json.loads((Path(__file__).parents[1] / "golden" / "trace_event_format.json").read_text())
)
any_case = cases(max_stages=4, max_microbatches=6) | random_cases()


def ns(us):
    return round(us * 1000)


def timeline_of(case, p2p, allreduce="excluded"):
    schedule, costs = case
    return run_graph(compile_graph(schedule, p2p, allreduce), costs)


def of(events, *phases):
    return [event for event in events if event["ph"] in phases]


def tracks(events):
    """Slices by the names of their group and their track."""
    names = {(e["name"], e["pid"], e["tid"]): e["args"].get("name") for e in of(events, "M")}
    found = defaultdict(list)
    for event in of(events, "X"):
        group = names["process_name", event["pid"], 0]
        found[group, names["thread_name", event["pid"], event["tid"]]].append(event)
    return found


@given(case=any_case, p2p=p2ps, allreduce=allreduces)
def test_traces_keep_to_the_format(case, p2p, allreduce):
    """Every event has the fields that the format asks of its kind, and no others."""
    events = trace_events(timeline_of(case, p2p, allreduce))
    SCHEMA.validate({"traceEvents": json.loads(json.dumps(events))})


@given(case=any_case, p2p=p2ps, allreduce=allreduces)
def test_slices_of_a_track_do_not_overlap(case, p2p, allreduce):
    """On ranks and on links, to the nanosecond; viewers drop slices that do."""
    for slices in tracks(trace_events(timeline_of(case, p2p, allreduce))).values():
        slices.sort(key=lambda event: (event["ts"], event["dur"]))
        for event, following in pairwise(slices):
            assert ns(event["ts"]) + ns(event["dur"]) <= ns(following["ts"])


@given(case=any_case, p2p=p2ps, allreduce=allreduces)
def test_every_cell_is_a_slice_of_its_rank(case, p2p, allreduce):
    """By name, with begin and end of the timeline; sums that run beside have a track beside."""
    timeline = timeline_of(case, p2p, allreduce)
    schedule = timeline.graph.schedule
    expected = defaultdict(list)
    for index in np.flatnonzero(~schedule.joined & ~np.isnan(timeline.start_s)).tolist():
        cell = np.flatnonzero(schedule.cell == schedule.cell[index])
        beside = schedule.kind[index] in ([OpKind.R, OpKind.G] if allreduce.startswith("overlapped") else [OpKind.G])
        name = "collectives" if schedule.gathers else "all-reduce"
        track = f"rank {schedule.rank[index]}" + (f", {name}" if beside else "")
        times = (round(timeline.start_s[index] * 1e9), round(timeline.end_s[index] * 1e9))
        expected["ranks", track].append(("&".join(str(schedule.op(op)) for op in cell), *times))
    found = {
        key: [(event["name"], ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])) for event in slices]
        for key, slices in tracks(trace_events(timeline)).items()
        if key[0] == "ranks"
    }
    assert found == expected


@given(case=any_case, p2p=p2ps)
def test_every_message_has_a_slice_and_an_arrow(case, p2p):
    """From the operation that sends, over its link while it is under way, to the one that needs it."""
    timeline = timeline_of(case, p2p)
    schedule, dependencies = timeline.graph.schedule, timeline.graph.schedule.dependencies
    start, end, sent, arrived = (
        np.rint(column * 1e9) for column in (timeline.start_s, timeline.end_s, timeline.sent_s, timeline.arrived_s)
    )
    expected_slices, expected_arrows = [], []
    for consumer in np.flatnonzero(dependencies.remote).tolist():
        producer = int(dependencies.source[consumer])
        ends = (str(schedule.op(producer)), str(schedule.op(consumer)))
        source, target = int(schedule.rank[producer]), int(schedule.rank[consumer])
        leaves = max(start[producer], end[producer] - 1)  # within the slice, in its last nanosecond
        expected_slices.append((*ends, f"{source} -> {target}", sent[producer], arrived[producer]))
        expected_arrows.append(
            (f"rank {source}", leaves, f"{source} -> {target}", sent[producer], f"rank {target}", start[consumer])
        )
    events = trace_events(timeline)
    slices = [
        (*list(e["args"].values())[:2], track.partition(",")[0], ns(e["ts"]), ns(e["ts"]) + ns(e["dur"]))
        for (group, track), found in tracks(events).items()
        for e in found
        if group == "links"
    ]
    assert sorted(slices) == sorted(expected_slices)
    assert sorted(arrows(events)) == sorted(expected_arrows)


def arrows(events):
    """Track and time of begin, step and end of each arrow; the step's link without the number of its track."""
    where = {(e["pid"], e["tid"]): e["args"]["name"] for e in of(events, "M") if e["name"] == "thread_name"}
    found = defaultdict(dict)
    for event in of(events, "s", "t", "f"):
        assert event["ph"] not in found[event["id"]]
        assert ("bp" in event) == (event["ph"] == "f")  # else it would lead to the slice after it
        found[event["id"]][event["ph"]] = (where[event["pid"], event["tid"]].partition(",")[0], ns(event["ts"]))
    return [(*parts["s"], *parts["t"], *parts["f"]) for parts in found.values()]


@given(case=any_case, p2p=p2ps)
def test_counters_peak_where_the_metrics_do(case, p2p):
    """The highest value of each rank's counter is its peak, and all is given back."""
    timeline = timeline_of(case, p2p)
    values = defaultdict(list)
    for event in of(trace_events(timeline), "C"):
        values[event["name"]].append((event["ts"], event["args"]["microbatches"]))
    assert list(values) == [f"rank {rank} holds" for rank in range(timeline.graph.schedule.num_ranks)]
    for steps in values.values():
        assert steps == sorted(steps, key=lambda step: step[0])
        assert steps[0] == (0, 0)
        assert steps[-1][1] == pytest.approx(0, abs=1e-9)
    peaks = [max(level for _, level in steps) for steps in values.values()]
    assert peaks == pytest.approx(peak_activations(timeline.graph.schedule).tolist(), abs=1e-9)


@settings(max_examples=10)
@given(case=cases(max_stages=4, max_microbatches=6))
def test_bytes_are_those_of_the_memory(case):
    """Where a model is given, a second counter in GiB peaks at the activations of `metrics.memory`."""
    schedule, costs = case
    model = load_model("paper")
    if 256 % schedule.num_microbatches:
        return
    held = stages(schedule, model, load_system("mid_cp_mid_nw"))
    peaks = defaultdict(float)
    for event in of(trace_events(run_graph(compile_graph(schedule), costs), held), "C"):
        if event["name"].endswith("memory"):
            peaks[event["name"]] = max(peaks[event["name"]], event["args"]["GiB"])
    expected = memory(schedule, model, held).activations / 2**30
    assert list(peaks.values()) == pytest.approx(expected.tolist(), rel=1e-9)


def test_a_small_trace_in_full():
    """Two stages, a microbatch, half a second of transfer: microseconds, tracks and colours."""
    schedule = build("gpipe", 2, 1)
    found = tracks(trace_events(timeline_of((schedule, uniform_costs(schedule, 1, 2, 0.5)), "overlapped")))
    assert {key: [(e["name"], e["ts"], e["dur"]) for e in slices] for key, slices in found.items()} == {
        ("ranks", "rank 0"): [("0F0", 0, 1e6), ("0B0", 5e6, 2e6)],
        ("ranks", "rank 1"): [("1F0", 1.5e6, 1e6), ("1B0", 2.5e6, 2e6)],
        ("links", "0 -> 1"): [("0F0", 1e6, 0.5e6)],
        ("links", "1 -> 0"): [("1B0", 4.5e6, 0.5e6)],
    }
    assert [found["links", way][0]["cat"] for way in ("0 -> 1", "1 -> 0")] == ["activations", "gradients"]
    forward, backward = found["ranks", "rank 0"]
    assert forward["args"] == {"kind": "F", "stage": 0, "microbatch": 0, "replica": 0}
    assert (forward["cat"], backward["cat"]) == ("F", "B")
    assert forward["cname"] != backward["cname"]


def test_messages_that_are_under_way_at_once_have_tracks_of_their_own():
    """Where nothing is occupied and a transfer outlasts a forward, a second track takes the second message."""
    schedule = build("gpipe", 2, 3)
    found = tracks(trace_events(timeline_of((schedule, uniform_costs(schedule, 1, 2, 1.5)), "latency")))
    names = {name: [event["name"] for event in slices] for (group, name), slices in found.items() if group == "links"}
    assert names == {"0 -> 1": ["0F0", "0F2"], "0 -> 1, track 2": ["0F1"], "1 -> 0": ["1B0", "1B1", "1B2"]}


def some_timeline():
    schedule = build("1f1b", 2, 4)
    return timeline_of((schedule, uniform_costs(schedule, 1, 2, 0.1)), "overlapped")


def test_files_are_whole_and_the_same_every_time(tmp_path):
    """One line an event, the same bytes, nothing else left in the folder, and an old file replaced."""
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    second.write_text("old")
    count = write_trace(first, some_timeline(), model="paper")
    assert write_trace(second, some_timeline(), model="paper") == count
    assert first.read_bytes() == second.read_bytes()
    assert sorted(tmp_path.iterdir()) == [first, second]
    content = json.loads(first.read_text())
    SCHEMA.validate(content)
    assert content["traceEvents"] == trace_events(some_timeline())
    assert len(content["traceEvents"]) == count
    about = content["otherData"]
    assert (about["schedule"], about["ranks"], about["microbatches"], about["p2p"]) == ("1f1b", 2, 4, "overlapped")
    assert about["makespan_s"] == some_timeline().makespan_s
    assert about["model"] == "paper"


# ---- two streams ---------------------------------------------------------------------------------

LLAMA, H100 = load_model("llama3_70b"), load_system("dgx_h100_nodes")


def streams_of(events):
    """Slices of the ranks' processes, by rank and thread."""
    found = defaultdict(dict)
    for (group, track), slices in tracks(events).items():
        if group.endswith(", two streams"):
            found[int(group.split()[1].strip(","))][track] = sorted(
                slices, key=lambda event: (event["ts"], event["dur"])
            )
    return found


def streamed(name, layout, size=(2, 6)):
    """A timeline of a layout, its streams, and what its cells hold."""
    table = build(name, *size)
    costs = model_costs(table, LLAMA, H100, layout=layout)
    return run_graph(compile_graph(table), costs), cell_streams_of(table, LLAMA, H100, layout)


LAYOUTS = {
    "tensor": LayoutSpec(tp=8, layers="even"),
    "sequence parallel, best": LayoutSpec(tp=8, sequence_parallel=True, pairing="best"),
    "zero 3, recomputed": LayoutSpec(tp=4, dp=2, zero=3, recompute=2),
    "hidden in the backward": LayoutSpec(tp=8, overlap_backward=True),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", ["stp", "combined-1f1b", "dualpipe", "1f1b"])
def test_a_rank_has_two_streams(name, layout):
    """Kernels on one, collectives on the other: each within its cell, none beside another of its stream; and the cells
    take as long as their streams."""
    timeline, streams = streamed(name, layout)
    table, events = timeline.graph.schedule, trace_events(timeline, streams=streams)
    SCHEMA.validate({"traceEvents": of(events, "M") + of(events, "X")[-50:]})
    found = streams_of(events)
    assert found.keys() == set(range(table.num_ranks))
    for rank, (_, cells) in enumerate(sorted((k, v) for k, v in tracks(events).items() if k[0] == "ranks")):
        spans = {ns(cell["ts"]): ns(cell["ts"]) + ns(cell["dur"]) for cell in cells}
        starts = np.array(sorted(spans))
        assert found[rank].keys() == {"compute", "communication"}
        for slices in found[rank].values():
            begin = np.array([ns(one["ts"]) for one in slices])
            end = begin + [ns(one["dur"]) for one in slices]
            assert (end[:-1] <= begin[1:]).all()
            own = starts[np.searchsorted(starts, begin, side="right") - 1]
            assert all(at <= spans[start] for at, start in zip(end.tolist(), own.tolist(), strict=True))
    bounds = [*np.flatnonzero(~table.joined & table.computes).tolist(), table.num_operations]
    for start, end in pairwise(bounds):
        cell = [table.op(index) for index in range(start, end) if table.kind[index] < OpKind.R]
        if layout.overlap_backward and [op.kind for op in cell] == [OpKind.I]:
            continue  # its time counts on its own weight gradients, which here run later
        lasting = timeline.end_s[start] - timeline.start_s[start]
        assert lasting == pytest.approx(streams(tuple((op.kind, op.stage) for op in cell)).end_s, rel=1e-9)


def test_streams_hold_the_seconds_of_their_units():
    """Without contention the kernels of a whole trace sum to what the units compute, and so do the collectives."""
    layout = LAYOUTS["tensor"]
    timeline, streams = streamed("dualpipev", layout)
    held = stages(timeline.graph.schedule, LLAMA, H100, layout=layout)
    found = streams_of(trace_events(timeline, streams=streams))
    taken = {name: sum(one["dur"] for rank in found.values() for one in rank[name]) * 1e-6 for name in found[0]}
    parts = 6 * np.sum([stage.parts_s for stage in held], axis=(0, 1))
    assert taken["compute"] == pytest.approx(parts[0], rel=1e-6)
    assert taken["communication"] == pytest.approx(parts[1:].sum(), rel=1e-6)


def test_two_streams_by_hand():
    """A forward alone, and a pair: the all-reduce of each under the product of the other."""
    table = Schedule.from_rows("by hand", [["0F0", "0B0&0F1", "0B1"]])
    forward, backward = [Unit(2.0, 1.0)], [Unit(2.0, 1.0, 1.0)]
    costs = OpCosts(
        *np.array([[3.0], [4.0], [0], [0], [0], [0]])[None], *np.zeros((2, 6, 1)), pairs={(0, 0, 1, 0): 5 / 7}
    )

    def streams(cell):
        if len(cell) == 1:
            return cell_streams(forward if cell[0][0] == OpKind.F else backward)
        found = cell_streams(forward, backward)
        return type(found)(*([one._replace(operation=1 - one.operation) for one in stream] for stream in found))

    found = streams_of(trace_events(run_graph(compile_graph(table), costs), streams=streams))[0]
    shown = {name: [(one["name"], one["ts"] / 1e6, one["dur"] / 1e6) for one in each] for name, each in found.items()}
    assert shown == {
        "compute": [
            ("0F0", 0, 2), ("0F1", 3, 2), ("0B0", 5, 2), ("0B0 weight gradient", 7, 1),
            ("0B1", 8, 2), ("0B1 weight gradient", 11, 1),
        ],
        "communication": [
            ("0F0 collective", 2, 1), ("0F1 collective", 5, 1), ("0B0 collective", 7, 1), ("0B1 collective", 10, 1),
        ],
    }  # fmt: skip


def test_streams_come_behind_all_else():
    """Every other event stays as it is."""
    timeline, streams = streamed("stp", LAYOUTS["tensor"])
    plain, both = trace_events(timeline), trace_events(timeline, streams=streams)
    assert both[: len(plain)] == plain
    assert len({(event["pid"], event["tid"]) for event in of(both, "X")}) == len({e["tid"] for e in of(both, "X")})


def test_without_collectives_there_are_no_streams(tmp_path):
    """Where nothing communicates beside the kernels a rank is one track, as without a layout."""
    import ppmodel as pp

    assert cell_streams_of(build("1f1b", 4, 8), LLAMA, H100, LayoutSpec(pp=4)) is None
    for more in ({}, {"layout": LayoutSpec(pp=4)}, {"layout": LayoutSpec(pp=4, tp=2)}):
        pp.simulate("1f1b", 4, 8, model=LLAMA, system=H100, **more).to_trace(tmp_path / "run.json")
        events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
        assert bool(streams_of(events)) == ("layout" in more and more["layout"].tp > 1)
