"""The critical path of a timeline."""

import numpy as np

from ppmodel.ops import OpKind
from ppmodel.tables import NO_OPERATION
from ppmodel.tables.further import direct


def critical_path(timeline):
    """Find the critical path: each operation starts as soon as the one before it allows.

    Parameters
    ----------
    timeline : Timeline
        From `simulation.run_graph`.

    Returns
    -------
    list of int
        Indices of operations, up to the last one to end. If an operation waited equally long for a message and for its
        rank, the path follows the message; if it waited for another transfer, as under ``rendezvous`` and ``streams``,
        the later of these two.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.simulation import uniform_costs
    >>> from ppmodel.simulation import compile_graph, run_graph
    >>> schedule = build("gpipe", 2, 1)
    >>> timeline = run_graph(compile_graph(schedule), uniform_costs(schedule, 1, 2))
    >>> [str(schedule.op(op)) for op in critical_path(timeline)]
    ['0F0', '1F0', '1B0', '0B0']
    """
    path = [int(np.nanargmax(timeline.end_s))]
    while (before := _waited_for(timeline, path[-1])) is not None:
        path.append(before)
    return path[::-1]


def _waited_for(timeline, op):
    """Find what an operation waited for longest: its input or the previous one on its rank; None for the first."""
    schedule, dependencies = timeline.graph.schedule, timeline.graph.schedule.dependencies
    first, kind = schedule.rank_start[schedule.rank[op]], schedule.kind
    beside = (OpKind.G,) if timeline.graph.allreduce == "blocking" else (OpKind.G, OpKind.R)
    earlier = (  # operations on the same stream in another cell
        place for place in range(op - 1, first - 1, -1)
        if not schedule.joined[place + 1] and kind[place] != OpKind.D
        and (kind[place] in beside) == (kind[op] in beside)
    )  # fmt: skip
    causes, previous = [], next(earlier, None)
    if kind[op] == OpKind.O and (previous is None or kind[previous] != OpKind.O):
        return int(np.nanargmax(np.where(kind == OpKind.O, np.nan, timeline.end_s)))
    if previous is not None:
        causes.append((timeline.end_s[previous], 0, previous))
    needed = int(dependencies.source[op])
    if needed != NO_OPERATION:
        remote = bool(dependencies.remote[op])
        causes.append(((timeline.arrived_s if remote else timeline.end_s)[needed], 1 + remote, needed))
    if dependencies.further is not None:
        makers = direct(op, dependencies.further, schedule.num_operations)
        causes += [(timeline.end_s[maker] + timeline.collective_s[kind[maker]], 1, maker) for maker in makers]
    return int(max(causes)[2]) if causes else None
