"""Names at the ends of lines, without overlaps."""

import numpy as np

from ppmodel.plot.palette import legible
from ppmodel.plot.style import DRAWN

_SIZE, _ASIDE = 8, 5
_LINE_HEIGHT = 1.25 * _SIZE / 72


def label_ends(axis, ends, styles):
    """Write each line's name to the right of the axes, as near to the line's end as other names allow.

    Parameters
    ----------
    axis : matplotlib Axes
        With its scales already set; names are placed outside it.
    ends : dict of str to (float, float)
        The last point of each line, by its name.
    styles : dict of str to dict
        From `palette.style_of`: a name has the colour of its line, and a leader line if it had to move.
    """
    axis.autoscale_view()
    last = max(end[0] for end in ends.values())
    to_axes = axis.transData + axis.transAxes.inverted()
    places = {name: to_axes.transform([end])[0] for name, end in ends.items()}
    order = sorted(places, key=lambda name: places[name][1])
    gap = _LINE_HEIGHT / _height(axis, len(ends))
    heights = kept_apart([min(1, max(0, places[name][1])) for name in order], min(gap, 1 / max(1, len(order) - 1)))
    for name, height in zip(order, heights, strict=True):
        colour = legible(styles[name]["color"])
        led = {"arrowstyle": "-", "color": colour, "lw": 0.7, "relpos": (0, 0.5), "shrinkA": 0, "shrinkB": 2}
        led |= {"ls": (0, (1, 3))} if ends[name][0] < last else {}  # over the others, to a line that ends early
        axis.annotate(
            name, ends[name], (1.0 + _ASIDE / 72 / _width(axis), height), textcoords="axes fraction", va="center",
            ha="left", fontsize=_SIZE, color=colour, annotation_clip=False, arrowprops=led,
        )  # fmt: skip


def _height(axis, names):
    """The height of the axes in inches; the figure grows if the names of a panel need more."""
    rows = axis.get_gridspec().nrows
    need = names * _LINE_HEIGHT * rows / DRAWN
    if axis.figure.get_figheight() < need:
        axis.figure.set_figheight(need)
    return DRAWN * axis.figure.get_figheight() / rows


def _width(axis):
    return DRAWN * axis.figure.get_figwidth() / axis.get_gridspec().ncols


def kept_apart(wanted, gap):
    """Increasing heights, as near to the wanted ones as a minimum gap and an axis from 0 to 1 allow.

    >>> kept_apart([0.25, 0.25, 1.0], 0.25).tolist()
    [0.25, 0.5, 1.0]
    """
    heights = np.array(wanted, dtype=float)
    for number in range(1, len(heights)):
        heights[number] = max(heights[number], heights[number - 1] + gap)
    heights[-1] = min(heights[-1], 1.0)
    for number in range(len(heights) - 2, -1, -1):
        heights[number] = min(heights[number], heights[number + 1] - gap)
    return heights
