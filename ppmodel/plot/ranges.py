"""Ranges of a frame: the spread of the values in each row."""

import numpy as np

from ppmodel.plot import style
from ppmodel.plot.palette import style_of


@style.redrawable
def plot_ranges(frame, columns, title, context="", *, row="label", labels=None, percent=False):
    """Draw a marker, a thick line and a thin line per row, such as median, middle half and nearly all of some runs.

    Parameters
    ----------
    frame : DataFrame
        One row per range.
    columns : sequence of five str
        Columns for the lower ends of the thin and thick lines, for the marker, and for the upper ends of the thick and
        thin lines.
    title, context : str
        The message of the figure, and what it shows; see `context`.
    row : str
        Column that names the rows of the figure; each has its own colour.
    labels
        As in `plot_lines`; the horizontal axis is labelled by the marker's column.
    percent : bool
        Whether the values are ratios, to be shown in percent with a line at 0.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"label": ["GPipe"], "low": 1, "less": 2, "middle": 3, "more": 4, "high": 5})
    >>> len(plot_ranges(frame, ["low", "less", "middle", "more", "high"], "Where the runs lie").axes)
    1
    """
    looks, (low, less, middle, more, high) = style_of(frame[row]), columns
    names, colours = list(looks), [looks[name]["color"] for name in frame[row]]
    above = style.is_narrow() and max(map(len, names)) > style.SHORT
    figure, ((axis,),) = style.panel_grid(1, 1, height=(0.36 if above else 0.3) * len(names) + 0.7)
    heights = frame[row].map(names.index)
    axis.hlines(heights, frame[low], frame[high], colours, lw=1.0)
    axis.hlines(heights, frame[less], frame[more], colours, lw=3.4)
    axis.scatter(frame[middle], heights, 16, colours, edgecolors=colours, zorder=3)
    if above:
        style.name_above(axis, names, np.arange(len(names)) - 0.22)
    else:
        axis.set_yticks(range(len(names)), names, fontsize=7.5)
    axis.set(ylim=(len(names) - 0.4, -0.6 - 0.3 * above), xlabel=style.axis_label(middle, labels))
    axis.grid(axis="y", visible=False)
    if percent:
        axis.axvline(0, color="black", lw=0.8)
        style.percent_axis(axis.xaxis)
    return style.titled(figure, title, context)
