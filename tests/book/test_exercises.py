"""Exercises at the end of pages: each has its two answers, and what they say follows from single computations."""

import re

import nbformat
import pytest
from books import HTML
from executed import NOTEBOOKS, reader
from scipy.stats import binom

from ppmodel import build, names, simulate
from ppmodel.clusters.costs.totals import parameters
from ppmodel.clusters.specs import load_model
from ppmodel.errors import PPModelError
from ppmodel.schedules.cases import legal_cases
from ppmodel.tables import Schedule

TIMES = {"forward": 1, "backward": 2}
THIRDS = {"forward": 1, "input_grad": 1, "weight_grad": 1}
NOTES = {path.stem: nbformat.read(path, as_version=4).cells for path in sorted(NOTEBOOKS.glob("*.ipynb"))}
PROSE = {path.stem: path.read_text() for path in sorted((NOTEBOOKS.parent / "book").glob("*.md"))}
PROSE |= {
    stem: "\n".join(cell.source for cell in cells if cell.cell_type == "markdown") for stem, cells in NOTES.items()
}
PAGES = [page for page, text in PROSE.items() if "\n## Exercises\n" in text]


@pytest.fixture(scope="module")
def answers():
    """What the built book recorded; exercises have sizes of their own, whatever a page's parameters."""
    return reader(HTML / "results")


def seconds(name, pp, microbatches, **point):
    return simulate(name, pp, microbatches, **(point or TIMES)).makespan_s


def test_pages_that_teach_end_with_two_exercises():
    """One to guess and one to compute, behind all but what follows; answers are folded and quote what was computed."""
    assert {"claims", "your-own", "schedules", "run", "sweeps", "explorer", "idea-to-rank"} < set(PAGES)
    assert len(PAGES) >= 23
    for page in PAGES:
        _, exercises = PROSE[page].split("\n## Exercises\n")
        assert set(re.findall(r"^## (.*)", exercises, re.MULTILINE)) <= {"What follows", "Data"}, page
        guess, compute = exercises.split("**Compute.**")
        assert "**Guess.**" in guess
        assert guess.count(":class: dropdown answer") == compute.count(":class: dropdown answer") == 1
        assert "{{ " in compute, page


def test_table(answers):
    """A swap of 1F1B's backwards deadlocks; GPipe's is longer by one backward."""
    facts = answers("exercise_table.json")
    assert (facts["slots"], facts["swapped"], facts["idle"]) == (21, 21 + 2, pytest.approx(3 / 7))
    rows = [[str(op) for (op,) in cells] for cells in build("1f1b", 4, 4).rows()]
    rows[3] = ["3F0", "3B1", "3F1", "3B0", "3F2", "3B2", "3F3", "3B3"]
    with pytest.raises(PPModelError) as deadlock:
        Schedule.from_rows("1f1b", rows)
    assert str(deadlock.value) == facts["refused"]


def test_transfers(answers):
    """What more microbatches and a faster network change follows from the closed forms."""
    facts = answers("exercise_timeline.json")
    assert (facts["gpipe"], facts["plain"]) == (0, 2 * (8 - 2) * 0.5)
    facts, whole = answers("exercise_semantics.json"), 3 * (64 + 7)
    for name, exposed in (("gpipe", (14, 140)), ("plain", (124, 139))):
        for p2p, count in zip(("overlapped", "blocking_recv"), exposed, strict=True):
            assert facts[name][p2p] == pytest.approx(count * 0.11 / (whole + count * 0.22))
    facts = answers("exercise_runtime.json")
    assert facts["mid"] == pytest.approx(facts["fast"], rel=1e-9)
    ratio = facts["ratio"]
    assert facts["estimate"] == pytest.approx(110 * ratio / (whole + 14 * ratio))
    assert facts["simulated"] == pytest.approx(facts["estimate"], rel=0.1)


def test_bubbles(answers):
    """Enough microbatches for a tenth, the border of Chimera's bubble, and that of ZB-H1."""
    facts = answers("exercise_tutorial.json")
    assert (facts["eight"], facts["sixteen"], facts["enough"]) == (pytest.approx(3 / 11), pytest.approx(3 / 19), 27)
    facts = answers("exercise_bubble.json")
    assert facts["first"] == 24
    assert facts["large"] == pytest.approx(1 - 3 * 1024 / (3 * 1024 + 6 * (1024 / 8 + 1)))
    assert facts["limit"] < facts["large"]
    facts = answers("exercise_choose.json")
    assert (
        (facts["plain"], facts["split"])
        == (45, 31)
        == tuple(seconds(name, 8, 8, **THIRDS) for name in ("1f1b", "zb-h1"))
    )
    assert facts["peak"] <= 8 * 2 / 3
    for key, count in (("few", 16), ("many", 256)):
        plain = seconds("1f1b", 8, count, **THIRDS)
        least = min(
            run.makespan_s
            for _, table in legal_cases(sorted(set(names()) - {"seq1f1b"}), 8, count)
            if (run := simulate(table, **THIRDS)).peak_activations <= 8
        )
        assert facts[key] == pytest.approx(1 - least / plain)
        assert facts[f"{key}_less"] == pytest.approx(1 - seconds("v-half", 8, count, **THIRDS) / plain)


def test_schedules(answers):
    """The least number of chunks is that of the formula, and messages grow with the borders between stages."""
    facts = answers("exercise_schedules.json")
    assert facts["chunks"] == 1 + 19 * 7 // 32
    assert facts["bubble"] == pytest.approx(7 / (32 * facts["chunks"] + 7))
    assert facts["messages"] == pytest.approx((8 * facts["chunks"] - 1) / 7)
    assert facts["zb_v"]["bubble"] < facts["looped"]["bubble"] == pytest.approx(7 / (32 * 2 + 7))
    assert facts["zb_v"]["peak"] == 8 < facts["looped"]["peak"]


def test_explorer(answers):
    """VPP and ZB-H1 are level at the same transfer, however many microbatches; what 1F1B waits for is counted."""
    facts = answers("exercise_explorer.json")
    assert facts["few"] == pytest.approx(facts["many"], rel=1e-3)
    looped = build("interleaved-1f1b", 8, 16, chunks=4)
    for comm, sign in ((0.9 * facts["few"], -1), (1.1 * facts["few"], 1)):
        point = {**THIRDS, "comm": comm}
        assert sign * (simulate(looped, **point).makespan_s - seconds("zb-h1", 8, 16, **point)) > 0
    assert facts["free"] == 3 * (8 + 4 - 1)
    assert facts["sent"] == pytest.approx(facts["free"] + 0.1 * facts["transfers"])
    assert facts["transfers"] == 2 * (3 + 7 - 2)


def test_an_idea(answers):
    """Without transfers both tables are as long; the warm-up holds one microbatch more for each slow link."""
    facts = answers("exercise_idea.json")
    assert facts["free"] == [33, 33]
    assert facts["sent"] == [seconds("1f1b", 4, 8, comm=0.5, **TIMES), 39]
    assert (facts["held"], facts["base"]) == (16 + 3, 16)


def test_your_own(answers):
    """A bandwidth that is eight times too large hardly shows; a message takes its bytes over the bandwidth."""
    facts = answers("exercise_your_own.json")
    assert 0 < facts["less"] < 0.001
    assert facts["transfer"] == pytest.approx(facts["message"] / 25e9, rel=0.01)
    assert facts["sequences"] == load_model("llama3_70b").global_batch / 64


def test_run(answers):
    """Transfers are what the run takes beyond the closed form; GPUs and microbatches are products of the layout's."""
    facts = answers("exercise_run.json")
    assert facts["makespan"] == pytest.approx((64 + 7) * 3 + 0.1 * facts["transfers"])
    assert facts["makespan"] == pytest.approx(seconds("1f1b", 8, 64, comm=0.1, **TIMES))
    assert (facts["gpus"], facts["microbatches"]) == (4 * 8 * 2, 1024 // 2)


def test_sweeps(answers):
    """A row for each case, size, semantics and system of the template; refused where a schedule has no such size."""
    facts = answers("exercise_sweeps.json")
    assert facts["rows"] == facts["cases"] * 3 * 3 * 2 * 2
    hanayo, chimera = 2 * 7, 3 * 1  # but for B = S = 8 and 16; on 16 ranks 8 microbatches are fewer than S
    assert facts["refused"] == (hanayo + chimera) * 2 * 2


def test_verdicts(answers):
    """Rows that an assumption turns, and a margin by hand."""
    facts, outcomes, rows = (
        answers("exercise_claims.json"),
        answers("verdicts.csv"),
        answers("claims.csv").set_index("id"),
    )
    shares = outcomes.assign(holds=outcomes.margin >= 0).groupby(["anchor", "id", "axis"]).holds.mean()
    turned = shares[(shares > 0) & (shares < 1)].reset_index().drop_duplicates(["id", "axis"])
    for key in ("semantics", "memory", "concat", "backward"):
        assert facts[key] == sum(rows.by[row] == "paper" for row in turned.id[turned.axis == key])
    assert facts["margin"] == pytest.approx(facts["tolerance"] - abs(facts["measured"] - facts["published"]))
    assert (facts["margin"] >= 0) == rows.here["fig3_table"]


def test_memory(answers):
    """Fewer activations than 1F1B and less time; the share of GPipe's."""
    facts, plain = answers("exercise_memory.json"), seconds("1f1b", 8, 32, comm=0.1, **TIMES)
    assert facts["share"] == 1 / 8
    for key, name in (("fast", "v-half"), ("least", "v-min")):
        run = simulate(name, 8, 32, comm=0.1, **TIMES)
        assert facts[key]["peak"] == run.peak_activations < facts["peak"] == 8
        assert facts[key]["time"] == pytest.approx(run.makespan_s / plain - 1)
    assert facts["fast"]["time"] < 0 < facts["least"]["time"]


def test_asymmetric(answers):
    """The inner ranks hold what they held, whatever the split."""
    facts = answers("exercise_asymmetric.json")
    assert facts["inner"] == facts["half"] == 4
    assert facts["outer"] < facts["outer_even"]


def test_hanayo(answers):
    """On both sides of the border, and messages counted by hand."""
    facts = answers("exercise_hanayo.json")
    assert (facts["messages"], facts["base_messages"]) == (4 * 2 * 7 * 8, 2 * 7 * 8)
    for factor in (0.99, 1.01):
        at = TIMES | {"comm": factor * facts["crossing"]}
        assert (simulate(("hanayo", {"waves": 2}), 8, 8, **at).makespan_s < seconds("chimera", 8, 8, **at)) == (
            factor < 1
        )


def test_field(answers):
    """GPipe overtakes interleaved 1F1B at the crossing, before the straight lines do."""
    facts = answers("exercise_field.json")
    for factor in (0.99, 1.01):
        at = TIMES | {"comm": factor * facts["crossing"]}
        faster = simulate(("interleaved-1f1b", {"chunks": 2}), 8, 32, **at).makespan_s < seconds("gpipe", 8, 32, **at)
        assert faster == (factor < 1)
    assert facts["slope"] == pytest.approx(14)
    assert facts["crossing"] < facts["straight"] == pytest.approx(facts["lead"] / (facts["own_slope"] - 14))


def test_by_hand(answers):
    """What a reader writes is 1F1B and eager 1F1B."""
    facts = answers("exercise_hand.json")
    assert set(facts["free"].values()) == {15}
    assert list(facts["peaks"].values()) == [4, 3, 2]
    for key, name in (("two activations", "1f1b"), ("three activations", "eager-1f1b"), ("gpipe", "gpipe")):
        assert facts["times"][key] == seconds(name, 2, 4, comm=0.5, **TIMES)


def test_layout(answers):
    """Eight stages are faster; the microbatches of a pipeline."""
    facts = answers("exercise_which.json")
    assert facts["eight"]["iteration_s"] < facts["two"]["iteration_s"]
    assert (facts["microbatches"], facts["bubble"]) == (128, pytest.approx(3 / 131))


def test_measured(answers):
    """Delays of the measured iterations, chances, arithmetic and regrets."""
    facts = answers("exercise_reversal.json")
    runs = answers("measured_reversal.csv").query("what == 'measured'").set_index(["schedule", "delay_ms"]).iteration_s
    assert facts["delays"] == pytest.approx((runs["1F1B", 60.0] - runs["1F1B", 0.0]) / 0.06)
    assert 23 < facts["delays"] < 25 < facts["zb_delays"]
    assert 0 < facts["crossing"] < float(answers("measured_reversal.json")["flip_from"])
    facts = answers("exercise_measured.json")
    assert facts["chance"] == pytest.approx(binom.sf(4, 20, 0.1))
    assert facts["six_n_d"] == pytest.approx(6 * parameters(load_model("llama3_405b")).total * 2048 / 430e12)
    assert facts["six_n_d"] < facts["published"] == pytest.approx(facts["predicted"], rel=0.05)
    facts, plan = answers("exercise_plan_right.json"), answers("plan_right.json")
    assert facts["worst"] == sorted(facts["worst"], reverse=True)
    cells = plan["small_cells"]
    assert cells * plan["mean"] == pytest.approx(sum(facts["worst"]) + (cells - 2) * plan["without"])
    assert facts["random"] > plan["mean"]
