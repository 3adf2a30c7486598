"""The file of a sweep: what it may say, what is refused, and schedules of one's own in it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import parquet
from refusals import refused, require_refused
from sweeps import SHORT, run

from ppmodel import build
from ppmodel.clusters.specs import DATA, load_system
from ppmodel.errors import SpecificationError
from ppmodel.studies.sweep import load_sweep

BAD = Path(__file__).parents[2] / "bad" / "sweeps"
REFUSED = {
    "bad_option": (1, "schedules.0.concat", "must be one of direct"),
    "broken_file": (None, "network_bandwidth.value", "must be greater than 0"),
    "list": (None, "document", "must be a mapping", "write 'key: value'"),
    "layout_of_schedule": (6, "layouts.0.chunks", "is not a known value of a layout"),
    "layout_title": (6, "layouts.0.title", "is not a known value of a layout"),
    "missing_file": (5, "models.1", "is not a file"),
    "missing_file_of_ones_own": (1, "schedules.0.file", "is not a file"),
    "missing_key": (None, "pp", "is missing", "add the key pp"),
    "no_schedule": (1, "schedules", "must have an entry"),
    "no_values": (1, "schedules.0.waves", "must have an entry"),
    "noise_alone": (6, "noise", "needs seeds", "add, for example, seeds: {from: 1, to: 100}"),
    "noise_key": (7, "noise.jiter", "is not a known key", "jitter"),
    "noise_range": (7, "noise.1.straggling", "must be less"),
    "option_twice": (1, "schedules.0", "is listed twice with the same options"),
    "pair_split": (1, "schedules.0.split", "must be two whole numbers"),
    "same_name": (4, "systems.1", "has the same name as"),
    "same_schedule": (1, "schedules.1", "is listed twice"),
    "seed_text": (6, "seeds.1", "must be a whole number"),
    "seeds_alone": (6, "seeds", "needs noise", "add, for example, noise: {jitter: 0.1}"),
    "seeds_key": (6, "seeds.first", "is not a known key", "from"),
    "seeds_backward": (6, "seeds.0.to", "must be at least from"),
    "seeds_overlap": (6, "seeds.1", "is listed twice"),
    "seeds_too_many": (7, "seeds", "must be at most 10000000"),
    "semantics": (6, "p2p.1", "must be 'latency', 'overlapped', 'blocking_send'"),
    "table_option": (1, "schedules.0.chunks", "is not an option", "its options: none"),
    "numbers_in_text": (2, "pp", "must be a whole number", "write [4, 8, 16]"),
    "too_many": (None, "seeds", "must be at most 10000000"),
    "twice": (3, "microbatches.2", "is listed twice"),
    "unknown_key": (6, "wavs", "is not a known key", "the keys are schedules, pp"),
    "unknown_option": (1, "schedules.0.waves", "is not an option", "its options: none"),
    "unknown_schedule": (1, "schedules.1", "is not a known schedule", "gpipe"),
    "unknown_system": (4, "systems.1", "is neither a known name", "dgx_h100"),
    "tagged_list": (4, "text", "has an anchor, an alias or a tag"),
    "unnamed_schedule": (1, "schedules.0.name", "is missing"),
    "useless_slowdown": (8, "noise.0.slowdown", "has no effect: no rank", "straggling: 0.02"),
    "useless_straggling": (9, "noise.1.straggling", "has no effect: slow ranks"),
    "zero": (3, "microbatches.1", "must be greater", "write 1 or a larger number"),
}


def test_every_bad_file_has_its_message():
    """The folder of bad sweeps and the messages here name the same files."""
    assert {path.stem for path in BAD.iterdir()} == set(REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_bad_files_are_refused(name):
    """Each broken file costs one line with file, line, field, value, rule and remedy."""
    where = str(BAD) if name == "broken_file" else None
    require_refused(load_sweep, BAD / f"{name}.yaml", SpecificationError, REFUSED[name], where)


def test_files_are_looked_up_from_the_specification(file, tmp_path, monkeypatch):
    """A system beside the file is found from any folder, and its contents are part of the sweep."""
    (tmp_path / "mine.yaml").write_text((DATA / "systems" / "dgx_h100.yaml").read_text())
    path = file(SHORT.replace("dgx_h100", "mine.yaml"))
    monkeypatch.chdir("/")
    sweep = load_sweep(path)
    assert sweep.systems[0].name == "mine"
    before = sweep.as_dict()
    text = (tmp_path / "mine.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(re.sub(r"(network_latency:\n?\s*\{value: )\S+,", r"\g<1>77,", text))
    assert load_sweep(path).as_dict() != before


def test_the_template_explains_every_key():
    """It is a legal sweep, and each key follows a comment of its own, those among them that are left away."""
    from ppmodel.studies.sweep.specification import _SweepFile

    path = DATA / "templates" / "sweep.yaml"
    load_sweep(path)
    explained = re.findall(r"\n\n# [A-Z](?:.*\n#)*.*\n(?:#\n# )?(\w+):", path.read_text())
    assert explained == list(_SweepFile.model_fields)


GENERATOR = """
from ppmodel.errors import SizeError
from ppmodel.schedules import build
from ppmodel.schedules.registry import Option, schedule
from dataclasses import replace
@schedule("mine", label="mine", title="mine", legal="any", options=[Option.count("odd", 1, "O", "nothing")])
def mine(num_ranks, num_microbatches, odd=1):
    if num_ranks == 5:
        raise SizeError("pp", 5, "must not be five", "choose four")
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
    assert refused[3] == "pp = 5: must not be five; choose four"
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


def test_a_generator_that_ends_its_process_is_one_line(tmp_path, capsys):
    """It ends a process of its own, and nothing is written."""
    (tmp_path / "mine.py").write_text("raise SystemExit(0)\n")
    out, template = tmp_path / "rows.parquet", DATA / "templates" / "sweep.yaml"
    assert run(capsys, template, "--out", out, "--schedule-file", tmp_path / "mine.py")[0] == 2
    assert not out.exists()


def test_workers_run_nothing_from_the_current_folder(file, tmp_path):
    """Modules there that are called like those of Python are not imported."""
    script = tmp_path / "scripts" / "command.py"
    script.parent.mkdir()
    script.write_text("from ppmodel.cli import run\nif __name__ == '__main__':\n    run()\n")
    for name in ("types", "multiprocessing"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('ran what lies in the current folder')\n")
    command = [sys.executable, script, "sweep", file(SHORT), "--out", tmp_path / "r.parquet", "--workers", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_edited_generator_is_another_sweep(own, tmp_path, capsys):
    """Its rows are not those of the file as it was."""
    assert run(capsys, own, "--out", tmp_path / "r.parquet")[0] == 0
    (tmp_path / "mine.py").write_text(GENERATOR + "# edited\n")
    assert "exists already, from another specification" in run(capsys, own, "--out", tmp_path / "r.parquet")[2]


def test_a_sweep_runs_under_a_framework(file):
    """A framework is one name, whose letters are no entries of a list."""
    sweep = load_sweep(file(f"{SHORT}\nframework: nemo\n"))
    assert {system.framework.name for system in sweep.systems} == {"nemo"}


def test_a_sweep_is_another_if_its_rows_would_differ(file):
    """Measured errors give each row its range; sources and titles give rows nothing, of a default framework either."""
    system = (DATA / "systems" / "h100_mlperf.yaml").read_text()
    plain = (DATA / "systems" / "h100.yaml").read_text()

    def record(fitted, unfitted):
        file(fitted, "fitted.yaml")
        file(unfitted, "unfitted.yaml")
        return load_sweep(file(SHORT.replace("dgx_h100", "[fitted.yaml, unfitted.yaml]"))).as_dict()

    before = record(system, plain)
    fastest = load_system("h100_mlperf").framework.fastest
    assert record(system.replace(f"value: {fastest:g},", "value: 0.5,"), plain) != before
    assert record(system, plain.replace("our estimate", "their estimate")) == before
    assert "provenance" not in str(before)


@pytest.mark.parametrize("key", ["systems", "models", "framework", "layouts"])
def test_a_sweep_reads_no_file_of_another_kind(file, tmp_path, key):
    """A name in a sweep is a known one, or that of a .yaml file; what else it names is not even read."""
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    lines = [line for line in SHORT.splitlines() if not line.startswith(key)]
    path = file("\n".join([*lines, f"{key}: {secret}", ""]))
    with refused(SpecificationError, rule="must end in .yaml or .yml", where=str(path)):
        load_sweep(path)


def test_an_empty_framework_is_refused(file):
    """A key without a value, and one with an empty text, say nothing."""
    for value, rule in (("", "must be a valid string"), ("''", "is neither a known name")):
        path = file(f"{SHORT}framework: {value}\n")
        with refused(SpecificationError, "framework", rule, where=str(path)):
            load_sweep(path)
