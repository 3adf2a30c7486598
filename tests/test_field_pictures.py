"""Pictures of all schedules: a row, a mark or a line for each, none hidden, numbers as in the tables."""

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from ppmodel import plot, studies
from ppmodel.specs import load_model, load_system

SYSTEMS = ("mid_cp_mid_nw", "fast_cp_slow_nw")


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def study():
    systems = [load_system(name) for name in SYSTEMS]
    return studies.field_study(load_model("paper"), systems, [4, 8], [2], studies.field_cases())


@pytest.fixture(scope="module")
def point(study):
    return study[study.stages == 4]


def names_of(axis):
    return [text.get_text() for text in axis.get_yticklabels()]


def test_levels_have_a_row_for_each_schedule(point):
    """Smallest bubble on top; a mark for each level that a schedule has, on a scale from 0."""
    axis = plot.plot_levels(point[point.system == SYSTEMS[1]], "title", "context").axes[0]
    here = point[point.system == SYSTEMS[1]].set_index("schedule").table_bubble_ratio
    assert sorted(names_of(axis)) == sorted(here.index)
    assert here[names_of(axis)].is_monotonic_increasing
    formula = axis.lines[0].get_xdata()
    assert np.isfinite(formula).sum() == point[point.system == SYSTEMS[1]].formula.notna().sum()
    assert axis.get_xlim()[0] == 0


def test_places_are_written_into_their_cells(point):
    """Every place of the table is there as a number."""
    table = studies.level_rank_table(point, 4, 8)
    axis = plot.plot_places(table, {}, "title", "context").axes[0]
    wanted = table.drop(columns=["schedule", "family"]).to_numpy()
    written = {(text.get_position()[1] - 0.5, text.get_position()[0] - 0.5): text.get_text() for text in axis.texts}
    assert {(row, column): f"{wanted[row, column]:.0f}" for row, column in np.argwhere(~np.isnan(wanted))} == written


def test_agreement_has_a_mark_for_each_point(study):
    """No size or system is left out."""
    ranks = studies.level_rank_study(study, 0.01)
    axis = plot.plot_agreement(ranks, "title", "context").axes[0]
    marks = [line for line in axis.lines if line.get_marker() not in ("None", None, "")]
    assert sum(len(line.get_xdata()) for line in marks) == len(ranks)


def test_lost_advantages_are_framed(point):
    """A frame for each cell in which a smaller bubble is no shorter time, and for no other."""
    table, lost = studies.advantage_table(studies.advantage_study(point, "1F1B"), 4, 8, list(SYSTEMS))
    axis = plot.plot_advantages(table, lost, {}, "title", "context").axes[0]
    frames = [patch.get_xy() for patch in axis.patches if isinstance(patch, Rectangle)]
    cells = np.argwhere(lost.to_numpy()).tolist()
    assert sorted([int(y), int(x)] for x, y in frames) == cells != []


def test_fronts_show_every_point_and_name_those_on_the_front(study):
    """One panel a system; all points inside it, and a name at each place of the front."""
    fronts = studies.front_study(study[study.stages == 8])
    axes = plot.plot_fronts(fronts, {}, "title", "context").axes
    for axis, system in zip(axes, SYSTEMS, strict=True):
        here = fronts[fronts.system == system]
        *points, step = axis.lines
        assert sum(len(line.get_xdata()) for line in points) == len(here)
        assert len(step.get_xdata()) == here.front.sum()
        shown = ", ".join(text.get_text() for text in axis.texts)
        assert all(name in shown for name in here.schedule[here.front])
        assert axis.get_ylim()[0] < here.t_sim_s.min() < here.t_sim_s.max() < axis.get_ylim()[1]


def test_the_map_of_fronts_has_a_dot_for_each_on_one(study):
    """A dot where some B is on the front, else how far behind."""
    best = studies.nearest(studies.front_study(study))
    axis = plot.plot_front_map(best, {}, "title", "context").axes[0]
    texts = [text.get_text() for text in axis.texts]
    assert texts.count("●") == best.front.sum()
    assert len([text for text in texts if text.endswith("%")]) == (~best.front).sum()


def test_strips_tell_bubble_and_messages():
    """A row for each schedule with its bubble and messages, and a stroke where it stops being faster."""
    ratios = np.geomspace(0.01, 10, 9)
    relative, table = studies.message_study(4, 2, ratios, ["zb-v", "zb-h1"], "1f1b")
    axis = plot.plot_worth(relative, table, [0.1], "title", "context").axes[0]
    assert names_of(axis) == [f"ZB-V  {table.bubble[0]:.0%}, \u00d72", f"ZB-H1  {table.bubble[1]:.0%}, \u00d71"]
    strokes = [line.get_xdata()[0] for line in axis.lines if line.get_linewidth() == 2]
    assert strokes == [table.worth_until[0]]


def test_convergence_has_a_line_for_each_schedule(study):
    """A panel for each family and system, few lines in each, and all schedules together."""
    figure = plot.plot_convergence(study[study.stages == 4], {}, "title", "context")
    panels = np.array(figure.axes).reshape(-1, len(SYSTEMS))
    assert len(panels) == study.family.nunique()
    assert sum(len(axis.lines) for axis in panels[:, 0]) == study[study.stages == 4].schedule.nunique()
    assert max(len(axis.lines) for axis in panels[:, 0]) <= 8
