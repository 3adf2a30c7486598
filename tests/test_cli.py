"""The command line: one call in, text or JSON out, one line where something is wrong."""

import csv
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ppmodel import build, names, simulate
from ppmodel.cli import main
from ppmodel.costs import stages
from ppmodel.evaluate import COLUMNS, compared
from ppmodel.export import read_table, write_table
from ppmodel.measured import memory_errors
from ppmodel.metrics import memory
from ppmodel.specs import DATA, layout_names, load_model, load_system, model_names, system_names

ROOT = Path(__file__).parents[1]
BAD = ROOT / "tests" / "bad"
SIMULATE = "simulate 1f1b --pp 4 --microbatches 8"
SECONDS = "--forward 1 --backward 2"


def run(capsys, line):
    code = main(line if isinstance(line, list) else line.split())
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_schedules_are_listed(capsys):
    """Names, options and where each is legal."""
    code, out, _ = run(capsys, "schedules")
    assert code == 0
    assert all(name in out for name in names())
    assert "--waves W" in out
    assert out.count("legal:") == len(names())


@pytest.mark.parametrize("form", ["text", "csv"])
def test_tables_are_printed(capsys, form):
    """The same text that the library writes."""
    code, out, _ = run(capsys, f"table chimera --pp 4 --microbatches 8 --format {form} --concat forward-doubling")
    assert (code, out) == (0, write_table(build("chimera", 4, 8, concat="forward-doubling"), form))


def test_json_has_the_promised_keys(capsys):
    """One object with the fixed names, numbers as numbers, peaks one a rank."""
    code, out, _ = run(capsys, f"simulate hanayo --pp 8 --microbatches 8 --waves 2 {SECONDS} --json")
    result = json.loads(out)
    assert code == 0
    assert result.keys() >= {
        "schedule", "options", "label", "pp", "microbatches", "p2p", "allreduce", "makespan_s", "idle_ratio",
        "table_bubble_ratio", "peak_activations", "peak_activations_by_rank", "operations", "bubble_ratio_total",
        "messages", "bubble_ratio_ideal", "bubble_ratio_span",
    }  # fmt: skip
    assert (result["schedule"], result["options"], result["pp"], result["microbatches"]) == ("hanayo", "waves=2", 8, 8)
    assert result["makespan_s"] == 31.5
    assert result["idle_ratio"] == pytest.approx(1 - 24 / 31.5)
    assert result["table_bubble_ratio"] == pytest.approx(1 - 24 / 31.5)
    assert len(result["peak_activations_by_rank"]) == 8
    assert max(result["peak_activations_by_rank"]) == result["peak_activations"]
    assert result["operations"] == 2 * 32 * 8


@pytest.mark.parametrize("costs", ["--forward 1 --backward 2 --comm 0.1", "--model paper --system slow_between_nodes"])
def test_json_is_the_librarys_row(capsys, costs):
    """What simulate prints is `Run.to_dict`, and, but for what only a single run has, a row of `compare`."""
    given = dict(zip(*[iter(costs.replace("--", "").split())] * 2, strict=True))
    given = {key: float(value) if "forward" in costs else value for key, value in given.items()}
    result = json.loads(run(capsys, f"simulate chimera --pp 8 --microbatches 16 {costs} --json")[1])
    row = simulate("chimera", 8, 16, **given).to_dict()
    assert {key: result[key] for key in row} == row
    assert result.keys() - row.keys() <= {"operations", "peak_activations_by_rank", "nodes"}
    columns, (compared_row,) = compared("chimera", 8, 16, **given)
    single = row.keys() - set(columns)
    assert single <= {"microbatch_sequences"}
    for key in row.keys() - single:
        number = isinstance(row[key], float)
        assert compared_row[key] == (pytest.approx(row[key], rel=1e-12) if number else row[key]), key


def test_an_order_is_searched_for_the_times_given(capsys):
    """What a search is for follows the times or the system, unless said; more memory then never costs time."""
    line = "simulate zb-2p --pp 8 --microbatches 32 --input-grad 1.16 --weight-grad 0.72 --forward 1 --comm 0.05"
    results = [json.loads(run(capsys, f"{line} --limit {limit} --json")[1]) for limit in (8, 9, 12, 13)]
    assert {result["ordered_for"] for result in results} == {"times=1:1.16:0.72:0.05"}
    times = [result["makespan_s"] for result in results]
    assert times == sorted(times, reverse=True)
    assert json.loads(run(capsys, f"{line} --times 1:1:1:0 --json")[1])["ordered_for"] is None
    code, out, _ = run(capsys, "simulate zb-1p --pp 8 --microbatches 64 --model paper --system dgx_h100")
    assert code == 0
    assert re.search(r"^ordered for +times=1:1\.\d+:0\.\d+:0\.\d+ held=0\.\d+ ", out, re.M)
    given = f"{line} --limit 8 --held 0.33333333333333331 --json"
    assert json.loads(run(capsys, given)[1])["peak_activations"] == pytest.approx(8, abs=0.5)


def test_a_trace_takes_the_place_of_no_input(tmp_path, capsys):
    """A file that the command reads is refused as the name of its trace, and stays."""
    path = tmp_path / "mine.csv"
    path.write_text("0F0,0B0")
    code, _, err = run(capsys, f"simulate --schedule-file {path} {SECONDS} --trace {path}")
    assert code == 2
    assert re.search("--trace = .*mine.csv: is what this command reads", err)
    assert path.read_text() == "0F0,0B0"


def test_nodes_are_told_where_a_system_has_them(capsys):
    """Messages inside and between nodes, and whether they share NICs; under blocking semantics no NIC is held."""
    line = "simulate 1f1b --pp 16 --microbatches 64 --model llama3_70b --system a2_highgpu_8g"
    result = json.loads(run(capsys, f"{line} --json")[1])
    nodes = result["nodes"]
    assert (nodes["messages_inside"], nodes["messages_between"]) == (2 * 14 * 64, 2 * 64)
    assert (result["nics_shared"], nodes["nics"]) == (True, "held")
    assert "1792 inside nodes, 128 between them through shared NICs" in run(capsys, line)[1]
    assert json.loads(run(capsys, f"{line} --p2p blocking --json")[1])["nodes"]["nics"] == "not occupied under blocking"
    flat = json.loads(run(capsys, f"{line.replace('a2_highgpu_8g', 'dgx_h100')} --json")[1])
    assert "nodes" not in flat


def test_what_was_asked_is_named(capsys):
    """JSON names system, model and placement; the text, too, and where NICs are not held or the network not used."""
    line = "simulate 1f1b --pp 16 --microbatches 64 --model llama3_70b --system a2_highgpu_8g"
    result = json.loads(run(capsys, f"{line} --json")[1])
    assert (result["system"], result["model"]) == ("a2_highgpu_8g", "llama3_70b")
    assert result["nodes"].items() >= {"placement": "blocked", "devices_per_node": 8, "used": 2}.items()
    text = run(capsys, f"{line} --p2p blocking_send")[1]
    assert "\nshared NICs         not occupied under blocking_send\n" in text
    assert "\nnodes               2 of up to 8 ranks, blocked\n" in text
    assert "\nmodel, system       llama3_70b, a2_highgpu_8g\n" in text
    one = run(capsys, line.replace("--pp 16", "--pp 8") + " --p2p blocking")[1]
    assert "All S = 8 ranks are on one node of a2_highgpu_8g: its network between nodes is not used." in one
    assert "not occupied" not in one
    assert not {"system", "model"} & json.loads(run(capsys, f"{SIMULATE} {SECONDS} --json")[1]).keys()


def test_memory_is_held_against_the_rank(capsys, tmp_path):
    """The bytes of the most loaded rank and what it has, from the same sums as the recommendation's."""
    line = "simulate 1f1b --pp 8 --microbatches 64 --model llama3_70b --system dgx_h100"
    result = json.loads(run(capsys, f"{line} --json")[1])
    schedule, model, system = build("1f1b", 8, 64), load_model("llama3_70b"), load_system("dgx_h100")
    assert result["peak_memory_bytes"] == memory(schedule, model, stages(schedule, model, system)).total.max()
    assert result["memory_capacity_bytes"] == system.memory_capacity_bytes
    held, room = (result[key] / 2**30 for key in ("peak_memory_bytes", "memory_capacity_bytes"))
    assert held > room
    assert (
        f"\nmemory              {held:.4g} GiB on the most loaded rank, of {room:.4g}: does not fit; "
        in (run(capsys, line)[1])
    )
    path = tmp_path / "large.yaml"
    path.write_text((DATA / "systems" / "dgx_h100.yaml").read_text().replace("unit: GiB", "unit: TiB"))
    fits = run(capsys, [*line.split()[:-1], str(path)])[1]
    assert f"GiB on the most loaded rank, of {1024 * room:.0f}\n" in fits


@pytest.mark.parametrize(("share", "said"), [(1.2, ""), (1.01, "tight"), (0.99, "does not fit")])
def test_a_layout_that_fits_by_little_is_called_tight(capsys, tmp_path, share, said):
    """By less than predictions of memory have been off; `simulate` and `compare` say so, and by how much."""
    text, mine = (DATA / "systems" / "dgx_h100_nodes.yaml").read_text(), tmp_path / "mine.yaml"
    line = "--pp 4 --model llama3_70b --tp 8 --dp 2 --zero 1 --sequence-parallel --global-batch 64 --system"
    held = json.loads(run(capsys, f"simulate 1f1b {line} dgx_h100_nodes --json")[1])["peak_memory_bytes"]
    mine.write_text(text.replace("value: 80, unit: GiB", f"value: {share * held}, unit: B"))
    one, many = (run(capsys, [*f"{words} {line}".split(), str(mine)])[1] for words in ("simulate 1f1b", "compare 1f1b"))
    off = f"fits by less than predictions of memory are off on average ({max(memory_errors().values()):.0%})"
    assert (off in one, off in many) == (said == "tight",) * 2
    assert ("does not fit" in one, "does not fit" in many) == (said == "does not fit",) * 2


def test_many_peaks_are_summed_up(capsys):
    """Of more than 16 ranks the text has the largest, the smallest and the first eight; JSON has all."""
    line = f"simulate 1f1b --pp 17 --microbatches 32 {SECONDS}"
    peaks = next(row for row in run(capsys, line)[1].splitlines() if row.startswith("peak activations"))
    assert "largest 17, smallest 1; from rank 0 on 17 16 15 14 13 12 11 10 ..." in peaks
    assert len(json.loads(run(capsys, f"{line} --json")[1])["peak_activations_by_rank"]) == 17


def test_seconds_are_for_one_microbatch_of_the_user(capsys):
    """Chunks and halves of microbatches are divided, so that all schedules compute equally long."""
    for line in ("gpipe", "chimera", "chimera --concat backward-halving", "asymmetric-chimera --split 1:3"):
        _, out, _ = run(capsys, f"simulate {line} --pp 4 --microbatches 8 {SECONDS} --json")
        result = json.loads(out)
        assert (1 - result["idle_ratio"]) * 4 * result["makespan_s"] == pytest.approx(4 * 8 * 3)
        assert result["microbatches"] == 8


def test_models_and_systems_by_name_and_by_file(capsys, tmp_path):
    """The same numbers from a name and from a copy of its file, in a folder with spaces and braces."""
    from ppmodel.specs import DATA

    folder = tmp_path / "my {systems} here"
    folder.mkdir()
    copy = folder / "mine.yaml"
    copy.write_text((DATA / "systems" / "mid_cp_slow_nw.yaml").read_text())
    line = [*SIMULATE.split(), "--model", "paper", "--p2p", "blocking", "--json", "--system"]
    first, second = (run(capsys, [*line, name])[1] for name in ("mid_cp_slow_nw", str(copy)))
    first, second = json.loads(first), json.loads(second)
    assert (first.pop("system"), second.pop("system")) == ("mid_cp_slow_nw", "mine")
    assert first == second


def test_tables_written_by_hand_go_the_same_way(capsys, tmp_path):
    """check judges a file and simulate runs it, with the result of the schedule that it was written from."""
    path = tmp_path / "mine.csv"
    path.write_text(write_table(build("chimera", 4, 4), "csv"))
    code, out, _ = run(capsys, ["check", str(path)])
    assert code == 0
    assert "a schedule of 32 operations and 8 all-reduces on 4 ranks, 4 stages, 2 replicas, 4 microbatches" in out
    by_file = run(capsys, ["simulate", "--schedule-file", str(path), *SECONDS.split(), "--json"])[1]
    by_name = run(capsys, f"simulate chimera --pp 4 --microbatches 4 {SECONDS} --json")[1]
    assert json.loads(by_file) == json.loads(by_name)


def test_pytorchs_tables_go_the_same_way(capsys, tmp_path):
    """What table --format pytorch prints is judged and simulated like the schedule that it names."""
    path = tmp_path / "mine.csv"
    path.write_text(run(capsys, "table 1f1b --pp 4 --microbatches 8 --format pytorch")[1])
    code, out, _ = run(capsys, ["check", str(path)])
    assert (code, out.splitlines()[1]) == (
        0,
        "read as PyTorch's CSV, in the letters of pytorch: B is the full backward",
    )
    by_file = json.loads(run(capsys, ["simulate", "--schedule-file", str(path), *SECONDS.split(), "--json"])[1])
    by_name = json.loads(run(capsys, f"{SIMULATE} {SECONDS} --json")[1])
    assert by_file == by_name | {"schedule": "mine", "label": "mine"}


def test_tables_are_drawn_with_the_slots_that_are_asked_for(capsys):
    """A backward of three slots, and halves of two and of three."""
    line = "table gpipe --pp 1 --microbatches 1 --format csv --backward-slots 3"
    assert run(capsys, line)[1].splitlines()[-1] == "0,0F0,0B0,~,~"
    line = "table zb-h1 --pp 1 --microbatches 1 --format csv --input-grad-slots 2 --weight-grad-slots 3"
    assert run(capsys, line)[1].splitlines()[-1] == "0,0F0,0I0,~,0W0,~,~"


def test_a_trace_is_written_beside_the_answer(capsys, tmp_path):
    """Text and JSON name the file and its events; with a model and a system these are in it, and bytes."""
    path = tmp_path / "trace.json"
    out = run(capsys, [*SIMULATE.split(), *SECONDS.split(), "--trace", str(path)])[1]
    plain = json.loads(path.read_text())
    assert out.endswith(f"trace               {path}, {len(plain['traceEvents'])} events\n")
    line = [*SIMULATE.split(), "--model", "paper", "--system", "dgx_h100", "--json", "--trace", str(path)]
    result, full = json.loads(run(capsys, line)[1]), json.loads(path.read_text())
    assert (result["trace"], result["trace_events"]) == (str(path), len(full["traceEvents"]))
    assert (full["otherData"]["model"], full["otherData"]["system"]) == ("paper", "dgx_h100")
    units = [{unit for e in one["traceEvents"] if e["ph"] == "C" for unit in e["args"]} for one in (plain, full)]
    assert units == [{"microbatches"}, {"microbatches", "GiB"}]


def test_text_says_what_json_says(capsys):
    """The text names the same makespan with its unit."""
    code, out, _ = run(capsys, f"{SIMULATE} {SECONDS} --comm 0.5")
    assert code == 0
    assert f"makespan            {33 + 0.5 * 16:.6g} s" in out  # 1F1B's closed form at (4, 8)


def test_ranks_that_never_meet_are_shown(capsys):
    """A table that deadlocks under rendezvous alone: one line and the grid; beside others, a row with its reason."""
    line = "--pp 4 --microbatches 8 --forward 1 --backward 2 --comm 0.1 --p2p rendezvous"
    code, _, err = run(capsys, f"simulate zb-v {line}")
    first, *grid = err.splitlines()
    assert code == 2
    assert "a deadlock, rank 2 sends 2F4 to rank 3, rank 3 sends 4F3 to rank 2" in first
    assert [row.count(">") for row in grid] == [1] * 4
    code, out, _ = run(capsys, f"compare gpipe zb-v {line} --json")
    assert code == 0
    assert [row["refused"] and row["refused"][:12] for row in json.loads(out)] == [None, "rank 2 = 2F4"]


MARKED = ("deadlock", "doubled", "early", "misplaced", "missing")

REFUSED = {
    f"simulate gpip --pp 4 --microbatches 8 {SECONDS}": "schedule = gpip: .*did you mean gpipe",
    f"simulate gpipe --pp 4 --microbatches 0 {SECONDS}": "--microbatches = 0: must be a whole number",
    f"simulate gpipe --pp x --microbatches 8 {SECONDS}": "--pp = x: must be a whole number",
    f"simulate gpipe --microbatches 8 {SECONDS}": "--pp = nothing: is missing",
    f"simulate chimera --pp 5 --microbatches 5 {SECONDS}": "--pp = 5: must be even",
    f"simulate hanayo --pp 4 --microbatches 8 {SECONDS}": "--microbatches = 8: must equal pp",
    f"simulate hanayo --pp 4 --microbatches 4 --waves two {SECONDS}": "--waves = two: must be a whole number",
    f"simulate asymmetric-chimera --pp 4 --microbatches 4 --split 1:0 {SECONDS}": "--split = 1:0: must be two",
    f"simulate chimera --pp 4 --microbatches 4 --concat up {SECONDS}": "--concat = up: must be one of",
    f"{SIMULATE} --waves 2 {SECONDS}": "--waves = 2: is not an option of 1f1b",
    f"{SIMULATE} --forward 1 --input-grad 1": "--backward = nothing: is missing; give backward, or",
    f"{SIMULATE} {SECONDS} --input-grad 1": "--backward = .*: cannot be combined with its halves",
    f"{SIMULATE} {SECONDS} --pair 0": "--pair = 0: must be a finite number of seconds, above 0",
    f"{SIMULATE} {SECONDS} --pair 2": "--pair = 2.0: has no effect: no cell of 1f1b has both a forward and a backward",
    f"{SIMULATE} --forward nan --backward 2": "--forward = nan: must be a finite number",
    f"{SIMULATE} --forward -1 --backward 2": "--forward = -1: must be a finite number",
    f"{SIMULATE} --forward 1 --backward two": "--backward = two: must be a finite number",
    f"{SIMULATE} {SECONDS} --comm inf": "--comm = inf: must be a finite number",
    f"{SIMULATE} --forward 1": "--backward = nothing: is missing",
    SIMULATE: "--forward = nothing: is missing",
    f"{SIMULATE} --model paper": "--system = nothing: is missing",
    f"{SIMULATE} {SECONDS} --model paper": "--forward = 1.0: cannot be combined with model and system",
    f"{SIMULATE} --model paper --system mid": "system = mid: is neither a known name",
    f"{SIMULATE} --model paper --system none.yaml": "system = none.yaml: is not a file",
    "simulate 1f1b --pp 4 --microbatches 7 --model paper --system dgx_h100": "global_batch = 256: must divide",
    f"{SIMULATE} {SECONDS} --p2p mail": "--p2p = mail: must be one of",
    f"{SIMULATE} {SECONDS} --frwrd 1": "--frwrd is not an option of ppmodel simulate; did you mean --forward",
    f"simulate {SECONDS}": "NAME = nothing: must be given",
    "table gpipe --pp 2 --microbatches 2 --format xml": "--format = xml: must be one of",
    "table chimera --pp 4 --microbatches 4 --format pytorch": "has stage 0 on ranks 0 and 3; .*--format csv",
    "table gpipe --pp 2 --microbatches 2 --format pytorch --weight-grad-slots 2": "--weight-grad-slots = 2: has no",
    f"{SIMULATE} {SECONDS} --trace nowhere/trace.json": "--trace = .*nowhere, which is no folder",
    "check nowhere.csv": "cannot be read",
    "check": "NAME = nothing: must be given",
    f"simulate gpipe --pp 1_0 --microbatches 8 {SECONDS}": "--pp = 1_0: must be a whole number",
    f"simulate gpipe --pp 99999999999 --microbatches 8 {SECONDS}": "must be a whole number",
    f"simulate hanayo --pp 8 --microbatches 8 --waves 1000000 {SECONDS}": "must be at most",
    f"simulate asymmetric-chimera --pp 4 --microbatches 4 --split 1:9999 {SECONDS}": "1:9999: must be two",
    f"{SIMULATE} --forward 1e308 --backward 1e308": "--forward = 1e.308: must be 0, or from 1e-30 to 1e.30 seconds",
    f"simulate chimera --pp 4 --microbatches 8 {SECONDS} --allreduce blocking": "--reduction = nothing: is missing",
    "table gpipe --pp 4 --microbatches 4 --backward-slots 100000000": "to be drawn",
    f"{SIMULATE} --model paper --system {'a' * 300}.yaml": "is not a file",
    "run runtim": "notebook = runtim: .*did you mean runtime",
    "run runtime -p microbatch 8": "microbatch = 8: is not a parameter of this notebook; did you mean microbatches",
    "run runtime -p microbatches eight": "runtime.ipynb: microbatches = eight: must be",
    "run runtime -p systems [nowhere]": "runtime.ipynb: systems = nowhere: is neither a known name",
    "run your-system -p memory_limit 80GB/s": "memory_limit = 80GB/s: must be a number above 0, followed by one of",
    "run runtime -p microbatches": "requires 2 arguments",
    "reproduce --system dgx_h100 --memory-limit 64": "--memory-limit = 64: must be a number above 0",
    "reproduce --memory-limit 64GiB": "--memory-limit = 64GiB: has no effect without a system",
    "run nowhere.ipynb": "error: notebook = nowhere.ipynb: ",
    "simulate nowhere.py --pp 4 --microbatches 8": "error: file = nowhere.py: is not a file; check the path",
    "frobnicate": "frobnicate is not a command of ppmodel; choose one of schedules, .*claims",
    "simulte": "simulte is not a command of ppmodel; did you mean simulate",
    f"{SIMULATE} {SECONDS} --tp 4": "--tp = 4: needs a model and a system; pass --model and --system",
    f"{SIMULATE} {SECONDS} --stages 4": "--stages is not an option of ppmodel simulate; it is called --pp now",
    "simulate --table mine.csv": "--table is not an option of ppmodel simulate; it is called --schedule-file now",
    "compare 1f1b --stages 4": "--stages is not an option of ppmodel compare; it is called --pp now",
    f"simulate 1f1b --microbatches 8 {SECONDS} --pp 0": "--pp = 0: must be a whole number",
    f"{SIMULATE} {SECONDS} --pp 4": "--pp = given twice: must be given only once",
    f"{SIMULATE} {SECONDS} --comm": "--comm.* requires an argument",
    f"{SIMULATE} {SECONDS} --reduction 1": "--reduction = 1.0: has no effect: the all-reduce is excluded",
    "simulate zb-1p --pp 4 --microbatches 8 --forward 1 --input-grad 1 --weight-grad 0": "times of forward and halves",
    "compare --pp 4 --microbatches 8 --forward 1 --backward 2": "NAME = nothing: is missing",
    f"compare 1f1b gpip --pp 4 --microbatches 8 {SECONDS}": "schedule = gpip: .*did you mean gpipe",
    f"compare 1f1b {SECONDS}": "--pp = nothing: is missing",
    f"compare 1f1b:chunks=2 --pp 4 --microbatches 8 {SECONDS}": "chunks = 2: is not an option of 1f1b",
    f"compare hanayo:waves=two --pp 4 --microbatches 8 {SECONDS}": "waves = two: must be a whole number",
    f"compare 1f1b nowhere.csv --pp 4 --microbatches 8 {SECONDS}": "nowhere.csv: cannot be read",
    f"compare 1f1b nowhere.py --pp 4 --microbatches 8 {SECONDS}": "nowhere.py: .*check the path",
    "compare 1f1b --pp 4 --microbatches 8": "--forward = nothing: is missing",
    f"compare 1f1b --pp 4 --microbatches 8 {SECONDS} --csv nowhere/out.csv": "--csv = .*nowhere, which is no folder",
    "compare 1f1b --pp 4 --microbatches 8 --model paper --system mid": "system = mid: is neither",
    "": None,
}


@pytest.mark.parametrize("line", REFUSED)
def test_mistakes_cost_one_line_and_exit_code_2(capsys, line):
    """What a user typed wrong is named with its value, the rule and a remedy, on one line."""
    code, out, err = run(capsys, line)
    if REFUSED[line] is None:
        assert "Usage" in out + err
        return
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert re.search(REFUSED[line], err), err


@pytest.mark.parametrize("path", sorted((BAD / "systems").iterdir()), ids=lambda path: path.stem)
def test_bad_systems_are_refused(capsys, path):
    """Every broken system file: one line, exit code 2."""
    code, out, err = run(capsys, [*SIMULATE.split(), "--model", "paper", "--system", str(path)])
    assert (code, out, err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("path", sorted((BAD / "tables").iterdir()), ids=lambda path: path.stem)
def test_bad_tables_are_refused(capsys, path):
    """Every broken table: one line, exit code 2, and the grid with the cell marked where there is one."""
    code, out, err = run(capsys, ["check", str(path)])
    assert (code, out) == (2, "")
    first, *grid = err.splitlines()
    assert first.startswith(f"error: {path}")
    assert not grid or grid[0].startswith("rank 0")
    assert (path.stem not in MARKED) or ">" in err


def test_the_installed_command_exits_with_its_code():
    """The process itself: 0 and one JSON object, or 2 and nothing but the message."""
    command = [sys.executable, "-m", "ppmodel", *SIMULATE.split()]
    good = subprocess.run([*command, *SECONDS.split(), "--json"], capture_output=True, text=True)
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["makespan_s"] == 33
    bad = subprocess.run([*command, "--forward", "0"], capture_output=True, text=True)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert "Traceback" not in bad.stderr


def test_a_full_disk_costs_one_line():
    """Output that cannot be written is named, without a traceback."""
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "ppmodel", "schedules"]
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 2
    assert run.stderr.startswith("error: output = standard output: cannot be written")
    assert run.stderr.count("\n") == 1


def test_the_all_reduce_has_seconds_of_its_own(capsys):
    """With plain seconds the all-reduce is given, too."""
    line = f"simulate chimera --pp 4 --microbatches 4 {SECONDS} --json"
    more = ("", " --allreduce overlapped --reduction 3")
    times = [json.loads(run(capsys, line + option)[1])["makespan_s"] for option in more]
    assert times == [16, 19]


def test_a_reader_that_leaves_is_no_error():
    """Piping into a command that stops reading ends quietly."""
    code = "import sys; from ppmodel.cli import main; sys.exit(main('table gpipe --pp 64 --microbatches 256'.split()))"
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    writer.stdout.read(10)
    writer.stdout.close()
    assert writer.wait(60) == 0
    with writer.stderr as stderr:
        assert b"Traceback" not in stderr.read()


# ---- own schedules -------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with a table and a generator of one's own; what is registered is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    for template, copy in (("my_table.csv", "mine.csv"), ("my_schedule.py", "mine.py")):
        shutil.copy(DATA / "templates" / template, copy)
    return tmp_path


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    "named", ["mine.py --pp 4 --microbatches 8", "--schedule-file mine.py --pp 4 --microbatches 8",
              "node-1f1b --schedule-file mine.py --pp 4 --microbatches 8", "mine.csv", "--schedule-file mine.csv"],
)  # fmt: skip
@pytest.mark.parametrize("command", [f"simulate {{}} {SECONDS} --json", "table {} --format pytorch", "check {}"])
def test_own_files_stand_wherever_a_schedule_is_named(capsys, command, named):
    """A generator or a table, as the name or as --schedule-file, in every command that takes one schedule."""
    assert run(capsys, command.format(named))[::2] == (0, "")


@pytest.mark.usefixtures("own")
def test_a_generators_options_are_written_behind_its_name(capsys):
    """At two ranks a node the generator writes the table by hand; PyTorch's form of either is read again."""
    by_name = run(capsys, "table mine.py:node=2 --pp 4 --microbatches 8 --format pytorch")[1]
    by_hand = run(capsys, "table mine.csv --format pytorch")[1]
    assert by_name == by_hand
    Path("theirs.csv").write_text(by_hand)
    assert run(capsys, "table theirs.csv --format pytorch")[1] == by_hand


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("simulate mine.csv --pp 4", "--pp = 4: is part of the table; leave --pp out"),
        ("simulate mine.csv --chunks 4", "--chunks = 4: is not an option of node-aware 1F1B by hand"),
        ("simulate 1f1b --schedule-file mine.csv", "NAME = 1f1b: cannot be combined with the table mine.csv"),
        ("simulate node-2f2b --schedule-file mine.py", "schedule = node-2f2b: .*did you mean node-1f1b"),
        ("simulate two.py --pp 4 --microbatches 8", "registers several schedules: one, two; name one of them"),
        ("check broken.py --pp 4 --microbatches 8", "broken.py:1: file = broken.py: cannot be run .*ZeroDivisionError"),
        ("check leaves.py --pp 4 --microbatches 8", "leaves.py:1: file = leaves.py: cannot be run .*SystemExit"),
        (f"simulate mine.csv {SECONDS} --trace mine.csv", "--trace = mine.csv: is what this command reads"),
        (f"compare mine.csv 1f1b {SECONDS} --csv mine.csv", "--csv = mine.csv: is what this command reads"),
    ],
)
def test_own_files_are_refused_in_one_line(capsys, line, said):
    """A size beside a table, two schedules for one, a file that cannot be run: exit code 2, and the file stays."""
    two = "from ppmodel import build\nfrom ppmodel.schedules.registry import schedule\n" + "".join(
        f"@schedule('{name}', label='', title='', legal='')\ndef {name}(s, b): pass\n" for name in ("one", "two")
    )
    before = Path("mine.csv").read_text()
    for name, text in {"two.py": two, "broken.py": "1 / 0", "leaves.py": "raise SystemExit(0)"}.items():
        Path(name).write_text(text)
    code, out, err = run(capsys, line)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.search(said, err), err
    assert Path("mine.csv").read_text() == before


PAGE = (ROOT / "book" / "idea-to-rank.md").read_text()


def test_what_the_page_shows_is_what_the_commands_print(own, capsys):
    """Every command of the page in turn, in a folder of its own: the same lines, to the character."""
    for path in own.iterdir():
        path.unlink()
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    shown = "".join(blocks).rstrip("\n").split("\n")
    printed = []
    for line in [line for line in shown if line.startswith("$ ")]:
        program, *arguments = shlex.split(line[2:])
        printed.append(line)
        if program == "cp":
            shutil.copy(ROOT / arguments[0], arguments[1])
        else:
            assert program == "ppmodel"
            main(arguments)
            said = capsys.readouterr()
            printed += (said.out + said.err).rstrip("\n").split("\n")
    assert shown == printed


@pytest.mark.usefixtures("own")
def test_the_python_of_the_page_runs():
    """The generator's copy is registered, its table is written and read again, and it is simulated."""
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    variables = {}
    exec(block, variables)
    assert read_table("sixteen.csv").rows() == variables["table"].rows()
    assert variables["run"].makespan_s > 0


# ---- comparing -----------------------------------------------------------------------------------

COMPARE = "compare 1f1b zb-v mine.py interleaved-1f1b:chunks=4 hanayo --pp 8 --microbatches 64"


@pytest.mark.usefixtures("own")
def test_schedules_are_ranked_by_time(capsys):
    """A line a schedule, the fastest first; those that are not defined at the size below, with their reason."""
    code, out, err = run(capsys, f"{COMPARE} {SECONDS} --comm 0.1")
    head, columns, *lines = out.splitlines()
    assert (code, err) == (0, "")
    assert head == "8 ranks, 64 microbatches; transfers overlapped, all-reduce excluded"
    assert columns.split("  ")[-1].strip() == "messages"
    cells = [re.split(r"\s{2,}", line) for line in lines[:4]]
    assert [cell[0] for cell in cells] == ["1", "2", "3", "4"]
    times = {cell[1]: float(cell[2]) for cell in cells}
    assert list(times.values()) == sorted(times.values())
    assert times["1F1B"] == pytest.approx(simulate("1f1b", 8, 64, forward=1, backward=2, comm=0.1).makespan_s)
    assert [float(cell[3]) for cell in cells] == pytest.approx(
        [t / min(times.values()) for t in times.values()], abs=5e-4
    )
    assert "node-aware 1F1B" in times
    assert lines[4] == "refused:"
    assert lines[5].startswith("  Hanayo: microbatches = 64: must equal")


@pytest.mark.usefixtures("own")
def test_a_comparison_is_written_as_json_and_csv(capsys):
    """The rows of `evaluate.compared` in the order of the ranking, under its columns; the file is the same."""
    line = f"{COMPARE} --model paper --system slow_between_nodes --json --csv out.csv"
    rows = json.loads(run(capsys, line)[1])
    assert all(list(row) == list(COLUMNS) for row in rows)
    expected = compared("1f1b", 8, 64, model="paper", system="slow_between_nodes")[1][0]
    assert next(row for row in rows if row["label"] == "1F1B") == expected
    assert [row["refused"] is None for row in rows] == [True] * 4 + [False]
    with open("out.csv", newline="") as file:
        written = list(csv.DictReader(file))
    for row, again in zip(rows, written, strict=True):
        assert {key: "" if value is None else str(value) for key, value in row.items()} == again


@pytest.mark.usefixtures("own")
def test_a_comparison_takes_the_size_of_a_table(capsys):
    """That of the table counts unless another is given; equally fast ones share a place; equal names are told apart."""
    shutil.copy("mine.csv", "again.csv")
    out = run(capsys, f"compare mine.csv again.csv 1f1b {SECONDS} --comm 0.5")[1]
    assert out.startswith("4 ranks, 8 microbatches;")
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["1", "1", "3"]
    assert "by hand (mine.csv)" in out
    assert "by hand (again.csv)" in out
    one = run(capsys, f"compare mine.csv --pp 8 --microbatches 8 {SECONDS}")
    assert one[0] == 1
    assert "is a table for pp = 4, microbatches = 8" in one[1]


def test_searched_orders_are_searched_for_the_times_compared(capsys):
    """The same makespan as simulate gives, and for the same times."""
    costs = "--pp 8 --microbatches 32 --input-grad 1.16 --weight-grad 0.72 --forward 1 --comm 0.05 --json"
    single = json.loads(run(capsys, f"simulate zb-2p {costs}")[1])
    row = json.loads(run(capsys, f"compare zb-2p 1f1b {costs}")[1])[0]
    assert (row["ordered_for"], row["makespan_s"]) == ("times=1:1.16:0.72:0.05", single["makespan_s"])


@pytest.mark.usefixtures("own")
def test_names_are_no_formulas_in_a_csv_file(capsys):
    """A name that a spreadsheet would compute begins with an apostrophe."""
    path = Path("mine.csv")
    path.write_text(path.read_text().replace("node-aware 1F1B by hand", "=1+1"))
    assert run(capsys, f"compare mine.csv {SECONDS} --csv out.csv")[0] == 0
    assert Path("out.csv").read_text().splitlines()[1].startswith("'=1+1,,'=1+1,4,8,")


def test_a_pairs_seconds_are_for_those_that_have_pairs(capsys):
    """Beside DualPipe, 1F1B is compared as ever; alone it refuses seconds that nothing of it takes."""
    line = f"compare 1f1b dualpipe --pp 4 --microbatches 8 {SECONDS} --json"
    plain, paired = (
        {row["schedule"]: row["makespan_s"] for row in json.loads(run(capsys, line + more)[1])}
        for more in ("", " --pair 2")
    )
    assert plain["1f1b"] == paired["1f1b"]
    assert plain["dualpipe"] > paired["dualpipe"]


# ---- lists, streams and terminals ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "expected"),
    [("models", model_names), ("systems", system_names), ("layouts", layout_names),
     ("notebooks", lambda: sorted(path.stem for path in (DATA.parent / "notebooks").glob("*.ipynb")))],
)  # fmt: skip
def test_what_comes_with_the_project_is_listed(capsys, command, expected):
    """A line each: name and title."""
    code, out, _ = run(capsys, command)
    lines = [line.split(maxsplit=1) for line in out.splitlines()]
    assert (code, [line[0] for line in lines]) == (0, expected())
    assert all(len(line) == 2 for line in lines)


@pytest.mark.usefixtures("own")
def test_data_does_not_steer_the_terminal(capsys):
    """Control characters of names, files and arguments are spelt out, in output and in errors."""
    text = Path("mine.csv").read_text().replace("by hand", "\x1b[2J\x07\x9b")
    Path("mine.csv").write_text(text)
    for line in ("check mine.csv", "table mine.csv", f"simulate mine.csv {SECONDS}", f"compare mine.csv {SECONDS}"):
        out = run(capsys, line)[1]
        assert not set(out) & set("\x1b\x07\x9b")
        assert "\\x1b[2J" in out or line.startswith("check")
    err = run(capsys, ["simulate", "\x1b[2J"])[2]
    assert "\x1b" not in err


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "| true", "2>&- | head -1"])
def test_closed_streams_are_no_error(redirection):
    """Output that nobody reads, or can, is no failure of the command and gives no traceback."""
    line = f"set -o pipefail; {shlex.quote(sys.executable)} -m ppmodel schedules {redirection}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_names_every_command(capsys):
    """The list of commands, and of each its options; a bare call shows it and exits with 2."""
    assert run(capsys, "")[:2] == (2, run(capsys, "--help")[1])
    listed = re.findall(r"^  (\w+) {2,}\S", run(capsys, "--help")[1].split("Commands:")[1], re.MULTILINE)
    for command in listed:
        assert run(capsys, f"{command} --help")[:1] == (0,)
    assert {"compare", "models", "systems", "notebooks", "claims"} <= set(listed)


def test_a_comparison_loads_no_frames():
    """compare is quick because it loads neither pandas nor compiled code for a few schedules."""
    code = (
        "import sys; from ppmodel.cli import main; "
        "main('compare 1f1b zb-v interleaved-1f1b --pp 8 --microbatches 64 --forward 1 --backward 2'.split()); "
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'pandas', 'matplotlib', 'pydantic', 'numba'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
