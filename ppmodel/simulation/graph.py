"""From a table to an execution graph: communication semantics as edges and resources, without costs.

A graph is compiled once per schedule and semantics, and can then be used for any number of systems. Groups are
operations that start and end together. Optimizer steps start when everything else has ended, so they are not part of
the graph; the `Timeline` adds them. Nodes of a cluster are `specs.NodeSpec`; a graph knows only their NICs.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter

import numpy as np

from ppmodel.caches import cached
from ppmodel.errors import PPModelError
from ppmodel.ops import OpKind
from ppmodel.simulation import numbering
from ppmodel.simulation.exchanges import exchanges_of
from ppmodel.simulation.inputs import OPERATION
from ppmodel.simulation.issue import issue_order
from ppmodel.simulation.tasks import with_meetings
from ppmodel.tables import NO_OPERATION, Schedule

BUFFERED = ("latency", "overlapped", "blocking_send", "blocking_recv", "blocking")
"""Communication semantics under which any table runs, in an order independent of costs: messages wait for their
receivers, and those of one pair of ranks never occupy another pair's link."""

P2P = (*BUFFERED, "overlapped_nic", "rendezvous", "streams")
"""Communication semantics of a point-to-point transfer; see `compile_graph`."""

APART = ("excluded", "overlapped", "blocking")
"""What a gradient all-reduce does if it shares no link with transfers; see `compile_graph`."""

ALLREDUCE = (*APART, "overlapped_links")
"""What a gradient all-reduce does; see `compile_graph`."""


@dataclass(eq=False, repr=False)
class ExecutionGraph:
    """A schedule's operations in topological order, with the semantics of transfers and all-reduces.

    It also has the attributes of `numbering.Arrays`, which are computed on first access.

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
    is_used : bool
        Whether `run_graph` has simulated it: the first time, a pass over the table itself is faster than its arrays.
    """

    schedule: Schedule
    p2p: str
    allreduce: str
    nics: tuple | None = None
    is_used: bool = field(default=False, init=False)
    _by_nics: dict = field(default_factory=dict, init=False)

    @cached_property
    def arrays(self):
        """The `numbering.Arrays` of all operations."""
        return numbering.arrays_of(self.schedule, self.reductions)

    index, cost_class, stream, source, remote, link, group_start, num_links, row, meets = (
        property(attrgetter(f"arrays.{name}")) for name in numbering.Arrays._fields
    )
    programs, receivers = cached_property(numbering.programs_of), cached_property(numbering.receivers_of)
    routes, gates = cached_property(numbering.routes_of), cached_property(numbering.gates_of)
    ends, instructions = cached_property(numbering.ends_of), cached_property(numbering.instructions_of)
    columns, overlaps = cached_property(numbering.columns_of), cached_property(numbering.overlaps_of)
    pair_class = cached_property(numbering.pair_class_of)
    exchanges, issued = cached_property(exchanges_of), cached_property(issue_order)

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
        """
        if nics is None and self.nics is None and self.p2p == "overlapped_nic":
            nics = tuple(range(self.schedule.num_ranks))
        if nics is None or not self.links_queue or nics == self.nics:
            return self
        if nics not in self._by_nics:
            self._by_nics[nics] = self.with_arrays(self.arrays, nics=nics)
        return self._by_nics[nics]

    def with_arrays(self, arrays, **changes):
        """Return a graph of other rows, with the same semantics but for changes."""
        graph = replace(self, **changes)
        graph.arrays = arrays
        return graph

    @property
    def tasks(self):
        """The graph of all that is executed: this one, or with transfers as rows of their own, see `tasks`."""
        return self._posted if self.needs_handshake else self

    @cached_property
    def _posted(self):
        return self.with_arrays(with_meetings(self))

    @property
    def reductions(self):
        """How reductions take part: ``ON_RANKS``, ``BESIDE_RANKS``, or 0 if they are left out."""
        return {"excluded": 0, "blocking": numbering.ON_RANKS}.get(self.allreduce, numbering.BESIDE_RANKS)

    @property
    def reductions_hold_links(self):
        """True if reductions occupy the links or NICs on which their ranks send."""
        return self.allreduce == "overlapped_links" and self.links_queue and self.schedule.reduces

    @cached_property
    def is_operation(self):
        """Mask of operations, which are all but what `inputs` adds; shape (num_operations,)."""
        return np.ones(self.num_operations, dtype=bool) if self.row is None else self.row == OPERATION

    @cached_property
    def reduces(self):
        """Mask of reductions; shape (num_operations,)."""
        return self.cost_class // self.schedule.placement.size == OpKind.R

    @cached_property
    def order_depends_on_costs(self):
        """True if messages share a side of a NIC, or a link with reductions: costs decide which goes first."""
        if self.reductions_hold_links:
            return True
        if self.nics is None:
            return False
        places = self.routes[self.routes != NO_OPERATION]
        return len(np.unique(places)) < len(places)

    @cached_property
    def num_streams(self):
        """Number of streams; those of copies to the host come behind the others, and those of barriers behind these."""
        return max(2 * self.schedule.num_ranks, int(self.stream.max()) + 1)

    @cached_property
    def group(self):
        """The group of each operation, shape (num_operations,); operations of one group start and end together."""
        return np.repeat(np.arange(len(self.group_start) - 1, dtype=np.int32), np.diff(self.group_start))

    @property
    def links_queue(self):
        """True if messages queue at links or NICs."""
        return self.p2p in ("overlapped", "overlapped_nic")

    @property
    def needs_handshake(self):
        """True if a transfer waits until sender and receiver have both posted it."""
        return self.p2p in ("rendezvous", "streams")

    @property
    def occupied(self):
        """Three flags: a transfer occupies the sender, the receiver, its link."""
        holds_sender = self.p2p in ("blocking_send", "blocking")
        return holds_sender, self.p2p in ("blocking_recv", "blocking"), self.links_queue

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
        `tasks`. Links and NICs serve messages first come, first served; those of
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

    Gathers of weights always run beside computing, one after another in the order of the table, on the stream of
    all-reduces that overlap: each after what its rank computes before it. The first operation of its stage behind it
    waits for it. They occupy no link.

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
    for name, value, legal in (("p2p", p2p, P2P), ("allreduce", allreduce, ALLREDUCE)):
        if not (isinstance(value, str) and value in legal):
            raise PPModelError(name, value, f"must be one of {', '.join(legal)}", "choose one of them")
