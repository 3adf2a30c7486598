"""Schedules of one's own in files: read, registered, and refused where the mistake is."""

import pickle
import shutil

import pytest
from refusals import refused
from strategies import is_legal

from ppmodel import build, names
from ppmodel.clusters.specs import DATA, template_path
from ppmodel.errors import PPModelError, ScheduleError
from ppmodel.metrics import peak_activations
from ppmodel.schedules import register_file, registry
from ppmodel.schedules.cases import as_cases
from ppmodel.tables import read_table


@pytest.fixture
def generated():
    """Name of the template's generator, registered."""
    return register_file(template_path("my_schedule", ".py"))[0].name


@pytest.fixture
def table():
    return read_table(template_path("my_table", ".csv"))


def test_the_generator_writes_the_table_by_hand(generated, table):
    """At the size of the table the two templates are one schedule, operation for operation."""
    assert build(generated, 4, 8, node=2).rows() == table.rows()


@pytest.mark.parametrize(("stages", "count", "node"), [(8, 32, 4), (8, 3, 2), (6, 6, 4), (2, 2, 1)])
def test_the_generator_lies_between_1f1b_and_eager_1f1b(generated, stages, count, node):
    """On one node it is 1F1B, with a link between any two it is eager 1F1B, else a forward more for each slow link."""
    ours = build(generated, stages, count, node=node)
    assert build(generated, stages, count, node=stages).rows() == build("1f1b", stages, count).rows()
    assert build(generated, stages, count, node=1).rows() == build("eager-1f1b", stages, count).rows()
    assert peak_activations(ours).max() == min(count, stages + (stages - 1) // node)
    assert ours.slots()[1].max() == 3 * (count + stages - 1)


def words(path):
    return [line.split(",") for line in path.read_text().splitlines() if not line.startswith("#")]


def test_the_remedies_mend_the_tables():
    """Each mistake is one change away from the table by hand: the change that its remedy names."""
    good = words(template_path("my_table", ".csv"))
    missing, deadlock, misplaced = (
        words(template_path(name, ".csv")) for name in ("missing_operation", "deadlock", "wrong_rank")
    )
    missing[2].insert(good[2].index("2B3"), "2B3")  # add 2B3 to the row of rank 2
    deadlock[0].remove("0B0")  # reorder the marked cells
    deadlock[0].insert(good[0].index("0B0"), "0B0")
    misplaced[2].remove("3F4")  # move the cell to the row of rank 3
    misplaced[3].insert(good[3].index("3F4"), "3F4")
    assert missing == deadlock == misplaced == good


@pytest.mark.parametrize(
    ("text", "line", "field", "rule"),
    [
        ("def half(:", ":1", "file", "cannot be run (SyntaxError"),
        ("import ppmodel\n\n1 / 0", ":3", "file", "cannot be run (ZeroDivisionError"),
        ("x = 1", "", "file", "registers no schedule"),
        (
            "from ppmodel.schedules.registry import schedule\n\n"
            "@schedule('1f1b', label='', title='', legal='')\ndef mine(s, b): pass",
            ":3",
            "schedule",
            "is also the name",
        ),
    ],
)
def test_a_file_that_registers_nothing_good_is_refused(tmp_path, text, line, field, rule):
    """Broken Python, no schedule, the name of another one: one line, and the registry is as it was."""
    before, path = names(), tmp_path / "mine.py"
    path.write_text(text)
    with refused(ScheduleError, field, rule, where=f"mine.py{line}"):
        register_file(path)
    assert names() == before
    assert registry.get("1f1b").label == "1F1B"


def test_a_file_may_be_registered_again(generated, tmp_path):
    """The file of a schedule that is registered already, changed, moved or copied, takes its place."""
    copy = tmp_path / "my_schedule.py"
    copy.write_text(template_path("my_schedule", ".py").read_text().replace("node-aware 1F1B", "mine"))
    assert [entry.name for entry in register_file(copy)] == [generated]
    assert registry.get(generated).label == "mine"
    with refused(ScheduleError, "schedule", "my_schedule.py", where="my_schedule.py"):
        as_cases([template_path("my_schedule", ".py"), copy])
    assert register_file(shutil.copy(copy, tmp_path / "node_1f1b.py"))[0].name == generated


_NOTED = """from ppmodel.errors import TableError
    error = TableError("mine", num_ranks, "is wrong", "mend it")
    error.add_note("a note")
    raise error"""
GENERATOR_MISTAKES = {
    "a name": (("sum(later", "summ(later"), ":26", "generator", "fails at S = 4, B = 8"),
    "a list": (('return Schedule.from_rows("node-1f1b", rows)', "return rows"),
               ":13", "generator", "returns a value of type list"),
    "a rank": (("rank in range(num_ranks)", "rank in range(num_ranks - 1)"),
                 "", "generator", "returns 3 ranks and 8 microbatches"),
    "an operation": (("backwards[num_microbatches - warm_up :]", "backwards[num_microbatches - warm_up + 1 :]"),
                     ":34", "rank 0", "is missing from the table: at S = 4, B = 8"),
    "its own error": (('return Schedule.from_rows("node-1f1b", rows)', _NOTED), ":37", "mine", "is wrong"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", GENERATOR_MISTAKES)
def test_a_generators_mistake_is_told_where_it_is(tmp_path, mistake):
    """File, line and size in one line, with the grid of a table that is none; whatever the generator raises."""
    (good, bad), line, field, rule = GENERATOR_MISTAKES[mistake]
    path = tmp_path / "mine.py"
    path.write_text(template_path("my_schedule", ".py").read_text().replace(good, bad))
    (entry,) = register_file(path)
    with refused(PPModelError, field, rule, where=f"{path}{line}") as caught:
        build(entry.name, 4, 8)
    assert (">" in str(caught.value.grid)) == (mistake == "an operation")


def test_a_size_that_a_generator_refuses_is_left_out(generated):
    """Its own refusal passes as it is: no page fails because a schedule is not defined at a size."""
    assert [size for size in (1, 4) if is_legal(generated, (size, 8))] == [4]
    with refused(ScheduleError, "pp", "must be at least 2", value="1", remedy="pass pp 2 or more"):
        build(generated, 1, 8)


@pytest.mark.parametrize("text", ["=1+1", "-x", "@x", "a$\\\\frac{$", "\\x1b[31m", "x" * 100])
def test_names_and_labels_of_generators_are_plain_text(tmp_path, text):
    """They stand in pages, figures and files of numbers."""
    template = (DATA / "templates" / "my_schedule.py").read_text()
    path = tmp_path / "mine.py"
    path.write_text(template.replace('label="node-aware 1F1B"', f'label="{text}"'))
    with refused(ScheduleError, "label", "must be a short text without"):
        register_file(path)


BESIDE = """
from ppmodel.ops import OpKind
from ppmodel.schedules.registry import schedule
from ppmodel.schedules.rounds import on_own_ranks
from beside import lead

@schedule("{name}", label="{name}", title="a module beside it says how far forwards run ahead", legal="B >= 1")
def generate(num_ranks, num_microbatches):
    return on_own_ranks("{name}", num_microbatches, (OpKind.F, OpKind.B), ([-lead()] * num_ranks, [0] * num_ranks))
"""


def test_a_module_beside_a_file_is_that_files(tmp_path):
    """Two files with modules of one name each use their own; an edited module counts, and its errors name its line."""
    peaks = {}
    for name, text in (("one", "return 1"), ("two", "return 2"), ("one", "return 3")):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "mine.py").write_text(BESIDE.format(name=name))
        (tmp_path / name / "beside.py").write_text(f"def lead():\n    {text}\n")
        peaks[name, text] = peak_activations(build(tmp_path / name / "mine.py", 1, 8)).max()
        entry = pickle.loads(pickle.dumps(register_file(tmp_path / name / "mine.py")[0]))
        assert [file for file, _ in entry.texts] == ["mine.py", "beside.py"]
    assert list(peaks.values()) == [2, 3, 4]
    (tmp_path / "one" / "beside.py").write_text("def lead():\n    return nonsense\n")
    with refused(field="generator", where=f"{tmp_path}/one/beside.py:2"):
        build(tmp_path / "one" / "mine.py", 1, 8)
