"""Values as callers give them: one or several, as Python's own numbers or those of NumPy and pandas."""

from contextlib import suppress
from fractions import Fraction

_LARGEST = 1e300
_PLAIN = {int, float, bool, str, type(None)}


def to_builtin(given):
    """Turn a number of NumPy, or a fraction, into Python's own, and an array or a Series into a list.

    A time of NumPy or pandas, whose digits are of some unit, becomes a text; anything else stays as it is.

    Examples
    --------
    >>> import numpy as np
    >>> to_builtin(np.int64(4)), to_builtin(np.arange(2)), to_builtin(Fraction(1, 2)), to_builtin("1f1b")
    (4, [0, 1], 0.5, '1f1b')
    """
    if type(given) in _PLAIN:
        return given
    if callable(getattr(given, "to_numpy", None)):  # also tables
        given = given.to_numpy()
    if callable(getattr(given, "tolist", None)):
        is_time = getattr(getattr(given, "dtype", None), "kind", "") in ("m", "M")
        return (given.astype(str) if is_time else given).tolist()
    if type(given).__name__ == "NAType":  # of pandas, which cannot be compared
        return float("nan")
    with suppress(OverflowError):  # the caller's rule refuses what no number holds
        return float(given) if isinstance(given, Fraction) else given
    return given


def is_number(value):
    """Check that a value is one of Python's own numbers, of ordinary size: no bool, fraction, text or NaN.

    >>> is_number(1), is_number(0.5), is_number(True), is_number("1"), is_number(10**400), is_number(float("nan"))
    (True, True, False, False, False, False)
    """
    return type(value) in (int, float) and -_LARGEST <= value <= _LARGEST


def as_list(given):
    """List the values of a list, tuple, range, array or Series as Python's own; anything else is a list of one.

    Examples
    --------
    >>> import numpy as np
    >>> as_list(np.array([4, 8])), as_list([np.int64(4), "a"]), as_list(8)
    ([4, 8], [4, 'a'], [8])
    """
    given = to_builtin(given)
    return [to_builtin(entry) for entry in given] if isinstance(given, list | tuple | range) else [given]
