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
    swapped, num_stages, replicas = schedule.kind[first] != OpKind.F, schedule.num_stages, schedule.num_replicas
    forward, other = paired = np.array((first + swapped, first + ~swapped))
    number = schedule.stage[forward] * len(OpKind) + schedule.kind[other]
    number = number * np.int64(num_stages) + schedule.stage[other]
    codes = np.sort(number)
    codes = np.append(codes[:1], codes[1:][codes[1:] != codes[:-1]])
    place_of = np.empty(len(OpKind) * num_stages**2, np.int32)
    place_of[codes] = np.arange(len(codes))
    of, place = np.full(schedule.num_operations, NO_PAIR, np.int32), place_of[number]
    of[paired] = place
    keys = np.array(np.unravel_index(codes, (len(OpKind), num_stages) * 2))
    # further classes for the operations of pairs, with the class that each comes from
    cost_class, kinds = schedule.cost_class, schedule.class_counts.shape[1]
    member = (2 * place + np.array([[0], [1]], np.int32)) * replicas + schedule.replica[paired]
    numbers = np.bincount(member.ravel(), minlength=2 * replicas * len(codes))
    cost_class[paired] = kinds - 1 + np.cumsum(numbers > 0)[member]
    base = (keys[::2] * replicas * num_stages + keys[1::2]).T[..., None] + num_stages * np.arange(replicas)
    used = np.flatnonzero(numbers)
    pair, base, numbers = used // (2 * replicas), base.ravel()[used], numbers[used]
    counts = np.append(schedule.class_counts, [0 * numbers, numbers], axis=1)
    np.subtract.at(counts[1], base, numbers)
    return frozen(Pairs(list(map(tuple, keys.T.tolist())), of, cost_class, base, pair, counts))
