"""What the plan's command prints is what the library answers."""

import json
import re
import sys

import pytest
from pandas import read_csv

import ppmodel as pp
from ppmodel.cli import main
from ppmodel.cli.plan import _separated
from ppmodel.cli.planned import drawn_front, layout_text
from ppmodel.cli.scaled import drawn_scaling
from ppmodel.cli.text import aligned, say
from ppmodel.clusters.specs import DATA
from ppmodel.studies.planning import planned
from ppmodel.studies.workers import progress

QUESTION = ["plan", "--model", "llama3_8b", "--system", "h100", "--gpus", "4", "--global-batch", "8"]
PLACE = ["--fix", "pp=2", "tp=2"]


@pytest.mark.parametrize("schedules", [["zb-v"], ["1f1b", "zb-v"]])
def test_json_has_every_digit_whether_the_framework_runs_an_answer_or_not(schedules, capsys):
    """The answers as JSON have the library's very numbers, also where nothing is run and so nothing is at risk."""
    assert main([*QUESTION, *PLACE, "--json", "--schedules", *schedules]) == 0
    written = json.loads(capsys.readouterr().out)
    frame = pp.plan("llama3_8b", "h100", 4, 8, schedules=schedules, fix={"pp": 2, "tp": 2})
    assert [answer["iteration_s"] for answer in written["answers"]] == frame.iteration_s.tolist()
    assert len(written["risk"]) == frame.is_run.sum() == ("1f1b" in schedules)


def test_many_questions_make_a_table(tmp_path, capsys):
    """A line for each answer, and one for each that has none; the file and JSON have the numbers of the frame."""
    asked = [*QUESTION, "--gpus", "3,4,8", "--schedules", "1f1b", "--fix", "tp=2", "--tokens", "1T", "--price", "2"]
    asked += ["--mtbf", "50000h", "--checkpoint-bandwidth", "10 GB/s"]
    files = [tmp_path / name for name in ("rows.csv", "plot.svg")]
    assert main([*asked, "--csv", str(files[0]), "--plot", str(files[1])]) == 0
    lines = capsys.readouterr().out.splitlines()
    given = {"tokens": "1T", "price": 2, "mtbf": "50000h", "checkpoint_bandwidth": "10 GB/s"}
    frame = pp.plan("llama3_8b", "h100", [3, 4, 8], 8, schedules="1f1b", fix={"tp": 2}, **given)
    assert main([*asked, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["money"] for row in rows][1:] == frame.money.tolist()[1:] == read_csv(files[0]).money.tolist()[1:]
    head = next(place for place, line in enumerate(lines) if line.startswith("GPUs"))
    for line, (_, row) in zip(lines[head + 1 :], frame[1:].iterrows(), strict=False):
        words = line.split()
        assert (words[0], words[1]) == (str(row.gpus), f"{row.iteration_s:.4g}")
        assert f"{row.days:.4g}" in words
    assert lines[head - 1] == f"every row: fits, useful {frame.useful_share.iloc[-1]:.1%}"
    assert "framework megatron" in lines[0]  # of what has an answer
    assert lines[-1] == f"none    GPUs 3: {frame.refused[0]}"
    assert any(line.startswith("fails   one of 8 GPUs") for line in lines)
    assert "<svg" in files[1].read_text()
    assert drawn_scaling(frame).axes[0].get_xlabel() == "GPUs (log scale)"


def test_many_questions_need_neither_tokens_nor_a_price_for_each(capsys):
    """What nobody gives stays empty."""
    asked = ["plan", "--model", "llama3_8b", "--system", "h100,b200", "--global-batch", "8", "--schedules", "1f1b"]
    for price in ([], ["--price", "h100=2"], ["--price", "h100=2,b200=9"]):
        assert main([*asked, "--gpus", "h100=8,b200=4", *PLACE, *price]) == 0
        out = capsys.readouterr().out
        assert ("per billion tokens" in out) == bool(price)
        assert not {"nan", "trained"} & set(out.split())
        assert ("cheapest, of those with a price: GPUs 8, system h100" in out) == (price[-1:] == ["h100=2,b200=9"])


def test_answers_have_modules_and_gathers_of_weights(capsys):
    """Several modules run again; what gathers weights has other answers than layouts of that size that are refused."""
    for schedule, recompute, text in (
        ("1f1b", "layernorm+mlp", "layernorm+mlp"),
        ("1f1b:fsdp=keep", "none", "FSDP keep"),
    ):
        assert main([*QUESTION, "--fix", "pp=2", f"recompute={recompute}", "--schedules", schedule]) == 0
        assert f" {text}" in capsys.readouterr().out


def test_the_least_gpus_are_named_with_what_they_cost(capsys):
    """The answer stands below all that were tried."""
    asked = [
        "plan", "--model", "llama3_8b", "--system", "h100", "--global-batch", "64", "--fix", "tp=2", "cp=1", "1f1b",
    ]  # fmt: skip
    assert main([*asked, "--tokens", "100B", "--finish", "9d", "--price", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (answer,) = [line for line in lines if line.startswith("answer")]
    last = [line for line in lines if line[:4].strip().isdigit()][-1].split()
    assert f" {last[0]} GPUs of h100: " in answer
    assert all(word in answer for word in ("days", "(nine of ten: ", "GPU-hours", "money", "per billion tokens"))
    assert answer.endswith("; the predicted time keeps the deadline, the end of its range does not")


def test_a_run_says_what_it_costs_and_loses(capsys):
    """A line each, only if asked."""
    asked = [*QUESTION, *PLACE, "1f1b"]
    for more, heads in (
        ([], set()),
        (["--tokens", "1T", "--price", "2", "--mtbf", "9h", "--checkpoint-bandwidth", "1 TB/s"], {"cost", "fails"}),
    ):
        assert main([*asked, *more]) == 0
        lines = capsys.readouterr().out.splitlines()
        found = {line.split()[0]: line for line in lines if line.startswith(("cost", "fails"))}
        assert set(found) == heads
        assert "nine of ten" in found.get("cost", "nine of ten")
        assert re.search(r"useful, days [\d.]+ lost, money [\w. ]+ lost$", found["fails"]) if found else not heads


def test_an_answer_names_what_decides_it():
    """Without a pipeline nothing divides layers or slices; of values that are listed, names of a front have theirs."""
    fix = {"pp": 1, "slicing": "work", "precision": ["bf16", "fp8"]}
    plan = planned("llama3_8b", "h100", 8, 16, schedules="1f1b", fix=fix)
    answer = layout_text(plan.frame.iloc[0])
    assert not {"layers", "order", "slicing"} & set(answer.split())
    assert "layers" not in "".join(plan.steps().step)
    rows, figure = drawn_front(plan, None, None, None)
    assert rows
    assert all(row["name"].endswith(row["variant"]) and row["variant"].startswith("precision=") for row in rows)
    assert {row["name"] for row in rows} <= {text.get_text() for text in figure.axes[0].texts}


def test_schedules_stand_behind_commas_with_their_options():
    """A comma before an option's name and value is the schedule's own."""
    assert _separated((), (), ["a,b:x=1,y=2,c:z=1,2"], {}) == ({}, ["a", "b:x=1,y=2", "c:z=1,2"])


@pytest.mark.parametrize(("text", "value"), [
    ("even,balanced", ["even", "balanced"]), ("7,9,9,7", (7, 9, 9, 7)), ("Et,t|tt,L", "Et,t|tt,L"), ("even", "even"),
])  # fmt: skip
def test_words_for_layers_are_a_list_and_numbers_are_one_division(text, value):
    """So is a layout string, in which commas mean nothing."""
    assert _separated((), [f"layers={text}"], [], {}) == ({"layers": value}, [])


def test_a_value_is_fixed_by_its_option_or_by_fix(capsys):
    """Both forms give the same answer, also together; a switch is a value, too."""
    answers = []
    for fixed in (
        ["--fix", "pp=2", "tp=2", "sequence_parallel=true"],
        ["--pp", "2", "--tp", "2", "--sequence-parallel"],
        ["--tp", "2", "--fix", "tp=2", "pp=2", "sequence_parallel=true"],
    ):
        assert main([*QUESTION, *fixed, "--schedules", "1f1b"]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1] == answers[2]


def test_answers_that_the_framework_does_not_run_are_no_error(capsys):
    """With a schedule alone that the framework lacks, the text says so above the only table, and counts from 1."""
    assert main([*QUESTION, *PLACE, "--schedules", "zb-v"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("does not run" in line for line in lines) == 1
    (table,) = [place for place, line in enumerate(lines) if line.lstrip().startswith("seconds")]
    assert lines[table + 1].startswith("1 ")
    assert not any(line.startswith("disturbed") for line in lines)


def test_another_row_is_explained_beside_the_answer(capsys):
    """The answer stays the first; a difference of nothing has no minus."""
    assert main([*QUESTION, "--schedules", "1f1b", "--within", "0.5", "--explain", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    frame = pp.plan("llama3_8b", "h100", 4, 8, schedules="1f1b", within=0.5)
    lines = [line for line in lines if line.startswith(("answer", "row 2   "))]
    for line, head, seconds in zip(lines, ("answer", "row 2"), frame.iteration_s, strict=False):
        assert line.startswith(head)
        assert f" {seconds:.4g} s" in line
    assert "-0.0%" not in "".join(lines)


@pytest.mark.parametrize(("system", "is_known"), [("h100", True), ("mid_cp_mid_nw", False)])
def test_a_chance_or_a_range_that_is_not_known_says_when_it_would_be(system, is_known, capsys):
    """A plain roofline was compared with no runs."""
    question = ["--model", "llama3_8b", "--gpus", "8", "--global-batch", "16", "--memory-limit", "80 GiB"]
    assert main(["plan", *question, "--system", system, "--schedules", "1f1b", "--fix", "tp=8"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("disturbed")]
    assert ("fastest when run" in line, "not known without a range" in line) == (is_known, not is_known)


@pytest.mark.parametrize("rows", [1, 5])
def test_rows_that_are_not_listed_are_counted(rows, capsys):
    """Their numbers are those of the whole answer, so `--explain` names the same row; rows to run are always listed."""
    named = ["1f1b", "interleaved-1f1b:chunks=2", "zb-v"]
    assert main([*QUESTION, "--within", "0.5", "--rows", str(rows), *named]) == 0
    lines = capsys.readouterr().out.splitlines()
    plan = planned("llama3_8b", "h100", 4, 8, schedules=named, within=0.5)
    listed = sorted({*range(rows), *plan.proposed})
    assert rows > 1 or len(listed) > rows
    start = next(place for place, line in enumerate(lines) if line.lstrip().startswith("seconds")) + 1
    assert [int(line.split()[0]) - 1 for line in lines[start : start + len(listed)]] == listed
    assert f"not listed: {plan.frame.is_run.sum() - len(listed)} more; see --rows" in lines
    assert sum("does not run" in line for line in lines) == 1
    last = max(place for place, line in enumerate(lines) if line.lstrip().startswith("seconds")) + 1
    assert lines[last].split()[0] == str(plan.frame.is_run.sum() + 1)


def test_without_collectives_there_is_no_range_and_a_line_says_what_is_assumed(tmp_path, capsys):
    """Links that are not said to lose anything in collectives were compared with no run."""
    text = (DATA / "systems" / "rtx4090.yaml").read_text()
    mine = tmp_path / "mine.yaml"
    mine.write_text(text[: text.index("collectives:")])
    question = ["--model", "stp_12b", "--gpus", "16", "--global-batch", "16", "--schedules", "1f1b", "--fix", "tp=2"]
    for system, is_known in ((str(mine), False), ("rtx4090", True)):
        assert main(["plan", *question, "--system", system]) == 0
        text = capsys.readouterr().out
        assert ("nine of ten: " in text, "peaks: mine gives peaks" in text) == (is_known, not is_known)
        assert ("rtx4090 has them" in text) != is_known


def test_several_layers_are_a_list(capsys):
    """As on the command line of the other commands."""
    assert main([*QUESTION, *PLACE, "layers=15,17", "--schedules", "1f1b", "--json"]) == 0
    (first, *_) = json.loads(capsys.readouterr().out)["answers"]
    frame = pp.compare(
        "1f1b", 2, model="llama3_8b", system="h100", layers=(15, 17), global_batch=8,
        **{name: first[name] for name in ("tp", "cp", "dp", "microbatch_size", "zero", "sequence_parallel")},
    )  # fmt: skip
    assert first["iteration_s"] == frame.iteration_s[0]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_shows_the_best_so_far_until_there_is_an_answer(is_terminal, capsys, monkeypatch):
    """One line, on standard error, of which nothing stays; elsewhere not a byte."""
    monkeypatch.setattr(progress, "_TICK_S", 0.001)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    assert main([*QUESTION, *PLACE, "--schedules", "1f1b"]) == 0
    shown = capsys.readouterr().err
    (first, *_) = pp.plan("llama3_8b", "h100", 4, 8, schedules="1f1b", fix={"pp": 2, "tp": 2}).iteration_s
    assert bool(shown) == (f"so far: best {first:.4g} s: 1F1B, pp 2, tp 2" in shown) == is_terminal
    assert shown.rpartition("\r")[2] == ("\x1b[K" if is_terminal else "")
    assert "\n" not in shown


def test_models_with_experts_have_a_range_of_their_own(capsys):
    """Under NVIDIA's frameworks alone, whose runs were measured; a plan says when their exchange is the limit."""
    question = ["plan", "--system", "h100", "--gpus", "16", "--global-batch", "16", "1f1b"]
    none = "range: none: no run under megatron of a model with experts was measured"
    fixed = ["--fix", "pp=4", "tp=1", "cp=1", "zero=1"]
    for model, has_experts in (("qwen2_57b_a14b", True), ("llama3_8b", False)):
        assert main([*question, "--model", model, *fixed]) == 0
        assert (none in capsys.readouterr().out) == has_experts
    fixed = ["--fix", "pp=1", "tp=1", "ep=16", "microbatch_size=1", "zero=1", "recompute=none"]
    given = ["--model", "qwen3_30b_a3b", "--framework", "nemo@26.02", "--global-batch", "64"]
    assert main([*question, *given, *fixed]) == 0
    printed = capsys.readouterr().out
    assert "runs of models with experts (megatron_bridge_moe, dgxc_moe, moe_modelzoo) under nemo@26.02" in printed
    assert "experts are limited by their exchange, beyond an NVLink domain of 8; the best step, " in printed
    question[2] = "gb300"
    assert main([*question, *given[:2], "--global-batch", "64", *fixed]) == 0
    assert "experts are limited by their exchange, inside an NVLink domain of 64; the best" in capsys.readouterr().out


def test_numbers_behind_a_blank_are_no_schedules(capsys):
    """The remedy is a comma."""
    assert main([*QUESTION, "--gpus", "4", "8"]) == 2
    assert "schedule = 8: is a number; join several with commas, as in --gpus 32,64" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [60, 100])
def test_a_terminal_gets_prose_that_fits(columns, capsys, monkeypatch):
    """Wrapped between words, below the text behind its label; a table gives up blanks before it is too wide."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    sentence = " ".join(["word"] * 40)
    say([f"why     {sentence}", sentence, *aligned([["left", "x" * 30], ["y" * 27, "right"]])])
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("why     word")
    assert lines[0].startswith(" " * 8 + "word")
    assert all(len(line) <= columns for line in (first, *lines))
