"""Ranges of a frame: the spread of the values in each row, in panels."""

import numpy as np

from ppmodel.plot import style
from ppmodel.plot.palette import style_of

_APART = 0.36


@style.redrawable
def plot_ranges(frame, columns, title, context="", *, row="label", beside=None, panel=None, labels=None, percent=False):
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
    beside : str, optional
        Column with two values that distinguishes ranges in one row of the figure; the second is drawn hollow.
    panel, labels
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
    panels, looks = style.panels_of(frame, panel), style_of(frame[row])
    names, versions = list(looks), list(style.panels_of(frame, beside))
    low, less, middle, more, high = columns
    above = style.is_narrow() and max(map(len, names)) > style.SHORT
    height = (0.36 if above else 0.3) * len(names) + 0.7
    figure, axes = style.panel_grid(len(panels), 3, height=height, sharex=True, sharey=True)
    for axis, (name, rows) in zip(axes.flat, panels.items(), strict=False):
        for version, ranges in style.panels_of(rows, beside).items():
            number = versions.index(version)
            heights = ranges[row].map(names.index) + _APART * (number - (len(versions) - 1) / 2)
            colours = [looks[label]["color"] for label in ranges[row]]
            axis.hlines(heights, ranges[low], ranges[high], colours, lw=1.0)
            axis.hlines(heights, ranges[less], ranges[more], colours, lw=2.2 if number else 3.4)
            axis.scatter(ranges[middle], heights, 16, "white" if number else colours, edgecolors=colours, zorder=3)
        if above:
            style.name_above(axis, names, np.arange(len(names)) - 0.22)
        else:
            axis.set_yticks(range(len(names)), names, fontsize=7.5)
        axis.set(ylim=(len(names) - 0.4, -0.6 - 0.3 * above), xlabel=style.axis_label(middle, labels))
        axis.grid(axis="y", visible=False)
        if percent:
            axis.axvline(0, color="black", lw=0.8)
            style.percent_axis(axis.xaxis)
        style.panel_title(axis, panel, name, labels)
    style.label_edges(axes, style.axis_label(middle, labels))
    full = {"color": ".3", "marker": "o", "ms": 4.5, "mfc": ".3", "lw": 2.6}
    looks = [full | ({"mfc": "white", "lw": 1.6} if number else {}) for number in range(len(versions))]
    named = zip(versions if beside else (), looks, strict=False)
    style.legend(figure, [look | {"label": version} for version, look in named])
    return style.titled(figure, title, context)
