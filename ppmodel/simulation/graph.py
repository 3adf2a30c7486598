"""From a table to an execution graph: communication semantics as edges and resources, without costs.

A graph is compiled once per schedule and semantics, and can then be used for any number of systems. Groups are
operations that start and end together. Optimizer steps start when everything else has ended, so they are not part of
the graph; the `Timeline` adds them. Nodes of a cluster are `specs.NodeSpec`; a graph knows only their NICs.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ppmodel.caches import cached
from ppmodel.errors import CostError, PPModelError
from ppmodel.loops.paths import CLASS, COLUMNS, fill_instructions
from ppmodel.loops.tables import renumbered
from ppmodel.ops import OpKind
from ppmodel.simulation.exchanges import exchanges_of
from ppmodel.simulation.issue import issue_order
from ppmodel.tables import NO_OPERATION, Schedule, by_keys

BUFFERED = ("latency", "overlapped", "blocking_send", "blocking_recv", "blocking")
"""Communication semantics under which any table runs, in an order independent of costs: messages wait for their
receivers, and those of one pair of ranks never occupy another pair's link."""

P2P = (*BUFFERED, "overlapped_nic", "rendezvous", "streams")
"""Communication semantics of a point-to-point transfer; see `compile_graph`."""

APART = ("excluded", "overlapped", "blocking")
"""What a gradient all-reduce does if it shares no link with transfers; see `compile_graph`."""

ALLREDUCE = (*APART, "overlapped_links")
"""What a gradient all-reduce does; see `compile_graph`."""

_OCCUPIED = {  # whether a transfer occupies the sender, the receiver, its link
    "latency": (False, False, False), "overlapped": (False, False, True), "blocking_send": (True, False, False),
    "blocking_recv": (False, True, False), "blocking": (True, True, False), "rendezvous": (True, True, False),
    "overlapped_nic": (False, False, True), "streams": (False, False, False),
}  # fmt: skip
_REDUCTIONS = {"excluded": 0, "blocking": 1, "overlapped": 2, "overlapped_links": 2}


_ARRAYS = ("index", "cost_class", "stream", "source", "remote", "link", "group_start", "num_links")


@dataclass(frozen=True, eq=False, repr=False)
class ExecutionGraph:
    """A schedule's operations in topological order.

    All arrays except `group_start` have one entry per operation, in that order. They are computed on first access; a
    single simulation on one system needs none of them.

    Parameters
    ----------
    schedule : Schedule
        The compiled schedule.
    p2p : str
        One of `P2P`.
    allreduce : str
        One of `ALLREDUCE`.
    nics : tuple of int, length num_ranks, optional
        The NIC of each rank, if ranks share NICs.

    Attributes
    ----------
    index : ndarray of int, shape (num_operations,)
        The operation's index in the schedule's arrays.
    cost_class : ndarray of int, shape (num_operations,)
        ``(kind * num_replicas + replica) * num_stages + stage``: the index of its costs in a flattened cost table.
    stream : ndarray of int, shape (num_operations,)
        What executes it: rank d, or num_ranks + d for a collective that overlaps the rank's computation.
    source : ndarray of int, shape (num_operations,)
        The operation (in this order) that produces its input, or ``NO_OPERATION``.
    remote : ndarray of bool, shape (num_operations,)
        Whether that input is transferred from another rank.
    link : ndarray of int, shape (num_operations,)
        The directed link on which its own result leaves, or ``NO_OPERATION`` if it stays.
    group_start : ndarray of int, shape (num_groups + 1,)
        Operations between two entries start and end together.
    num_links : int
        Number of directed links that carry messages.
    """

    schedule: Schedule
    p2p: str
    allreduce: str
    nics: tuple | None = None

    def __getattr__(self, name):
        if name not in _ARRAYS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.__dict__.update(zip(_ARRAYS, _renumbered(self.schedule, self.allreduce), strict=True))
        return self.__dict__[name]

    def take_first_use(self):
        """Whether no array exists yet, and this is the first call: a single run needs none of them."""
        first = "index" not in self.__dict__ and "_used" not in self.__dict__
        self.__dict__["_used"] = True
        return first

    def with_nics(self, nics):
        """Return this graph with shared NICs, which messages occupy under ``overlapped`` and ``overlapped_nic``.

        Parameters
        ----------
        nics : tuple of int, length num_ranks, or None
            As in `OpCosts`. None means one for each rank under ``overlapped_nic``.

        Returns
        -------
        ExecutionGraph
            Always the same object; this one if no NIC is occupied.

        Raises
        ------
        CostError
            If there is not one NIC for each rank.
        """
        if nics is None and self.nics is None and self.p2p == "overlapped_nic":
            nics = tuple(range(self.schedule.num_ranks))
        if nics is None or not self.links_queue or nics == self.nics:
            return self
        if len(nics) != self.schedule.num_ranks:
            rule = f"must be {self.schedule.num_ranks} whole numbers, one for each rank"
            raise CostError("nics", list(nics), rule, "give the NIC of each rank")
        if nics not in self._on_nics:
            self._on_nics[nics] = graph = replace(self, nics=nics)
            graph.__dict__.update({name: getattr(self, name) for name in _ARRAYS})
        return self._on_nics[nics]

    @cached_property
    def _on_nics(self):
        return {}

    @cached_property
    def routes(self):
        """Where the messages of each link queue, shape (num_links, 2): at the link, or at two NICs.

        Link l is place l; the outgoing side of nic k is place ``num_links + 2 k``, the incoming side the next.
        """
        routes = np.stack((np.arange(self.num_links), np.full(self.num_links, NO_OPERATION)), axis=1)
        if self.nics is not None:
            link = self.link[self.source[self.remote]]
            nics = np.array(self.nics)
            ends = np.stack((nics[self.stream[self.source[self.remote]]], nics[self.stream[self.remote]]), axis=1)
            apart = ends[:, 0] != ends[:, 1]
            routes[link[apart]] = self.num_links + 2 * ends[apart] + [0, 1]
        return routes

    @property
    def reductions_hold_links(self):
        """Whether reductions occupy the links or NICs on which their ranks send."""
        return self.allreduce == "overlapped_links" and self.links_queue and self.schedule.reduces

    @cached_property
    def gates(self):
        """Where the messages of each rank leave, as places in `routes`: rank by rank, and where each rank's begin.

        This includes a rank's links within a node, and its NIC, whether or not it sends messages through it.
        """
        sent = self.source[self.remote]
        links = np.stack((self.stream[sent], self.link[sent]))
        ranks = np.arange(self.schedule.num_ranks if self.nics is not None else 0)
        rank = np.concatenate((links[0], ranks))
        place = np.concatenate((self.routes[links[1], 0], self.num_links + 2 * np.array(self.nics or [], dtype=int)))
        rank, place = np.unique(np.stack((rank, place)), axis=1)
        return place, np.searchsorted(rank, np.arange(self.schedule.num_ranks + 1))

    @cached_property
    def overlaps(self):
        """Whether each group is a cell with a forward and a backward; shape (num_groups,)."""
        if not self.schedule.joined.any():
            return np.zeros(len(self.group_start) - 1, dtype=bool)
        return self.schedule.overlaps[self.index[self.group_start[:-1]]]

    @cached_property
    def reduces(self):
        """Whether each operation is a reduction; shape (num_operations,)."""
        return self.cost_class >= OpKind.R * self.schedule.placement.size

    @cached_property
    def ends(self):
        """The first and last operations that each rank computes, without reductions; shape (2, num_ranks)."""
        schedule = self.schedule
        computing = np.flatnonzero(schedule.kind < OpKind.R)
        first = np.searchsorted(schedule.rank[computing], np.arange(schedule.num_ranks + 1))
        place = np.empty(self.schedule.num_operations, dtype=int)
        place[self.index] = np.arange(self.num_operations)
        return place[computing[[first[:-1], first[1:] - 1]]]

    @cached_property
    def ends_by_operation(self):
        """`ends` for the compiled engine: 1 for a first operation, 2 for a last one, 3 for the only one."""
        flags = np.zeros(self.num_operations, dtype=np.uint8)
        for flag, operations in enumerate(self.ends, 1):
            flags[operations] += np.uint8(flag)
        return flags

    @cached_property
    def order_depends_on_costs(self):
        """Whether messages share a side of a NIC, or a link with reductions, so that their order depends on costs."""
        if self.reductions_hold_links:
            return True
        if self.nics is None:
            return False
        places = self.routes[self.routes != NO_OPERATION]
        return len(np.unique(places)) < len(places)

    @cached_property
    def instructions(self):
        """Rows for the compiled engine, with the numbers of registers, streams and links; `loops.paths`."""
        columns = (self.cost_class, self.stream, self.source, self.remote, self.link, self.reduces)
        of_groups, beside = (self.group_start, self.overlaps), _REDUCTIONS[self.allreduce] == 2
        rows = np.empty((self.num_operations, len(COLUMNS)), np.uint32)  # numpy asks for large pages
        num_registers = fill_instructions.dispatcher(rows, *columns, *of_groups, self.num_links, beside)
        return rows, (num_registers, 2 * self.schedule.num_ranks, self.num_links)

    @cached_property
    def columns(self):
        """The arrays that all loops over operations read, whatever a transfer occupies."""
        stream, group_start = self.stream.astype(np.uint32), self.group_start.astype(np.uint32)  # never below 0
        return stream, self.source, group_start, self.remote, self.reduces

    @cached_property
    def group(self):
        """The group of each operation, shape (num_operations,); operations of one group start and end together."""
        return np.repeat(np.arange(len(self.group_start) - 1, dtype=np.int32), np.diff(self.group_start))

    @cached_property
    def programs(self):
        """The groups of each stream in order, stream by stream; where each stream's begin; each operation's place."""
        order, place = by_keys(self.stream), np.empty(self.num_operations, dtype=np.int32)
        stream, group = self.stream[order], self.group[order]
        # a stream executes a group once
        begins = (np.diff(stream, prepend=-1) != 0) | (np.diff(group, prepend=-1) != 0)
        place[order] = np.cumsum(begins) - 1
        start = np.searchsorted(stream[begins], np.arange(2 * self.schedule.num_ranks + 1))
        return group[begins], start.astype(np.int32), place

    @cached_property
    def consumers(self):
        """The stream that receives each result's message, and the other stream of its own rank that needs it.

        ``NO_OPERATION`` where there is none.
        """
        receiver, beside = np.full((2, self.num_operations), NO_OPERATION, dtype=np.int32)
        receiver[self.source[self.remote]] = self.stream[self.remote]
        local = (self.source != NO_OPERATION) & ~self.remote & (self.stream != self.stream[self.source])
        beside[self.source[local]] = self.stream[local]
        return receiver, beside

    @cached_property
    def for_events(self):
        """The arrays that the compiled event queue reads; see `loops.events`."""
        num_places = self.num_links + (2 * max(self.nics) + 2 if self.nics else 0)
        gates = self.gates if self.reductions_hold_links else np.zeros((2, 0))
        gates = (*(column.astype(np.int32) for column in gates), self.schedule.num_ranks)
        programs, routes = (self.group, *self.programs), self.routes.astype(np.int32)
        return self.link, programs, self.consumers, routes, gates, num_places

    @property
    def links_queue(self):
        """Whether messages queue at links or NICs."""
        return self.occupied[2]

    @property
    def needs_handshake(self):
        """Whether a transfer waits until sender and receiver have both posted it."""
        return self.p2p in ("rendezvous", "streams")

    @cached_property
    def exchanges(self):
        """What ranks exchange between cells under ``rendezvous``."""
        return exchanges_of(self)

    @cached_property
    def for_streams(self):
        """The arrays that compiled engines read under ``streams``; see `loops.streams`."""
        issued, pair, num_pairs = issue_order(self)
        sizes = num_pairs, 2 * self.schedule.num_ranks
        return issued.astype(np.int32), self.consumers[0], pair.astype(np.int32), sizes

    @cached_property
    def instructions_by_pair(self):
        """`instructions` with the cost classes of `Schedule.pairs`."""
        rows, sizes = self.instructions
        rows = rows.copy()
        rows[:, CLASS] = self.schedule.pairs.cost_class[self.index]
        return rows, sizes

    @property
    def occupied(self):
        """Whether a transfer occupies the sender, the receiver, its link."""
        return _OCCUPIED[self.p2p]

    @property
    def num_operations(self):
        """Number of operations: the schedule's, without optimizer steps and excluded reductions."""
        return len(self.index)


def compile_graph(schedule, p2p="overlapped", allreduce="excluded"):
    """Compile a schedule under named communication semantics.

    Parameters
    ----------
    schedule : Schedule
        The table; its order is kept.
    p2p : str
        One of `P2P`: what a transfer occupies: nothing; its directed link, first in first out in the sender's
        program order (the default); the NICs of its sender and its receiver, one per rank unless
        nodes share them; the sending rank; the receiving rank before the consumer starts; first
        the sender, then the receiver; sender and receiver at the same time, each waiting for the
        other, see `rendezvous`; a stream of each rank for each peer, on which transfers wait as kernels do, see
        `streams`. Links and NICs serve messages first come, first served; those of
        the same time in the order that `run_events` states.
    allreduce : {"excluded", "overlapped", "blocking", "overlapped_links"}
        Whether gradient all-reduces are left out (the default), overlap the ranks' computation, or
        occupy the ranks. Overlapped ones run one after another on each rank, in the order of the
        table. With ``overlapped_links``, they share the network with transfers that occupy it
        (``overlapped``, ``overlapped_nic``): an all-reduce occupies every link on which its ranks send, or their NICs'
        outgoing sides, from start to end. Links serve messages and all-reduces first come, first
        served. An all-reduce queues at all of its links when its gradients are ready, after
        messages of the same time, and starts when the last link serves it; whatever comes after
        it waits for its end.

    Returns
    -------
    ExecutionGraph
        Without costs; usable for any number of systems.

    Raises
    ------
    PPModelError
        If a semantics is unknown. A table in which operations, or ranks under ``rendezvous``, wait for each other in a
        cycle is refused with a `TableError` when it is simulated.

    Examples
    --------
    >>> from ppmodel import build
    >>> compile_graph(build("1f1b", 2, 3)).num_operations
    12
    """
    require_semantics(p2p, allreduce)
    return ExecutionGraph(schedule, p2p, allreduce)


def graph_of(schedule, p2p="overlapped", allreduce="excluded"):
    """As `compile_graph`, with recent graphs kept; a table without reductions has no all-reduce."""
    included = schedule.num_replicas > 1 or schedule.reduces or allreduce not in ALLREDUCE
    return _kept_graph(schedule, p2p, allreduce if included else "excluded")


_kept_graph = cached(lambda graph: graph.schedule.num_operations)(compile_graph)


def require_semantics(p2p, allreduce):
    """Refuse semantics that are not among `P2P` and `ALLREDUCE`.

    Raises
    ------
    PPModelError
        Lists the words to choose from.
    """
    for field, value, legal in (("p2p", p2p, P2P), ("allreduce", allreduce, ALLREDUCE)):
        if not (isinstance(value, str) and value in legal):
            raise PPModelError(field, value, f"must be one of {', '.join(legal)}", "choose one of them")


def _renumbered(schedule, allreduce):
    """The arrays of an `ExecutionGraph`, in the order of the dependencies."""
    source, remote, group, order = schedule.dependencies
    fast = renumbered.compiled(schedule.num_operations // 4)
    if fast:
        columns = (order, schedule.kind, schedule.replica, schedule.stage, schedule.rank, source, remote, group)
        sizes = (schedule.num_replicas, schedule.num_stages, schedule.num_ranks)
        return fast(*columns, _REDUCTIONS[allreduce], sizes)
    if allreduce == "excluded":
        order = order[schedule.kind[order] != OpKind.R]
    position = np.full(schedule.num_operations, NO_OPERATION)
    position[order] = np.arange(len(order))
    source, remote, stream = source[order], remote[order], schedule.rank[order]
    source = np.where(source == NO_OPERATION, NO_OPERATION, position[source])
    if _REDUCTIONS[allreduce] == 2:
        stream = np.where(schedule.kind[order] == OpKind.R, stream + schedule.num_ranks, stream)
    link = np.full(len(order), NO_OPERATION)
    senders, receivers = source[remote], np.flatnonzero(remote)
    ends = stream[senders] * schedule.num_ranks + stream[receivers]
    used, first, number = np.unique(ends, return_index=True, return_inverse=True)
    link[senders] = np.argsort(np.argsort(first))[number]  # as they first carry a message
    group_start = np.flatnonzero(np.diff(group[order], prepend=-1, append=-1))
    columns = (order, schedule.cost_class[order], stream, source, remote, link, group_start)
    columns = (column if column.dtype == bool else column.astype(np.int32, copy=False) for column in columns)
    return *columns, len(used)  # of the same types as compiled
