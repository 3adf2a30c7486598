"""Activations that go to the host and back, and results that leave before their cell ends."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from strategies import allreduces, cases, p2ps, random_cases
from test_loops import all_times, both

import ppmodel as pp
from ppmodel import Schedule, build
from ppmodel.cli import main
from ppmodel.clusters.costs import Offload, stages
from ppmodel.clusters.costs.layers import layers_of
from ppmodel.clusters.memory import activation_bytes
from ppmodel.clusters.specs import LayoutSpec
from ppmodel.errors import SpecificationError
from ppmodel.export import trace_events
from ppmodel.metrics import offloaded_peaks, peak_activations
from ppmodel.ops import OpKind
from ppmodel.simulation import OpCosts, compile_graph, makespans, run_events, run_graph, uniform_costs

IDLE = pytest.mark.filterwarnings("ignore::ppmodel.studies.points.NoEffectWarning")
seeds = st.integers(0, 2**32 - 1)


def offloading(schedule, costs, random, most_s=3.0):
    """Costs with some activations offloaded, of copies that take up to so many seconds."""
    shape = 2, schedule.num_replicas, schedule.num_stages
    share = random.uniform(0, 1, shape) * (random.random(shape) < 0.8)
    return replace(costs, offload=Offload(share, share * random.uniform(0, most_s)))


def handing_on(schedule, costs, random):
    """Costs with results of pairs that are there early, most of them."""
    shares = {key: tuple(random.choice([1.0, 0.0, random.random()], 2)) for key in schedule.pairs.keys}
    return replace(costs, ready={key: one for key, one in shares.items() if random.random() < 0.9})


def with_both(schedule, costs, seed):
    """Either of them, or both."""
    random = np.random.default_rng(seed)
    which = random.integers(1, 4)
    costs = offloading(schedule, costs, random) if which & 1 else costs
    return handing_on(schedule, costs, random) if which & 2 else costs


def whole(timeline):
    """All times of a run, those of copies among them."""
    copied = np.empty((0, timeline.start_s.size)) if timeline.copied_s is None else timeline.copied_s
    return np.concatenate([all_times(timeline), copied])


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(cases() | random_cases(), p2ps, allreduces, seeds, st.booleans())
@pytest.mark.parametrize("run", [run_graph, run_events])
def test_compiled_and_plain_are_the_same_to_the_last_bit(run, case, p2p, allreduce, seed, noisy):
    """Both engines, with factors on single operations and without, on links and on NICs that ranks share."""
    schedule, costs = case[0], with_both(*case, seed)
    random = np.random.default_rng(seed)
    nics = tuple(random.integers(0, 3, schedule.num_ranks).tolist()) if seed % 2 and p2p == "overlapped" else None
    factors = random.uniform(0.5, 2, schedule.num_operations) if noisy else None
    graph = compile_graph(schedule, p2p, allreduce)
    np.testing.assert_array_equal(*both(lambda: whole(run(graph, replace(costs, nics=nics), factors))))


@settings(max_examples=150, deadline=None)
@given(cases() | random_cases(), p2ps, allreduces, seeds)
def test_longest_path_and_events_agree(case, p2p, allreduce, seed):
    """Every time of every operation, transfer and copy."""
    schedule, costs = case[0], with_both(*case, seed)
    graph = compile_graph(schedule, p2p, allreduce)
    path, events = (whole(run(graph, costs)) for run in (run_graph, run_events))
    np.testing.assert_allclose(path, events, rtol=0, atol=1e-9)
    assert makespans(graph, [costs, case[1]])[0] == run_graph(graph, costs).makespan_s


@pytest.mark.parametrize("name", ["chimera", "asymmetric-chimera"])
def test_after_a_reduction_the_copies_of_all_its_ranks_come_back(name):
    """Where backwards follow a blocking reduction of several ranks, none of these ranks waits for ever."""
    schedule = build(name, 8, 16)
    random = np.random.default_rng(1)
    costs = offloading(schedule, OpCosts(*random.uniform(0, 2, (3, 6, 8))), random)
    graph = compile_graph(schedule, "overlapped", "blocking")
    path, (plain, fast) = whole(run_graph(graph, costs)), both(lambda: whole(run_events(graph, costs)))
    np.testing.assert_array_equal(plain, fast)
    np.testing.assert_allclose(path, plain, rtol=0, atol=1e-9)
    assert np.isfinite(run_events(graph, replace(costs, nics=tuple(range(8)))).makespan_s)


@settings(max_examples=100, deadline=None)
@given(seeds)
def test_rendezvous_waits_for_copies_too(seed):
    """Where no rank waits in a circle: both engines agree."""
    schedule, costs = build("1f1b", 4, 8), uniform_costs(build("1f1b", 4, 8), 1, 2, 0.1)
    costs = offloading(schedule, costs, np.random.default_rng(seed))
    graph = compile_graph(schedule, "rendezvous")
    path, events = (whole(run(graph, costs)) for run in (run_graph, run_events))
    np.testing.assert_allclose(path, events, rtol=0, atol=1e-9)


# ---- laws ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "makespan", "peak"), [(0, 12, 1), (1, 12, 2), (2, 15, 3)])
def test_one_rank_by_hand(seconds, makespan, peak):
    """Copies of no time, of one that fits, and of one for which the rank waits; the last backward needs no copy.

    With copies of two seconds: out 1-3, 3-5, 5-7, in 7-9 (its backward waits three seconds), 9-11, 11-13.
    """
    table = Schedule.from_rows("by hand", [["0F0", "0F1", "0F2", "0F3", "0B3", "0B2", "0B1", "0B0"]])
    costs = replace(uniform_costs(table, 1, 2), offload=Offload(np.ones((2, 1, 1)), np.full((2, 1, 1), float(seconds))))
    timeline = run_graph(compile_graph(table), costs)
    assert timeline.makespan_s == makespan
    assert offloaded_peaks(timeline, [1.0]).tolist() == [peak]
    if seconds == 2:
        assert timeline.copied_s[:, :3].T.tolist() == [[1, 3, 11, 13], [3, 5, 9, 11], [5, 7, 7, 9]]
        assert np.isnan(timeline.copied_s[:, 3:]).all()


def test_copies_back_leave_time_for_those_behind_them():
    """Two backwards in a row: the first copy back begins a cell earlier than it would need to alone, and none waits."""
    table = Schedule.from_rows("by hand", [["0F0", "0F1", "1F0", "1F1", "1B1", "1B0", "0B1", "0B0"]])
    seconds = np.zeros((6, 2))
    seconds[OpKind.F], seconds[OpKind.B] = (1, 4), (2, 8)
    first = np.array([[[1.0, 0.0]]] * 2)
    costs = OpCosts(seconds, *np.zeros((2, 6, 2)), offload=Offload(first, 5.5 * first))
    timeline = run_graph(compile_graph(table), costs)
    assert timeline.makespan_s == 30
    assert timeline.copied_s[:, :2].T.tolist() == [[1, 6.5, 18, 23.5], [6.5, 12, 12, 17.5]]


def offload_of(schedule, share, seconds):
    shape = 2, schedule.num_replicas, schedule.num_stages
    return Offload(np.full(shape, share), np.full(shape, seconds))


def test_a_gradient_is_received_while_activations_come_back():
    schedule = Schedule.from_rows("two", [["0F0", "0F1", "0B1", "0B0"], ["1F0", "1F1", "1B1", "1B0"]])
    costs = uniform_costs(schedule, 1, 2, comm=1)
    costs = replace(costs, offload=Offload(np.ones((2, 1, 2)), np.array([[[8.0, 0]]] * 2)))
    times = run_graph(compile_graph(schedule, "blocking_recv"), costs)
    assert times.copied_s[:, 0].tolist() == [1, 9, 9, 17]  # 0B1 ends at 10, 1B0 at 9
    assert (times.sent_s[7], times.arrived_s[7], times.start_s[3]) == (10, 11, 17)


@given(cases(), st.sampled_from(["overlapped", "blocking"]))
def test_at_once_costs_no_time_and_the_peak_falls_with_the_share(case, p2p):
    """Without time for copies every operation keeps its times; nothing offloaded changes nothing."""
    schedule, costs = case
    graph = compile_graph(schedule, p2p)
    weights = np.random.default_rng(schedule.num_operations).uniform(0, 1, schedule.num_stages)
    plain, peaks = run_graph(graph, costs), [peak_activations(schedule, weights)]
    for share in (0.0, 0.25, 0.5, 1.0):
        found = run_graph(graph, replace(costs, offload=offload_of(schedule, share, 0.0)))
        np.testing.assert_array_equal(all_times(found), all_times(plain))
        peaks.append(offloaded_peaks(found, weights))
    assert (np.diff(peaks, axis=0) <= 1e-12).all()
    np.testing.assert_allclose(peaks[0], peaks[1], rtol=1e-12)


def held_at(timeline, weights, held, moments, rank):
    """What a rank holds at some moments, forward by forward."""
    schedule, share = timeline.graph.schedule, np.zeros(timeline.graph.schedule.num_operations)
    share[timeline.copies.forward] = timeline.copies.share
    gone, back = np.nan_to_num(timeline.copied_s[[1, 2]], nan=np.inf)
    end = {schedule.op(index): timeline.end_s[index] for index in range(schedule.num_operations)}
    level = np.zeros(len(moments))
    for index in np.flatnonzero((schedule.kind == OpKind.F) & (schedule.rank == rank)):
        op = schedule.op(index)
        whole = end.get(op._replace(kind=OpKind.B), end.get(op._replace(kind=OpKind.W)))
        half = end.get(op._replace(kind=OpKind.I), whole)
        there = (timeline.start_s[index] < moments) & (moments < whole)
        away = (gone[index] < moments) & (moments < back[index])
        level += weights[op.stage] * (there * np.where(moments < half, 1, held) - share[index] * away)
    return level


@settings(max_examples=100, deadline=None)
@given(cases(max_stages=4, max_microbatches=6), seeds)
def test_memory_is_what_is_there_at_any_moment(case, seed):
    """The peak of a rank is the most of all moments between events; never more than without, nor less than at once."""
    schedule, costs = case
    random = np.random.default_rng(seed)
    costs = replace(costs, compute_s=costs.compute_s + 0.1)  # no operation of no time
    offloads = offloading(schedule, costs, random)
    timeline = run_graph(compile_graph(schedule), offloads)
    weights, held = random.uniform(0.1, 1, schedule.num_stages), float(random.uniform(0, 1))
    found = offloaded_peaks(timeline, weights, held)
    events = np.unique(np.concatenate([timeline.start_s, timeline.end_s, timeline.copied_s.ravel()]))
    events = events[~np.isnan(events)]
    events = events[np.append(True, np.diff(events) > 1e-9)]
    moments = (events[1:] + events[:-1]) / 2
    most = [held_at(timeline, weights, held, moments, rank).max() for rank in range(schedule.num_ranks)]
    np.testing.assert_allclose(found, most, rtol=1e-9)
    at_once = replace(costs, offload=offloads.offload._replace(seconds=0 * offloads.offload.seconds))
    least = offloaded_peaks(run_graph(compile_graph(schedule), at_once), weights, held)
    assert (least <= found + 1e-12).all()
    assert (found <= peak_activations(schedule, weights, held) + 1e-12).all()


@settings(max_examples=100, deadline=None)
@given(cases(), p2ps | st.just("streams"), seeds)
def test_copies_keep_their_rules(case, p2p, seed):
    """One at a time in either direction, out after the forward, back before the backward; no run is faster for them."""
    schedule, costs = case
    graph = compile_graph(schedule, p2p)
    timeline = run_graph(graph, offloading(schedule, costs, np.random.default_rng(seed)))
    assert timeline.makespan_s >= run_graph(graph, costs).makespan_s
    out, gone, back, there = timeline.copied_s
    at = {schedule.op(index): index for index in range(schedule.num_operations)}
    for rank in range(schedule.num_ranks):
        copied = np.flatnonzero((schedule.rank == rank) & ~np.isnan(out))
        free = np.append(0.0, gone[copied])[:-1]
        np.testing.assert_array_equal(out[copied], np.maximum(timeline.end_s[copied], free))
        backwards = [at.get(schedule.op(f)._replace(kind=kind)) for f in copied for kind in (OpKind.B, OpKind.I)]
        backwards = np.array([index for index in backwards if index is not None], dtype=int)
        assert (there[copied] <= timeline.start_s[backwards]).all()
        assert (gone[copied] <= back[copied]).all()
        order = copied[np.argsort(backwards)]
        assert (back[order][1:] >= there[order][:-1]).all()


# ---- results that leave before their cell ends ---------------------------------------------------


def test_results_leave_when_they_are_there_by_hand():
    """In a pair of 3 s the forward is there after 1 s, the backward after 2: the other rank begins a second earlier."""
    table = Schedule.from_rows("by hand", [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1F1&1B0", "1B1"]])
    seconds = np.zeros((6, 2))
    seconds[OpKind.F], seconds[OpKind.B] = 1.0, 2.0
    costs = OpCosts(seconds, *np.zeros((2, 6, 2)))
    early = replace(costs, ready={(OpKind.F, 1, OpKind.B, 1): (1 / 3, 2 / 3)})
    ends = [run_graph(compile_graph(table), one).end_s.tolist() for one in (costs, early)]
    assert ends == [[1, 2, 7, 9, 2, 5, 5, 7], [1, 2, 6, 9, 2, 5, 5, 7]]
    sent = run_graph(compile_graph(table), early).sent_s
    assert sent[[5, 6]][~np.isnan(sent[[5, 6]])].tolist() == [4]


@given(cases(), st.sampled_from(["latency", "overlapped", "blocking_recv"]), seeds)
def test_what_leaves_earlier_is_never_late(case, p2p, seed):
    """No operation begins later than where all wait for the end of a cell; shares of 1 change nothing."""
    schedule, costs = case
    graph = compile_graph(schedule, p2p)
    plain = run_graph(graph, costs)
    early = run_graph(graph, handing_on(schedule, costs, np.random.default_rng(seed)))
    assert np.nanmax(early.start_s - plain.start_s) <= 1e-9
    ones = replace(costs, ready=dict.fromkeys(schedule.pairs.keys, (1.0, 1.0)))
    np.testing.assert_allclose(all_times(run_graph(graph, ones)), all_times(plain), rtol=1e-12)


# ---- a model on a system -------------------------------------------------------------------------


@IDLE
def test_a_layout_says_what_is_copied_and_its_parts_sum_up():
    """Bytes over the bandwidth of the host's link; waiting is a part of the iteration, and no free lunch."""
    given = {"pp": 4, "microbatches": 12, "model": "stp_12b", "tp": 4, "layers": "even"}
    system = pp.load_system("a800")
    rows, plain = [], pp.simulate("stp", system=system, **given)
    for gigabytes in (1e6, 20, 5, 2):
        slow = replace(system, host_bandwidth_bytes_per_s=gigabytes * 1e9)
        rows.append(pp.simulate("stp", system=slow, offload=0.5, **given))
    for run in rows:
        assert sum(run.iteration.parts.values()) == pytest.approx(run.iteration_s, rel=1e-9)
        assert run.iteration_s - plain.iteration_s == pytest.approx(run.iteration.parts["offload_s"], abs=1e-9)
        assert run.to_dict()["peak_memory_bytes"] == run.peak_memory_bytes <= plain.peak_memory_bytes
    assert rows[1].peak_memory_bytes < plain.peak_memory_bytes
    waited = [run.iteration.parts["offload_s"] for run in rows]
    assert waited[0] == 0 < waited[-2] < waited[-1]
    kept, _ = activation_bytes(stages(plain.table, plain.model, system, layout=plain.layout))
    first, last = rows[1].costs.offload.seconds[:, 0, [0, 7]].T
    np.testing.assert_allclose(first, 0.5 * kept[0] / 20e9)
    assert (last == 0).all()
    fast = replace(system, host_bandwidth_bytes_per_s=1e15)
    all_chunks = pp.simulate("stp", system=fast, offload=0.5, offload_chunks="all", **given)
    assert (all_chunks.memory.activations_bytes <= rows[0].memory.activations_bytes).all()
    assert all_chunks.timeline.copies.forward.size > rows[0].timeline.copies.forward.size
    warm = pp.simulate("stp", system=system, offload=0.0, offload_warm_up=1.0, **given)
    assert warm.costs.offload.share[:, 0, 0].tolist() == [1, 0]
    assert warm.timeline.copies.forward.size == 4 * 2 * 4  # each rank runs 2 S forwards of chunk 0 ahead


def test_the_chunks_that_wait_longest_go_first():
    """Half of a rank's chunks are its first, rounded up; where a copy out and back fits, no rank waits for it."""
    given = {"pp": 4, "microbatches": 16, "model": "llama2_13b", "system": "a800", "tp": 2, "offload": 1.0}
    case, chunks = ("grouped-interleaving", {"chunks": 3, "group": 1}), ("first", "half", "fitting", "all")
    runs = [pp.simulate(case, offload_chunks=which, **given) for which in chunks]
    first, half, fitting, everything = (run.costs.offload.share[1, 0].reshape(3, 4) for run in runs)
    assert first.sum(axis=0).tolist() == [1] * 4
    assert half.tolist() == [[1] * 4, [1] * 4, [0] * 4]
    assert fitting.tolist() == [[1] * 4, [1] * 4, [1, 1, 0, 0]]  # on the last ranks, backwards follow their forwards
    assert everything.all()
    waits = [run.iteration.parts["offload_s"] for run in runs]
    assert waits[:3] == [0, 0, 0] < [waits[3]] * 3
    assert runs[0].memory.activations_bytes.max() > 1.2 * runs[1].memory.activations_bytes.max()


ONE_LAYER = {  # bytes of a layer of Qwen3-30B-A3B on one GPU: tokens times numbers kept, of two bytes
    "attn_norm": 2 * 2048, "qkv_linear": 2 * 2048 + 2 * (32 + 4) * 128, "core_attn": 2 * (32 + 2 * 4) * 128 + 4 * 32,
    "attn_proj": 2 * 32 * 128, "mlp_norm": 2 * 2048, "expert_fc1": 2 * 8 * 2048, "moe_act": 2 * 8 * 2 * 768,
}  # fmt: skip


def module_bytes(**layout):
    """Bytes of offloaded modules in each layer of a stage, and of all that a layer keeps."""
    system, layout = replace(pp.load_system("h100"), memory=None), LayoutSpec(pp=1, **layout)
    layers = layers_of(pp.load_model("qwen3_30b_a3b"), 1, system, layout)
    place = [part for part, _ in layers.work.layers].index("block")
    return layers.offloaded_bytes[place] / 4096, layers.bytes[place, 0] / 4096


def test_bytes_of_modules_by_hand():
    """Each is the input that the module keeps; together they are all that is kept, but for what has no name."""
    for name, expected in ONE_LAYER.items():
        of_alone = "core_attn+attn_proj" if name == "attn_proj" else name
        others = ONE_LAYER["core_attn"] if name == "attn_proj" else 0
        assert module_bytes(offload=of_alone)[0] == pytest.approx(expected + others), name
    away, kept = module_bytes(offload="+".join(ONE_LAYER))
    assert away == pytest.approx(sum(ONE_LAYER.values()))
    unnamed = 2 * 2048 + 4 * 128 + 2 * 8 * 768  # the router's input and scores, and the second products' of experts
    assert kept - away == pytest.approx(unnamed)
    assert module_bytes(offload="expert_fc1", recompute="moe")[0] == 0  # its input is not kept
    assert module_bytes(offload="qkv_linear", recompute="full")[0] == 0


@IDLE
def test_modules_are_copied_as_the_same_share_of_all_chunks():
    """With two layers a stage, which are both on the device: equal bytes, seconds, waits and peaks."""
    given = {"model": "llama3_8b", "system": "a800", "tp": 2, "layers": "even", "pp": 16, "microbatches": 32}
    run = pp.simulate("1f1b", offload="core_attn+attn_proj+mlp_norm", **given)
    share, seconds = run.costs.offload.share[1, 0, 1], run.costs.offload.seconds[1, 0, 1]
    same = pp.simulate("1f1b", offload=float(share), **given)
    assert seconds == pytest.approx(
        share * run.costs.stages.activation_bytes[1] / run.system.host_bandwidth_bytes_per_s
    )
    assert same.costs.offload.seconds[1, 0, 1] == pytest.approx(seconds)
    peaks = (each.memory.activations_bytes[1:15] for each in (run, same))
    np.testing.assert_allclose(*peaks)
    assert run.iteration_s == pytest.approx(same.iteration_s, rel=1e-3)  # ends also have other layers


@IDLE
def test_layers_are_copied_while_others_run():
    """All but two of a stage's layers, as far as the link is fast enough; the rest waits as a share does."""
    given = {"pp": 4, "microbatches": 16, "model": "llama3_8b", "tp": 2, "layers": "even"}
    plain = pp.simulate("1f1b", system="a800", **given)
    kept, forward_s = (getattr(plain.costs.stages, name)[1] for name in ("activation_bytes", "forward_s"))
    previous = np.inf
    for rate in (1e7, 1e9, 1e10, 1e13):
        system = replace(pp.load_system("a800"), host_bandwidth_bytes_per_s=rate)
        run = pp.simulate("1f1b", system=system, offload="core_attn+attn_proj", **given)
        stages, away = run.costs.stages, 8192 * (4096 + 2 * 1024 + 4096 + 2 * 32) * 8  # eight layers, half of each
        under = min(away, rate * forward_s) * 6 / 8
        assert stages.activation_bytes[1] == pytest.approx(kept - under)
        assert stages.away_bytes[1] == pytest.approx(away - under)
        assert run.memory.activations_bytes[1] <= previous
        assert run.iteration_s >= plain.iteration_s * (1 - 1e-12)
        previous = run.memory.activations_bytes[1]
    assert run.iteration_s == pytest.approx(plain.iteration_s)


@pytest.mark.parametrize(
    ("layout", "rule"),
    [
        ({"offload": "moe_act+expert_fc1", "recompute": "moe_act"}, "recomputed as well"),
        ({"offload": "attn_proj"}, "saves nothing without core_attn"),
    ],
)
def test_modules_that_keep_nothing_of_their_own_are_not_offloaded(layout, rule):
    """What runs again keeps nothing, and attention needs its output as much as the projection behind it."""
    with refused(SpecificationError, "offload", rule):
        pp.simulate("1f1b", 4, 8, model="qwen3_30b_a3b", system="h100", **layout)


@IDLE
def test_shards_of_the_output_layer_are_held_beside_what_is_offloaded():
    """With next to nothing offloaded, the peak is that without offloading."""
    given = {"pp": 4, "microbatches": 12, "model": "llama3_8b", "system": "a800", "tp": 2}
    plain, run = (pp.simulate("vocab-1f1b", offload=share, **given) for share in (0.0, 1e-9))
    assert run.timeline.copies.forward.size
    np.testing.assert_allclose(run.memory.activations_bytes, plain.memory.activations_bytes)


def test_a_trace_shows_the_copies():
    """Two tracks more for each rank, a slice for each copy, none over another, and memory up to the peak."""
    run = pp.simulate("stp", 2, 8, model="stp_12b", system="a800", tp=4, layers="even", offload=0.5)
    events = trace_events(run.timeline, stages(run.table, run.model, run.system, layout=run.layout))
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    copies = [event for event in events if event.get("cat") == "copy"]
    assert {names[event["tid"]] for event in copies} == {
        f"rank {n}, copies {way}" for n in (0, 1) for way in ("out", "back")
    }
    assert len(copies) == 2 * run.timeline.copies.forward.size
    for thread in {event["tid"] for event in copies}:
        spans = sorted((event["ts"], event["ts"] + event["dur"]) for event in copies if event["tid"] == thread)
        assert all(end <= begin + 1e-6 for (_, end), (begin, _) in pairwise(spans))
    held = [event["args"]["GiB"] for event in events if event["name"] == "rank 0 memory"]
    assert max(held) * 2**30 == pytest.approx(run.memory.activations_bytes[0])
    assert min(held) == held[-1] == 0


@IDLE
def test_results_of_a_models_pairs_leave_early():
    """STP and DualPipe are faster for it; without pairs it changes nothing, and the events agree."""
    given = {"pp": 4, "microbatches": 12, "model": "stp_12b", "system": "a800", "tp": 4, "layers": "even"}
    for name in ("stp", "dualpipe", "1f1b"):
        at_end, early = (pp.simulate(name, send_results=how, **given) for how in ("at_end", "when_ready"))
        events = run_events(compile_graph(early.table), early.costs)
        assert events.makespan_s == pytest.approx(early.makespan_s, rel=1e-12)
        assert early.makespan_s < at_end.makespan_s if name != "1f1b" else early.makespan_s == at_end.makespan_s


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("offload", 1.5, "must be a share from 0 to 1, a whole number of layers, or modules"),
        ("offload", -1, "greater than or equal to 0"),
        ("offload", True, "valid number"),
        ("offload", "moe_act+mlp", "must be 'attn_norm'"),
        ("offload_warm_up", -1, "greater than or equal to 0"),
        ("offload_chunks", "some", "'first', 'half', 'fitting' or 'all'"),
        ("send_results", "soon", "'at_end' or 'when_ready'"),
    ],
)
def test_illegal_values_are_refused(field, value, rule):
    """In one line, with the rule."""
    with refused(SpecificationError, field, rule, value=str(value)):
        LayoutSpec(**{field: value})


def test_a_system_without_a_link_to_its_host_offloads_nothing(capsys):
    """As Python and as the command say it."""
    line = "simulate stp --pp 2 --microbatches 8 --model {} --system {} --offload {}"
    assert main(line.format("paper", "mid_cp_mid_nw", 0.5).split()) == 2
    said = "offload = 0.5: needs a system with a link to its host, and mid_cp_mid_nw gives none"
    assert said in capsys.readouterr().err
    assert main(line.format("stp_12b", "a800", 1.5).split()) == 2
    assert "--offload = 1.5: must be a share from 0 to 1, a whole" in capsys.readouterr().err
    assert main(line.format("stp_12b", "a800", 0.5).split()) == 0
