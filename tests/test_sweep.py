"""Sweeps: the same rows in the same order whoever computes them, and however often they are interrupted."""

import io
import itertools
import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import ppmodel as pp
from ppmodel import build, metrics
from ppmodel.cli import main
from ppmodel.costs import model_costs
from ppmodel.errors import SpecificationError, SweepError
from ppmodel.evaluate import COLUMNS, COORDINATES
from ppmodel.noise import Noise, noisy_makespans
from ppmodel.noise.draw import operation_factors
from ppmodel.simulation import compile_graph, run_graph
from ppmodel.specs import DATA, load_model, load_system
from ppmodel.sweep import (
    SweepStopped,
    chunk_bounds,
    columns_of,
    compute_rows,
    load_sweep,
    progress,
    run_sweep,
    runners,
    store,
)
from ppmodel.sweep import run as whole

BAD = Path(__file__).parent / "bad" / "sweeps"
PLAIN = """
schedules: [gpipe, 1f1b, {name: chimera, concat: [direct, forward-doubling]}, {name: hanayo, waves: [1, 2]}]
pp: [2, 3, 4, 6]
microbatches: [4, 6, 8, 12]
p2p: [latency, overlapped, blocking]
systems: [dgx_a100, dgx_h100]
models: [gpt3_175b, paper]
"""
NOISY = """
schedules: [1f1b, chimera]
pp: 4
microbatches: [4, 8]
allreduce: [excluded, blocking]
systems: mid_cp_slow_nw
models: paper
noise: [{jitter: 0.1}, {straggling: 0.5, slowdown: 2.0}]
seeds: [{from: 3, to: 9}, 1]
"""
LARGE = """
schedules: 1f1b
pp: 64
microbatches: 256
systems: mid_cp_slow_nw
models: gpt3_175b
noise: {jitter: 0.1}
seeds: {from: 1, to: 2}
"""
SHORT = """
schedules: [gpipe, 1f1b, eager-1f1b]
pp: [2, 3, 4, 5]
microbatches: [2, 4, 8, 16]
p2p: [latency, overlapped]
systems: dgx_h100
models: paper
"""


@pytest.fixture
def file(tmp_path):
    """Write a specification."""

    def write(text, name="sweep.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The bytes of each specification's output, computed without interruption in this process."""
    folder = tmp_path_factory.mktemp("expected")
    outputs = {}
    for text in (PLAIN, SHORT):
        (folder / "sweep.yaml").write_text(text)
        out = folder / f"{len(outputs)}.parquet"
        run_sweep(folder / "sweep.yaml", out)
        outputs[text] = out.read_bytes()
    return outputs


def sweep_of(text, tmp_path_factory):
    path = tmp_path_factory.mktemp("specification") / "sweep.yaml"
    path.write_text(text)
    return load_sweep(path)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return sweep_of(PLAIN, tmp_path_factory)


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    return sweep_of(NOISY, tmp_path_factory)


@pytest.fixture(scope="module")
def plain_rows(plain):
    columns = compute_rows(plain, 0, plain.num_rows)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@pytest.fixture(scope="module")
def noisy_rows(noisy):
    return compute_rows(noisy, 0, noisy.num_rows)


# ---- rows ----------------------------------------------------------------------------------------


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
    numbers = COLUMNS[len(COORDINATES) : -2]
    for row in plain_rows:
        assert all((row[name] is None) == (row["refused"] is not None) for name in numbers)
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
        timeline = run_graph(graph, costs, operation_factors(schedule, noise, 3))
        assert columns["busy_s"][start] == pytest.approx(metrics.bubbles.busy_s(timeline).sum(), rel=1e-12)
        assert columns["idle_ratio"][start] == pytest.approx(metrics.idle_ratio(timeline), abs=1e-12)


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


def test_chunks_cut_all_rows_and_follow_from_the_file_alone(plain, noisy):
    """Boundaries rise from the first row to the last; small sweeps have some, large ones bounded work in each."""
    for sweep in (plain, noisy):
        bounds = chunk_bounds(sweep)
        assert (bounds[0], bounds[-1]) == (0, sweep.num_rows)
        assert (np.diff(bounds) > 0).all()
        assert (chunk_bounds(sweep) == bounds).all()
    assert len(chunk_bounds(plain)) > 10


def test_many_runs_of_one_graph_are_many_chunks(file):
    """A case that is too large for a chunk is cut evenly."""
    text = NOISY.replace("{from: 3, to: 9}, 1", "{from: 1, to: 1000000}").replace("[1f1b, chimera]", "1f1b")
    sizes = np.diff(chunk_bounds(load_sweep(file(text))))
    assert sizes.sum() == 8_000_000
    assert sizes.max() < 1.1 * sizes.min() < 20_000


# ---- the file ------------------------------------------------------------------------------------

REFUSED = {
    "bad_option": ":1: schedules.0.concat = up: must be one of direct, .*write, for example, concat: direct",
    "broken_file": "zero.yaml:[0-9]+: network_bandwidth.value = 0: must be greater than 0",
    "fraction": ":3: microbatches = 8.0: must be a valid integer; write a whole number",
    "list": ": document = a list: must be a mapping of keys to values; write 'key: value'",
    "mapping": ":2: pp = .*: must be a valid integer",
    "missing_file": ":5: models.1 = mine.yaml: is not a file",
    "missing_file_of_ones_own": ":1: schedules.0.file = nowhere.py: is not a file",
    "missing_key": ": pp = nothing: is missing; add the key pp",
    "name_in_list": r":1: schedules.0 = \['1f1b'\]: must be a valid string",
    "no_schedule": r":1: schedules = \[\]: must have an entry",
    "no_values": r":1: schedules.0.waves = \[\]: must have an entry",
    "noise_alone": ":6: noise = given: needs seeds; add, for example, seeds: {from: 1, to: 100}",
    "noise_key": ":7: noise.jiter = 0.1: is not a known key; did you mean jitter",
    "noise_number": ":7: noise = 5: must be a mapping of keys to values",
    "noise_range": ":7: noise.1.straggling = 2: must be less than or equal to 1",
    "nothing": ":2: pp = nothing: must be a valid integer",
    "nothing_in_list": r":1: schedules.0 = \[\]: must be a valid string",
    "number_for_name": ":5: models = 7: must be a valid string",
    "option_twice": r":1: schedules.0.waves = \[2, 2\]: has an entry twice",
    "pair_option": ":1: schedules.0.concat = up: must be one of direct",
    "pair_split": ":1: schedules.0.split = 1:0: must be two whole numbers",
    "same_name": ":4: systems.1 = .*dgx_h100.yaml: has the same name as dgx_h100",
    "same_schedule": ":1: schedules.1 = chimera: is listed twice with the same options",
    "seed_in_list": r":7: seeds.0 = \[1\]: must be a valid integer",
    "seed_text": ":6: seeds.1 = 'two': must be a valid integer",
    "seeds_alone": ":6: seeds = given: needs noise; add, for example, noise: {jitter: 0.1}",
    "seeds_key": ":6: seeds.first = 1: is not a known key; did you mean from",
    "seeds_backward": r":6: seeds.0.to = 1: must be at least from \(9\)",
    "seeds_overlap": ":6: seeds.1 = 5: is listed twice",
    "seeds_too_many": ":7: seeds = 9223372036854775808 of them: must be at most 10000000",
    "semantics": ":6: p2p.1 = 'mail': must be 'latency', ",
    "table_option": ":1: schedules.0.chunks = 2: is not an option of node-aware 1F1B by hand; its options: none",
    "text": ":2: pp.1 = 'eight': must be a valid integer",
    "too_many": ": seeds = 1000000000001 of them: must be at most 10000000",
    "twice": ":3: microbatches.2 = 8: is listed twice",
    "unknown_key": ":6: wavs = 2: is not a known key; delete it; the keys are schedules, pp",
    "unknown_option": ":1: schedules.0.waves = 2: is not an option of 1f1b; its options: none",
    "unknown_schedule": ":1: schedules.1 = gpip: is not a known schedule; did you mean gpipe",
    "unknown_system": ":4: systems.1 = dgx_h10: is neither a known name .*did you mean dgx_h100",
    "unnamed_schedule": ":1: schedules.0.name = nothing: is missing",
    "useless_slowdown": r":8: noise.0.slowdown = 1.3: has no effect: no rank is slow; add.*straggling: 0.02",
    "useless_straggling": ":9: noise.1.straggling = 0.02: has no effect: slow ranks are as .*add, .*slowdown: 1.5",
    "zero": ":3: microbatches.1 = 0: must be greater than or equal to 1; write 1 or a larger number",
}


def test_every_bad_file_has_its_message():
    """The folder of bad sweeps and the messages here name the same files."""
    assert {path.stem for path in BAD.iterdir()} == set(REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_bad_files_are_refused(name):
    """Each broken file costs one line with file, line, field, value, rule and remedy."""
    with pytest.raises(SpecificationError, match=REFUSED[name]) as caught:
        load_sweep(BAD / f"{name}.yaml")
    assert str(caught.value).startswith(f"{BAD}")
    assert "\n" not in str(caught.value)


def test_files_are_looked_up_from_the_specification(file, tmp_path, monkeypatch):
    """A system beside the file is found from any folder, and its contents are part of the sweep."""
    (tmp_path / "mine.yaml").write_text((DATA / "systems" / "dgx_h100.yaml").read_text())
    path = file(SHORT.replace("dgx_h100", "mine.yaml"))
    monkeypatch.chdir("/")
    sweep = load_sweep(path)
    assert sweep.systems[0].name == "mine"
    before = store.record_of(sweep)
    text = (tmp_path / "mine.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(re.sub(r"(network_latency:\n?\s*\{value: )\S+,", r"\g<1>77,", text))
    assert store.record_of(load_sweep(path)) != before


def test_the_template_explains_every_key():
    """It is a legal sweep, and each key follows a comment of its own, those among them that are left away."""
    from ppmodel.sweep.specification import _SweepFile

    path = DATA / "templates" / "sweep.yaml"
    load_sweep(path)
    explained = re.findall(r"\n\n# [A-Z](?:.*\n#)*.*\n(?:#\n# )?(\w+):", path.read_text())
    assert explained == list(_SweepFile.model_fields)


GENERATOR = """
from ppmodel.schedules import build
from ppmodel.schedules.registry import Option, schedule
from dataclasses import replace
@schedule("mine", label="mine", title="mine", legal="any", options=[Option.count("odd", 1, "O", "nothing")])
def mine(num_ranks, num_microbatches, odd=1):
    if num_ranks == 5:
        raise IndexError("no five")
    return replace(build("1f1b", num_ranks, num_microbatches), name="mine")
"""
OWN = """
schedules: [1f1b, [chimera, {concat: forward-doubling}], [asymmetric-chimera, {split: [1, 3]}],
  {file: mine.py, odd: [1, 2]}, {file: table.csv}]
pp: [4, 5]
microbatches: 8
systems: dgx_h100
models: paper
"""


@pytest.fixture
def own(file, tmp_path):
    """A sweep with a generator, a table, and pairs of name and options."""
    file(GENERATOR, "mine.py")
    build("gpipe", 4, 8).to_csv(tmp_path / "table.csv")
    text = (tmp_path / "table.csv").read_text().replace("# schedule: gpipe", "# schedule: by hand")
    file(text, "table.csv")
    return file(OWN)


def test_schedules_of_ones_own_stand_beside_the_registered_ones(own, tmp_path, capsys):
    """Generators with their options, tables at their size, pairs as notebooks write them; also by the command line."""
    out = tmp_path / "r.parquet"
    assert run(capsys, own, "--out", out)[0] == 0
    rows = parquet.read_table(out).to_pylist()
    assert [row["label"] for row in rows if row["pp"] == 4] == [
        "1F1B", "Chimera forward-doubling", "asymmetric Chimera 1:3", "mine O = 1", "mine O = 2", "by hand",
    ]  # fmt: skip
    times = {row["label"]: row["makespan_s"] for row in rows if row["pp"] == 4}
    assert times["mine O = 1"] == times["1F1B"]
    refused = [row["refused"] for row in rows if row["pp"] == 5]
    assert refused[0] is None
    assert refused[3].startswith("mine.py:8: generator = mine: fails at S = 5, B = 8 (IndexError: no five)")
    assert refused[5].startswith("table = by hand at pp = 5, microbatches = 8: is a table for pp = 4")
    record = json.loads(parquet.read_schema(out).metadata[b"ppmodel_sweep"])
    assert dict(record["sweep"]["files"])["mine.py"] == GENERATOR
    own.write_text(OWN.replace(", {file: table.csv}", ""))
    more = ("--schedule-file", tmp_path / "table.csv")
    assert run(capsys, own, "--out", out, *more, "--force")[0] == 0
    assert parquet.read_table(out).to_pylist() == rows


def test_workers_of_this_machine_give_the_same_bytes(own, tmp_path, capsys):
    """Schedules of one's own travel with the sweep as text; nothing is printed but the result."""
    assert run(capsys, own, "--out", tmp_path / "here.parquet")[0] == 0
    code, said, waited = run(capsys, own, "--out", tmp_path / "there.parquet", "--workers", 2)
    assert (code, said.count("\n"), waited) == (0, 1, "")
    assert (tmp_path / "here.parquet").read_bytes() == (tmp_path / "there.parquet").read_bytes()


def test_many_single_seeds_are_read_at_once(file):
    """Thousands of them cost as much as there are, and not their square."""
    text = NOISY.replace("[{from: 3, to: 9}, 1]", f"{list(range(3000))}")
    began = time.monotonic()
    assert load_sweep(file(text)).num_runs == 3000
    assert time.monotonic() - began < 10


# ---- the output ----------------------------------------------------------------------------------


def run(capsys, *words):
    code = main(["sweep", *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_output_is_a_table_that_knows_its_sweep(file, tmp_path, capsys, plain_rows):
    """Columns, types and rows as promised; the specification with all contents stands in the file."""
    out = tmp_path / "results.parquet"
    code, said, _ = run(capsys, file(PLAIN), "--out", out)
    table = parquet.read_table(out)
    refused = sum(row["refused"] is not None for row in plain_rows)
    alike = sum(row["schedule"] == "hanayo" and row["pp"] != row["microbatches"] for row in plain_rows)
    assert (code, said) == (
        0,
        f"{out}: {len(plain_rows)} rows, {len(plain_rows)} computed now; {refused} refused, {alike} like this: "
        "microbatches = 4: must equal pp (2) for hanayo, which is defined only there; "
        "pass microbatches 2\n",
    )
    assert table.column_names == list(COLUMNS)
    assert table.to_pylist() == plain_rows
    record = json.loads(table.schema.metadata[b"ppmodel_sweep"])
    assert record["sweep"]["systems"][1]["name"] == "dgx_h100"
    assert record["sweep"]["systems"][1]["network_bandwidth_bytes_per_s"] == 50e9
    assert not list(tmp_path.glob("*.parts"))


FITTING = """
schedules: [gpipe, 1f1b, chimera]
pp: 32
microbatches: [256, 512]
p2p: [latency, overlapped]
systems: [roomy.yaml, dgx_h100]
models: llama3_70b
"""


@pytest.mark.parametrize("noise", ["", "noise: [{jitter: 0.5}, {jitter: 0.1}]\nseeds: {from: 1, to: 2}\n"])
def test_the_page_chooses_the_fastest_that_fits(file, tmp_path, monkeypatch, noise):
    """Its lines run on an output, with and without noise: of each setting the best mean over the seeds that fits."""
    monkeypatch.chdir(tmp_path)
    system = (DATA / "systems" / "dgx_h100.yaml").read_text()
    file(re.sub(r"(memory_capacity:\n?\s*\{value: )[^,]+", r"\g<1>512", system), "roomy.yaml")
    run_sweep(file(FITTING + noise), "results.parquet")
    blocks = re.findall(r"```python\n(.*?)```", (DATA.parent / "book" / "sweeps.md").read_text(), re.DOTALL)
    found = {}
    for block in blocks:
        exec(block, found)
    runs, best = {}, {}
    names = ("system", "model", "pp", "microbatches", "p2p", "allreduce", "jitter", "straggling", "slowdown")
    for row in parquet.read_table("results.parquet").to_pylist():
        if row["refused"] is None and row["peak_memory_bytes"] <= row["memory_capacity_bytes"]:
            runs.setdefault((*(row.get(name) for name in names), row["label"]), []).append(row["makespan_s"])
    for (*setting, _), spans in runs.items():
        best[tuple(setting)] = min(best.get(tuple(setting), np.inf), np.mean(spans))
    assert {label for *_, label in runs} == {"1F1B", "Chimera"}  # what GPipe holds does not fit
    assert len(best) == (8 if noise else 4)  # of each microbatches, semantics and noise
    assert sorted(found["fastest"]["makespan_s"]) == pytest.approx(sorted(best.values()))


def test_a_finished_sweep_is_not_computed_again(file, tmp_path, capsys, monkeypatch):
    """The same command finds its rows; another sweep is refused, and replaces them only when forced."""
    path, out = file(SHORT), tmp_path / "results.parquet"
    run_sweep(path, out)
    before = out.read_bytes()
    monkeypatch.setattr(runners, "compute_rows", None)
    assert run(capsys, path, "--out", out) == (0, f"{out}: 96 rows, already complete, nothing to do; 0 refused\n", "")
    monkeypatch.undo()
    path.write_text(SHORT.replace("dgx_h100", "dgx_a100"))
    code, _, said = run(capsys, path, "--out", out)
    assert code == 2
    assert re.match(r"error: --out = .*exists already, from another.*pass --force", said)
    assert out.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if "parts" in path.name] == []
    assert run(capsys, path, "--out", out, "--force")[0] == 0
    assert set(parquet.read_table(out)["system"].to_pylist()) == {"dgx_a100"}


def test_row_groups_do_not_depend_on_the_chunks(file, tmp_path, monkeypatch):
    """The same bytes from few large chunks and from many small ones, in groups of a fixed number of rows."""
    monkeypatch.setattr(store, "_ROWS_PER_GROUP", 40)
    outputs = []
    for limit in (10**9, 4 * 10**6):
        monkeypatch.setattr("ppmodel.sweep.grid._LARGEST_CHUNK_NS", limit)
        outputs.append(tmp_path / f"{limit}.parquet")
        run_sweep(file(SHORT), outputs[-1])
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    metadata = parquet.read_metadata(outputs[0])
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [40, 40, 16]


WRONG_OUTPUTS = {
    "results.csv": "must be a name ending in .parquet",
    "nowhere/results.parquet": "nowhere, which is no folder; create it",
    "folder.parquet": "exists but is not a file; name another file",
}


@pytest.mark.parametrize("name", WRONG_OUTPUTS)
def test_wrong_outputs_are_refused_at_once(file, tmp_path, capsys, name):
    """Before anything is computed, in one line."""
    (tmp_path / "folder.parquet").mkdir()
    code, _, said = run(capsys, file(SHORT), "--out", tmp_path / name)
    assert (code, said.count("\n")) == (2, 1)
    assert WRONG_OUTPUTS[name] in said


def test_options_that_exclude_one_another(file, tmp_path, capsys):
    """Workers of this machine and a scheduler are two ways, and one is chosen."""
    words = (file(SHORT), "--out", tmp_path / "r.parquet", "--workers", 2, "--scheduler", "tcp://127.0.0.1:1")
    assert run(capsys, *words)[2].startswith("error: --workers = 2: cannot be combined with --scheduler")


@pytest.mark.parametrize(("library", "extra"), [("pyarrow", "sweep"), ("tqdm", "sweep"), ("distributed", "cluster")])
def test_a_missing_extra_is_named(file, tmp_path, capsys, monkeypatch, library, extra):
    """What is not installed is named with the extra that brings it."""
    monkeypatch.setattr(whole, "find_spec", lambda name: None if name == library else name)
    words = (file(SHORT), "--out", tmp_path / "r.parquet", "--workers", 2)
    said = f"error: {library} = nothing: is not installed; install ppmodel with its extra '{extra}'\n"
    assert run(capsys, *words) == (2, "", said)
    assert not list(tmp_path.glob("*.parts"))


@pytest.mark.parametrize(("ranks", "shown"), [("3", ": "), ("[3, 5]", ", all like this: ")])
def test_a_sweep_without_a_defined_row_says_so(file, tmp_path, capsys, ranks, shown):
    """Every row refused: exit code 1 and the reason, at the first run and at the second."""
    path, out = file(SHORT.replace("[gpipe, 1f1b, eager-1f1b]", "hanayo")), tmp_path / "results.parquet"
    text = path.read_text().replace("[2, 3, 4, 5]", ranks).replace("[2, 4, 8, 16]", "4").replace("[latency, ", "[")
    path.write_text(text)
    for _ in range(2):
        code, said, _ = run(capsys, path, "--out", out)
        assert code == 1
        assert f"every row is refused{shown}microbatches = 4: must equal pp (3) for hanayo" in said


# ---- interrupted and resumed ---------------------------------------------------------------------


class Counted:
    """`compute_rows` that notes what it is asked for, and stops at a call."""

    def __init__(self, stop_at=None):
        self.calls, self.stop_at = [], stop_at

    def __call__(self, sweep, first, last):
        if len(self.calls) == self.stop_at:
            raise KeyboardInterrupt
        self.calls.append((first, last))
        return compute_rows(sweep, first, last)


def test_an_interrupted_sweep_goes_on(file, tmp_path, monkeypatch, expected):
    """Interrupted again and again: no chunk is computed twice, none is left out, the bytes are the same."""
    path, out, seen = file(PLAIN), tmp_path / "results.parquet", []
    bounds = chunk_bounds(load_sweep(path)).tolist()
    for stop_at in (0, 3, 1, 5):
        counted = Counted(stop_at)
        monkeypatch.setattr(runners, "compute_rows", counted)
        with pytest.raises(SweepStopped) as caught:
            run_sweep(path, out)
        seen += counted.calls
        done = bounds[len(seen)]
        assert str(caught.value) == f"{done} of {bounds[-1]} rows done; the same command goes on"
        assert not out.exists()
    counted = Counted()
    monkeypatch.setattr(runners, "compute_rows", counted)
    summary = run_sweep(path, out)
    assert seen + counted.calls == list(itertools.pairwise(bounds))
    assert summary.computed == bounds[-1] - done
    assert out.read_bytes() == expected[PLAIN]


CHILD = """
import os, signal, sys
from ppmodel.cli import run
name, before, number = sys.argv[1], sys.argv[2] == "before", int(sys.argv[3])
replace, listdir, count = os.replace, os.listdir, 0
def again(folder):
    os.kill(os.getpid(), signal.SIGINT)
    return listdir(folder)
def counted(*paths):
    global count
    count += 1
    if count == number and before:
        os.kill(os.getpid(), getattr(signal, name))
    replace(*paths)
    if count == number and not before:
        os.listdir = again
        os.kill(os.getpid(), getattr(signal, name))
os.replace = counted
sys.argv[1:] = ["sweep", *sys.argv[4:]]
run()
"""


@pytest.mark.parametrize(
    ("name", "moment", "number"),
    [
        ("SIGKILL", "before", 1),  # the record of the sweep
        ("SIGKILL", "before", 3),  # a part
        ("SIGKILL", "before", -1),  # the output
        ("SIGKILL", "after", -1),
        ("SIGTERM", "after", 4),
    ],
)
def test_a_sweep_may_be_ended_at_any_moment(file, tmp_path, capsys, expected, name, moment, number):
    """Killed around any rename, or stopped and stopped again on its way out: the same command gives the same bytes."""
    path, out = file(SHORT), tmp_path / "results.parquet"
    chunks = len(chunk_bounds(load_sweep(path))) - 1
    number = chunks + 2 if number == -1 else number
    command = [sys.executable, "-c", CHILD, name, moment, str(number), str(path), "--out", str(out)]
    ended = subprocess.run(command, capture_output=True, text=True)
    parts = {part: part.stat().st_mtime_ns for part in tmp_path.glob("*.parts/part-*.parquet")}
    stored = min(number - (2 if moment == "before" else 1), chunks) if number <= chunks + 1 else chunks
    assert len(parts) == max(0, stored)
    if name == "SIGKILL":
        assert (ended.returncode, ended.stderr) == (-signal.SIGKILL, "")
    else:
        assert ended.returncode == 130
        assert re.fullmatch(r"\d+ of 96 rows done; the same command goes on\n", ended.stderr)

    if not out.exists():
        with resuming(path, out) as kept:
            assert {part: part.stat().st_mtime_ns for part in kept} == parts
    code, said, _ = run(capsys, path, "--out", out)
    assert code == 0
    assert ("nothing to do" in said) == (name == "SIGKILL" and (moment, number) == ("after", chunks + 2))
    assert out.read_bytes() == expected[SHORT]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.parquet", "sweep.yaml"]


def test_whoever_repeats_ctrl_c_only_waits(file, tmp_path):
    """With workers, signals that follow the first one change nothing, until the process has ended."""
    path = file(PLAIN.replace("systems:", "noise: {jitter: 0.1}\nseeds: {from: 1, to: 100}\nsystems:"))
    command = [sys.executable, "-m", "ppmodel", "sweep", path, "--out", tmp_path / "r.parquet", "--workers", "2"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as child:
        while not list(tmp_path.glob("*.parts/part-*.parquet")):
            assert child.poll() is None
            time.sleep(0.02)
        try:
            for number in itertools.islice(itertools.cycle((signal.SIGINT, signal.SIGTERM)), 10_000):
                child.send_signal(number)
                time.sleep(0.01)
                if child.poll() is not None:
                    break
        finally:
            child.kill()  # where it has not ended
        _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    said = re.sub(r".* left\n", "", said)  # progress, on a slow machine
    assert re.fullmatch(r"stopping the workers...\n\d+ of \d+ rows done; the same command goes on\n", said)


STUCK = """
import asyncio, importlib, os, signal, sys, threading
from contextlib import contextmanager
from ppmodel.cli import run
running = importlib.import_module("ppmodel.sweep.run")
running._STOP_S = 0.2
run_here = running.run_here
@contextmanager
def stuck(*args):
    with run_here(*args) as parts:
        try:
            yield parts
        finally:
            asyncio.sleep(0)  # never awaited, as what an interrupted call of Dask leaves
            threading.Event().wait()
running.run_here = stuck
put = running.Store.put
def put_and_stop(*args):
    put(*args)
    os.kill(os.getpid(), signal.SIGTERM)
running.Store.put = put_and_stop
run()
"""


def test_a_stop_that_hangs_is_cut_short(file, tmp_path):
    """Whatever a stopped sweep waits for or leaves behind, its process ends in one line, and what was done is kept."""
    path, out = file(SHORT), tmp_path / "r.parquet"
    ended = subprocess.run(
        [sys.executable, "-c", STUCK, "sweep", path, "--out", out], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 130
    assert re.fullmatch(r"\d+ of 96 rows done; the same command goes on\n", ended.stderr)
    with resuming(path, out) as kept:
        assert len(kept) == 1


@contextmanager
def resuming(path, out):
    """The parts as the next run finds them."""
    sweep = load_sweep(path)
    mine = store.Store(out, sweep, chunk_bounds(sweep))
    with store.held(mine):
        mine.begin()
        missing = set(mine.missing())
        yield [mine._paths[chunk] for chunk in range(len(mine.bounds) - 1) if chunk not in missing]


def interrupted(path, out, monkeypatch, chunks=2):
    with monkeypatch.context() as patch:
        patch.setattr(runners, "compute_rows", Counted(chunks))
        with pytest.raises(SweepStopped):
            run_sweep(path, out)


def cut_off(one, _):
    one.write_bytes(one.read_bytes()[:-10])


def damage(one, _):
    data = bytearray(one.read_bytes())
    data[len(data) // 2] ^= 1
    one.write_bytes(data)


def swap(one, other):
    both = one.read_bytes(), other.read_bytes()
    one.write_bytes(both[1])
    other.write_bytes(both[0])


def exchange_names(one, other):
    numbers = [path.name[:12] for path in (one, other)]
    one.rename(one.with_name(numbers[1] + one.name[12:]))
    other.rename(other.with_name(numbers[0] + other.name[12:]))


@pytest.mark.parametrize(("change", "lost"), [(cut_off, 1), (damage, 1), (swap, 2), (exchange_names, 2)])
def test_a_part_that_was_changed_is_computed_again(file, tmp_path, monkeypatch, expected, change, lost):
    """Cut off by a loss of power, damaged, or in the place of another: it costs its own rows only."""
    path, out = file(SHORT), tmp_path / "results.parquet"
    interrupted(path, out, monkeypatch)
    parts = sorted((tmp_path / "results.parquet.parts").glob("part-*"))
    change(*parts)
    counted = Counted()
    monkeypatch.setattr(runners, "compute_rows", counted)
    run_sweep(path, out)
    assert len(counted.calls) == len(chunk_bounds(load_sweep(path))) - 1 - len(parts) + lost
    assert out.read_bytes() == expected[SHORT]


def test_a_part_that_is_changed_meanwhile_is_named(file, tmp_path, capsys, monkeypatch, expected):
    """Changed between its writing and the end: one line, and the same command computes it again."""
    path, out, finish = file(SHORT), tmp_path / "results.parquet", store.Store.finish

    def damaged(self):
        damage(next(self.folder.glob("part-000001-*")), None)
        return finish(self)

    with monkeypatch.context() as patch:
        patch.setattr(store.Store, "finish", damaged)
        code, _, said = run(capsys, path, "--out", out)
    assert (code, said.count("\n")) == (2, 1)
    assert re.match("error: part = .*part-000001-.*: has been changed since it was written; the same command", said)
    assert run(capsys, path, "--out", out)[0] == 0
    assert out.read_bytes() == expected[SHORT]


def test_parts_of_another_sweep_are_refused(file, tmp_path, capsys, monkeypatch, expected):
    """Rows of two sweeps or of two versions are never mixed; the message says what differs."""
    path, out = file(SHORT), tmp_path / "results.parquet"
    interrupted(path, out, monkeypatch)
    path.write_text(SHORT.replace("[2, 3, 4, 5]", "[2, 3, 4]"))
    _, _, said = run(capsys, path, "--out", out)
    assert re.match(r"error: parts = .*were begun with another specification \(pp differ\); resume that one", said)
    path.write_text(SHORT)
    with monkeypatch.context() as patch:
        patch.setattr(store, "versions", lambda: "ppmodel 9.9")
        assert re.search("were begun with ppmodel 0.*, and this is ppmodel 9.9", run(capsys, path, "--out", out)[2])
    for text in ("", "[[]]", "[" * 10**5):
        out.with_name("results.parquet.parts").joinpath("sweep.json").write_text(text)
        assert "were begun with an unreadable record; " in run(capsys, path, "--out", out)[2]
    path.write_text(PLAIN)
    assert run(capsys, path, "--out", out, "--force")[0] == 0
    assert out.read_bytes() == expected[PLAIN]


def test_a_foreign_record_stays(file, tmp_path, capsys):
    """A file of somebody else's that has the name of the record, alone in the folder, is refused and left."""
    folder = tmp_path / "results.parquet.parts"
    folder.mkdir()
    (folder / "sweep.json").write_text("mine")
    assert "were begun with an unreadable record" in run(capsys, file(SHORT), "--out", tmp_path / "results.parquet")[2]
    assert (folder / "sweep.json").read_text() == "mine"


def _text(path):
    path.write_text("mine")


def _link(path):
    path.symlink_to("../elsewhere")


STRANGE = [
    (name, _text) for name in ("thesis.txt", "thesis.tmp", "part-mine.parquet", "part-000001-00.parquet", "lock")
]
STRANGE += itertools.product(("lock", "part-000001-" + "0" * 16 + ".parquet"), (os.mkfifo, os.mkdir, _link))


@pytest.mark.parametrize(("name", "make"), STRANGE)
def test_nothing_that_is_not_a_part_is_touched(file, tmp_path, capsys, name, make):
    """A folder that holds anything else is refused and left as it is; pipes are not waited for, links not followed."""
    folder = tmp_path / "results.parquet.parts"
    folder.mkdir()
    make(folder / name)
    before = os.lstat(folder / name)
    code, _, said = run(capsys, file(SHORT), "--out", tmp_path / "results.parquet", "--force")
    assert (code, said.count("\n")) == (2, 1)
    assert f"contain another file ({name})" in said
    after = os.lstat(folder / name)
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
    assert not (tmp_path / "elsewhere").exists()


def test_a_link_in_the_place_of_the_parts_is_not_followed(file, tmp_path, capsys):
    """Nothing is written to what it leads to."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "results.parquet.parts").symlink_to("elsewhere")
    code, _, said = run(capsys, file(SHORT), "--out", tmp_path / "results.parquet", "--force")
    assert (code, said.count("\n")) == (2, 1)
    assert re.search(r"parts = .*: are a link; move them, or choose another --out", said)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_one_sweep_at_a_time_writes_an_output(file, tmp_path, capsys):
    """A second one for the same output is refused while the first one holds it."""
    path, out = file(SHORT), tmp_path / "results.parquet"
    with resuming(path, out):
        code, _, said = run(capsys, path, "--out", out)
    assert (code, said.count("\n")) == (2, 1)
    assert "are being written by another sweep" in said
    assert run(capsys, path, "--out", out)[0] == 0


def test_a_full_disk_costs_one_line(file, tmp_path, capsys, monkeypatch, expected):
    """What is stored stays, and the same command goes on when there is room."""
    path, out, synced = file(SHORT), tmp_path / "results.parquet", []

    def full(_):
        synced.append(None)
        if len(synced) == 4:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        code, _, said = run(capsys, path, "--out", out)
    assert (code, said.count("\n")) == (2, 1)
    assert re.search(r"cannot be written \(No space left on device\); free some space", said)
    assert len(list(tmp_path.glob("*.parts/part-*.parquet"))) == 2
    assert run(capsys, path, "--out", out)[0] == 0
    assert out.read_bytes() == expected[SHORT]


def test_a_failure_is_one_line(file, tmp_path, capsys, monkeypatch):
    """Rows that cannot be computed are named with the reason; the error survives its way from a worker."""
    monkeypatch.setattr("ppmodel.evaluate.iterations", lambda *_, **__: 1 / 0)
    code, _, said = run(capsys, file(SHORT), "--out", tmp_path / "r.parquet")
    assert code == 2
    assert re.match(r"error: rows = 0 to \d+: cannot be computed \(ZeroDivisionError: division by zero\)", said)
    with pytest.raises(SweepError) as caught:
        compute_rows(load_sweep(file(SHORT)), 0, 1)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_progress_is_a_bar_or_plain_lines(monkeypatch):
    """A terminal gets a bar with the time left, a log a line now and then."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    with progress.progress(100, 20, terminal := Terminal()) as advance:
        advance(30)
        advance(50)
    assert re.search(r"100 of 100 rows, 00:00 so far, .* left", terminal.getvalue())
    monkeypatch.setattr(progress, "_EVERY_S", 0)
    with progress.progress(100, 20, log := io.StringIO()) as advance:
        advance(30)
        advance(50)
    assert re.fullmatch(r"50 of 100 rows \(50 %\), about 0 s left\n", log.getvalue())


def test_the_time_left_counts_what_this_run_has_done(monkeypatch):
    """Rows that were there before took no time of this run's."""
    times = iter([100.0, 120.0, 121.0])
    monkeypatch.setattr(progress, "monotonic", lambda: next(times))
    with progress.progress(1000, 900, log := io.StringIO()) as advance:
        advance(20)
    assert log.getvalue() == "920 of 1000 rows (92 %), about 80 s left\n"


# ---- on a cluster --------------------------------------------------------------------------------


@contextmanager
def process(*words):
    """A Dask process that is ended with the test, and its standard error."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    started = subprocess.Popen(
        [sys.executable, "-m", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


@pytest.fixture
def cluster():
    """A real scheduler on the loopback; its address, and a function that starts a worker."""
    with ExitStack() as stack:
        words = ("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        scheduler = stack.enter_context(process(*words))
        address = next(found[1] for line in scheduler.stderr if (found := re.search(r"(tcp://[\d.:]+)", line)))

        def worker():
            """Start one, and wait until the scheduler knows it."""
            words = ("distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard")
            started = stack.enter_context(process(*words))
            assert any("Registered to" in line for line in started.stderr)
            return started

        yield address, worker, scheduler


def test_an_empty_address_is_refused(file, tmp_path, capsys):
    """Plainly, and before anything is begun."""
    code, _, said = run(capsys, file(SHORT), "--out", tmp_path / "r.parquet", "--scheduler", "")
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("error: --scheduler = '': must be an address")


def test_a_cluster_that_cannot_serve_is_named(file, tmp_path, capsys, monkeypatch, cluster):
    """Workers of another version: one line, and the parts stay."""
    address, worker, _ = cluster
    words = (file(SHORT), "--out", tmp_path / "r.parquet", "--scheduler", address)
    worker()
    with monkeypatch.context() as patch:
        patch.setattr(runners, "_require_same_versions", lambda *_: None)  # a worker that comes later
        patch.setattr(runners, "versions", lambda: "ppmodel 9.9")
        said = run(capsys, *words)[2]
        assert re.search(r"\nerror: worker = ppmodel 0.*: differs from ppmodel 9.9; install the same", said)
    with monkeypatch.context() as patch:
        patch.setattr(runners, "versions", Elsewhere())
        said = run(capsys, *words)[2]
        assert re.search("\nerror: worker = tcp://.*: has ppmodel 0.*, but this machine has ppmodel 9.9; install", said)
    assert run(capsys, *words)[0] == 0


def test_a_scheduler_that_goes_away_leaves_the_parts(file, tmp_path, capsys, monkeypatch, cluster, expected):
    """One line, and what is stored stays: this process computes the rest, to the same bytes."""
    address, worker, scheduler = cluster
    worker()
    path, out, put = file(PLAIN), tmp_path / "results.parquet", store.Store.put

    def put_and_kill(self, chunk, columns):
        put(self, chunk, columns)
        scheduler.send_signal(signal.SIGKILL)

    monkeypatch.setattr(runners, "_LOOK_S", 0.1)
    with monkeypatch.context() as patch:
        patch.setattr(store.Store, "put", put_and_kill)
        code, _, message = run(capsys, path, "--out", out, "--scheduler", address)
    assert (code, message.splitlines()[0]) == (2, f"connecting to {address}")
    assert message.splitlines()[1].startswith(f"error: --scheduler = {address}: is gone; restart it")
    kept = len(list(tmp_path.glob("*.parts/part-*.parquet")))
    assert kept > 0
    counted = Counted()
    monkeypatch.setattr(runners, "compute_rows", counted)
    run_sweep(path, out)
    assert len(counted.calls) == len(chunk_bounds(load_sweep(path))) - 1 - kept
    assert out.read_bytes() == expected[PLAIN]


@pytest.mark.timeout(120)  # who is not told of the second wait starts no second worker
def test_workers_are_waited_for(file, tmp_path, capsys, monkeypatch, cluster, expected):
    """Before the first one comes, and after the last one is killed with chunks under way; each chunk is stored once."""
    address, worker, _ = cluster
    path, out, put, started, stored = file(PLAIN), tmp_path / "results.parquet", store.Store.put, [], []

    def say_and_start(text):
        progress.say(text)
        if text.startswith("waiting"):
            started.append(worker())

    def put_and_kill(self, chunk, columns):
        put(self, chunk, columns)
        stored.append(chunk)
        if len(started) == 1:
            started[0].send_signal(signal.SIGKILL)

    monkeypatch.setattr(runners, "_LOOK_S", 0.1)
    monkeypatch.setattr(runners, "say", say_and_start)
    monkeypatch.setattr(store.Store, "put", put_and_kill)
    code, _, said = run(capsys, path, "--out", out, "--scheduler", address)
    waiting = f"waiting for workers; start some with: dask worker {address} --nthreads 1\n"
    said = re.sub(r".* left\n", "", said)  # progress, on a slow machine
    assert (code, said) == (0, f"connecting to {address}\n{waiting}{waiting}")
    assert sorted(stored) == list(range(len(chunk_bounds(load_sweep(path))) - 1))
    assert out.read_bytes() == expected[PLAIN]


class Elsewhere:
    """`versions` that is another one here, and the true one where it is sent to."""

    def __call__(self):
        return "ppmodel 9.9"

    def __reduce__(self):
        from ppmodel.sweep.versions import versions

        return getattr, (sys.modules[versions.__module__], "versions")


@pytest.mark.parametrize(
    "address", ["nonsense", "foo://127.0.0.1:1", "tcp://127.0.0.1:1", "tls://127.0.0.1:1", "inproc://x"]
)
def test_an_address_without_a_scheduler_costs_one_line(file, tmp_path, capsys, monkeypatch, address):
    """Badly written, of an unknown kind, or nobody there."""
    monkeypatch.setattr(runners, "_CONNECT_S", 0.3)
    code, _, said = run(capsys, file(SHORT), "--out", tmp_path / "r.parquet", "--scheduler", address)
    assert (code, said.count("\n")) == (2, 2)
    assert said.startswith(f"connecting to {address}\nerror: --scheduler = {address}: cannot be reached")
    assert not list(tmp_path.glob("*.parquet"))


def _silent(connection):
    connection.recv(1)


def _web(connection):
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def _garbage(connection):
    connection.sendall(bytes(range(256)) * 9)


@pytest.mark.parametrize("answer", [_silent, _web, _garbage])
def test_a_port_of_something_else_costs_one_line(file, tmp_path, capsys, monkeypatch, answer):
    """Whatever listens there, the answer comes in time and nothing is left."""
    monkeypatch.setattr(runners, "_CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            while True:
                held.append(server.accept()[0])
                answer(held[-1])

        held, address = [], f"tcp://127.0.0.1:{server.getsockname()[1]}"
        threading.Thread(target=serve, daemon=True).start()
        code, _, said = run(capsys, file(SHORT), "--out", tmp_path / "r.parquet", "--scheduler", address)
    assert (code, said.count("\n")) == (2, 2)
    why = "no answer within 0.5 s" if answer is _silent else "what answers is not a Dask scheduler"
    assert f"cannot be reached ({why})" in said
    assert not list(tmp_path.glob("*.parquet*"))


def test_a_generator_that_ends_its_process_is_one_line(tmp_path, capsys):
    """It is tried in a process of its own before the sweep loads it, and nothing is written."""
    (tmp_path / "mine.py").write_text("raise SystemExit(0)\n")
    out, template = tmp_path / "rows.parquet", DATA / "templates" / "sweep.yaml"
    assert run(capsys, template, "--out", out, "--schedule-file", tmp_path / "mine.py")[0] == 2
    assert not out.exists()
