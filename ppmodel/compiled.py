"""When work goes to compiled code: it must be loaded first, so small single runs stay plain."""

import sys

LARGE = 2**18
"""From about so many operations on compiled code is quicker than plain code even where it must be loaded first.

Loading takes a third of a second; on a machine that has not compiled the kernels yet, some seconds, once.
"""


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
        None for small work, unless something large has loaded the kernels before.

    Examples
    --------
    >>> kernels(LARGE).__name__
    'ppmodel.kernels'
    """
    if size < LARGE and "ppmodel.kernels" not in sys.modules:
        return None
    from ppmodel import kernels

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
    kernels(size)
