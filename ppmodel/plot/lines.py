"""Lines of a frame, one per schedule, in panels."""

import math
from itertools import cycle, product

from ppmodel.plot import style
from ppmodel.plot.names import fits_aside, name_ends, name_ends_inside
from ppmodel.plot.palette import style_of

_COUNTS, _IN_ROW = ("microbatches", "pp"), 3
_NARROW = 5  # a factor within which an axis stays linear
_FEW = 6  # values that all have a tick
_MOST_TICKS = 7  # of a logarithmic vertical axis
_PATTERNS = ((), (1.1, 1.6), (5, 2), (6, 1.6, 1.2, 1.6))  # points on and off; solid is empty
_LIMITS = [{"color": "black", "lw": 0.9, "dashes": pattern} for pattern in ((), (6, 2), (1, 2))]


@style.redrawable
def plot_lines(
    frame, x, y, title, context="", *, line="label", dash=None, panel=None, labels=None, percent=None, log=(),
    zero=True, markers=True, limits=None, share=True, own_x=False, marks=None,
):  # fmt: skip
    """Draw lines over a column, one per schedule, in panels.

    Each is named at its end in the last panel of a row, if names leave it room, and in the others where it ends apart
    from the rest.

    Parameters
    ----------
    frame : DataFrame
        One row per point, as `ppmodel.compare` returns; rows without a number are left out. Several rows with the same
        values of `x`, `line`, `dash` and `panel` are refused.
    x : str
        Column for the horizontal axis; ``microbatches`` and ``pp`` get a logarithmic axis with ticks at their values.
    y : str or list of str
        Columns for the vertical axis; each gets its own row of panels.
    title, context : str
        The point of the figure, and what it shows; see `context`.
    line : str
        Column that distinguishes the lines, by colour.
    dash : str, optional
        Column that distinguishes lines of the same colour, by dashes.
    panel : str, optional
        Column that distinguishes the panels.
    labels : dict of str to str, optional
        Axis labels of columns, with units; most columns of `ppmodel.compare` already have one.
    percent : bool, optional
        Whether `y` is a ratio to show in percent; true by default if its name ends in ``ratio`` or is ``relative``.
    log : str or sequence of str
        Which of the axes ``"x"`` and ``"y"`` are logarithmic.
    zero : bool
        Whether a linear vertical axis includes 0.
    markers : bool
        Whether to mark points; lines with many points are easier to read without markers.
    share : bool or list of str
        Whether panels share the scale of the vertical axis, or the columns `y` for which they do.
    own_x : bool
        Whether each panel has its own horizontal axis, for panels about different quantities; with ``log="x"``, only
        axes whose values span more than a factor of five are logarithmic.
    limits : dict of str to float, optional
        Horizontal reference lines, by their names in the legend.
    marks : DataFrame, optional
        Points to mark, such as published ones: the columns `x`, `y` and, if there are panels, `panel`, and ``mark``,
        what the legend calls them.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import ppmodel as pp
    >>> frame = pp.compare(["gpipe", "1f1b"], 4, [4, 8, 16], forward=1, backward=2, comm=0.2)
    >>> len(plot_lines(frame, "microbatches", ["makespan_s", "idle_ratio"], "Both converge").axes)
    2
    """
    columns = [y] if isinstance(y, str) else list(y)
    frame = frame.dropna(subset=columns)
    style.require_points(frame, columns, x, line, dash, panel)
    panels, shared = style.panels_of(frame, panel), columns if share is True else share or ()
    figure, axes, places = _places(columns, list(panels), shared, own_x)
    looks, limits = style_of(frame[line]), limits or {}
    patterns = dict(zip(frame[dash].unique() if dash else (), cycle(_PATTERNS)))
    edges = [look | {"label": name} for name, look in zip(limits, cycle(_LIMITS))]
    for axis, column, name in places:
        rows = panels[name]
        _draw(axis, rows, x, column, line, looks, dash, patterns, markers)
        for value, look in zip(limits.values(), edges, strict=True):
            axis.axhline(value, **look)
        if marks is not None and column in marks:
            marked = marks if panel is None else marks[marks[panel] == name]
            if len(marked):
                axis.plot(marked[x], marked[column], **style.MARK)
        _scales(axis, (rows if own_x else frame)[x], (frame if column in shared else rows)[column], log, zero, own_x)
        if style.is_ratio(column) if percent is None else percent:
            style.percent_axis(axis.yaxis)
        axis.set(xlabel=style.wrapped(style.axis_label(x, labels), axis), ylabel=style.axis_label(column, labels))
        if column == columns[0] or style.is_narrow():
            style.panel_title(axis, panel, name, labels)
    style.label_edges(axes, style.axis_label(x, labels))
    several = any(rows[line].nunique() > 1 for rows in panels.values())  # otherwise panel titles name them
    named = set() if several else set(looks)
    for axis, column, name in places if several else ():
        last = panels[name].sort_values(x, kind="stable")
        last = last[last[dash] == next(iter(patterns))] if dash else last
        last = last.drop_duplicates(line, keep="last")
        ends = list(zip(last[line], last[[x, column]].to_numpy(), strict=True))
        if fits_aside(looks) and axis.get_subplotspec().is_last_col():
            name_ends(axis, ends, looks)
            named.update(last[line])
        else:  # beside them, names would push panels apart
            name_ends_inside(axis, ends, looks)
    entries = [look for label, look in looks.items() if label not in named]
    entries += [{"color": ".35", "dashes": pattern, "label": name} for name, pattern in patterns.items()]
    entries += [style.MARK | {"label": name} for name in (() if marks is None else marks.mark.unique())]
    style.legend(figure, [*entries, *edges])
    return style.titled(figure, title, context)


def _places(columns, names, shared, own_x):
    """A figure, its axes and, for each panel, axes, column and name."""
    in_row = _IN_ROW if len(columns) == 1 else len(names)
    figure, axes = style.panel_grid(len(columns) * len(names), in_row, sharex=not own_x)
    places = [(axis, *place) for axis, place in zip(axes.flat, product(columns, names), strict=False)]
    for column in shared:
        first, *followers = [axis for axis, shown, _ in places if shown == column]
        for axis in followers:
            axis.sharey(first)
    return figure, axes, places


def _draw(axis, rows, x, column, line, looks, dash, patterns, markers):
    """Draw the lines of a panel; where a column gives dashes, they have no others, and dashed lines are hollow."""
    for value, pattern in patterns.items() or [(None, None)]:
        part = rows if dash is None else rows[rows[dash] == value]
        for label, look in looks.items():
            points = part[part[line] == label].sort_values(x, kind="stable")
            look = look | {"mec": "white", "mew": 0.75} | ({} if markers else {"marker": ""})
            if dash:
                look |= {"ls": (0, pattern), "mfc": "white", "mec": look["color"]} if pattern else {"ls": "-"}
            if len(points):
                axis.plot(points[x], points[column], **look)


def _scales(axis, across, values, log, zero, own_x):
    """Both scales: with a line at 0 where values are below it, and ticks at counts and at few values."""
    if "y" in log and values.min() < values.max():  # a logarithmic axis needs two ends
        axis.set_yscale("log")
        style.log_axis(axis.yaxis, style.log_ticks(*axis.get_ylim(), _MOST_TICKS))
    elif values.min() < 0:
        axis.axhline(0, color="black", lw=0.8)
    elif zero:
        axis.set_ylim(0, max(axis.get_ylim()[1], 1.06 * values.max()))
    ticks = sorted(across.unique())
    if len(ticks) == 1:
        axis.set_xticks(ticks)
    elif across.name in _COUNTS:
        axis.set_xscale("log", base=2)
        letters = sum(len(str(count)) + 1.5 for count in ticks)
        style.log_axis(axis.xaxis, ticks[:: math.ceil(letters / style.letters_across(axis))])
    elif "x" in log and not (own_x and across.max() <= _NARROW * across.min()):
        axis.set_xscale("log")
        style.log_axis(axis.xaxis, ticks if len(ticks) <= _FEW else style.log_ticks(ticks[0], ticks[-1]))
