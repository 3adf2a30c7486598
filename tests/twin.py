"""The slow, obvious twin of the engine: from rows of operations to times, sharing nothing with the package.

Each rank walks its row. A cell runs when everything that its operations need is there; whoever can go
next goes, until all rows are done. Only cells, letters, the semantics and shared nics are known here.
"""

import numpy as np

from ppmodel.ops import OpKind
from ppmodel.simulation.inputs import COLLECTIVE

F, B, I, W, S, T, R, O, G, D = OpKind  # noqa: E741 - the field's letter


def needs(op, last_stage, split):
    """The operation whose result an operation needs, or None."""
    if op.kind in (S, T):
        return None
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


def named(schedule):
    """The operations; gathers and drops of a stage, which are alike, have their index for a microbatch."""
    ops = map(schedule.op, range(schedule.num_operations))
    return [op._replace(microbatch=index) if op.kind in (G, D) else op for index, op in enumerate(ops)]


def order_of(graph):
    """The operations and collectives of a graph in the order by which ties are broken."""
    ops, index = named(graph.schedule), graph.index.tolist()
    rows = [0] * len(index) if graph.row is None else graph.row.tolist()
    return [passed(ops[at]) if row == COLLECTIVE else ops[at] for at, row in zip(index, rows, strict=True)]


def named_rows(schedule):
    """The rows of a table with these names."""
    names = iter(named(schedule))
    return [[tuple(next(names) for _ in cell) for cell in row] for row in schedule.rows()]


def barriers(rows, last):
    """What S, T and the backward of the last stage wait for, of a layer whose shards are on all ranks."""
    rows, waits, those = [[op for cell in row for op in cell] for row in rows], {}, {}
    for op in (op for row in rows for op in row):
        those.setdefault((op.kind, op.microbatch), []).append(op)
    for row in rows if any(kind == S for kind, _ in those) else ():
        for place, op in enumerate(row):
            if op.kind == S:
                waits[op] = [one for one in those[F, op.microbatch] if one.stage == last]
            elif op.kind == T:
                waits[op] = those[S, op.microbatch]
            elif op.kind in (B, I) and op.stage == last:
                is_late = any(one in row[:place] for one in those[T, op.microbatch])
                waits[op] = those[T if is_late else S, op.microbatch]
    return waits


def passed(op):
    """The name of the collective that passes the results of shards on to all ranks, by that of the last shard."""
    return op._replace(replica=-1)


class Ends(dict):
    """When operations end, and the collectives of barriers behind those that they wait for."""

    def __init__(self, waits, home, costs=None):
        self.late = costs.occupancy_s + costs.latency_s if costs else np.zeros((len(OpKind), 1))
        self.those = {one: [] for those in waits.values() for one in those if one.replica < 0}
        for op in home:
            for one in self.those:
                is_alike = (op.kind, op.microbatch) == (one.kind, one.microbatch)
                if is_alike and (op.kind != F or op.stage == one.stage):
                    self.those[one].append(op)

    def passes(self, op):
        """The collectives that begin as an operation ends, and the seconds that they take."""
        for one, those in self.those.items():
            if op in those and all(other in self for other in those):
                yield one, self.late[one.kind, ..., one.stage if self.late.shape[-1] > 1 else 0].item()

    def __setitem__(self, op, now):
        super().__setitem__(op, now)
        for one, late in self.passes(op):
            super().__setitem__(one, max(self[other] for other in self.those[one]) + late)


def gathers(schedule):
    """What each gather comes after on its rank; and what an operation waits for, that is not a message.

    The first operation behind a gather waits for it. Barriers of an output layer that is divided among the ranks are
    such waits, too, of what a collective has `passed` on.
    """
    after, waits = {}, barriers(schedule.rows(), schedule.num_stages - 1)
    waits = {op: [passed(max(those, key=lambda one: one.stage))] for op, those in waits.items()}
    for row in named_rows(schedule):
        before, gathered = None, {}
        for op in (op for cell in row for op in cell):
            if op.kind == G:
                after[op] = before
                gathered[op.stage, op.replica] = op
            elif op.kind < R:
                before = op
                if (op.stage, op.replica) in gathered:
                    waits[op] = [*waits.get(op, ()), gathered.pop((op.stage, op.replica))]
    return after, waits


def in_plain_words(schedule):
    """Rows of computation alone; of each operation its rank, what it needs, and the other rank that waits for it."""
    rows = [[[op for op in cell if op.kind < R] for cell in row] for row in schedule.rows()]
    rows = [[cell for cell in row if cell] for row in rows]
    home = {op: rank for rank, row in enumerate(rows) for cell in row for op in cell}
    split = {op._replace(kind=B) for op in home if op.kind == I}
    last_stage = max(op.stage for op in home)
    source = {op: needs(op, last_stage, split) for op in home}
    receiver = {s: home[op] for op, s in source.items() if s is not None and home[s] != home[op]}
    return rows, home, source, receiver


def with_reductions(schedule, rows, source, allreduce):
    """Rows of what each rank does, and behind them rows of what runs beside each rank."""
    source.update(gathers(schedule)[0])
    last = {(op.stage, op.replica): op for row in rows for cell in row for op in cell if op.kind in (B, W, T)}
    beside = (R, G) if allreduce.startswith("overlapped") else (G,)
    if allreduce != "excluded":
        sums = [op for row in schedule.rows() for cell in row for op in cell if op.kind == R]
        source.update({op: last[op.stage, op.replica] for op in sums})
    if allreduce == "blocking":
        rows = [[cell for cell in row if cell[0].kind <= R] for row in schedule.rows()]
    return rows + [[cell for cell in row if cell[0].kind in beside] for row in named_rows(schedule)]


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
    rows, waits, ranks = with_reductions(schedule, rows, source, allreduce), gathers(schedule)[1], len(rows)
    clock, link_free, there, end = [0.0] * len(rows), {}, {}, Ends(waits, home, costs)
    occupied = {op: costs.occupancy_s[op.kind, op.stage] for op in home}
    late = {op: costs.latency_s[op.kind, op.stage] for op in home}

    def run(rank, cell):
        now = clock[rank]
        for op in cell:
            s = source[op]
            if s is None or home[s] == rank % ranks:
                now = max(now, end.get(s, 0.0))
            else:
                now = max(now, there[s])
                if p2p in ("blocking_recv", "blocking"):
                    now += occupied[s] + late[s]
            now = max([now, *(end[one] for one in waits.get(op, ()))])  # an operation of the cell after the other
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
            d for d, row in enumerate(rows)
            if row and all(s is None or s in end for op in row[0] for s in (source[op], *waits.get(op, ())))
        }  # fmt: skip
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
    rows, waits = with_reductions(schedule, rows, source, allreduce), gathers(schedule)[1]
    rows, beside = rows[: schedule.num_ranks], [[op for (op,) in row] for row in rows[schedule.num_ranks :]]
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
    clock, end, sent, there = [0.0] * len(rows), Ends(waits, home, costs), {}, {}
    place, went, free = [0] * len(rows), True, [0.0] * len(rows)

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
        went = go_beside(schedule, costs, beside, free, source, end)
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
            elif any(one not in end for op in what for one in waits.get(op, ())):
                continue
            else:
                clock[rank] = max([clock[rank], *(end[one] for op in what for one in waits.get(op, ()))])
                duration = sum(costs.compute_s[op.kind, op.stage] for op in what)
                clock[rank] += duration * shorter(what, costs)
                for op in what:
                    end[op] = clock[rank]
            place[rank], went = place[rank] + 1, True
    if len(home.keys() - end.keys()):
        return None
    return end | step_ends(schedule, costs, max([*clock, *end.values()]), {}), sent, there


def plan(schedule, allreduce):
    """When the plan by which ranks issue has each operation begin and end, in thousandths of a forward; sums take 0."""
    rows, home, source, _ = in_plain_words(schedule)
    rows, waits = with_reductions(schedule, rows, source, allreduce), gathers(schedule)[1]
    clock, begin, end = [0] * len(rows), {}, Ends(waits, home)
    while any(rows):
        for rank, row in enumerate(rows):
            if not row:
                continue
            ends = {op: [rank] for op in row[0]}
            if row[0][0].kind == R:
                of_stage = [other for other in rows if other and (other[0][0].kind, other[0][0].stage) == row[0][0][:2]]
                if len(of_stage) < schedule.num_replicas:
                    continue
                ends = {other[0][0]: [rows.index(other)] for other in of_stage}
            if any(s is not None and s not in end for op in ends for s in (source[op], *waits.get(op, ()))):
                continue
            late = {op: source[op] in home and op in home and home[op] != home[source[op]] for op in ends}
            now = max(end[source[op]] + late[op] if source[op] is not None else 0 for op in ends)
            now = max(
                [
                    now,
                    *(end[one] for op in ends for one in waits.get(op, ())),
                    *(clock[other] for others in ends.values() for other in others),
                ]
            )
            length = sum({F: 1000, B: 2000, I: 1000, W: 1000, S: 1000, T: 1000, R: 0, G: 0}[op.kind] for op in ends)
            for op, others in ends.items():
                begin[op], end[op] = now, now + length
                for other in others:
                    clock[other] = now + length
            for other in {other for others in ends.values() for other in others}:
                rows[other].pop(0)
    return begin, end


def streams_times(schedule, costs, delays, allreduce="excluded"):
    """When each operation ends, and when its message is sent and there, where transfers are kernels behind one queue.

    Each rank walks a list of cells and of ends of messages: those of a peer wait for one another, and what comes later
    in the list for the start of all that comes before it. `delays` are those of links, by sender and receiver.
    """
    rows, home, source, receiver = in_plain_words(schedule)
    begin, due = plan(schedule, allreduce)
    number, waits = {op: index for index, op in enumerate(named(schedule))}, gathers(schedule)[1]
    rows = [[tuple(cell) for cell in row] for row in with_reductions(schedule, rows, source, allreduce)]
    lists = []
    for rank, row in enumerate(rows):
        posts = [op for op in receiver if rank in (home[op], receiver[op])]
        items = [((begin[cell[0]], 1, 0), cell) for cell in row]
        items += [((due[op], 0, number[op]), op) for op in posts]
        cells = {cell: place for place, cell in enumerate(row)}
        items.sort(key=lambda item: (item[0], cells.get(item[1], 0) if isinstance(item[1][0], tuple) else 0))
        items = [(what, when[0]) for when, what in items]
        for place in range(1, len(items)):
            (before, _), (this, when) = items[place - 1 : place + 1]
            is_receive = this in receiver and receiver[this] == rank
            if is_receive and before not in receiver and before[0].kind not in (R, G) and when <= due[before[0]]:
                items[place - 1 : place + 1] = items[place - 1 : place + 1][::-1]
        lists.append([what for what, _ in items])
    busy, head, last = [0.0] * len(lists), [0.0] * len(lists), {}
    posted, sent, there, end = {}, {}, {}, Ends(waits, home, costs)
    shape = (len(OpKind), schedule.num_replicas, schedule.num_stages)
    compute, occupied, late = (table.reshape(shape) for table in costs.by_class(schedule.num_replicas))

    def of(table, op):
        return table[op.kind, op.replica, op.stage]

    went = True
    while went:
        went = False
        for rank, items in enumerate(lists):
            while items:
                what = items[0]
                if what in receiver:
                    ends = (home[what], receiver[what])
                    before = last.get((rank, frozenset(ends)))
                    if before is not None and before not in there:
                        break
                    delay = delays.get(ends, 0.0) if rank == home[what] else 0.0
                    head[rank] = max(busy[rank], head[rank], there.get(before, 0.0)) + delay
                    last[rank, frozenset(ends)] = what
                    if what in posted:
                        sent[what] = max(posted[what], head[rank])
                        there[what] = sent[what] + of(occupied, what) + of(late, what)
                    posted[what] = head[rank]
                else:
                    group, at = [(op, rank) for op in what], {rank}
                    if what[0].kind == R:
                        heads = [(other[0], number) for number, other in enumerate(lists) if other]
                        group = [
                            (cell[0], number) for cell, number in heads
                            if cell not in receiver and cell[0].kind == R and cell[0].stage == what[0].stage
                        ]  # fmt: skip
                        at = {number for _, number in group}
                        if len(group) < schedule.num_replicas:
                            break
                    taken = {op for op, _ in group if what[0].kind != R and source[op] in receiver}
                    taken = {op for op in taken if op in home and home[op] != home[source[op]]}
                    needs = [(source[op], there if op in taken else end) for op, _ in group if source[op] is not None]
                    needs += [(one, end) for op, _ in group for one in waits.get(op, ())]
                    if any(needed not in times for needed, times in needs):
                        break
                    now = max([times[needed] for needed, times in needs] + [max(busy[d], head[d]) for d in at])
                    lengths = [of(compute, op) for op, _ in group]
                    length = max(lengths) if what[0].kind == R else sum(lengths) * shorter(what, costs)
                    for op, number_ in group:
                        head[number_], busy[number_], end[op] = now, now + length, now + length
                    for other in at - {rank}:
                        lists[other].pop(0)
                items.pop(0)
                went = True
    assert not any(lists), "a deadlock"
    return end | step_ends(schedule, costs, max(end.values()), {}), sent, there


def go_beside(schedule, costs, rows, free, source, end):
    """Let what runs beside the ranks go as far as it can: gathers, and reductions once all replicas are ready.

    Each rank's run one after the other. Returns whether any went.
    """
    went = False
    while True:
        heads = [(rank, row[0]) for rank, row in enumerate(rows) if row and source[row[0]] in {None, *end}]
        for rank, first in heads:
            alike = [(other, op) for other, op in heads if (op.kind, op.stage) == (R, first.stage)]
            together = alike if first.kind == R else [(rank, first)]
            if first.kind == G or len(together) == schedule.num_replicas:
                break
        else:
            return went
        now = max(max(free[rank], end.get(source[op], 0.0)) for rank, op in together)
        for rank, op in together:
            free[rank] = end[op] = now + costs.compute_s[op.kind, op.stage]
            rows[rank].pop(0)
        went = True


def queue_times(schedule, costs, order, allreduce="excluded"):
    """When each operation ends, and when its message is sent and there, where messages queue at links or NICs.

    Of all that can happen next, the soonest does. What happens at the same time follows the rule of `run_events`: cells
    and reductions end, links and sides of NICs become free, messages arrive, reductions ask for their places; and of
    each of these, in the order of the operations, `order`. After each event, whatever can start does. A place serves
    what comes first; a message between NICs passes both at once unless it must wait at the second. Reductions that
    hold links occupy those of their ranks, or their NICs' outgoing sides.
    """
    rows, home, source, receiver = in_plain_words(schedule)
    ranks, nics = len(rows), costs.nics
    rows, waits = with_reductions(schedule, rows, source, allreduce), gathers(schedule)[1]
    shape = (len(OpKind), schedule.num_replicas, schedule.num_stages)
    compute, occupied, late = (table.reshape(shape) for table in costs.by_class(schedule.num_replicas))
    links = sorted({(home[op], taker) for op, taker in receiver.items()})
    position = {op: place for place, op in enumerate(order)}
    busy, coming, sent, there, end = [None] * len(rows), [], {}, {}, Ends(waits, home, costs)
    queue, served, asked, ready = {}, {}, set(), {}

    def of(table, op):
        return table[op.kind, op.replica, op.stage]

    def comes(when, what, ops, *which):
        """Plan an event of an operation, or of several that it concerns."""
        kind = ("end", "free", "there", "ask").index(what)
        coming.append((when, kind, min(position[op] for op in ops), *which, what, ops))

    def path(op):
        """The places that a message passes, one after the other."""
        link = home[op], receiver[op]
        apart = nics is not None and nics[link[0]] != nics[link[1]]
        return [("out", nics[link[0]]), ("in", nics[link[1]])] if apart else [link]

    def held(ops):
        """The places of a reduction, rank by rank."""
        places = []
        for rank in sorted(schedule.placement[op.replica, op.stage] for op in ops):
            places += [link for link in links if link[0] == rank and (nics is None or nics[rank] == nics[link[1]])]
            places += [("out", nics[rank])] if nics is not None else []
        return list(dict.fromkeys(places)) if allreduce == "overlapped_links" else []

    def serve(place):
        if place in served or not queue.get(place):
            return
        what = served[place] = queue[place].pop(0)
        if isinstance(what, tuple) and what in ready:
            ready[what].remove(place)
            reduce(what)
            return
        side = path(what).index(place)
        if side == 0:
            sent[what] = now
        comes(now + of(occupied, what), "free", [what], side)
        if side == 0 and len(path(what)) == 2:
            queue.setdefault(path(what)[1], []).append(what)
            serve(path(what)[1])

    def reduce(ops):
        if not ready[ops]:
            comes(now + max(of(compute, op) for op in ops), "end", ops)

    def start():
        """Start the cells that can, and let the reductions that can ask for their places."""
        heads = {}
        for rank, row in enumerate(rows):
            if not row or busy[rank] is not None:
                continue
            wants = [source[op] for op in row[0]]
            inputs = (there if s in receiver and rank < ranks and home[s] != rank else end for s in wants)
            if not all(s is None or s in arrived for s, arrived in zip(wants, inputs, strict=True)):
                continue
            if any(one not in end for op in row[0] for one in waits.get(op, ())):
                continue
            if row[0][0].kind == R:
                heads.setdefault(row[0][0].stage, []).append(row[0][0])
                continue
            busy[rank] = row.pop(0)
            comes(now + sum(of(compute, op) for op in busy[rank]) * shorter(busy[rank], costs), "end", busy[rank])
        for ops in map(tuple, heads.values()):
            if len(ops) == schedule.num_replicas and ops not in asked:
                asked.add(ops)
                ready[ops] = held(ops)
                if ready[ops]:
                    comes(now, "ask", ops)
                else:
                    reduce(ops)
                for rank, row in enumerate(rows):
                    if row and row[0][0] in ops:
                        busy[rank] = row.pop(0)

    now = 0.0
    start()
    while coming:
        coming.sort(key=lambda event: event[:-2])
        *_, what, ops = event = coming.pop(0)
        now = event[0]
        if what == "end":
            end |= dict.fromkeys(ops, now)
            for one, seconds in (each for op in ops for each in end.passes(op)):
                comes(now + seconds, "end", (one,))
            for rank, cell in enumerate(busy):
                busy[rank] = None if cell is not None and cell[0] in ops else cell
            places = held(ops) if ops[0].kind == R else []
            for place in places:
                del served[place]
            for place in places:
                serve(place)
            for op in (op for op in ops if op in receiver):
                queue.setdefault(path(op)[0], []).append(op)
                serve(path(op)[0])
        elif what == "free":
            (op,), place = ops, path(ops[0])[event[3]]
            del served[place]
            if place == path(op)[-1]:
                comes(now + of(late, op), "there", [op])
            serve(place)
        elif what == "there":
            there[ops[0]] = now
        else:
            places = list(ready[ops])
            for place in places:
                queue.setdefault(place, []).append(ops)
            for place in places:
                serve(place)
        start()
    assert not any(rows), "deadlock"
    return end | step_ends(schedule, costs, max(end.values()), {}), sent, there


def roofline_s(work, system):
    """Seconds of one kernel by the plain roofline: the longer of its arithmetic and its memory traffic."""
    if not (work.flops or work.bytes):
        return 0.0
    arithmetic = work.flops / (system.peak_compute_flops * system.compute_efficiency) + system.compute_latency_s
    traffic = work.bytes / (system.memory_bandwidth_bytes_per_s * system.memory_efficiency) + system.memory_latency_s
    return max(arithmetic, traffic)
