"""Errors as tests look at them: kind, field, value and rule, not the wording of the line that shows them."""

from contextlib import contextmanager

import pytest

from ppmodel.errors import PPModelError


@contextmanager
def refused(kind=PPModelError, field=None, rule="", value=..., remedy="", where=""):
    """Hold that the block below is refused, and that the error is one line.

    Parameters
    ----------
    kind : type
        Of the error.
    field : str, optional
        What was set, exactly.
    rule, remedy, where : str
        A few words of each: enough to tell the rule from others.
    value : object, optional
        What it was set to, as the error shows it.

    Yields
    ------
    ExceptionInfo
        For further tests of the error.
    """
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert field in (None, error.field), str(error)
    assert value is ... or str(value) == str(error.value), str(error)
    assert rule in f"{error.rule}: {error.why}", str(error)
    assert remedy in error.remedy, str(error)
    assert where in str(error.where or error.value), str(error)
    assert "\n" not in str(error)


def require_refused(read, path, kind, expected, where=None):
    """Hold that a file is refused as expected: a line or None, field, rule and remedy; where, if not in the file."""
    line, field, rule, *remedy = expected
    where = where or (f"{path}:{line}" if line else str(path))
    with refused(kind, field, rule, where=where, remedy="".join(remedy)):
        read(path)
