"""Compiled code and its plain twins: the same bytes, whichever of them ran."""

import os
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from shutil import copytree, ignore_patterns
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from strategies import allreduces, cases, is_legal, legal_sizes, p2ps, random_cases, schedules

from ppmodel import PPModelError, Schedule, build, names
from ppmodel import loops as kernels
from ppmodel.clusters.costs import Offload
from ppmodel.clusters.costs.partition import LayerTimes, stage_layers
from ppmodel.clusters.costs.units import Unit, cell_duration, cell_streams
from ppmodel.clusters.specs import load_model
from ppmodel.errors import TableError
from ppmodel.loops import compiled
from ppmodel.loops.compiled import Loop, using
from ppmodel.loops.rounds import rounds
from ppmodel.metrics import peak_activations
from ppmodel.simulation import P2P, OpCosts, compile_graph, makespans, run_events, run_graph, uniform_costs
from ppmodel.tables import brief, parse_table

GRAPH = ("index", "cost_class", "stream", "source", "remote", "link", "group_start", "num_links")


def both(function):
    """What a function gives by plain and by compiled code."""
    with using(False):
        plain = function()
    with using(True):
        return plain, function()


def all_times(timeline):
    return np.stack((timeline.start_s, timeline.end_s, timeline.sent_s, timeline.arrived_s))


def again(schedule):
    """The schedule without anything that was derived from it."""
    return replace(schedule)


COLD = """
from ppmodel import build
from ppmodel.loops.compiled import using
from ppmodel.loops.tables import peaks
from ppmodel.metrics import peak_activations
with using(True):
    print(peak_activations(build("chimera", 8, 16)).tolist())
print(peaks.dispatcher.stats.cache_path)
"""


def test_without_a_folder_to_write_to_kernels_compile_all_the_same(tmp_path):
    """Where compiled code can be kept nowhere it is not kept: the same peaks."""
    (tmp_path / "file").touch()
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(tmp_path / "file" / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)
    }  # fmt: skip
    cold = subprocess.run([sys.executable, "-c", COLD], capture_output=True, text=True, env=environment)
    peaks = peak_activations(build("chimera", 8, 16)).tolist()
    assert (cold.stderr, cold.stdout) == ("", f"{peaks}\nNone\n")


FACTOR = """
from ppmodel.loops.compiled import inlined
@inlined
def scaled(value):
    return {} * value
"""
LOOP = """
from ppmodel.loops.compiled import loop
from ppmodel.loops.factor import scaled
@loop
def run(value):
    return scaled(value)
"""


def test_compiled_code_is_that_of_the_sources(tmp_path):
    """The right numbers after a change of what is inlined, or damage to what is kept; nothing in the current folder."""
    package = tmp_path / "there" / "ppmodel"
    copytree(Path(compiled.__file__).parents[1], package, ignore=ignore_patterns("__pycache__"))
    (package / "loops" / "run.py").write_text(LOOP)
    (tmp_path / ".numba_config.yaml").write_text("cache_dir: here\n")
    environment = os.environ | {"PYTHONPATH": str(package.parent)}
    environment.pop("NUMBA_CACHE_DIR", None)
    show = "from ppmodel.loops.run import run; was = run.is_kept; print(was, run.dispatcher(1.0), "
    command = [sys.executable, "-B", "-c", show + "sum(run.dispatcher.stats.cache_hits.values()))"]

    def shown(factor):
        (package / "loops" / "factor.py").write_text(FACTOR.format(factor))
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout

    assert [shown(2.0), shown(2.0), shown(3.0)] == ["False 2.0 0\n", "True 2.0 1\n", "False 3.0 0\n"]
    for form in ("nbi", "nbc"):
        (kept,) = package.rglob(f"*.{form}")
        kept.write_bytes(kept.read_bytes()[:50])
        assert [shown(3.0), shown(3.0)] == ["True 3.0 0\n", "True 3.0 1\n"]
    assert not (tmp_path / "here").exists()


@settings(max_examples=200)
@given(cases() | random_cases(), p2ps, allreduces)
def test_graphs_are_the_same(case, p2p, allreduce):
    """Sources, order, levels and every array of the graph."""
    plain, fast = both(lambda: compile_graph(again(case[0]), p2p, allreduce))
    for one, other in zip(plain.schedule.dependencies, fast.schedule.dependencies, strict=True):
        np.testing.assert_array_equal(one, other)
    for name in GRAPH:
        np.testing.assert_array_equal(getattr(plain, name), getattr(fast, name))


@settings(max_examples=250)
@given(cases() | random_cases(), p2ps, allreduces, st.booleans(), st.integers(0, 2**32 - 1))
def test_times_are_the_same_to_the_last_bit(case, p2p, allreduce, noisy, seed):
    """All times of all operations, with factors on single operations and without; and the makespans of many systems."""
    schedule, costs = case
    random = np.random.default_rng(seed)
    factors = random.uniform(0.5, 2, schedule.num_operations) if noisy else None
    graph = compile_graph(schedule, p2p, allreduce)
    plain, fast = both(lambda: all_times(run_graph(graph, costs, factors)))
    np.testing.assert_array_equal(plain, fast)
    many = [replace(costs, compute_s=costs.compute_s * factor) for factor in random.uniform(0.5, 2, 3)]
    np.testing.assert_array_equal(*both(lambda: makespans(graph, many)))


@settings(max_examples=200)
@given(cases() | random_cases(), st.sampled_from(["rendezvous", "streams"]), allreduces, st.integers(0, 2**32 - 1))
def test_posted_transfers_are_the_same_to_the_last_bit(case, p2p, allreduce, seed):
    """All times where transfers wait for both ends, with factors on single operations; or the same error and grid."""
    schedule, costs = case
    factors = np.random.default_rng(seed).uniform(0.5, 2, schedule.num_operations)

    def times():
        try:
            return all_times(run_graph(compile_graph(schedule, p2p, allreduce), costs, factors))
        except TableError as error:
            return str(error), str(error.grid)

    np.testing.assert_array_equal(*both(times))


@settings(max_examples=250)
@given(cases() | random_cases(), p2ps, allreduces)
def test_a_sweep_over_the_table_gives_the_times_of_the_graph(case, p2p, allreduce):
    """The first run of a graph needs none of its arrays: all times are those of the longest path through it."""
    schedule, costs = case
    with using(True):
        graph = compile_graph(schedule, p2p, allreduce)
        first, second = run_graph(graph, costs), run_graph(graph, costs)
    assert first.swept_s or schedule.gathers or schedule.has_shards or schedule.reduces
    assert (second.swept_s, first.makespan_s) == (None, second.makespan_s)
    np.testing.assert_array_equal(all_times(first), all_times(second))


@settings(max_examples=250)
@given(cases() | random_cases(), p2ps, allreduces, st.integers(0, 2**32 - 1))
def test_events_are_the_same_to_the_last_bit(case, p2p, allreduce, seed):
    """All times by the event queue, with nics that ranks share and costs that make ties."""
    schedule, costs = case
    random = np.random.default_rng(seed)
    nics = tuple(random.integers(0, 3, schedule.num_ranks).tolist()) if p2p == "overlapped" else None
    if random.random() < 0.5:
        costs = replace(
            costs, **{name: np.round(getattr(costs, name)) for name in ("compute_s", "occupancy_s", "latency_s")}
        )
    graph = compile_graph(schedule, p2p, allreduce).with_nics(nics)
    np.testing.assert_array_equal(*both(lambda: all_times(run_events(graph, costs))))


@given(cases() | random_cases(), st.integers(0, 3), st.integers(0, 4))
def test_slots_are_the_same(case, forward, backward):
    """Start and end of every operation of the idealised table."""
    plain, fast = both(lambda: again(case[0]).slots(forward, backward, reduction=1))
    np.testing.assert_array_equal(plain, fast)


@given(cases() | random_cases(), st.sampled_from([0.0, 0.3, 1.0]))
def test_numbers_of_a_table_are_the_same(case, held):
    """Its pairs, length, busy slots and messages, its operations by class, and what each rank holds at its peak."""
    table = case[0]
    weights = np.random.default_rng(table.num_operations).uniform(0, 1, table.num_stages)

    def numbers():
        one = again(table)
        return one.overlaps, one.class_counts, brief(one), peak_activations(one), peak_activations(one, weights, held)

    for plain, fast in zip(*both(numbers), strict=True):
        np.testing.assert_array_equal(plain, fast)


@given(schedules())
def test_generated_tables_are_the_same(schedule):
    """A generator gives the same operations in the same order by plain and by compiled code."""
    name, size = schedule.name, (schedule.num_ranks, schedule.num_microbatches)
    plain, fast = both(lambda: build(name, *size) if is_legal(name, size) else schedule)
    for column in ("kind", "stage", "microbatch", "replica", "joined", "rank_start", "placement"):
        np.testing.assert_array_equal(getattr(plain, column), getattr(fast, column))


@pytest.mark.parametrize("text", ["0F0 0B0 0B1 0F1\n1F0 1B0 1F1 1B1", "0F0&0F1 0B0 0B1\n1F1 1B0 1F0 1B1"])
def test_both_find_a_deadlock(text):
    """The same operations are named and marked."""

    def message():
        with refused(PPModelError, rule="deadlock") as caught:
            parse_table(text)
        return str(caught.value), caught.value.grid

    plain, fast = both(message)
    assert plain == fast


def test_both_find_reductions_that_wait_in_a_cycle_though_they_are_left_out():
    """A table is right or wrong, whatever of it is simulated, the first time and the second."""
    table = build("chimera", 2, 2)
    order = np.array([0, 1, 2, 3, 5, 4, 6, 7, 8, 9, 10, 11])  # one rank's reductions the other way round
    table = replace(table, stage=table.stage[order], replica=table.replica[order])
    for _ in range(2):
        for is_compiled in (False, True):
            with using(is_compiled), refused(TableError, "rank 0", "a deadlock, 0R waits for 0R@1, behind 1R"):
                run_graph(compile_graph(table), uniform_costs(table, 1, 2))


@pytest.mark.parametrize(("name", "size"), [("1f1b", (1030, 3)), ("chimera", (72, 72))])
def test_links_of_many_ranks_are_numbered_in_linear_memory(name, size):
    """Where there is no place for every pair of ranks, links have the same numbers and messages the same times."""
    schedule = build(name, *size)
    costs = uniform_costs(schedule, 1, 2, 0.3)
    plain, fast = both(lambda: compile_graph(again(schedule)))
    with using(True):
        first, second = run_graph(compile_graph(schedule), costs), run_graph(fast, costs)
        third = run_graph(fast, costs)
    for one in GRAPH:
        np.testing.assert_array_equal(getattr(plain, one), getattr(fast, one))
    assert (first.swept_s is None, third.swept_s) == (name == "chimera", None)  # its reductions need the graph
    np.testing.assert_array_equal(all_times(first), all_times(second))
    np.testing.assert_array_equal(all_times(first), all_times(third))


def test_a_table_that_lacks_nearly_all_operations_is_refused_before_places_are_made():
    """Numbers of stages and microbatches whose product would not fit into memory are an error of one line."""
    count, one = 2**14, np.zeros(1, dtype=np.int32)
    sparse = Schedule("sparse", np.zeros(count, dtype=int)[None], count, one, one, one, one, one, [0, 1])
    with refused(PPModelError, "operations", "a forward and a backward"):
        _ = sparse.dependencies


def test_systems_need_not_fill_a_batch():
    """More systems than are taken side by side, and none."""
    schedule = build("1f1b", 3, 5)
    graph = compile_graph(schedule)
    many = [OpCosts(*np.random.default_rng(seed).uniform(0, 1, (3, 6, 3))) for seed in range(150)]
    np.testing.assert_array_equal(*both(lambda: makespans(graph, many)))
    assert both(lambda: makespans(graph, []).tolist()) == ([], [])


def test_small_work_is_plain_until_there_is_much_of_it(monkeypatch):
    """A process that works on small tables over and over takes compiled code in the end."""
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    monkeypatch.setattr(compiled, "_plain_work", 0)
    kept, pieces = Loop(rounds.plain), compiled.MANY // 1024
    monkeypatch.setitem(kept.__dict__, "is_kept", True)
    monkeypatch.setitem(kept.__dict__, "dispatcher", "compiled")
    del kept.__dict__["dispatcher"]
    monkeypatch.setattr(Loop, "dispatcher", "compiled")
    assert [kept.compiled(1024) for _ in range(pieces - 1)] == [None] * (pieces - 1)
    assert kept.compiled(1024) == "compiled"
    monkeypatch.setattr(compiled, "_plain_work", 0)
    assert Loop(rounds.plain).compiled(compiled.LARGE) == "compiled"


def test_a_loop_is_compiled_once_plain_work_took_as_long(monkeypatch):
    """Where no folder holds it, Numba being loaded or not."""
    monkeypatch.setattr(Loop, "dispatcher", "compiled")
    monkeypatch.setattr(Loop, "is_kept", False)
    cold = Loop(rounds.plain, price=2 * compiled.LARGE)
    assert [cold.compiled(size) for size in (10, compiled.LARGE, compiled.LARGE)] == [None, None, "compiled"]


def all_loops(private=False):
    """The loops of `ppmodel.loops` that plain code calls compiled, or also those that, compiled, only loops call."""
    for module in iter_modules(kernels.__path__, "ppmodel.loops."):
        for value in vars(import_module(module.name)).values():
            of_module = isinstance(value, Loop) and value.__module__ == module.name
            if of_module and (private or not value.__name__.startswith("_")):
                yield value


def poison(shape, dtype=float, **_):
    """In place of `np.empty`: NaN, the largest integer or True everywhere."""
    dtype = np.dtype(dtype)
    return np.full(shape, np.iinfo(dtype).max if dtype.kind in "iu" else dtype.type(np.nan), dtype)


INTERPRETED = SimpleNamespace(**vars(np) | dict.fromkeys(("uint8", "int32", "uint32", "int64", "uint64"), int))
INTERPRETED.empty = poison
"""NumPy for loops that the interpreter runs as they would be compiled, with integers that never wrap around."""


@contextmanager
def on_poisoned_buffers():
    """All loops run in the interpreter, as lists or arrays, whichever they take, and every new buffer is dirty."""
    with pytest.MonkeyPatch.context() as patch, using(True):
        patch.setattr(numba, "njit", lambda function=None, **_: function or (lambda plain: plain))
        patch.setattr(np, "empty", poison)
        loops = list(all_loops(private=True))
        for loop in loops:
            patch.delitem(loop.__dict__, "dispatcher", raising=False)
            if any(loop.filled):  # runs on lists, too
                loop.__dict__["dispatcher"] = partial(run_on_lists, loop)
            module = sys.modules[loop.__module__]
            if hasattr(module, "np"):
                patch.setattr(module, "np", INTERPRETED)
        try:
            yield
        finally:
            for loop in loops:
                loop.__dict__.pop("dispatcher", None)


def run_on_lists(loop, *arguments):
    with using(False):
        return loop.run(0, *arguments)


@settings(max_examples=50)
@given(cases() | random_cases(), st.sampled_from(P2P), allreduces, st.integers(0, 2**32 - 1))
def test_nothing_is_read_that_was_not_written(case, p2p, allreduce, seed):
    """Buffers full of NaN and huge integers give what fresh memory gives: dependencies, times, numbers of a table."""
    random = np.random.default_rng(seed)
    shape = 2, case[0].num_replicas, case[0].num_stages
    weights = random.uniform(0, 1, shape[2])
    offload = Offload(np.ones(shape), random.uniform(0, 3, shape)) if seed % 2 else None
    costs = replace(case[1], offload=offload)

    def numbers():
        table = again(case[0])
        graph = compile_graph(table, p2p, allreduce)
        with suppress(TableError):  # a deadlock
            yield from (all_times(run_graph(graph, costs)) for _ in range(2))
            yield makespans(graph, [costs, case[1]])
        yield from (table.overlaps, table.class_counts, table.slots(1, 2), *table.dependencies)
        yield from (brief(table), peak_activations(table), peak_activations(table, weights, 0.3))

    with using(True):
        expected = list(numbers())
    with on_poisoned_buffers():
        for fresh, dirty in zip(expected, numbers(), strict=True):
            np.testing.assert_array_equal(fresh, dirty)


def test_each_kernel_is_compiled_once():
    """Whatever made a table, its arrays are of the types that the kernels know: nothing is compiled at run time."""
    for name in names():
        with using(True):
            schedule = build(name, *legal_sizes(name, (), 4, 8)[-1])
        for table in (schedule, Schedule.from_rows(name, schedule.rows())):
            for choice in (False, True):
                with using(choice):
                    graph = compile_graph(again(table), allreduce="overlapped")
                    _ = graph.index
                with using(True):
                    costs = uniform_costs(graph.schedule, 1, 2, 0.1)
                    graph.schedule.slots()
                    run_graph(graph, costs, np.ones(graph.schedule.num_operations))
                    run_graph(compile_graph(graph.schedule), costs)
                    run_graph(compile_graph(graph.schedule, "streams"), costs)
                    with suppress(TableError):
                        run_graph(compile_graph(graph.schedule, "rendezvous", "overlapped"), costs)
                    makespans(graph, [costs, costs])
                    run_events(graph, costs)
                    brief(graph.schedule)
                    peak_activations(graph.schedule)
    with using(True):
        build("chimera", 4, 8, concat="merged")
        cell_streams([Unit(1.0, 0.5, 1.0, 0.5)] * 2, [Unit(1.0, 0.5, 1.0, 0.5)] * 2, "best", 1.2)
        stage_layers(build("1f1b", 4, 8), load_model("llama3_70b"), times=LayerTimes(1.0, 0.5))
    for kernel in all_loops():  # what a run may lack is None, or always of one type
        assert kernel.dispatcher.signatures, kernel.__name__
        for types in zip(*kernel.dispatcher.signatures, strict=True):
            assert len({str(each) for each in types} - {"none"}) <= 1, kernel.__name__


seconds = st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(0, 2)
units = st.lists(st.builds(Unit, seconds, seconds, seconds, seconds), max_size=6)
orders, paces = st.sampled_from(["alternating", "best"]), st.sampled_from([1.0, 1.17, 2.0]) | st.floats(1, 2)


@settings(max_examples=60)
@given(st.tuples(units, units, orders, paces))
def test_the_order_of_two_operations(cell):
    """The same order, not one that takes as long."""
    plain, fast = both(lambda: (cell_streams(*cell), cell_duration(*cell)))
    assert plain == fast


@settings(max_examples=60)
@given(
    st.sampled_from(["1f1b", "interleaved-1f1b", "dualpipe", "chimera"]),
    st.tuples(seconds, seconds, seconds),
    st.integers(0, 3),
)
def test_balanced_layers(name, times, num_dense):
    """The same blocks of each stage, with dense blocks and ties."""
    table, model = build(name, 4, 8), load_model("llama3_70b")
    plain, fast = both(lambda: stage_layers(table, model, times=LayerTimes(1.0, *times, num_dense)).blocks)
    np.testing.assert_array_equal(plain, fast)
