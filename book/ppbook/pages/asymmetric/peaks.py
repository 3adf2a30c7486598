"""Whether any split or placement lowers asymmetric Chimera's peak of activations: proofs in whole numbers.

What a rank holds after each of its cells is linear in the stages' shares of the model. A convex combination of such
rows bounds the peak of every split from below; a split whose peak meets the bound is proven to have the lowest.
"""

from fractions import Fraction
from functools import cache
from itertools import combinations, product
from math import comb
from typing import NamedTuple

import numpy as np

from ppmodel.errors import PPModelError
from ppmodel.ops import OpKind

FRONT_BACK, EVEN, OWN = "front : back", "own shares, even work", "own shares"
SPLITS = (FRONT_BACK, EVEN, OWN)
"""Families of splits of a model over the stages: in front and back half, of each stage on its own with as much work on
every rank, and of each stage on its own."""

_MOST_TRIED = 500_000


# ---- what is in use ------------------------------------------------------------------------------


def _in_use(schedule):
    """The most that each rank holds within each of its cells, rank by rank in program order.

    Returns the first operation of each cell, shape (num_cells,), and the microbatches whose activations its rank holds,
    shape (num_cells, num_replicas, num_stages); a cell of several operations takes all its activations before it frees
    any.
    """
    operation = np.flatnonzero(~schedule.joined)
    forwards, releases = np.zeros((2, len(operation), schedule.num_replicas, schedule.num_stages), dtype=int)
    where = (schedule.cell, schedule.replica, schedule.stage)
    np.add.at(forwards, where, schedule.kind == OpKind.F)
    np.add.at(releases, where, np.isin(schedule.kind, (OpKind.B, OpKind.W)))
    in_use = np.cumsum(forwards - releases, axis=0) + releases  # one sum serves all ranks, since each ends with nothing
    return operation, in_use


def split_peaks(schedule, splits):
    """Largest peak over the ranks for many splits of the model, exact in whole numbers.

    Parameters
    ----------
    schedule : Schedule
        The table; its own shares are not used.
    splits : ndarray of int, shape (num_splits, num_ranks)
        Parts of the model on each stage.

    Returns
    -------
    ndarray of int, shape (num_splits,)
        In parts of the model for one microbatch; multiply by S and divide by the number of parts for units of one
        microbatch on 1/S of the model.

    Examples
    --------
    >>> from ppmodel import build
    >>> split_peaks(build("chimera", 4, 4), np.array([[1, 1, 1, 1], [2, 2, 4, 4]])).tolist()
    [4, 12]
    """
    rows = np.unique(_in_use(schedule)[1].sum(axis=1), axis=0)
    return (splits @ rows.T).max(axis=1)


# ---- splits --------------------------------------------------------------------------------------


def compositions(parts, num_ranks):
    """Every split of a model of equal parts into stages of at least one part, in lexicographic order.

    Parameters
    ----------
    parts : int
        Parts of the model, G.
    num_ranks : int
        Stages, S.

    Returns
    -------
    ndarray of int, shape ((G-1)! / ((S-1)! (G-S)!), num_ranks)

    Raises
    ------
    PPModelError
        If there are fewer parts than stages, none of the splits is even, or there are too many.

    Examples
    --------
    >>> compositions(4, 2).tolist()
    [[1, 3], [2, 2], [3, 1]]
    """
    if parts < num_ranks or parts % num_ranks:
        rule = f"must be a multiple of {num_ranks}, so that an even split is one of the grid"
        raise PPModelError("parts", parts, rule, f"write, for example, {2 * num_ranks}")
    require_few("parts", parts, comb(parts - 1, num_ranks - 1), "splits")
    ends = np.array(list(combinations(range(1, parts), num_ranks - 1)), dtype=int).reshape(-1, num_ranks - 1)
    return np.diff(ends, axis=1, prepend=0, append=parts)


def require_few(field, value, count, what):
    """Refuse what has more splits or placements than can each be tried.

    >>> require_few("pp", 10, 3628800, "placements")
    Traceback (most recent call last):
    ppmodel.errors.PPModelError: pp = 10: has 3628800 placements, and at most 500000 are tried; choose a smaller one
    """
    if count > _MOST_TRIED:
        rule = f"has {count} {what}, and at most {_MOST_TRIED} are tried"
        raise PPModelError(field, value, rule, "choose a smaller one")


def front_back_splits(parts, num_ranks):
    """Every split a : b of a + b parts between the front and back half of the pipeline.

    Parameters
    ----------
    parts : int
        a + b, even.
    num_ranks : int
        Stages, S, even.

    Returns
    -------
    ndarray of int, shape (parts - 1, num_ranks)
        a for each stage of the front, b for each of the back.

    Raises
    ------
    PPModelError
        If the number of parts is odd, so that 1 : 1 would be missing.

    Examples
    --------
    >>> front_back_splits(4, 4).tolist()
    [[1, 1, 3, 3], [2, 2, 2, 2], [3, 3, 1, 1]]
    """
    if parts < 2 or parts % 2:
        raise PPModelError("front_back", parts, "must be even", "write, for example, 60")
    front = np.arange(1, parts)[:, None]
    return np.repeat(np.hstack((front, parts - front)), num_ranks // 2, axis=1)


def extreme_splits(family, num_ranks):
    """The corners of a family of splits of the mirrored placement; each split in the family is a mixture of them.

    Parameters
    ----------
    family : str
        One of `SPLITS`.
    num_ranks : int
        Stages, S, even.

    Returns
    -------
    ndarray of int, shape (num_corners, num_ranks)
        Shares, scaled to a mean of 1.

    Examples
    --------
    >>> extreme_splits("front : back", 4).tolist()
    [[2, 2, 0, 0], [0, 0, 2, 2]]
    >>> extreme_splits("own shares, even work", 4).tolist()
    [[0, 0, 2, 2], [0, 2, 0, 2], [2, 0, 2, 0], [2, 2, 0, 0]]
    """
    half = num_ranks // 2
    front = np.array(list(product((0, 2), repeat=half)))
    return {
        FRONT_BACK: np.repeat([[2, 0], [0, 2]], half, axis=1), EVEN: np.hstack((front, 2 - front[:, ::-1])),
        OWN: num_ranks * np.eye(num_ranks, dtype=int),
    }[family]  # fmt: skip


# ---- proofs --------------------------------------------------------------------------------------


class CertificateRow(NamedTuple):
    """What one rank holds in one of its cells, as evidence.

    Parameters
    ----------
    rank, cell : int
        The rank, and the index of the cell in its row.
    operation : str
        The first operation of the cell.
    in_flight : tuple of int, length num_ranks
        Microbatches held, by stage, over both pipelines.
    weight : Fraction
        Weight of this row among the rows of a certificate; the weights sum to 1.
    """

    rank: int
    cell: int
    operation: str
    in_flight: tuple
    weight: Fraction


class LowestPeak(NamedTuple):
    """The lowest peak of a family of splits, a split that attains it, and why none is lower.

    Parameters
    ----------
    peak : Fraction
        In units of one microbatch on 1/S of the model.
    shares : tuple of Fraction, length num_ranks
        A split with this peak. If a share is zero, the peak is a limit: splits come arbitrarily close to it.
    certificate : tuple of CertificateRow
        Rows whose weighted mean is at least `peak` for every split of the family.
    """

    peak: Fraction
    shares: tuple
    certificate: tuple


@cache
def lowest_peak(schedule, family=OWN):
    """The lowest peak over all real splits of a family, with an exact proof.

    The split that keeps the fullest cell lowest solves a matrix game between the family's corners and the rows of the
    table. The game is solved by the simplex method in whole numbers; the tests check its solutions from both sides.

    Parameters
    ----------
    schedule : Schedule
        The table.
    family : str
        As in `extreme_splits`.

    Returns
    -------
    LowestPeak
        Between front and back half, each row is a line over the front's share, and the peak, their maximum, is convex:
        the certificate is a level row, or a rising and a falling one.

    Examples
    --------
    >>> from ppmodel import build
    >>> chimera = build("chimera", 4, 4)
    >>> lowest_peak(chimera, "own shares, even work").peak, lowest_peak(chimera).peak
    (Fraction(4, 1), Fraction(8, 3))
    >>> lowest_peak(chimera, "front : back").certificate[0].in_flight
    (0, 2, 2, 0)
    """
    operation, count = _in_use(schedule)
    count, corners = count.sum(axis=1), extreme_splits(family, schedule.num_stages)
    payoff, cell = np.unique(count @ corners.T, axis=0, return_index=True)
    higher = (payoff[:, None] <= payoff).all(axis=2)
    matter = np.flatnonzero(higher.sum(axis=1) == 1)  # rows below another one in every corner never matter
    peak, mixture, weights = _solve_game(payoff[matter])
    rank = schedule.rank[operation]
    place = np.arange(len(rank)) - np.searchsorted(rank, rank)
    certificate = sorted(
        CertificateRow(int(rank[n]), int(place[n]), str(schedule.op(operation[n])), tuple(count[n].tolist()), weight)
        for n, weight in zip(cell[matter], weights, strict=True) if weight
    )  # fmt: skip
    return LowestPeak(peak, tuple(mixture @ corners.astype(object)), tuple(certificate))


def even_work_bound(schedule):
    """A lower bound on the peak of every split that gives all ranks the same amount of work, on any placement.

    A rank with one stage of each of two pipelines then holds shares x and 2 - x of them. While it holds at least n
    microbatches of both, that is n x + n (2 - x) = 2 n, for any x.

    Parameters
    ----------
    schedule : Schedule
        The table of two pipelines, with one stage of each on every rank.

    Returns
    -------
    int
        In units of one microbatch on 1/S of the model.

    Examples
    --------
    >>> from ppmodel import build
    >>> even_work_bound(build("chimera", 6, 6))
    6
    """
    return 2 * int(_in_use(schedule)[1].sum(axis=2).min(axis=1).max())


def _solve_game(payoff):
    """Value and optimal mixtures of a matrix game whose column player minimises; each column needs a positive entry.

    The simplex method on max sum(u), payoff u <= 1, u >= 0, whose optimum is 1 / value. All entries stay whole numbers
    over one common denominator (Edmonds, 1967). Among several choices the variable with the lowest number enters and
    leaves (Bland, 1977), which guarantees that the method ends.
    """
    rows, columns = payoff.shape
    table = np.zeros((rows + 1, columns + rows + 1), dtype=object)  # u, slacks, right side
    table[:rows, :columns], table[:rows, columns:-1] = payoff, np.eye(rows, dtype=int)
    table[:rows, -1], table[rows, :columns] = 1, -1
    basis, denominator = np.arange(columns, columns + rows), 1
    while (negative := np.flatnonzero(table[rows, :-1] < 0)).size:
        column = negative[0]
        positive = np.flatnonzero(table[:rows, column] > 0)
        row = min(positive, key=lambda r, c=column: (Fraction(table[r, -1], table[r, c]), basis[r]))
        pivot, kept = table[row, column], table[row].copy()
        table = (table * pivot - np.outer(table[:, column], kept)) // denominator
        table[row], basis[row], denominator = kept, column, pivot
    total = Fraction(table[rows, -1])  # over the denominator, like everything above
    mixture = np.zeros(columns + rows, dtype=object)
    mixture[basis] = table[:rows, -1]
    return denominator / total, mixture[:columns] / total, table[rows, columns:-1] / total
