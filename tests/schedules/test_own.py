"""A schedule of one's own: its mistakes are shown where they are, and its idea pays on the network it was made for."""

import pytest
from refusals import refused

from ppmodel import compare, read_table
from ppmodel.clusters.specs import template_path
from ppmodel.errors import PPModelError
from ppmodel.schedules import build
from ppmodel.simulation import compile_graph, run_graph, uniform_costs

MISTAKES = {
    "missing_operation": ("2B3 is missing from the table", [(2, "2F3")]),
    "deadlock": ("0B0 waits for 1B0", [(0, "0B0"), (1, "1F3")]),
    "wrong_rank": ("3F4 is misplaced", [(2, "3F4")]),
}


@pytest.fixture
def table():
    return read_table(template_path("my_table", ".csv"))


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_marked_where_it_is(name):
    """The error names file, rank and operation, and marks the cells in question."""
    short, cells = MISTAKES[name]
    path = template_path(name, ".csv")
    with pytest.raises(PPModelError) as caught:
        read_table(path)
    error = caught.value
    assert f"{error.value} {error.rule}" == short
    assert str(error).startswith(f"{path}: rank {cells[0][0]} = ")
    assert [(rank, error.grid.rows[rank][place]) for rank, place in sorted(error.grid.marks)] == cells
    assert all(f">{operation}<" in str(error.grid) for _, operation in cells)


def test_a_cell_that_is_no_operation_has_no_grid(tmp_path):
    """What cannot be drawn is said in its line alone, with file and line."""
    (tmp_path / "mine.csv").write_text("0F0,0G0")
    with refused(PPModelError, "column 2", "is not an operation") as caught:
        read_table(tmp_path / "mine.csv")
    assert caught.value.grid is None


def test_the_idea_of_the_template_pays_on_nodes(table):
    """On nodes of two it saves most of what eager 1F1B saves, for a third of the activations, at 1F1B's bubble."""
    tables = {"low": build("1f1b", 4, 8), "own": table, "high": build("eager-1f1b", 4, 8)}
    low, own, high = (
        run_graph(compile_graph(one), uniform_costs(one, 1, 2, comm=1.0, nodes=[0, 0, 1, 1], node_comm=0.1)).makespan_s
        for one in tables.values()
    )
    assert (low - own) / (low - high) > 0.8
    frame = compare(list(tables.values()), forward=1, backward=2)
    assert frame.peak_activations.tolist() == [4, 5, 7]
    assert frame.table_bubble_ratio.nunique() == 1
