"""The notebooks on all schedules: what they record at small sizes follows from single simulations."""

import pytest
from executed import labels_at, of, t_sim

import ppmodel


@of("field")
def test_field(recorded):
    """All schedules are asked; reversals and totals come from the same frame."""
    grid = recorded("field.csv")
    more = {"Chimera forward-doubling", "Chimera merged", "Hanayo W = 2", "STP memory-saving"}
    assert set(grid.label) == labels_at(4, (4, 8)) - {"Hanayo"} | more
    assert grid.label.nunique() == recorded("field.json")["schedules"]
    reversals, ranks = recorded("field_reversals.csv"), recorded("field_ranks.csv")
    assert reversals.by_network.sum() == recorded("field_totals.csv").by_network.sum() == ranks.by_network.sum()
    assert ranks.by_network.sum() >= ranks.clear.sum() > 0
    lost = recorded("field_negated.csv")
    assert (lost.by_network <= lost.negated).all()
    assert (lost.negated <= lost.smaller_bubble).all()


def by_seconds(name, comm, **more):
    return ppmodel.simulate(name, 4, 8, forward=1, backward=2, comm=comm, **more).makespan_s


@of("field")
def test_field_causes(recorded):
    """Equal halves are the table, and messages pay up to their border."""
    halves = recorded("field_halves.csv")
    assert halves.equal.tolist() == pytest.approx(halves.table.tolist(), abs=1e-12)
    assert "1F1B" not in set(halves.label)
    assert (halves.own > halves.table)[halves.label.isin(["V-Half", "V-Min"])].all()
    worth = recorded("field_worth.csv").set_index("label")
    assert worth.over_base[["ZB-V", "ZB-H1"]].tolist() == [2, 1]
    border = worth.worth_until["ZB-V"]
    assert by_seconds("zb-v", 0.7 * border) < by_seconds("1f1b", 0.7 * border)
    assert by_seconds("zb-v", 1.5 * border) > by_seconds("1f1b", 1.5 * border)
    spread = recorded("field_spread.csv")
    assert (spread.within <= spread.schedules).all()


@of("field")
def test_field_choice(recorded):
    """What is chosen is the best of its kind on every system; verdicts follow from what is counted."""
    advice = recorded("field_advice.csv")
    assert (advice.groupby(["kind", "asked"]).best_on.sum() == advice.groupby(["kind", "asked"]).of.first()).all()
    assert (advice[advice.asked.str.contains("within")].memory_high <= 1e-9).all()
    base = {name: t_sim("1f1b", 4, 8, "paper", name) for name in ("mid_cp_mid_nw", "fast_cp_slow_nw")}
    front = recorded("field_fronts.csv")
    fastest = front[front.microbatches == 8].groupby("system").makespan_s.min()
    short = advice.query("kind == 'short transfers' and asked == 'fastest'")
    assert short.time_low.min() == pytest.approx(fastest["mid_cp_mid_nw"] / base["mid_cp_mid_nw"] - 1)
    assert (front.groupby("system").front.sum() > 0).all()
    verdicts = recorded("field_verdicts.csv").set_index("statement")
    assert verdicts.verdict.isin(["carries over", "in part", "does not"]).sum() == len(verdicts) == 10
    converge = verdicts.loc["All schedules converge for large B."]
    found, of = map(int, converge.found.split(" of "))
    assert converge.verdict == ("carries over" if found == of else "in part" if found else "does not")
