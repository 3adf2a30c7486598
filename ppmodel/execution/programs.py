"""From tables to programs: what each rank does in which order, under a way of sending."""

import numpy as np

from ppmodel.errors import PPModelError
from ppmodel.ops import OpKind
from ppmodel.simulation import graph_of
from ppmodel.tables import NO_OPERATION

SENT = ("latency", "overlapped", "blocking_send", "rendezvous", "streams")
"""Communication semantics for which there is a way of sending; see `rank`."""

REDUCED = ("excluded", "overlapped", "blocking")
"""What a gradient all-reduce can do; if excluded, it comes after what is timed."""


def program_of(table, p2p, allreduce, costs, repetitions, *, label=None, warm_up=1, checked=True, blocks=0):
    """Write what the ranks of a table have to do, as `rank.Rank` reads it.

    Parameters
    ----------
    table : Schedule
    p2p, allreduce : str
        One of `SENT`, and one of `REDUCED`.
    costs : OpCosts
        How long stages sleep, and by how much longer transfers take than they take anyway.
    repetitions, warm_up : int
        Timed iterations, and those before them.
    label : str, optional
        What to call it.
    checked : bool
        Whether gradients are compared with those of one process.
    blocks : int
        Transformer blocks of the model, whose operations are then also timed alone; 0 if stages sleep.

    Returns
    -------
    dict
        Of plain numbers, lists and texts. ``operations`` has kind, stage, microbatch, replica, the operation whose
        result is needed or -1, and whether it comes from another rank; ``rows`` has, for each rank, cells, batches of
        messages to exchange and ends of transfers to issue; ``messages`` has the operation, sender, receiver, seconds
        for which it occupies its link, and its delay.

    Raises
    ------
    PPModelError
        If there is no such way of sending.
    """
    for name, value, known in (("p2p", p2p, SENT), ("allreduce", allreduce, REDUCED)):
        if value not in known:
            raise PPModelError(name, value, "is simulated, but not executed", f"choose one of {', '.join(known)}")
    graph = graph_of(table, p2p, allreduce)
    source, remote = table.dependencies.source, table.dependencies.remote
    needs = (table.kind == OpKind.F) & (table.stage > 0)
    needs |= np.isin(table.kind, (OpKind.B, OpKind.I)) & (table.stage < table.num_stages - 1)
    columns = table.kind, table.stage, table.microbatch, table.replica, np.where(needs, source, NO_OPERATION), remote
    takers = np.flatnonzero(remote & needs)
    senders, classes = source[takers], table.cost_class[source[takers]]
    _, busy_s, latency_s = costs.by_class(table.num_replicas)
    if p2p == "streams" or costs.delay_s is None:
        delay_s = np.zeros_like(latency_s) if costs.delay_s is None else costs.delay_s.ravel()
        busy_s = busy_s + latency_s - delay_s
    else:
        delay_s = latency_s
    messages = zip(senders, table.rank[senders], table.rank[takers], busy_s[classes], delay_s[classes], strict=True)
    return {
        "label": label or table.name, "p2p": p2p, "allreduce": allreduce, "repetitions": repetitions,
        "warm_up": warm_up, "checked": checked, "timed": blocks > 0, "blocks": divided(blocks, table),
        "placement": table.placement.tolist(),
        "shares": table.unit_shares.tolist(), "parts": table.microbatch_parts, "microbatches": table.num_microbatches,
        "seconds": costs.compute_s.reshape(len(OpKind), -1, table.num_stages)[:, 0].tolist(),
        "names": [str(table.op(index)) for index in range(table.num_operations)],
        "operations": [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)],
        "messages": [[value.item() for value in message] for message in messages],
        "rows": _rows(table, graph),
    }  # fmt: skip


def divided(blocks, table):
    """Divide the blocks of a model by the shares of a table's stages.

    >>> from ppmodel import build
    >>> divided(10, build("gpipe", 4, 4))
    [2, 3, 3, 2]
    """
    ends = np.rint(np.cumsum(table.stage_shares) / table.num_stages * blocks).astype(int)
    return np.diff(ends, prepend=0).tolist()


def _rows(table, graph):
    """The entries of each rank, in order."""
    steps = table.kind == OpKind.O
    is_run = ~steps if graph.reductions else ~steps & (table.kind != OpKind.R)
    lasts = [] if table.reduces and not graph.reductions else np.flatnonzero(steps).tolist()
    if graph.p2p == "streams":
        rows = _issued(table, graph)
    else:
        exchanges = _exchanges(table, graph) if graph.p2p == "rendezvous" else {}
        rows = [[] for _ in range(table.num_ranks)]
        for cell in np.split(np.arange(table.num_operations), np.flatnonzero(~table.joined)[1:]):
            if is_run[cell[0]]:
                row = rows[table.rank[cell[0]]]
                row += [["exchange", batch] for batch in exchanges.get(int(cell[0]), ())]
                row.append(["cell", cell.tolist()])
        for rank, row in enumerate(rows):
            row += [["exchange", batch] for batch in exchanges.get(-1 - rank, ())]
    for op in lasts:
        rows[table.rank[op]].append(["cell", [op]])
    return rows


def _exchanges(table, graph):
    """Batches of messages before each cell, by its first operation, and at the end of each rank, by ``-1 - rank``."""
    phase_start, groups, first_batch, batch_start, message, _ = graph.exchanges
    found = {}
    for rank in range(table.num_ranks):
        for phase in range(phase_start[rank], phase_start[rank + 1]):
            place = -1 - rank
            if groups[phase] != NO_OPERATION:
                ops = graph.index[graph.group_start[groups[phase]] : graph.group_start[groups[phase] + 1]]
                place = int(ops[table.rank[ops] == rank].min())
            found[place] = [
                graph.index[message[batch_start[batch] : batch_start[batch + 1]]].tolist()
                for batch in range(first_batch[phase], first_batch[phase + 1])
            ]
    return found


def _issued(table, graph):
    """Cells and ends of transfers in the order in which each rank issues them under ``streams``."""
    rows, receiver = [[] for _ in range(table.num_ranks)], graph.consumers[0]
    for entry in graph.issued[0].tolist():
        if entry < 0:
            op = -1 - entry
            for rank in (graph.stream[op], receiver[op]):
                rows[rank].append(["issue", int(graph.index[op])])
            continue
        ops = np.sort(graph.index[graph.group_start[entry] : graph.group_start[entry + 1]])
        for rank in np.unique(table.rank[ops]):
            rows[rank].append(["cell", ops[table.rank[ops] == rank].tolist()])
    return rows
