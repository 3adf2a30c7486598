"""The style of every schedule: its family sets the hue; its position in the family sets shade, marker and dash."""

from functools import lru_cache
from itertools import count
from zlib import crc32

from matplotlib.colors import to_hex, to_rgb

from ppmodel import schedules
from ppmodel.errors import PPModelError
from ppmodel.tables import FAMILIES, family

BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, YELLOW, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442", "#7F7F7F",
)  # fmt: skip

HUES = dict(zip(FAMILIES, ("#0072B2", "#00966B", "#D68A00", "#C8609B", "#A83A08"), strict=True))
"""The hue of each family. The closest two differ as much as those of Okabe and Ito, also for colour-blind readers."""

_OWN = "#4D4D4D"
_MARKERS = "osD^vPX<>hp*"
_DASHES = ("-", (0, (5, 2)), (0, (1.2, 1.4)), (0, (6, 1.6, 1.2, 1.6)), (0, (9, 2)))
_FREE = ("#0072B2", "#A83A08", "#00966B", "#C8609B", "#D68A00", "#7F7F7F")
_SHADES, _MEMBERS = (("black", 0), ("black", 0.45), ("white", 0.36), ("black", 0.24), ("white", 0.56)), 3
_READ = 4.5


def style_of(labels):
    """Choose a line style for each label; a schedule looks the same in every figure.

    Parameters
    ----------
    labels : iterable of str
        In drawing order; duplicates count once. The label of a registered schedule, with or without options, gets the
        schedule's own style; other labels get free styles in order.

    Returns
    -------
    dict of str to dict
        Keyword arguments for matplotlib's ``plot``: colour, marker, dash, widths in points, label. Where lines
        coincide, the later one is narrower, so the earlier one remains visible.

    Examples
    --------
    >>> style_of(["GPipe", "Chimera"])["Chimera"]["marker"] == style_of(["Chimera"])["Chimera"]["marker"]
    True
    """
    labels = list(dict.fromkeys(labels))
    own = {text: style for text in labels if (style := _of_schedule(text))}
    free, taken, styles = _free_styles(_OWN if own else None), set(), {}
    for number, text in enumerate(labels):
        look = own.get(text) or next(free)
        colour, marker, dash = next(one for one in _moved_on(look) if one[:2] not in taken)
        taken.add((colour, marker))
        wide = max(0, 2 - number)
        styles[text] = {
            "color": colour, "marker": marker, "ls": dash, "lw": 1.6 + 0.9 * wide, "ms": 5 + 1.6 * wide, "label": text,
        }  # fmt: skip
    return styles


def family_styles(families):
    """Choose a marker and colour for each family, for figures with too many schedules to distinguish.

    Parameters
    ----------
    families : iterable of str
        From `tables.FAMILIES`; duplicates count once.

    Returns
    -------
    dict of str to dict
        Keyword arguments for matplotlib's ``plot``, in fixed order: colour, marker, size in points.

    Examples
    --------
    >>> list(family_styles(["loop", "one chunk", "loop"]))
    ['one chunk', 'loop']
    """
    there = [name for name in FAMILIES if name in set(families)]
    return {name: {"color": HUES[name], "marker": _MARKERS[FAMILIES.index(name)], "ms": 5.5} for name in there}


def _of_schedule(text):
    """Colour, marker and dash of a registered schedule's label; None for any other text."""
    entries = [schedules.get(name) for name in schedules.names()]
    found = [one for one in entries if text == one.label or text.startswith(f"{one.label} ")]
    if not found:
        return None
    entry = max(found, key=lambda one: len(one.label))
    number, hue, first = _place(entry)
    variant = _variant(entry, text[len(entry.label) :].strip())
    marker = _MARKERS[(first + number + 5 * variant) % len(_MARKERS)]
    shade = _SHADES[(number % _MEMBERS + variant) % len(_SHADES)]
    return _mixed(hue, *shade), marker, _DASHES[(number + variant) % len(_DASHES)]


def _place(entry):
    """A schedule's position in its family, in order of registration; the family's hue and first marker."""
    own = _family(entry.generate, entry.name)
    names = [one.name for one in schedules.entries() if _family(one.generate, one.name) == own]
    hue = HUES.get(own, _OWN)
    return names.index(entry.name), hue, 2 * FAMILIES.index(own) if own in FAMILIES else len(_MARKERS) - 1


@lru_cache(256)
def _family(_, name):
    """The family of a schedule, cached for each generator; None if it cannot be determined."""
    try:
        return family(schedules.small(name))
    except PPModelError:
        return None


def _variant(entry, text):
    """A number for a set of options, the same everywhere; 0 for the defaults."""
    value = text.rpartition("= ")[2]
    for option in entry.options:
        if not text or value == str(option.default):
            return 0
        if value in map(str, option.examples) and not value.isdigit():
            return 1 + list(map(str, option.examples)).index(value)
    return int(value).bit_length() if value.isdigit() else 1 + crc32(value.encode()) % 7 if value else 0


def _free_styles(colour):
    """Endless styles for labels that are not schedules, all different as long as colours and markers suffice."""
    for step in count():
        for number in range(len(_FREE)):
            marker = _MARKERS[(number + step) % len(_MARKERS)]
            yield colour or _FREE[number], marker, _DASHES[number % len(_DASHES)]


def _moved_on(look):
    """A style, then the same with other markers."""
    colour, marker, dash = look
    for step in count():
        yield _mixed(colour, "white", 0.12 * (step // len(_MARKERS))), _next(marker, step), dash


def _next(marker, step):
    return _MARKERS[(_MARKERS.index(marker) + step) % len(_MARKERS)]


def legible(colour):
    """Darken a colour until text in it is readable on white.

    >>> legible("#003f62"), legible("#ffffff") < "#808080"
    ('#003f62', True)
    """
    while contrast(to_rgb(colour), (1, 1, 1)) < _READ:
        colour = _mixed(colour, "black", 0.06)
    return colour


def contrast(one, other):
    """The contrast of two colours, 1 to 21, as the Web Content Accessibility Guidelines define it.

    >>> round(contrast((0, 0, 0), (1, 1, 1)))
    21
    """
    dim, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dim + 0.05)


def _luminance(rgb):
    linear = (value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in rgb)
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _mixed(colour, other, share):
    """Mix a colour with a fraction of another."""
    mixed = ((1 - share) * one + share * two for one, two in zip(to_rgb(colour), to_rgb(other), strict=True))
    return to_hex(tuple(mixed))
