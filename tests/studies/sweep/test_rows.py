"""Rows of sweeps: those of `compare`, in the same order and with the same bytes however they are cut."""

import itertools
import math
import os
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from sweeps import NOISY, SHORT, run

import ppmodel as pp
from ppmodel import build, metrics
from ppmodel.clusters.costs import model_costs
from ppmodel.clusters.specs import DATA, load_model, load_system
from ppmodel.simulation import compile_graph, run_graph
from ppmodel.studies.noise import Noise, noisy_makespans
from ppmodel.studies.noise.draw import operation_factors
from ppmodel.studies.points import NUMBERS
from ppmodel.studies.sweep import columns_of, compute_rows, load_sweep, run_sweep

LARGE = """
schedules: 1f1b
pp: 64
microbatches: 256
systems: mid_cp_slow_nw
models: gpt3_175b
noise: {jitter: 0.1}
seeds: {from: 1, to: 2}
"""
FREE_OF_TIMES = {
    "table_bubble_ratio", "peak_activations", "messages", "comm_over_forward", "peak_memory_bytes", "activations_bytes",
    "memory_capacity_bytes", "slowest_over_mean", "nics_shared",
}  # fmt: skip
"""Results that are the same in all noisy runs of a point."""


def test_rows_are_what_compare_gives(plain, plain_rows):
    """Points in nested loops, the schedule outermost; of each all columns of `compare`, as it computes them."""
    schedules = ["gpipe", "1f1b", *(("chimera", {"concat": concat}) for concat in ("direct", "forward-doubling"))]
    schedules += [("hanayo", {"waves": waves}) for waves in (1, 2)]
    frame = pp.compare(
        schedules, [2, 3, 4, 6], [4, 6, 8, 12], p2p=["latency", "overlapped", "blocking"],
        model=["gpt3_175b", "paper"], system=["dgx_a100", "dgx_h100"],
    )  # fmt: skip
    expected = frame.astype(object).where(frame.notna(), None).to_dict("records")
    assert plain_rows == expected
    assert plain.num_rows == len(expected)


def test_options_that_are_not_given_are_left_out(file, tmp_path, capsys):
    """An option that is not given is left out of its row; a fraction is a value like any other."""
    text = "schedules: [{name: zb-1p, held: [0.5, 1]}]\npp: [3]\nmicrobatches: [4]\n"
    path = file(text + "systems: [mid_cp_mid_nw]\nmodels: [paper]\n")
    assert run(capsys, path, "--out", tmp_path / "r.parquet")[0] == 0
    table = parquet.read_table(tmp_path / "r.parquet").to_pydict()
    assert table["options"] == ["held=0.5", "held=1"]
    assert table["refused"] == [None, None]


def test_points_that_are_not_defined_are_rows(plain_rows):
    """They say why, as the schedule or the model says it, and have no numbers; the others have all of them."""
    for row in plain_rows:
        assert all((row[name] is None) == (row["refused"] is not None) for name in NUMBERS)
        odd_chimera = row["schedule"] == "chimera" and row["pp"] % 2 == 1
        assert not odd_chimera or re.match("pp = 3: must be even", row["refused"])
        indivisible = row["schedule"] == "gpipe" and row["model"] == "paper" and 256 % row["microbatches"]
        assert not indivisible or re.match("global_batch = 256: must divide", row["refused"])


def test_noisy_rows_are_runs_with_their_seeds(noisy, noisy_rows):
    """One row a seed, in the order of the file; makespan and computing time are those of that run."""
    columns = noisy_rows
    seeds = [3, 4, 5, 6, 7, 8, 9, 1]
    assert columns["seed"] == seeds * (noisy.num_rows // len(seeds))
    schedule, model, system = build("1f1b", 4, 8), load_model("paper"), load_system("mid_cp_slow_nw")
    costs, graph = model_costs(schedule, model, system), compile_graph(schedule, "overlapped", "blocking")
    noises = (Noise(jitter=0.1), Noise(straggling=0.5, slowdown=2.0))
    first = columns["microbatches"].index(8) + 2 * len(seeds)  # behind those without an all-reduce
    for noise, start in zip(noises, (first, first + len(seeds)), strict=True):
        rows = slice(start, start + len(seeds))
        assert columns["allreduce"][start] == "blocking"
        assert columns["jitter"][start] == noise.jitter
        assert columns["makespan_s"][rows] == noisy_makespans(graph, costs, noise, seeds).tolist()
        timeline = run_graph(graph, costs, next(operation_factors(schedule, noise, [3])))
        assert columns["busy_s"][start] == pytest.approx(metrics.bubbles.busy_s(timeline).sum(), rel=1e-12)
        assert columns["idle_ratio"][start] == pytest.approx(metrics.idle_ratio(timeline), abs=1e-12)


def test_results_vary_from_run_to_run(noisy, noisy_rows):
    """All but those that follow from table, costs and memory alone, whatever takes how long."""
    runs = slice(noisy.shape[-1])  # of the first point
    assert noisy_rows["refused"][runs] == [None] * noisy.shape[-1]
    assert {name for name in NUMBERS if len(set(noisy_rows[name][runs])) == 1} == FREE_OF_TIMES


def test_noisy_rows_do_not_depend_on_the_threads_of_the_machine(file, tmp_path):
    """A large table in this process, and in one whose linear algebra has one thread: the same bytes."""
    path = file(LARGE)
    assert build("1f1b", 64, 256).num_operations > 20_000  # from about there on libraries share out a sum
    outputs = [tmp_path / "many.parquet", tmp_path / "one.parquet"]
    run_sweep(path, outputs[0])
    one = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "ppmodel", "sweep", str(path), "--out", str(outputs[1])]
    subprocess.run(command, check=True, capture_output=True, env=one | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert outputs[0].read_bytes() == outputs[1].read_bytes()


def test_rows_say_what_fits_and_whether_nics_are_shared(file):
    """The memory of the system's ranks; nics that a node shares are held under overlapped transfers alone."""
    text = SHORT.replace("[2, 3, 4, 5]", "[4, 16]").replace("dgx_h100", "[dgx_h100, a2_highgpu_8g]")
    sweep = load_sweep(file(text))
    columns = compute_rows(sweep, 0, sweep.num_rows)
    names = ("p2p", "system", "pp", "refused", "memory_capacity_bytes", "nics_shared")
    for p2p, system, size, refused, capacity, shared in zip(*(columns[name] for name in names), strict=True):
        if refused is None:
            assert capacity == load_system(system).memory_capacity_bytes
            assert shared == (p2p == "overlapped" and system == "a2_highgpu_8g" and size == 16)


@settings(max_examples=10)
@given(cuts=st.lists(st.integers(1, 127), max_size=4, unique=True))
def test_rows_do_not_depend_on_the_cuts(noisy, noisy_rows, cuts):
    """Any cut of the rows, also inside a case or its seeds, gives the same rows."""
    assert noisy.num_rows == 128
    bounds = [0, *sorted(cuts), noisy.num_rows]
    parts = [compute_rows(noisy, *pair) for pair in itertools.pairwise(bounds)]
    assert {name: [value for part in parts for value in part[name]] for name in columns_of(noisy)} == noisy_rows


def test_one_system_that_overflows_leaves_the_others(file):
    """A makespan too large for a number refuses its own rows alone."""
    text = (DATA / "systems" / "dgx_h100.yaml").read_text()
    file(re.sub(r"(peak_compute:\n?\s*\{value: )[^,]+", r"\g<1>3e-305", text), "slow.yaml")
    text = SHORT.replace("dgx_h100", "[dgx_a100, slow.yaml, dgx_h100]")
    text = text.replace("[2, 3, 4, 5]", "4").replace("[2, 4, 8, 16]", "256")
    sweep = load_sweep(file(text))
    columns = compute_rows(sweep, 0, sweep.num_rows)
    for system, span, refused in zip(columns["system"], columns["makespan_s"], columns["refused"], strict=True):
        assert (span is None) == (system == "slow")
        assert (refused is not None) == (system == "slow")


def test_chunks_cut_all_rows(file, plain, noisy):
    """From the first row to the last, in whole graphs where a chunk has several; many seeds of one graph are cut."""
    seeds = NOISY.replace("{from: 3, to: 9}, 1", "{from: 1, to: 1000000}").replace("[1f1b, chimera]", "1f1b")
    for sweep, largest in ((plain, 16), (noisy, 16), (load_sweep(file(seeds)), 4096)):
        chunks = sweep.chunks()
        sizes = [last - first for first, last in chunks]
        assert list(itertools.accumulate(sizes)) == [last for _, last in chunks]
        assert (chunks[-1][1], max(sizes)) == (sweep.num_rows, largest)
        assert largest % math.prod(sweep.shape[1:]) in (0, largest)
