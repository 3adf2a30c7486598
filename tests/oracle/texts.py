"""What texts leave out, because it differs between machines and runs, and how two texts are compared."""

import re
from itertools import zip_longest
from math import isclose
from pathlib import Path

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"-?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")
VARIABLE = {
    re.compile(r"\b\d+(?:\.\d+)? s elapsed\b"): "TIME s elapsed",
    re.compile(r"^\d+ of \d+ rows? \(\d+ %\), \S+ left\n", re.MULTILINE): "",  # where it takes long
    re.compile(r"^\d+:\d\d so far.*\n", re.MULTILINE): "",
    re.compile(r"\bin \d+(?:\.\d+)?(?: s\b| seconds\b)(?= *$)", re.MULTILINE): "in TIME s",
}


def without_paths(text, folder=None):
    """Replace the folders of this machine and this run by words."""
    for place, word in ((folder, "FOLDER"), (ROOT, "ROOT")):
        if place is not None:
            text = text.replace(str(Path(place).resolve()), word).replace(str(place), word)
    return text


def normal(text, folder=None):
    """Return a text without what differs legitimately: folders and elapsed times."""
    text = without_paths(text.replace("\r", "\n"), folder)
    for pattern, word in VARIABLE.items():
        text = pattern.sub(word, text)
    return text


def are_equal(before, now, tolerance=0.0):
    """Whether two values are equal, numbers up to a relative tolerance.

    >>> are_equal(1.0, 1.0 + 1e-15, 1e-12), are_equal("a", None), are_equal("1.0 s", "1.0000000000001 s", 1e-12)
    (True, False, True)
    """
    if isinstance(before, float) and isinstance(now, float):
        return before == now or (tolerance > 0 and isclose(before, now, rel_tol=tolerance))
    if before == now or not tolerance or not (isinstance(before, str) and isinstance(now, str)):
        return before == now
    if NUMBER.sub("0", before) != NUMBER.sub("0", now):
        return False
    pairs = zip(NUMBER.findall(before), NUMBER.findall(now), strict=True)
    return all(isclose(float(one), float(other), rel_tol=tolerance) for one, other in pairs)


def first_difference(before, now, most=160):
    """Return the first lines in which two texts differ, shortened."""
    if not (isinstance(before, str) and isinstance(now, str)):
        return before, now
    for old, new in zip_longest(before.split("\n"), now.split("\n")):
        if old != new:
            start = max(
                0, next((i for i, (a, b) in enumerate(zip(old or "", new or "", strict=False)) if a != b), 0) - 60
            )
            return tuple(None if line is None else line[start : start + most] for line in (old, new))
    return before[:most], now[:most]
