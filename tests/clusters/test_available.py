"""Which framework has a schedule: every entry is of a registered schedule, sourced, and refused where it is not."""

import numpy as np
import pytest
from ruamel.yaml import YAML

from ppmodel import build, names
from ppmodel.clusters.specs import DATA
from ppmodel.clusters.specs import available as frameworks
from ppmodel.errors import SpecificationError

ENTRY = "  - {{schedule: {}, framework: A, has: {}, kind: stated, source: a file}}\n"


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A folder of data with other entries, read anew."""

    def write(*entries):
        (tmp_path / "available.yaml").write_text("entries:\n" + "".join(ENTRY.format(*one) for one in entries))
        frameworks._file.cache_clear()

    monkeypatch.setattr(frameworks, "DATA", tmp_path)
    yield write
    frameworks._file.cache_clear()


def test_what_was_gained_by_three_is_what_was_reported():
    """Both files have the same numbers."""
    reported = YAML(typ="safe").load(DATA / "reference" / "kept_aside.yaml")["choice"]
    assert frameworks.regrets() == (reported["mean"], reported["three_mean"])


def test_pairs_that_hide_nothing_of_a_dense_model_do_not_run_as_modelled(written):
    """Only a plain yes does; what is missing is in no framework that we know of."""
    written(("1f1b", '"yes"'), ("dualpipev", "experts"), ("dualpipe", "order"), ("stp", "authors"))
    assert [name for name in names() if frameworks.runs_as_modelled(name)] == ["1f1b"]
    assert frameworks.frameworks_of("dualpipev").startswith("A (for expert")
    assert frameworks.frameworks_of("gpipe") == frameworks.NOWHERE


def test_every_framework_says_which_code_it_stands_for():
    """Only `plain` stands for none in particular."""
    profiles = {path.stem for path in (frameworks.DATA / "frameworks").glob("*.yaml")}
    assert {entry.profile for entry in frameworks._file().profiles} == profiles - {"plain"}


def test_without_a_pipeline_only_pairs_tell_schedules_apart():
    """What no framework schedules is still what each runs on one rank, unless its pairs hide something there."""
    run = {name for name in names() if frameworks.runs_as_modelled(name, "megatron", ranks=1)}
    assert set(names()) - run == {"combined-1f1b", "dualpipe", "dualpipev", "stp"}
    for name in set(names()) - run:  # which have cells of two operations, and others have none
        assert np.bincount(build(name, 2, 8).cell).max() > 1
    for name in run - {"hanayo", "v-min"}:
        assert np.bincount(build(name, 4, 8).cell).max() == 1


@pytest.mark.parametrize(("entries", "said"), [([("1f1d", '"yes"')], "schedule"), ([("1f1b", "maybe")], "has")])
def test_a_faulty_entry_is_refused_in_one_line(written, entries, said):
    """With its file, field, value, rule and remedy."""
    written(*entries)
    with pytest.raises(SpecificationError, match=said) as found:
        frameworks._file()
    assert "available.yaml" in str(found.value)
    assert "\n" not in str(found.value)


def test_no_entry_is_given_twice():
    """A framework has a schedule, or has it not."""
    pairs = [(entry.schedule, entry.framework) for entry in frameworks._file().entries]
    assert len(pairs) == len(set(pairs)) > 10
