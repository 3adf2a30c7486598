"""Pairs: cells of a table with one forward and one backward (or half of one), which have their own duration."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ppmodel.ops import OpKind
from ppmodel.tables.dependencies import frozen

if TYPE_CHECKING:
    from ppmodel.tables.schedule import Schedule

NO_PAIR = -1


class Pairs(NamedTuple):
    """The pairs of a table, and separate cost classes for their operations.

    Operations in pairs have their own cost class for every combination of pair and class that occurs; these come after
    the classes of `Schedule.cost_class`.

    Parameters
    ----------
    keys : list of (int, int, int, int)
        Kind and stage of the forward, kind and stage of the other operation.
    of : ndarray of int, shape (num_operations,)
        The index of each operation's pair in `keys`, or ``NO_PAIR``.
    cost_class : ndarray of int, shape (num_operations,)
        As `Schedule.cost_class`, except for operations in pairs.
    base, pair : ndarray of int, shape (num_more_classes,)
        For each additional class, the class it comes from, and the index in `keys`.
    counts : ndarray of int, shape (2, num_all_classes)
        As `Schedule.class_counts`, with the additional classes at the end.
    """

    keys: list
    of: np.ndarray
    cost_class: np.ndarray
    base: np.ndarray
    pair: np.ndarray
    counts: np.ndarray


def find_pairs(schedule: Schedule) -> Pairs:
    """Find the `Pairs` of a table; cells with more than two operations are not pairs.

    Examples
    --------
    >>> from ppmodel import build
    >>> pairs = build("combined-1f1b", 2, 4).pairs
    >>> pairs.keys
    [(0, 0, 1, 2), (0, 1, 1, 1), (0, 1, 1, 3), (0, 2, 1, 0), (0, 2, 1, 2), (0, 3, 1, 1), (0, 3, 1, 3)]
    >>> int((pairs.of >= 0).sum())
    16
    """
    first = np.flatnonzero(~schedule.joined)
    first = first[(np.diff(first, append=schedule.num_operations) == 2) & schedule.overlaps[first]]
    forward = np.where(schedule.kind[first] == OpKind.F, first, first + 1)
    other = 2 * first + 1 - forward
    codes = np.stack([column[place] for place in (forward, other) for column in (schedule.kind, schedule.stage)])
    shape = len(OpKind), schedule.num_stages, len(OpKind), schedule.num_stages
    codes, place = np.unique(np.ravel_multi_index(codes, shape), return_inverse=True)
    of = np.full(schedule.num_operations, NO_PAIR)
    of[forward] = of[other] = place
    keys = list(zip(*(column.tolist() for column in np.unravel_index(codes, shape)), strict=True))
    # further classes for the operations of pairs, with the class that each comes from
    cost_class, paired, kinds = schedule.cost_class, np.flatnonzero(of != NO_PAIR), schedule.class_counts.shape[1]
    codes, place = np.unique(of[paired] * np.int64(kinds) + cost_class[paired], return_inverse=True)
    pair, base = np.divmod(codes, kinds)
    cost_class = cost_class.astype(np.int64)
    cost_class[paired] = kinds + place
    counts = np.zeros((2, kinds + len(codes)), dtype=np.int64)
    counts[:, :kinds] = schedule.class_counts
    counts[1, kinds:] = np.bincount(place, minlength=len(codes))
    np.subtract.at(counts[1], base, counts[1, kinds:])
    return frozen(Pairs(keys, of, cost_class, base, pair, counts))
