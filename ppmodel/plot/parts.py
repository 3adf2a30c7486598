"""Stacked bars of columns that add up, such as the parts of an iteration's time."""

from itertools import cycle

from matplotlib import pyplot as plt

from ppmodel.plot.lines import legend
from ppmodel.plot.palette import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, YELLOW
from ppmodel.plot.style import (
    axis_label,
    names_above,
    on_phone,
    page_width,
    panel_title,
    panels_of,
    redrawn,
    require_columns,
    row_height,
    titled,
    write_above,
)

_COLOURS = (BLUE, ORANGE, YELLOW, PURPLE, SKY, "#bdbdbd", VERMILION, GREEN)
_THICK, _BAR = 0.76, 0.17  # of a row, and inches below a name


@redrawn
def plot_parts(
    frame, x, parts, title, context="", *, axis="", panel=None, labels=None, horizontal=False, share=True
):  # fmt: skip
    """Draw stacked bars: a bar per row, a colour per column, in panels side by side.

    Parameters
    ----------
    frame : DataFrame
        One row per bar, as `ppmodel.compare` returns with a layout; rows without a number are left out.
    x : str
        Column that names the bars; each panel shows those of its own rows.
    parts : dict of str to str
        Columns from the bottom up, with their names in the legend. Colours go by position; columns that are 0 in all
        rows are left out.
    title, context : str
        As in `plot_lines`.
    axis : str
        What the columns measure, with the unit.
    panel : str, optional
        Column that distinguishes the panels.
    labels : dict of str to str, optional
        As in `plot_lines`.
    horizontal : bool
        Whether bars are horizontal, the first on top, which leaves room for long names.
    share : bool
        Whether all panels share one scale.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import ppmodel as pp
    >>> from ppmodel.points import PARTS_CALLED
    >>> given = {"model": "llama3_70b", "system": "dgx_h100_nodes", "tp": 8, "dp": [1, 2, 4]}
    >>> frame = pp.compare("1f1b", 4, global_batch=64, **given)
    >>> len(plot_parts(frame, "dp", PARTS_CALLED, "More replicas, fewer microbatches", axis="s").axes)
    1
    """
    require_columns(frame, x, *parts, panel)
    frame = frame.dropna(subset=list(parts))
    there = [(name, colour) for name, colour in zip(parts, cycle(_COLOURS)) if (frame[name] != 0).any()]
    panels, horizontal = panels_of(frame, panel), horizontal or on_phone()
    names = frame[x].map(str)
    above, most = names_above(names) if horizontal else 0, max((name.count("\n") for name in names), default=0)
    high, thick = row_height(_BAR, above) if above else (0.27 + 0.12 * most, _THICK)
    figure, axes = _axes([len(rows) for rows in panels.values()], horizontal, share, high)
    for place, (name, rows) in zip(axes, panels.items(), strict=True):
        _stack(place, rows, there, parts, horizontal, thick)
        names = rows[x].map(str)
        named, measured = (place.set_yticks, place.set_xlabel) if horizontal else (place.set_xticks, place.set_ylabel)
        if above:
            write_above(place, names, thick)
        else:
            named(range(len(rows)), names)
        if place is axes[0] or not share or horizontal:
            measured(axis)
        if not horizontal:
            place.set_xlabel(axis_label(x, labels))
        panel_title(place, panel, name, labels)
        if on_phone():
            place.tick_params(labelbottom=True)
    legend(figure, axes[0])
    return titled(figure, title, context)


def _axes(counts, horizontal, share, high):
    """Axes side by side, with widths proportional to their numbers of bars."""
    if horizontal:
        rows, columns = (len(counts), 1) if on_phone() else (1, len(counts))
        size = (page_width(), 1.5 + rows * (high * max(counts) + 0.4 * on_phone()))
        figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, sharex=share, layout="constrained")
        for place in axes.flat:
            place.invert_yaxis()
            place.grid(axis="y", visible=False)
        return figure, axes.ravel()
    size, ratios = (page_width(), 3.7), [one + 1 for one in counts]
    figure, axes = plt.subplots(1, len(counts), figsize=size, squeeze=False, sharey=share, width_ratios=ratios)
    for place in axes[0]:
        place.grid(axis="x", visible=False)
    return figure, axes[0]


def _stack(place, rows, there, parts, horizontal, thick):
    """Vertical or horizontal bars, each starting where the one before ends."""
    ends = [0.0] * len(rows)
    for name, colour in there:
        sizes = rows[name].tolist()
        bars, offset = (place.barh, "left") if horizontal else (place.bar, "bottom")
        bars(range(len(rows)), sizes, thick, color=colour, label=parts[name], **{offset: ends})
        ends = [end + size for end, size in zip(ends, sizes, strict=True)]
