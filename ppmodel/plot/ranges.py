"""Ranges of a frame: the spread of the values in each row, in panels."""

from matplotlib import pyplot as plt

from ppmodel.plot.lines import legend
from ppmodel.plot.palette import style_of
from ppmodel.plot.style import (
    axis_label,
    on_phone,
    panel_grid,
    panel_title,
    panels_of,
    percent_axis,
    redrawn,
    require_columns,
    titled,
)

_APART = 0.36


@redrawn
def plot_ranges(
    frame, columns, title, context="", *, row="label", beside=None, panel=None, in_row=3, labels=None, percent=False
):
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
    panel, in_row, labels
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
    require_columns(frame, *columns, row, beside, panel)
    panels, names, versions = panels_of(frame, panel), list(dict.fromkeys(frame[row])), list(panels_of(frame, beside))
    figure, axes = panel_grid(len(panels), in_row, height=0.3 * len(names) + 0.7)
    for axis, (name, here) in zip(axes.flat, panels.items(), strict=False):
        for number, version in enumerate(versions):
            rows = panels_of(here, beside).get(version, here[:0])[[row, *columns]]
            shift = _APART * (number - (len(versions) - 1) / 2)
            _draw_ranges(axis, rows, {one: place + shift for place, one in enumerate(names)}, number > 0)
        axis.set_yticks(range(len(names)), names, fontsize=7.5)
        axis.set_ylim(len(names) - 0.4, -0.6)
        axis.grid(axis="y", visible=False)
        axis.set_xlabel(axis_label(columns[2], labels))
        if percent:
            axis.axvline(0, color="black", lw=0.8)
            percent_axis(axis.xaxis)
        panel_title(axis, panel, name, labels)
        axis.label_outer()
        if on_phone():
            axis.tick_params(labelbottom=True)
    if beside is not None:
        legend(figure, None, [_entry(version, number > 0) for number, version in enumerate(versions)])
    return titled(figure, title, context)


def _draw_ranges(axis, rows, heights, hollow):
    colours = {name: style["color"] for name, style in style_of(heights).items()}
    for name, low, less, middle, more, high in rows.itertuples(index=False, name=None):
        height, colour = [heights[name]] * 2, colours[name]
        axis.plot([low, high], height, color=colour, lw=1.0)
        axis.plot([less, more], height, color=colour, lw=2.2 if hollow else 3.4)
        axis.plot([middle], height[:1], **_marker(colour, hollow))


def _marker(colour, hollow):
    return {"color": colour, "marker": "o", "ms": 4.5, "mfc": "white" if hollow else colour}


def _entry(version, hollow):
    return plt.Line2D([], [], **_marker("#444444", hollow), lw=1.6 if hollow else 2.6, label=str(version))
