"""The idealised table: when each operation runs, in slots, without communication."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ppmodel.errors import ScheduleError
from ppmodel.loops.single_pass import pass_over
from ppmodel.loops.tables import group_slots
from ppmodel.ops import OpKind
from ppmodel.tables.dependencies import frozen, shares_groups
from ppmodel.tables.further import inputs_in_order, with_barriers
from ppmodel.tables.steps import step_times

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppmodel.tables.schedule import Schedule

IDLE, CONTINUED = ".", "~"
"""An idle cell, and a cell of an operation that started in an earlier slot."""

_MAX_CELLS = 2**22
_MAX_SLOTS = 10**9


def slots(
    schedule: Schedule, forward: int = 1, backward: int = 2, input_grad: int = 1, weight_grad: int = 1,
    reduction: int = 1, optimizer: int = 1, gather: int = 0, output: int = 1,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # fmt: skip
    """Compute start and end slots of every operation in the idealised table, without communication.

    Every operation starts as early as its rank's order and its inputs allow. The arguments are the
    slots that an operation takes on one stage and one microbatch of the table, `output` those of each pass of a shard
    of the output layer. Operations in one cell run one after the other, so the cell is as long as their sum. Optimizer
    steps start when everything else has ended; see `step_times`. Gathers of weights run beside computing, and neither
    they nor drops take slots, unless `gather` gives each some, as `table` does to show them.

    Returns
    -------
    start, end : ndarray of int, shape (num_operations,)
        Operations in one cell share its start and end.

    Raises
    ------
    ScheduleError
        If a duration is not a whole number of slots.
    """
    source, _, group, order, further = schedule.dependencies
    length = _by_kind(forward, backward, input_grad, weight_grad, reduction, optimizer, gather, output)[schedule.kind]
    if shares_groups(schedule):
        length = np.bincount(group, length, minlength=group.max() + 1).astype(np.int64)
        length[group[schedule.kind == OpKind.R]] = reduction  # the replicas of a reduction run concurrently
    rows, num_ranks = [schedule.rank, group], schedule.num_ranks
    if further is not None:
        op, source, order = inputs_in_order(source, further, order, group)
        *rows, num_ranks = with_barriers(group, schedule.rank, num_ranks, op.max() + 1)
        length = np.append(length, np.zeros(rows[0].max() + 1 - len(length), dtype=length.dtype))
        rows = [column[op] for column in rows[::-1]]
    columns = [frozen(column.astype(np.int32)) for column in (source, 0 * source, *rows, order)]
    times = np.zeros((2, len(length)), dtype=np.int64)
    group_slots.run(len(order), length, *columns, num_ranks, times)
    start, end = times[:, group]
    start[schedule.steps], end[schedule.steps] = step_times(schedule, end.max(), [optimizer] * len(schedule.steps))
    return start, end


def _by_kind(forward=1, backward=2, input_grad=1, weight_grad=1, reduction=1, optimizer=1, gather=0, output=1):
    """Durations by kind, which must be whole numbers of slots."""
    durations = forward, backward, input_grad, weight_grad, output, output, reduction, optimizer, gather, gather
    for slots in durations:
        if not (isinstance(slots, int | np.integer) and 0 <= slots <= _MAX_SLOTS):
            rule = f"must be a whole number from 0 to {_MAX_SLOTS}"
            raise ScheduleError("slots of an operation", slots, rule, "simulate it to use other durations")
    return np.array(durations, dtype=np.int64)


class Brief(NamedTuple):
    """The idealised table in four numbers; reductions and optimizer steps take no slots.

    Parameters
    ----------
    length : int
        Slots from the first operation to the end of the last.
    busy : int
        Slots in which ranks compute, summed over ranks.
    messages : int
        Results sent from one rank to another.
    bubble_ratio : float
        Idle fraction of all ranks' slots.
    """

    length: int
    busy: int
    messages: int
    bubble_ratio: float


def brief(schedule, forward=1, backward=2, input_grad=1, weight_grad=1, reduction=0, optimizer=0):
    """Summarise the idealised table as a `Brief`; durations as in `slots`.

    Examples
    --------
    >>> from ppmodel import build
    >>> brief(build("1f1b", 2, 2))
    Brief(length=9, busy=12, messages=4, bubble_ratio=0.33333333333333337)
    """
    of_class = np.repeat(_by_kind(forward, backward, input_grad, weight_grad, 0, 0), schedule.placement.size)
    busy, seconds = int((schedule.class_counts.sum(axis=0) * of_class).sum()), of_class.astype(float)
    passed = not (reduction or optimizer) and pass_over(schedule, (seconds, 0 * seconds, 0 * seconds))
    if passed:
        length, _, messages = passed
    else:
        length = slots(schedule, forward, backward, input_grad, weight_grad, reduction, optimizer)[1].max()
        messages = int(schedule.dependencies.remote.sum())
    return Brief(int(length), busy, messages, 1 - busy / (schedule.num_ranks * int(length)))


def _require_drawable(cells, about=""):
    if cells > _MAX_CELLS:
        rule = f"must have at most {_MAX_CELLS} cells to be drawn"
        raise ScheduleError("table", f"{about}{cells} cells", rule, "draw a smaller schedule, or shorter operations")


def table(schedule: Schedule, **durations: int) -> list[list[str]]:
    """Write the idealised table as text, ranks x slots.

    Parameters
    ----------
    **durations : int
        Slots per operation, as in `slots`; a gather or drop takes 1 by default.

    Returns
    -------
    list of list of str
        The first cell of an operation names it; its other cells are ``~``, and idle cells are ``.``.

    Examples
    --------
    >>> from ppmodel import build
    >>> for row in build("1f1b", 2, 2).table(backward=1):
    ...     print(*row)
    0F0 0F1 . 0B0 . 0B1
    . 1F0 1B0 1F1 1B1 .
    """
    computing = schedule.kind[schedule.computes]
    _require_drawable(_by_kind(**durations)[computing].sum(), "at least ")  # before counting slots, which takes longer
    start, end = slots(schedule, **{"gather": 1} | durations)
    _require_drawable(int(end.max()) * schedule.num_ranks)
    grid = [[IDLE] * int(end.max()) for _ in range(schedule.num_ranks)]
    for index in range(schedule.num_operations):
        row, begin = grid[schedule.rank[index]], int(start[index])
        if schedule.joined[index]:
            row[begin] += f"&{schedule.op(index)}"
        elif end[index] > begin:
            row[begin : int(end[index])] = [str(schedule.op(index))] + [CONTINUED] * (int(end[index]) - begin - 1)
    return grid
