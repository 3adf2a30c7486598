"""Fully sharded weights under a pipeline: gathers, drops and reductions of a stage's weights as operations of a table.

The rules are those by which PyTorch's pipelining runtime adds UNSHARD, RESHARD and REDUCE_GRAD to an order
(``_add_unshard_reshard`` and ``_add_reduce_grad``, torch 2.13).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from ppmodel.errors import TableError
from ppmodel.ops import NO_MICROBATCH, OpKind
from ppmodel.tables.dependencies import last_gradients
from ppmodel.tables.rows import COLUMNS

if TYPE_CHECKING:
    from ppmodel.tables.schedule import Schedule

KEEP, DROP = FSDP = "keep", "drop"
"""What happens to gathered weights between microbatches: they stay, torchtitan's default under a pipeline, or not."""

LOOKAHEAD = 3
"""Stages that a rank has gathered at most, PyTorch's: that of a forward, that of a backward, and the next one."""


def with_gathers(schedule: Schedule, fsdp: str = KEEP, lookahead: int = LOOKAHEAD) -> Schedule:
    """Add to a table the gathers and drops of each stage's weights, and the reductions of its gradients.

    Before each cell, a rank drops all weights but those of the next `lookahead` stages that it computes, and gathers
    those of them that it lacks, in the order of need. At the end it drops them all. Each stage's gradients are reduced
    right after its last backward, unless the table has reductions of its own. If replicas would so wait for each other,
    all are reduced at the end, on every rank in the order of the stages.

    Parameters
    ----------
    schedule : Schedule
    fsdp : {"keep", "drop"}
        With ``drop``, a rank also drops a stage's weights after each of its operations.
    lookahead : int
        The stages gathered at a time; two that share a cell may exceed it.

    Returns
    -------
    Schedule

    Raises
    ------
    TableError
        If the table has gathers.

    Examples
    --------
    >>> from ppmodel import build
    >>> for fsdp in ("keep", "drop"):
    ...     for row in build("1f1b", 2, 2).with_gathers(fsdp).rows():
    ...         print(*(str(op) for (op,) in row))
    0G 0F0 0F1 0B0 0B1 0R 0D
    1G 1F0 1B0 1F1 1B1 1R 1D
    0G 0F0 0D 0G 0F1 0D 0G 0B0 0D 0G 0B1 0R 0D
    1G 1F0 1D 1G 1B0 1D 1G 1F1 1D 1G 1B1 1R 1D
    """
    if schedule.gathers:
        raise TableError("fsdp", fsdp, f"has no effect: {schedule.name} has gathers", "leave it out")
    table = _with_operations(schedule, fsdp, lookahead, reduces_late=False)
    if schedule.num_replicas > 1:
        try:
            _ = table.dependencies
        except TableError:
            return _with_operations(schedule, fsdp, lookahead, reduces_late=True)
    return table


def _with_operations(schedule: Schedule, fsdp: str, lookahead: int, reduces_late: bool) -> Schedule:
    """`with_gathers`, with reductions right after the last backward of a stage, or at the end."""
    ops = list(zip(*(getattr(schedule, name).tolist() for name in COLUMNS), strict=True))
    last = set() if schedule.reduces else set(last_gradients(schedule).ravel().tolist())
    made, starts = [], [0]

    def add(kind, homes):
        made.extend((kind, stage, NO_MICROBATCH, replica, False) for replica, stage in homes)

    for first, stop in pairwise(schedule.rank_start.tolist()):
        heads = [place for place in range(first, stop) if not ops[place][-1]]
        cells = [range(*ends) for ends in pairwise([*heads, stop])]
        upcoming: list[tuple[int, tuple[int, int]]] = []  # the next cell of each stage, in order
        needs = []  # the stages to have gathered for each cell
        for place in reversed(range(len(cells))):
            homes = dict.fromkeys((ops[op][3], ops[op][1]) for op in cells[place] if ops[op][0] < OpKind.R)
            upcoming = [(place, home) for home in homes] + [(at, home) for at, home in upcoming if home not in homes]
            furthest = max((at for at, _ in upcoming[:lookahead]), default=place)
            needs.append([home for at, home in upcoming if at <= furthest])
        gathered: set[tuple[int, int]] = set()
        late = []
        for cell, wanted in zip(cells, reversed(needs), strict=True):
            add(OpKind.D, sorted(gathered - set(wanted)))
            add(OpKind.G, [home for home in wanted if home not in gathered])
            gathered = set(wanted)
            made += [ops[op] for op in cell]
            finished = [(ops[op][3], ops[op][1]) for op in cell if op in last]
            late += finished
            add(OpKind.R, [] if reduces_late else finished)
            if fsdp == DROP:
                done = {(ops[op][3], ops[op][1]) for op in cell} & gathered
                add(OpKind.D, sorted(done))
                gathered -= done
        add(OpKind.R, sorted(late, key=itemgetter(1)) if reduces_late else [])
        add(OpKind.D, sorted(gathered))
        starts.append(len(made))
    columns = dict(zip(COLUMNS, np.array(made, np.int32).T, strict=True))
    return replace(schedule, **columns | {"joined": columns["joined"] > 0, "rank_start": np.array(starts)})
