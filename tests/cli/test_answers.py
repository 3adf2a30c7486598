"""What commands print, as text and as JSON, and where to."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from commands import SECONDS, SIMULATE, run

from ppmodel import build, names, simulate
from ppmodel.cli.arguments import schedule_options
from ppmodel.cli.process import cli
from ppmodel.clusters.costs import model_flops, stages
from ppmodel.clusters.memory import memory
from ppmodel.clusters.specs import DATA, load_model, load_system, packaged
from ppmodel.schedules.registry import Option, schedule
from ppmodel.studies.measured import memory_margin
from ppmodel.studies.points import compared
from ppmodel.tables import write_table


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
    assert (result["schedule"], result["options"], result["pp"], result["microbatches"]) == ("hanayo", "waves=2", 8, 8)
    assert result["makespan_s"] == 31.5
    assert result["idle_ratio"] == pytest.approx(1 - 24 / 31.5)
    assert result["table_bubble_ratio"] == pytest.approx(1 - 24 / 31.5)
    assert len(result["peak_activations_by_rank"]) == 8
    assert max(result["peak_activations_by_rank"]) == result["peak_activations"]
    assert result["operations"] == 2 * 32 * 8


@pytest.mark.parametrize("costs", ["--forward 1 --backward 2 --comm 0.1", "--model paper --system slow_between_nodes"])
def test_json_is_the_librarys_row(capsys, costs):
    """What simulate prints is `Run.to_dict`, with the columns of a row of `compare`."""
    given = dict(zip(*[iter(costs.replace("--", "").split())] * 2, strict=True))
    given = {key: float(value) if "forward" in costs else value for key, value in given.items()}
    result = json.loads(run(capsys, f"simulate chimera --pp 8 --microbatches 16 {costs} --json")[1])
    row = simulate("chimera", 8, 16, **given).to_dict()
    assert {key: result[key] for key in row} == row
    assert result.keys() - row.keys() <= {"operations", "peak_activations_by_rank", "nodes"}
    columns, (compared_row,) = compared("chimera", 8, 16, **given)
    assert row.keys() <= set(columns)
    for key in row:
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


def test_what_was_asked_is_named(capsys):
    """JSON names system and model, and whether NICs are shared; the text, too, says what they are."""
    line = "simulate 1f1b --pp 16 --microbatches 64 --model llama3_70b --system a2_highgpu_8g"
    result = json.loads(run(capsys, f"{line} --json")[1])
    assert (result["system"], result["model"], result["nics_shared"]) == ("a2_highgpu_8g", "llama3_70b", True)
    assert json.loads(run(capsys, f"{line} --p2p blocking --json")[1])["nics_shared"] is False
    text = run(capsys, f"{line} --p2p blocking_send")[1]
    assert "\nmodel               llama3_70b: 70.6 billion parameters\n" in text
    assert "\nsystem              a2_highgpu_8g: 12.5 GB/s (100 Gbit/s) between nodes, 300 GB/s inside\n" in text
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
    shown = f"\nmemory              {held:.4g} GiB on the most loaded rank, of {room:.4g}: does not fit; "
    assert shown in run(capsys, line)[1]
    path = tmp_path / "large.yaml"
    path.write_text((DATA / "systems" / "dgx_h100.yaml").read_text().replace("unit: GiB", "unit: TiB"))
    fits = run(capsys, [*line.split()[:-1], str(path)])[1]
    assert f"GiB on the most loaded rank, of {1024 * room:.0f}\n" in fits


@pytest.mark.parametrize(("share", "said"), [
    (1.2, "fits"), (1.01, "tight"), (0.99, "may not fit"), (0.9, "does not fit"),
])  # fmt: skip
def test_what_fits_is_a_judgement_with_a_margin(capsys, tmp_path, share, said):
    """As predictions of memory have been off; `simulate` and `compare` say so, and by how much."""
    text, mine = (DATA / "systems" / "dgx_h100_nodes.yaml").read_text(), tmp_path / "mine.yaml"
    line = "--pp 4 --model llama3_70b --tp 8 --dp 2 --zero 1 --sequence-parallel --global-batch 64 --system"
    held = json.loads(run(capsys, f"simulate 1f1b {line} dgx_h100_nodes --json")[1])["peak_memory_bytes"]
    mine.write_text(text.replace("value: 79.65, unit: GiB", f"value: {share * held}, unit: B"))
    one, many = (run(capsys, [*f"{words} {line}".split(), str(mine)])[1] for words in ("simulate 1f1b", "compare 1f1b"))
    off = f"nine of ten predictions of memory are off by at most {memory_margin():.0%}"
    assert (off in one, off in many) == (said in ("tight", "may not fit"),) * 2
    assert said == "fits" or (f": {said}" in one and f" {said}\n" in f"{many} ".replace("  ", "\n"))
    assert ("does not fit" in one, "does not fit" in many) == (said == "does not fit",) * 2


def test_many_peaks_are_summed_up(capsys):
    """Of more than 16 ranks the text has the largest, the smallest and the first eight; JSON has all."""
    line = f"simulate 1f1b --pp 17 --microbatches 32 {SECONDS}"
    peaks = next(row for row in run(capsys, line)[1].splitlines() if row.startswith("peak activations"))
    assert "largest 17, smallest 1; from rank 0 on 17 16 15 14 13 12 11 10 ..." in peaks
    assert len(json.loads(run(capsys, f"{line} --json")[1])["peak_activations_by_rank"]) == 17


def test_models_and_systems_by_name_and_by_file(capsys, tmp_path):
    """The same numbers from a name and from a copy of its file, in a folder with spaces and braces."""
    folder = tmp_path / "my {systems} here"
    folder.mkdir()
    copy = folder / "mine.yaml"
    copy.write_text((DATA / "systems" / "mid_cp_slow_nw.yaml").read_text())
    line = [*SIMULATE.split(), "--model", "paper", "--p2p", "blocking", "--json", "--system"]
    first, second = (json.loads(run(capsys, [*line, name])[1]) for name in ("mid_cp_slow_nw", str(copy)))
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


def test_utilization_says_which_scores_it_counts(capsys):
    """By the convention all scores count, also those that a mask hides; what it leaves stands beside it."""
    line = "simulate 1f1b --pp 1 --microbatches 8 --tp 1 --model llama3_8b --system h100"
    result = json.loads(run(capsys, f"{line} --json")[1])
    whole, causal = (result[f"{name}_flops_utilization"] for name in ("model", "causal"))
    model = load_model("llama3_8b")
    assert causal / whole == pytest.approx(model_flops(model, causal=True) / model_flops(model))
    assert f"MFU {whole:.1%} ({causal:.1%} without masked scores)" in run(capsys, line)[1]


def test_a_comparison_with_a_layout_shows_the_parts_that_differ(capsys):
    """A split backward hides none of its tensor-parallel collectives, which cost more than the bubble it saves."""
    line = "--pp 8 --tp 4 --dp 2 --zero 1 --global-batch 1024 --sequence-parallel --model llama3_70b --system h100"
    rows = json.loads(run(capsys, f"compare 1f1b zb-v {line} --json")[1])
    out = run(capsys, f"compare 1f1b zb-v {line}")[1]
    (heading, *lines) = (row.split("  ") for row in out.splitlines() if "tensor parallel (s)" in row or "ZB-V " in row)
    assert [cell.strip() for cell in heading if cell][-2:] == ["tensor parallel (s)", "bubble (s)"]
    assert lines[0][-1].strip() == f"{next(row for row in rows if row['label'] == 'ZB-V')['bubble_s']:.4g}"
    assert run(capsys, f"compare 1f1b zb-v --pp 8 --microbatches 8 {SECONDS}")[1].count("(s)") == 1


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


def test_the_installed_command_exits_with_its_code():
    """The process itself: 0 and one JSON object, or 2 and nothing but the message."""
    command = [sys.executable, "-m", "ppmodel", *SIMULATE.split()]
    good = subprocess.run([*command, *SECONDS.split(), "--json"], capture_output=True, text=True)
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["makespan_s"] == 33
    bad = subprocess.run([*command, "--forward", "0"], capture_output=True, text=True)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert "Traceback" not in bad.stderr


# ---- lists, streams and terminals ----------------------------------------------------------------


@pytest.mark.parametrize("command", ["models", "systems", "layouts"])
def test_what_comes_with_the_project_is_listed(capsys, command):
    """A line each: name and title."""
    code, out, _ = run(capsys, command)
    lines = [line.split(maxsplit=1) for line in out.splitlines()]
    assert (code, [line[0] for line in lines]) == (0, [*packaged(command)])
    assert all(len(line) == 2 for line in lines)


@pytest.mark.usefixtures("own")
def test_data_does_not_steer_the_terminal(capsys):
    """Control characters of names, files and arguments are spelt out, in output and in errors."""
    Path("mine.csv").write_text(Path("mine.csv").read_text().replace("by hand", "\x1b[2J\x07\x9b"))
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
    text = run(capsys, "--help")[1].split("Schedules:")[1]
    listed = re.findall(r"^  (\w+) {2,}\S", text, re.MULTILINE)
    for command in listed:
        assert run(capsys, f"{command} --help")[:1] == (0,)
    assert {"compare", "models", "systems", "sweep"} <= set(listed)
    assert "..." not in text


@pytest.mark.parametrize("command", ["compare", "simulate", "plan"])
def test_long_help_has_sections(command, capsys):
    """Every option is in one of them, and what all options share has one place."""
    text = run(capsys, f"{command} --help")[1]
    sections = re.findall(r"^(\w[\w :]+):$", text, re.MULTILINE)
    assert {"Model and system", "Layout", "Layout: experts", "Output"} <= set(sections)
    assert len(sections) == len(set(sections))
    options = [param for param in cli.get_command(None, command).params if isinstance(param, click.Option)]
    assert [option.name for option in options if option.section is None] == []


def test_help_has_every_declaration_of_an_option():
    """Of schedules that declare one name differently, each has its own line; those that declare it alike share one."""
    options = [Option.count("warm_up", 1, "N", "forwards ahead")]
    for name in ("ahead", "further"):
        schedule(name, label=name, title="", legal="", options=options)(lambda **_: None)
    shown = {param.name: param for param in schedule_options(click.Command("table")).params}
    assert shown["warm_up"].metavar == "N|full|memory-saving"
    assert shown["warm_up"].help.split("\n\n") == ["ahead, further: forwards ahead", "stp: how far forwards run ahead"]
    first, second = shown["limit"].help.split("\n\n")
    assert (first[:6], second[:6]) == ("zb-1p:", "zb-2p:")


def test_a_comparison_loads_no_frames():
    """compare is quick because it loads neither pandas nor compiled code for a few schedules."""
    code = (
        "import sys; from ppmodel.cli import main; "
        "main('compare 1f1b zb-v interleaved-1f1b --pp 8 --microbatches 64 --forward 1 --backward 2'.split()); "
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'pandas', 'matplotlib', 'pydantic', 'numba'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
