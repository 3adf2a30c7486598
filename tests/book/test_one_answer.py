"""One question has one answer: Llama 3 70B on 64 H100s, pp 4, tp 8, dp 2, 1F1B, 1,024 sequences."""

import json
import re
from pathlib import Path

import pytest
from commands import run
from test_clusters import defaults

import ppmodel
from ppbook.clusters import Training
from ppmodel.analysis import compare_overlapped, stated_overlap
from ppmodel.measured.predict import predicted
from ppmodel.specs import load_layout, load_model, load_system

ROOT = Path(__file__).parents[2]
SIZE = {"tp": 8, "dp": 2, "zero": 1, "sequence_parallel": True, "global_batch": 1024}
ON = {"model": "llama3_70b", "system": "h100"}
COMMAND = (
    "simulate 1f1b --pp 4 --model llama3_70b --system h100"
    " --tp 8 --dp 2 --zero 1 --sequence-parallel --global-batch 1024"
)
ROW = {
    "hidden": "8192", "heads": "64", "kv_heads": "8", "layers": "80", "mlp_hidden": "28672", "gated_mlp": "true",
    "vocabulary": "128256", "sequence": "8192", "attention": "flash", "schedule": "1f1b", "chunks": "1", "pp": "4",
    "tp": "8", "cp": "1", "ep": "1", "dp": "2", "microbatch_size": "1", "global_batch": "1024", "zero": "1",
    "sequence_parallel": "true", "recompute": "none",
}  # fmt: skip


@pytest.fixture(scope="module")
def answer():
    """The library's, from words."""
    return ppmodel.simulate("1f1b", 4, **ON, **SIZE).iteration_s


def test_library_and_commands_agree(capsys, answer):
    """A comparison, a layout in a file, the command line and a row of a measured run."""
    assert ppmodel.compare(["1f1b", "zb-v"], [2, 4], **ON, **SIZE).iteration_s[1] == pytest.approx(answer, rel=1e-12)
    assert ppmodel.simulate("1f1b", **ON, layout="gpus_64").iteration_s == pytest.approx(answer, rel=1e-12)
    for line in (COMMAND, "simulate 1f1b --model llama3_70b --system h100 --layout gpus_64"):
        code, out, _ = run(capsys, f"{line} --json")
        assert (code, json.loads(out)["iteration_s"]) == (0, pytest.approx(answer, rel=1e-12))
    assert predicted(ROW, load_system("h100"))["predicted_iteration_s"] == pytest.approx(answer, rel=1e-12)


def test_pages_about_clusters_agree(answer):
    """What to run, Your system and Beside the pipeline compute it in three ways, each at its own parameters."""
    given = {"zero": 1, "sequence_parallel": True}
    rows = Training(load_model("llama3_70b"), load_system("h100"), 64, 1024, given).compare(["1f1b"], 4, 8, 1)
    assert rows.iteration_s.tolist() == pytest.approx([answer], rel=1e-12)
    yours, beside = defaults("your-system"), defaults("beside")
    layout = load_layout(yours["layout"])
    row = compare_overlapped(
        ["1f1b"], layout.pp, stated_overlap(layout), tp=layout.tp, layout=layout, model=yours["model"],
        system=yours["system"],
    )  # fmt: skip
    assert row.iteration_s.tolist() == pytest.approx([answer], rel=1e-12)
    asked = {name: beside[name] for name in (*SIZE, *ON)}
    assert (asked, beside["pp"]) == (SIZE | ON, 4)


@pytest.mark.parametrize("file", ["README.md", "book/run.md"])
def test_what_texts_tell_readers_to_type_is_the_question(file):
    """The command is written out as it was asked here."""
    assert f"ppmodel {COMMAND}\n" in (ROOT / file).read_text(encoding="utf-8")


def test_the_readme_has_the_answer(answer):
    """To the digit that is printed."""
    said = re.search(r"^iteration +([\d.]+) s ", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert said[1] == f"{answer:.6g}"
