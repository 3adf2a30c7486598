"""The notebooks on all schedules: what they record at small sizes follows from single simulations."""

from dataclasses import replace

import pytest
from executed import executed, labels_at, of, t_sim

import ppmodel
from ppmodel import build, names
from ppmodel.clusters.costs import model_costs
from ppmodel.clusters.specs import load_model, load_system
from ppmodel.schedules.cases import label, legal_cases
from ppmodel.simulation import compile_graph, run_graph, uniform_costs
from ppmodel.studies.noise import Noise, noisy_makespans


@of("phases")
def test_phases(recorded):
    """The winner of a point is the fastest there, and reversals are listed."""
    points = recorded("phases.csv").set_index(["microbatches", "comm"])
    fastest = {
        name: run_graph(compile_graph(table := build(name, 4, 8)), uniform_costs(table, 1, 2, 0.001)).makespan_s
        for name in ("gpipe", "1f1b", "chimera")
    }
    assert points.label[8, 0.001].lower() == min(fastest, key=fastest.get)
    counts = recorded("reversal_counts.csv").set_index("system")["S = 4"]
    reversals = recorded("reversals_all_sizes.csv")
    assert int(counts["fast_cp_slow_nw"].split()[0]) == reversals[reversals.by_network].microbatches.nunique() == 1


@of("optimum")
def test_optimum(recorded):
    """Without transfers 1F1B has the best order of whole backwards; split ones take 13 in place of its 15."""
    rows = recorded("optimum.csv").set_index(["label", "microbatches", "comm_over_forward"])
    assert rows.over_order["1F1B", 4, 0.0] == 0
    assert rows.over_free["1F1B", 4, 0.0] == pytest.approx(15 / 13 - 1)
    assert rows.proven.all()
    facts = recorded("optimum.json")
    assert facts["points"] == len(rows) == 12
    assert facts["optimal"] == (rows.over_order < 1e-9).sum()
    assert facts["best_possible"] == (rows.over_free < 1e-9).sum()
    assert (facts["questions"], facts["open"], facts["widest"]) == (3 * 12, 0, 0)
    spans = recorded("optimum_span.csv").set_index(["label", "comm_over_forward"])
    assert (spans.time["ZB-1p", 0.0], spans.time["ZB-2p", 0.0]) == (13, 12)
    assert recorded("optimum_bounds.csv").at_most_order.min() == 0
    searched = recorded("field_searched.csv").set_index("label")
    ours = ppmodel.simulate("zb-1p", 4, 8, model="paper", system="fast_cp_slow_nw")
    unit, base = (t_sim(name, 4, 8, "paper", "fast_cp_slow_nw") for name in ("zb-1p", "1f1b"))
    assert searched.ordered_for["ZB-1p"] == ours.ordered_for
    assert searched.slower["ZB-1p"] == pytest.approx(unit / ours.makespan_s - 1)
    assert searched.over_base["ZB-1p"] == pytest.approx(ours.makespan_s / base - 1)


def test_the_optimum_is_asked_of_every_registered_schedule(tmp_path):
    """A schedule that is registered later needs no edit of the page."""
    sizes = {"pp": [4], "multiples": [2], "span_pp": [2], "large_pp": [2], "large_multiple": 2}
    rows = executed("optimum", {**sizes, "comms": [0.0], "work": 0.01}, tmp_path)("optimum.csv")
    asked = [*names(), ("stp", {"warm_up": "memory-saving"})]
    unfused = {f"{case.label} unfused" for case, table in legal_cases(asked, 4, 8) if table.overlaps.any()}
    labels = labels_at(4, [8]) - {label("asymmetric-chimera")}  # that has unlike stages
    assert set(rows.label) == labels | {"STP memory-saving"} | unfused


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


@of("sensitivity")
def test_sensitivity(recorded):
    """Half the bandwidth is what a system with half the bandwidth gives; no change is no change."""
    rows = recorded("sensitivity.csv")
    study = rows.set_index(["knob", "value", "label"]).relative
    system = load_system("mid_cp_slow_nw")
    slower = replace(system, network_bandwidth_bytes_per_s=system.network_bandwidth_bytes_per_s / 2)
    model, spans = load_model("paper"), {}
    for name in ("1f1b", "gpipe"):
        table = build(name, 4, 8)
        spans[name] = run_graph(compile_graph(table), model_costs(table, model, slower)).makespan_s
    assert study["network bandwidth x", 0.5, "1F1B"] == pytest.approx(spans["1f1b"] / spans["gpipe"] - 1)
    same = rows[(rows.value == 1) & ~rows.knob.str.contains("all-reduce|backward")]
    assert (same.groupby("label").relative.nunique() == 1).all()
    assert len(same) == 6 * 4
    sums = recorded("field_allreduce.csv")
    double = {case.label for case, table in legal_cases(names(), 4, 8) if table.num_replicas > 1}
    assert set(sums.label) == double | {"Chimera forward-doubling"}
    assert (sums.excluded < sums.blocking).all()


@of("uncertainty")
def test_uncertainty(recorded):
    """Means are those of the seeds, the winner has nothing to beat, and a slow rank costs what its run takes."""
    study = recorded("ranking.csv").set_index(["microbatches", "jitter", "label"])
    table = build("1f1b", 4, 8)
    graph, costs = compile_graph(table), model_costs(table, load_model("paper"), load_system("mid_cp_slow_nw"))
    spans = noisy_makespans(graph, costs, Noise(0.5), range(1, 21))
    assert study.mean_s[8, 0.5, "1F1B"] == pytest.approx(spans.mean())
    first = study[study.index.get_level_values("label") == study.winner]
    assert first.beats_winner.isna().all()
    assert (first.over_winner == 0).all()
    slow = recorded("slow_ranks.csv").set_index(["microbatches", "label", "rank"])
    t_slow = noisy_makespans(graph, costs, Noise(slowdown=2.0, slow_ranks=(1,)), [0])[0]
    assert slow.slow_s[8, "1F1B", 1] == pytest.approx(t_slow)
    assert slow.passed_on.between(0, 1).all()
    assert len(recorded("slow_winners.csv")) == 2 * 4
