"""Costs given as plain numbers, as in the literature."""

import numpy as np

from ppmodel.costs.table import LONGEST_S, SHORTEST_S, OpCosts
from ppmodel.costs.transfers import Links, link_values, receivers, transfer_costs
from ppmodel.errors import CostError
from ppmodel.given import is_number, plain
from ppmodel.ops import OpKind

_NUM_KINDS = len(OpKind)


def uniform_costs(
    schedule, forward, backward=None, comm=0.0, *, latency=0.0, input_grad=None, weight_grad=None, pair=None,
    reduction=0.0, optimizer=0.0, nodes=None, node_comm=0.0, node_latency=0.0, shared_nic=False, links=(),
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
        Seconds between the end of a transfer's occupancy and its arrival.
    input_grad, weight_grad : float, optional
        Seconds of the halves of the backward; by default, half of `backward` each.
    pair : float, optional
        Seconds of a forward and a full backward in one cell (F&B); by default, their sum. It determines the
        `overlap_factor` of all cells with a forward and a backward.
    reduction, optimizer : float
        Seconds of one stage's gradient all-reduce, and of its optimizer step, on 1/S of the model.
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
    >>> uniform_costs(build("hanayo", 4, 4, waves=2), forward=1, backward=2).compute_s[:, 0]
    array([0.25, 0.5 , 0.25, 0.25, 0.  , 0.  ])
    >>> costs = uniform_costs(build("gpipe", 4, 4), 1, 2, comm=0.5, nodes=[0, 0, 1, 1], node_comm=0.1)
    >>> costs.occupancy_s[0, 0]
    array([0.1, 0.5, 0.1, 0. ])
    """
    if backward is None and (input_grad is None or weight_grad is None):
        raise CostError("backward", None, "is missing", "give backward, or input_grad and weight_grad")
    durations = {
        "forward": forward, "backward": backward, "comm": comm, "latency": latency, "input_grad": input_grad,
        "weight_grad": weight_grad, "reduction": reduction, "optimizer": optimizer, "node_comm": node_comm,
        "node_latency": node_latency, "pair": pair,
    }  # fmt: skip
    for name, value in durations.items():
        if value is not None:
            _require_seconds(name, value)
    backward = input_grad + weight_grad if backward is None else backward
    input_grad = backward / 2 if input_grad is None else input_grad
    weight_grad = backward - input_grad if weight_grad is None else weight_grad
    _require_seconds("weight_grad", weight_grad)
    if pair is not None and forward + backward == 0:
        raise CostError("pair", pair, "is longer than its parts, which take no time", "give forward or backward")
    factor = 1.0 if pair is None else float(pair / (forward + backward))
    tables = np.empty((3, _NUM_KINDS, schedule.num_stages))
    of_kinds = np.array((forward, backward, input_grad, weight_grad, 0.0, 0.0), float)
    np.multiply(of_kinds[:, None], schedule.unit_shares, tables[0])
    for kind, seconds in ((OpKind.R, reduction), (OpKind.O, optimizer)):
        if seconds:
            tables[0, kind] = float(seconds) * schedule.stage_shares / schedule.chunks_per_rank
    between = float(comm) / schedule.microbatch_parts, float(latency)
    if nodes is None and not links:
        tables[1], tables[2] = between
        return OpCosts(*tables, overlap_factor=factor)
    inside = float(node_comm) / schedule.microbatch_parts, float(node_latency)
    if nodes is not None and np.shape(nodes) != (schedule.num_ranks,):
        rule = f"must name the node of each rank, of {schedule.num_ranks}"
        raise CostError("nodes", np.asarray(nodes).tolist(), rule, "give one number for each rank")
    for link in links:
        if link.bandwidth_bytes_per_s is not None:
            rule = "has a bandwidth, which needs a model and a system"
            raise CostError("links", link, rule, "give model and system, or a delay alone")
    delay_s = link_values(links, schedule.placement, receivers(schedule))[0] if links else None
    transfers = transfer_costs(schedule, Links(nodes, between, inside, None, delay_s))
    return OpCosts(
        tables[0], *transfers, overlap_factor=factor, nics=tuple(nodes) if shared_nic else None, delay_s=delay_s
    )


def _require_seconds(name, value):
    if not (is_number(plain(value)) and (value == 0 or SHORTEST_S <= value <= LONGEST_S)):
        rule = f"must be 0, or from {SHORTEST_S:g} to {LONGEST_S:g} seconds"
        raise CostError(name, value, rule, "pass, for example, 0.1")
