"""Lines and bars of anyone's frame: one a schedule, in panels."""

from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, PercentFormatter

from ppmodel.plot.style import axis_label, count_axis, panel_grid, style_of, titled

_COUNTS = ("microbatches", "pp")


def plot_lines(
    frame, x, y, title, context="", *, line="label", panel=None, in_row=3, labels=None, percent=None, log=(), zero=True
):
    """Lines over a column, one a schedule, in panels.

    Parameters
    ----------
    frame : DataFrame
        A row a point, such as `ppmodel.compare` returns.
    x : str
        Column of the horizontal axis; ``microbatches`` and ``pp`` get a logarithmic axis with their own values.
    y : str or list of str
        Columns of the vertical axis; of several, each has a row of panels.
    title, context : str
        The point of the figure, and what it shows; see `context`.
    line : str
        Column that tells the lines apart.
    panel : str, optional
        Column that tells the panels apart.
    in_row : int
        Panels in a row, of a single `y`.
    labels : dict of str to str, optional
        What columns are called on the axes, with their unit; those of `evaluate.COLUMNS` have words of their own.
    percent : bool, optional
        Whether `y` is a ratio, shown in percent; by default where its name ends in ``ratio`` or is ``relative``.
    log : str or sequence of str
        Axes that are logarithmic, of ``"x"`` and ``"y"``.
    zero : bool
        Whether a linear vertical axis shows 0.

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
    panels = [None] if panel is None else list(dict.fromkeys(frame[panel]))
    if len(columns) > 1:
        figure, axes = panel_grid(len(columns), len(panels), share_y="row")
        places = [(axes[row, place], column, name) for row, column in enumerate(columns) for place, name in enumerate(panels)]
    else:
        wide = min(in_row, len(panels))
        figure, axes = panel_grid(-(-len(panels) // wide), wide)
        places = [(axis, y if isinstance(y, str) else columns[0], name) for axis, name in zip(axes.flat, panels, strict=False)]
        for axis in axes.flat[len(panels) :]:
            axis.set_visible(False)
    styles = style_of(frame[line])
    for axis, column, name in places:
        here = frame if name is None else frame[frame[panel] == name]
        for text, style in styles.items():
            rows = here[here[line] == text]
            axis.plot(rows[x], rows[column], **style)
        _vertical(axis, here[column], _is_ratio(column, percent), zero, "y" in log)
        axis.set_ylabel(axis_label(column, labels))
        _horizontal(axis, x, frame[x], labels, "x" in log)
        if name is not None and (len(columns) == 1 or column == columns[0]):
            axis.set_title(name if isinstance(name, str) else f"{axis_label(panel, labels)} = {name}", fontsize=9.5)
    for axis in axes.flat:
        axis.label_outer()
    legend(figure, axes.flat[0])
    return titled(figure, title, context)


def plot_bars(
    frame, x, y, title, context="", *, bar="label", panel=None, labels=None, percent=None, stacked=False,
    horizontal=False, colours=None,
):  # fmt: skip
    """Grouped or stacked bars, one group a value of `x`, one colour a value of `bar`, in panels side by side.

    Parameters
    ----------
    frame : DataFrame
        A row a bar.
    x, y : str
        Column that names the groups, and the one that gives the height.
    title, context, labels, percent
        As in `plot_lines`.
    bar : str
        Column that tells the bars of a group apart.
    panel : str, optional
        Column that tells the panels apart.
    stacked : bool
        Whether the bars of a group stand on one another.
    horizontal : bool
        Whether bars lie, which leaves room for long names; each panel then has a scale of its own.
    colours : dict of str to str, optional
        Of the bars, by value of `bar`; by default those of `style_of`.

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
    panels = [None] if panel is None else list(dict.fromkeys(frame[panel]))
    groups = list(dict.fromkeys(frame[x]))
    colours = colours or {name: style["color"] for name, style in style_of(frame[bar]).items()}
    lines = len(groups) * (1 if stacked else max(1, 0.55 * len(colours)))
    size = (7.8, 1.2 + 0.27 * lines if horizontal else 3.7)
    figure, axes = plt.subplots(1, len(panels), figsize=size, squeeze=False, sharey=True)
    for axis, one in zip(axes[0], panels, strict=True):
        here = frame if one is None else frame[frame[panel] == one]
        table = here.pivot(index=x, columns=bar, values=y).reindex(index=groups, columns=list(colours))
        shape = table.plot.barh if horizontal else table.plot.bar
        shape(stacked=stacked, ax=axis, color=colours, width=0.76, legend=False, **({} if horizontal else {"rot": 0}))
        _finish_bars(axis, axis_label(y, labels), horizontal, _is_ratio(y, percent))
        axis.set_title("" if one is None else str(one))
    if horizontal:
        axes[0, 0].invert_yaxis()
    legend(figure, axes[0, 0])
    return titled(figure, title, context)


def _finish_bars(axis, name, horizontal, ratio):
    """A line at 0, the name of the numbers, and the names of the groups, long ones on two lines."""
    numbers, line, along = (axis.xaxis, axis.axvline, "y") if horizontal else (axis.yaxis, axis.axhline, "x")
    line(0, color="black", lw=0.8)
    axis.set(xlabel="", ylabel="")
    numbers.set_label_text(name)
    axis.grid(axis=along, visible=False)
    if ratio:
        numbers.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g} %"))
    if not horizontal:
        texts = [text.get_text().replace("_cp_", "_cp\n") for text in axis.get_xticklabels()]
        axis.set_xticks(axis.get_xticks(), texts)


def _is_ratio(column, percent):
    return percent if percent is not None else column.endswith("ratio") or column == "relative"


def legend(figure, axis, extra=()):
    """One legend for a whole figure, below it, where it hides no data.

    Parameters
    ----------
    figure, axis : matplotlib Figure and Axes
        The axes give the entries.
    extra : sequence of matplotlib artists
        More entries, each with its label.
    """
    handles, labels = axis.get_legend_handles_labels()
    handles, labels = handles + list(extra), labels + [handle.get_label() for handle in extra]
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, max(1, len(labels))))


def _vertical(axis, values, ratio, zero, logarithmic):
    if ratio:
        axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    if logarithmic:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    elif values.min() < 0:
        axis.axhline(0, color="black", lw=0.8)
    elif zero:
        axis.set_ylim(0, max(axis.get_ylim()[1], 1.06 * values.max()))


def _horizontal(axis, x, values, labels, logarithmic):
    if x in _COUNTS:
        count_axis(axis, values)
    elif logarithmic:
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_xlabel(axis_label(x, labels))
