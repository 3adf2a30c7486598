"""Units of quantities, and quantities written with their unit."""

import re

from ppmodel.errors import SpecificationError

UNITS = {
    "FLOP/s": 1.0, "TFLOP/s": 1e12, "PFLOP/s": 1e15,
    "B/s": 1.0, "GB/s": 1e9, "TB/s": 1e12, "Gbit/s": 0.125e9,
    "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9,
    "B": 1.0, "GB": 1e9, "GiB": 2.0**30, "TiB": 2.0**40,
}  # fmt: skip
"""The SI value of each unit that files and callers may write."""

SIZES = ("B", "GB", "GiB", "TiB")
_QUANTITY = re.compile(r"\s*(\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z/]*)\s*")


def parse_quantity(text, units):
    """Read a number with its unit.

    Parameters
    ----------
    text : object
    units : collection of str, or dict of str to float
        The legal ones, of `UNITS` or with their values; the empty one stands for SI.

    Returns
    -------
    float or None
        In SI units; None if it is no text, no number or in another unit.

    Examples
    --------
    >>> parse_quantity("60 ms", ("s", "ms")), parse_quantity(".5s", ("s", "ms")), parse_quantity("60", ("s", "ms"))
    (0.06, 0.5, None)
    """
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    values = units if isinstance(units, dict) else UNITS
    return float(match[1]) * values.get(match[2], 1.0) if match and match[2] in units else None


def parse_size(text: str, field: str = "size") -> float:
    """Parse a size written with its unit.

    Parameters
    ----------
    text : str
        A number above 0 and one of ``B``, ``GB``, ``GiB``, ``TiB``.
    field : str
        What errors call it.

    Returns
    -------
    float
        In bytes.

    Raises
    ------
    SpecificationError
        If the number is missing or the unit is another one.

    Examples
    --------
    >>> parse_size("1.5 GiB") / 2**30
    1.5
    """
    size = parse_quantity(text, SIZES) or 0.0
    if not 0 < size < float("inf"):
        rule = f"must be a number above 0, followed by one of the units {', '.join(SIZES)}"
        raise SpecificationError(field, text, rule, "write, for example, 80 GiB")
    return size
