"""All schedules at several levels: none is left out, none is faster than it can be, fronts are fronts."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from refusals import refused
from strategies import is_legal

from ppbook.pages.levels import advantages, agreement, fronts, levels
from ppmodel import build, names
from ppmodel.clusters.costs import model_costs
from ppmodel.clusters.specs import load_model, load_system
from ppmodel.errors import PPModelError
from ppmodel.metrics import idle_ratio
from ppmodel.ops import OpKind
from ppmodel.schedules import get
from ppmodel.simulation import compile_graph, run_graph
from ppmodel.studies.analysis import order_of_amounts, order_of_bubbles, places, reversals

SYSTEMS = ["mid_cp_mid_nw", "mid_cp_slow_nw", "fast_cp_slow_nw"]
SIZES = [(ranks, ranks * multiple) for ranks in (2, 4) for multiple in (1, 2, 4)]
POINT = ["system", "pp", "microbatches"]
NAMES = names()
SCHEDULES = [*(name for name in NAMES if name != "chimera"), "chimera", ("chimera", {"concat": "forward-doubling"})]
CLEAR = 0.01


@pytest.fixture(scope="module")
def grid():
    return levels(SCHEDULES, SIZES, model="paper", system=SYSTEMS)


def at(frame, system, ranks, count, label=None):
    rows = frame[(frame[POINT] == [system, ranks, count]).all(axis=1)]
    return rows if label is None else rows[rows.label == label].iloc[0]


# ---- the frame -----------------------------------------------------------------------------------


def test_every_registered_schedule_is_there_wherever_it_is_legal(grid):
    """A schedule that is added to the registry needs no edit to appear."""
    for size in SIZES:
        here = grid[(grid.pp == size[0]) & (grid.microbatches == size[1])]
        wanted = {get(name).label for name in NAMES if is_legal(name, size)}
        assert set(here.label) - {"Chimera forward-doubling"} == wanted
        assert (here.groupby("label").size() == len(SYSTEMS)).all()


def test_a_row_is_a_simulation(grid):
    """Times and idle shares, with and without a network, are those of single runs."""
    row = at(grid, SYSTEMS[2], 4, 8, "ZB-H1")
    table, system = build("zb-h1", 4, 8), load_system(SYSTEMS[2])
    timeline = run_graph(compile_graph(table), model_costs(table, load_model("paper"), system))
    assert row.makespan_s == timeline.makespan_s
    assert row.idle_ratio == pytest.approx(idle_ratio(timeline), rel=1e-12)


def test_no_time_is_shorter_than_it_can_be(grid):
    """Not below a microbatch's way through all stages and back, nor below the time without a network."""
    model, systems = load_model("paper"), {name: load_system(name) for name in SYSTEMS}
    for row in grid[grid.label != "Chimera forward-doubling"].itertuples():
        schedule = build(row.schedule, row.pp, row.microbatches)
        costs = model_costs(schedule, model, systems[row.system])
        there_and_back = costs.compute_s[OpKind.F].sum() + costs.compute_s[[OpKind.B, OpKind.I]].min(axis=0).sum()
        hops = 2 * (schedule.placement[0, 1:] != schedule.placement[0, :-1]).sum()
        path = there_and_back + hops * (costs.occupancy_s + costs.latency_s).min()
        assert row.makespan_s >= path * (1 - 1e-9)
        assert -1e-9 <= row.idle_without_network <= row.idle_ratio + 1e-9 < 1
        assert row.makespan_s >= row.without_network_s * (1 - 1e-9)


def test_what_does_not_fit_is_left_out():
    """A model with few blocks has no deep schedules; where nothing fits the sizes are refused."""
    given = {"model": replace(load_model("paper"), blocks=4), "system": SYSTEMS[0]}
    assert set(levels(["1f1b", "interleaved-1f1b"], [(4, 4)], **given).label) == {"1F1B"}
    with refused(PPModelError, "sizes", "include no size"):
        levels(["1f1b"], [(8, 8)], **given)


def test_a_single_rank_is_refused():
    """Its pipeline sends nothing, so neither a network nor the length of a transfer can be asked about."""
    with pytest.raises(PPModelError) as caught:
        levels(["gpipe"], [(4, 8), (1, 2)], model="paper", system=SYSTEMS[0])
    assert (caught.value.field, caught.value.value) == ("pp", 1)


def test_only_published_formulas_are_given(grid):
    """A closed form that is derived from the table is none; the zero of ZB-H2 and ZB-V is over a rank's span."""
    derived = [get(name).label for name in NAMES if get(name).bubble_ratio and not get(name).published]
    assert {"V-Half", "V-Min"} <= set(derived)
    assert grid[grid.label.isin(derived)].published_bubble_ratio.isna().all()
    apart = (grid.table_bubble_ratio - grid.published_bubble_ratio).groupby(grid.label).agg(["min", "max"])
    assert abs(apart.loc[["GPipe", "1F1B"]]).to_numpy().max() < 1e-12
    assert (apart["min"][["ZB-H2", "ZB-V"]] > CLEAR).all()
    assert apart["max"]["Chimera"] > CLEAR


# ---- orders --------------------------------------------------------------------------------------


def twin_counts(group):
    """Reversals of a point, pair by pair in plain Python."""
    counts = dict.fromkeys(("pairs", "reversed", "by_network", "clear"), 0)
    for a, b in product(group.itertuples(), repeat=2):
        if a.table_bubble_ratio >= b.table_bubble_ratio - 1e-9:
            continue
        counts["pairs"] += 1
        if a.makespan_s <= b.makespan_s * (1 + 1e-9):
            continue
        counts["reversed"] += 1
        if a.without_network_s > b.without_network_s * (1 + 1e-9):
            continue
        counts["by_network"] += 1
        promised = (1 - a.table_bubble_ratio) / (1 - b.table_bubble_ratio) - 1
        counts["clear"] += promised >= CLEAR and a.makespan_s / b.makespan_s - 1 >= CLEAR
    return counts


def test_reversals_are_those_of_a_plain_count(grid):
    """Counting by arrays, by rows and pair by pair come to the same."""
    ranks, listed = agreement(grid, CLEAR), reversals(grid)
    for row in ranks.itertuples():
        counts = twin_counts(at(grid, row.system, row.pp, row.microbatches))
        assert {name: getattr(row, name) for name in counts} == counts
    assert ranks.reversed.sum() == len(listed)
    assert ranks.by_network.sum() == listed.by_network.sum()
    assert ranks.clear.sum() > 0


def test_places_count_those_ahead(grid):
    """The place by time is 1 more than the number of schedules that are faster."""
    here = at(grid, SYSTEMS[2], 4, 8)
    ahead = [(here.makespan_s < seconds * (1 - 1e-9)).sum() for seconds in here.makespan_s]
    assert (places(order_of_amounts, here.makespan_s) - 1).tolist() == ahead
    assert (np.isnan(places(order_of_bubbles, here.published_bubble_ratio)) == here.published_bubble_ratio.isna()).all()


def test_advantages_are_against_the_base(grid):
    """Promise and outcome of one point by hand; what is negated has the smaller bubble and no shorter time."""
    gains = advantages(grid, "1F1B")
    one, base = (at(grid, SYSTEMS[2], 4, 8, label) for label in ("ZB-V", "1F1B"))
    row = at(gains, SYSTEMS[2], 4, 8, "ZB-V")
    assert row.relative == pytest.approx(one.makespan_s / base.makespan_s - 1)
    assert row.promised == pytest.approx((1 - base.table_bubble_ratio) / (1 - one.table_bubble_ratio) - 1)
    assert (gains.promised[gains.negated] < 0).all()
    assert (gains.relative[gains.negated] >= -1e-9).all()
    assert (gains.without_network[gains.by_network] < 0).all()
    assert (gains.negated & ~gains.by_network).equals(gains.negated & gains.negated_without_network)
    assert gains.by_network.any()


# ---- fronts --------------------------------------------------------------------------------------


def test_nothing_beats_the_front(grid):
    """Every point is on the front or beaten by one that is; on the front none beats another."""
    for _, group in fronts(grid).groupby(["system", "pp"]):
        front = group[group.front]
        for row in group.itertuples():
            time, memory = front.makespan_s / row.makespan_s, front.peak_memory_bytes / row.peak_memory_bytes
            as_good = (time <= 1 + 1e-9) & (memory <= 1 + 1e-9)
            better = (time < 1 - 1e-9) | (memory < 1 - 1e-9)
            assert (as_good & better).any() == (not row.front)
        assert front.behind.tolist() == pytest.approx([0] * len(front), abs=1e-9)
        assert (group.behind >= -1e-9).all()
