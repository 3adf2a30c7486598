"""Heatmaps of a frame, in panels, with a number in every cell."""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.colors import LogNorm, Normalize, TwoSlopeNorm

from ppmodel.plot.style import (
    axis_label,
    is_ratio,
    on_phone,
    page_width,
    panel_title,
    panels_of,
    redrawn,
    require_points,
    titled,
    write_above,
)
from ppmodel.plot.themes import ON_DARK, ON_LIGHT

_DARK = 0.55
_HIGH, _BARE = 0.27, 0.16  # inches of a row, and of one without text
_WIDEST = 1.15
_LONG_NAME = 7  # letters that fit under a cell
_LETTER, _DIGIT = 5.3, 0.68  # points of a letter under a cell, and the size's share that one in it takes
_LEAST, _MOST = 6.5, 8  # points of a number that is easily read
_LINE = 0.17  # inches of a name above its row
_MANY = 20  # rows: from here on, columns are named above them too


@redrawn
def plot_heatmap(
    frame, x, y, value, title, context="", *, panel=None, form=None, text=None, framed=None, limits=None,
    centre=None, log=False, labels=None, words=None,
):  # fmt: skip
    """Draw a heatmap, with the number written in each cell.

    Parameters
    ----------
    frame : DataFrame
        One row per cell; cells without a row remain white.
    x, y, value : str
        Columns for the horizontal and vertical positions, both in order of appearance, and for the number.
    title, context : str
        The message of the figure, and what it shows; see `context`.
    panel : str, optional
        Column that distinguishes the panels, drawn side by side.
    form : str, optional
        Format of the numbers; by default, percent where `plot_lines` shows percent, otherwise three digits.
    text : str, optional
        Column with text for the cells, instead of the number.
    framed : str, optional
        Boolean column that says which cells get a black frame.
    limits : (float, float), optional
        The numbers at the ends of the colour scale; by default, the smallest and the largest.
    centre : float, optional
        The number at the centre of a diverging colour scale, orange to purple, for changes relative to a baseline;
        by default, colours go from yellow to blue.
    log : bool
        Whether the colour scale is logarithmic.
    labels : dict of str to str, optional
        As in `plot_lines`.
    words : dict, optional
        Names to show instead of values of `x`, `y` and `panel`.

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
    require_points(frame, [value, *filter(None, (text, framed))], x, y, panel)
    panels, said, form = panels_of(frame, panel), words or {}, form or ("{:.0%}" if is_ratio(value) else "{:.3g}")
    columns, rows = list(dict.fromkeys(frame[x])), list(dict.fromkeys(frame[y]))
    bare = text is not None and not frame[text].astype(bool).any()
    called = [str(said.get(one, one)) for one in rows]
    texts = [row[text] if text else _written(form, row[value]) for row in frame.to_dict("records")]
    longest = max(4, *map(len, texts))
    beside = _text_size(len(panels), len(columns), max(map(len, called)), longest)
    above = on_phone() and not bare and beside < _LEAST
    small = _text_size(1, len(columns), 0, longest) if above else max(4.5, min(_MOST, beside))
    high = (_BARE + 0.03 * on_phone() if bare else _HIGH) + _LINE * above
    share = 1 - _LINE * above / high  # of a row, its cells; a name stands above them
    figure, axes = _axes(len(panels), len(columns), len(rows), high)
    norm = _norm(frame[value].to_numpy(dtype=float), limits, centre, log)
    colours = plt.get_cmap("cividis_r" if centre is None else "PuOr_r")
    for axis, (name, here) in zip(axes.flat, panels.items(), strict=True):
        cells = np.full((len(rows), len(columns)), np.nan)
        for row in here.to_dict("records"):
            place = rows.index(row[y]), columns.index(row[x])
            cells[place] = row[value]
            shade = colours(norm(np.clip(row[value], norm.vmin, norm.vmax)))
            dark = row[value] == row[value] and np.dot(shade[:3], (0.299, 0.587, 0.114)) < _DARK
            at = (place[1] + 0.5, place[0] + 1 - share / 2)
            written = row[text] if text else _written(form, row[value])
            axis.text(*at, written, ha="center", va="center", fontsize=small, color=ON_DARK if dark else ON_LIGHT)
            if framed and row[framed]:
                corner = (place[1] + 0.06, place[0] + 1 - 0.92 * share)
                axis.add_patch(plt.Rectangle(corner, 0.88, 0.84 * share, fill=False, ec=ON_LIGHT, lw=1.3, zorder=2))
        _colour(axis, np.clip(cells, norm.vmin, norm.vmax), share, colours, norm)
        names = [str(said.get(one, one)) for one in columns]
        _name_columns(axis, names, figure, not above, twice=len(rows) >= _MANY)
        if above:
            write_above(axis, called, share, 1 - share / 2)
        else:
            axis.set_yticks(np.arange(len(rows)) + 0.5, called, **({"fontsize": 7 + on_phone()} if bare else {}))
        axis.set(xlabel=axis_label(x, labels), ylim=(len(rows), 0))
        axis.grid(visible=False)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        panel_title(axis, panel, said.get(name, name), labels)
    for axis in axes[:-1, 0]:
        axis.set_xlabel("")
    for axis in axes[:, 0]:
        axis.set_ylabel("" if above or y in ("label", "schedule", "system") else axis_label(y, labels))
    return titled(figure, title, context)


def _axes(panels, columns, rows, high):
    """A figure with panels side by side, as wide as cells need and the page allows; stacked on a phone."""
    if on_phone():
        size = (page_width(), panels * ((high - 0.02) * rows + 0.9) + 0.6)
        return plt.subplots(panels, 1, figsize=size, squeeze=False)
    size = (min(panels * (0.62 * columns + 0.4) + 2.0, _WIDEST * page_width()), high * rows + 1.7)
    return plt.subplots(1, panels, figsize=size, squeeze=False, sharey=True)


def _colour(axis, cells, share, colours, norm):
    """Colour cells, which leave the upper part of each row empty where names stand there."""
    edges = np.arange(len(cells) + 1.0)
    if share < 1:
        edges = np.append(np.column_stack((edges[:-1], edges[1:] - share)).ravel(), edges[-1])
        cells = np.stack((np.full_like(cells, np.nan), cells), axis=1).reshape(-1, cells.shape[1])
    across = np.arange(cells.shape[1] + 1)
    axis.pcolormesh(across, edges, cells, cmap=colours, norm=norm, edgecolors="white", lw=0.8)


def _text_size(panels, columns, name, text):
    """Points of a text of some letters in a cell, which shares the width with the names of the rows."""
    if on_phone():
        beside, left = 1, page_width() - 0.078 * name - 0.4
    else:
        width = min(panels * (0.62 * columns + 0.4) + 2.0, _WIDEST * page_width())
        beside, left = panels, width - 0.07 * name - 0.2 * panels
    return min(_MOST, 72 * left / beside / columns / (_DIGIT * text))


def _name_columns(axis, names, figure, beside, twice):
    """Write the columns' names below them: aslant where they are long, on a phone where they are wider than a cell.

    They may stand above them, too.
    """
    aslant = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
    long = max(map(len, names)) > _LONG_NAME
    if on_phone():
        cell = 72 * (figure.get_figwidth() - 0.3) * (0.5 if beside else 1) / len(names)
        long = _LETTER * max(len(line) for name in names for line in name.split("\n")) > cell
        names = [name.replace("\n", " ") for name in names] if long else names
        aslant |= {"rotation": 60}
    places = np.arange(len(names)) + 0.5
    axis.set_xticks(places, names, **(aslant if long else {}))
    if twice:
        top = axis.secondary_xaxis("top")
        top.set_xticks(places, names, **(aslant | {"ha": "left"} if long else {}))
        top.tick_params(length=0)
        top.spines[:].set_visible(False)


def _written(form, value):
    """Format a number; a missing one is empty, and one that rounds to 0 has no sign."""
    said = form.format(value) if value == value else ""
    return said[1:] if said[:1] in ("+", "-") and not any(digit in said for digit in "123456789") else said


def _norm(values, limits, centre, log):
    low, high = limits or (np.nanmin(values), np.nanmax(values))
    if centre is not None:
        reach = max(abs(low - centre), abs(high - centre), 1e-12)
        return TwoSlopeNorm(centre, centre - reach, centre + reach)
    high = high if high > low else low + 1
    return LogNorm(low, high) if log else Normalize(low, high)
