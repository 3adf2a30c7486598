"""Chimera's re-ordered operations: what is kept as data is played again."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from ppbook.pages.asymmetric import orders
from ppbook.pages.asymmetric.peaks import level_cell
from ppmodel import build
from ppmodel.metrics import peak_activations


def test_every_order_takes_what_the_file_says():
    """By the longest path and by the event queue; all were proven to be the fastest."""
    read, found = pd.read_csv(orders.FILE, dtype=str), orders.orders()
    assert found.proven.all()
    assert found.time.tolist() == [float(Fraction(time)) for time in read.time]
    assert (found.time == found.events).all()
    assert (found.time <= found.table + 1e-9).all()


def test_every_question_is_answered():
    """Each size, transfer and limit for every split, and every order fits its limit."""
    found = orders.orders()
    assert len(found) == found[["pp", "microbatches"]].drop_duplicates().shape[0] * 2 * len(orders.LIMITS) * 5
    assert not found.duplicated(["pp", "microbatches", "split", "comm", "limit"]).any()
    held = found[(found.pp == 4) & (found.microbatches == 8) & (found.limit == orders.LIMITS[0])]
    assert (held.peak <= 4).all()


def test_within_the_memory_of_the_tables_no_split_gains():
    """At S = 4; with as much memory as an order wants some do, and hold more."""
    found = orders.gains().query("pp == 4")
    assert found[found.limit == orders.LIMITS[0]].reordered.max() <= 1e-12
    free = found[found.limit == orders.LIMITS[1]]
    best = free.loc[free.reordered.idxmax()]
    assert best.reordered > 0.05
    assert best.peak > 4


@pytest.mark.parametrize("num_ranks", [4, 6, 8])
@pytest.mark.parametrize("units", [1, 2])
def test_no_split_is_below_the_level_cell(num_ranks, units):
    """On a grid of splits a : b none has a lower peak than the even one, which a cell with a level line proves."""
    schedule = build("chimera", num_ranks, units * num_ranks)
    cell = level_cell(schedule)
    assert (sum(cell.in_flight), sum(cell.in_flight[: num_ranks // 2])) == (num_ranks, num_ranks // 2)
    for front in np.linspace(0.05, 1.95, 39):
        assert peak_activations(schedule, np.repeat([front, 2 - front], num_ranks // 2)).max() >= num_ranks - 1e-9
    assert level_cell(build("gpipe", 2, 3)) is None
