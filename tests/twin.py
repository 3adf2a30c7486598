"""The slow, obvious twin of the engine: from rows of operations to times, sharing nothing with the package.

Each rank walks its row. A cell runs when everything that its operations need is there; whoever can go
next goes, until all rows are done. Only cells, letters, the semantics and shared nics are known here.
"""

from ppmodel.ops import OpKind

F, B, I, W, R, O = OpKind  # noqa: E741 - the field's letter


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


def is_pair(cell):
    """Whether a forward and a backward share a cell."""
    kinds = {op.kind for op in cell}
    return F in kinds and bool(kinds & {B, I, W})


def shorter(cell, costs):
    """The factor on the duration of a cell: of a forward and a backward, and of that very pair."""
    if not is_pair(cell):
        return 1
    forward, *others = sorted(cell, key=lambda op: op.kind)
    pair = [(forward.kind, forward.stage, op.kind, op.stage) for op in others]
    return costs.overlap_factor * ((costs.pairs or {}).get(pair[0], 1) if len(pair) == 1 else 1)


def in_plain_words(schedule):
    """Rows of computation alone; of each operation its rank, what it needs, and the other rank that waits for it."""
    rows = [[[op for op in cell if op.kind not in (R, O)] for cell in row] for row in schedule.rows()]
    rows = [[cell for cell in row if cell] for row in rows]
    home = {op: rank for rank, row in enumerate(rows) for cell in row for op in cell}
    split = {op._replace(kind=B) for op in home if op.kind == I}
    last_stage = max(op.stage for op in home)
    source = {op: needs(op, last_stage, split) for op in home}
    receiver = {s: home[op] for op, s in source.items() if s is not None and home[s] != home[op]}
    return rows, home, source, receiver


def with_reductions(schedule, rows, source, allreduce):
    """Rows of what each rank does, and behind them rows of what runs beside each rank."""
    last = {(op.stage, op.replica): op for row in rows for cell in row for op in cell if op.kind in (B, W)}
    sums = [[cell for cell in row if cell[0].kind == R] for row in schedule.rows()]
    if allreduce != "excluded":
        source.update({op: last[op.stage, op.replica] for row in sums for (op,) in row})
    if allreduce == "blocking":
        return [[cell for cell in row if cell[0].kind != O] for row in schedule.rows()]
    return rows + sums if allreduce.startswith("overlapped") else rows


def step_ends(schedule, costs, begin, factors):
    """When each optimizer step ends: the first of each rank begins when all else has ended."""
    end = {}
    for row in schedule.rows():
        now = begin
        for (op,) in (cell for cell in row if cell[0].kind == O):
            end[op] = now = now + factors.get(op, 1.0) * costs.compute_s[O, op.stage]
    return end


def end_times(schedule, costs, p2p, factors=None, allreduce="excluded"):
    """When each operation ends, by operation; factors on durations by operation, too."""
    factors = factors or {}
    rows, home, source, receiver = in_plain_words(schedule)
    rows = with_reductions(schedule, rows, source, allreduce)
    clock, link_free, there, end = [0.0] * len(rows), {}, {}, {}
    occupied = {op: costs.occupancy_s[op.kind, op.stage] for op in home}
    late = {op: costs.latency_s[op.kind, op.stage] for op in home}

    def run(rank, cell):
        now = clock[rank]
        for op in cell:
            s = source[op]
            if s is None or home[s] == rank:
                continue
            now = max(now, there[s])
            if p2p in ("blocking_recv", "blocking"):
                now += occupied[s] + late[s]
        duration = sum(factors.get(op, 1.0) * costs.compute_s[op.kind, op.stage] for op in cell)
        now += duration * shorter(cell, costs)
        clock[rank] = now
        for op in cell:
            end[op] = now
        for op in cell:
            if op not in receiver:
                continue
            if p2p in ("blocking_send", "blocking"):
                clock[rank] += occupied[op] + late[op]
                there[op] = clock[rank]
            elif p2p == "overlapped":
                link = (rank, receiver[op])
                leaves = max(now, link_free.get(link, 0.0))
                link_free[link] = leaves + occupied[op]
                there[op] = leaves + occupied[op] + late[op]
            else:
                there[op] = now + (occupied[op] + late[op] if p2p == "latency" else 0.0)

    def reduce(stage, heads):
        now = max(max(clock[d], end[source[op]]) for d, op in heads)
        now += max(factors.get(op, 1.0) * costs.compute_s[R, stage] for _, op in heads)
        for d, op in heads:
            clock[d] = end[op] = now

    while any(rows):
        going = {
            d for d, row in enumerate(rows) if row and all(source[op] in end or source[op] is None for op in row[0])
        }
        sums = [(d, rows[d][0][0]) for d in going if rows[d][0][0].kind == R]
        going -= {d for d, _ in sums}
        heads = {stage: [(d, op) for d, op in sums if op.stage == stage] for stage in range(schedule.num_stages)}
        whole = {stage: some for stage, some in heads.items() if len(some) == schedule.num_replicas}
        assert going or whole, "deadlock"
        for stage, some in whole.items():
            reduce(stage, some)
            for d, _ in some:
                rows[d].pop(0)
        for rank in going:
            run(rank, rows[rank].pop(0))
    return end | step_ends(schedule, costs, max(clock), factors)


def rendezvous_times(schedule, costs, allreduce="excluded"):
    """When each operation ends, and when its message is sent and there, where a transfer holds both ends.

    None where ranks wait for one another. Each rank walks a list of cells and, between two of them, of what it does
    with each peer: all messages to and from the peer at once, but for those that it sends, which go one by one.
    """
    rows, home, source, receiver = in_plain_words(schedule)
    rows = with_reductions(schedule, rows, source, allreduce)
    rows, beside = rows[: schedule.num_ranks], rows[schedule.num_ranks :]
    lists = []
    for rank, row in enumerate(rows):
        steps, before = [], []
        for cell in [*row, []]:
            peers = {}
            for op in before:
                if op in receiver:
                    peers.setdefault(receiver[op], []).append(op)
            for needed in map(source.get, cell):
                if needed in receiver and home[needed] != rank:
                    peers.setdefault(home[needed], []).append(needed)
            steps += [("meet", messages) for messages in peers.values()] + [("run", cell)] * bool(cell)
            before = cell
        lists.append(steps)
    clock, end, sent, there = [0.0] * len(rows), {}, {}, {}
    place, went = [0] * len(rows), True

    def posts(rank):
        """The messages that a rank has posted and that are not through: the next one it sends, all that it receives."""
        step, what = lists[rank][place[rank]] if place[rank] < len(lists[rank]) else ("run", [])
        waiting = [op for op in what if step == "meet" and op not in there]
        sends = [op for op in waiting if home[op] == rank]
        return sends[:1] + [op for op in waiting if home[op] != rank]

    def ready(rank, op):
        """When a rank is ready for a message: as it comes to the step, or when what it sent there before is through."""
        earlier = [there[one] for one in lists[rank][place[rank]][1] if home[one] == rank and one in there]
        return max([clock[rank], *(earlier if home[op] == rank else [])])

    while went:
        went = False
        for rank, steps in enumerate(lists):
            for op in posts(rank):
                ends = (home[op], receiver[op])
                if op not in there and all(op in posts(end_) for end_ in ends):
                    sent[op] = max(ready(end_, op) for end_ in ends)
                    there[op] = sent[op] + costs.occupancy_s[op.kind, op.stage] + costs.latency_s[op.kind, op.stage]
                    went = True
            if place[rank] == len(steps) or posts(rank):
                continue
            step, what = steps[place[rank]]
            if step == "run" and what[0].kind == R:
                heads = [
                    (other, lists[other][place[other]][1][0]) for other in range(len(rows))
                    if place[other] < len(lists[other]) and lists[other][place[other]][0] == "run"
                ]  # fmt: skip
                heads = [(other, op) for other, op in heads if (op.kind, op.stage) == (R, what[0].stage)]
                if len(heads) < schedule.num_replicas:
                    continue
                now = max(clock[other] for other, _ in heads) + costs.compute_s[R, what[0].stage]
                for other, op in heads:
                    clock[other] = end[op] = now
                    place[other] += 1
                went = True
                continue
            if step == "meet":
                clock[rank] = max(there[op] for op in what)
            else:
                duration = sum(costs.compute_s[op.kind, op.stage] for op in what)
                clock[rank] += duration * shorter(what, costs)
                end |= dict.fromkeys(what, clock[rank])
            place[rank], went = place[rank] + 1, True
    if len(home.keys() - end.keys()):
        return None
    end |= beside_ends(schedule, costs, beside, source, end)
    return end | step_ends(schedule, costs, max([*clock, *end.values()]), {}), sent, there


def beside_ends(schedule, costs, rows, source, end):
    """When reductions end that run beside the ranks, each rank's one after the other, once all replicas are ready."""
    rows, free, ends = [[op for (op,) in row] for row in rows], [0.0] * len(rows), {}
    while any(rows):
        heads = [(rank, row[0]) for rank, row in enumerate(rows) if row]
        stage = next(
            one.stage for _, one in heads
            if sum(op.stage == one.stage for _, op in heads) == schedule.num_replicas
        )  # fmt: skip
        together = [(rank, op) for rank, op in heads if op.stage == stage]
        now = max(max(free[rank], end[source[op]]) for rank, op in together) + costs.compute_s[R, stage]
        for rank, op in together:
            free[rank] = ends[op] = now
            rows[rank].pop(0)
    return ends


def link_times(schedule, costs, nics=None):
    """When each operation ends where reductions hold the links of their ranks, or their NICs' outgoing sides.

    Of all that can happen next, the soonest does; costs must leave no ties. A place serves one after the other.
    """
    rows, home, source, receiver = in_plain_words(schedule)
    ranks = len(rows)
    rows = with_reductions(schedule, rows, source, "overlapped")
    links = {(home[op], there) for op, there in receiver.items()}
    busy, coming, there, end = [None] * len(rows), [], set(), {}
    queue, served, asked, ready = {}, {}, set(), {}

    def path(op):
        """The places that a message passes, one after the other."""
        link = home[op], receiver[op]
        apart = nics is not None and nics[link[0]] != nics[link[1]]
        return [("out", nics[link[0]]), ("in", nics[link[1]])] if apart else [link]

    def held(stage):
        """The places of a reduction."""
        for d, row in enumerate(rows[ranks:]):
            if not row or row[0][0].stage != stage:
                continue
            yield from (link for link in links if link[0] == d and (nics is None or nics[link[0]] == nics[link[1]]))
            if nics is not None:
                yield "out", nics[d]

    def serve(place):
        if place in served or not queue.get(place):
            return
        what = served[place] = queue[place].pop(0)
        if isinstance(what, int):
            ready[what].remove(place)
            start_reduction(what)
            return
        coming.append((now + costs.occupancy_s[what.kind, what.stage], "through", (place, what)))
        if place == path(what)[0] and len(path(what)) == 2:
            queue.setdefault(path(what)[1], []).append(what)
            serve(path(what)[1])

    def start_reduction(stage):
        if not ready[stage]:
            coming.append((now + costs.compute_s[R, stage], "reduced", stage))

    def start():
        """Start the cells that can, and let the reductions that can queue."""
        for d, row in enumerate(rows[:ranks]):
            wants = [source[op] for op in row[0]] if row else []
            if row and busy[d] is None and all(s is None or s in (there if home[s] != d else end) for s in wants):
                busy[d] = row.pop(0)
                duration = sum(costs.compute_s[op.kind, op.stage] for op in busy[d])
                coming.append((now + duration * shorter(busy[d], costs), "ended", d))
        heads = [row[0][0] for row in rows[ranks:] if row and source[row[0][0]] in end]
        for stage in {op.stage for op in heads} - asked:
            if sum(op.stage == stage for op in heads) == schedule.num_replicas:
                asked.add(stage)
                coming.append((now, "asked", stage))

    now = 0.0
    start()
    while coming:
        event = min(coming, key=lambda one: (one[0], one[1] == "asked"))
        coming.remove(event)
        now, what, which = event
        if what == "ended":
            cell, busy[which] = busy[which], None
            end |= dict.fromkeys(cell, now)
            for op in (op for op in cell if op in receiver):
                queue.setdefault(path(op)[0], []).append(op)
                serve(path(op)[0])
        elif what == "through":
            place, op = which
            del served[place]
            if place == path(op)[-1]:
                coming.append((now + costs.latency_s[op.kind, op.stage], "there", op))
            serve(place)
        elif what == "there":
            there.add(which)
        elif what == "asked":
            ready[which] = set(held(which))
            for place in list(ready[which]):
                queue.setdefault(place, []).append(which)
            for place in list(ready[which]) or [None]:
                serve(place) if place else start_reduction(which)
        else:
            places = set(held(which))
            for row in rows[ranks:]:
                if row and row[0][0].stage == which:
                    end[row.pop(0)[0]] = now
            for place in places:
                del served[place]
            for place in places:
                serve(place)
        start()
    assert not any(rows), "deadlock"
    return end | step_ends(schedule, costs, max(end.values()), {})


def nic_times(schedule, costs, nics):
    """When each computing operation ends, and when its message is sent and there, with shared nics; by operation.

    What ends first is sent first: inside a node over the link of its pair of ranks; else at its turn by the sender's
    nic. From then on it waits for its turn at the receiver's nic, and passes both at once if it need not wait.
    """
    rows, home, source, receiver = in_plain_words(schedule)
    shape = (len(OpKind), schedule.num_replicas, schedule.num_stages)
    compute, occupied, late = (
        {op: table.reshape(shape)[op.kind, op.replica, op.stage] for op in home}
        for table in costs.by_class(schedule.num_replicas)
    )
    clock, running, free = [0.0] * len(rows), [None] * len(rows), {}
    end, sent, there, leaving = {}, {}, {}, {}

    def through(place, op, now):
        """When a place that serves one message after the other begins to serve this one."""
        begins = max(now, free.get(place, 0.0))
        free[place] = begins + occupied[op]
        return begins

    def start(rank):
        cell = rows[rank][0]
        wanted = [source[op] for op in cell if source[op] is not None]
        inputs = [there.get(s) if home[s] != rank else end.get(s) for s in wanted]
        if None not in inputs:
            duration = sum(compute[op] for op in cell) * shorter(cell, costs)
            clock[rank] = max([clock[rank], *inputs]) + duration
            running[rank] = rows[rank].pop(0)

    def finish(rank, now):
        for op in running[rank]:
            end[op] = now
            if op in receiver:
                pair = (rank, receiver[op])
                apart = nics[pair[0]] != nics[pair[1]]
                sent[op] = through(("out", nics[rank]) if apart else pair, op, now)
                if apart:
                    leaving[op] = sent[op]
                else:
                    there[op] = sent[op] + occupied[op] + late[op]
        running[rank] = None

    while any(rows) or any(running):
        for rank, row in enumerate(rows):
            if row and not running[rank]:
                start(rank)
        soonest = [(clock[rank], rank) for rank, cell in enumerate(running) if cell]
        op = min(leaving, key=leaving.get, default=None)
        assert soonest or leaving, "deadlock"
        if op is not None and (not soonest or leaving[op] <= min(soonest)[0]):
            there[op] = through(("in", nics[receiver[op]]), op, leaving.pop(op)) + occupied[op] + late[op]
        else:
            now, rank = min(soonest)
            finish(rank, now)
    return end, sent, there


def roofline_s(work, system):
    """Seconds of one kernel by the plain roofline: the longer of its arithmetic and its memory traffic."""
    if not (work.flops or work.bytes):
        return 0.0
    arithmetic = work.flops / (system.peak_compute_flops * system.compute_efficiency) + system.compute_latency_s
    traffic = work.bytes / (system.memory_bandwidth_bytes_per_s * system.memory_efficiency) + system.memory_latency_s
    return max(arithmetic, traffic)
