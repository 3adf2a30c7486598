"""Figures show what they are given: every operation, every point, with units and a legend."""

import pytest
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from ppmodel import build
from ppmodel.costs import uniform_costs
from ppmodel.simulation import run_graph
from ppmodel.simulation import compile_graph
from ppmodel.plot import (
    context,
    plot_bars,
    plot_bubbles,
    plot_frontier,
    plot_grid,
    plot_memory,
    plot_runtime,
    plot_table,
    plot_timelines,
    style_of,
)
from ppmodel.specs import load_model, load_system
from ppmodel.studies import bubble_study, frontier_study, hanayo_study, memory_study, relative_to, runtime_study


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def model():
    return load_model("paper")


@pytest.fixture(scope="module")
def system():
    return load_system("mid_cp_slow_nw")


def boxes(axis):
    return [patch for patch in axis.patches if isinstance(patch, Rectangle) and patch.get_width() > 0]


@pytest.mark.parametrize(
    ("name", "size", "options"),
    [("1f1b", (4, 6), {}), ("chimera", (4, 8), {"concat": "forward-doubling"}), ("hanayo", (3, 3), {"waves": 2})],
)
def test_a_table_has_a_box_for_every_operation(name, size, options):
    """As many boxes as operations, inside the axes, ranks from the top."""
    schedule = build(name, *size, **options)
    axis = plot_table({name: schedule}, "title").axes[0]
    assert len(boxes(axis)) == schedule.num_operations
    assert axis.get_xlim() == (0, schedule.slots(reduction=1)[1].max())
    assert axis.yaxis_inverted()


def test_a_timeline_has_boxes_and_transfers():
    """A box for each operation that took place and a line for each transfer, at their times."""
    schedule = build("chimera", 4, 4)
    timeline = run_graph(compile_graph(schedule, allreduce="overlapped"), uniform_costs(schedule, 1, 2, 0.3, reduction=1))
    axis = plot_timelines({"Chimera": timeline}, "title", "context").axes[0]
    assert len(boxes(axis)) == schedule.num_operations
    assert len(axis.lines) == 4 * 2 * 3
    assert max(box.get_x() + box.get_width() for box in boxes(axis)) == pytest.approx(timeline.makespan_s)
    assert axis.get_xlabel() == "time (s)"


def test_studies_become_lines(model, system):
    """One line a schedule in every panel, all points on it, axes with units."""
    systems = [system, load_system("mid_cp_mid_nw")]
    study = runtime_study(model, systems, 4, [4, 8], ["gpipe", "1f1b", "chimera"])
    upper = plot_runtime(study, "title", "context").axes
    assert [len(axis.lines) for axis in upper] == [3] * 4
    assert upper[0].get_ylabel() == "T_sim (s)"
    grid = plot_grid(relative_to(study, "GPipe"), "GPipe", "title", "context").axes
    assert [len(axis.lines) for axis in grid] == [3] * 2  # two schedules and the zero line
    bubbles = plot_bubbles(bubble_study(4, [4, 8]), "title", "context").axes[0]
    assert len(bubbles.lines) == 6
    held = plot_memory(memory_study(model, system, [4], [4, 8]), "title", "context", 80e9).axes[0]
    assert "TiB" in held.get_ylabel()
    bars = plot_bars(hanayo_study(model, systems, 4, [1, 2]), "schedule", "title", "context").axes[0]
    assert len([box for box in bars.patches if box.get_height()]) == 4


def test_a_schedule_looks_the_same_everywhere():
    """Colour and marker belong to the schedule, not to its place in a figure, and no two share them."""
    labels = ["GPipe", "1F1B", "Chimera", "Hanayo W = 1", "Hanayo W = 4"]
    forward, backward = style_of(labels), style_of(labels[::-1])
    for name in ("GPipe", "1F1B", "Chimera"):
        assert forward[name]["color"] == backward[name]["color"]
    assert len({(style["color"], style["marker"]) for style in forward.values()}) == len(labels)


def test_the_context_names_what_is_shown():
    """Sizes, model and semantics, in one line."""
    assert context("paper", "blocking", "excluded", S=8, B=4) == (
        "S = 8, B = 4; model: paper; transfers: blocking; all-reduce: excluded"
    )


def test_a_frontier_has_every_family_and_the_symmetric_point(model, system):
    """One panel an S; the points of each family within the panel, the frontier, and the origin marked."""
    points = frontier_study(model, system, [4, 6], [8, 6]).points
    axes = plot_frontier(points, "title", "context").axes
    assert [axis.get_title(loc="left") for axis in axes] == ["S = 4, B = 4", "S = 6, B = 6"]
    for axis, size in zip(axes, [4, 6], strict=True):
        shown = points[(points.stages == size) & (points.relative_time <= 0.5) & (points.relative_peak <= 0.3)]
        assert sum(len(marks.get_offsets()) for marks in axis.collections) == len(shown)
        frontier, *_, origin = axis.lines
        assert len(frontier.get_xdata()) == shown.frontier.sum()
        assert origin.get_xydata().tolist() == [[0, 0]]
        low, high = axis.get_xlim()
        assert low < shown.relative_time.min() < shown.relative_time.max() < high
        assert "%" in axis.get_xlabel()
