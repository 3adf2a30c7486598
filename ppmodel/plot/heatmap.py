"""Heatmaps of a frame, in panels, with a number in every cell."""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.colors import CenteredNorm, LogNorm, Normalize

from ppmodel.plot import style
from ppmodel.plot.themes import ON_LIGHT, ink_on

_ROW, _BARE_ROW, _COLUMN = 0.27, 0.17, 0.62  # inches of a cell; of one without text; across, at least
_LINE, _LETTER = 0.12, 0.075  # inches of a further line of text, and of a letter
_WIDEST = 1.15  # page widths
_MANY = 20  # rows: from here on, columns are named above them too; also where names of rows stand above their cells
_FILLED = 0.86  # of a cell, by the widest number
_SIZE = 8  # points of a number, at most
_SIGNED_0 = r"^[+-]+(?=[0.%]*$)"  # the sign of a number that rounds to 0
_APART = 8  # pixels between names of columns
_COLUMNS = 7  # that need the room of names beside them in a narrow figure


@style.redrawable
def plot_heatmap(
    frame, x, y, value, title, context="", *, panel=None, form=None, text=None, framed=None, limits=None,
    centre=None, log=False, labels=None, names=None,
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
    names : dict, optional
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
    style.require_points(frame, [value, *filter(None, (text, framed))], x, y, panel)
    form = form or ("{:.0%}" if style.is_ratio(value) else "{:.3g}")
    names = {style.in_words(key): name for key, name in (names or {}).items()}
    written = frame[text] if text else frame[value].map(form.format).str.replace(_SIGNED_0, "", regex=True)
    frame = frame.assign(written=written)
    panels, bare = style.panels_of(frame, panel), not frame.written.astype(bool).any()
    rows, columns = list(dict.fromkeys(frame[y])), list(dict.fromkeys(frame[x]))
    row_names, column_names = ([str(names.get(key, key)) for key in keys] for keys in (rows, columns))
    # where it is narrow, names may stand above their cells, in lines of their own
    above = style.is_narrow() and not bare and (max(map(len, row_names)) > style.SHORT or len(columns) > _COLUMNS)
    step = 1 + above
    lines = [text.split("\n") for text in frame.written]
    row = _BARE_ROW if bare else _ROW + _LINE * (max(map(len, lines)) - 1)
    across = max(_COLUMN, _LETTER * max(len(line) for text in lines for line in text))
    figure, axes = _axes(len(panels), len(columns), step * len(rows) * row, across)
    low, high = limits or (frame[value].min(), frame[value].max())
    scale = (LogNorm if log else Normalize)(low, high if high > low else low + 1), "cividis_r"
    if centre is not None:
        scale = CenteredNorm(centre, max(abs(low - centre), abs(high - centre), 1e-12)), "PuOr_r"
    for axis, (name, part) in zip(axes.flat, panels.items(), strict=True):
        numbers = np.full((step * len(rows), len(columns)), np.nan)
        texts = np.full(numbers.shape, "", dtype=object)
        places = step * part[y].map(rows.index) + above, part[x].map(columns.index)
        numbers[places], texts[places] = part[value], part.written
        _draw_cells(axis, numbers, texts, *scale)
        for row, column in np.transpose(places)[part[framed].astype(bool)] if framed else ():
            corner = column + 0.06, row + 0.06
            axis.add_patch(plt.Rectangle(corner, 0.88, 0.88, fill=False, ec=ON_LIGHT, lw=1.3, zorder=2))
        if above:
            style.name_above(axis, row_names, step * np.arange(len(rows)) + 1)
        else:
            size = {"fontsize": 7 + style.is_narrow()} if bare else {}
            axis.set_yticks(np.arange(len(rows)) + 0.5, row_names, **size)
        axis.set_xlabel(style.axis_label(x, labels))
        axis.set_ylabel("" if above else style.axis_label(y, labels))
        style.panel_title(axis, panel, names.get(name, name), labels)
        if not style.is_narrow():  # there each panel has its own heads
            axis.label_outer()
    titled = style.titled(figure, title, context)
    _fit_text(titled, axes, column_names, above or len(rows) >= _MANY)
    return titled


def _draw_cells(axis, numbers, texts, norm, colours):
    """Draw the coloured cells of a panel, and their texts in black or white."""
    numbers = numbers.clip(norm.vmin, norm.vmax)
    cells = axis.pcolormesh(numbers, norm=norm, cmap=colours, ec="white", lw=0.8)
    axis.invert_yaxis()
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)
    size = _SIZE + style.is_narrow()
    for row, column in np.argwhere(~np.isnan(numbers)):
        look = {"ha": "center", "va": "center", "size": size, "color": ink_on(cells.to_rgba(numbers[row, column]))}
        axis.text(column + 0.5, row + 0.5, texts[row, column], **look)


def _axes(panels, columns, height, across):
    """A figure with panels side by side, as wide as cells need and the page allows; stacked where it is narrow."""
    if style.is_narrow():
        size = (style.page_width(), panels * (height + 0.9) + 0.6)
        return plt.subplots(panels, 1, figsize=size, squeeze=False)
    size = (min(panels * (across * columns + 0.4) + 2.0, _WIDEST * style.page_width()), height + 1.7)
    return plt.subplots(1, panels, figsize=size, squeeze=False)


def _fit_text(figure, axes, names, at_top):
    """Shrink numbers to their cells, and name the columns: aslant where a name is wider than a cell."""
    figure.draw_without_rendering()  # cells have their width only then
    numbers = [text for axis in axes.flat for text in axis.texts if text.get_ha() == "center"]
    cell = axes[0, 0].bbox.width / len(names)
    widest = max((number.get_window_extent().width for number in numbers), default=1)
    for number in numbers:
        number.set_fontsize((_SIZE + style.is_narrow()) * min(1, _FILLED * cell / widest))
    places = np.arange(len(names)) + 0.5
    for axis in axes.flat:
        axis.set_xticks(places, names)
        axis.tick_params(labeltop=at_top, pad=2, **({"labelsize": 8} if style.is_narrow() else {}))
        if max(label.get_window_extent().width for label in axis.get_xticklabels()) > cell - _APART:
            turned = {"rotation": 60 if style.is_narrow() else 40, "rotation_mode": "anchor", "ha": "right"}
            axis.set_xticks(places, [name.replace("\n", " ") for name in names], **turned)
            for tick in axis.xaxis.get_major_ticks():
                tick.label2.set_ha("left")
