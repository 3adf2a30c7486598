"""A schedule of one's own: its file is read, its mistakes are shown where they are, and its rank is what it says."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from strategies import is_legal

from ppmodel import build, names
from ppmodel.costs import model_costs, uniform_costs
from ppmodel.errors import CostError
from ppmodel.export import read_table
from ppmodel.grid import Grid
from ppmodel.metrics import messages_sent, peak_activations
from ppmodel.ops import OpKind
from ppmodel.plot import plot_marked, plot_rank
from ppmodel.plot.own import kept_apart
from ppmodel.schedules import register_file, registry
from ppmodel.simulation import compile_graph, run_graph
from ppmodel.specs import load_model, load_system, nics_of, template_path
from ppmodel.studies import (
    between,
    between_text,
    marked_cells,
    rank_of,
    rank_study,
    rank_table,
    rank_text,
    refusal,
    refusal_text,
    rivals_text,
    timelines_beside,
)
from ppmodel.studies.own import beaten_by

ROOT = Path(__file__).parents[1]
SLOW = partial(uniform_costs, forward=1, backward=2, comm=1.0, nodes=[0, 0, 1, 1], node_comm=0.1)


@pytest.fixture
def own_registry(monkeypatch):
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))


@pytest.fixture
def generated(monkeypatch):
    """Name of the template's generator, registered."""
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    return register_file(template_path("my_schedule", ".py"))[0]


@pytest.fixture
def table():
    return read_table(template_path("my_table", ".csv"))


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


# ---- the files ---------------------------------------------------------------------------------------


MISTAKES = {
    "missing_operation": ("2B3 is missing from the table", [(2, "2F3")]),
    "deadlock": ("0B0 waits for 1B0", [(0, "0B0"), (1, "1F3"), (2, "2F3"), (3, "3F3")]),
    "wrong_rank": ("3F4 is misplaced", [(2, "3F4")]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_marked_where_it_is(name):
    """The refusal names the operation, and marks the cells in question, in the text and in the picture."""
    short, cells = MISTAKES[name]
    refused = refusal(template_path(name, ".csv"))
    assert refused.short == short
    assert refused.said.startswith(f"{name}.csv: rank {cells[0][0]} = ")
    marked = marked_cells({name: refused})
    assert list(zip(marked.rank, marked.operation, strict=True)) == cells
    axis = plot_marked({name: refused.grid}, "title", "context").axes[0]
    frames = [patch for patch in axis.patches if not patch.get_fill()]
    assert len(frames) == len(cells)
    assert [axis.texts[n].get_text() for n in range(len(axis.texts)) if axis.texts[n].get_weight() == "bold"] == [
        operation for _, operation in cells
    ]


def test_a_schedule_is_not_refused():
    """A table without a mistake has nothing to mark, and says so."""
    assert refusal(template_path("my_table", ".csv")) is None
    assert refusal_text({"mine": None}) == "**mine**: a schedule, nothing to mark."
    assert marked_cells({"mine": None}).empty
    assert plot_marked({}, "title", "context").axes == []


def test_a_cell_that_is_no_operation_has_no_grid(tmp_path):
    """What cannot be drawn is said in its line alone, with file and line."""
    (tmp_path / "mine.csv").write_text("0F0,0G0")
    refused = refusal(tmp_path / "mine.csv")
    assert refused.grid is None
    said = refusal_text({"mine": refused})
    assert said.startswith("**mine.csv**:1: ")
    assert "'0G0': is not an operation" in said


def test_of_a_large_table_the_marked_cells_are_drawn():
    """Devices and cells around the mark, which is on its own cell; the others are left out."""
    grid = Grid([[f"{rank}F{place}" for place in range(100)] for rank in range(40)], {(30, 60)})
    axis = plot_marked({"large": grid}, "title", "context").axes[0]
    assert len(axis.texts) == len(grid.ranks) * len(grid.places) < 400
    assert [text.get_text() for text in axis.texts if text.get_weight() == "bold"] == ["30F60"]
    assert [label.get_text() for label in axis.get_yticklabels()] == [str(rank) for rank in grid.ranks]


# ---- the rank ----------------------------------------------------------------------------------------


def test_a_rank_is_single_simulations(table):
    """Each row repeats what one simulation and one table give, for every schedule that is legal at the size."""
    study = rank_study("mine", table, SLOW).set_index("schedule")
    legal = [name for name in names() if is_legal(name, (4, 8))]
    assert len(study) == len(legal) + 1
    for name, schedule in (("mine", table), ("Chimera", build("chimera", 4, 8)), ("GPipe", build("gpipe", 4, 8))):
        row = study.loc[name]
        allreduce = "blocking" if schedule.num_replicas > 1 else "excluded"
        assert row.t_sim_s == run_graph(compile_graph(schedule, allreduce=allreduce), SLOW(schedule)).makespan_s
        assert row.peak_activations == peak_activations(schedule).max()
        assert row.messages == messages_sent(schedule).sum()
        assert row.weights == schedule.num_replicas
    assert study.formula["1F1B"] == study.bubble_ratio["1F1B"] == pytest.approx(3 / 11)
    assert np.isnan(study.formula["mine"])
    assert study.own.tolist().count(True) == 1


def test_unbeaten_schedules_are_beaten_by_none(table):
    """What is unbeaten has no rival with less of one and no more of the other; what is not has one."""
    study = rank_study("mine", table, SLOW)
    for one in study.itertuples():
        rivals = [
            other
            for other in study.itertuples()
            if other.t_sim_s <= one.t_sim_s * (1 + 1e-9)
            and other.peak_activations <= one.peak_activations
            and (other.t_sim_s < one.t_sim_s * (1 - 1e-9) or other.peak_activations < one.peak_activations)
        ]
        assert one.unbeaten == (not rivals)


def test_the_first_by_time_comes_first_and_equals_share_a_place(table):
    """Rows rise in time; GPipe and eager 1F1B take equally long, and the one that holds less stands first."""
    study = rank_study("mine", table, SLOW)
    assert (study.t_sim_s.diff().dropna() > -1e-9).all()
    order = study.schedule.tolist()
    assert order.index("eager 1F1B") == order.index("GPipe") - 1
    shown = rank_table(study).set_index("schedule")
    assert shown.loc["GPipe", ""] == shown.loc["eager 1F1B", ""]
    place, equals = rank_of(study, "t_sim_s")
    assert place == order.index("mine") + 1
    assert equals == 0
    assert shown.index[place - 1] == "→ mine"


def test_a_registered_schedule_is_ranked_once_and_by_its_formula(generated, table):
    """A schedule that is registered itself is not its own rival; a name that is taken is told apart."""
    study = rank_study("1F1B", build("1f1b", 4, 8), SLOW, registered="1f1b")
    assert study.schedule.tolist().count("1F1B") == 1
    assert study[study.own].formula.item() == pytest.approx(3 / 11)
    study = rank_study("1F1B", table, SLOW)
    assert study[study.own].schedule.item() == "1F1B (yours)"
    assert registry.get(generated).label in set(study.schedule)


def test_schedules_that_a_model_does_not_fit_are_left_out():
    """Eight stages do not fit a model of four blocks: no row for another schedule, an error for one's own."""
    costs_of = partial(model_costs, model=replace(load_model("paper"), blocks=4), system=load_system("mid_cp_mid_nw"))
    study = rank_study("mine", build("1f1b", 4, 4), costs_of)
    assert not study.schedule.str.contains("Hanayo").any()
    assert "GPipe" in set(study.schedule)
    with pytest.raises(CostError):
        rank_study("mine", build("1f1b", 8, 8), costs_of)


def test_the_idea_of_the_template_pays(table):
    """It saves most of what eager 1F1B saves, for a third of the activations, at the bubble ratio of 1F1B."""
    study = rank_study("mine", table, SLOW)
    saved, added = between(study, "1F1B", "eager 1F1B")
    spans = study.set_index("schedule").t_sim_s
    assert saved == (spans["1F1B"] - spans["mine"]) / (spans["1F1B"] - spans["eager 1F1B"]) > 0.8
    assert added == pytest.approx((5 - 4) / (7 - 4))
    assert f"**mine** saves {saved:.0%}, for 33%" in between_text(study, "1F1B", "eager 1F1B")
    ratios = study.set_index("schedule").bubble_ratio
    assert ratios["mine"] == ratios["1F1B"] == ratios["eager 1F1B"]
    assert between_text(study, "eager 1F1B", "1F1B") == between_text(study, "1F1B", "nothing") == ""


def test_what_the_rivals_have_in_common_is_counted(generated):
    """Who splits the backward is read off the tables; rivals that do not are named, and no rival is no sentence."""
    system = load_system("slow_between_nodes")
    costs_of = partial(model_costs, model=load_model("paper"), system=system)
    study = rank_study("mine", build(generated, 8, 32), costs_of, generated, nics=nics_of(system, 8))
    of_labels, others = {registry.get(name).label: name for name in names()}, study[~study.own]
    tables = [build(of_labels[label], 8, 32) for label in others.schedule]
    assert others.halves.tolist() == [bool((table.kind == OpKind.W).any()) for table in tables]
    rivals = beaten_by(study, "mine")
    assert rivals_text(study.assign(halves=True)).startswith("Whatever beats mine on both time and peak splits")
    named = rivals_text(study.assign(halves=study.schedule != rivals[0]))
    assert named.startswith(f"Of the {len(rivals)} schedules that beat mine")
    assert named.endswith(f"{len(rivals) - 1} split the backward; {rivals[0]} does not split it.")
    assert rivals_text(study[~study.schedule.isin(rivals)]) == ""


def test_the_text_says_what_the_study_holds(table):
    """Places, times and rivals in words; copies of the weights where a rival keeps more of them."""
    study = rank_study("mine", table, SLOW)
    text = rank_text(study)
    assert f"Of the {len(study)} schedules" in text
    for measure, words_for in (("t_sim_s", "simulated time"), ("peak_activations", "peak activations")):
        assert f"number {rank_of(study, measure)[0]} by {words_for}" in text
    rivals = study[(study.t_sim_s < study[study.own].t_sim_s.item()) & (study.peak_activations <= 5)]
    assert ("None beats it" in text) == rivals.empty
    assert rivals.empty or "(weights: 2 to 1)" in text
    best = study.assign(own=study.schedule == study.schedule[0])
    assert "None beats it on both" in rank_text(best)


def test_the_picture_has_a_point_and_a_name_for_each(table):
    """Every schedule is named once, one's own in bold, and no name lies over another."""
    study = rank_study("mine", table, SLOW)
    axis = plot_rank(study, "title", "context").axes[0]
    assert sorted(text.get_text() for text in axis.texts) == sorted(study.schedule)
    assert [text.get_text() for text in axis.texts if text.get_weight() == "bold"] == ["mine"]
    assert sum(len(points.get_offsets()) for points in axis.collections) == len(study)


@given(wanted=st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_heights_of_names_keep_their_distance(wanted):
    """Names rise with their points, a gap apart, within the axis."""
    wanted, gap = sorted(wanted), min(0.06, 1 / max(1, len(wanted) - 1))
    heights = kept_apart(wanted, gap)
    assert (np.diff(heights) >= gap - 1e-12).all()
    assert heights[-1] <= 1
    assert heights[0] >= -1e-9


def test_timelines_stand_beside_ones_own(table):
    """One's own first, then the others of its size; those that are not legal there are left out."""
    timelines = timelines_beside("mine", table, ["1f1b", "chimera", ("hanayo", {"waves": 2})], SLOW)
    assert list(timelines)[:3] == ["mine", "1F1B", "Chimera"]
    assert timelines["mine"].makespan_s == run_graph(compile_graph(table), SLOW(table)).makespan_s
