"""Figures show what they are given: every operation, every point, with units and a legend."""

import subprocess
import sys
from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import rgb_to_hsv, to_hex, to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from refusals import refused

import ppmodel as pp
from ppmodel import build, schedules
from ppmodel.clusters.specs import load_model, load_system, packaged
from ppmodel.plot import (
    context,
    dark,
    plot_bars,
    plot_heatmap,
    plot_lines,
    plot_parts,
    plot_ranges,
    plot_scatter,
    plot_table,
    plot_timelines,
    redrawn,
    style_of,
)
from ppmodel.plot.names import kept_apart
from ppmodel.plot.palette import contrast
from ppmodel.plot.style import in_words, log_ticks
from ppmodel.plot.themes import GROUND, ON_DARK, ON_LIGHT
from ppmodel.simulation import compile_graph, run_graph, uniform_costs
from ppmodel.studies.analysis import relative_to
from ppmodel.studies.points import PARTS
from ppmodel.tables import FAMILIES, family

SYSTEMS = ["mid_cp_slow_nw", "mid_cp_mid_nw"]
IN_WORDS = ["mid compute, slow network", "mid compute, mid network"]


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
    timeline = run_graph(
        compile_graph(schedule, allreduce="overlapped"), uniform_costs(schedule, 1, 2, 0.3, reduction=1)
    )
    axis = plot_timelines({"Chimera": timeline}, "title", "context").axes[0]
    assert len(boxes(axis)) == schedule.num_operations
    assert len(axis.lines) == 4 * 2 * 3
    assert max(box.get_x() + box.get_width() for box in boxes(axis)) == pytest.approx(timeline.makespan_s)
    assert axis.get_xlabel() == "time (s)"


@pytest.fixture(scope="module")
def frame():
    return pp.compare(["gpipe", "1f1b", "chimera"], 4, [2, 4, 8], model="paper", system=SYSTEMS)


def test_frames_become_lines(frame):
    """One line a schedule in every panel, a row of panels a column, all defined points on them, axes with units."""
    axes = plot_lines(frame, "microbatches", ["makespan_s", "idle_ratio"], "title", panel="system").axes
    assert [len(axis.lines) for axis in axes] == [3] * 4
    assert [len(line.get_xdata()) for line in axes[0].lines] == [3, 3, 2]  # Chimera is not defined at B = 2
    assert [axis.get_ylabel() for axis in axes] == ["time (s)", "", "idle", ""]
    assert [axis.get_title(loc="left") for axis in axes] == [*IN_WORDS, "", ""]
    assert all(axis.get_ylim()[0] == 0 for axis in axes)


def test_lines_are_named_where_they_end_apart():
    """In every panel: at the end of a row all of them, elsewhere those whose ends are apart from all others."""
    ends = {"near": {"a": 1.0, "b": 1.01, "c": 2.0}, "far": {"a": 1.0, "b": 1.5, "c": 2.0}}
    ends["last"] = ends["near"]
    points = [(place, label, end) for place, lines in ends.items() for label, end in lines.items()]
    rows = [(place, label, x, y) for place, label, end in points for x, y in ((1, end), (4, end))]
    frame = pd.DataFrame(rows, columns=["place", "label", "x", "size"])
    axes = plot_lines(frame, "x", "size", "title", panel="place").axes
    named = [sorted(text.get_text() for text in axis.texts) for axis in axes]
    assert named == [["c"], ["a", "b", "c"], ["a", "b", "c"]]


def test_a_name_inside_a_panel_lies_on_no_line():
    """Below its line where that falls to its end, and left out where it has no room on either side."""
    points = {"the lowest": [9, 6, 3, 0.5], "in the middle": [10, 8, 6, 4], "the highest": [12, 11.5, 11, 10.5]}
    rows = [(place, label, x, y) for place in "ab" for label, ends in points.items() for x, y in enumerate(ends)]
    frame = pd.DataFrame(rows, columns=["place", "label", "x", "size"])
    figure = plot_lines(frame, "x", "size", "title", panel="place")
    figure.draw_without_rendering()
    axis = figure.axes[0]
    assert axis.texts
    curves = [axis.transData.transform(line.get_xydata()).T for line in axis.lines]
    for box in (Text.get_window_extent(text) for text in axis.texts):
        across = np.linspace(box.x0, box.x1)
        assert not any(((box.y0 < y) & (y < box.y1)).any() for y in (np.interp(across, *curve) for curve in curves))


@pytest.mark.parametrize(
    ("plot", "given"),
    [
        (plot_lines, ("microbatches", "idle_ratio")),
        (plot_bars, ("microbatches", "idle_ratio")),
        (plot_heatmap, ("microbatches", "label", "idle_ratio")),
    ],
)
def test_several_rows_at_one_place_are_refused(frame, plot, given):
    """With what they differ in."""
    with refused(pp.PPModelError, "frame", "must have one row per", remedy="select"):
        plot(frame, *given, "title")
    assert plot(frame, *given, "title", panel="system").axes


@pytest.mark.parametrize("plot", [plot_lines, plot_bars, plot_scatter])
def test_no_row_is_left_out_of_a_picture(plot):
    """What has no value for its panel is refused."""
    points = pd.DataFrame(
        {"pp": range(5), "makespan_s": 1.0, "layout": ["a", "b", None, "a", "b"], "comm": range(5), "label": "GPipe"}
    )
    with refused(pp.PPModelError, "column", "has no value in 1 of 5 rows", value="layout"):
        plot(points, "pp", "makespan_s", "title", panel="layout")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("x", ["microbatches", "x"])
def test_one_point_in_each_panel_is_drawn(x):
    """On logarithmic axes, too, which need two ends."""
    points = pd.DataFrame({x: 32.0, "y": 0.1, "line": "a", "panel": ["p", "q", "r"]})
    figure = plot_lines(points, x, "y", "One point", line="line", panel="panel", log=("x", "y"))
    figure.canvas.draw()
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["32"]
    plot_scatter(points, x, "y", "One point", panel="panel", log=("x", "y")).canvas.draw()


def test_lines_around_zero_show_it_and_limits_are_named(frame):
    """A line at 0 in every panel where values are below it; limits stand in all panels and once in the legend."""
    figure = plot_lines(
        relative_to(frame, "GPipe"), "microbatches", "relative", "title", panel="system", limits={"x": 0.5}
    )
    assert [len(axis.lines) for axis in figure.axes] == [2 + 2] * 2
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["x"]


def test_panels_on_one_scale_show_what_is_below_zero(frame):
    """A panel without values below 0 cuts off none of another's; each may have a horizontal axis of its own."""
    relative = relative_to(frame, "GPipe")
    relative["panel"] = (relative.relative < 0).map({True: "less", False: "more"})
    figure = plot_lines(relative, "comm_over_forward", "relative", "title", panel="panel", own_x=True, log="x")
    assert all(axis.get_ylim()[0] < relative.relative.min() for axis in figure.axes)
    assert len({axis.get_xlim() for axis in figure.axes}) == 2


def test_dashes_tell_lines_of_one_colour_apart(frame):
    """A line for each value of the dashed column, in the colour of its schedule; grey entries explain the dashes."""
    long = frame.melt(["label", "system", "microbatches"], ["makespan_s", "busy_s"], "time", "seconds").dropna()
    figure = plot_lines(long[long.system == SYSTEMS[0]], "microbatches", "seconds", "title", dash="time")
    lines = figure.axes[0].lines
    assert len(lines) == 6
    assert len({line.get_color() for line in lines}) == 3
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["makespan_s", "busy_s"]


def test_more_panels_than_fit_in_a_row(frame):
    """Panels go on below; those that are left over are hidden, and the axis above an empty place is labelled."""
    frame = frame.assign(place=frame.system + frame.microbatches.map(", B = {}".format))
    frame = frame[frame.place != frame.place.iloc[-1]]
    axes = plot_lines(frame, "microbatches", "makespan_s", "title", panel="place").axes
    assert [axis.get_visible() for axis in axes] == [True] * 5 + [False]
    assert axes[2].get_xlabel()


@pytest.mark.parametrize("horizontal", [False, True])
def test_frames_become_bars(frame, horizontal):
    """A bar for each group and schedule, of its length; names of groups whole."""
    rows = frame[frame.microbatches == 8]
    axis = plot_bars(rows, "system", "makespan_s", "title", horizontal=horizontal).axes[0]
    sizes = sorted(box.get_width() if horizontal else box.get_height() for box in axis.patches)
    assert sizes == pytest.approx(sorted(rows.makespan_s))
    names = axis.get_yticklabels() if horizontal else axis.get_xticklabels()
    assert [name.get_text().replace("\n", " ") for name in names] == IN_WORDS


def test_bars_stand_on_one_another():
    """Stacked, the bars of a group begin where the one before ends."""
    frame = pp.compare(["gpipe", "1f1b"], 4, 8, forward=1, backward=2)
    tops = plot_bars(frame, "pp", "makespan_s", "title", stacked=True).axes[0].patches
    assert tops[1].get_y() == tops[0].get_height()
    alone = plot_bars(frame, "label", "makespan_s", "title").axes[0].patches
    assert [bar.get_height() for bar in alone if bar.get_height()] == frame.makespan_s.tolist()
    assert len({bar.get_width() for bar in alone}) == 1


@pytest.mark.parametrize("stacked", [False, True])
def test_no_two_bars_look_the_same(stacked):
    """From the seventh on some share a colour: those are hatched, in the legend, too; what is refused takes no look."""
    frame = pp.compare(
        ["zb-h2", *(f"interleaved-1f1b:chunks={count}" for count in range(2, 9))], 4, 6, forward=1, backward=2
    )
    frame.loc[frame.schedule == "zb-h2", "makespan_s"] = np.nan
    figure = plot_bars(frame, "microbatches", "makespan_s", "title", stacked=stacked)
    looks = [(patch.get_facecolor(), patch.get_hatch()) for patch in figure.legends[0].get_patches()]
    assert len(set(looks)) == 8
    bars = {patch.get_height(): patch for patch in figure.axes[0].patches}
    drawn = [bars[seconds] for seconds in frame.makespan_s.dropna()] if not stacked else figure.axes[0].patches
    assert [(bar.get_facecolor(), bar.get_hatch()) for bar in drawn] == looks[1:]


def test_a_heatmap_writes_every_number(frame):
    """A text a cell, in its form; cells without a number stay empty; frames where asked for."""
    rows = frame[frame.system == SYSTEMS[0]].assign(best=lambda rows: rows.idle_ratio == rows.idle_ratio.min())
    axis = plot_heatmap(rows, "microbatches", "label", "idle_ratio", "title", framed="best").axes[0]
    said = [text.get_text() for text in axis.texts]
    assert len(said) == 8
    assert f"{rows.idle_ratio.min():.0%}" in said
    assert len(boxes(axis)) == 1
    axis = plot_heatmap(rows, "microbatches", "label", "makespan_s", "title").axes[0]
    assert f"{rows.makespan_s.min():.3g}" in [text.get_text() for text in axis.texts]


def test_points_with_one_place_share_a_name(frame):
    """A point a row; names of points that coincide are written once, as equal."""
    rows = frame[(frame.system == SYSTEMS[0]) & (frame.microbatches == 4)].assign(makespan_s=1.0, peak_activations=2.0)
    axis = plot_scatter(rows, "makespan_s", "peak_activations", "title", name="label").axes[0]
    assert [text.get_text() for text in axis.texts] == ["GPipe = 1F1B = Chimera"]


def test_a_schedule_looks_the_same_everywhere():
    """Colour and marker belong to the schedule, not to its place in a figure, and no two share them."""
    labels = ["GPipe", "1F1B", "Chimera", "Hanayo W = 1", "Hanayo W = 4"]
    forward, backward = style_of(labels), style_of(labels[::-1])
    assert all(forward[name]["color"] == backward[name]["color"] for name in labels)
    every = style_of([*labels, *pp.names()])  # more than there are colours
    for styles in (forward, every):
        assert len({(style["color"], style["marker"]) for style in styles.values()}) == len(styles)


def test_names_of_near_points_do_not_lie_on_one_another():
    """Each name stands at the first place beside its point that no other name or point takes."""
    frame = pd.DataFrame(
        {"time": [1.0, 1.01, 1.02], "peak": [4.0, 4.0, 4.1], "label": ["asymmetric", "Chimera", "1F1B"]}
    )
    axis = plot_scatter(frame, "time", "peak", "title", name="label").axes[0]
    boxes = [text.get_window_extent() for text in axis.texts]
    assert len(boxes) == 3
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_a_notebook_shows_a_figure_once(monkeypatch):
    """With the backend of notebooks a figure is its cell's value, and pyplot does not show it a second time."""
    monkeypatch.setattr(plt, "get_backend", lambda: "module://matplotlib_inline.backend_inline")
    plot_table({"1F1B": build("1f1b", 2, 2)}, "title")
    assert not plt.get_fignums()


def test_a_crowd_is_named_in_a_column():
    """Names that have no place beside their points stand in a column, none over another."""
    crowd = pd.DataFrame({"time": [1 + n // 2 / 500 for n in range(40)] + [9], "peak": [4.0] * 40 + [9]})
    crowd["label"] = [f"schedule {n}" for n in range(41)]
    axis = plot_scatter(crowd, "time", "peak", "title", name="label", log=()).axes[0]
    named = [name for text in axis.texts for name in text.get_text().split(" = ")]
    assert sorted(named) == sorted(crowd.label)
    assert len(axis.texts) == 21
    heights = sorted(text.xyann[1] for text in axis.texts)
    assert min(after - one for one, after in pairwise(heights)) > 0.02


def test_room_for_names_ends_at_nothing():
    """An axis of what is never below 0, such as memory, does not go there."""
    frame = pd.DataFrame({"gib": [14.0, 69.0], "s": [2.4, 1.9], "name": ["a", "b"], "front": True})
    assert plot_scatter(frame, "gib", "s", "title", name="name", front="front", log=()).axes[0].get_xlim()[0] == 0


@given(wanted=st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_heights_of_names_keep_their_distance(wanted):
    """Names rise with their points, a gap apart, within the axis."""
    wanted, gap = sorted(wanted), min(0.06, 1 / max(1, len(wanted) - 1))
    heights = kept_apart(wanted, gap)
    assert (np.diff(heights) >= gap - 1e-12).all()
    assert -1e-9 <= heights[0] <= heights[-1] <= 1


@pytest.mark.parametrize("horizontal", [False, True])
def test_parts_stand_on_one_another(horizontal):
    """A bar a row, each panel with its own; columns stack to their sum, and one that is 0 everywhere has no legend."""
    rows = pd.DataFrame(
        {"n": [1, 2, 4], "p": ["left", "left", "right"], "a": [1, 2, 3], "b": [0, 0, 0], "c": [0, 5, 6]}
    )
    called = {"a": "first", "b": "none", "c": "last"}
    figure = plot_parts(rows, "n", called, "title", axis="s", panel="p", horizontal=horizontal)
    left, right = figure.axes
    ends = [
        (bar.get_x() + bar.get_width(), bar.get_y() + bar.get_height())[not horizontal] for bar in left.containers[-1]
    ]
    assert ends == [1, 7]
    names = [(axis.get_yticklabels() if horizontal else axis.get_xticklabels()) for axis in (left, right)]
    assert [[text.get_text() for text in axis] for axis in names] == [["1", "2"], ["4"]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["first", "last"]
    assert (
        left.containers[1][0].get_facecolor()
        == plot_parts(rows, "n", called, "").axes[0].containers[1][0].get_facecolor()
    )


def test_bars_lie_in_panels():
    """A panel a value, with the groups from the top; stacked bars end at their sum, on one scale."""
    rows = pd.DataFrame({"who": ["a", "a", "b", "b"] * 2, "part": ["x", "y"] * 4, "c": [0] * 4 + [1] * 4})
    rows["time"] = range(1, 9)
    axes = plot_bars(rows, "who", "time", "title", bar="part", panel="c", stacked=True, horizontal=True).axes
    assert [axis.get_title("left") for axis in axes] == ["c = 0", "c = 1"]
    assert axes[0].yaxis_inverted()
    assert axes[0].get_xlim() == axes[1].get_xlim()
    assert [bar.get_x() + bar.get_width() for bar in axes[1].containers[-1]] == [11, 15]


@given(st.floats(0, 4), st.floats(0.02, 5))
def test_labels_of_a_logarithmic_axis_stand_apart(low, decades):
    """Whatever its range: two to four labels, in it, none nearer than a seventh of it."""
    ticks = log_ticks(10**low, 10 ** (low + decades))
    places = (np.log10(ticks) - low) / decades
    assert 2 <= len(ticks) <= 4
    assert -1e-9 <= places.min() <= places.max() <= 1 + 1e-9
    assert np.diff(places).min() > 1 / 7


def test_a_scatter_shows_limits():
    """A vertical line in every panel, named in the legend."""
    frame = pp.compare(["gpipe", "1f1b"], [4, 8], [8, 16], forward=1, backward=2)
    limits = {"limit": 5.0}
    figure = plot_scatter(frame, "peak_activations", "makespan_s", "title", group="label", panel="pp", limits=limits)
    assert all(any(list(line.get_xdata()) == [5.0, 5.0] for line in axis.lines) for axis in figure.axes)
    assert "limit" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_frames_of_a_heatmap_lie_above_its_cells():
    """A framed cell's frame is drawn over the colours, and a number that rounds to 0 has no sign."""
    frame = pp.compare(["gpipe", "1f1b"], 4, 8, forward=1, backward=2).assign(
        change=[0.001, -0.3], framed=[False, True]
    )
    axis = plot_heatmap(frame, "pp", "label", "change", "title", form="{:+.0%}", framed="framed", centre=0).axes[0]
    (outline,) = [patch for patch in axis.patches if isinstance(patch, Rectangle)]
    assert outline.get_zorder() > max(cells.get_zorder() for cells in axis.collections)
    assert [text.get_text() for text in axis.texts] == ["0%", "-30%"]


def test_timelines_have_one_legend():
    """The legend has the kinds of operations of all schedules, not of one."""
    runs = {name: pp.simulate(name, 4, 4, forward=1, backward=2, comm=0.1) for name in ("gpipe", "zb-h1")}
    figure = plot_timelines(runs, "title", "context", unit="F")
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {"forward", "backward", "input gradient", "weight gradient", "transfer"} <= set(shown)


def test_narrow_boxes_have_no_edges():
    """Operations of a short run have edges; of a longer one, whose boxes are narrow, none, which would cover them."""
    edges = []
    for count in (8, 24):
        run = pp.simulate("v-half", 4, count, forward=1, backward=2, comm=1)
        figure = plot_timelines({"v-half": run}, "title", "context")
        edges.append({box.get_linewidth() for box in boxes(figure.axes[0])})
    assert edges == [{0.5}, {0.0}]


def test_ranges_lie_where_their_columns_say():
    """A thin line, a thick one and a marker for each row."""
    columns = ["low", "less", "middle", "more", "high"]
    frame = pd.DataFrame(np.arange(5) + np.arange(4)[:, None], columns=columns).assign(label=list("abcd"))
    (axis,) = plot_ranges(frame, columns, "title").axes
    lines = [lines for lines in axis.collections if isinstance(lines, LineCollection)]
    spans = sorted((line[0, 0], line[1, 0]) for part in lines for line in part.get_segments())
    assert spans == sorted([*zip(frame.low, frame.high, strict=True), *zip(frame.less, frame.more, strict=True)])
    (points,) = (points for points in axis.collections if isinstance(points, PathCollection))
    assert [point[0] for point in points.get_offsets()] == list(frame.middle)


@pytest.mark.parametrize("labels", [["GPipe", "1F1B", "Chimera"], ["ZB-V", "Hanayo W = 4", "GPipe", "mine"]])
def test_style_belongs_to_the_schedule(labels):
    """Whatever else is drawn: marker, dash and, unless its family has several, colour; families have a hue each."""
    alone = {text: style_of([text])[text] for text in labels}
    for text, style in style_of(labels[::-1]).items():
        if text != "mine":
            assert all(style[key] == alone[text][key] for key in ("marker", "ls"))
            assert (style["color"] == alone[text]["color"]) == (text not in ("1F1B", "Hanayo W = 4"))
    hues = {name: {} for name in FAMILIES}
    for entry in schedules.entries():
        colour = style_of([entry.label])[entry.label]["color"]
        hues[family(schedules.small(entry.name))][entry.name] = rgb_to_hsv(to_rgb(colour))[0]
    for one in hues.values():
        assert np.ptp(list(one.values())) < 0.02
    middles = sorted(np.mean(list(one.values())) for one in hues.values())
    assert np.diff(middles).min() > 0.03


def test_few_schedules_have_no_hue_in_common():
    """Neither two blues nor two browns: the page on runtime draws three schedules of one family and two of another."""
    styles = style_of(["GPipe", "1F1B", "eager 1F1B", "Chimera", "Chimera forward-doubling"])
    hues = sorted(rgb_to_hsv(to_rgb(style["color"]))[0] for name, style in styles.items() if name != "1F1B")
    assert np.diff(hues).min() > 0.03
    assert rgb_to_hsv(to_rgb(styles["1F1B"]["color"]))[1] == 0  # grey


def test_names_stand_at_the_ends_of_lines():
    """In place of a legend: one for each line, in the last panel of a row, none over another, dark enough to read."""
    many = pp.compare(["gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-v", "looped-bfs", "interleaved-1f1b"], 4, [8, 16],
                      model="paper", system=SYSTEMS)  # fmt: skip
    figure = plot_lines(many, "microbatches", "makespan_s", "title", panel="system")
    assert not figure.legends
    assert [len(axis.texts) for axis in figure.axes] == [0, 7]
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in figure.axes[-1].texts]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert all(contrast(to_rgb(text.get_color()), (1, 1, 1)) >= 4.5 for text in figure.axes[-1].texts)


def test_a_phone_gets_one_panel_in_a_row(frame):
    """The same lines, one panel below the other, in a figure less than half as wide; nothing else changes."""
    wide = plot_lines(frame, "microbatches", ["makespan_s", "idle_ratio"], "title", panel="system")
    phone = redrawn(wide, 3.7)
    assert phone.get_figwidth() < wide.get_figwidth() / 2
    assert {axis.get_subplotspec().colspan.start for axis in phone.axes} == {0}
    for one, other in zip(wide.axes, phone.axes, strict=True):
        assert [list(line.get_ydata()) for line in one.lines] == [list(line.get_ydata()) for line in other.lines]
    assert redrawn(plt.figure(), 3.7) is None


@pytest.mark.parametrize("shape", ["cells", "parts", "groups", "ranges"])
def test_long_names_stand_above_their_rows_on_a_phone(shape):
    """Where a name leaves no room beside it: rows then have the width, and no name lies on another row."""
    names = ["a schedule with a long name", "another with a name of many letters"]
    frame = pd.DataFrame({"label": np.repeat(names, 8), "x": [*range(8)] * 2, "value": 0.123, "more": 0.2})
    ends = frame[frame.x < 2].astype({"x": str})
    phone = redrawn(
        {
            "cells": lambda: plot_heatmap(frame, "x", "label", "value", "title"),
            "parts": lambda: plot_parts(
                frame[frame.x == 0], "label", {"value": "", "more": "+"}, "title", horizontal=True
            ),
            "groups": lambda: plot_bars(ends, "label", "value", "title", bar="x", horizontal=True),
            "ranges": lambda: plot_ranges(frame[frame.x == 0], ["value"] * 5, "title"),
        }[shape](),
        3.7,
    )
    (axis,) = phone.axes
    phone.draw_without_rendering()
    assert not axis.get_yticklabels()
    assert axis.bbox.width > 0.7 * phone.bbox.width
    high, low = (text.get_window_extent() for name in names for text in axis.texts if text.get_text() == name)
    rows = [bar.get_window_extent() for bar in boxes(axis)]
    rows += [text.get_window_extent() for text in axis.texts if text.get_text() == "12%"]
    marks = [points for points in axis.collections if isinstance(points, PathCollection)]
    rows += [Bbox([mark, mark]) for points in marks for mark in axis.transData.transform(points.get_offsets())]
    assert low.y1 < high.y0 < high.y1 <= axis.bbox.y1 + 1
    touch = 3.0  # below the feet of letters
    between = [low.y1 <= row.y0 and row.y1 <= high.y0 + touch for row in rows]
    assert sum(between) == len(rows) / 2
    assert all(first or row.y1 <= low.y0 + touch for first, row in zip(between, rows, strict=True))


def test_each_panel_of_a_heatmap_has_its_heads_on_a_phone():
    """Panels stand below each other there, and each is read alone; letters are those of the axes, 11 px and more."""
    frame = pd.DataFrame(product(["half", "all"], ["1F1B", "ZB-V"], [1, 2]), columns=["memory", "label", "x"])
    wide = plot_heatmap(frame.assign(value=0.25), "x", "label", "value", "title", panel="memory", labels={"x": "B / S"})
    phone = redrawn(wide, 3.7)
    assert [axis.get_xlabel() for axis in phone.axes] == ["B / S"] * 2
    assert [[label.get_text() for label in axis.get_xticklabels()] for axis in phone.axes] == [["1", "2"]] * 2
    css_px = 358 / (phone.get_figwidth() * 72)  # of a point, where a page of 390 px shows the picture
    assert min(text.get_fontsize() for axis in phone.axes for text in axis.texts) * css_px > 11
    names = [f"a schedule with a long name, {number}" for number in range(2)]
    rows = pd.DataFrame({"label": np.repeat(names, 3), "x": [1, 2, 4] * 2, "value": 0.5})
    (axis,) = redrawn(plot_heatmap(rows, "x", "label", "value", "title"), 3.7).axes
    # Each row has its name above it, and the last is far from the first.
    assert all(tick.label2.get_visible() for tick in axis.xaxis.get_major_ticks())


def test_numbers_of_a_heatmap_fit_their_cells_on_a_phone():
    """However many columns there are."""
    frame = pd.DataFrame({"label": np.repeat(["1F1B", "interleaved 1F1B V = 2"], 12), "x": [*range(12)] * 2})
    phone = redrawn(plot_heatmap(frame.assign(value=-0.25), "x", "label", "value", "title", form="{:.0%}"), 3.7)
    phone.draw_without_rendering()
    (axis,) = phone.axes
    widest = max(text.get_window_extent().width for text in axis.texts if text.get_text() == "-25%")
    assert widest < axis.bbox.width / 12


@pytest.mark.parametrize("phone", [False, True])
def test_counts_that_would_touch_are_thinned(phone):
    """Of many counts below narrow panels only every second is written, or fewer; of few all are."""
    counts = [2**power for power in range(12)]
    many = pd.DataFrame(
        {"microbatches": counts * 3, "label": "GPipe", "place": np.repeat(["a", "b", "c"], 12), "s": 1.0}
    )
    for frame, whole in ((many, False), (many[many.microbatches < 16], True)):
        figure = plot_lines(frame, "microbatches", "s", "title", panel="place")
        figure = redrawn(figure, 3.7) if phone else figure
        figure.draw_without_rendering()
        labels = figure.axes[-1].get_xticklabels()
        boxes = [label.get_window_extent() for label in labels]
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
        assert (len(boxes) == frame.microbatches.nunique()) == whole


def test_a_dark_page_gets_light_strokes_and_the_figure_back(frame):
    """All text and lines can be seen on a dark ground, cells keep their colours, and afterwards all is as it was."""
    marks = frame[:1].assign(mark="published")
    figures = [
        plot_lines(frame, "microbatches", "makespan_s", "title", panel="system", limits={"x": 40.0}, marks=marks),
        plot_heatmap(frame[frame.system == SYSTEMS[0]], "microbatches", "label", "idle_ratio", "title"),
        plot_table({"1F1B": build("1f1b", 2, 4)}, "title"),
    ]

    def looks(figure):
        lines = [(line.get_color(), line.get_markeredgecolor()) for line in figure.findobj(Line2D)]
        return lines, [(text.get_text(), text.get_color()) for text in figure.findobj(Text)]

    for figure in figures:
        before = looks(figure)
        on_cells = {ON_LIGHT, ON_DARK}
        with dark(figure):
            for text in figure.findobj(Text):
                if text.get_text() and text.get_color() not in on_cells and to_hex(text.get_color()) not in on_cells:
                    assert contrast(to_rgb(text.get_color()), to_rgb(GROUND)) >= 4.4, text
            for line in (line for axis in figure.axes for line in axis.lines):
                assert contrast(to_rgb(line.get_color()), to_rgb(GROUND)) >= 4.4
        assert looks(figure) == before


def test_panels_with_a_line_each_name_it_themselves(frame):
    """No name at the end and no legend, where the title of the panel says it."""
    one = frame[frame.system == SYSTEMS[0]]
    figure = plot_lines(one, "microbatches", "makespan_s", "title", panel="label")
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["GPipe", "1F1B", "Chimera"]
    assert not figure.legends
    assert not any(axis.texts for axis in figure.axes)


@pytest.mark.parametrize("phone", [False, True])
def test_a_dollar_sign_in_a_name_is_only_that(phone):
    """A table's name is no formula, in a figure of its own, in one of its times, and redrawn for a phone."""
    table = replace(build("1f1b", 2, 4), name="$\\frac{1}{2$")
    for figure in (table.plot(), pp.simulate(table, forward=1, backward=2).plot()):
        figure = redrawn(figure, 3.7) if phone else figure
        figure.draw_without_rendering()
        assert any(table.name in text.get_text() for text in figure.findobj(Text))


def test_a_name_in_another_script_is_drawn_or_boxed(tmp_path):
    """A glyph that no font has is no warning that ends a run."""
    code = "import pandas as pd\nfrom ppmodel.plot import plot_lines\n"
    code += "frame = pd.DataFrame(dict(pp=[1, 2], s=[1.0, 2.0], label='東京'))\n"
    code += "plot_lines(frame, 'pp', 's', '東京').savefig('a.png')"
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, check=True)
    assert (tmp_path / "a.png").exists()


def test_numbers_outside_the_limits_take_the_colours_at_the_ends():
    """Also a 0 on a logarithmic scale, whose text can be read on it."""
    frame = pd.DataFrame({"x": [0, 1, 2], "label": "1F1B", "value": [0.0, 0.01, 5.0]})
    (axis,) = plot_heatmap(frame, "x", "label", "value", "title", log=True, limits=(0.01, 1)).axes
    axis.figure.draw_without_rendering()
    first, second, last = axis.collections[0].get_facecolors()
    assert list(first) == list(second) != list(last)
    for text, cell in zip(axis.texts, (first, second, last), strict=True):
        assert contrast(text.get_color(), cell) > 4.5


def test_a_logarithmic_axis_has_plain_numbers():
    """Also over less than a decade, where matplotlib's own labels are formulas, which titles must not be."""
    frame = pp.compare(["gpipe", "zb-v"], 4, [8, 16, 32], forward=1, backward=2)
    figure = plot_lines(frame, "microbatches", "makespan_s", "$\\frac{1}{2$", log="y")
    figure.draw_without_rendering()
    axis = figure.axes[0].yaxis
    assert {"30", "50", "100"} <= {label.get_text() for label in axis.get_ticklabels()}
    assert not any(label.get_text() for label in axis.get_ticklabels(minor=True))


def test_every_part_of_an_iteration_has_its_colour():
    """No two of them share one, however many are there."""
    parts = pd.DataFrame({"tp": [1]} | dict.fromkeys(PARTS, 1.0))
    bars = plot_parts(parts, "tp", PARTS, "title").axes[0].patches
    assert len({bar.get_facecolor() for bar in bars}) == len(PARTS)


def test_figures_have_words_for_names():
    """Panels, lines and contexts call systems and models what `data/words.yaml` does; all raw names have words."""
    frame = pp.compare("1f1b", 4, [4, 8], model="paper", system=["a2_highgpu_8g", "slow_between_nodes"])
    lines = plot_lines(frame, "microbatches", "makespan_s", "a title", context("stp_12b", system="h100"), line="system")
    texts = {text.get_text() for text in lines.findobj(Text)}
    assert {"a2-highgpu-8g", "slow between nodes", "model: STP's 12.1B; system: H100"} <= texts
    bars = plot_bars(frame, "microbatches", "makespan_s", "a title", panel="system")
    assert [axis.get_title("left") for axis in bars.axes] == ["a2-highgpu-8g", "slow between nodes"]
    assert [name for name in packaged("systems") | packaged("models") if "_" in name and in_words(name) == name] == []


@pytest.mark.parametrize(("microbatches", "is_numbered"), [(8, True), (64, False)])
def test_boxes_that_a_number_fits_have_one_on_a_phone(microbatches, is_numbered):
    """Of a few microbatches forwards are numbered, too."""
    phone = redrawn(plot_table({"1F1B": build("1f1b", 4, microbatches)}, "a title"), 3.7)
    assert (len(phone.axes[0].texts) == 2 * 4 * microbatches) == is_numbered
