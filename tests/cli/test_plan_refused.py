"""Questions that cannot be planned get one line, which says what would be possible, and exit code 2."""

import json

import pytest

from ppmodel.cli import main

GOOD = {"--model": "llama3_8b", "--system": "h100", "--gpus": "8", "--global-batch": "64"}

BAD = [
    # counts that are none
    {"--gpus": "0"}, {"--gpus": "8.5"}, {"--gpus": "99999999"}, {"--global-batch": "1e3"},
    {"--global-batch": "99999999999"}, {"--sequence": "8k"}, {"--rows": "0"}, {"--explain": "0"}, {"--within": "5%"},
    {"--max-tp": "0"}, {"--max-pp": "x"}, {"--workers": "0"},
    # names and files
    {"--model": "llama4"}, {"--model": "missing.yaml"}, {"--system": "h1000"}, {"--framework": "jax"},
    {"--schedules": "1f1d"}, {"--schedules": "interleaved-1f1b:chunks=x"}, {"--schedules": "interleaved-1f1b:waves=2"},
    {"--schedules": "1f1b,zbv"}, {"--schedules": "mine.py"}, {"": "2f2b"},
    # memory
    {"--memory-limit": "0 GiB"}, {"--memory-limit": "64"}, {"--memory-limit": "1 GiB"}, {"--memory-limit": "lots"},
    {"--memory-limit": "8 GiB"},
    # values that are fixed
    {"--fix": "tp=3"}, {"--fix": "tp=16"}, {"--fix": "tp=two"}, {"--fix": "tp"}, {"--fix": "tp="}, {"--fix": "sp=true"},
    {"--fix": "gpus=8"}, {"--fix": "zero=4"}, {"--fix": "recompute=some"}, {"--fix": "pp=64"},
    {"--fix": "microbatch_size=3"}, {"--fix": "dp=3"}, {"--fix": "layers=5"}, {"--fix": "ep=2"},
    {"--fix": "precision=int4"}, {"--fix": "sequence_parallel=maybe"},
    {"--fix": "tp=8", "": "pp=2"}, {"--fix": "tp=8", "--max-tp": "4"}, {"--fix": "dp=8", "--global-batch": "12"},
    {"--fix": "dp=4", "": "microbatch_size=32"},
    # what does not go together
    {"--gpus": "7", "--fix": "tp=8"}, {"--gpus": "7", "--global-batch": "64", "--fix": "tp=7"},
    {"--gpus": "8", "--global-batch": "7", "--fix": "dp=8"}, {"--sequence": "1001", "--fix": "cp=2"},
    {"--system": "a100", "--fix": "precision=fp8"}, {"--model": "llama3_405b"}, {"--gpus": "37", "--global-batch": "4"},
    {"--model": "mixtral_8x7b", "--fix": "ep=3"}, {"--explain": "500", "": "1f1b"}, {"--fix": "pp=8", "": "chunks=10"},
    {"--csv": "missing/folder/out.csv"}, {"--schedules": "hanayo", "--fix": "pp=2"},
    {"--workers": "2", "--scheduler": "x"}, {"--scheduler": ""}, {"--pareto": "front.txt"}, {"--launch": "megatorn"},
    {"--model": "mixtral_8x7b", "--fix": "expert_imbalance=0.5"}, {"--fix": "expert_imbalance=1.2"},
    {"--fix": "tp=2.0"}, {"--fix": "offload=1.5"},
    # limits and options that would change nothing, or of which nothing says what they mean
    {"--memory-limit": "81 GiB"}, {"--max-ep": "4"}, {"--link": "0-1:delay=5"}, {"--link": "0-1:bandwidth=25Gbps"},
    # what is written as elsewhere
    {"--tp": "3"}, {"--tensor-parallel": "8"}, {"--fix": "tp:8"}, {"--fix": "tp=8,8"},
    {"--memory-limit": "80gb"}, {"--gpus": "1,024"}, {"--system": "H100"},
    # what no candidate has
    {"--fix": "recompute=99", "": "1f1b"}, {"--fix": "layers=15,16", "": "1f1b"},
    {"--fix": "layers=Et*2|t*2L", "": "1f1b"}, {"--fix": "layers=[16,15]", "": "1f1b"},
    # many questions, days and money
    {"--gpus": "8,"}, {"--gpus": "8,x"}, {"--gpus": "8,016"}, {"--global-batch": "64,0"}, {"--sequence": "4096,-1"},
    {"--system": "h100,h1000"}, {"--system": "h100,"}, {"--framework": "megatron,jax"}, {"--tokens": "15 trillion"},
    {"--tokens": "-1T"}, {"--price": "$2"}, {"--price": "2,5"}, {"--price": "h10=2", "--gpus": "8,16"},
    {"--price": "h100=3,h200=2"}, {"--fix": "dispatcher=deepep,depep"}, {"--dispatcher": "deepep,deepep"},
    {"--dispatcher": "deepep"}, {"--fix": "tp=4", "--tp": "2"}, {"--tp": "2,"}, {"--expert-nodes": "4"},
    {"--price": "=2"}, {"--framework": "nemo@"}, {"--fix": "recompute=mlp+mlp"}, {"--fix": "recompute=full+mlp"},
    {"--finish": "30d"}, {"--finish": "30", "--tokens": "1T"}, {"--finish": "1s", "--tokens": "15T"},
    {"--budget": "5M", "--tokens": "15T"}, {"--budget": "5", "--tokens": "15T", "--price": "2", "--gpus": "8,16"},
    {"--mtbf": "50000h"}, {"--mtbf": "50000", "--checkpoint-bandwidth": "1 GB/s"}, {"--restart": "10min"},
    {"--mtbf": "5h", "--checkpoint-bandwidth": "1 GB"}, {"--checkpoint": "1 TB"}, {"--checkpoint-bandwidth": "1 GB/s"},
    {"--plot": "scaling.txt"}, {"--gpus": "8,16", "--launch": "megatron"}, {"--gpus": "8,16", "--pareto": "a.svg"},
    {"--out": "run.sh"}, {"--out": "run.sh", "--launch": "nemo"}, {"--plot": "a.svg", "--launch": "megatron"},
    {"--gpus": "64k"}, {"--sequence": "1M"}, {"--gpus": "h100="}, {"--gpus": "h100=8,16"}, {"--gpus": "b200=8"},
    {"--gpus": "h100=8", "--system": "h100,b200"}, {"--gpus": "h100=8", "--launch": "megatron"},
    {"--schedules": "1f1b", "--fix": "chunks=2"}, {"--max-pp": "1", "--max-tp": "1", "--max-cp": "1", "--max-dp": "4"},
]  # fmt: skip


BAD += [{"--gpus": "8,16"} | change for change in (
    {"--model": "llama4"}, {"--fix": "tp=3"}, {"--memory-limit": "1 GiB"}, {"--schedules": "2f2b"}, {"--max-ep": "4"},
)]  # fmt: skip


@pytest.mark.parametrize("change", BAD, ids=lambda change: " ".join(map(" ".join, change.items())))
def test_bad_questions_get_one_line(change, capsys, tmp_path, monkeypatch):
    """Field, value, rule and what to do instead; nothing is printed that looks like an answer."""
    monkeypatch.chdir(tmp_path)
    asked = GOOD | change
    words = [word for option, value in asked.items() for word in ((option, value) if option else (value,))]
    assert main(["plan", *words]) == 2
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not line.startswith(("Usage:", "Try "))]
    assert out == ""
    assert len(lines) == 1, err
    assert ";" in lines[0] or "?" in lines[0], err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("change", "reason"), [
    ({"--fix": "recompute=99", "--schedules": "1f1b"}, "recompute = 99: is more than any stage has"),
    ({"--fix": "layers=Et*2|t*2L", "--schedules": "1f1b"}, "layers = Et*2|t*2L: must be"),
    ({"--memory-limit": "80gb"}, "--memory-limit = 80gb"), ({"--model": "llama3_405b"}, "weights and optimizer need"),
    ({"--memory-limit": "81 GiB"}, "no more than a GPU has (79.65 GiB)"), ({"--link": "0-1:delay=5"}, "unit of time"),
    ({"--gpus": "1,024"}, "write 1024"), ({"--sequence": "1M"}, "write 1000000 or 1048576"),
    ({"--fix": "pp=2", "--tp": "2", "--cp": "1", "--dp": "1"}, "(4 in all) leaves 4 of 8 GPUs without work"),
    ({"--max-pp": "1", "--max-tp": "1", "--max-cp": "1", "--max-dp": "4"}, "limited; fix and limit less"),
    ({"--gpus": "b200=8"}, "give a number for each of h100"),
    ({"--tp": "3"}, "--fix = tp=3: must divide 8 GPUs; choose 2 or 4\n"),
    ({"--tp": "4", "--dp": "4"}, "(16 in all) must divide 8 GPUs; choose 4 or 8 in all\n"),
    ({"--price": "h100=2,h100=3"}, "must name each system once"),
    ({"--pareto": "a.png", "--plot": "b.png"}, "unlike --plot; leave it out\n"),
], ids=str)  # fmt: skip
def test_the_line_names_the_reason(change, reason, capsys):
    """What is undefined is not said not to fit, and what was typed has its own name."""
    assert main(["plan", *(word for item in (GOOD | change).items() for word in item)]) == 2
    assert reason in capsys.readouterr().err


def test_a_launcher_is_refused_before_the_search(capsys, monkeypatch):
    """A word mistyped does not cost a search."""
    monkeypatch.setattr("ppmodel.studies.planning.planned", lambda *_, **__: pytest.fail("searched"))
    assert main(["plan", *(word for item in GOOD.items() for word in item), "--launch", "megatorn"]) == 2
    assert "did you mean megatron?" in capsys.readouterr().err


def test_failures_are_refused_before_the_search(capsys, monkeypatch):
    """A time between failures of the whole run, in place of one GPU's, does not cost a search."""
    monkeypatch.setattr("ppmodel.studies.planning.answer.search", lambda *_, **__: pytest.fail("searched"))
    asked = GOOD | {"--mtbf": "1s", "--checkpoint-bandwidth": "200 GB/s"}
    assert main(["plan", *(word for item in asked.items() for word in item)]) == 2
    assert "give that of one GPU, such as 50000h" in capsys.readouterr().err


def test_values_with_a_decimal_point_can_be_fixed(capsys):
    """A share of experts' tokens, or of activations, is no whole number."""
    words = [word for item in (GOOD | {"--model": "mixtral_8x7b", "--gpus": "16"}).items() for word in item]
    fixed = ["pp=2", "tp=1", "cp=2", "ep=8", "recompute=none", "--sequence", "4096", "--schedules", "1f1b"]
    times = []
    for imbalance in ("1", "1.2"):
        assert main(["plan", *words, "--json", "--fix", f"expert_imbalance={imbalance}", *fixed]) == 0
        times.append(json.loads(capsys.readouterr().out)["answers"][0]["iteration_s"])
    assert times[1] > 1.02 * times[0]
