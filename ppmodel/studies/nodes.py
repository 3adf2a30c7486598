"""What nodes and shared NICs change, and where the stages should go."""

from dataclasses import replace
from itertools import combinations
from math import factorial, inf, lcm

import numpy as np
import pandas as pd

from ppmodel.costs import model_costs, stage_blocks, uniform_costs
from ppmodel.errors import CostError, PPModelError
from ppmodel.metrics import messages_by_node
from ppmodel.simulation import makespans, run_graph
from ppmodel.specs import PLACEMENTS, nodes_of
from ppmodel.studies.cases import TIE, built, compiled, label, legal_schedules, named, spread
from ppmodel.studies.recommend import batch_sizes
from ppmodel.studies.times import times

NETWORKS = {"own links": False, "shared nic": True}
"""Whether the ranks of a node share its NIC, under the words that tables and pictures use."""

_ON = {"own links": "links of their own", "shared nic": "shared nics"}
_MOST_PLACEMENTS = 1_000
_SEARCHED = [
    "schedule", "allreduce", "network", "placements", "fastest", "t_fastest_s", "blocked_over_fastest",
    "slowest_over_fastest", "as_fast",
]  # fmt: skip
_SMALL = 5e-4


def placed(system, placement, shared_nic):
    """A system with other nodes for its ranks, and with or without a NIC that they share.

    Parameters
    ----------
    system : SystemSpec
        With nodes.
    placement : str or tuple of int
        As `specs.NodeSpec.placement`.
    shared_nic : bool
        Whether the ranks of a node share its nic.

    Returns
    -------
    SystemSpec
        With the same name.

    Raises
    ------
    PPModelError
        If the system has no nodes.
    SpecificationError
        If the placement puts more ranks on a node than it has room for.

    Examples
    --------
    >>> from ppmodel.specs import load_system
    >>> placed(load_system("a2_highgpu_8g"), "round-robin", shared_nic=False).nodes.placement
    'round-robin'
    """
    if system.nodes is None:
        raise PPModelError("system", system.name, "has no nodes", "give its file a block of nodes, as the template has")
    return replace(system, nodes=replace(system.nodes, placement=placement, shared_nic=shared_nic))


def node_study(model, systems, num_ranks, num_microbatches, cases, allreduce="excluded"):
    """Time on nodes against a network on which every link is one between nodes.

    Parameters
    ----------
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        With nodes; their own placement and nic are not looked at.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.
    cases : iterable of str or (str, dict)
        As in `legal_schedules`.
    allreduce : str
        As in `graph.compile`.

    Returns
    -------
    DataFrame
        One row a system, schedule, placement and network; columns ``system, schedule, placement, network,
        messages_between, t_sim_s, t_flat_s, relative``: messages of an iteration that leave a node, times in seconds
        on the nodes and on the flat network, and T_sim / T_flat - 1. Placements are `specs.PLACEMENTS`;
        folded only where a node has room for a pair. Schedules that the model has too few blocks for are left out.

    Raises
    ------
    CostError
        If the model's batch does not divide.
    PPModelError
        If a system has no nodes.

    Examples
    --------
    >>> from ppmodel.specs import load_model, load_system
    >>> case = (load_model("paper"), [load_system("slow_between_nodes")], 8, 8)
    >>> study = node_study(*case, ["gpipe"]).query("network == 'own links'").set_index("placement")
    >>> study.messages_between.to_dict()
    {'blocked': 16, 'round-robin': 112, 'folded': 32}
    """
    rows = []
    for system in systems:
        for name, options, schedule in _possible(cases, model, num_ranks, num_microbatches):
            tried = list(_networks(system))
            size = ((name, tuple(options.items())), num_ranks, num_microbatches, model)
            many = [replace(system, nodes=None), *(one for *_, one in tried)]
            flat, *spans = times(*size, many, "overlapped", allreduce).t_sim_s[0].tolist()
            for (placement, network, one), span in zip(tried, spans, strict=True):
                _, between = messages_by_node(schedule, nodes_of(one, num_ranks))
                rows.append({
                    "system": system.name, "schedule": label(name, options), "placement": placement,
                    "network": network, "messages_between": between, "t_sim_s": span, "t_flat_s": flat,
                    "relative": span / flat - 1,
                })  # fmt: skip
    return pd.DataFrame(rows)


def _possible(cases, model, num_ranks, num_microbatches):
    """The schedules that are defined at a size, and whose stages the model has enough blocks for."""
    for name, options, schedule in legal_schedules(cases, num_ranks, num_microbatches):
        try:
            stage_blocks(schedule, model)
        except CostError:
            continue
        yield name, options, schedule


def _networks(system):
    """A system under each placement that has a name, on links of its own and on shared nics."""
    for placement in PLACEMENTS if _room(system) > 1 else PLACEMENTS[:2]:  # a fold needs room for a pair
        for network, shared in NETWORKS.items():
            yield placement, network, placed(system, placement, shared)


def _room(system):
    return placed(system, "blocked", shared_nic=False).nodes.devices_per_node


def crossing_table(study):
    """Messages of one iteration that leave a node, schedule by schedule.

    Parameters
    ----------
    study : DataFrame
        From `node_study`.

    Returns
    -------
    DataFrame
        One row a system and schedule, one column a placement.
    """
    rows = study[study.network == study.network.iloc[0]]
    return spread(rows, ["system", "schedule"], "placement", "messages_between")


def order_table(study):
    """The schedules in the order of their times: on the flat network, and on nodes.

    Parameters
    ----------
    study : DataFrame
        From `node_study`.

    Returns
    -------
    DataFrame
        One row a system, placement and network; columns ``system, placement, network, order``, fastest first.
    """
    rows = []
    for system, group in study.groupby("system", sort=False):
        flat = group.drop_duplicates("schedule").assign(t_sim_s=lambda one: one.t_flat_s)
        places = group.groupby(["placement", "network"], sort=False)
        for (placement, network), times_s in [(("all links as between nodes", ""), flat), *places]:
            order = ", ".join(times_s.sort_values("t_sim_s", kind="stable").schedule)
            rows.append({"system": system, "placement": placement, "network": network, "order": order})
    return pd.DataFrame(rows)


def changing_orders(orders):
    """The systems on which nodes change the order of the schedules.

    Parameters
    ----------
    orders : DataFrame
        From `order_table`.

    Returns
    -------
    DataFrame
        Its rows of these systems.

    Examples
    --------
    >>> changing_orders(pd.DataFrame({"system": ["a", "a", "b", "b"], "order": ["x, y", "y, x", "x, y", "x, y"]}))
      system order
    0      a  x, y
    1      a  y, x
    """
    return orders[orders.groupby("system").order.transform("nunique") > 1]


def order_text(orders):
    """The order of the schedules where nodes do not change it, a sentence for each such system.

    Parameters
    ----------
    orders : DataFrame
        From `order_table`.

    Returns
    -------
    str
        Empty where nodes change the order on every system.

    Examples
    --------
    >>> order_text(pd.DataFrame({"system": ["a", "a"], "order": ["x, y", "x, y"]}))
    'On `a` the order is the same on the flat network and everywhere on nodes: x, y.'
    """
    same = orders.drop(index=changing_orders(orders).index).drop_duplicates("system")
    return " ".join(
        f"On `{one.system}` the order is the same on the flat network and everywhere on nodes: {one.order}."
        for one in same.itertuples()
    )


def node_findings(study, found, one_node=()):
    """What nodes and shared nics change, in sentences.

    Parameters
    ----------
    study : DataFrame
        From `node_study`.
    found : DataFrame
        From `placement_search`; where it is empty nothing is said of it.
    one_node : iterable of str
        From `specs.one_node_text`, system by system; empty ones are left out.

    Returns
    -------
    list of str
        For a page.
    """
    saved = [_saved(group) for _, group in study.groupby("system", sort=False)]
    return [said for said in one_node if said] + saved + ([] if found.empty else [_best(found)])


def _saved(study):
    """What blocked nodes save on one system, and what a shared nic takes of it."""
    times_s = study.pivot_table("t_sim_s", ["schedule", "placement"], "network", sort=False)
    blocked = study[(study.placement == "blocked") & (study.network == "own links")].set_index("schedule").relative
    more = times_s["shared nic"] / times_s["own links"] - 1
    (schedule, placement), alone = more.idxmax(), more.xs("blocked", level="placement")
    costs = f"at most {alone.max():.1%} ({alone.idxmax()})" if alone.max() >= _SMALL else "nothing to speak of"
    return (
        f"On `{study.system.iloc[0]}` blocked nodes with links of their own take {-blocked.max():.1%} "
        f"({blocked.idxmax()}) to {-blocked.min():.1%} ({blocked.idxmin()}) off the time of the flat network. Sharing "
        f"the nic then costs {costs}"
        + (f"; the most anywhere is {more.max():.1%} ({schedule}, {placement})." if more.max() >= _SMALL else ".")
    )


def _best(found):
    """For how many schedules blocked is the fastest placement, and what is for the others."""
    best = found.blocked_over_fastest < _SMALL
    others = [
        f"for {one.schedule} with its all-reduce {one.allreduce}, on {_ON[one.network]}, `{one.fastest}` is "
        f"{one.blocked_over_fastest:.1%} faster"
        for one in found[~best].itertuples()
    ]
    tried = found.placements.iloc[0]
    said = f"Of {tried} placements none is faster than blocked in {best.sum()} of {len(found)} cases"
    return said + ("; " + "; ".join(others) if others else "") + "."


def full_placements(num_ranks, devices_per_node):
    """Every way to put ranks on nodes that are all full; which node is called what does not matter.

    Parameters
    ----------
    num_ranks : int
        Devices, S; a multiple of those of a node.
    devices_per_node : int
        Devices of a node.

    Returns
    -------
    list of tuple of int
        The node of each rank; lexicographic, so that blocked comes first.

    Raises
    ------
    PPModelError
        If the nodes cannot be full, or there are too many ways to try them all.

    Examples
    --------
    >>> full_placements(4, 2)
    [(0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1, 0)]
    """
    if num_ranks % devices_per_node:
        rule = f"must be a multiple of devices_per_node = {devices_per_node}, so that all nodes are full"
        raise PPModelError("stages", num_ranks, rule, f"ask for {2 * devices_per_node} stages")
    ways = [()]
    for node in range(num_ranks // devices_per_node):
        ways = [way + ((node, chosen),) for way in ways for chosen in _chosen(way, num_ranks, devices_per_node)]
        if len(ways) > _MOST_PLACEMENTS:
            rule = f"has more than {_MOST_PLACEMENTS} placements on nodes of {devices_per_node}"
            raise PPModelError("stages", num_ranks, rule, "ask for fewer stages")
    owners = ({rank: node for node, chosen in way for rank in chosen} for way in ways)
    return sorted(tuple(owner[rank] for rank in range(num_ranks)) for owner in owners)


def num_placements(num_ranks, devices_per_node):
    """How many ways there are to put ranks on nodes that are all full.

    Parameters
    ----------
    num_ranks : int
        Devices, S; a multiple of those of a node.
    devices_per_node : int
        Devices of a node.

    Returns
    -------
    int
        The length of `full_placements`, where that is not refused.

    Examples
    --------
    >>> num_placements(8, 4), num_placements(16, 8)
    (35, 6435)
    """
    groups = num_ranks // devices_per_node
    return factorial(num_ranks) // (factorial(devices_per_node) ** groups * factorial(groups))


def search_size(model, system, num_ranks, num_microbatches):
    """The size at which placements on a system are compared: full nodes, two at least.

    Parameters
    ----------
    model : ModelSpec
        Gives the batch.
    system : SystemSpec
        With nodes.
    num_ranks, num_microbatches : int
        The size that is wanted, S and B.

    Returns
    -------
    num_ranks, num_microbatches : int
        The smallest even S of full nodes that is no smaller than wanted and takes two nodes; if the model has too
        few blocks for it, the smallest even one that takes two nodes, and if for that, too, the one that is wanted.
        B grows with S, as far as it divides the batch.

    Raises
    ------
    PPModelError
        If the system has no nodes.

    Examples
    --------
    >>> from ppmodel.specs import load_model, load_system
    >>> [search_size(load_model("paper"), load_system(name), 8, 8) for name in ("slow_between_nodes", "a2_highgpu_8g")]
    [(8, 8), (16, 16)]
    """
    room = _room(system)
    step, least = lcm(2, room), max(num_ranks, room + 1)
    sizes = (step * -(-least // step), 2 * -(-least // 2), num_ranks)
    size = next((size for size in sizes if size <= model.blocks), num_ranks)
    return size, batch_sizes(model, num_microbatches * size // num_ranks)[-1]


def search_text(model, system, num_ranks, found):
    """Which placements were tried, or why none were.

    Parameters
    ----------
    model : ModelSpec
        The model.
    system : SystemSpec
        With nodes.
    num_ranks : int
        Devices, S, of the search.
    found : DataFrame
        From `placement_search`.

    Returns
    -------
    str
        A sentence.
    """
    room = _room(system)
    where = f"On `{system.name}`, with S = {num_ranks} on nodes of {room},"
    if not found.empty:
        return f"{where} there are {found.placements.iloc[0]} placements, and all are tried."
    if num_ranks % room:
        return f"{where} nodes are not full, and nothing is searched: `{model.name}` has {model.blocks} blocks."
    if (ways := num_placements(num_ranks, room)) > _MOST_PLACEMENTS:
        return f"{where} there are {ways:,} placements, too many to try them all; the page compares those with a name."
    return f"{where} nothing is searched: `{model.name}` has too few blocks for the schedules."


def _chosen(way, num_ranks, devices_per_node):
    """Devices for the next node: the first that is free, and any of the others."""
    taken = {rank for _, chosen in way for rank in chosen}
    first, *others = (rank for rank in range(num_ranks) if rank not in taken)
    return [(first, *more) for more in combinations(others, devices_per_node - 1)]


def placement_search(model, system, num_ranks, num_microbatches, cases, allreduces=("excluded", "blocking")):
    """The fastest of all placements of the ranks on full nodes, beside blocked and the slowest.

    Parameters
    ----------
    model : ModelSpec
        The model.
    system : SystemSpec
        With nodes; its own placement and nic are not looked at.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.
    cases : iterable of str or (str, dict)
        As in `legal_schedules`.
    allreduces : sequence of str
        As in `graph.compile`; where a schedule has no replicas the first alone.

    Returns
    -------
    DataFrame
        One row a schedule, all-reduce and network; columns ``schedule, allreduce, network, placements, fastest,
        t_fastest_s, blocked_over_fastest, slowest_over_fastest, as_fast``: how many were tried, the node of each
        rank in the first of the fastest, its time, T_sim / its time - 1 of blocked and of the slowest, and how
        many are as fast. No row where the nodes are not full, or there are too many placements; see `search_text`.

    Raises
    ------
    CostError
        If the model's batch does not divide.
    PPModelError
        If the system has no nodes.
    """
    room = _room(system)
    if num_ranks % room or num_placements(num_ranks, room) > _MOST_PLACEMENTS:
        return pd.DataFrame(columns=_SEARCHED)
    ways = full_placements(num_ranks, room)
    rows = []
    for name, options, schedule in _possible(cases, model, num_ranks, num_microbatches):
        for allreduce in allreduces if schedule.num_replicas > 1 else allreduces[:1]:
            size = ((name, tuple(options.items())), num_ranks, num_microbatches, model)
            for network, shared in NETWORKS.items():
                many = [placed(system, way, shared) for way in ways]
                spans = times(*size, many, "overlapped", allreduce).t_sim_s[0]
                ties = np.flatnonzero(spans <= spans.min() * (1 + TIE))
                rows.append({
                    "schedule": label(name, options), "allreduce": allreduce, "network": network,
                    "placements": len(ways), "fastest": " ".join(map(str, ways[ties[0]])),
                    "t_fastest_s": spans[ties[0]], "blocked_over_fastest": spans[0] / spans.min() - 1,
                    "slowest_over_fastest": spans.max() / spans.min() - 1, "as_fast": len(ties),
                })  # fmt: skip
    return pd.DataFrame(rows, columns=_SEARCHED)


def nic_study(model, system, name, num_ranks, num_microbatches, options=None):
    """One iteration on a system's own nodes, with every message that goes from one node to another.

    Parameters
    ----------
    model : ModelSpec
        The model.
    system : SystemSpec
        With nodes.
    name : str
        The schedule.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.
    options : dict, optional
        Of the schedule.

    Returns
    -------
    timeline : Timeline
        In seconds.
    messages : DataFrame
        One row a message, by when it is sent; columns ``kind, microbatch, sender, receiver, node_out, node_in,
        ready_s, sent_s, entered_s, arrived_s, occupancy_s, waited_s``: its operation, ranks and nodes; when its
        operation ended, when it began to leave, and to enter the other node, when it was there; how long it holds a
        nic, and how long it waited at both.

    Raises
    ------
    CostError
        If the model does not fit the schedule.
    ScheduleError
        If the schedule is not defined at the size.
    """
    size = (name, num_ranks, num_microbatches, tuple((options or {}).items()))
    schedule, nodes = built(*size), nodes_of(system, num_ranks)
    costs = model_costs(schedule, model, system)
    timeline = run_graph(compiled(*size, "overlapped", "excluded"), costs)
    _, occupancy, latency = costs.by_class(schedule.num_replicas)
    consumer = np.flatnonzero(schedule.dependencies.remote)
    op = schedule.dependencies.source[consumer]
    messages = pd.DataFrame({
        "kind": schedule.kind[op], "microbatch": schedule.microbatch[op],
        "sender": schedule.rank[op], "receiver": schedule.rank[consumer],
        "node_out": nodes[schedule.rank[op]], "node_in": nodes[schedule.rank[consumer]],
        "ready_s": timeline.end_s[op], "sent_s": timeline.sent_s[op],
        "entered_s": timeline.arrived_s[op] - latency[schedule.cost_class[op]] - occupancy[schedule.cost_class[op]],
        "arrived_s": timeline.arrived_s[op], "occupancy_s": occupancy[schedule.cost_class[op]],
    })  # fmt: skip
    waited = messages.entered_s - messages.ready_s
    messages["waited_s"] = waited.where(waited > TIE * messages.occupancy_s, 0.0)
    between = messages[messages.node_out != messages.node_in]
    return timeline, between.sort_values(["sent_s", "sender", "microbatch"], ignore_index=True)


def waiting_facts(timeline, messages):
    """How long messages wait for a nic, and how busy the busiest nic is.

    Parameters
    ----------
    timeline : Timeline
        From `nic_study`.
    messages : DataFrame
        From `nic_study`.

    Returns
    -------
    dict
        ``messages``; ``waiting``, the share of them that waits; ``mean_wait``, in transfers, of those that do;
        ``longest_wait`` of all; ``busiest``, the largest share of the iteration that a nic sends or receives. All
        are 0 where no message passes a nic.
    """
    if messages.empty:
        return {"messages": 0, "waiting": 0.0, "mean_wait": 0.0, "longest_wait": 0.0, "busiest": 0.0}
    waits = messages.waited_s / messages.occupancy_s
    waiting = waits > 0
    held = [messages.groupby(side).occupancy_s.sum().max() for side in ("node_out", "node_in")]
    return {
        "messages": len(messages), "waiting": float(waiting.mean()),
        "mean_wait": float(waits[waiting].mean()) if waiting.any() else 0.0, "longest_wait": float(waits.max()),
        "busiest": max(held) / timeline.makespan_s,
    }  # fmt: skip


def inside_study(case, num_ranks, num_microbatches, devices_per_node, comm, insides, backward=2.0):
    """Time of one schedule on blocked nodes as their inner links become slower, in plain numbers.

    Parameters
    ----------
    case : str or (str, dict)
        As in `legal_schedules`.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.
    devices_per_node : int
        Devices of a node.
    comm : float
        Time of a transfer between nodes, in forwards.
    insides : sequence of float
        Times of a transfer inside a node, in those of one between nodes.
    backward : float
        Time of a backward in forwards.

    Returns
    -------
    DataFrame
        One row a time inside; columns ``inside``, and one for each of `NETWORKS`, in forwards.

    Raises
    ------
    ScheduleError
        If the schedule is not defined at the size.

    Examples
    --------
    >>> study = inside_study("gpipe", 4, 4, 2, 1.0, [0.0, 0.5])
    >>> study["own links"].tolist()
    [23.0, 25.0]
    """
    name, options = named(case)
    size = (name, num_ranks, num_microbatches, tuple(options.items()))
    schedule, nodes = built(*size), np.arange(num_ranks) // devices_per_node
    many = [uniform_costs(schedule, 1.0, backward, comm, nodes=nodes, node_comm=comm * inside) for inside in insides]
    spans = {
        network: makespans(compiled(*size, "overlapped", "excluded", tuple(nodes.tolist()) if shared else None), many)
        for network, shared in NETWORKS.items()
    }
    return pd.DataFrame({"inside": insides} | spans)


def largest_loss(study):
    """The most that a faster link inside nodes costs on shared nics.

    Parameters
    ----------
    study : DataFrame
        From `inside_study`.

    Returns
    -------
    float
        T with a faster link / T with a slower one - 1, where that is largest; 0 if no faster one costs time.

    Examples
    --------
    >>> largest_loss(pd.DataFrame({"inside": [0.5, 0.0, 1.0], "shared nic": [10.0, 11.0, 12.0]}))
    0.1
    """
    spans = study.sort_values("inside")["shared nic"].to_numpy()
    return float(round((spans / np.minimum.accumulate(spans[::-1])[::-1]).max() - 1, 12))


def waiting_study(model, system, cases, num_ranks, num_microbatches):
    """How messages wait for shared nics, schedule by schedule and placement by placement.

    Parameters
    ----------
    model : ModelSpec
        The model.
    system : SystemSpec
        With nodes; its own placement and nic are not looked at.
    cases : iterable of str or (str, dict)
        As in `legal_schedules`.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.

    Returns
    -------
    DataFrame
        One row a schedule and placement; columns ``schedule, placement``, and those of `waiting_facts`.

    Raises
    ------
    CostError
        If the model's batch does not divide.
    PPModelError
        If the system has no nodes.
    """
    rows = []
    for name, options, _ in _possible(cases, model, num_ranks, num_microbatches):
        for placement, network, one in _networks(system):
            if NETWORKS[network]:
                facts = waiting_facts(*nic_study(model, one, name, num_ranks, num_microbatches, options))
                rows.append({"schedule": label(name, options), "placement": placement} | facts)
    return pd.DataFrame(rows)


def most_waiting(model, system, cases, num_ranks, num_microbatches):
    """Of some schedules the one whose messages wait longest for a system's nics, taken together.

    Parameters
    ----------
    model, system, cases, num_ranks, num_microbatches
        As in `waiting_study`; of the system its own placement and nic.

    Returns
    -------
    schedule : str
        Its label.
    timeline : Timeline
        As from `nic_study`.
    messages : DataFrame
        As from `nic_study`; none where all ranks lie on one node.

    Raises
    ------
    CostError
        If the model's batch does not divide.
    """
    studies = {
        label(name, options): nic_study(model, system, name, num_ranks, num_microbatches, options)
        for name, options, _ in _possible(cases, model, num_ranks, num_microbatches)
    }
    if not studies:
        rule = f"are too few for every schedule at S = {num_ranks}"
        raise CostError("blocks", model.blocks, rule, "take a larger model, or fewer stages")
    most = max(studies, key=lambda name: studies[name][1].waited_s.sum())
    return most, *studies[most]


def longest_wait(messages, transfers=30.0):
    """A stretch of time around the message that waits longest.

    Parameters
    ----------
    messages : DataFrame
        From `nic_study`.
    transfers : float
        How long the stretch is, in transfers.

    Returns
    -------
    begin_s, end_s : float
        In seconds; all of the time where there is no message.

    Examples
    --------
    >>> longest_wait(pd.DataFrame({"waited_s": [0.0, 2.0], "ready_s": [1.0, 9.0], "occupancy_s": [1.0, 1.0]}), 4)
    (8.0, 12.0)
    """
    if messages.empty:
        return 0.0, inf
    message = messages.loc[messages.waited_s.idxmax()]
    length = transfers * message.occupancy_s
    begin = max(0.0, float(message.ready_s + message.waited_s / 2 - length / 2))
    return begin, begin + float(length)
