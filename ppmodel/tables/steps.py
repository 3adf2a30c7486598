"""The end of an iteration: the gradient reductions and optimizer steps of each rank."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ppmodel.ops import NO_MICROBATCH, OpKind
from ppmodel.tables.dependencies import by_keys, frozen, last_gradients
from ppmodel.tables.rows import COLUMNS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppmodel.tables.schedule import Schedule


def with_step(schedule: Schedule) -> Schedule:
    """Add to a table what ends an iteration: each stage's gradient reduction and optimizer step.

    Reductions and steps already in the table stay in place. Missing ones are appended to their ranks: first reductions,
    then steps, both in the order in which the rank finishes the gradients of its stages. A reduction sums the gradients
    of all replicas, both in the table and, with data parallelism, outside it.

    Returns
    -------
    Schedule
        The same object if nothing is missing.

    Examples
    --------
    >>> from ppmodel import build
    >>> for row in build("interleaved-1f1b", 2, 2, chunks=2).with_step().rows():
    ...     print(*(str(op) for cell in row[-6:] for op in cell))
    0B0 0B1 2R 0R 2O 0O
    1B0 1B1 3R 1R 3O 1O
    """
    missing, others = np.zeros((len(OpKind), *schedule.placement.shape), dtype=bool), np.flatnonzero(~schedule.computes)
    missing[[OpKind.R, OpKind.O]] = True
    missing[schedule.kind[others], schedule.replica[others], schedule.stage[others]] = False
    kind, replica, stage = np.nonzero(missing)
    if not len(kind):
        return schedule
    rank = schedule.placement[replica, stage]
    order = by_keys(rank, kind, last_gradients(schedule)[replica, stage])
    rank, kind, replica, stage = (column[order] for column in (rank, kind, replica, stage))
    before = schedule.rank_start[1:] - np.bincount(schedule.rank[schedule.steps], minlength=schedule.num_ranks)
    columns: dict[str, Any] = {"rank_start": schedule.rank_start + np.searchsorted(rank, range(schedule.num_ranks + 1))}
    for name, added in zip(COLUMNS, (kind, stage, NO_MICROBATCH, replica, False), strict=True):
        columns[name] = np.insert(getattr(schedule, name), before[rank], added)
    return replace(schedule, **columns)


def find_steps(schedule: Schedule) -> NDArray[np.int64]:
    """Find the optimizer steps, which are the last operations of every rank if there are any.

    Parameters
    ----------
    schedule : Schedule

    Returns
    -------
    ndarray of int
        Indices of operations, rank by rank in program order.

    Examples
    --------
    >>> from ppmodel import build
    >>> find_steps(build("gpipe", 2, 1).with_step()).tolist()
    [3, 7]
    """
    return frozen(np.flatnonzero(schedule.kind == OpKind.O) if not schedule.is_plain else np.empty(0, dtype=int))


def step_times(schedule, begin, length):
    """Compute when optimizer steps run: the first of each rank at one common time, the others one after another.

    Frameworks clip gradients by their global norm, which is known only when every gradient of every rank has been
    summed. So no step starts before all other operations of all ranks have ended.

    Parameters
    ----------
    schedule : Schedule
    begin : number, or ndarray of shape (n,)
        The time at which all other operations have ended, in any unit.
    length : sequence of numbers, or ndarray of shape (num_steps, n)
        Duration of each step, in the order of `Schedule.steps`.

    Returns
    -------
    start, end : list
        In the order of `Schedule.steps`.

    Examples
    --------
    >>> from ppmodel import build
    >>> step_times(build("interleaved-1f1b", 2, 2, chunks=2).with_step(), 20, [1, 2, 3, 4])
    ([20, 21, 20, 23], [21, 23, 23, 27])
    """
    start, end, latest = [], [], None
    for rank, seconds in zip(schedule.rank[schedule.steps].tolist(), length, strict=True):
        start.append(end[-1] if rank == latest else begin)
        end.append(start[-1] + seconds)
        latest = rank
    return start, end
