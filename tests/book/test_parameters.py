"""What a notebook may be given: names, types, units and values are checked before a kernel starts."""

from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from ppbook.parameters import check, declared, fitting, parse, substitutes
from ppmodel.clusters.specs import load_model
from ppmodel.errors import PPModelError

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
CELL = """
pp = 8  # count: ranks
microbatches = [8,
                16]  # microbatches: of an iteration
schedules = ["gpipe"]  # schedule: compared
base = ["chimera", {"concat": "direct"}]  # schedule: one, with an option
splits = [[1, 2]]  # split: front and back
factors = [1.0]  # factor: on the bandwidth
system = "dgx_h100"  # system: where it runs
models = ["paper"]  # model: what runs
p2p = "overlapped"  # p2p: what a transfer occupies
memory_limit = ""  # size: of memory to use
results = "results"  # folder: of what is recorded
node_systems = ["a2_highgpu_8g"]  # node-system: with shared NICs
shares = [0.1]  # share: of each operation
more = []  # schedule: none, unless some are named
deep = True  # without a kind
"""


def own_of(source):
    return declared(new_notebook(cells=[new_code_cell(source, metadata={"tags": ["parameters"]})]))


OWN = own_of(CELL)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_parameter_has_a_kind_and_every_default_is_legal(path):
    """A notebook of the project says the kind of each parameter, and its own values keep to it."""
    own = declared(nbformat.read(path, as_version=4))
    assert [name for name, one in own.items() if not one.word] == []
    check({name: one.value for name, one in own.items()}, own)


def test_a_cell_says_the_kind_of_each_value():
    """A comment on the last line of a value; a list is a list of that kind, unless it is one such value itself."""
    assert [name for name, one in OWN.items() if one.several] == [
        "microbatches", "schedules", "splits", "factors", "models", "node_systems", "shares", "more",
    ]  # fmt: skip
    assert OWN["microbatches"].value == [8, 16]
    assert (OWN["microbatches"].word, OWN["base"].word, OWN["deep"].word) == ("microbatches", "schedule", "")


def test_an_unknown_kind_is_refused():
    """With the nearest one."""
    with pytest.raises(PPModelError, match=r"pp = # cuont: ...: is not a kind of parameter; did you mean count\?"):
        own_of("pp = 8  # cuont: ranks")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("pp", "16", 16),
        ("pp", "07", 7),
        ("microbatches", "[4, 8]", [4, 8]),
        ("factors", "[1e-3, 2]", [0.001, 2]),
        ("schedules", "[gpipe, [chimera, {concat: direct}], [hanayo, {waves: 2}]]", None),
        ("schedules", "[[asymmetric-chimera, {split: [1, 2]}], [asymmetric-chimera, {split: 1:3}]]", None),
        ("splits", "[[1, 3]]", [[1, 3]]),
        ("splits", str([[1, back] for back in range(1, 300)]), [[1, back] for back in range(1, 300)]),
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
        ("ppp", "8", "is not a parameter here; did you mean pp"),
        ("shares", "[0.1, 6]", "from 0 to 1"),
        ("pp", "eight", "must be a whole number"),
        ("pp", "8.0", "must be a whole number"),
        ("pp", "true", "pp = true: must be a whole number"),
        ("pp", "0", "must be a whole number of at least 1"),
        ("pp", "[8]", "must be a whole number"),
        ("microbatches", "8", "must be a list, with each entry a whole number"),
        ("microbatches", "[]", "must not be empty"),
        ("pp", "1_0", "write a decimal number"),
        ("microbatches", "[8, 0x10]", "write a decimal number"),
        ("microbatches", "[8, -1]", "microbatches = -1: must be a whole number"),
        ("microbatches", "[8", "cannot be read as YAML"),
        ("microbatches", "&a [*a]", "cannot be read as YAML"),
        ("base", "[chimera, {concat: up}]", "chimera.concat = up: must be one of"),
        ("schedules", "[gpip]", "schedules = gpip: is not a known schedule; did you mean gpipe"),
        ("schedules", "[[chimera, {concat: up}]]", "chimera.concat = up: must be one of"),
        ("schedules", "[[hanayo, {waves: '2.5'}]]", "hanayo.waves = 2.5: must be"),
        ("schedules", "[[gpipe, {waves: 2}]]", "gpipe.waves = 2: is not an option of gpipe"),
        ("schedules", "[8]", "must be the name of a schedule"),
        ("splits", "[[1, 2, 3]]", "must be two whole numbers"),
        ("factors", "[0]", "must be a number above 0"),
        ("factors", "[.nan]", "must be a number above 0"),
        ("node_systems", "[dgx_h100]", "node_systems = dgx_h100: must be the name or file of a system with nodes"),
        ("system", "dgx_h10", "system = dgx_h10: .* did you mean dgx_h100"),
        ("models", "[papers]", "models = papers: .* did you mean paper"),
        ("p2p", "mail", "must be one of latency"),
        ("memory_limit", "80", "units B, GB, GiB, TiB"),
        ("memory_limit", "80 GB/s", "memory_limit = 80 GB/s: must be a number above 0, followed by one of the units"),
        ("memory_limit", "-1 GiB", "must be a number above 0"),
        ("results", "../elsewhere", "must be a folder below the current one"),
        ("results", "/tmp", "must be a folder below the current one"),
        ("deep", "1", "must have the type bool"),
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
        parse([("pp", "4"), ("pp", "8")], OWN)


def test_an_error_in_a_file_names_its_line():
    """A broken system file is refused with file and line, as everywhere."""
    path = Path(__file__).parents[1] / "bad" / "systems" / "negative.yaml"
    with pytest.raises(PPModelError) as caught:
        check({"system": str(path)}, OWN)
    assert str(caught.value).startswith(f"{path}:")


@pytest.mark.parametrize("source", ["pp = range(4)", "for pp in 4: pass", "pp =", "import os", "pp = (", "pp = '", "0"])
def test_a_parameters_cell_holds_plain_values(source):
    """What cannot be read without running it is refused."""
    with pytest.raises(PPModelError, match="names with plain values"):
        own_of(source)
    with pytest.raises(PPModelError, match="is tagged 'parameters'"):
        declared(new_notebook(cells=[new_code_cell(source)]))


def test_lists_that_belong_together_are_equally_long():
    """``for each of`` in a comment names the other list; such lists may name an entry twice, others may not."""
    own = own_of(
        'models = ["paper"]  # model: run\ngpus = [8]  # count: for each of models\npp = [4]  # count from 2: ranks'
    )
    check({"models": ["paper", "paper"], "gpus": [8, 8]}, own)
    for values, field in (
        ({"gpus": [8, 16]}, "gpus"),
        ({"models": ["paper"] * 3}, "gpus"),
        ({"pp": [4, 4]}, "pp"),
        ({"pp": [1]}, "pp"),
    ):
        with pytest.raises(PPModelError) as refused:
            check(values, own)
        assert refused.value.field == field


def test_a_users_system_takes_its_place():
    """It replaces the first single system and stands in front of every list of them; so does a model."""
    own = own_of("""
system = "mi300x"  # system: shown
other_system = "dgx_a100"  # system: beside it
systems = ["mi300x", "dgx_h100"]  # system: compared
picture_systems = ["mi300x"]  # system: pictured
models = ["gpt3_175b"]  # model: compared
paper_model = "paper"  # paper-model: of the claims
memory_limit = ""  # size: of memory to use
pp = 8  # count: ranks
""")
    assert substitutes({"system": "dgx_h100", "model": "llama3_70b", "memory_limit": "8 GiB"}, own) == {
        "system": "dgx_h100", "systems": ["dgx_h100", "mi300x"], "picture_systems": ["dgx_h100", "mi300x"],
        "models": ["llama3_70b", "gpt3_175b"], "memory_limit": "8 GiB",
    }  # fmt: skip
    assert substitutes({"system": None, "model": None, "memory_limit": None}, own) == {}
    without = {name: one for name, one in own.items() if name != "system"}
    assert substitutes({"system": "dgx_h100"}, without)["other_system"] == "dgx_h100"


def test_a_users_nodes_take_their_place():
    """A system with nodes stands in front of those of the page about nodes; one without leaves them as they are."""
    own = own_of('node_systems = ["slow_between_nodes", "a2_highgpu_8g"]  # node-system: compared')
    assert substitutes({"system": "a2_highgpu_8g"}, own) == {"node_systems": ["a2_highgpu_8g", "slow_between_nodes"]}
    assert substitutes({"system": "dgx_h100"}, own) == substitutes({"system": None}, own) == {}


def test_sizes_that_a_model_does_not_have_are_left_out():
    """Only B that divide the batch, only waves for which there are blocks; if nothing is left, one line says so."""
    small = replace(load_model("paper"), global_batch=48, blocks=32)
    own = own_of("""
microbatches = [8, 16, 32]  # microbatches: of an iteration
waves = [1, 2, 4]  # waves: compared
waves_of_paper = 4  # waves: of its table
pp = 8  # count: ranks
""")
    single = own_of("microbatches = 64  # microbatches: of an iteration")
    assert fitting(own, small) == {"microbatches": [8, 16], "waves": [1, 2], "waves_of_paper": 2}
    assert fitting(own_of("microbatches = 16  # microbatches: of an iteration"), small) == {}
    assert fitting(single, small) == {"microbatches": 48}
    assert fitting(single | own_of('models = ["paper"]  # model: beside it'), small) == {"microbatches": 16}
    with pytest.raises(PPModelError, match=r"global_batch = 48: is divided by none of microbatches = \[64\]; use"):
        fitting(own_of("microbatches = [64]  # microbatches: of an iteration"), small)
    with pytest.raises(PPModelError, match=r"blocks = 8: must be at least 16 for waves = \[1, 2, 4\]"):
        fitting(own, replace(small, blocks=8))


def test_a_text_may_be_empty_where_the_notebooks_own_is():
    """An optional file or name: left out it stays empty, and what is given is checked."""
    cell = 'table = "my_table"  # table: a file\ngenerator = ""  # generator: in place of it\nresults = "results"'
    own = own_of(cell)
    check({"generator": ""}, own)
    check({"generator": "my_schedule"}, own)
    for name, value in (("table", ""), ("generator", "nowhere")):
        with pytest.raises(PPModelError, match=f"^{name} = {value}"):
            check({name: value}, own)
