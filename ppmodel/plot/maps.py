"""Pictures of answers: which claim holds under which assumption, what a search found."""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ppmodel.plot.style import BLUE, GREEN, GREY, titled

_HOLDS, _FAILS, _NO_CASE = BLUE, "#F3D9A4", "#FFFFFF"


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
