"""Pictures of answers: which claim holds under which assumption, which schedule wins where, what a search found."""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.colors import BoundaryNorm, ListedColormap, to_rgb
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from ppmodel.plot.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, YELLOW, style_of, titled

_HOLDS, _FAILS, _NO_CASE = BLUE, "#F3D9A4", "#FFFFFF"
_WINNERS = {"GPipe": SKY, "1F1B": ORANGE, "eager 1F1B": YELLOW, "Chimera": GREEN, "Chimera forward-doubling": PURPLE}
_OTHER_WINNERS = (VERMILION, BLUE, GREY)
_BORDERS = ((VERMILION, "-"), ("black", "-"), ("black", (0, (4, 2))), (BLUE, (0, (1, 1))))
_CLEAR_LEAD = 0.01


def plot_verdicts(table, title, context):
    """Which row of the claims holds under which assumption.

    Parameters
    ----------
    table : DataFrame
        From `claims.outcome_table`: one row a row of the claims and assumption.
    title, context : str
        The point of the figure, and what it shows; see `style.context`.

    Returns
    -------
    matplotlib Figure
    """
    anchors, rows = list(dict.fromkeys(table.anchor)), list(dict.fromkeys(table.id))
    columns = list(dict.fromkeys(zip(table.axis, table.value, strict=True)))
    height = 0.165 * len(rows)
    figure, axes = plt.subplots(
        1, len(anchors), figsize=(0.2 * len(columns) * len(anchors) + 2.4, height + 2.9), sharey=True, squeeze=False
    )
    for axis, anchor in zip(axes[0], anchors, strict=True):
        _draw_verdicts(axis, table[table.anchor == anchor], rows, columns)
        axis.set_title(f"around the setting {anchor}", pad=8)
    axes[0, 0].set_yticks(np.arange(len(rows)) + 0.5, rows, fontsize=7)
    axes[0, 0].invert_yaxis()
    handles = [Patch(facecolor=_HOLDS, label="holds"), Patch(facecolor=_FAILS, label="does not hold")]
    handles.append(Patch(facecolor=_NO_CASE, edgecolor=GREY, label="not asked"))
    figure.legend(handles=handles, loc="outside lower right", ncols=3)
    return titled(figure, title, context)


def _draw_verdicts(axis, table, rows, columns):
    """Boxes for every row and assumption, with lines between claims and between what is changed."""
    answer = np.full((len(rows), len(columns)), np.nan)
    for one in table.itertuples():
        answer[rows.index(one.id), columns.index((one.axis, one.value))] = one.margin >= 0
    colours, limits = ListedColormap([_FAILS, _HOLDS]), BoundaryNorm([-0.5, 0.5, 1.5], 2)
    axis.pcolormesh(answer, cmap=colours, norm=limits, edgecolors="white", lw=0.8)
    axis.set_xticks(
        np.arange(len(columns)) + 0.5, [f"{name}: {value}" for name, value in columns], rotation=90, fontsize=6.5
    )
    axis.tick_params(length=0)
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)
    for number in range(1, len(columns)):
        if columns[number][0] != columns[number - 1][0]:
            axis.axvline(number, color="black", lw=1)
    for number in np.flatnonzero(np.diff(_claims(table, rows))):
        axis.axhline(number + 1, color="black", lw=0.6)


def _claims(table, rows):
    number = dict(zip(table.id, table.claim, strict=True))
    return np.array([number[row] for row in rows])


def plot_phases(points, borders, marks, title, context):
    """Which schedule is the fastest, over c/F and B, one panel an S; pale where its lead is below a percent.

    Parameters
    ----------
    points : DataFrame
        From `studies.winners`.
    borders : DataFrame
        From `studies.border_study`.
    marks : sequence of float
        Values of c/F to mark on the axis, such as those of systems.
    title, context : str
        The point of the figure, and what it shows; see `style.context`.

    Returns
    -------
    matplotlib Figure
    """
    sizes, names = sorted(points.stages.unique()), list(dict.fromkeys(sorted(points.schedule)))
    free = iter(_OTHER_WINNERS)
    colours = {name: _WINNERS.get(name) or next(free) for name in names}
    figure, axes = plt.subplots(1, len(sizes), figsize=(2.15 * len(sizes) + 0.6, 4.2), sharex=True, squeeze=False)
    styles = dict(zip(borders.border.cat.categories, _BORDERS, strict=True))
    for axis, size in zip(axes[0], sizes, strict=True):
        _draw_winners(axis, points[points.stages == size], colours)
        _draw_borders(axis, points[points.stages == size], borders[borders.stages == size], styles)
        for mark in marks:
            axis.axvline(mark, color="#444444", lw=0.7, ls=":")
        axis.set(title=f"S = {size}", xscale="log", xlabel="c / F")
        axis.set_xlim(points.comm_over_forward.min(), points.comm_over_forward.max())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.grid(visible=False)
    axes[0, 0].set_ylabel("microbatches B")
    handles = [Patch(facecolor=colour, label=f"{name} is the fastest") for name, colour in colours.items()]
    handles += [plt.Line2D([], [], color=c, ls=ls, lw=1.6, label=name) for name, (c, ls) in styles.items()]
    handles.append(plt.Line2D([], [], color="#444444", ls=":", lw=1, label="c / F of the nine systems"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8)
    return titled(figure, title, context)


def _draw_winners(axis, points, colours):
    counts, ratios = sorted(points.microbatches.unique()), np.sort(points.comm_over_forward.unique())
    picture = np.ones((len(counts), len(ratios), 3))
    for one in points.itertuples():
        colour = np.array(to_rgb(colours[one.schedule]))
        pale = one.lead < _CLEAR_LEAD
        where = counts.index(one.microbatches), np.searchsorted(ratios, one.comm_over_forward)
        picture[where] = 0.65 + 0.35 * colour if pale else colour
    logs = np.log(ratios)
    edges = np.exp(np.concatenate(([logs[0]], (logs[1:] + logs[:-1]) / 2, [logs[-1]])))
    axis.pcolormesh(edges, np.arange(len(counts) + 1), picture, rasterized=True)
    axis.set_yticks(np.arange(len(counts)) + 0.5, [str(count) for count in counts])
    axis.tick_params(axis="y", length=0)


def _draw_borders(axis, points, borders, styles):
    """Each border as a vertical stroke in the row of its B."""
    counts = sorted(points.microbatches.unique())
    for name, rows in borders.groupby("border", observed=True):
        colour, line = styles[name]
        for one in rows.itertuples():
            row = counts.index(one.microbatches)
            axis.plot([one.comm_over_forward] * 2, [row, row + 1], color=colour, ls=line, lw=2.0)


def plot_sensitivity(study, title, context):
    """Time against the base as one thing at a time is changed, one panel a knob.

    Parameters
    ----------
    study : DataFrame
        From `studies.sensitivity_study`.
    title, context : str
        The point of the figure, and what it shows; see `style.context`.

    Returns
    -------
    matplotlib Figure
    """
    knobs = list(dict.fromkeys(study.knob))
    columns = min(3, len(knobs))
    lines = -(-len(knobs) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(7.8, 2.3 * lines + 0.8), sharey=True, squeeze=False)
    for axis, knob in zip(axes.flat, knobs, strict=False):
        points = study[study.knob == knob]
        for name, style in style_of(study.schedule).items():
            rows = points[points.schedule == name]
            axis.plot(rows.value, rows.relative, **style | {"ms": 3, "lw": 1.5})
        if points.value.max() / points.value.min() > 5:
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.axhline(0, color="black", lw=0.8)
        axis.set_xlabel(knob, fontsize=8.5)
        axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    for axis in axes.flat[len(knobs) :]:
        axis.set_visible(False)
    figure.supylabel("T_sim against GPipe", fontsize=9.5)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return titled(figure, title, context)


def plot_search(found, unknowns, title, context):
    """How many settings meet how many numbers; and, for each value of each unknown, the most that any meets.

    Parameters
    ----------
    found : DataFrame
        From `claims.search`.
    unknowns : DataFrame
        From `claims.pinned`.
    title, context : str
        The point of the figure, and what it shows; see `style.context`.

    Returns
    -------
    matplotlib Figure
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.8, 5.6), width_ratios=[1, 1.1])
    counts = found.met.value_counts().sort_index()
    left.barh(counts.index, counts, color=BLUE)
    for met, count in counts.items():
        left.text(count * 1.15, met, f"{count:,}", va="center", fontsize=8)
    left.set(xscale="log", xlabel="settings", ylabel="published numbers met", xlim=(0.8, counts.max() * 8))
    left.set_yticks(range(counts.index.min(), counts.index.max() + 1))
    left.grid(axis="y", visible=False)

    labels = [f"{one.unknown}: {one.shown}" for one in unknowns.itertuples()]
    colours = [GREEN if one.pinned else BLUE if one.settings else "#BBBBBB" for one in unknowns.itertuples()]
    right.barh(range(len(labels)), unknowns.most_met, color=colours)
    right.set_yticks(range(len(labels)), labels, fontsize=7)
    right.invert_yaxis()
    right.set(xlabel="most numbers met with it")
    right.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    right.grid(axis="y", visible=False)
    words = {GREEN: "all of the best settings", BLUE: "some of the best", "#BBBBBB": "none of the best"}
    handles = [Patch(facecolor=colour, label=word) for colour, word in words.items()]
    figure.legend(handles=handles, loc="outside lower right", ncols=3, fontsize=8)
    return titled(figure, title, context)
