"""Names at the ends of lines and beside points, without overlaps."""

from itertools import pairwise

import numpy as np
from matplotlib.transforms import Bbox

from ppmodel.plot.palette import legible
from ppmodel.plot.style import DRAWN, page_width

_SIZE, _ASIDE = 8, 5  # points of a letter, and between a panel and its names
_LINE_HEIGHT = 1.25 * _SIZE / 72  # inches
_LETTER, _MOST = 4.6, 0.35  # points of a letter; of the page's width, the most for names
_MARKER, _AWAY = 3.0, 4.5  # points of a marker that no name may cover, and between a name and its point
_SIDES, _HEIGHTS = {1: "left", 0: "center", -1: "right"}, {2: "bottom", 1: "bottom", 0: "center", -1: "top", -2: "top"}

BESIDE = ((1, 1), (1, -1), (0, 2), (1, 0), (-1, 0), (0, -2), (-1, 1), (-1, -1))
"""Positions of a name relative to its point, best first; at a front, below which there are no points, in reverse."""


def fits_aside(names):
    """Whether names beside a panel leave it enough of the page.

    >>> fits_aside(["GPipe", "1F1B"])
    True
    """
    return _LETTER * max(map(len, names)) < _MOST * 72 * page_width()


def name_ends(axis, ends, styles=None):
    """Write names to the right of the axes, each as near to its line's end as other names allow.

    Parameters
    ----------
    axis : matplotlib Axes
        With its scales already set; names are placed outside it, and the figure grows if they need it.
    ends : sequence of (str, (float, float))
        Names, and the last points of their lines.
    styles : dict of str to dict, optional
        From `palette.style_of`: a name and the leader to its line have the line's colour; by default, they are grey.
    """
    axis.autoscale_view()
    grid, figure = axis.get_gridspec(), axis.figure
    figure.set_figheight(max(figure.get_figheight(), len(ends) * _LINE_HEIGHT * grid.nrows / DRAWN))
    height, width = DRAWN * figure.get_figheight() / grid.nrows, DRAWN * figure.get_figwidth() / grid.ncols
    levels = (axis.transData + axis.transAxes.inverted()).transform([point for _, point in ends])[:, 1]
    order = np.argsort(levels, kind="stable")
    gap = min(_LINE_HEIGHT / height, 1 / max(1, len(ends) - 1))
    last = max(x for _, (x, _) in ends)
    for number, level in zip(order, kept_apart(np.clip(levels[order], 0, 1), gap), strict=True):
        name, point = ends[number]
        colour = legible(styles[name]["color"]) if styles else "#595959"
        leader = {"arrowstyle": "-", "color": colour, "lw": 0.7, "relpos": (0, 0.5), "shrinkA": 0, "shrinkB": 2}
        if styles and point[0] < last:
            leader["ls"] = (0, (1, 3))  # over the other lines, to one that ends early
        axis.annotate(
            name, point, (1 + _ASIDE / 72 / width, level), textcoords="axes fraction", va="center", fontsize=_SIZE,
            color=colour, annotation_clip=False, arrowprops=leader,
        )  # fmt: skip


def name_ends_inside(axis, ends, styles):
    """Write names above or below the ends of those lines that end apart from all others, where no line is.

    Parameters
    ----------
    axis : matplotlib Axes
        With its scales already set.
    ends, styles
        As in `name_ends`.
    """
    axis.autoscale_view()
    grid, figure = axis.get_gridspec(), axis.figure
    line, letter = _LINE_HEIGHT * grid.nrows, _LETTER / 72 * grid.ncols
    line, letter = line / DRAWN / figure.get_figheight(), letter / DRAWN / figure.get_figwidth()
    points = (axis.transData + axis.transAxes.inverted()).transform([point for _, point in ends])
    paths = [(path.get_transform() + axis.transAxes.inverted()).transform(path.get_xydata()).T for path in axis.lines]
    for (name, point), (x, y) in zip(ends, points, strict=True):
        apart = sorted(abs(points[:, 1] - y))[1:2] >= [1.2 * line]
        levels = np.array([np.interp(np.linspace(x - letter * len(name), x, 9), *path) for path in paths]) - y
        free = [side for side in (1, -1) if 0 < y + 1.6 * side * line < 1]
        free = [side for side in free if not ((0.3 * line < side * levels) & (side * levels < 1.6 * line)).any()]
        if apart and free and x == points[:, 0].max():
            axis.annotate(
                name, point, (2, 6 * free[0]), textcoords="offset points", ha="right",
                va="bottom" if free[0] > 0 else "top", fontsize=_SIZE - 1, color=legible(styles[name]["color"]),
            )  # fmt: skip


def kept_apart(heights, gap):
    """Increasing heights, as near to the given ones as a minimum gap and an axis from 0 to 1 allow.

    >>> kept_apart([0.25, 0.25, 1.0], 0.25).tolist()
    [0.25, 0.5, 1.0]
    """
    heights, steps = np.array(heights, dtype=float), gap * np.arange(len(heights))
    return np.minimum(np.maximum.accumulate(heights - steps), 1 - steps[-1]) + steps


def name_points(axis, names, places=BESIDE):
    """Write a name beside every point, at the first free position.

    Parameters
    ----------
    axis : matplotlib Axes
        Laid out. A position where a name crosses the front, a stepped line, is used only if all others are worse.
    names : dict of (float, float) to str
        By point.
    places : sequence of (int, int)
        Positions, best first.

    Returns
    -------
    bool
        Whether no name covers another one or a point.
    """
    reach = _MARKER * axis.figure.dpi / 72
    boxes = [Bbox([centre - reach, centre + reach]) for centre in axis.transData.transform(list(names))]
    fronts = [line for line in axis.lines if line.get_drawstyle() == "steps-post"]
    steps = []
    for line in fronts:
        x, y = axis.transData.transform(line.get_xydata()).T
        steps += map(Bbox, pairwise(np.column_stack((np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]))))
    hidden = []
    for point, name in sorted(names.items(), key=lambda item: -item[0][1]):
        text = axis.annotate(name, point, (0, 0), textcoords="offset points", fontsize=7.5)
        text.set_bbox({"facecolor": "white", "alpha": 0.75, "lw": 0, "pad": 0.6})
        covered = {}
        for across, up in places:
            text.set(position=(_AWAY * across, _AWAY * up), ha=_SIDES[across], va=_HEIGHTS[up])
            box = text.get_window_extent()
            outside = (box.x1 > axis.bbox.x1) + (box.x0 < axis.bbox.x0)
            overlaps = sum(box.overlaps(other) for other in boxes)
            covered[across, up] = (overlaps + outside + any(box.overlaps(step) for step in steps) / 2, box)
        across, up = min(places, key=lambda place: covered[place][0])
        text.set(position=(_AWAY * across, _AWAY * up), ha=_SIDES[across], va=_HEIGHTS[up])
        boxes.append(covered[across, up][1])
        hidden.append(covered[across, up][0])
    return max(hidden, default=0) < 1
