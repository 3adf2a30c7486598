"""What a notebook may be given: names, types, units and values are checked before a kernel starts."""

from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from ppmodel.artefact.parameters import KNOWN, check, defaults, fitting, parse, substitutes
from ppmodel.errors import PPModelError
from ppmodel.specs import load_model

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
OWN = {
    "stages": 8, "microbatches": [8, 16], "schedules": ["gpipe"], "splits": [[1, 2]], "factors": [1.0],
    "system": "dgx_h100", "models": ["paper"], "p2p": "overlapped", "memory_limit": "", "results": "results",
    "deep": True, "node_systems": ["a2_highgpu_8g"], "jitters": [0.1], "slowdown": 1.3,
}  # fmt: skip


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_parameter_is_known_and_every_default_is_legal(path):
    """A notebook of the project has no parameter without a rule, and its own values keep to the rules."""
    own = defaults(nbformat.read(path, as_version=4))
    assert set(own) <= set(KNOWN)
    check(own, own)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("stages", "16", 16),
        ("stages", "07", 7),
        ("microbatches", "[4, 8]", [4, 8]),
        ("factors", "[1e-3, 2]", [0.001, 2]),
        ("schedules", "[gpipe, [chimera, {concat: direct}], [hanayo, {waves: 2}]]", None),
        ("schedules", "[[asymmetric-chimera, {split: [1, 2]}]]", None),
        ("splits", "[[1, 3]]", [[1, 3]]),
        ("p2p", "blocking", "blocking"),
        ("memory_limit", "1.5 TiB", "1.5 TiB"),
        ("memory_limit", "", ""),
        ("results", "07", "07"),
        ("deep", "false", False),
    ],
)
def test_texts_become_values(name, text, value):
    """YAML 1.2 for numbers, flags and lists; a text stays as it is written."""
    given = parse([(name, text)], OWN)
    check(given, OWN)
    assert value is None or (given[name] == value and type(given[name]) is type(value))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("stage", "8", "is not a parameter of this notebook; did you mean stages"),
        ("jitters", "[0.1, 6]", "above 0 and at most 5"),
        ("slowdown", "1e7", "above 1 and at most 1000000"),
        ("stages", "eight", "must be a whole number"),
        ("stages", "8.0", "must be a whole number"),
        ("stages", "true", "stages = true: must be a whole number"),
        ("stages", "0", "must be a whole number of at least 1"),
        ("stages", "[8]", "must be a whole number"),
        ("microbatches", "8", "must be a list, each of it a whole number"),
        ("microbatches", "[]", "must be a list"),
        ("microbatches", "[8, -1]", "microbatches = -1: must be a whole number"),
        ("microbatches", "[8", "cannot be read as YAML"),
        ("schedules", "[gpip]", "schedules = gpip: is not a known schedule; did you mean gpipe"),
        ("schedules", "[[chimera, {concat: up}]]", "chimera.concat = up: must be one of"),
        ("schedules", "[[hanayo, {waves: '2'}]]", "hanayo.waves = 2: must be"),
        ("schedules", "[[gpipe, {waves: 2}]]", "gpipe.waves = 2: is not an option of gpipe"),
        ("schedules", "[8]", "must be the name of a schedule"),
        ("splits", "[[1, 2, 3]]", "must be two whole numbers"),
        ("factors", "[0]", "must be a number above 0"),
        ("factors", "[.nan]", "must be a number above 0"),
        (
            "node_systems",
            "[dgx_h100]",
            "node_systems = dgx_h100: must be the name or the file of a system that has nodes",
        ),
        ("system", "dgx_h10", "system = dgx_h10: .* did you mean dgx_h100"),
        ("models", "[papers]", "models = papers: .* did you mean paper"),
        ("p2p", "mail", "must be one of latency"),
        ("memory_limit", "80", "units B, GB, GiB, TiB"),
        ("memory_limit", "80 GB/s", "memory_limit = 80 GB/s: must be a number above 0 and one of the units"),
        ("memory_limit", "-1 GiB", "must be a number above 0"),
        ("results", "../elsewhere", "must be a folder below the current one"),
        ("results", "/tmp", "must be a folder below the current one"),
        ("deep", "1", "must be of the type bool"),
    ],
)
def test_wrong_values_are_refused(name, text, said):
    """A misspelt name, a wrong type, a missing or wrong unit, an illegal value: one line that names it."""
    with pytest.raises(PPModelError, match=said) as caught:
        check(parse([(name, text)], OWN), OWN)
    assert "\n" not in str(caught.value)


def test_a_parameter_is_given_once():
    """Two values for one name are refused."""
    with pytest.raises(PPModelError, match="is given twice"):
        parse([("stages", "4"), ("stages", "8")], OWN)


def test_an_error_in_a_file_names_its_line():
    """A broken system file is refused with file and line, as everywhere."""
    path = Path(__file__).parent / "bad" / "systems" / "negative.yaml"
    with pytest.raises(PPModelError) as caught:
        check({"system": str(path)}, OWN)
    assert str(caught.value).startswith(f"{path}:")


@pytest.mark.parametrize("source", ["stages = range(4)", "for stages in 4: pass", "stages =", "import os"])
def test_a_parameters_cell_holds_plain_values(source):
    """What cannot be read without running it is refused."""
    cell = new_code_cell(source, metadata={"tags": ["parameters"]})
    with pytest.raises(PPModelError, match="names with plain values"):
        defaults(new_notebook(cells=[cell]))
    with pytest.raises(PPModelError, match="is tagged 'parameters'"):
        defaults(new_notebook(cells=[new_code_cell(source)]))


def test_a_users_system_takes_its_place():
    """A given system replaces `system` and stands in front of `systems`, where the notebook has them; so do models."""
    own = {"system": "a", "systems": ["x", "a"], "models": ["x"], "stages": 8}
    assert substitutes({"system": "a", "model": "b", "memory_limit": "8 GiB"}, own) == {
        "system": "a", "systems": ["a", "x"], "models": ["b", "x"],
    }  # fmt: skip
    assert substitutes({"system": None, "model": None, "memory_limit": None}, own) == {}


def test_a_users_system_is_pictured():
    """It leads the pictures, and is the one other system of a page without a system; where it has one, that stays."""
    own = {"systems": ["x"], "picture_systems": ["x"], "other_system": "y"}
    assert substitutes({"system": "a"}, own) == {
        "systems": ["a", "x"], "picture_systems": ["a", "x"], "other_system": "a",
    }  # fmt: skip
    assert substitutes({"system": "a"}, {"system": "b", "other_system": "y"}) == {"system": "a"}
    assert substitutes({"model": "m"}, own) == {}


def test_a_users_nodes_take_their_place():
    """A system with nodes stands in front of those of the page about nodes; one without leaves them as they are."""
    own = {"node_systems": ["slow_between_nodes", "a2_highgpu_8g"]}
    assert substitutes({"system": "a2_highgpu_8g"}, own) == {"node_systems": ["a2_highgpu_8g", "slow_between_nodes"]}
    assert substitutes({"system": "dgx_h100"}, own) == substitutes({"system": None}, own) == {}


def test_sizes_that_a_model_does_not_have_are_left_out():
    """Only B that divide the batch, only waves for which there are blocks; if nothing is left, one line says so."""
    small = replace(load_model("paper"), global_batch=48, blocks=32)
    own = {"microbatches": [8, 16, 32], "waves": [1, 2, 4], "waves_of_paper": 4, "stages": 8}
    assert fitting(own, small) == {"microbatches": [8, 16], "waves": [1, 2], "waves_of_paper": 2}
    assert fitting({"microbatches": 16}, small) == {}
    assert fitting({"microbatches": 64}, small) == {"microbatches": 48}
    assert fitting({"microbatches": 64, "models": ["paper"]}, small) == {"microbatches": 16}
    with pytest.raises(PPModelError, match=r"global_batch = 48: is divided by none of microbatches = \[64\]; take"):
        fitting({"microbatches": [64]}, small)
    with pytest.raises(PPModelError, match="blocks = 8: is too few for waves = "):
        fitting(own, replace(small, blocks=8))
