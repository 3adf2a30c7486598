"""Lines and bars of a frame, one per schedule, in panels."""

from itertools import product

from matplotlib import pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ppmodel.plot.ends import label_ends
from ppmodel.plot.palette import style_of
from ppmodel.plot.style import (
    axis_label,
    is_ratio,
    log_ticks,
    names_above,
    on_phone,
    page_width,
    panel_grid,
    panel_title,
    panels_of,
    percent_axis,
    redrawn,
    require_columns,
    require_points,
    row_height,
    titled,
    wrapped,
    write_above,
)

_COUNTS = ("microbatches", "pp")
_NARROW = 5
_FEW = 6
_THICK, _BAR = 0.76, 0.14  # of a group of bars, and inches of a bar below its name
_DASHES = ("-", ":", (0, (5, 2)), "-.")


@redrawn
def plot_lines(
    frame, x, y, title, context="", *, line="label", dash=None, panel=None, in_row=3, labels=None, percent=None,
    log=(), zero=True, markers=True, limits=None, share=True, own_x=False, band=None,
):  # fmt: skip
    """Draw lines over a column, one per schedule, in panels; each is named at its end in the last panel of a row.

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
    in_row : int
        Panels per row, if there is a single `y`.
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
    band : (str, str), optional
        Columns for the lower and upper ends of a band around each line, such as a confidence interval.

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
    require_columns(frame, *columns, *band or ())
    frame = frame.dropna(subset=columns)
    require_points(frame, columns, x, line, dash, panel)
    shared = columns if share is True else share or ()
    panels = panels_of(frame, panel)
    figure, axes, places = _places(columns, list(panels), in_row, shared, not own_x)
    dashes = {} if dash is None else dict(zip(dict.fromkeys(frame[dash]), _DASHES, strict=False))
    styles = {name: style | ({} if markers else {"marker": ""}) for name, style in style_of(frame[line]).items()}
    if dashes:
        styles = {name: style | {"ls": "-"} for name, style in styles.items()}
    extra = [plt.Line2D([], [], color="#555555", ls=form, lw=1.4, label=name) for name, form in dashes.items()]
    extra += _limit_lines(axes.flat, limits or {})
    for axis, column, name in places:
        here = panels[name]
        _draw_lines(axis, here, x, column, (line, styles), (dash, dashes), band)
        on_scale = (frame if column in shared else here)[column]
        _vertical(axis, on_scale, is_ratio(column) if percent is None else percent, zero, "y" in log)
        axis.set_ylabel(axis_label(column, labels))
        values = (here if own_x else frame)[x]
        _horizontal(axis, x, values, labels, "x" in log and not (own_x and values.max() <= _NARROW * values.min()))
        if column == columns[0] or on_phone():
            panel_title(axis, panel, name, labels)
    label_edges(axes, axis_label(x, labels), places, shared)
    if own_x:
        for axis, *_ in places:
            axis.tick_params(labelbottom=True)
    named = set()
    several = any(here[line].nunique() > 1 for here in panels.values())  # otherwise panel titles name them
    for axis, column, name in _last_of_rows(axes, places) if several else ():
        ends = _ends(panels[name], x, column, line, styles, dash)
        named |= ends.keys()
        label_ends(axis, ends, styles)
    handles = [plt.Line2D([], [], **style) for text, style in styles.items() if text not in named and several]
    if handles or extra:
        legend(figure, None, [*handles, *extra])
    return titled(figure, title, context)


def _last_of_rows(axes, places):
    """The last panel of each full row, with its column and name: elsewhere, line names would push panels apart."""
    shown = {axis: (axis, *place) for axis, *place in places}
    return [shown[axis] for axis in axes[:, -1] if axis in shown]


def _ends(here, x, column, line, styles, dash):
    """The end of each line, for the first dash style."""
    ends = {}
    for text in styles:
        rows = here[here[line] == text]
        rows = rows if dash is None else rows[rows[dash] == rows[dash].iloc[:1].squeeze()] if len(rows) else rows
        if len(rows):
            last = rows.iloc[-1]
            ends[text] = (last[x], last[column])
    return ends


def _places(columns, panels, in_row, shared, share_x):
    """A figure, its axes and, for each panel, axes, column and name."""
    if len(columns) == 1:
        figure, axes = panel_grid(len(panels), in_row, share_y=bool(shared), share_x=share_x)
    else:
        figure, axes = panel_grid(len(columns) * len(panels), len(panels), share_y=False, share_x=share_x)
        rows = zip(axes.reshape(len(columns), -1), columns, strict=True)
        for row in (row for row, column in rows if column in shared):
            for axis in row[1:]:
                axis.sharey(row[0])
    return figure, axes, [(axis, *place) for axis, place in zip(axes.flat, product(columns, panels), strict=False)]


def label_edges(axes, name, places, shared):
    """Label panels on the left and at the bottom, above an empty place, and wherever a scale is not shared.

    Parameters
    ----------
    axes : ndarray of Axes, shape (rows, columns)
    name : str
        Label of the horizontal axis.
    places : sequence of (Axes, str, object)
        Each panel's axes, the column on its vertical axis, and its name.
    shared : sequence of str
        Columns for which all panels share one scale.
    """
    for axis in axes.flat:
        axis.label_outer()
        if on_phone():
            axis.tick_params(labelbottom=True)
    for axis, column, _ in places:
        if column not in shared:
            axis.tick_params(labelleft=True)
    for above, below in zip(axes[:-1].flat, axes[1:].flat, strict=True):
        if not below.get_visible():
            above.set_xlabel(wrapped(name, above))
            above.tick_params(labelbottom=True)


def _draw_lines(axis, here, x, column, lines, dashed, band):
    (line, styles), (dash, dashes) = lines, dashed
    for text, style in styles.items():
        rows = here[here[line] == text]
        if band:
            axis.fill_between(rows[x], rows[band[0]], rows[band[1]], color=style["color"], alpha=0.18, lw=0)
        if dash is None:
            axis.plot(rows[x], rows[column], **style)
        for value, form in dashes.items():
            points = rows[rows[dash] == value]
            axis.plot(points[x], points[column], **style | {"ls": form, "mfc": None if form == "-" else "white"})


def _limit_lines(axes, limits):
    """Draw each limit in all axes; return the legend entries."""
    forms = ("-", (0, (6, 2)), (0, (1, 2)))
    styles = [
        {"color": "black", "lw": 0.9, "ls": forms[number % 3], "label": name} for number, name in enumerate(limits)
    ]
    for axis in axes:
        for value, style in zip(limits.values(), styles, strict=True):
            axis.axhline(value, **style)
    return [plt.Line2D([], [], **style) for style in styles]


@redrawn
def plot_bars(
    frame, x, y, title, context="", *, bar="label", panel=None, labels=None, stacked=False, horizontal=False,
    share=True, colours=None,
):  # fmt: skip
    """Draw grouped or stacked bars: a group per value of `x`, a colour per value of `bar`, in panels side by side.

    Parameters
    ----------
    frame : DataFrame
        One row per bar.
    x, y : str
        Columns for the groups and for the height of bars; if `x` is also `bar`, each group has one bar.
    title, context, labels
        As in `plot_lines`.
    bar : str
        Column that distinguishes the bars of a group.
    panel : str, optional
        Column that distinguishes the panels.
    stacked : bool
        Whether to stack the bars of a group.
    horizontal : bool
        Whether bars are horizontal, which leaves room for long names.
    share : bool
        Whether all panels share one scale.
    colours : dict of str to str, optional
        Colour of each value of `bar`; by default, that of `style_of`.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import ppmodel as pp
    >>> frame = pp.compare(["gpipe", "1f1b"], 4, 8, model="paper", system=["dgx_a100", "dgx_h100"])
    >>> len(plot_bars(frame, "system", "makespan_s", "Newer is faster").axes)
    1
    """
    require_points(frame, [y], x, bar, panel)
    panels, stacked = panels_of(frame, panel), stacked or x == bar
    groups = list(dict.fromkeys(frame[x]))
    horizontal = horizontal or on_phone()
    colours = colours or {name: style["color"] for name, style in style_of(frame[bar]).items()}
    lines = len(groups) * (1 if stacked else max(1, 0.55 * len(colours)))
    rows, columns = (len(panels), 1) if on_phone() else (1, len(panels))
    names = [str(group) for group in groups]
    above, thick = names_above(names) if horizontal else 0, _THICK
    if above:
        high, thick = row_height(_BAR * (1 if stacked else len(colours)), above)
        lines = high * len(groups) / 0.27
    size = (page_width(), 1.2 + (0.27 * lines + 0.3) * rows if horizontal else 3.7)
    shared = {"sharex": share, "sharey": True} if horizontal else {"sharey": share}
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, **shared)
    for axis, (name, here) in zip(axes.flat, panels.items(), strict=True):
        table = here.assign(_bar=here[bar]).pivot(index=x, columns="_bar", values=y)
        table = table.reindex(index=groups, columns=list(colours))
        shape = table.plot.barh if horizontal else table.plot.bar
        shape(stacked=stacked, ax=axis, color=colours, width=thick, legend=False, **({} if horizontal else {"rot": 0}))
        _finish_bars(axis, axis_label(y, labels), horizontal, is_ratio(y))
        panel_title(axis, panel, name, labels)
        if above:
            write_above(axis, names, thick)
        if on_phone():
            axis.tick_params(labelbottom=True)
    if horizontal and not above:
        axes[0, 0].invert_yaxis()
    if x != bar:
        legend(figure, axes[0, 0])
    return titled(figure, title, context)


def _finish_bars(axis, name, horizontal, ratio):
    """A line at 0, the axis label, and the names of the groups; long names take two lines."""
    numbers, line, along = (axis.xaxis, axis.axvline, "y") if horizontal else (axis.yaxis, axis.axhline, "x")
    line(0, color="black", lw=0.8)
    axis.set(xlabel="", ylabel="")
    axis.minorticks_off()
    numbers.set_label_text(name)
    axis.grid(axis=along, visible=False)
    if ratio:
        percent_axis(numbers)
    if not horizontal:
        names = [text.get_text() for text in axis.get_xticklabels()]
        axis.set_xticks(axis.get_xticks(), [_two_lines(name, len(names)) for name in names])


def _two_lines(name, groups):
    """A name, broken near its middle at an underscore or space if it is too long."""
    breaks = [place for place, letter in enumerate(name) if letter in "_ "]
    if not breaks or len(name) * groups < 80:
        return name
    place = min(breaks, key=lambda one: abs(one - len(name) / 2))
    return f"{name[: place + 1].rstrip()}\n{name[place + 1 :]}"


def legend(figure, axis=None, extra=()):
    """Draw one legend for the whole figure, below it, where it hides no data.

    Parameters
    ----------
    figure : matplotlib Figure
    axis : matplotlib Axes, optional
        Source of the entries.
    extra : sequence of matplotlib artists
        Further entries, with labels.
    """
    handles = [*(axis.get_legend_handles_labels()[0] if axis else ()), *extra]
    longest = max((len(one.get_label()) for one in handles), default=0)
    columns = int(figure.get_figwidth() * 72 / (5.2 * longest + 42))
    columns = -(-len(handles) // -(-len(handles) // max(1, columns)))  # rows as even as possible
    figure.legend(handles=handles, loc="outside lower center", ncols=max(1, columns))


def _vertical(axis, values, ratio, zero, logarithmic):
    if logarithmic:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if ratio:
        percent_axis(axis.yaxis)
    if values.min() < 0 and not logarithmic:
        axis.axhline(0, color="black", lw=0.8)
    elif zero and not logarithmic:
        axis.set_ylim(0, max(axis.get_ylim()[1], 1.06 * values.max()))


def _horizontal(axis, x, values, labels, logarithmic):
    if x in _COUNTS:
        counts = sorted(values.unique())
        axis.set_xscale("log", base=2)
        axis.set_xticks(counts, [str(count) for count in counts])
        axis.minorticks_off()
    elif logarithmic:
        few = sorted(values.unique()) if values.nunique() <= _FEW else None
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(FixedLocator(few or log_ticks(values.min(), values.max())))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_xlabel(wrapped(axis_label(x, labels), axis))
