"""When compiled code is used: it must be loaded first, so small single runs stay in plain Python."""

import sys
import warnings

from ppmodel.errors import PPModelError

LARGE = 2**18
"""From about this many operations on, compiled code is faster than plain code even if it must be loaded first.

Loading takes a third of a second; on a machine that has not compiled the kernels yet, several seconds, once.
"""

MANY = 4 * LARGE
"""Once small pieces of work add up to this many operations, more will follow, and compiled code is loaded.

A table takes about four pieces (sources, graph, times, slots), so a single small run never gets there.
"""

_plain = 0


def kernels(size):
    """Return the compiled twins of the plain loops if they are worth loading.

    Both do the same arithmetic in the same order, so results do not depend on which one ran.

    Parameters
    ----------
    size : int
        Number of operations, times the number of passes over them.

    Returns
    -------
    module or None
        None for small work, unless a large piece, or ``MANY`` operations in small pieces, have loaded them before.

    Examples
    --------
    >>> kernels(LARGE).__name__
    'ppmodel.kernels'
    """
    global _plain
    loaded = sys.modules.get("ppmodel.kernels")
    if loaded is not None:
        return loaded
    if size < LARGE and _plain < MANY:
        _plain += size
        return None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "Environment variable")  # one of Numba's variables is not a number
            from ppmodel import kernels
    except Exception as problem:  # anything a broken installation or variable may cause
        rule, remedy = "cannot be loaded", "fix its variables NUMBA_..., or reinstall it"
        raise PPModelError("numba", str(problem).partition("\n")[0], rule, remedy) from None
    return kernels


def prepare(size):
    """Load the compiled code if the many small pieces of work that follow are worth it together.

    Parameters
    ----------
    size : int
        Number of operations in all of them, times the number of passes over them.

    Examples
    --------
    >>> prepare(LARGE)
    """
    if size >= LARGE:
        kernels(size)
