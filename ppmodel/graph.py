"""From a table to an execution graph: communication semantics as edges and resources, costs left open.

A graph is compiled once per schedule and semantics, and then serves any number of systems. A node is here one of the
graph: operations that start and end together. Nodes of a cluster are `specs.NodeSpec`; of them a graph knows the cards.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from ppmodel.compiled import LARGE, kernels
from ppmodel.errors import PPModelError
from ppmodel.ops import OpKind
from ppmodel.schedule import NO_OPERATION, Schedule

P2P = ("latency", "overlapped", "blocking_send", "blocking_recv", "blocking")
"""Communication semantics of a point-to-point transfer; see `compile`."""

ALLREDUCE = ("excluded", "overlapped", "blocking")
"""What the gradient all-reduce of replicated stages does; see `compile`."""

_REDUCTIONS = {"excluded": 0, "blocking": 1, "overlapped": 2}


@dataclass(frozen=True, eq=False)
class ExecutionGraph:
    """A schedule's operations in an order in which each comes after all that it needs.

    All arrays but `node_start` have one entry per operation, in that order.

    Parameters
    ----------
    schedule : Schedule
        What was compiled.
    p2p : str
        One of `P2P`.
    allreduce : str
        One of `ALLREDUCE`.
    index : ndarray of int, shape (num_operations,)
        The operation's place in the schedule's arrays.
    cost_class : ndarray of int, shape (num_operations,)
        ``(kind * num_replicas + replica) * num_stages + stage``: where its costs stand in a flattened cost table.
    stream : ndarray of int, shape (num_operations,)
        What executes it: device d, or num_devices + d for a collective beside the device's computation.
    source : ndarray of int, shape (num_operations,)
        The operation (in this order) whose result it needs, or ``NO_OPERATION``.
    remote : ndarray of bool, shape (num_operations,)
        Whether that result is transferred from another device.
    link : ndarray of int, shape (num_operations,)
        The directed link on which its own result leaves, or ``NO_OPERATION`` where it stays.
    node_start : ndarray of int, shape (num_nodes + 1,)
        Operations between two entries start and end together.
    num_links : int
        Directed links that carry a message.
    cards : tuple of int, length num_devices, optional
        The network card of each device, where devices share some.
    """

    schedule: Schedule
    p2p: str
    allreduce: str
    index: np.ndarray
    cost_class: np.ndarray
    stream: np.ndarray
    source: np.ndarray
    remote: np.ndarray
    link: np.ndarray
    node_start: np.ndarray
    num_links: int
    cards: tuple | None = None

    @cached_property
    def routes(self):
        """Where the messages of each link queue, shape (num_links, 2): on the link, or at two network cards.

        Link l is place l; the outgoing side of card k is place ``num_links + 2 k``, the incoming side the next.
        """
        routes = np.stack((np.arange(self.num_links), np.full(self.num_links, NO_OPERATION)), axis=1)
        if self.cards is not None:
            link = self.link[self.source[self.remote]]
            cards = np.array(self.cards)
            ends = np.stack((cards[self.stream[self.source[self.remote]]], cards[self.stream[self.remote]]), axis=1)
            apart = ends[:, 0] != ends[:, 1]
            routes[link[apart]] = self.num_links + 2 * ends[apart] + [0, 1]
        return routes

    @property
    def overlaps(self):
        """Whether each operation is of a cell in which a forward meets a backward; shape (num_operations,)."""
        overlaps = self.schedule.overlaps
        return overlaps[self.index] if self.schedule.joined.any() else overlaps[: self.num_operations]

    @cached_property
    def reduces(self):
        """Whether each operation is a reduction; shape (num_operations,)."""
        return self.cost_class >= self._first_reduction

    @property
    def _first_reduction(self):
        return OpKind.R * self.schedule.num_replicas * self.schedule.num_stages

    @cached_property
    def dynamic(self):
        """Whether links share a side of a network card, so that who comes first depends on the costs."""
        if self.cards is None:
            return False
        places = self.routes[self.routes != NO_OPERATION]
        return len(np.unique(places)) < len(places)

    @cached_property
    def instructions(self):
        """Rows for the compiled engine, and the numbers of registers, streams and links; see `kernels.instructions`."""
        columns = (self.cost_class, self.stream, self.source, self.remote, self.link, self.overlaps, self.node_start)
        columns = (column if column.dtype == bool else column.astype(np.int32, copy=False) for column in columns)
        numbers = (self.num_links, self._first_reduction, self.allreduce == "overlapped")
        rows, num_registers = kernels(LARGE).instructions(*columns, *numbers)
        return rows, (num_registers, 2 * self.schedule.num_devices, self.num_links)

    @cached_property
    def for_events(self):
        """What the compiled event queue reads of the graph; see `kernels.events`."""
        columns = (self.stream, self.source, self.link, self.node_start, self.routes)
        columns = tuple(column.astype(np.int32) for column in columns)
        num_places = self.num_links + (2 * max(self.cards) + 2 if self.cards else 0)
        return (*columns, self.remote, self.reduces, self.overlaps, (2 * self.schedule.num_devices, num_places))

    @cached_property
    def instructions_by_operation(self):
        """`instructions` with each operation as a cost class of its own."""
        rows, sizes = self.instructions
        return kernels(LARGE).by_operation(rows), sizes

    @property
    def occupied(self):
        """Whether a transfer occupies the sender, the receiver, its link."""
        return self.send_occupies, self.receive_occupies, self.p2p == "overlapped"

    @property
    def send_occupies(self):
        """Whether a transfer occupies the sending device."""
        return self.p2p in ("blocking_send", "blocking")

    @property
    def receive_occupies(self):
        """Whether a transfer occupies the receiving device."""
        return self.p2p in ("blocking_recv", "blocking")

    @property
    def num_operations(self):
        """Operations of the graph: those of the schedule, without reductions where they are excluded."""
        return len(self.index)


def compile(schedule, p2p="overlapped", allreduce="excluded", cards=None):
    """Compile a schedule under named communication semantics.

    Parameters
    ----------
    schedule : Schedule
        The table; its order is kept.
    p2p : {"latency", "overlapped", "blocking_send", "blocking_recv", "blocking"}
        What a transfer occupies: nothing; its directed link, first in first out in the sender's
        program order (the default); the sending device; the receiving device before the consumer
        starts; the sender and then the receiver.
    allreduce : {"excluded", "overlapped", "blocking"}
        Whether the gradient all-reduce of replicated stages is left out (the default), runs beside
        the devices' computation, or occupies the devices.
    cards : sequence of int, length num_devices, optional
        The network card of each device. Messages between devices of two cards queue at the sender's card and,
        as they leave it, at the receiver's, first come first served; each card's directions are apart. Those
        between devices of one card have a link of their own. Without `cards` all have.

    Returns
    -------
    ExecutionGraph
        Without costs; it serves any number of systems.

    Raises
    ------
    TableError
        If operations wait for one another in a circle.
    PPModelError
        If a semantics is unknown, or cards are given that do not fit the devices or the semantics.

    Examples
    --------
    >>> from ppmodel import build
    >>> compile(build("1f1b", 2, 3)).num_operations
    12
    """
    for field, value, known in (("p2p", p2p, P2P), ("allreduce", allreduce, ALLREDUCE)):
        if value not in known:
            raise PPModelError(field, value, f"must be one of {', '.join(known)}", "choose one of them")
    arrays = _renumbered(schedule, allreduce)
    return ExecutionGraph(schedule, p2p, allreduce, *arrays, cards=_checked_cards(cards, schedule, p2p))


def _checked_cards(cards, schedule, p2p):
    """The cards, numbered from 0 without a gap."""
    if cards is None:
        return None
    if p2p != "overlapped":
        raise PPModelError("p2p", p2p, "must be overlapped where network cards are shared", "leave cards out")
    cards = np.asarray(cards)
    if cards.shape != (schedule.num_devices,) or cards.dtype.kind not in "iu" or cards.min() < 0:
        rule = f"must be {schedule.num_devices} whole numbers of at least 0, one for each device"
        raise PPModelError("cards", cards.tolist(), rule, "give the card of each device")
    return tuple(np.unique(cards, return_inverse=True)[1].tolist())


def _renumbered(schedule, allreduce):
    """The arrays of an `ExecutionGraph`: those of the dependencies, in their order."""
    source, remote, node, order, _ = schedule.dependencies
    fast = kernels(schedule.num_operations)
    if fast:
        columns = (order, schedule.kind, schedule.replica, schedule.stage, schedule.device, source, remote, node)
        sizes = (schedule.num_replicas, schedule.num_stages, schedule.num_devices)
        return fast.renumbered(*columns, _REDUCTIONS[allreduce], sizes)
    if allreduce == "excluded":
        order = order[schedule.kind[order] != OpKind.R]
    position = np.full(schedule.num_operations, NO_OPERATION)
    position[order] = np.arange(len(order))
    source, remote, stream = source[order], remote[order], schedule.device[order]
    source = np.where(source == NO_OPERATION, NO_OPERATION, position[source])
    if allreduce == "overlapped":
        stream = np.where(schedule.kind[order] == OpKind.R, stream + schedule.num_devices, stream)
    link = np.full(len(order), NO_OPERATION)
    senders, receivers = source[remote], np.flatnonzero(remote)
    used, link[senders] = np.unique(stream[senders] * schedule.num_devices + stream[receivers], return_inverse=True)
    node_start = np.flatnonzero(np.diff(node[order], prepend=-1, append=-1))
    return order, schedule.cost_class[order], stream, source, remote, link, node_start, len(used)


def programs(graph):
    """Each stream's nodes in program order: what a device would execute, without looking ahead.

    Parameters
    ----------
    graph : ExecutionGraph
        From `compile`.

    Returns
    -------
    list of list of int, length 2 num_devices
        Node numbers by stream; the second half are the streams of overlapped collectives.

    Examples
    --------
    >>> from ppmodel import build
    >>> programs(compile(build("gpipe", 2, 1)))
    [[0, 3], [1, 2], [], []]
    """
    streams = [[] for _ in range(2 * graph.schedule.num_devices)]
    for node, (first, last) in enumerate(pairwise(graph.node_start.tolist())):
        for stream in sorted({int(s) for s in graph.stream[first:last]}):
            streams[stream].append((int(graph.index[first:last][graph.stream[first:last] == stream][0]), node))
    return [[node for _, node in sorted(stream)] for stream in streams]
