"""A schedule of one's own: the grid of an error, and time against memory of all that it is ranked against."""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.patches import Patch, Rectangle

from ppmodel.ops import parse_cell
from ppmodel.plot.style import BLUE, GREY, VERMILION, titled
from ppmodel.plot.timelines import KIND_COLOURS

_PALE = 0.4
_MARK = "#D0104C"
_NAME_IN = 0.165
_AROUND_IN = 1.1


def plot_marked(grids, title, context):
    """The grids of some errors as pictures: every cell in its row, those in question in full colour and framed.

    Parameters
    ----------
    grids : dict of str to Grid or None
        Heading to a table with marked cells, as a `TableError` has it; None is left out, of large ones the
        neighbourhood of the marks is shown.
    title, context : str
        The point of the figure, and what it shows; see `context`.

    Returns
    -------
    matplotlib Figure
    """
    grids = {name: grid for name, grid in grids.items() if grid}
    if not grids:
        return titled(plt.figure(figsize=(7.8, 0.4)), title, "no table with marked cells")
    heights = [len(grid.ranks) for grid in grids.values()]
    figure, axes = plt.subplots(
        len(grids), squeeze=False, sharex=True, height_ratios=heights,
        figsize=(7.8, 0.8 + 0.32 * sum(heights) + 0.3 * len(heights)),
    )  # fmt: skip
    for axis, (name, grid) in zip(axes[:, 0], grids.items(), strict=True):
        _draw_grid(axis, grid)
        axis.set_title(name)
    frame = Patch(facecolor="none", edgecolor=_MARK, lw=2, label="cell in question")
    figure.legend(handles=[frame], loc="outside lower center", fontsize=8.5)
    return titled(figure, title, context)


def _draw_grid(axis, grid):
    columns = 0
    for line, rank in enumerate(grid.ranks):
        row = grid.rows[rank][grid.places.start : grid.places.stop]
        for column, text in enumerate(row):
            _draw_cell(axis, column, line, text, (rank, grid.places.start + column) in grid.marks)
        columns = max(columns, len(row))
    axis.set(ylim=(len(grid.ranks) - 0.45, -0.55), ylabel="rank")
    axis.set_xlim(-0.05, max(axis.get_xlim()[1], columns) + 0.05)
    axis.set_yticks(range(len(grid.ranks)), list(grid.ranks))
    axis.set_xticks([])
    axis.grid(visible=False)
    axis.spines[["left", "bottom"]].set_visible(False)


def _draw_cell(axis, column, place, text, marked):
    colour = KIND_COLOURS[parse_cell(text)[0].kind]
    style = {"facecolor": colour, "edgecolor": "#555555", "lw": 0.5, "alpha": 1 if marked else _PALE}
    axis.add_patch(Rectangle((column, place - 0.42), 1, 0.84, **style))
    if marked:
        frame = {"fill": False, "ec": _MARK, "lw": 2.4, "zorder": 4}
        axis.add_patch(Rectangle((column, place - 0.42), 1, 0.84, **frame))
    axis.text(column + 0.5, place, text, ha="center", va="center", fontsize=7.5, weight="bold" if marked else "normal")


def plot_rank(study, title, context):
    """Simulated time against peak activations, a labelled point a schedule; what nothing beats lies on the steps.

    Parameters
    ----------
    study : DataFrame
        From `studies.rank_study`.
    title, context : str
        The point of the figure, and what it shows; see `context`.

    Returns
    -------
    matplotlib Figure
    """
    figure, axis = plt.subplots(figsize=(7.8, max(3.6, 1.4 + 0.24 * len(study))))
    best = study[study.unbeaten].sort_values("t_sim_s")
    axis.step(best.t_sim_s, best.peak_activations, where="post", color=GREY, lw=1.2, zorder=1)
    for style, rows in (
        ({"marker": "o", "s": 34, "c": BLUE}, study[~study.own & study.unbeaten]),
        ({"marker": "o", "s": 34, "facecolors": "white", "edgecolors": BLUE}, study[~study.own & ~study.unbeaten]),
        ({"marker": "*", "s": 190, "c": VERMILION, "edgecolors": "black", "lw": 0.6}, study[study.own]),
    ):
        axis.scatter(rows.t_sim_s, rows.peak_activations, zorder=3, **style)
    axis.set(xlabel="T_sim (s)", ylabel="peak activations\n(microbatches on 1/S of the model)", ylim=(0, None))
    axis.margins(x=0.06)
    _label_beside(axis, study)
    return titled(figure, title, context)


def _label_beside(axis, study):
    """The names in a column to the right, in the order of their points and never over one another."""
    order = {"by": ["peak_activations", "t_sim_s", "schedule"], "ascending": [True, False, True]}
    rows = study.sort_values(**order, ignore_index=True)  # lines from the left pass over points to their right
    wanted = rows.peak_activations.to_numpy() / axis.get_ylim()[1]
    room = axis.figure.get_figheight() - _AROUND_IN
    gap = min(_NAME_IN / room, 1 / max(1, len(rows) - 1))
    for row, height in zip(rows.itertuples(), kept_apart(wanted, gap), strict=True):
        axis.annotate(
            row.schedule, (row.t_sim_s, row.peak_activations), (1.03, height), xycoords="data",
            textcoords="axes fraction", va="center", fontsize=8.5, weight="bold" if row.own else "normal",
            annotation_clip=False, arrowprops={"arrowstyle": "-", "color": "#999999", "lw": 0.5, "shrinkB": 3,
                                                "relpos": (0, 0.5)},
        )  # fmt: skip


def kept_apart(wanted, gap):
    """Rising heights as near to the wanted ones as a gap between them and an axis from 0 to 1 allow.

    >>> kept_apart([0.25, 0.25, 1.0], 0.25).tolist()
    [0.25, 0.5, 1.0]
    """
    heights = np.array(wanted, dtype=float)
    for number in range(1, len(heights)):
        heights[number] = max(heights[number], heights[number - 1] + gap)
    heights[-1] = min(heights[-1], 1.0)
    for number in range(len(heights) - 2, -1, -1):
        heights[number] = min(heights[number], heights[number + 1] - gap)
    return heights
