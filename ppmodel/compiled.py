"""When work goes to compiled code: it must be loaded first, so small single runs stay plain."""

import sys
import warnings

from ppmodel.errors import PPModelError

LARGE = 2**18
"""From about so many operations on compiled code is quicker than plain code even where it must be loaded first.

Loading takes a third of a second; on a machine that has not compiled the kernels yet, some seconds, once.
"""

MANY = 4 * LARGE
"""Small pieces of work that come to as much together are followed by more: then compiled code is loaded for these.

One table goes through about four of them (sources, graph, times, slots), so a single small run never comes so far.
"""

_plain = 0


def kernels(size):
    """The compiled twins of the plain loops, where they are worth it.

    Both ways do the same arithmetic in the same order, so which one ran does not show in a result.

    Parameters
    ----------
    size : int
        Operations that are worked on, times how often.

    Returns
    -------
    module or None
        None for small work, unless something large, or ``MANY`` operations of small work, have loaded them before.

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
            warnings.filterwarnings("error", "Environment variable")  # one of Numba's that is no number
            from ppmodel import kernels
    except Exception as problem:  # whatever an installation or a variable makes of it
        rule, remedy = "cannot be loaded", "fix its variables NUMBA_..., or install it anew"
        raise PPModelError("numba", str(problem).partition("\n")[0], rule, remedy) from None
    return kernels


def prepare(size):
    """Load the compiled code where many small pieces of work that follow are worth it together.

    Parameters
    ----------
    size : int
        Operations of all of them, times how often.

    Examples
    --------
    >>> prepare(LARGE)
    """
    if size >= LARGE:
        kernels(size)
