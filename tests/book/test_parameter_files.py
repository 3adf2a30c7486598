"""Parameters of notebooks that name files: checked and copied before a notebook runs."""

import shutil
from pathlib import Path

import pytest

from ppbook.parameters import KINDS, Parameter, check
from ppbook.parameters.files import bring
from ppmodel.clusters.specs import DATA, template_path
from ppmodel.errors import PPModelError

OWN = {
    "table": Parameter("my_table", "table", KINDS["table"], False),
    "mistakes": Parameter(["deadlock"], "table-file", KINDS["table-file"], True),
    "generator": Parameter("my_schedule", "generator", KINDS["generator"], False),
    "forward": Parameter(1.0, "seconds", KINDS["seconds"], False),
    "comm": Parameter(1.0, "delay", KINDS["delay"], False),
}


def test_parameters_name_a_template_or_a_file(tmp_path, monkeypatch):
    """A name of the project, a file that is copied to where the notebook runs, or one line that says what is wrong."""
    monkeypatch.chdir(tmp_path)
    for template, copy in (("my_table.csv", "mine.csv"), ("mistakes/deadlock.csv", "slip.csv"),
                           ("my_schedule.py", "mine.py")):  # fmt: skip
        shutil.copy(DATA / "templates" / template, copy)
    given = {"table": "mine.csv", "mistakes": ["slip.csv", "deadlock"], "generator": "mine.py"}
    check(given, OWN)
    (tmp_path / "work").mkdir()
    brought = bring(given, OWN, tmp_path / "work")
    assert brought["mistakes"][1] == "deadlock"
    for name in (brought["table"], brought["mistakes"][0], brought["generator"]):
        assert (tmp_path / "work" / name).read_bytes() == (tmp_path / Path(name).name).read_bytes()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("table", "slip.csv", "slip.csv: rank 0 = 0B0: waits for 1B0"),
        ("generator", "nowhere", "generator = nowhere: is neither a known name nor a path to a .py file"),
        ("table", "my_tabel", "table = my_tabel: .*did you mean my_table"),
        ("table", 4, "table = 4: must be the name or file of a table"),
        ("mistakes", ["nowhere.csv"], "mistakes = nowhere.csv: is not a file; check the path"),
        ("generator", "slip.csv", "generator = slip.csv: must end in .py"),
        ("generator", "nowhere.py", "generator = nowhere.py: is not a file; check the path"),
        ("forward", 0, "must be a number of seconds above 0"),
        ("comm", -1, "must be a number of seconds, 0 or more"),
    ],
)
def test_wrong_files_are_refused_before_a_notebook_runs(tmp_path, monkeypatch, name, value, said):
    """A table that is no schedule, a file that is not there, a generator that is not Python."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(template_path("deadlock", ".csv"), "slip.csv")
    with pytest.raises(PPModelError, match=said) as caught:
        check({name: value}, OWN)
    assert "\n" not in str(caught.value)
