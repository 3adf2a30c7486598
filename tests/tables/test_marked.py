"""The grid of an error: every cell that it shows is one of the table, the marked ones above all."""

import re

from hypothesis import given
from hypothesis import strategies as st

from ppmodel.tables.marked import MarkedTable


@st.composite
def grids(draw):
    """Rows of any lengths, some tall or long, and marks in them."""
    lengths = draw(st.lists(st.integers(0, 60), min_size=1, max_size=60))
    rows = [[f"{rank}F{place}&0B1@1" for place in range(length)] for rank, length in enumerate(lengths)]
    cells = [(rank, place) for rank, length in enumerate(lengths) for place in range(length)]
    return MarkedTable(rows, draw(st.sets(st.sampled_from(cells), max_size=4)) if cells else set())


def written(line):
    """The rank and the cells of a line, as text."""
    rank, _, cells = line.partition("|")
    return int(rank.removeprefix("rank")), re.findall(r"[^\s.]+", cells)


@given(grid=grids())
def test_the_text_is_the_window(grid):
    """Each line holds the cells of one rank's row from the first place that is shown on, the marked ones marked."""
    assert ("|..." in str(grid)) == (grid.places.start > 0)
    lines = [line for line in str(grid).splitlines() if line != "..."]
    assert [written(line)[0] for line in lines] == list(grid.ranks)
    for rank, cells in map(written, lines):
        places = [place for place in grid.places if place < len(grid.rows[rank])]
        texts = [f">{grid.rows[rank][place]}<" if (rank, place) in grid.marks else grid.rows[rank][place]
                 for place in places]  # fmt: skip
        assert [cell for text in cells for cell in text.replace("<>", "< >").split()] == texts


@given(grid=grids())
def test_the_first_mark_is_shown(grid):
    """The window holds the uppermost and the leftmost mark, and is no larger than a screen."""
    assert len(grid.ranks) <= 24
    assert len(grid.places) <= 48
    if grid.marks:
        assert min(rank for rank, _ in grid.marks) in grid.ranks
        assert min(place for _, place in grid.marks) in grid.places


def test_large_grids_are_cut_around_the_mark():
    """A long row shows the neighbourhood of the marked cell, a tall table that of the marked row."""
    text = str(MarkedTable([[f"0F{m}" for m in range(500)]], {(0, 250)}))
    assert ">0F250<" in text
    assert len(text) < 400
    tall = str(MarkedTable([[f"{d}F0"] for d in range(3000)], {(1500, 0)}))
    assert ">1500F0<" in tall
    assert len(tall.splitlines()) < 30
