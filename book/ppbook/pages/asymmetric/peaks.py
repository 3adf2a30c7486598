"""Why no split of the model between front and back half lowers asymmetric Chimera's peak of activations."""

from typing import NamedTuple

import numpy as np

from ppmodel.ops import OpKind


class Evidence(NamedTuple):
    """What one rank holds in one of its cells.

    Parameters
    ----------
    rank : int
    operation : str
        The first operation of the cell.
    in_flight : tuple of int, length num_ranks
        Microbatches held, by stage, over both pipelines.
    """

    rank: int
    operation: str
    in_flight: tuple


def level_cell(schedule):
    """The first cell that holds the even split's peak, half of it on stages of the front; None if there is none.

    A split gives the front a share a of the model and the back 2 - a. A rank then holds a line in a, and the peak, the
    highest of these lines, is convex. The line of this cell is level: no split has a lower peak than the even one.

    Parameters
    ----------
    schedule : Schedule
        The table; its own shares are not used.

    Returns
    -------
    Evidence or None

    Examples
    --------
    >>> from ppmodel import build
    >>> level_cell(build("chimera", 4, 4))
    Evidence(rank=1, operation='2F3@1', in_flight=(0, 2, 2, 0))
    >>> level_cell(build("gpipe", 2, 3))
    """
    operation = np.flatnonzero(~schedule.joined)
    forwards, releases = np.zeros((2, len(operation), schedule.num_stages), dtype=int)
    where = (schedule.cell, schedule.stage)
    np.add.at(forwards, where, schedule.kind == OpKind.F)
    np.add.at(releases, where, np.isin(schedule.kind, (OpKind.B, OpKind.W)))
    held = np.cumsum(forwards - releases, axis=0) + releases  # one sum serves all ranks, since each ends with nothing
    whole, front = held.sum(axis=1), held[:, : schedule.num_stages // 2].sum(axis=1)
    level = np.flatnonzero((whole == whole.max()) & (2 * front == whole))
    if not len(level):
        return None
    cell = level[0]
    rank, op = schedule.rank[operation[cell]], schedule.op(operation[cell])
    return Evidence(int(rank), str(op), tuple(held[cell].tolist()))
