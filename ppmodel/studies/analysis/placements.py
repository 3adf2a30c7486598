"""All placements of ranks on full nodes, the fastest of them, and the queues of messages at shared NICs."""

from dataclasses import replace
from math import factorial
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmodel.errors import PPModelError
from ppmodel.studies.noise import TIE
from ppmodel.studies.points.simulated_times import times

MOST_PLACEMENTS = 1_000
"""More placements than this are not searched."""


class Search(NamedTuple):
    """The fastest of some placements.

    Parameters
    ----------
    placements : int
        How many were tried.
    fastest : tuple of int
        The node of each rank, of the fastest; of several the first.
    makespan_s : float
        Its time.
    blocked_over_fastest, slowest_over_fastest : float
        Time of the blocked placement, and of the slowest, over the fastest's, less 1.
    as_fast : int
        How many are as fast, itself among them.
    """

    placements: int
    fastest: tuple
    makespan_s: float
    blocked_over_fastest: float
    slowest_over_fastest: float
    as_fast: int


def num_placements(num_ranks, devices_per_node):
    """The number of ways to put ranks on nodes that are all full, whatever the nodes are called.

    Parameters
    ----------
    num_ranks : int
        Ranks S.
    devices_per_node : int
        Ranks of a node.

    Returns
    -------
    int
        0 where the ranks do not fill their nodes.

    Examples
    --------
    >>> num_placements(8, 4), num_placements(16, 8), num_placements(6, 4)
    (35, 6435, 0)
    """
    nodes, remainder = divmod(num_ranks, devices_per_node)
    return 0 if remainder else factorial(num_ranks) // (factorial(devices_per_node) ** nodes * factorial(nodes))


def full_placements(num_ranks, devices_per_node):
    """Every way to put ranks on nodes that are all full, whatever the nodes are called.

    Parameters
    ----------
    num_ranks : int
        Ranks S; a multiple of those of a node.
    devices_per_node : int
        Ranks of a node.

    Returns
    -------
    list of tuple of int
        The node of each rank; lexicographic, so that blocked comes first.

    Raises
    ------
    PPModelError
        If the nodes cannot be full, or there are more than `MOST_PLACEMENTS`.

    Examples
    --------
    >>> full_placements(4, 2)
    [(0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1, 0)]
    """
    ways = num_placements(num_ranks, devices_per_node)
    if not ways:
        rule = f"must be a multiple of devices_per_node = {devices_per_node}, so that all nodes are full"
        raise PPModelError("pp", num_ranks, rule, f"ask for {2 * devices_per_node} ranks")
    if ways > MOST_PLACEMENTS:
        rule = f"has {ways:,} placements on nodes of {devices_per_node}, more than {MOST_PLACEMENTS:,}"
        raise PPModelError("pp", num_ranks, rule, "ask for fewer ranks")
    placements, nodes = [()], range(num_ranks // devices_per_node)
    for _ in range(num_ranks):  # on a node that has room, or on the first empty one
        placements = [
            (*placed, node) for placed in placements for node in nodes[: max(placed, default=-1) + 2]
            if placed.count(node) < devices_per_node
        ]  # fmt: skip
    return placements


def search_placements(case, num_ranks, num_microbatches, model, system, allreduce="excluded"):
    """The fastest of all placements of a schedule's ranks on full nodes.

    Parameters
    ----------
    case : Case or what `cases.as_case` takes
        The schedule.
    num_ranks, num_microbatches : int
        Ranks S and microbatches B.
    model : ModelSpec
    system : SystemSpec
        With nodes; its own placement does not matter, but whether the ranks of a node share its NIC does.
    allreduce : str
        As in `ppmodel.simulate`.

    Returns
    -------
    Search

    Raises
    ------
    PPModelError
        As in `full_placements`, or if the schedule or the model does not have the size.

    Examples
    --------
    >>> from ppmodel.clusters.specs import load_model, load_system
    >>> search_placements("gpipe", 8, 8, load_model("paper"), load_system("slow_between_nodes")).fastest
    (0, 0, 0, 0, 1, 1, 1, 1)
    """
    ways = full_placements(num_ranks, system.nodes.devices_per_node)
    systems = tuple(replace(system, nodes=replace(system.nodes, placement=way)) for way in ways)
    spans = times(case, num_ranks, num_microbatches, model, systems, "overlapped", allreduce).makespan_s[0]
    ties = np.flatnonzero(spans <= spans.min() * (1 + TIE))
    blocked, slowest = (float(span / spans.min() - 1) for span in (spans[0], spans.max()))
    return Search(len(ways), ways[ties[0]], float(spans[ties[0]]), blocked, slowest, len(ties))


def messages_between_nodes(run):
    """Every message of a run that goes from one node to another, and how long it waits for its NICs or link.

    Parameters
    ----------
    run : Run
        From `ppmodel.simulate`, on a system with nodes, with overlapped transfers.

    Returns
    -------
    DataFrame
        One row a message, by when it is sent; columns ``kind, microbatch, sender, receiver, node_out, node_in,
        ready_s, sent_s, entered_s, arrived_s, occupancy_s, waited_s``: its operation, ranks and nodes; when its
        operation ended, when it began to leave, and to enter the other node, when it was there; how long it holds a
        NIC, and how long it waited at both.

    Raises
    ------
    PPModelError
        If the run has no system with nodes.

    Examples
    --------
    >>> import ppmodel as pp
    >>> run = pp.simulate("1f1b", 8, 16, model="paper", system="slow_between_nodes")
    >>> len(messages_between_nodes(run))
    32
    """
    table, timeline = run.table, run.timeline
    nodes = run.system and run.system.nodes and run.system.nodes.of_ranks(table.num_ranks)
    if nodes is None:
        raise PPModelError("system", run.system and run.system.name, "has no nodes", "simulate on a system with nodes")
    _, occupancy, latency = (column[table.cost_class] for column in run.costs.by_class(table.num_replicas))
    consumer = np.flatnonzero(table.dependencies.remote)
    op = table.dependencies.source[consumer]
    frame = pd.DataFrame({
        "kind": table.kind[op], "microbatch": table.microbatch[op], "sender": table.rank[op],
        "receiver": table.rank[consumer], "node_out": nodes[table.rank[op]], "node_in": nodes[table.rank[consumer]],
        "ready_s": timeline.end_s[op], "sent_s": timeline.sent_s[op],
        "entered_s": timeline.arrived_s[op] - latency[op] - occupancy[op], "arrived_s": timeline.arrived_s[op],
        "occupancy_s": occupancy[op],
    })  # fmt: skip
    waited = frame.entered_s - frame.ready_s
    frame["waited_s"] = waited.where(waited > TIE * frame.occupancy_s, 0.0)
    return frame[frame.node_out != frame.node_in].sort_values(["sent_s", "sender", "microbatch"], ignore_index=True)


def waits_at_nics(run):
    """Compute how long the messages of a run wait for a NIC, and how busy the busiest NIC is.

    Parameters
    ----------
    run : Run
        As in `messages_between_nodes`.

    Returns
    -------
    dict
        ``messages``; ``waiting``, the share of them that waits; ``mean_wait``, in transfers, of those that do;
        ``longest_wait`` of all; ``busiest``, the largest share of the iteration that a NIC sends or receives. All
        are 0 where all ranks lie on one node.

    Examples
    --------
    >>> import ppmodel as pp
    >>> waits_at_nics(pp.simulate("1f1b", 4, 8, model="paper", system="slow_between_nodes"))["messages"]
    0
    """
    messages = messages_between_nodes(run)
    waits = messages.waited_s / messages.occupancy_s
    busy_s = [messages.groupby(side).occupancy_s.sum().max() for side in ("node_out", "node_in")]
    facts = {
        "waiting": (waits > 0).mean(), "mean_wait": waits[waits > 0].mean(), "longest_wait": waits.max(),
        "busiest": max(busy_s) / run.makespan_s,
    }  # fmt: skip
    return {"messages": len(messages)} | {name: float(np.nan_to_num(value)) for name, value in facts.items()}
