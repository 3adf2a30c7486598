"""A folder to work in."""

import shutil

import pytest

from ppmodel.clusters.specs import DATA


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with a table and a generator of one's own; what is registered is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    for template, copy in (("my_table.csv", "mine.csv"), ("my_schedule.py", "mine.py")):
        shutil.copy(DATA / "templates" / template, copy)
    return tmp_path
