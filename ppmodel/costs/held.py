"""What a forward keeps for the backward, for each list of operations, and what recomputation holds meanwhile."""

from typing import NamedTuple

import numpy as np

RECOMPUTE = ("none", "selective", "full")


class Sizes(NamedTuple):
    """Bytes of some lists of operations, before factors for a system's frameworks.

    Parameters
    ----------
    saved, core : ndarray of float, shape (num_lists,)
        What the forward keeps, and separately the part that is quadratic in the sequence length.
    entry : ndarray of float, shape (num_lists,)
        The input of the first operation.
    mode : ndarray of int, shape (num_lists,)
        What is recomputed, an index in `RECOMPUTE`.
    block : ndarray of bool, shape (num_lists,)
        Whether a list is a transformer block, rather than the embedding or the head.
    """

    saved: np.ndarray
    core: np.ndarray
    entry: np.ndarray
    mode: np.ndarray
    block: np.ndarray


def sizes_of(lists, num_blocks):
    """The sizes of lists of operations.

    Parameters
    ----------
    lists : sequence of (list of BlockOperation, str)
        Each with its recomputation.
    num_blocks : int
        Number of leading lists that are blocks.

    Returns
    -------
    Sizes
    """
    saved = [sum(one.saved_bytes for one in operations) for operations, _ in lists]
    core = [sum(one.core_bytes for one in operations) for operations, _ in lists]
    entry = [operations[0].saved_bytes if operations else 0.0 for operations, _ in lists]
    modes = [RECOMPUTE.index(mode) for _, mode in lists]
    columns = [np.array(column, dtype=float) for column in (saved, core, entry)]
    return Sizes(*columns, np.array(modes), np.arange(len(lists)) < num_blocks)


def kept_and_working(sizes, factors=None):
    """Bytes kept from forward to backward, and bytes in memory while the backward of a block runs.

    Parameters
    ----------
    sizes : Sizes
    factors : MemorySpec, optional

    Returns
    -------
    kept, working : ndarray of float, shape (num_lists,)

    Examples
    --------
    >>> sizes = Sizes(*np.array([[10.0] * 3, [5.0] * 3, [1.0] * 3]), mode=np.arange(3), block=np.ones(3, dtype=bool))
    >>> [one.tolist() for one in kept_and_working(sizes)]
    [[15.0, 10.0, 1.0], [0.0, 5.0, 14.0]]
    """
    saved, core = sizes.saved, sizes.core
    again = 1.0
    if factors is not None:
        saved = np.where(sizes.block, factors.activation_factor, 1.0) * saved
        core, again = factors.score_factor * core, factors.working_factor
    kept = np.choose(sizes.mode, (saved + core, saved, sizes.entry))
    working = np.choose(sizes.mode, (0.0 * core, core * again, (saved + core - sizes.entry) * again))
    return kept, working
