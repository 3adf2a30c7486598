"""Bars of a frame, beside each other or stacked, in panels."""

from itertools import cycle
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from ppmodel.plot import style
from ppmodel.plot.palette import BLUE, GREEN, ORANGE, PURPLE, VERMILION, YELLOW, style_of
from ppmodel.studies.points import PARTS

_PARTS = (BLUE, ORANGE, YELLOW, PURPLE, "#4d4d4d", "#bdbdbd", VERMILION, GREEN, "#6b3f12")
_HATCHES = "", "////", "....", "xxxx", "||||"
_THICK, _SLOT = 0.76, 0.27  # of a row of bars; its inches
_NAME_LINE = 0.145  # inches


@style.redrawable
def plot_bars(
    frame, x, y, title, context="", *, bar="label", panel=None, labels=None, stacked=False, horizontal=False,
    share=True, colours=None, marks=None,
):  # fmt: skip
    """Draw grouped or stacked bars: a group per value of `x`, a colour per value of `bar`, in panels side by side.

    Bars that share a colour, as from the seventh on they may, are hatched.

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
        Whether bars are horizontal, the first on top, which leaves room for long names.
    share : bool
        Whether all panels share one scale.
    colours : dict of str to str, optional
        Colour of each value of `bar`; by default, that of `style_of`.
    marks : DataFrame, optional
        Points to mark on bars that stand side by side, such as published ones: the columns `x`, `y` and `bar`, and
        ``mark``, what the legend calls them.

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
    style.require_points(frame, [y], x, bar, panel)
    colours = colours or {name: look["color"] for name, look in style_of(frame[bar]).items()}
    bars = pd.DataFrame({"group": frame[x].map(str), "bar": frame[bar], "size": frame[y]})
    bars["panel"] = frame[panel] if panel else 0
    figure, axes = _draw(bars, colours, stacked, horizontal, share, ("", style.axis_label(y, labels)), panel, labels)
    looks = [Patch(**look, label=name) for name, look in _looks(colours).items()] if x != bar else []
    if marks is not None:
        groups, names, width = list(bars.group.unique()), list(colours), _THICK / len(colours)
        marks = marks[marks[x].map(str).isin(groups) & marks[bar].isin(names)]
        places = zip(marks[x].map(str), marks[bar], strict=True)
        middles = [groups.index(group) + width * (names.index(name) - (len(names) - 1) / 2) for group, name in places]
        points = (marks[y], middles) if horizontal or style.is_narrow() else (middles, marks[y])
        axes[0].plot(*points, **style.MARK)
        looks += [plt.Line2D([], [], **style.MARK, label=name) for name in marks.mark.unique()]
    for axis in axes if style.is_ratio(y) else ():
        style.percent_axis(axis.xaxis if horizontal or style.is_narrow() else axis.yaxis)
    style.legend(figure, looks)
    return style.titled(figure, title, context)


@style.redrawable
def plot_parts(frame, x, parts, title, context="", *, axis="", panel=None, labels=None, horizontal=False):
    """Draw columns that add up, such as the parts of an iteration's time: a stacked bar per row, in panels.

    Parameters
    ----------
    frame : DataFrame
        One row per bar, as `ppmodel.compare` returns with a layout; rows without a number are left out.
    x : str
        Column that names the bars; each panel shows those of its own rows.
    parts : dict of str to str
        Columns from the bottom up, with their names in the legend. Colours go by position; columns that are 0 in all
        rows are left out.
    title, context, panel, labels, horizontal
        As in `plot_bars`.
    axis : str
        What the columns measure, with the unit.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import ppmodel as pp
    >>> from ppmodel.studies.points import PARTS
    >>> given = {"model": "llama3_70b", "system": "dgx_h100_nodes", "tp": 8, "dp": [1, 2, 4]}
    >>> frame = pp.compare("1f1b", 4, global_batch=64, **given)
    >>> len(plot_parts(frame, "dp", PARTS, "More replicas, fewer microbatches", axis="s").axes)
    1
    """
    style.require_points(frame, parts, x, panel)
    frame = frame.dropna(subset=list(parts))
    colours = {part: colour for part, colour in zip(parts, cycle(_PARTS)) if (frame[part] != 0).any()}
    bars = pd.DataFrame({"group": frame[x].map(str), "panel": frame[panel] if panel else 0, **frame[list(colours)]})
    bars = bars.melt(["group", "panel"], list(colours), "bar", "size")
    figure, _ = _draw(bars, colours, True, horizontal, True, (style.axis_label(x, labels), axis), panel, labels)
    style.legend(figure, [Patch(**look, label=parts[part]) for part, look in _looks(colours).items()])
    return style.titled(figure, title, context)


def plot_times(rows, causes=None):
    """Draw the time of each schedule, divided into its parts: what ``ppmodel compare --plot`` and ``replay`` draw.

    Parameters
    ----------
    rows : list of dict
        As the two commands print them as JSON; those refused are left out.
    causes : dict of str to str, optional
        Columns of idle time, with their names; by default the parts of a layout's iteration, or computing and idle.

    Returns
    -------
    matplotlib Figure
    """
    frame = pd.DataFrame([row for row in rows if row.get("refused") is None])
    if causes is None and "iteration_s" in frame:
        parts = PARTS
    else:
        frame["idle_s"] = frame.makespan_s * frame.idle_ratio
        frame["busy_s"] = frame.makespan_s - frame.idle_s
        parts = {"busy_s": "computing"} | (causes or {"idle_s": "idle"})
    row, sent = frame.iloc[0], frame.p2p.unique()
    sizes = {"system": row.get("system"), "S": row.pp, "B": row.microbatches}
    shown = style.context(row.get("model"), sent[0] if len(sent) == 1 else None, **sizes)
    total = "iteration_s" if parts is PARTS else "makespan_s"
    title = f"{frame.label[frame[total].idxmin()]} is the fastest"
    return plot_parts(frame, "label", parts, title, shown, axis="time (s)", horizontal=True)


def _looks(colours):
    """What bars look like: those that share a colour differ in their hatch.

    >>> [look["hatch"] for look in _looks({"1F1B": "blue", "GPipe": "red", "interleaved 1F1B": "blue"}).values()]
    ['', '', '////']
    """
    look, alike = {"edgecolor": "white", "lw": 0}, pd.Series(colours).groupby(colours).cumcount() % len(_HATCHES)
    return {name: look | {"fc": colour, "hatch": _HATCHES[alike[name]]} for name, colour in colours.items()}


def _draw(bars, colours, stacked, horizontal, share, axis_labels, panel, labels):
    """A figure with a panel of bars for each value of their ``panel``, and its axes.

    Bars have a ``group``, a ``bar`` that gives the colour, and a ``size``; `axis_labels` name groups and sizes.
    """
    horizontal, panels = horizontal or style.is_narrow(), style.panels_of(bars, "panel")
    groups = [list(rows.group.unique()) for rows in panels.values()]
    stacked = stacked or (bars.group == bars.bar).all()
    slot = _SLOT if stacked else max(_SLOT, 0.15 * bars.bar.nunique())
    lines = [line for group in bars.group.unique() for line in group.split("\n")]
    most_lines = 1 + max(group.count("\n") for group in bars.group)
    above = style.is_narrow() and max(map(len, lines)) > style.SHORT
    high = slot + (_NAME_LINE * most_lines if above else 0.12 * (most_lines - 1))
    thick = _THICK * slot / high if above else _THICK
    figure, axes = _axes([len(names) for names in groups], high, horizontal, share)
    category, measure = ("y", "x") if horizontal else ("x", "y")
    for axis, names, (name, rows) in zip(axes, groups, panels.items(), strict=True):
        style.panel_title(axis, panel, name if panel else None, labels)
        sizes = rows.pivot(index="bar", columns="group", values="size").reindex(colours, columns=names)
        base, width = np.zeros(len(names)), thick if stacked else thick / len(colours)
        for number, (size, look) in enumerate(zip(sizes.to_numpy(float), _looks(colours).values(), strict=True)):
            drawn = np.flatnonzero(~np.isnan(size))
            middles = drawn + (not stacked) * width * (number - (len(colours) - 1) / 2)
            (axis.barh if horizontal else axis.bar)(middles, size[drawn], width, base[drawn], **look)
            base[drawn] += stacked * size[drawn]
        outer = horizontal or axis is axes[0] or not share
        ends = -0.5, len(names) - 0.5
        axis.set(**{f"{category}label": axis_labels[0] * (not horizontal), f"{measure}label": axis_labels[1] * outer})
        axis.set(**{f"{category}lim": ends[::-1] if horizontal else ends})
        axis.grid(axis=category, visible=False)
        (axis.axvline if horizontal else axis.axhline)(0, color="black", lw=0.8)
        if above:
            axis.set(ylim=(len(names) - 0.9 + thick / 2, thick / 2 - 1))
            style.name_above(axis, names, np.arange(len(names)) - thick / 2)
        elif not horizontal:
            letters = int(0.8 * style.page_width() * 72 / style.AXIS_LETTER / sum(map(len, groups)))
            breakable = (name.replace("_", "_ ") for name in names)
            axis.set_xticks(range(len(names)), [fill(name, max(8, letters)).replace("_ ", "_") for name in breakable])
        else:
            repeated = axis is not axes[0] and not style.is_narrow() and names == groups[0]
            axis.set_yticks(range(len(names)), [] if repeated else names)
    return figure, axes


def _axes(counts, high, horizontal, share):
    """Axes side by side, below each other where it is narrow, with room for their numbers of groups."""
    below, size = horizontal and style.is_narrow(), [style.page_width(), 3.7]
    shapes = {"sharex" if horizontal else "sharey": share}
    if below:
        size[1] = 1.2 + high * sum(counts) + 0.6 * len(counts)
        shapes["height_ratios"] = [high * count + 0.1 for count in counts]
    elif horizontal:
        size[1] = 1.5 + high * max(counts)
    else:
        shapes["width_ratios"] = [count + 1 for count in counts]
    panels = (len(counts), 1) if below else (1, len(counts))
    figure, axes = plt.subplots(*panels, figsize=size, squeeze=False, **shapes)
    for axis in axes.flat if below else ():
        axis.tick_params(labelbottom=True)
    return figure, axes.ravel()
