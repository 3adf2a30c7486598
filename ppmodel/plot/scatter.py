"""Scatter plots of a frame, with the Pareto front."""

from itertools import pairwise

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter
from matplotlib.transforms import Bbox

from ppmodel.plot.ends import kept_apart
from ppmodel.plot.lines import label_edges, legend
from ppmodel.plot.palette import style_of
from ppmodel.plot.style import (
    axis_label,
    log_ticks,
    panel_grid,
    panel_title,
    panels_of,
    redrawn,
    require_columns,
    titled,
)

_NAME_IN = 0.17
_SIDES, _HEIGHTS = {1: "left", 0: "center", -1: "right"}, {2: "bottom", 1: "bottom", 0: "center", -1: "top", -2: "top"}
_BESIDE = ((1, 1), (1, -1), (0, 2), (1, 0), (-1, 0), (0, -2), (-1, 1), (-1, -1))
"""Positions for a name, best first; at a front, below which there are no points, in reverse."""


@redrawn
def plot_scatter(
    frame, x, y, title, context="", *, group=None, panel=None, name=None, front=None, styles=None, labels=None,
    log=("x", "y"), percent=False, in_row=1, limits=None, ringed=False,
):  # fmt: skip
    """Draw points by two numbers, with names and with the Pareto front as a stepped line.

    Parameters
    ----------
    frame : DataFrame
        One row per point.
    x, y : str
        Columns with the two numbers; lower is better.
    title, context : str
        The message of the figure, and what it shows; see `context`.
    group : str, optional
        Column that distinguishes points, by colour and marker.
    panel : str, optional
        Column that distinguishes the panels.
    name : str, optional
        Column with a name for each point, which may be empty. If the names of a single panel do not fit next to the
        points, they go into a column beside the panel.
    front : str, optional
        Boolean column that says which points are on the Pareto front; see `analysis.pareto_front`.
    styles : dict of str to dict, optional
        Keyword arguments for matplotlib's ``plot`` for each group; by default, those of `style_of`.
    labels, log, in_row
        As in `plot_lines`.
    limits : dict of str to float, optional
        Vertical reference lines, by their names in the legend.
    ringed : bool
        Whether points with a name get a ring, and the name goes to the lower left: there is room if they are the best
        within a limit.
    percent : bool
        Whether both numbers are ratios to a baseline, to be shown in percent; two lines then cross at the baseline,
        and all panels have the same axes.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import ppmodel as pp
    >>> frame = pp.compare(["gpipe", "1f1b"], 4, [4, 8], forward=1, backward=2)
    >>> len(plot_scatter(frame, "makespan_s", "peak_activations", "1F1B holds less", group="label").axes)
    1
    """
    require_columns(frame, x, y, group, panel, name, front)
    panels = panels_of(frame, panel)
    width = 6.6 / min(in_row, len(panels)) + 0.4  # on a phone, the page sets it
    figure, axes = panel_grid(len(panels), in_row, width=width, height=3.2, share_y=percent)
    styles = styles or {text: style | {"ms": 6} for text, style in style_of(frame[group] if group else [""]).items()}
    for axis, (title_of_panel, here) in zip(axes.flat, panels.items(), strict=False):
        for text, style in styles.items():
            rows = here if group is None else here[here[group] == text]
            axis.plot(rows[x], rows[y], **{"mec": "white", "mew": 0.5, "label": text} | style | {"ls": ""})
        if front:
            best = here[here[front].astype(bool)].sort_values([x, y])
            axis.step(best[x], best[y], where="post", color="black", lw=1.2, zorder=1)
        if ringed:
            best = here[here[name] != ""]
            axis.plot(best[x], best[y], ls="", marker="o", ms=12, mfc="none", mec="black", mew=1.3, zorder=4)
        for value in (limits or {}).values():
            axis.axvline(value, color="black", lw=1.0, ls="--", zorder=0.9)
        _scales(axis, log)
        axis.set(xlabel=axis_label(x, labels), ylabel=axis_label(y, labels))
        if percent:
            _cross(axis)
        panel_title(axis, panel, title_of_panel, labels)
    places = [(axis, y, one) for axis, one in zip(axes.flat, panels, strict=False)]
    label_edges(axes, axis_label(x, labels), places, [y] if percent else [])
    if name and front:
        low, high = axes[0, 0].get_xlim()  # of all panels: room for the names
        axes[0, 0].set_xlim(low * (low / high) ** 0.2 if "x" in log else low - 0.2 * (high - low), high)
    extra = [plt.Line2D([], [], color="black", lw=1.2, label="Pareto front")] if front else []
    extra += [plt.Line2D([], [], color="black", lw=1.0, ls="--", label=said) for said in limits or ()]
    if group or extra:
        legend(figure, axes.flat[0], extra)
    titled(figure, title, context)
    if name:
        figure.draw_without_rendering()  # positions are known after layout
        for axis, here in zip(axes.flat, panels.values(), strict=False):
            rows = here[here[name] != ""]
            places = _BESIDE[:: -1 if front or ringed else 1]
            free = _name_points(axis, rows, x, y, name, places, 7.5 if ringed else 4.5)
            if panel is None and not free:
                for text in list(axis.texts):
                    text.remove()
                _names_beside(axis, rows, x, y, name)
    return figure


def _name_points(axis, rows, x, y, name, places, away):
    """Put a name at every point, at the first free position; names that share a point share it.

    A position where the name crosses the front is used only if all others are worse. Returns whether no name overlaps
    another one or a point.
    """
    crossed = [box for line in axis.lines if line.get_drawstyle() == "steps-post" for box in _steps(line)]
    points = rows.sort_values(y, ascending=False, kind="stable").groupby([x, y], sort=False)  # from the top
    taken, free = [_box(axis, axis.transData.transform(point)) for point, _ in points], True
    for point, here in points:
        text = axis.annotate(_joined(here[name]), point, (0, 0), textcoords="offset points", fontsize=7.5)
        text.set_bbox({"facecolor": "white", "alpha": 0.75, "lw": 0, "pad": 0.6})
        boxes = {place: _moved(text, *place, away) for place in places}
        hidden = {
            place: sum(box.overlaps(other) for other in taken) + (box.x1 > axis.bbox.x1) + (box.x0 < axis.bbox.x0)
            + any(box.overlaps(step) for step in crossed) / 2
            for place, box in boxes.items()
        }  # fmt: skip
        best = min(places, key=hidden.get)
        taken.append(_moved(text, *best, away))
        free &= hidden[best] < 1
    return free


def _steps(line):
    """The pieces of a stepped line, in pixels."""
    points = line.axes.transData.transform(line.get_xydata())
    corners = np.column_stack((np.repeat(points[:, 0], 2)[1:], np.repeat(points[:, 1], 2)[:-1]))
    return [Bbox(piece) for piece in pairwise(corners)]


def _joined(names):
    return " = ".join(dict.fromkeys(names))


def _moved(text, across, up, away):
    """The area that a name covers, in pixels, at a position next to its point."""
    text.set(position=(away * across, away * up), ha=_SIDES[across], va=_HEIGHTS[up])
    return text.get_window_extent()


def _box(axis, centre, points=3.0):
    """The area that a marker covers, in pixels."""
    reach = points * axis.figure.dpi / 72
    return Bbox.from_extents(*(centre - reach), *(centre + reach))


def _names_beside(axis, rows, x, y, name):
    """The names in a column on the right, in the order of their points; names that share a point share a line."""
    axis.figure.set_figheight(max(axis.figure.get_figheight(), 1.8 + 0.2 * len(rows)))
    points = rows.groupby([x, y])[name].agg(_joined).reset_index()
    points = points.sort_values([y, x], ascending=[True, False])  # lines from the left pass over points to the right
    axis.autoscale_view()
    wanted = axis.transAxes.inverted().transform(axis.transData.transform(points[[x, y]]))[:, 1]
    heights = kept_apart(wanted, min(_NAME_IN / (0.8 * axis.figure.get_figheight()), 1 / max(1, len(points) - 1)))
    for point, height in zip(points.itertuples(index=False), heights, strict=True):
        line = {"arrowstyle": "-", "color": "#999999", "lw": 0.5, "shrinkB": 3, "relpos": (0, 0.5)}
        axis.annotate(
            point[2], point[:2], (1.03, height), textcoords="axes fraction", va="center", fontsize=8,
            annotation_clip=False, arrowprops=line,
        )  # fmt: skip


def _cross(axis):
    """Lines through the baseline, and percent on both axes."""
    axis.axhline(0, color="black", lw=0.7, zorder=0.9)
    axis.axvline(0, color="black", lw=0.7, zorder=0.9)
    for scale in (axis.xaxis, axis.yaxis):
        scale.set_major_formatter(PercentFormatter(1, decimals=0))


def _scales(axis, log):
    """Logarithmic axes with plain numbers at the ticks."""
    axis.margins(0.12)
    for scale, side in ((axis.xaxis, "x"), (axis.yaxis, "y")):
        if side not in log:
            continue
        (axis.set_xscale if side == "x" else axis.set_yscale)("log")
        most = 4 if side == "x" else 7  # labels stand side by side, or one above the other
        scale.set_major_locator(FixedLocator(log_ticks(*scale.get_view_interval(), most)))
        scale.set_minor_locator(NullLocator())
        scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
