"""The style of every schedule: its family sets the hue; its position in the family sets shade, marker and dash.

In a figure of few schedules no two have the same hue: of those of one family, the first keeps it.
"""

from functools import lru_cache
from itertools import count
from zlib import crc32

import seaborn as sns
from matplotlib.colors import to_hex
from seaborn.utils import relative_luminance

from ppmodel import schedules
from ppmodel.errors import PPModelError
from ppmodel.tables import FAMILIES, family

BLUE, ORANGE, GREEN, VERMILION, PURPLE, _, _, GREY, YELLOW, SKY = sns.color_palette("colorblind").as_hex()

HUES = dict(zip(FAMILIES, ("#0072B2", "#00966B", "#D68A00", "#C8609B", "#A83A08"), strict=True))
"""The hue of each family. The closest two differ as much as those of Okabe and Ito, also for colour-blind readers."""

_NO_FAMILY = "#4D4D4D"
_MARKERS = "osD^vPX<>hp*"
_DASHES = ("-", (0, (5, 2)), (0, (1.2, 1.4)), (0, (6, 1.6, 1.2, 1.6)), (0, (9, 2)))
_FREE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, GREY, _NO_FAMILY)
_SHADES, _MEMBERS = (("black", 0), ("black", 0.45), ("white", 0.36), ("black", 0.24), ("white", 0.56)), 3
_LEGIBLE = 4.5  # contrast
_SPARE = (_NO_FAMILY, *(HUES[FAMILIES[number]] for number in (2, 3, 1, 0, 4)))


def style_of(labels):
    """Choose a line style for each label; a schedule looks the same in every figure.

    Parameters
    ----------
    labels : iterable of str
        In drawing order; duplicates count once. The label of a registered schedule, with or without options, gets the
        schedule's own style, but for the hue where a few have one family; other labels get free styles in order.

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
    registered = {label: look for label in labels if (look := _registered_style(label))}
    free = ((_NO_FAMILY if registered else _FREE[n % len(_FREE)], n + n // len(_FREE), n, None) for n in count())
    if len(labels) <= len(_SPARE):
        registered |= _apart(registered, _SPARE[len(registered) < len(labels) :])  # grey is for the others
    styles = {}
    for number, label in enumerate(labels):
        hue, first, dash, _ = registered.get(label) or next(free)
        for step in count():  # other markers, then paler shades, until nothing else looks the same
            colour = mixed(hue, "white", 0.12 * (step // len(_MARKERS)))
            marker = _MARKERS[(first + step) % len(_MARKERS)]
            if not any((look["color"], look["marker"]) == (colour, marker) for look in styles.values()):
                break
        wide = max(0, 2 - number)
        styles[label] = {
            "color": colour, "marker": marker, "ls": _DASHES[dash % len(_DASHES)], "lw": 1.6 + 0.9 * wide,
            "ms": 5 + 1.6 * wide, "label": label,
        }  # fmt: skip
    return styles


def _registered_style(label):
    """Colour, numbers of marker and dash, and the family's hue, of a registered label; None for any other text.

    A schedule's position among the registered ones of its family counts, and a number for its options.
    """
    entries = [entry for entry in schedules.entries() if f"{label} ".startswith(f"{entry.label} ")]
    if not entries:
        return None
    entry = max(entries, key=lambda entry: len(entry.label))
    kind = _family(entry.generate, entry.name)
    members = [other.name for other in schedules.entries() if _family(other.generate, other.name) == kind]
    number, value = members.index(entry.name), label[len(entry.label) :].strip().rpartition("= ")[2]
    if not value or value in [str(option.default) for option in entry.options]:
        variant = 0
    elif value.isdigit():
        variant = int(value).bit_length()
    else:
        examples = [str(example) for option in entry.options for example in option.examples]
        variant = 1 + (examples.index(value) if value in examples else crc32(value.encode()) % 7)
    shade = _SHADES[(number % _MEMBERS + variant) % len(_SHADES)]
    first = 2 * FAMILIES.index(kind) if kind in FAMILIES else len(_MARKERS) - 1
    hue = HUES.get(kind, _NO_FAMILY)
    return mixed(hue, *shade), first + number + 5 * variant, number + variant, hue


def _apart(registered, spare):
    """Looks with a hue that no family drawn has, for all but the first schedule of each."""
    hues, drawn, apart = {hue for *_, hue in registered.values()}, set(), {}
    spare = (hue for hue in spare if hue not in hues)
    for label, (_, *marks, hue) in sorted(registered.items(), key=lambda item: item[1][1]):
        if hue in drawn:
            apart[label] = (next(spare), *marks, hue)
        drawn.add(hue)
    return apart


@lru_cache(256)
def _family(_, name):
    """The family of a schedule, cached for each generator; None if it cannot be determined."""
    try:
        return family(schedules.small(name))
    except PPModelError:
        return None


def legible(colour):
    """Darken a colour until text in it is readable on white.

    >>> legible("#003f62"), legible("#ffffff") < "#808080"
    ('#003f62', True)
    """
    while contrast(colour, "white") < _LEGIBLE:
        colour = mixed(colour, "black", 0.06)
    return colour


def contrast(first, second):
    """The contrast of two colours, 1 to 21, as the Web Content Accessibility Guidelines define it.

    >>> round(contrast("black", "white"))
    21
    """
    dim, light = sorted((relative_luminance(first), relative_luminance(second)))
    return (light + 0.05) / (dim + 0.05)


def mixed(colour, other, share):
    """Mix a colour with a share of another.

    >>> mixed("black", "white", 0.5)
    '#808080'
    """
    return to_hex(sns.blend_palette((colour, other), as_cmap=True)(share))
