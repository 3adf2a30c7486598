"""Figures for dark pages: the same picture with light text and lines on a transparent background."""

from contextlib import contextmanager
from functools import partial

import numpy as np
from matplotlib.collections import Collection
from matplotlib.colors import to_rgb, to_rgba_array
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Annotation, Text

from ppmodel.plot.palette import contrast

ON_LIGHT, ON_DARK = "#010101", "#fefefe"
"""Black and white for text on coloured cells, which keep their colours, as does the text."""

GROUND = "#121212"
"""The background of a dark page."""

_INK, _NEUTRAL = 0.9, 0.05
_STROKE, _AREA = 4.5, 3.0  # contrasts
_COLOURS = ("color", "markerfacecolor", "markeredgecolor", "edgecolor", "facecolor")


def ink_on(colour):
    """Black or white, whichever is read better on a colour.

    >>> ink_on("yellow") == ON_LIGHT
    True
    """
    return max(ON_LIGHT, ON_DARK, key=lambda ink: contrast(ink, colour))


@contextmanager
def dark(figure):
    """Recolour a figure for a dark page, and restore its colours at the end.

    Black becomes light and white dark; strokes and areas that are too dark become lighter, in the same hue.

    Parameters
    ----------
    figure : matplotlib Figure

    Examples
    --------
    >>> from ppmodel.plot import plot_table
    >>> import ppmodel as pp
    >>> figure = plot_table({"1F1B": pp.build("1f1b", 2, 4)}, "title")
    >>> with dark(figure):
    ...     figure.texts[0].get_color() != "black"
    True
    """
    undo = [change for artist in figure.findobj() for change in _recoloured(artist)]
    try:
        yield figure
    finally:
        for restore in reversed(undo):
            restore()


def _recoloured(artist):
    """Recolour an artist; yields what restores each of its colours."""
    if isinstance(artist, Annotation) and artist.arrow_patch is not None:
        yield from _recoloured(artist.arrow_patch)
    if isinstance(artist, Text) and artist.get_bbox_patch() is not None:
        yield from _recoloured(artist.get_bbox_patch())
    if not isinstance(artist, (Text, Line2D, Patch, Collection)) or np.ndim(artist.get_alpha()):
        return  # cells that fade keep their colours
    given = [(name, getattr(artist, f"get_{name}", str)()) for name in _COLOURS]  # before any of them takes another's
    for name, before in given:
        mapped_cells = name == "facecolor" and isinstance(artist, Collection) and artist.get_array() is not None
        if len(before) == 0 or mapped_cells or (isinstance(before, str) and before in ("none", "auto")):
            continue
        least = _AREA if name == "facecolor" else _STROKE
        after = np.array([_on_dark(colour, least) for colour in to_rgba_array(before)])
        change = getattr(artist, f"set_{name}")
        change(after if np.ndim(before) == 2 else tuple(after[0]))
        yield partial(change, before)


def _on_dark(colour, least):
    """A colour (red, green, blue, opacity) for a dark page, with at least that contrast to its ground."""
    rgb, ground = colour[:3], np.array(to_rgb(GROUND))
    if any(np.allclose(rgb, to_rgb(kept), atol=1e-4) for kept in (ON_LIGHT, ON_DARK)):
        return colour
    if np.ptp(rgb) < _NEUTRAL:
        rgb = _INK + (ground - _INK) * rgb.mean()
    else:
        while contrast(rgb, ground) < least:
            rgb = rgb + 0.08 * (1 - rgb)
    return (*rgb, colour[3])
