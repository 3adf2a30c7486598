"""The cost table: seconds for every kind of operation on every stage, also from plain numbers."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ppmodel.errors import CostError
from ppmodel.given import is_number, to_builtin
from ppmodel.ops import OpKind
from ppmodel.simulation.transfers import Links, link_values, receivers, transfer_costs

TABLES = ("compute_s", "occupancy_s", "latency_s")
_NUM_KINDS = len(OpKind)
_USUAL = [OpKind[kind] for kind in "FBIWRO"]

SHORTEST_S, LONGEST_S = 1e-30, 1e30
"""Range of durations other than 0: far from where their sums or ratios would overflow or underflow."""
_MOST_S = LONGEST_S**3


class Units(NamedTuple):
    """What makes units of work unlike one another: slices of a sequence, or sequences of unequal length.

    Factors have a mean of 1, so that the tables of `OpCosts` are means. Of n factors, unit u takes that of u mod n.

    Parameters
    ----------
    compute : ndarray of float, shape (10, num_stages, n)
        On the duration of an operation, by `OpKind`, stage and unit.
    tokens : ndarray of float, shape (n,)
        On the size of what a unit stores and sends. Copies to the host take the same for all units.
    """

    compute: np.ndarray
    tokens: np.ndarray


@dataclass(frozen=True, eq=False)
class OpCosts:
    """Seconds for every kind of operation on every stage; all that the simulator knows about a system.

    Tables of 6 kinds leave out gathers of weights and passes of a divided output layer, which then take no time.

    Parameters
    ----------
    compute_s : ndarray of float, shape (10, num_stages) or (10, num_replicas, num_stages)
        Duration by `OpKind` and stage; without a replica axis, replicas are alike.
    occupancy_s, latency_s : ndarray of float, shape (10, num_stages) or (10, num_replicas, num_stages)
        Transfer of an operation's result: how long it occupies its link, and how much later it arrives. Under
        ``rendezvous`` and the blocking semantics, ranks are occupied for both; under ``streams``, streams of ranks.
        Replicas differ if their stages are on different nodes. Of the last stage's S, T and forward, if
        there are such passes, their sum is what the collective takes that passes the results of all ranks on to each.
    nics : tuple of int, length num_ranks, optional
        The NIC of each rank, if ranks share NICs: messages between ranks with different NICs queue at the sender's and,
        as they leave it, at the receiver's, first come, first served; a NIC's two directions are independent. Transfers
        occupy NICs only under ``overlapped`` and ``overlapped_nic``. Without `nics`, each directed pair of ranks has
        its own link under the former, and each rank its own NIC under the latter.
    delay_s : ndarray of float, shape (10, num_replicas, num_stages), optional
        The part of `latency_s` that links add. It matters under ``streams`` alone: see `simulation.tasks`.
    overlap_factor : float
        Duration of a cell with a forward and a backward (F&B) over the sum of its operations; other shared cells take
        the sum.
    pairs : dict, optional
        Further factors for cells of two operations, multiplied with `overlap_factor`: maps kind and stage of the
        forward and kind and stage of the other operation to a factor; missing pairs have 1.
    ready : dict, optional
        By the same keys: after which shares of the cell its two results can be sent; 1 without.
    offload : Offload, optional
        What is copied to the host meanwhile.
    units : Units, optional
        How units of work differ; without it, they are alike.
    stages : Stages, optional
        Where the costs come from, if from a model: also bytes and parameters.

    Raises
    ------
    CostError
        If a duration is negative or not finite, or a table has the wrong shape.

    Examples
    --------
    >>> OpCosts(np.ones((6, 4)), np.zeros((6, 4)), np.zeros((6, 4))).num_stages
    4
    """

    compute_s: np.ndarray
    occupancy_s: np.ndarray
    latency_s: np.ndarray
    overlap_factor: float = 1.0
    nics: tuple | None = None
    pairs: dict | None = None
    ready: dict | None = None
    offload: object = None
    stages: object = None
    delay_s: np.ndarray | None = None
    units: Units | None = None

    def __post_init__(self):
        num_stages = np.shape(self.compute_s)[-1:]
        for name in TABLES:
            table = with_all_kinds(np.array(getattr(self, name), dtype=float, order="C"))  # as compiled code takes them
            if table.ndim not in (2, 3) or len(table) != _NUM_KINDS or table.shape[-1:] != num_stages:
                rule = f"must be ({_NUM_KINDS}, stages) or ({_NUM_KINDS}, replicas, stages), stages as in compute_s"
                raise CostError(f"shape of {name}", table.shape, rule, "give one row for each kind of operation")
            if not are_seconds(table):
                illegal = table[~((table <= _MOST_S) & (table >= 0))][0]
                remedy = "check the durations, rates and sizes from which it is computed"
                raise CostError(name, illegal, f"must be from 0 to {_MOST_S:g} seconds", remedy)
            table[-1] = 0.0  # drops take no time, and so stand for all that takes none
            table.setflags(write=False)
            object.__setattr__(self, name, table)
        if not 0 < self.overlap_factor < np.inf:
            rule = "must be a finite number above 0"
            raise CostError("overlap_factor", self.overlap_factor, rule, "write 1 if overlap gains nothing")
        if self.nics is not None:  # numbered from 0 without gaps
            object.__setattr__(self, "nics", tuple(np.unique(self.nics, return_inverse=True)[1].tolist()))

    @property
    def num_stages(self):
        """Number of stages, the columns of each array."""
        return self.compute_s.shape[-1]

    @property
    def num_units(self):
        """Number of units of work that are unlike one another, 1 if none are."""
        return len(self.units.tokens) if self.units else 1

    def pair_factors(self, schedule):
        """Return the factors of a table's pairs, as numbered by `Schedule.pairs`.

        Parameters
        ----------
        schedule : Schedule

        Returns
        -------
        ndarray of float, shape (len(schedule.pairs.keys),)
        """
        pairs = self.pairs or {}
        return np.array([pairs.get(key, 1.0) for key in schedule.pairs.keys])

    def pair_shares(self, schedule):
        """Return the factor on the duration of each operation of a table: that of its pair, or 1.

        Parameters
        ----------
        schedule : Schedule

        Returns
        -------
        ndarray of float, shape (num_operations,)
        """
        return np.append(self.pair_factors(schedule), 1.0)[schedule.pairs.of]  # of none, the last

    def ready_shares(self, schedule):
        """Return the fraction of its cell after which the result of each operation can be sent.

        Parameters
        ----------
        schedule : Schedule

        Returns
        -------
        ndarray of float, shape (num_operations,)
        """
        of_pairs = [self.ready.get(key, (1.0, 1.0)) for key in schedule.pairs.keys]
        shares = np.array([*of_pairs, (1.0, 1.0)])[schedule.pairs.of]
        return np.where(schedule.kind == OpKind.F, shares[:, 0], shares[:, 1])

    def unit_factors(self, schedule):
        """Return the factors of `units` on the duration and on the transfer of each operation of a table.

        Parameters
        ----------
        schedule : Schedule

        Returns
        -------
        compute, tokens : ndarray of float, shape (num_operations,)
        """
        unit = schedule.microbatch % len(self.units.tokens)
        return self.units.compute[schedule.kind, schedule.stage, unit], self.units.tokens[unit]

    def by_class(self, num_replicas):
        """Return the three tables, flattened in the order of `ExecutionGraph.cost_class`: kind, replica, stage.

        Parameters
        ----------
        num_replicas : int
            Copies of the pipeline.

        Returns
        -------
        compute_s, occupancy_s, latency_s : ndarray of float, shape (10 * num_replicas * num_stages,)
            In seconds.

        Examples
        --------
        >>> [table.size for table in OpCosts(np.ones((6, 4)), np.zeros((6, 4)), np.zeros((6, 4))).by_class(2)]
        [80, 80, 80]
        """
        tables = self.compute_s, self.occupancy_s, self.latency_s
        if num_replicas > 1:  # without a replica axis, replicas are alike
            tables = [table if table.ndim == 3 else table[:, None].repeat(num_replicas, 1) for table in tables]
        return tuple([table.flatten() for table in tables])  # writable, as all that compiled code takes


def with_all_kinds(table):
    """A table by `OpKind`, the first axis, with zeros for kinds that few tables have if it leaves them out."""
    if table.ndim < 2 or len(table) != len(_USUAL):
        return table
    whole = np.zeros((_NUM_KINDS, *table.shape[1:]))
    whole[_USUAL] = table
    return whole


def uniform_costs(
    schedule, forward, backward=None, comm=0.0, *, latency=0.0, input_grad=None, weight_grad=None, pair=None,
    reduction=0.0, optimizer=0.0, gather=0.0, nodes=None, node_comm=0.0, node_latency=0.0, shared_nic=False, links=(),
):  # fmt: skip
    """Make costs from plain numbers, as in the literature.

    Parameters
    ----------
    schedule : Schedule
        Provides the stages and their shares of the model.
    forward, backward : float
        Seconds for one microbatch on 1/S of the model; a stage takes its share of them. By default,
        `backward` is the sum of its halves.
    comm : float
        Seconds for which one transfer occupies its resources. A transfer carries one microbatch whatever
        the stage's size, so only schedules that split microbatches divide it.
    latency : float
        Seconds between the end of a transfer's occupancy and its arrival. They occupy no link, but the ranks that a
        transfer occupies; see `OpCosts`.
    input_grad, weight_grad : float, optional
        Seconds of the halves of the backward; by default, half of `backward` each.
    pair : float, optional
        Seconds of a forward and a full backward in one cell (F&B); by default, their sum. It determines the
        `overlap_factor` of all cells with a forward and a backward.
    reduction, optimizer, gather : float
        Seconds of one stage's gradient all-reduce, of its optimizer step, and of a gather of its weights, on 1/S of the
        model.
    nodes : sequence of int, optional
        The node of each rank; `comm` and `latency` are then those between nodes.
    node_comm, node_latency : float
        As `comm` and `latency`, but between two ranks of one node.
    shared_nic : bool
        Whether the ranks of a node share its NIC; otherwise, each directed pair of ranks has its own link.
    links : sequence of Link
        Links with a delay, from `specs.as_links`.

    Returns
    -------
    OpCosts
        In seconds, by kind of operation and stage; with nodes, transfers also by replica.

    Raises
    ------
    CostError
        If a duration is neither 0 nor from 1e-30 to 1e30 seconds, if neither `backward` nor both its halves are
        given, if `nodes` does not have one entry per rank, or if a link has a bandwidth.

    Examples
    --------
    >>> from ppmodel import build
    >>> uniform_costs(build("hanayo", 4, 4, waves=2), forward=1, backward=2).compute_s[:4, 0]
    array([0.25, 0.5 , 0.25, 0.25])
    >>> costs = uniform_costs(build("gpipe", 4, 4), 1, 2, comm=0.5, nodes=[0, 0, 1, 1], node_comm=0.1)
    >>> costs.occupancy_s[0, 0]
    array([0.1, 0.5, 0.1, 0. ])
    """
    if backward is None and (input_grad is None or weight_grad is None):
        remedy = "give {field}, or {input_grad} and {weight_grad}"
        raise CostError("backward", None, "is missing", remedy, names_fields=True)
    durations = {
        "forward": forward, "backward": backward, "comm": comm, "latency": latency, "input_grad": input_grad,
        "weight_grad": weight_grad, "reduction": reduction, "optimizer": optimizer, "node_comm": node_comm,
        "node_latency": node_latency, "pair": pair, "gather": gather,
    }  # fmt: skip
    for name, value in durations.items():
        if value is not None:
            _require_seconds(name, value)
    backward = input_grad + weight_grad if backward is None else backward
    input_grad = backward / 2 if input_grad is None else input_grad
    weight_grad = backward - input_grad if weight_grad is None else weight_grad
    _require_seconds("weight_grad", weight_grad)
    if pair is not None and forward + backward == 0:
        rule = "is longer than its parts, which take no time"
        raise CostError("pair", pair, rule, "give {forward} or {backward}", names_fields=True)
    factor = 1.0 if pair is None else float(pair / (forward + backward))
    of_kinds = np.array((forward, backward, input_grad, weight_grad, *[0.0] * 6), float)
    compute_s = of_kinds[:, None] * schedule.unit_shares
    for kind, seconds in ((OpKind.R, reduction), (OpKind.O, optimizer), (OpKind.G, gather)):
        if seconds:
            compute_s[kind] = float(seconds) * schedule.stage_shares / schedule.chunks_per_rank
    pieces = schedule.microbatch_parts * schedule.slices
    between, inside = (float(comm) / pieces, float(latency)), (float(node_comm) / pieces, float(node_latency))
    if nodes is not None and np.shape(nodes) != (schedule.num_ranks,):
        rule = f"must name the node of each rank, of {schedule.num_ranks}"
        raise CostError("nodes", np.asarray(nodes).tolist(), rule, "give one number for each rank")
    for link in links:
        if link.bandwidth_bytes_per_s is not None:
            rule = "has a bandwidth, which needs a model and a system"
            raise CostError("links", link, rule, "give {model} and {system}, or a delay alone", names_fields=True)
    delay_s = link_values(links, schedule.placement, receivers(schedule))[0] if links else None
    nics = tuple(nodes) if shared_nic and nodes is not None else None
    transfers = transfer_costs(schedule, Links(nodes, between, inside, nics, delay_s))
    return OpCosts(compute_s, *transfers, overlap_factor=factor, nics=nics, delay_s=delay_s)


def _require_seconds(name, value):
    if not (is_number(to_builtin(value)) and (value == 0 or SHORTEST_S <= value <= LONGEST_S)):
        rule = f"must be 0, or from {SHORTEST_S:g} to {LONGEST_S:g} seconds"
        raise CostError(name, value, rule, "pass, for example, 0.1")


def are_seconds(numbers):
    """Check that all numbers of an array are legal durations: from 0 to the longest allowed.

    >>> are_seconds(np.array([0.0, 1.0])), are_seconds(np.array([0.0, np.nan]))
    (True, False)
    """
    # NaN would be either; Python compares its own numbers several times as fast as NumPy's
    return not numbers.size or (numbers.item(numbers.argmin()) >= 0 and numbers.item(numbers.argmax()) <= _MOST_S)


def comm_over_forward(costs, num_ranks):
    """Compute c/F: the time of the slowest transfer over the mean forward of 1/S of the model.

    Parameters
    ----------
    costs : OpCosts
    num_ranks : int
        Ranks S.

    Returns
    -------
    float
        Dimensionless ratio; NaN if a forward takes no time.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.simulation import uniform_costs
    >>> comm_over_forward(uniform_costs(build("interleaved-1f1b", 4, 4), 1, 2, comm=0.5), 4)
    0.5
    """
    forward_s = float(costs.compute_s[OpKind.F].sum()) / num_ranks
    sent_s = (costs.occupancy_s + costs.latency_s)[: OpKind.S]  # collectives of shards follow
    return float(sent_s.max()) / forward_s if forward_s else float("nan")
