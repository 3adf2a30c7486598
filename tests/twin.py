"""The slow, obvious twin of the engine: from rows of operations to times, sharing nothing with the package.

Each device walks its row. A cell runs when everything that its operations need is there; whoever can go
next goes, until all rows are done. Only cells, letters and the five semantics are known here.
"""

from ppmodel.ops import OpKind

F, B, I, W, R = OpKind  # noqa: E741 - the field's letter


def needs(op, last_stage, split):
    """The operation whose result an operation needs, or None."""
    if op.kind == F:
        return op._replace(stage=op.stage - 1) if op.stage else None
    if op.kind == W:
        return op._replace(kind=I)
    if op.stage == last_stage:
        return op._replace(kind=F)
    above = op._replace(stage=op.stage + 1, kind=B)
    return above._replace(kind=I) if above in split else above


def end_times(schedule, costs, p2p, factors=None):
    """When each computing operation ends, by operation; factors on durations by operation, too."""
    factors = factors or {}
    rows = [[[op for op in cell if op.kind != R] for cell in row] for row in schedule.rows()]
    rows = [[cell for cell in row if cell] for row in rows]
    home = {op: device for device, row in enumerate(rows) for cell in row for op in cell}
    split = {op._replace(kind=B) for op in home if op.kind == I}
    last_stage = max(op.stage for op in home)
    source = {op: needs(op, last_stage, split) for op in home}
    wanted_elsewhere = {s for op, s in source.items() if s is not None and home[s] != home[op]}
    receiver = {s: home[op] for op, s in source.items() if s is not None}
    clock, link_free, there, end = [0.0] * len(rows), {}, {}, {}
    occupied = {op: costs.occupancy_s[op.kind, op.stage] for op in home}
    late = {op: costs.latency_s[op.kind, op.stage] for op in home}

    def run(device, cell):
        now = clock[device]
        for op in cell:
            s = source[op]
            if s is None or home[s] == device:
                continue
            now = max(now, there[s])
            if p2p in ("blocking_recv", "blocking"):
                now += occupied[s] + late[s]
        duration = sum(factors.get(op, 1.0) * costs.compute_s[op.kind, op.stage] for op in cell)
        now += duration * (costs.overlap_factor if len(cell) > 1 else 1)
        clock[device] = now
        for op in cell:
            end[op] = now
        for op in cell:
            if op not in wanted_elsewhere:
                continue
            if p2p in ("blocking_send", "blocking"):
                clock[device] += occupied[op] + late[op]
                there[op] = clock[device]
            elif p2p == "overlapped":
                link = (device, receiver[op])
                leaves = max(now, link_free.get(link, 0.0))
                link_free[link] = leaves + occupied[op]
                there[op] = leaves + occupied[op] + late[op]
            else:
                there[op] = now + (occupied[op] + late[op] if p2p == "latency" else 0.0)

    while any(rows):
        going = [
            d for d, row in enumerate(rows) if row and all(source[op] in end or source[op] is None for op in row[0])
        ]
        assert going, "deadlock"
        for device in going:
            run(device, rows[device].pop(0))
    return end
