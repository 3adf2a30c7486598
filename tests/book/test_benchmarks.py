"""The benchmarks measure the same thing with every peer, and what they measured is what pages show."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from strategies import cases

from benchmarks import peers
from benchmarks.growth import growth
from benchmarks.peers import PEERS, case_of, torch_order, torch_steps, unit_steps
from benchmarks.ratios import ratios
from benchmarks.results import write
from benchmarks.stages import (
    Plan,
    activations,
    compiling,
    evaluation,
    events,
    generation,
    many_points,
    many_systems,
    reading,
    uncertainty,
)
from benchmarks.tables import cases_table, growth_text, headline_table, load_speed, ratio_table, slope_table, speed_text
from benchmarks.timing import measure
from ppbook.build.provenance import git
from ppmodel import build, names
from ppmodel.simulation import OpCosts, compile_graph, run_graph, uniform_costs

ROOT = Path(__file__).parents[2]
IN_SECONDS = [peer for peer in PEERS if peer.in_seconds and peer.installed]
IN_THIS_PROCESS = (generation, compiling, evaluation, reading, many_points, events, activations, uncertainty)
TINY = Plan(
    size=(4, 8), list_size=(4, 4), small=(2, 4), systems=4, runs=4, growth=(2, 3), growth_systems=2,
    pairs=(((2, 4), 2), ((4, 8), 1)),
)  # fmt: skip


@pytest.mark.parametrize("peer", IN_SECONDS, ids=lambda peer: peer.name)
@given(case=cases(max_stages=4, max_microbatches=6))
@settings(max_examples=60)
def test_peers_agree_with_the_engine(peer, case):
    """Every peer that simulates seconds gives the engine's makespan without steps, whatever the table and its costs."""
    schedule, costs = case
    assume(not schedule.joined.any() and schedule.dependencies.further is None)
    costs = OpCosts(costs.compute_s, costs.occupancy_s, 0 * costs.latency_s)
    expected = run_graph(compile_graph(schedule), costs).reduced_s
    assert peer.run(peer.prepare(case_of(schedule, costs))) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("name", "size"), [("gpipe", (3, 5)), ("1f1b", (5, 9)), ("hanayo", (4, 4))])
def test_the_dry_run_counts_what_we_say_that_it_counts(name, size):
    """PyTorch's steps are those of a recurrence in which a receive may share the step of its send."""
    pytest.importorskip("torch")
    schedule = build(name, *size)
    case = case_of(schedule, uniform_costs(schedule, 1.0, 1.0, 1.0))
    assert torch_steps(torch_order(case)) == unit_steps(torch_order(case))


def test_peers_load_their_package_only_when_they_run():
    """The benchmarks can be imported where no peer is installed."""
    code = "import benchmarks.ratios, sys; print([n for n in ('torch', 'simpy', 'networkx') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_a_peer_that_is_not_installed_is_a_row_that_says_so(monkeypatch):
    """It is listed, without numbers, and the table shows it."""
    missing = peers.Peer("nothing", "no_such_package", None, None)
    monkeypatch.setattr("benchmarks.ratios.PEERS", (missing,))
    rows = list(ratios(TINY))
    assert [row["installed"] for row in rows] == [False, False]
    assert ratio_table({"peers": rows}).ratio.isna().all()


def test_a_peer_that_disagrees_is_refused(monkeypatch):
    """A time means nothing where the makespan is another."""
    wrong = peers.Peer("wrong", "", lambda case: case, lambda case: peers.plain_sweep(case) * (1 + 1e-6))
    monkeypatch.setattr("benchmarks.ratios.PEERS", (wrong,))
    with pytest.raises(ValueError, match="wrong gives"):
        list(ratios(TINY))


def test_the_first_call_does_not_count():
    """One call to warm up, then five; each on what was prepared for it alone, fewer where they take long."""
    calls = []
    assert measure(calls.append, lambda: ([len(calls)],)).runs == 5
    assert calls == [[n] for n in range(6)]
    assert measure(lambda: None, budget_s=0).runs == 1


@pytest.fixture(scope="module")
def tiny():
    """Results at tiny sizes: what needs no process of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gc.collect", int)  # the heap of a test run is large, and these times do not count
        stages = [row for stage in IN_THIS_PROCESS for row in stage(TINY)]
        return load_speed() | {"stages": stages, "growth": list(growth(TINY)), "peers": list(ratios(TINY))}


def test_every_schedule_is_measured(tiny):
    """Every registered schedule is generated and compiled, and all times are positive."""
    table = cases_table(tiny)
    for stage in ("generation", "compile"):
        assert {case.split(",")[0].split()[0] for case in table.case[table.stage == stage]} == set(names())
    assert (table.best > 0).all()
    assert (table.best <= table["median"]).all()


def test_many_systems_hold_no_table_of_them(monkeypatch):
    """What a call for 2,048 systems adds is less than a tenth of a table of their times, 128 MiB here."""
    monkeypatch.setattr("benchmarks.stages.MANY_SYSTEMS", ())  # whose times are not asked for here
    *_, memory = many_systems(TINY._replace(size=(16, 256), systems=256))
    assert memory["unit"] == "MiB"
    assert memory["goal"] == pytest.approx(12.8)
    assert 0 <= memory["median"] <= memory["goal"]


def test_results_survive_the_file(tiny, tmp_path):
    """What is written is what is read."""
    write(tiny, tmp_path / "results.json")
    assert load_speed(tmp_path / "results.json") == json.loads(json.dumps(tiny))


def test_the_headline_is_the_worst_of_its_goal(tiny):
    """No case of a stage with a goal is further from it than the one that is shown."""
    shown = headline_table(tiny).set_index(["stage", "goal"])["median"]
    for (stage, goal), group in cases_table(tiny).dropna(subset="goal").groupby(["stage", "goal"]):
        assert shown[stage, goal] == group["median"].max()


def test_what_is_not_finished_is_no_success(tiny):
    """A case without a time says so, and is the one that is shown."""
    lost = tiny["stages"][0] | {"best": None, "median": None, "runs": 0}
    table = headline_table(tiny | {"stages": [*tiny["stages"], lost]})
    assert table.met.tolist()[0] == "not finished"
    assert "not finished" in speed_text(tiny | {"stages": [lost]})


def test_a_slope_is_the_exponent():
    """Time that grows with the square of the operations has a slope of two, and is too steep."""
    rows = [{"stage": "compile", "operations": n, "median_s": 1e-6 * n**2} for n in (10, 100, 1000)]
    (one,) = slope_table({"growth": rows}).itertuples()
    assert (one.slope, one.steepest) == (pytest.approx(2), pytest.approx(2))
    assert one.met == "no"


def test_the_stages_that_are_too_steep_at_the_large_end_are_named():
    """A slope over all sizes that meets the goal hides no stage whose last two decades do not."""
    seconds = {10**3: 1.0, 10**4: 2.0, 10**5: 4.0, 10**6: 60.0, 10**7: 900.0}
    rows = [{"stage": "compile", "operations": n, "median_s": found} for n, found in seconds.items()]
    rows += [{"stage": "evaluation", "operations": n, "median_s": 1.0 * n} for n in seconds]
    assert slope_table({"growth": rows}).met.tolist() == ["yes", "yes"]
    assert "alone, compile (1.18) exceeds it" in growth_text({"growth": rows})


def test_small_sizes_have_no_goals(tiny):
    """A run for trying is held against nothing, growth included."""
    quick = tiny | {"how": {"quick": True}}
    assert slope_table(quick).goal.isna().all()
    assert set(slope_table(quick).met) == {""}
    assert "too small" in growth_text(quick)


def test_the_commit_that_was_measured_is_in_the_history():
    """Who reads the times can look at what was timed: its commit is an ancestor of this one."""
    if not (ROOT / ".git").exists() or git(ROOT, "rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("no history here")
    commit = load_speed()["machine"]["commit"]
    is_ancestor = ["git", "-C", str(ROOT), "merge-base", "--is-ancestor", commit, "HEAD"]
    assert subprocess.run(is_ancestor, capture_output=True, check=False).returncode == 0
