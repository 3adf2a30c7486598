"""Heatmaps of a frame: a number in every cell, in panels."""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.colors import LogNorm, Normalize, TwoSlopeNorm

from ppmodel.plot.style import axis_label, on_phone, page_width, panel_title, panels_of, redrawn, titled
from ppmodel.plot.themes import ON_DARK, ON_LIGHT

_DARK = 0.55
_HIGH, _BARE = 0.27, 0.16  # inches of a row, and of one without text
_WIDEST = 1.15
_LONG_NAME = 7  # letters that fit under a cell


@redrawn
def plot_heatmap(
    frame, x, y, value, title, context="", *, panel=None, form="{:.0%}", text=None, framed=None, limits=None,
    centre=None, log=False, labels=None, words=None,
):  # fmt: skip
    """Cells coloured by a number, with the number in each.

    Parameters
    ----------
    frame : DataFrame
        A row a cell; cells without a row stay white.
    x, y, value : str
        Columns of the horizontal and the vertical place, both in order of appearance, and of the number.
    title, context : str
        The point of the figure, and what it shows; see `context`.
    panel : str, optional
        Column that tells the panels apart, side by side.
    form : str
        Format of the number in a cell.
    text : str, optional
        Column with the text of a cell, in place of the number.
    framed : str, optional
        Boolean column: which cells get a black frame.
    limits : (float, float), optional
        The numbers at the ends of the colour scale; by default the smallest and the largest.
    centre : float, optional
        The number at the middle of diverging colours, orange to purple, for a change against a base; without it
        colours go from yellow to blue.
    log : bool
        Whether the colour scale is logarithmic.
    labels : dict of str to str, optional
        As in `plot_lines`.
    words : dict, optional
        Names of values of `x`, `y` and `panel`, where the values themselves will not do.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import ppmodel as pp
    >>> frame = pp.compare(["gpipe", "1f1b"], 4, [4, 8], forward=1, backward=2)
    >>> len(plot_heatmap(frame, "microbatches", "label", "idle_ratio", "The bubble shrinks with B").axes)
    1
    """
    panels, said = panels_of(frame, panel), words or {}
    columns, rows = list(dict.fromkeys(frame[x])), list(dict.fromkeys(frame[y]))
    bare = text is not None and not frame[text].astype(bool).any()
    figure, axes = _axes(len(panels), len(columns), len(rows), _BARE if bare else _HIGH)
    small = _text_size(figure, len(panels), len(columns), frame[y])
    norm = _norm(frame[value].to_numpy(dtype=float), limits, centre, log)
    colours = plt.get_cmap("cividis_r" if centre is None else "PuOr_r")
    for axis, (name, here) in zip(axes.flat, panels.items(), strict=True):
        cells = np.full((len(rows), len(columns)), np.nan)
        for row in here.to_dict("records"):
            place = rows.index(row[y]), columns.index(row[x])
            cells[place] = row[value]
            shade = colours(norm(np.clip(row[value], norm.vmin, norm.vmax)))
            dark = row[value] == row[value] and np.dot(shade[:3], (0.299, 0.587, 0.114)) < _DARK
            at = (place[1] + 0.5, place[0] + 0.5)
            written = row[text] if text else _written(form, row[value])
            axis.text(*at, written, ha="center", va="center", fontsize=small, color=ON_DARK if dark else ON_LIGHT)
            if framed and row[framed]:
                corner = (place[1] + 0.06, place[0] + 0.08)
                axis.add_patch(plt.Rectangle(corner, 0.88, 0.84, fill=False, ec=ON_LIGHT, lw=1.3, zorder=2))
        axis.pcolormesh(np.clip(cells, norm.vmin, norm.vmax), cmap=colours, norm=norm, edgecolors="white", lw=0.8)
        names = [str(said.get(one, one)) for one in columns]
        long = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if max(map(len, names)) > _LONG_NAME else {}
        axis.set_xticks(np.arange(len(columns)) + 0.5, names, **long)
        high = {"fontsize": 7} if bare else {}
        axis.set_yticks(np.arange(len(rows)) + 0.5, [str(said.get(one, one)) for one in rows], **high)
        axis.set(xlabel=axis_label(x, labels), ylim=(len(rows), 0))
        axis.grid(visible=False)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        panel_title(axis, panel, said.get(name, name), labels)
    for axis in axes[:, 0]:
        axis.set_ylabel("" if y in ("label", "schedule", "system") else axis_label(y, labels))
    return titled(figure, title, context)


def _axes(panels, columns, rows, high):
    """A figure with panels side by side, as wide as cells need and a page allows; one above another on a phone."""
    if on_phone():
        size = (page_width(), panels * ((high - 0.02) * rows + 0.75) + 0.6)
        return plt.subplots(panels, 1, figsize=size, squeeze=False, sharex=True)
    size = (min(panels * (0.62 * columns + 0.4) + 2.0, _WIDEST * page_width()), high * rows + 1.7)
    return plt.subplots(1, panels, figsize=size, squeeze=False, sharey=True)


def _text_size(figure, panels, columns, names):
    """Points of the text in a cell, which shares the width with the names of the rows."""
    beside = 1 if on_phone() else panels
    left = figure.get_figwidth() - 0.07 * max(len(str(name)) for name in names) - 0.2 * beside
    return max(4.5, min(8, 72 * left / beside / columns / 2.6))


def _written(form, value):
    """A number in its form, a missing one as nothing, and one that rounds to 0 without a sign."""
    said = form.format(value) if value == value else ""
    return said[1:] if said[:1] in ("+", "-") and not any(digit in said for digit in "123456789") else said


def _norm(values, limits, centre, log):
    low, high = limits or (np.nanmin(values), np.nanmax(values))
    if centre is not None:
        reach = max(abs(low - centre), abs(high - centre), 1e-12)
        return TwoSlopeNorm(centre, centre - reach, centre + reach)
    high = high if high > low else low + 1
    return LogNorm(low, high) if log else Normalize(low, high)
