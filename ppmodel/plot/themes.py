"""Figures for dark pages: the same picture with light text and lines on a transparent background."""

from contextlib import contextmanager

import numpy as np
from matplotlib.collections import Collection
from matplotlib.colors import to_rgba, to_rgba_array
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Annotation, Text

from ppmodel.plot.palette import contrast

ON_LIGHT, ON_DARK = "#010101", "#fefefe"
"""Black and white for text on coloured cells, which keep their colours, as does the text."""

GROUND = "#121212"
"""The background of a dark page."""

_INK, _NEUTRAL, _CONTRAST = 0.9, 0.05, 4.5
_KEPT = tuple(to_rgba(colour)[:3] for colour in (ON_LIGHT, ON_DARK))


@contextmanager
def dark(figure):
    """Recolour a figure for a dark page, and restore its colours at the end.

    Black becomes light and white dark; strokes that are too dark become lighter, in the same hue; areas are unchanged.

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
    undo = [change for artist in _artists(figure) for change in _recoloured(artist)]
    try:
        yield figure
    finally:
        for setter, value in reversed(undo):
            setter(value)


def _artists(figure):
    for artist in figure.findobj():
        yield artist
        if isinstance(artist, Annotation) and artist.arrow_patch is not None:
            yield artist.arrow_patch
        if isinstance(artist, Text) and artist.get_bbox_patch() is not None:
            yield artist.get_bbox_patch()


def _recoloured(artist):
    """Recolour an artist; yields how to undo each change."""
    for get, set_, stroke in _colours(artist):
        before = get()
        if isinstance(before, str) and before in ("none", "auto"):
            continue
        after = _mapped(before, stroke)
        set_(after)
        yield set_, before


def _colours(artist):
    """For each colour of an artist: how to read it, how to set it, and whether it is a stroke."""
    if isinstance(artist, Text):
        yield artist.get_color, artist.set_color, True
    elif isinstance(artist, Line2D):
        yield artist.get_color, artist.set_color, True
        yield artist.get_markerfacecolor, artist.set_markerfacecolor, True
        yield artist.get_markeredgecolor, artist.set_markeredgecolor, True
    elif isinstance(artist, Patch):
        yield artist.get_facecolor, artist.set_facecolor, False
        yield artist.get_edgecolor, artist.set_edgecolor, True
    elif isinstance(artist, Collection) and np.ndim(artist.get_alpha()) == 0:  # cells that fade keep their colours
        if artist.get_array() is None:
            yield artist.get_facecolor, artist.set_facecolor, False
        yield artist.get_edgecolor, artist.set_edgecolor, True


def _mapped(colours, stroke):
    """A colour, or an array of colours, for a dark page."""
    if isinstance(colours, np.ndarray) and colours.ndim == 2:
        return np.array([_mapped_one(one, stroke) for one in to_rgba_array(colours)]).reshape(-1, 4)
    return _mapped_one(to_rgba(colours), stroke)


def _mapped_one(colour, stroke):
    rgb, alpha = np.array(colour[:3], dtype=float), colour[3]
    if any(np.allclose(rgb, kept, atol=1e-4) for kept in _KEPT):
        return tuple(colour)
    ground = np.array(to_rgba(GROUND)[:3])
    if np.ptp(rgb) < _NEUTRAL:
        return (*(_INK + (ground - _INK) * rgb.mean()), alpha)
    while stroke and contrast(rgb, ground) < _CONTRAST:
        rgb = rgb + 0.08 * (1 - rgb)
    return (*rgb, alpha)
