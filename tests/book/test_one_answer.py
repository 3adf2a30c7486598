"""One question has one answer: Llama 3 70B on 64 H100s, pp 4, tp 8, dp 2, 1F1B, 1,024 sequences."""

import json
import re
from pathlib import Path

import nbformat
import pytest
from books import HTML
from commands import run

import ppmodel
from ppbook.build.review import cards_page
from ppbook.parameters import declared
from ppmodel.clusters.specs import load_system
from ppmodel.studies.measured.predict import predicted

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


def test_plan_and_page_agree(answer):
    """A plan in which all of it is fixed, and Beside the pipeline at its own parameters."""
    fixed = {name: SIZE[name] for name in ("tp", "dp", "zero")} | {"pp": 4, "cp": 1, "microbatch_size": 1}
    rows = ppmodel.plan(**ON, gpus=64, global_batch=1024, schedules="1f1b", fix=fixed | {"recompute": "none"})
    assert rows.iteration_s.tolist() == pytest.approx([answer], rel=1e-12)
    notebook = nbformat.read(ROOT / "notebooks" / "beside.ipynb", as_version=4)
    beside = {name: parameter.value for name, parameter in declared(notebook).items()}
    asked = {name: beside[name] for name in (*SIZE, *ON)}
    assert (asked, beside["pp"]) == (SIZE | ON, 4)


def test_what_the_book_tells_readers_to_type_is_the_question():
    """The command is written out as it was asked here."""
    assert f"ppmodel {COMMAND}\n" in (ROOT / "book" / "run.md").read_text(encoding="utf-8")


def test_the_readme_has_the_answer_of_the_plan():
    """Its command is that of the book's first page, and the line below it what the page says."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = (HTML / "results" / "which.md").read_text(encoding="utf-8").strip("`\n")
    recorded = json.loads((HTML / "results" / "which.json").read_text(encoding="utf-8"))
    assert f".venv/bin/{command}\n" in readme
    assert f"answer  {recorded['answer']}\n" in readme


def test_the_readme_says_how_much_of_the_paper_holds():
    """As the verdicts count."""
    facts = json.loads((HTML / "results" / "claims_headline.json").read_text(encoding="utf-8"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{facts['own_here']} of {facts['own_rows']} published numbers" in readme
    assert f"{facts['hold']} of {facts['rows']} with our own checks" in readme


def test_files_that_the_appendix_names_are_in_the_book():
    """Its table, made from cards, leads from a figure to its numbers."""
    names = re.findall(r"`(\w+\.csv)`", cards_page(parts=True))
    assert len(names) > 10
    assert [name for name in names if not (HTML / "results" / name).exists()] == []
