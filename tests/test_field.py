"""All schedules, asked the paper's questions: none is left out, none is faster than it can be, fronts are fronts."""

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from strategies import is_legal

from ppmodel import build, names, studies
from ppmodel.costs import model_costs, uniform_costs
from ppmodel.simulation import run_graph
from ppmodel.errors import PPModelError
from ppmodel.simulation import compile_graph
from ppmodel.metrics import idle_ratio
from ppmodel.ops import OpKind
from ppmodel.schedules import get
from ppmodel.specs import load_model, load_system
from ppmodel.studies.cases import FAMILIES, family
from ppmodel.studies.orders import (
    every_two,
    kendall_tau,
    negated,
    order_of_amounts,
    order_of_bubbles,
    pareto_front,
    reversed_pairs,
)
from ppmodel.studies.times import UNCHANGED, Change, times

SYSTEMS = ("mid_cp_mid_nw", "mid_cp_slow_nw", "fast_cp_slow_nw")
STAGES, MULTIPLES = (2, 4), (1, 2, 4)
KEYS = ["system", "stages", "microbatches"]
CLEAR, CLOSE, SHORT = 0.01, 0.05, 0.1


@pytest.fixture(scope="module")
def model():
    return load_model("paper")


@pytest.fixture(scope="module")
def systems():
    return [load_system(name) for name in SYSTEMS]


@pytest.fixture(scope="module")
def cases():
    return studies.field_cases(["chimera", ("chimera", {"concat": "forward-doubling"})])


@pytest.fixture(scope="module")
def study(model, systems, cases):
    return studies.field_study(model, systems, STAGES, MULTIPLES, cases)


# ---- the study -----------------------------------------------------------------------------------


def test_every_registered_schedule_is_there_wherever_it_is_legal(study):
    """A schedule that is added to the registry needs no edit here to appear."""
    for num_ranks, multiple in product(STAGES, MULTIPLES):
        here = study[(study.stages == num_ranks) & (study.microbatches == multiple * num_ranks)]
        wanted = {get(name).label for name in names() if is_legal(name, (num_ranks, multiple * num_ranks))}
        assert set(here.schedule) - {"Chimera forward-doubling"} == wanted
        assert (here.groupby("schedule").size() == len(SYSTEMS)).all()


def test_a_row_is_a_simulation(study, model, systems):
    """Times, idle time and bytes are those of a single run."""
    row = study[(study.schedule == "ZB-H1") & (study.system == SYSTEMS[2]) & (study.microbatches == 8)].iloc[0]
    schedule = build("zb-h1", int(row.stages), 8)
    timeline = run_graph(compile_graph(schedule), model_costs(schedule, model, systems[2]))
    assert row.t_sim_s == timeline.makespan_s
    assert row.idle_ratio == pytest.approx(idle_ratio(timeline), rel=1e-12)


def test_no_time_is_shorter_than_it_can_be(study, model, systems):
    """Not below a microbatch's way through all stages and back, nor below the computing time, nor below silence."""
    for row in study[study.schedule != "Chimera forward-doubling"].itertuples():
        name = next(name for name in names() if get(name).label == row.schedule)
        schedule = build(name, row.stages, row.microbatches)
        costs = model_costs(schedule, model, systems[SYSTEMS.index(row.system)])
        there_and_back = costs.compute_s[OpKind.F].sum() + costs.compute_s[[OpKind.B, OpKind.I]].min(axis=0).sum()
        hops = 2 * (schedule.placement[0, 1:] != schedule.placement[0, :-1]).sum()
        path = there_and_back + hops * (costs.occupancy_s + costs.latency_s).min()
        assert row.t_sim_s >= path * (1 - 1e-9)
        assert -1e-9 <= row.idle_without_network <= row.idle_ratio + 1e-9 < 1
        assert row.t_sim_s >= row.t_without_network_s * (1 - 1e-9)


def test_families_are_told_by_structure():
    """Two directions, several stages in a zigzag or in laps, halves of a backward, or none of these."""
    known = {
        "1f1b": 0,
        "zb-h1": 1,
        "zb-1p": 1,
        "interleaved-1f1b": 2,
        "looped-bfs": 2,
        "hanayo": 3,
        "zb-v": 3,
        "dualpipe": 4,
    }
    assert {name: family(build(name, 4, 4 * (1 + (name != "hanayo")))) for name in known} == {
        name: FAMILIES[place] for name, place in known.items()
    }


def test_what_does_not_fit_is_left_out(model, systems):
    """A model with few blocks has no deep schedules; where nothing fits the sizes are refused."""
    small = replace(model, blocks=4)
    found = studies.field_study(small, systems[:1], [4], [1], ["1f1b", "interleaved-1f1b"])
    assert set(found.schedule) == {"1F1B"}
    with pytest.raises(PPModelError, match="leave no size"):
        studies.field_study(small, systems[:1], [8], [1], ["1f1b"])


def test_a_single_rank_is_refused(model, systems):
    """Its pipeline sends nothing, so that neither a network nor the length of a transfer can be asked of it."""
    with pytest.raises(PPModelError) as caught:
        studies.field_study(model, systems, [4, 1], [2], ["gpipe"])
    assert (caught.value.field, caught.value.value) == ("stages", [4, 1])


def test_searched_schedules_may_be_capped(model, systems):
    """Above a size, orders that are searched operation by operation are left out, and no others."""
    cases = ["1f1b", "hanayo"]
    found = [studies.field_study(model, systems[:1], [4], [1], cases, largest_searched=most) for most in (15, 16)]
    assert [set(one.schedule) for one in found] == [{"1F1B"}, {"1F1B", "Hanayo"}]


# ---- orders --------------------------------------------------------------------------------------


def twin_counts(group, clear):
    """Reversals of a point, pair by pair in plain Python."""
    counts = dict.fromkeys(("pairs", "reversed", "by_network", "clear"), 0)
    for a, b in product(group.itertuples(), repeat=2):
        if a.table_bubble_ratio >= b.table_bubble_ratio - 1e-9:
            continue
        counts["pairs"] += 1
        if a.t_sim_s <= b.t_sim_s * (1 + 1e-9):
            continue
        counts["reversed"] += 1
        if a.t_without_network_s > b.t_without_network_s * (1 + 1e-9):
            continue
        counts["by_network"] += 1
        promised = (1 - a.table_bubble_ratio) / (1 - b.table_bubble_ratio) - 1
        counts["clear"] += promised >= clear and a.t_sim_s / b.t_sim_s - 1 >= clear
    return counts


def test_reversals_are_those_of_a_plain_count(study):
    """Counting by arrays, by rows and pair by pair come to the same."""
    ranks, listed = studies.level_rank_study(study, CLEAR), studies.clear_reversals(study, CLEAR)
    for row in ranks.itertuples():
        group = study[(study[KEYS] == [row.system, row.stages, row.microbatches]).all(axis=1)]
        counts = twin_counts(group, CLEAR)
        assert {name: getattr(row, name) for name in counts} == counts
    assert ranks.reversed.sum() == len(listed)
    assert ranks.by_network.sum() == listed.by_network.sum()
    assert ranks.clear.sum() == listed.clear.sum() > 0
    assert studies.reversal_matrix(study, listed).reversals.sum() == listed.clear.sum()
    assert studies.totals_by_system(ranks).clear.sum() == listed.clear.sum()


def test_kendall_is_concordant_less_discordant_pairs():
    """Tau-b against a count of pairs, with ties on both sides."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        first, second = rng.integers(1, 6, size=(2, 7)) / 8
        signs = [
            (np.sign(first[a] - first[b]), np.sign(second[a] - second[b])) for a in range(7) for b in range(a + 1, 7)
        ]
        ordered = [sum(sign[side] != 0 for sign in signs) for side in (0, 1)]
        expected = sum(a * b for a, b in signs) / np.sqrt(ordered[0] * ordered[1])
        found = kendall_tau(every_two(order_of_bubbles, first), every_two(order_of_amounts, second))
        assert found == pytest.approx(expected)
    assert np.isnan(kendall_tau(np.zeros((2, 2)), np.zeros((2, 2))))


def test_rounding_is_no_order():
    """Neither bubbles nor times that differ by a billionth are reversed; missing bubbles are no order at all."""
    assert not reversed_pairs([0.1, 0.1 + 1e-12], [2.0, 1.0]).any()
    assert not reversed_pairs([0.1, 0.2], [1.0 + 1e-12, 1.0]).any()
    assert not reversed_pairs([np.nan, 0.2], [2.0, 1.0]).any()
    assert reversed_pairs([0.1, 0.2], [2.0, 1.0]).tolist() == [[False, True], [False, False]]
    assert not reversed_pairs([0.1, 0.2], [2.0, 1.0], without_network=[2.0, 1.0]).any()


def test_places_count_those_ahead(study):
    """The place by time on a system is 1 more than the number of schedules that are faster there."""
    table = studies.level_rank_table(study, 4, 8).set_index("schedule")
    here = study[(study.stages == 4) & (study.microbatches == 8) & (study.system == SYSTEMS[2])].set_index("schedule")
    for name, seconds in here.t_sim_s.items():
        assert table.loc[name, SYSTEMS[2]] == 1 + (here.t_sim_s < seconds * (1 - 1e-9)).sum()
    assert list(table.columns)[-3:] == list(SYSTEMS)  # the shortest transfer first
    assert table.formula.isna().equals(here.formula.isna().reindex(table.index))


def test_advantages_are_against_the_base(study):
    """Promise and outcome of one point by hand; what is negated has the smaller bubble and no shorter time."""
    advantages = studies.advantage_study(study, "1F1B")
    point = (study.system == SYSTEMS[2]) & (study.stages == 4) & (study.microbatches == 8)
    one, base = (study[point & (study.schedule == name)].iloc[0] for name in ("ZB-V", "1F1B"))
    row = advantages[(advantages[[*KEYS, "schedule"]] == [SYSTEMS[2], 4, 8, "ZB-V"]).all(axis=1)].iloc[0]
    assert row.relative == pytest.approx(one.t_sim_s / base.t_sim_s - 1)
    assert row.promised == pytest.approx((1 - base.table_bubble_ratio) / (1 - one.table_bubble_ratio) - 1)
    assert (advantages.promised[advantages.negated] < 0).all()
    assert (advantages.relative[advantages.negated] >= -1e-9).all()
    assert (advantages.without_network[advantages.by_network] < 0).all()
    assert (advantages.negated & ~advantages.by_network).equals(advantages.negated & advantages.negated_without_network)
    table = studies.negated_table(advantages).set_index("schedule")
    assert (table.by_network <= table.negated).all()
    assert (table.negated <= table.smaller_bubble).all()
    assert table.by_network.sum() == advantages.by_network.sum() > 0
    shown, lost = studies.advantage_table(advantages, 4, 8, SYSTEMS[2:])
    at = int((shown.schedule == "ZB-V").argmax())
    assert (shown[SYSTEMS[2]][at], lost[SYSTEMS[2]][at]) == (row.relative, row.negated)
    here = advantages[(advantages[KEYS] == [SYSTEMS[2], 4, 8]).all(axis=1)]
    assert lost[SYSTEMS[2]].sum() == here.negated.sum()
    assert lost["without network"].sum() == here.negated_without_network.sum()


def test_a_negated_bubble_is_smaller_and_no_shorter_time():
    """As long counts, a billionth does not, and neither does a bubble that is no smaller."""
    seconds = [2.0, 2.0 * (1 - 1e-12), 1.9, 3.0]
    assert negated([0.1, 0.1, 0.1, 0.2 - 1e-12], 0.2, seconds, 2.0).tolist() == [True, True, False, False]


# ---- fronts --------------------------------------------------------------------------------------


def test_nothing_beats_the_front(study):
    """Every point is on the front or beaten by one that is; on the front none beats another."""
    fronts = studies.front_study(study)
    for _, group in fronts.groupby(["system", "stages"]):
        front = group[group.front]
        for row in group.itertuples():
            as_good = (front.t_sim_s <= row.t_sim_s * (1 + 1e-9)) & (front.total_bytes <= row.total_bytes * (1 + 1e-9))
            better = (front.t_sim_s < row.t_sim_s * (1 - 1e-9)) | (front.total_bytes < row.total_bytes * (1 - 1e-9))
            assert (as_good & better).any() == (not row.front)
        assert front.behind.tolist() == pytest.approx([0] * len(front), abs=1e-9)
        assert (group.behind >= -1e-9).all()
    table = studies.front_table(fronts).set_index("schedule")
    ever = (
        fronts[fronts.front].groupby("schedule").apply(lambda rows: len(rows[["system", "stages"]].drop_duplicates()))
    )
    assert table.on_front[table.on_front > 0].to_dict() == ever.to_dict()


def test_equal_points_are_on_the_front_together():
    """A copy of a point beats it as little as the point itself; one that is as fast with more bytes is beaten."""
    assert pareto_front([1, 1, 1], [2, 2, 3]).tolist() == [True, True, False]


# ---- effects -------------------------------------------------------------------------------------


def test_with_equal_halves_the_simulation_is_the_table(model, systems, cases):
    """What every new schedule with split backwards must fulfil; with the model's halves it may only idle longer."""
    halves = studies.halves_study(model, systems[0], 4, [8, 16], cases)
    assert halves.equal.tolist() == pytest.approx(halves.table.tolist(), abs=1e-12)
    assert {"ZB-H1", "ZB-V", "V-Min"} <= set(halves.schedule)
    assert "1F1B" not in set(halves.schedule)
    assert (halves.own > halves.table)[halves.schedule.isin(["V-Half", "V-Min"])].all()


def test_messages_are_worth_it_up_to_the_border():
    """Below the border the schedule is faster than the base, above it is not; two chunks send twice as much."""
    relative, table = studies.message_study(4, 2, np.geomspace(0.01, 10, 13), ["zb-v", "gpipe", "zb-h1"], "1f1b")
    table = table.set_index("schedule")
    assert table.over_base.to_dict() == {"ZB-V": 2.0, "ZB-H1": 1.0, "GPipe": 1.0}
    assert table.worth_until["ZB-H1"] == np.inf
    schedule, base = build("zb-v", 4, 8), build("1f1b", 4, 8)
    for factor, faster in ((0.8, True), (1.25, False)):
        comm = table.worth_until["ZB-V"] * factor
        seconds = [run_graph(compile_graph(one), uniform_costs(one, 1, 2, comm)).makespan_s for one in (schedule, base)]
        assert (seconds[0] < seconds[1]) == faster
    assert set(relative.schedule) == {"ZB-V", "ZB-H1", "GPipe"}


def by_hand(schedule, model, systems, apart):
    """Time on each system, one simulation each."""
    schedule = schedule.unfused() if apart else schedule
    costs = [model_costs(schedule, model, system) for system in systems]
    return np.array([run_graph(compile_graph(schedule), one).makespan_s for one in costs])


def test_only_cells_of_a_forward_and_a_backward_overlap(model, systems, cases):
    """Doubled forwards share cells as well, gain nothing, and keep their time while others come past them."""
    assert build("dualpipe", 4, 8).overlaps.any()
    assert build("dualpipev", 4, 8).overlaps.any()
    assert not build("chimera", 4, 8, concat="forward-doubling").overlaps.any()
    assert not build("zb-v", 4, 8).overlaps.any()
    table = studies.overlap_study(model, systems, 4, 8, cases, [0.5])
    assert {"DualPipe", "DualPipeV"} <= set(table.schedule)
    assert not {"Chimera forward-doubling", "ZB-V"} & set(table.schedule)
    assert (table["time at 1"] == 0).all()
    assert (table["time at 0.5"] < 0).all()
    assert (table["place at 0.5"] <= table["place at 1"]).all()
    joined, taken = (by_hand(build("dualpipe", 4, 8), model, systems, apart) for apart in (False, True))
    ours = table[table.schedule == "DualPipe"].set_index("system")
    assert ours["time apart"].loc[list(SYSTEMS)].tolist() == pytest.approx((taken / joined - 1).tolist())
    for system, factor in ours["worth below"].dropna().items():
        near = [Change(overlap=factor), Change(overlap=factor + 1e-3)]
        by_factor = times(("dualpipe", ()), 4, 8, model, [load_system(system)], "overlapped", changes=near).t_sim_s[
            :, 0
        ]
        aim = taken[list(SYSTEMS).index(system)]
        assert by_factor[0] <= aim * (1 + 1e-9) < by_factor[1]
    assert ours["worth below"].notna().any()
    doubled = ("chimera", (("concat", "forward-doubling"),))
    kept = times(doubled, 4, 8, model, systems, "overlapped", changes=[UNCHANGED, Change(overlap=0.5)]).t_sim_s
    assert (kept[0] == kept[1]).all()
    paired = times(("dualpipe", ()), 4, 8, model, systems, "overlapped", changes=[Change(overlap=0.5)]).t_sim_s[0]
    others = [case for case in cases if "dualpipe" not in case[0]]
    rivals = studies.field_study(model, systems, [4], [2], others)
    for system, seconds in zip(SYSTEMS, paired, strict=True):
        row = table[(table.schedule == "DualPipe") & (table.system == system)].iloc[0]
        ahead = (rivals.t_sim_s[rivals.system == system] < seconds * (1 - 1e-9)).sum()
        assert row["place at 0.5"] - 1 - ahead in (0, 1)  # DualPipeV may be ahead as well


def test_the_all_reduce_takes_from_two_copies_alone(model, systems, cases):
    """Only schedules of two directions are listed; the sum costs time, most where it blocks."""
    table = studies.replica_study(model, systems, 4, 8, cases, "1f1b")
    here = [name for name in names() if is_legal(name, (4, 8))]
    double = {get(name).label for name in here if build(name, 4, 8).num_replicas > 1}
    assert set(table.schedule) == double | {"Chimera forward-doubling"}
    assert "DualPipe" in double
    assert (table.excluded < table.blocking).all()
    assert (table.overlapped <= table.blocking + 1e-12).all()


def test_own_times_are_given_to_the_search(model, systems):
    """Schedules that search their order get the system's lengths; others are left out."""
    table = studies.own_times_study(model, systems[2:], 4, 8, ["1f1b", "zb-1p"])
    assert table.schedule.tolist() == ["ZB-1p"]
    own = tuple(map(int, table.times[0].split(":")))
    seconds = []
    for lengths in (own, (1, 1, 1, 0)):
        schedule = build("zb-1p", 4, 8, times=lengths)
        seconds.append(run_graph(compile_graph(schedule), model_costs(schedule, model, systems[2])).makespan_s)
    assert own[0] == 100 > own[2]
    assert table.relative[0] == pytest.approx(seconds[0] / seconds[1] - 1)


def test_a_search_for_a_system_with_nodes_counts_its_slowest_transfer(model):
    """Where transfers within a node and between nodes differ, one number stands for them."""
    system = load_system("a2_highgpu_8g")
    table = studies.own_times_study(model, [system], 4, 8, ["zb-1p"])
    costs = model_costs(build("1f1b", 4, 8), model, system)
    transfer = (costs.occupancy_s + costs.latency_s).max() / costs.compute_s[0].mean()
    assert int(table.times[0].split(":")[-1]) == round(100 * transfer)


def test_the_event_queue_finds_the_same_reversals(study, model, systems, cases):
    """The costliest reversals hold when they are computed by discrete events."""
    worst = studies.second_opinion(studies.clear_reversals(study, CLEAR).head(4), model, systems, cases)
    assert worst.apart.max() < 1e-9
    assert (worst.again_smaller_s > worst.again_faster_s).all()


def test_semantics_are_ranked_one_by_one(model, systems):
    """The row of a semantics is the rank study under it."""
    cases = ["1f1b", "gpipe", "chimera", "zb-v"]
    table = studies.semantics_rank_study(model, systems, 4, 2, cases, CLEAR).set_index("p2p")
    alone = studies.level_rank_study(studies.field_study(model, systems, [4], [2], cases, "blocking"), CLEAR)
    assert table.loc["blocking", "median"] == alone.table_time.median()
    assert table.loc["blocking", "clear"] == alone.clear.sum()


# ---- verdicts ------------------------------------------------------------------------------------


def judged(study, growing, old=("1F1B",)):
    gaps, ranks = studies.gap_table(study), studies.level_rank_study(study, CLEAR)
    advantages, fronts = studies.advantage_study(study, "1F1B"), studies.front_study(study)
    converging = studies.convergence_study(growing, CLOSE)
    table = studies.verdict_table(
        study, gaps, ranks, advantages, fronts, converging, old, "1F1B", clear=CLEAR, close=CLOSE, short=SHORT
    )
    return dict(zip(table.statement.str.rstrip("."), zip(table.verdict, table.number, strict=True), strict=True))


def test_verdicts_follow_from_the_numbers(study, model, systems):
    """With all schedules rankings vary; with schedules of one order they do not, and everything converges."""
    growing = studies.field_study(model, systems[:1], [4], [2, 16], ["1f1b", "chimera"])
    found = judged(study, growing, ["1F1B", "GPipe"])
    ranks = studies.level_rank_study(study, CLEAR)
    verdict, number = found["Schedule rankings are not abstraction-invariant"]
    assert verdict == "carries over"
    assert f"{ranks.clear.sum()} of {ranks.pairs.sum()}" in number
    verdict, number = found["All schedules converge for large B"]
    assert verdict == "does not"  # Chimera's seams stay
    assert number.startswith("within 5% of the fastest at B = 64")
    alike = study[study.schedule.isin(["GPipe", "1F1B"])]
    together = studies.field_study(model, systems[:1], [4], [2, 16], ["1f1b", "gpipe"])
    found = judged(alike, together)
    assert found["Schedule rankings are not abstraction-invariant"][0] == "does not"
    assert found["All schedules converge for large B"][0] == "carries over"
    assert found["Communication can negate a structural advantage"][0] == "does not"


def test_convergence_compares_the_same_schedules(model, systems):
    """A schedule that is not defined at every B is left out, so that the group does not change along the way."""
    growing = studies.field_study(model, systems[:1], [4], [1, 2, 8], ["1f1b", "gpipe", "hanayo"])
    table = studies.convergence_study(growing, CLOSE)
    assert table.schedules.tolist() == [2, 2, 2]
    here = growing[(growing.microbatches == 8) & (growing.schedule != "Hanayo")].t_sim_s
    assert table.spread[1] == pytest.approx(here.max() / here.min() - 1)


def test_gaps_are_signed(study):
    """Chimera's formula understates; those of GPipe and 1F1B are exact; a schedule without one has none."""
    gaps = studies.gap_table(study).set_index("schedule")
    assert gaps.most["Chimera"] > 0.01
    assert abs(gaps.loc[["GPipe", "1F1B"], ["least", "most"]]).to_numpy().max() < 1e-12
    assert pd.isna(gaps.most["asymmetric Chimera"])
    text = studies.gap_text(gaps.reset_index(), CLEAR)
    assert re.search(r"those of .*Chimera \(by up to [\d.]+ points\).* understate it", text)
    assert text.endswith("idle longer than their tables say, in points of the total time.")


def test_only_published_formulas_are_held_against_tables(study):
    """A closed form that is derived from the order cannot differ from it, and is not counted."""
    gaps = studies.gap_table(study).set_index("schedule")
    derived = [get(name).label for name in names() if get(name).bubble_ratio and not get(name).published]
    assert {"V-Half", "V-Min"} <= set(derived)
    assert gaps.least[derived].isna().all()
    assert (gaps.least[["ZB-H2", "ZB-V"]] > CLEAR).all()  # their authors' zero is over a rank's span
    assert f"Of {gaps.least.notna().sum()} published formulas" in studies.gap_text(gaps.reset_index(), CLEAR)


# ---- words ---------------------------------------------------------------------------------------


def test_words_follow_from_the_numbers(study, model, systems, cases):
    """Names and counts are those of the tables; with nothing to tell the sentence says so."""
    halves, gaps = studies.halves_study(model, systems[0], 4, [8, 16], cases), studies.gap_table(study)
    text = studies.unequal_halves_text(halves, gaps, CLEAR)
    assert "is the table to the last digit" in text
    assert "V-Half" in text
    assert "No schedule here splits" in studies.unequal_halves_text(halves.head(0), gaps, CLEAR)
    two = study[study.schedule.isin(["GPipe", "1F1B"])]
    assert "is an order by time here" in studies.cause_text(studies.level_rank_study(two, CLEAR))
    last = studies.field_study(model, systems, [4], [64], ["1f1b", "chimera"])
    assert "without a network: Chimera; with the network" in studies.lasting_text(last, CLOSE)
    assert studies.lasting_text(last, 100.0).count("0 of 2 on") == len(SYSTEMS)


def test_the_longest_hidden_transfer_is_no_longer_than_a_forward(study):
    """The rule that picks the system of a picture; where all transfers are longer, the shortest is taken."""
    weights = study.groupby("system").comm_over_forward.median()
    assert weights[studies.longest_hidden(study)] == weights[weights <= 1].max()
    assert weights[studies.longest_hidden(study, 0.0)] == weights.min()


# ---- what to take --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def advice(study):
    here = study[(study.stages == 4) & (study.microbatches == 8)]
    return here, studies.advice_table(here, here[here.system == SYSTEMS[0]], "1F1B", SHORT, "another")


def test_what_to_take_is_the_best_of_its_kind(advice):
    """The fastest, the fastest that holds no more than the base, and the smallest; every system is counted once."""
    here, table = advice
    for (_, _, asked), rows in table.groupby(["kind", "where", "asked"]):
        assert rows.best_on.sum() == rows.of.iloc[0]
        assert (rows.bytes_high <= 1e-9).all() or asked == "fastest"
    assert table[table.kind.str.endswith("transfers")].groupby("kind").of.first().sum() == len(SYSTEMS)
    one = here[here.system == SYSTEMS[0]].set_index("schedule")
    real = table[table.kind == "Another model"].set_index("asked")
    assert real.time_low["fastest"] == pytest.approx(one.t_sim_s.min() / one.t_sim_s["1F1B"] - 1)
    least = table[table.kind == "Least memory"]
    assert least.bytes_low.min() == pytest.approx(one.total_bytes.min() / one.total_bytes["1F1B"] - 1)


def test_what_to_take_is_said_for_networks_that_are_there(advice):
    """Where all transfers are long nothing is said of short ones; each kind has one line."""
    here, table = advice
    assert studies.advice_text(table, "1F1B", {"Least memory": "See."}).count("See.") == 1
    long = studies.advice_table(here, here[here.system == SYSTEMS[0]], "1F1B", 1e-9, "another")
    assert set(long.kind) == set(table.kind) - {"Short transfers"}
    assert len(studies.advice_text(long, "1F1B").splitlines()) == 3


def test_fronts_by_model_change_one_thing_at_a_time(model, systems):
    """A model with the other recomputation already is asked once; the last row alone counts the all-reduce."""
    models = [model, replace(model, name="again", recompute="full")]
    cases = ["1f1b", "zb-v", "dualpipe"]
    fronts = studies.front_model_study(models, "full", systems[0], [4], [2], cases)
    table = studies.front_model_table(fronts)
    wanted = [("paper", model.recompute, "excluded"), ("paper", "full", "excluded")]
    wanted += [("again", "full", "excluded"), ("again", "full", "blocking")]
    assert list(table[["model", "recompute", "allreduce"]].itertuples(index=False, name=None)) == wanted
    assert table.on_front[1] == table.on_front[2]
    alone = studies.front_table(studies.front_study(studies.field_study(model, systems[:1], [4], [2], cases)))
    assert table.on_front[0] == ", ".join(f"{row.schedule} 1" for row in alone[alone.on_front > 0].itertuples())
    same = studies.front_model_text(fronts[fronts.model == "again"].query("allreduce == 'excluded'"))
    assert same.startswith("The same")
