"""From tables to programs: what each rank does in which order, under a way of sending."""

from itertools import chain, pairwise

import numpy as np

from ppmodel.errors import PPModelError
from ppmodel.ops import OpKind
from ppmodel.simulation.numbering import ON_RANKS
from ppmodel.tables import NO_OPERATION
from ppmodel.tables.further import OF_SHARDS, direct

SENT = ("latency", "overlapped", "blocking_send", "rendezvous", "streams")
"""Communication semantics for which there is a way of sending; see `rank`."""

REDUCED = ("excluded", "overlapped", "blocking")
"""What a gradient all-reduce can do; if excluded, it comes after what is timed."""
_BUFFERED = SENT[:3]  # where all receives are posted in advance


def program_of(graph, costs, repetitions, label=None, checked=True, blocks=0):
    """Write what the ranks of a table have to do, for `rank.Rank`.

    Parameters
    ----------
    graph : ExecutionGraph
        Of the table, under one of `SENT` and one of `REDUCED`.
    costs : OpCosts
        How long stages sleep, and by how much longer transfers take than they take anyway.
    repetitions : int
        Timed iterations, after a first one; if 0, that one is timed.
    label : str, optional
        What to call it.
    checked : bool
        Whether gradients are compared with those of one process.
    blocks : int
        Transformer blocks of the model; 0 if stages sleep.

    Returns
    -------
    dict
        Of plain numbers, lists and texts. ``operations`` has kind, stage, microbatch, replica, and the operation whose
        result is needed or -1; ``rows`` has, for each rank, cells, batches of messages to exchange and ends of
        transfers to issue; ``messages`` has the operation, sender, receiver, seconds for which it occupies its link,
        and its delay; ``barriers`` has each operation that waits for all ranks, and those whose results it needs.

    Raises
    ------
    PPModelError
        If there is no such way of sending.
    """
    table = graph.schedule
    for name, value, choices in (("p2p", graph.p2p, SENT), ("allreduce", graph.allreduce, REDUCED)):
        if value not in choices:
            raise PPModelError(name, value, "is simulated, but not executed", f"choose one of {', '.join(choices)}")
    source, remote = table.dependencies.source, table.dependencies.remote
    needs = (table.kind == OpKind.F) & (table.stage > 0)
    needs |= np.isin(table.kind, (OpKind.B, OpKind.I)) & (table.stage < table.num_stages - 1)
    operations = table.kind, table.stage, table.microbatch, table.replica, np.where(needs, source, NO_OPERATION)
    takers = np.flatnonzero(remote & needs)
    takers = takers[np.argsort(source[takers])]  # in the order in which they are sent
    makers = source[takers]
    transfers_s = [seconds[table.cost_class[makers]] for seconds in costs.by_class(table.num_replicas)[1:]]
    messages = makers, table.rank[makers], table.rank[takers], *transfers_s
    return {
        "label": label or table.name, "p2p": graph.p2p, "allreduce": graph.allreduce, "repetitions": repetitions,
        "buffered": graph.p2p in _BUFFERED, "checked": checked, "blocks": divided(blocks, table),
        "placement": table.placement.tolist(), "shares": table.unit_shares.tolist(), "parts": table.microbatch_parts,
        "slices": table.slices, "microbatches": table.num_microbatches,
        "seconds": costs.compute_s.reshape(len(OpKind), -1, table.num_stages)[:, 0].tolist(),
        "names": [str(table.op(index)) for index in range(table.num_operations)],
        "operations": list(zip(*(column.tolist() for column in operations), strict=True)),
        "messages": list(zip(*(column.tolist() for column in messages), strict=True)),
        "barriers": _barriers(table) if table.has_shards else [], "rows": _rows(graph),
    }  # fmt: skip


def divided(blocks, table):
    """Divide the blocks of a model by the shares of a table's stages.

    >>> from ppmodel import build
    >>> divided(10, build("gpipe", 4, 4))
    [2, 3, 3, 2]
    """
    ends = np.rint(np.cumsum(table.stage_shares) / table.num_stages * blocks).astype(int)
    return np.diff(ends, prepend=0).tolist()


def _barriers(table):
    """Each operation that a divided output layer holds up, with those whose results it needs."""
    source, further, rows = table.dependencies.source.tolist(), table.dependencies.further, []
    of_shards = np.isin(table.kind, OF_SHARDS).tolist()
    for op, needed in enumerate(source):
        inputs = [needed] * (needed >= 0) + direct(op, further, len(source))
        inputs = [maker for maker in dict.fromkeys(inputs) if of_shards[op] or of_shards[maker]]
        rows += [[op, *inputs]] if inputs else []
    return rows


def _rows(graph):
    """What each rank does: methods of `rank.Rank`, each with cells, batches of messages or a message."""
    table, rows = graph.schedule, [[] for _ in range(graph.schedule.num_ranks)]
    cells = np.split(np.lexsort((table.kind, table.cell)), np.flatnonzero(~table.joined)[1:])  # forwards first
    sent = set(graph.index[graph.source[graph.remote]].tolist() if graph.p2p in _BUFFERED else ())
    phases = _phases(graph) if graph.p2p == "rendezvous" else [iter(()) for _ in rows]
    for entry in graph.issued[0].tolist() if graph.p2p == "streams" else ():
        if entry < 0:
            for rank in (graph.stream[-1 - entry], graph.receivers[-1 - entry]):
                rows[rank].append(["issue", int(graph.index[-1 - entry])])
        else:
            first, last = graph.group_start[entry : entry + 2]
            ops = graph.index[first:last][graph.is_operation[first:last]]  # none of a barrier
            for cell in np.unique(table.cell[ops[table.kind[ops] < OpKind.G]]):  # of a reduction, one on each rank
                rows[table.rank[cells[cell][0]]].append(["cell", cells[cell].tolist()])
    # excluded reductions come after the row, and so do the steps that need them; nothing is gathered: weights are whole
    last = OpKind.W if table.reduces and not graph.reductions else OpKind.O
    for cell in map(np.ndarray.tolist, cells):
        rank, kind = table.rank[cell[0]], table.kind[cell[0]]
        if kind <= last and (graph.p2p != "streams" or kind == OpKind.O):  # all others are issued
            if kind != OpKind.R or graph.reductions == ON_RANKS:
                rows[rank] += next(phases[rank], [])
            rows[rank] += [["cell", cell], *(["send", number] for number in sorted(sent & {*cell}))]
    return [[*row, *chain(*rest)] for row, rest in zip(rows, phases, strict=True)]


def _phases(graph):
    """What each rank exchanges before each of its cells, and at its end."""
    message, _, phase, batch, _ = graph.exchanges
    start = graph.programs[0][: graph.schedule.num_ranks + 1] + np.arange(graph.schedule.num_ranks + 1)
    phases, first = [[] for _ in range(start[-1])], np.flatnonzero(np.diff(batch, prepend=-1))
    for number, some in zip(phase[first], np.split(graph.index[message], first[1:]), strict=False):
        phases[number].append(["exchange", sorted(some.tolist())])
    return [iter(phases[first:last]) for first, last in pairwise(start)]
