"""What a reader would use instead: the same simulation with SimPy, networkx, plain Python, and PyTorch's dry run.

Each is short, and gets the dependencies and durations of a table as plain lists, ready made and not timed. All but
PyTorch's simulate transfers that occupy their directed link, first in first out; each must give the engine's makespan.
"""

from importlib.util import find_spec
from itertools import accumulate, pairwise
from typing import NamedTuple

from ppmodel.ops import OpKind

NOT_HERE = -1


class Case(NamedTuple):
    """A table in plain lists, one entry an operation, rank by rank in program order.

    Attributes
    ----------
    rows : list of range
        Each rank's operations.
    rank, source, receiver : list of int
        Where an operation runs, which one's result it needs, and which other rank needs its own; -1 for none.
    duration_s, transfer_s : list of float
        Of the operation, and of the message with its result.
    schedule : Schedule
        The table itself.
    """

    rows: list
    rank: list
    source: list
    receiver: list
    duration_s: list
    transfer_s: list
    schedule: object


def case_of(schedule, costs):
    """Plain lists of a table and its costs.

    Parameters
    ----------
    schedule : Schedule
        One operation a cell; its reductions and steps are left out.
    costs : OpCosts
        With transfers that occupy, and arrive when they leave: no latency.

    Returns
    -------
    Case
    """
    table = [[op for (op,) in row if op.kind < OpKind.R] for row in schedule.rows()]
    ops = [op for row in table for op in row]
    place = {op: number for number, op in enumerate(ops)}
    rank = [number for number, row in enumerate(table) for _ in row]
    source = [_source(op, place, schedule.num_stages - 1) for op in ops]
    receiver = [NOT_HERE] * len(ops)
    for op, needed in enumerate(source):
        if needed != NOT_HERE and rank[needed] != rank[op]:
            receiver[needed] = rank[op]
    starts = accumulate(map(len, table), initial=0)
    rows = [range(first, last) for first, last in pairwise(starts)]
    duration, transfer = (
        [float(times[op.kind, op.stage]) for op in ops] for times in (costs.compute_s, costs.occupancy_s)
    )
    return Case(rows, rank, source, receiver, duration, transfer, schedule)


def _source(op, place, last_stage):
    """The operation whose result another needs."""
    if op.kind == OpKind.F:
        needed = [op._replace(stage=op.stage - 1)]
    elif op.kind == OpKind.W:
        needed = [op._replace(kind=OpKind.I)]
    elif op.stage == last_stage:
        needed = [op._replace(kind=OpKind.F)]
    else:
        needed = [op._replace(stage=op.stage + 1, kind=kind) for kind in (OpKind.B, OpKind.I)]
    return next((place[one] for one in needed if one in place), NOT_HERE)


# ---- plain Python --------------------------------------------------------------------------------


def plain_sweep(case):
    """A pointer into each rank's row; a rank goes on until it has to wait, and its message wakes it.

    Parameters
    ----------
    case : Case

    Returns
    -------
    float
        The makespan in seconds.
    """
    _, rank, source, receiver, duration, transfer, _ = case
    arrived, asleep, link_free = [None] * len(rank), {}, {}
    position, free = [row.start for row in case.rows], [0.0] * len(case.rows)
    awake = list(range(len(case.rows)))
    while awake:
        here = awake.pop()
        now = free[here]
        for op in range(position[here], case.rows[here].stop):
            needed = source[op]
            if needed != NOT_HERE and rank[needed] != here:
                ready = arrived[needed]
                if ready is None:
                    asleep[needed] = here
                    position[here] = op
                    break
                if ready > now:
                    now = ready
            now += duration[op]
            there = receiver[op]
            if there != NOT_HERE:
                link = here, there
                leaves = max(now, link_free.get(link, 0.0))
                arrived[op] = link_free[link] = leaves + transfer[op]
                if op in asleep:
                    awake.append(asleep.pop(op))
        free[here] = now
    return max(free)


# ---- SimPy ---------------------------------------------------------------------------------------


def simpy_simulation(case):
    """A process for each rank, and one event for each operation: a link's queue is a sum, and needs no process.

    Parameters
    ----------
    case : Case

    Returns
    -------
    float
        The makespan in seconds.
    """
    import simpy

    env = simpy.Environment()
    _, rank, source, receiver, duration, transfer, _ = case
    arrived, asleep, link_free = [None] * len(rank), {}, {}

    def run_rank(here, row):
        for op in row:
            needed, wait = source[op], 0.0
            if needed != NOT_HERE and rank[needed] != here:
                if arrived[needed] is None:  # not sent yet: whoever sends it wakes this rank
                    asleep[needed] = env.event()
                    yield asleep[needed]
                wait = max(0.0, arrived[needed] - env.now)
            yield env.timeout(wait + duration[op])
            if receiver[op] != NOT_HERE:
                link = here, receiver[op]
                arrived[op] = link_free[link] = max(env.now, link_free.get(link, 0.0)) + transfer[op]
                if op in asleep:
                    asleep.pop(op).succeed()

    for here, row in enumerate(case.rows):
        env.process(run_rank(here, row))
    env.run()
    return env.now


# ---- networkx ------------------------------------------------------------------------------------


def networkx_graph(case):
    """The directed acyclic graph of a table: a node for each operation and each message, times on the edges.

    Parameters
    ----------
    case : Case

    Returns
    -------
    networkx.DiGraph
    """
    import networkx

    size, end = len(case.rank), -1
    edges, last_on_link = [], {}
    for row in case.rows:
        edges += [(op, op + 1 if op + 1 < row.stop else end, case.duration_s[op]) for op in row]
    for op, there in enumerate(case.receiver):
        if there == NOT_HERE:
            continue
        edges.append((op, size + op, case.duration_s[op]))  # the message, as a node after the operations
        link = case.rank[op], there
        if link in last_on_link:
            before = last_on_link[link]
            edges.append((size + before, size + op, case.transfer_s[before]))
        last_on_link[link] = op
    for op, needed in enumerate(case.source):
        if needed != NOT_HERE and case.rank[needed] != case.rank[op]:
            edges.append((size + needed, op, case.transfer_s[needed]))
    graph = networkx.DiGraph()
    graph.add_weighted_edges_from(edges)
    return graph


def networkx_longest(graph):
    """The longest path through the graph: the makespan in seconds."""
    import networkx

    return networkx.dag_longest_path_length(graph)


# ---- PyTorch's dry run ---------------------------------------------------------------------------


def torch_order(case):
    """The table with PyTorch's sends and receives put in, as its runtime does before it runs one.

    Parameters
    ----------
    case : Case
        Of one replica: a stage has one rank there.

    Returns
    -------
    dict of int to list
        Actions of each rank, and under ``"home"`` the rank of each stage.
    """
    from torch.distributed.pipelining import schedules

    letter = {
        OpKind.F: schedules.FORWARD, OpKind.B: schedules.FULL_BACKWARD, OpKind.I: schedules.BACKWARD_INPUT,
        OpKind.W: schedules.BACKWARD_WEIGHT,
    }  # fmt: skip
    orders = {
        rank: [schedules._Action(op.stage, letter[op.kind], op.microbatch) for (op,) in row]
        for rank, row in enumerate(case.schedule.rows())
    }
    home = case.schedule.placement[0].tolist()
    return {"orders": schedules._add_send_recv(orders, home.__getitem__, len(home)), "home": home}


def torch_steps(prepared):
    """PyTorch's dry run: its unit steps until all ranks are done.

    Every computation, send and receive is one step of its rank, and a receive may share the step of its send. So it
    counts steps, and knows neither durations nor transfers beside the computation: the count is no makespan.
    """
    from torch.distributed.pipelining import schedules

    home = prepared["home"]
    done = schedules._simulate_comms_compute(prepared["orders"], home.__getitem__, len(home))
    return max(map(len, done.values()))


def unit_steps(prepared):
    """The same count by a recurrence: one step after the rank's last, and not before the send that it receives.

    Parameters
    ----------
    prepared : dict
        From `torch_order`.

    Returns
    -------
    int
    """
    from torch.distributed.pipelining import schedules

    sender = {schedules.RECV_F: (-1, schedules.SEND_F), schedules.RECV_B: (1, schedules.SEND_B)}
    step, left, last = {}, {r: iter(o) for r, o in prepared["orders"].items()}, dict.fromkeys(prepared["orders"], 0)
    waiting = {rank: next(actions) for rank, actions in left.items()}
    while waiting:
        for rank, action in list(waiting.items()):
            while action is not None:
                at = last[rank] + 1
                if action.computation_type in sender:
                    towards, kind = sender[action.computation_type]
                    send = schedules._Action(action.stage_index + towards, kind, action.microbatch_index)
                    if send not in step:
                        break
                    at = max(at, step[send])
                step[action] = last[rank] = at
                action = next(left[rank], None)
            waiting[rank] = action
        waiting = {rank: action for rank, action in waiting.items() if action is not None}
    return max(step.values())


class Peer(NamedTuple):
    """One way to get a makespan.

    Attributes
    ----------
    name : str
        As tables show it.
    needs : str
        The package that it takes, or nothing.
    prepare : callable
        From a `Case` to what serves any number of runs.
    run : callable
        From that to the makespan.
    again : bool
        Whether another system can be run on what was prepared.
    in_seconds : bool
        Whether the result is a makespan, and not a count of steps.
    """

    name: str
    needs: str
    prepare: object
    run: object
    again: bool = True
    in_seconds: bool = True

    @property
    def installed(self):
        """Whether its package is here to be timed."""
        return not self.needs or find_spec(self.needs) is not None


def _as_it_is(case):
    return case


PEERS = (
    Peer("plain Python sweep", "", _as_it_is, plain_sweep),
    Peer("SimPy", "simpy", _as_it_is, simpy_simulation),
    Peer("networkx", "networkx", networkx_graph, networkx_longest),
    Peer("PyTorch's dry run", "torch", torch_order, torch_steps, again=False, in_seconds=False),
)
