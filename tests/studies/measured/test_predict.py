"""Rows of training runs: read, predicted, written with the predictions."""

import csv
from dataclasses import replace

import pytest
from refusals import refused

from ppmodel.cli import main
from ppmodel.clusters.specs import DATA, FrameworkSpec, load_framework, load_system, packaged
from ppmodel.clusters.specs.document import release_number
from ppmodel.clusters.specs.layers import parse_layers
from ppmodel.errors import PPModelError
from ppmodel.files import data_rows
from ppmodel.studies.measured import COLUMNS, PREDICTED, predicted, read_rows, run_of
from ppmodel.studies.measured.rows import recipe_of, stated_value
from ppmodel.studies.measured.stated_run import stated_run
from ppmodel.studies.points import simulate

ROW = {
    "id": "a", "hidden": "4096", "heads": "32", "kv_heads": "8", "layers": "32", "mlp_hidden": "14336",
    "gated_mlp": "true", "vocabulary": "128256", "sequence": "8192", "attention": "flash",
    "schedule": "interleaved-1f1b", "chunks": "2", "tp": "2", "cp": "1", "ep": "1", "dp": "2", "pp": "4",
    "sequence_parallel": "true", "zero": "1", "recompute": "none", "microbatch_size": "1", "global_batch": "16",
    "note": "kept, as it is", "iteration_s": "",
}  # fmt: skip
SYSTEM = load_system("dgx_h100_nodes")


def write(path, *rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def test_a_row_of_a_packaged_model_may_fold_its_experts(tmp_path):
    """Its layout has etp, and is that of the values; an empty one means tp."""
    shape = ["hidden", "heads", "kv_heads", "layers", "mlp_hidden", "gated_mlp", "vocabulary", "attention"]
    row = ROW | dict.fromkeys(shape, "") | {"model": "mixtral_8x7b", "ep": "8", "dp": "4", "etp": "1"}
    _, (folded, plain) = read_rows(write(tmp_path / "rows.csv", row, row | {"ep": "4", "etp": ""}))
    assert run_of(folded).layout.expert_replicas == 1
    assert (run_of(folded).layout.expert_tp, run_of(plain).layout.expert_tp) == (1, 2)
    assert predicted(folded, SYSTEM)["predicted_iteration_s"] > 0
    words = "mixtral_8x7b tp=2 pp=4 dp=4 ep=8 etp=1 global_batch=16 sequence_parallel=true iteration_s=3"
    assert run_of(stated_run(words)[1]).layout.expert_tp == 1


OF_MODEL = "hidden", "heads", "kv_heads", "layers", "mlp_hidden", "gated_mlp", "vocabulary", "sequence"


@pytest.mark.parametrize("model", ["llama3_8b", " ".join(f"{name}={ROW[name]}" for name in OF_MODEL)])
@pytest.mark.parametrize("word", ["chunks=2", "etp=4"])
def test_what_has_no_effect_refuses_its_row(model, word):
    """Chunks of a schedule that has none, GPUs of experts that there are not: of a packaged model, too."""
    _, row = stated_run(f"{model} pp=2 dp=2 tp=2 global_batch=8 {word}")
    assert predicted(row, SYSTEM)["refused"].startswith(word.replace("=", " = "))


def test_a_row_fits_where_the_run_that_it_states_does():
    """Also where memory is above the capacity by less than predictions are off."""
    words = "llama3_8b schedule=zb-v pp=4 dp=4 zero=1 recompute=light microbatch_size=2 global_batch=128 iteration_s=9"
    made = predicted(stated_run(words)[1], load_system("h100"), load_framework("megatron"))
    assert made["predicted_fit"] == "may not fit"
    assert made["predicted_fits"] is False


def test_rows_keep_their_columns_and_get_predictions(tmp_path, capsys):
    """Every column stays as it is, in its place, also those of an earlier output; a refused row has its reason."""
    rows = [ROW, ROW | {"id": "b", "global_batch": "15"}, ROW | {"id": "c", "tp": "3"}]
    first, second = (tmp_path / name for name in ("1.csv", "2.csv"))
    for source, out in ((write(tmp_path / "rows.csv", *rows), first), (first, second)):
        assert main(["predict", str(source), "--system", "dgx_h100_nodes", "--out", str(out)]) == 0
        assert "1 row predicted, 2 refused" in capsys.readouterr().out
    assert first.read_bytes() == second.read_bytes()
    columns, found = read_rows(first)
    assert columns == [*ROW, *PREDICTED]
    assert [{name: row[name] for name in ROW} for row in found] == rows
    assert float(found[0]["predicted_iteration_s"]) > 0
    assert found[0]["predicted_fits"] in ("true", "false")
    assert 0 < float(found[0]["predicted_mfu"]) < 1
    assert [row["predicted_iteration_s"] for row in found[1:]] == ["", ""]
    assert ["global_batch = 15" in found[1]["refused"], "tp = 3" in found[2]["refused"]] == [True, True]


REFUSED = {"modelzoo-0005"}
"""A row of a model with layers that we do not model."""

MEASURED = [path for path in sorted((DATA / "reference" / "measured").glob("*.csv")) if "modules" not in path.stem]


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.stem)
def test_every_measured_file_is_understood(path):
    """Every value that occurs in the files of measured runs is known, but for a few."""
    for row in read_rows(path)[1]:
        if row["id"] in REFUSED:
            continue
        run = run_of(row)
        sequences = run.pipeline_runs * run.num_microbatches * int(row["dp"]) * int(row["microbatch_size"])
        assert sequences == int(row["global_batch"])


def test_modules_that_run_again_save_and_cost_as_measured():
    """Moonlight on eight H100s: all signs. Of memory to a third, but for norms, which saved nothing there."""
    with open(DATA / "reference" / "measured" / "recompute_modules_h100.csv", encoding="utf-8", newline="") as lines:
        rows = {row["experiment"].removeprefix("recompute "): row for row in csv.DictReader(lines)}
    runs = {
        way: simulate(
            "1f1b", 1, 1, model="moonlight_16b_a3b", system="h100", framework="nemo", tp=2, ep=8, etp=1, dp=4, zero=1,
            sequence_parallel=True, recompute=None if way == "none" else way,
        )
        for way in rows
    }  # fmt: skip
    for way, row in rows.items():
        slower, less = (
            (float(row[name]) - float(rows["none"][name]), getattr(runs[way], ours) - getattr(runs["none"], ours))
            for name, ours in (("step_time_s", "iteration_s"), ("peak_memory_gb", "peak_memory_bytes"))
        )
        if way != "none":
            assert slower[0] > 0 < slower[1]
        if way not in ("none", "core_attn"):
            assert less[0] < 0 > less[1]
        if way not in ("layernorm+moe_act", "none"):
            assert less[1] / 1e9 == pytest.approx(less[0], rel=1 / 3, abs=0.02)


def test_runs_of_the_pipeline_follow_one_another():
    """Each fills and drains anew; what an iteration has once it has once, and memory is that of one of them."""
    plain, empty, one, two, half = (
        predicted(ROW | more, SYSTEM)
        for more in ({}, {"pipeline_runs": ""}, {"pipeline_runs": "1"}, {"pipeline_runs": "2"}, {"global_batch": "8"})
    )
    assert plain == empty == one
    assert half["predicted_iteration_s"] < two["predicted_iteration_s"] < 2 * half["predicted_iteration_s"]
    assert two["predicted_iteration_s"] > one["predicted_iteration_s"]
    assert two["predicted_memory_gb"] == half["predicted_memory_gb"]
    work = [found["predicted_mfu"] * found["predicted_iteration_s"] for found in (one, two)]
    assert work[0] == pytest.approx(work[1], rel=1e-12)
    assert predicted(ROW | {"flushes": "2"}, SYSTEM) == two  # as the column was called
    refused = predicted(ROW | {"pipeline_runs": "3"}, SYSTEM)["refused"]
    assert "pipeline_runs = 3: must divide global_batch (16)" in refused
    assert "pipeline_runs" in predicted(ROW | {"pipeline_runs": "-1"}, SYSTEM)["refused"]


def test_a_row_says_its_precision():
    """Before the framework does; what is not a precision, or not one of the system, refuses the row."""
    system = load_system("h100")
    named = [{}, {"precision": ""}, {"precision": "FP8"}]
    plain, empty, own = (predicted(ROW | more, system, FrameworkSpec()) for more in named)
    as_framework = replace(system, framework=FrameworkSpec(precision="fp8"))
    assert plain == empty == predicted(ROW | {"precision": "bf16"}, as_framework)
    assert own == predicted(ROW, as_framework)
    assert own["predicted_iteration_s"] < plain["predicted_iteration_s"]
    assert "precision = 'fp16': must be one of bf16, fp8" in predicted(ROW | {"precision": "fp16"}, system)["refused"]
    assert "precision = fp8" in predicted(ROW | {"precision": "fp8"}, load_system("a100"))["refused"]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_wrong_value_refuses_its_row(name):
    """Whatever stands in a column, its row is refused in one line that names the column."""
    for value in ("", "-1", "0x10", "1e3", "²", "nan", "99999999999999999999", "=1+1", "\x1b[31m"):
        said = predicted(ROW | {name: value}, SYSTEM)["refused"]
        assert said is not None, value
        assert "\n" not in said
        assert name in said
        assert len(said) < 1200


@pytest.mark.parametrize(("text", "field"), [
    ("", "columns"), ("a,b\n1,2\n", "columns"), (",".join([*COLUMNS, "tp"]) + "\n", "column"),
    (",".join(COLUMNS) + "\n", "rows"), (",".join(COLUMNS) + "\n1,2\n", "values of the row"),
    (",".join(COLUMNS) + '\n"a\n', "text"),
])  # fmt: skip
def test_a_broken_file_is_refused(tmp_path, text, field):
    """One line with file and rule; nothing is written."""
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8")
    with refused(PPModelError, field, where=str(path)):
        read_rows(path)


@pytest.mark.parametrize(
    "name", ["evil.py", "./evil.py", "evil.py:depth=1", "table.csv", "/etc/passwd", "1f1b:depth=1"]
)
def test_a_row_never_runs_or_opens_a_file(tmp_path, monkeypatch, name):
    """A row is data: its schedule is a registered name, or the row is refused."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('ran', 'w').close()\n")
    (tmp_path / "table.csv").write_text("0F0\n")
    _, (row, *_) = read_rows(DATA / "reference" / "measured" / "vtrain_single.csv")
    done = predicted(row | {"schedule": name}, load_system("a100"))
    assert done["refused"].startswith("schedule = ")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("name", "meant"), [
    ("Precision", "precision"), ("precison", "precision"), ("precision ", "precision"), ("Flushes", "pipeline_runs"),
    ("Status", "status"), ("memory_GB", "memory_gb"), ("memory_gib", "memory_gb"), ("iteration_ms", "iteration_s"),
    ("GPUs", "gpus"),
])  # fmt: skip
def test_a_column_nearly_right_is_refused(tmp_path, name, meant):
    """A misspelt column would be ignored; what is like no column that is read is a note."""
    with refused(PPModelError, "column", remedy=f"write {meant}"):
        read_rows(write(tmp_path / "rows.csv", ROW | {name: "fp8"}))
    assert read_rows(write(tmp_path / "rows.csv", ROW | {"weather": "fp8"}))[1][0]["weather"] == "fp8"


def test_gpus_agree_with_the_layout():
    """A cell of 4,096 GPUs on a run of 16 refuses its row; the right number, or none, changes nothing."""
    plain, right, empty = (predicted(ROW | more, SYSTEM) for more in ({}, {"gpus": "16"}, {"gpus": ""}))
    assert plain == right == empty
    assert predicted(ROW | {"gpus": "4096"}, SYSTEM)["refused"].startswith("gpus = 4096")


@pytest.mark.parametrize(
    "text", ["=1+1", "@sum", "+cmd|' /C calc'!A0", "-a", "'=1", "'quoted", "-1.5", "\u2028", "a\nb"]
)
def test_no_cell_becomes_a_formula(tmp_path, text):
    """What is written is read again as it was, and begins no formula."""
    rows, out = write(tmp_path / "rows.csv", ROW | {"id": text}), tmp_path / "out.csv"
    assert main(["predict", rows, "--system", "dgx_h100_nodes", "--out", str(out)]) == 0
    with open(out, encoding="utf-8", newline="") as file:
        written = next(csv.DictReader(file))["id"]
    assert written[:1] not in {"=", "@", "+"}
    if text == "'=1":
        return  # the apostrophe of such an input is one of ours
    assert read_rows(out)[1][0]["id"] == text


def test_recipes_are_of_packaged_models_in_order():
    """Each has what a row may have; newer ones come later, and each changes something."""
    recipes, last = data_rows("recipes.csv"), {}
    numbers = [release_number(recipe["release"]) for recipe in recipes]
    assert numbers == sorted(numbers)
    for recipe in recipes:
        key, values = tuple(recipe.values())[1:4], tuple(recipe.values())[4:-1]
        assert recipe["model"] in packaged("models")
        assert all(
            stated_value(name, recipe[name]) is not None
            for name in ("dispatcher", "overlap_tensor", "recompute", "offload") if recipe[name]
        )  # fmt: skip
        assert not recipe["division"] or parse_layers(recipe["division"])
        assert last.get(key) != values
        last[key] = values


def test_rows_take_from_recipes_what_they_leave_open():
    """A newer release counts as the newest known; what a row states stays; a source without a release has none."""
    row = {"source": "Megatron-Bridge 27.01", "model": "qwen3_235b_a22b", "device": "H100-80GB", "number_format": "fp8"}
    row |= {"pp": "8", "chunks": "4"}
    assert {"schedule": "combined-1f1b", "chunks": "4", "dispatcher": "all-to-all"}.items() <= recipe_of(row).items()
    assert "schedule" not in recipe_of(row | {"chunks": "1"})
    assert "dispatcher" not in recipe_of(row | {"dispatcher": "deepep"})
    sizes = {"model": "", "hidden": "8192", "layers": "80", "mlp_hidden": "28672", "vocabulary": "128256"}
    dense = row | sizes | {"device": "GB200-186GB", "pp": "1", "chunks": "1"}  # Llama 3 70B, without its name
    assert recipe_of(dense) == {"cuda_graphs": "none", "offload": "40"}
    assert "offload" not in recipe_of(dense | {"pp": "4"})
    assert recipe_of(dense | {"vocabulary": "32000"}) == {}
    assert recipe_of(row | {"source": "ours"}) == recipe_of(row | {"device": "A100-80GB"}) == {}
