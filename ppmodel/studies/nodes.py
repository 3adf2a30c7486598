"""What nodes and shared network cards change, and where the stages should go."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd

from ppmodel.costs import model_costs, stage_blocks, uniform_costs
from ppmodel.engine import makespans, simulate
from ppmodel.errors import CostError, PPModelError
from ppmodel.metrics import messages_by_node
from ppmodel.specs import cards_of, nodes_of
from ppmodel.studies.cases import TIE, built, compiled, label, legal_schedules, named, spread
from ppmodel.studies.times import times

NETWORKS = {"own links": False, "shared card": True}
"""Whether the devices of a node share its network card, under the words that tables and pictures use."""

_ON = {"own links": "links of their own", "shared card": "shared cards"}
_MOST_PLACEMENTS = 10_000
_SMALL = 5e-4


def folded_placement(num_devices, devices_per_node):
    """Devices d and S-1-d on one node, so that both copies of a bidirectional schedule's stage are.

    Parameters
    ----------
    num_devices : int
        Devices, S.
    devices_per_node : int
        Devices of a node; of an odd number one stays free.

    Returns
    -------
    tuple of int, length num_devices
        The node of each device; a `specs.NodeSpec.placement`.

    Examples
    --------
    >>> folded_placement(8, 4)
    (0, 0, 1, 1, 1, 1, 0, 0)
    """
    pairs = max(1, devices_per_node // 2)
    return tuple(min(device, num_devices - 1 - device) // pairs for device in range(num_devices))


def placed(system, placement, shared_card):
    """A system with other nodes for its devices, and with or without a network card that they share.

    Parameters
    ----------
    system : SystemSpec
        With nodes.
    placement : str or tuple of int
        As `specs.NodeSpec.placement`.
    shared_card : bool
        Whether the devices of a node share its card.

    Returns
    -------
    SystemSpec
        With the same name.

    Raises
    ------
    PPModelError
        If the system has no nodes.
    SpecificationError
        If the placement puts more devices on a node than it has room for.

    Examples
    --------
    >>> from ppmodel.specs import load_system
    >>> placed(load_system("a2_highgpu_8g"), "round-robin", shared_card=False).nodes.placement
    'round-robin'
    """
    if system.nodes is None:
        raise PPModelError("system", system.name, "has no nodes", "give its file a block of nodes, as the template has")
    return replace(system, nodes=replace(system.nodes, placement=placement, shared_card=shared_card))


def node_study(model, systems, num_stages, num_microbatches, cases, allreduce="excluded"):
    """Time on nodes against a network on which every link is one between nodes.

    Parameters
    ----------
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        With nodes; their own placement and card are not looked at.
    num_stages, num_microbatches : int
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
        on the nodes and on the flat network, and T_sim / T_flat - 1. Placements are blocked, round-robin and folded.
        Schedules that the model has too few blocks for are left out.

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
        for name, options, schedule in _possible(cases, model, num_stages, num_microbatches):
            tried = list(_networks(system, num_stages))
            size = ((name, tuple(options.items())), num_stages, num_microbatches, model)
            many = [replace(system, nodes=None), *(one for *_, one in tried)]
            flat, *spans = times(*size, many, "overlapped", allreduce).t_sim_s[0].tolist()
            for (placement, network, one), span in zip(tried, spans, strict=True):
                _, between = messages_by_node(schedule, nodes_of(one, num_stages))
                rows.append({
                    "system": system.name, "schedule": label(name, options), "placement": placement,
                    "network": network, "messages_between": between, "t_sim_s": span, "t_flat_s": flat,
                    "relative": span / flat - 1,
                })  # fmt: skip
    return pd.DataFrame(rows)


def _possible(cases, model, num_stages, num_microbatches):
    """The schedules that are defined at a size, and whose stages the model has enough blocks for."""
    for name, options, schedule in legal_schedules(cases, num_stages, num_microbatches):
        try:
            stage_blocks(schedule, model)
        except CostError:
            continue
        yield name, options, schedule


def _networks(system, num_stages):
    """A system under each placement that has a name, on links of its own and on shared cards."""
    room = placed(system, "blocked", shared_card=False).nodes.devices_per_node
    named = {"blocked": "blocked", "round-robin": "round-robin", "folded": folded_placement(num_stages, room)}
    for word, placement in named.items():
        for network, shared in NETWORKS.items():
            yield word, network, placed(system, placement, shared)


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


def node_findings(study, found):
    """What nodes and shared cards change, in sentences.

    Parameters
    ----------
    study : DataFrame
        From `node_study`.
    found : DataFrame
        From `placement_search`.

    Returns
    -------
    list of str
        For a page.
    """
    return [_saved(group) for _, group in study.groupby("system", sort=False)] + [_best(found)]


def _saved(study):
    """What blocked nodes save on one system, and what a shared card takes of it."""
    times_s = study.pivot_table("t_sim_s", ["schedule", "placement"], "network", sort=False)
    blocked = study[(study.placement == "blocked") & (study.network == "own links")].set_index("schedule").relative
    more = times_s["shared card"] / times_s["own links"] - 1
    (schedule, placement), alone = more.idxmax(), more.xs("blocked", level="placement")
    costs = f"at most {alone.max():.1%} ({alone.idxmax()})" if alone.max() >= _SMALL else "nothing to speak of"
    return (
        f"On `{study.system.iloc[0]}` blocked nodes with links of their own take {-blocked.max():.1%} "
        f"({blocked.idxmax()}) to {-blocked.min():.1%} ({blocked.idxmin()}) off the time of the flat network. Sharing "
        f"the card then costs {costs}; the most anywhere is {more.max():.1%} "
        f"({schedule}, {placement})."
    )


def _best(found):
    """For how many schedules blocked is the fastest placement, and what is for the others."""
    best = found.blocked_over_fastest <= TIE
    others = [
        f"for {one.schedule} with its all-reduce {one.allreduce}, on {_ON[one.network]}, `{one.fastest}` is "
        f"{one.blocked_over_fastest:.1%} faster"
        for one in found[~best].itertuples()
    ]
    said = f"Of {found.placements.iloc[0]} placements blocked is the fastest in {best.sum()} of {len(found)} cases"
    return said + ("; " + "; ".join(others) if others else "") + "."


def full_placements(num_devices, devices_per_node):
    """Every way to put devices on nodes that are all full; which node is called what does not matter.

    Parameters
    ----------
    num_devices : int
        Devices, S; a multiple of those of a node.
    devices_per_node : int
        Devices of a node.

    Returns
    -------
    list of tuple of int
        The node of each device; lexicographic, so that blocked comes first.

    Raises
    ------
    PPModelError
        If the nodes cannot be full, or there are too many ways to try them all.

    Examples
    --------
    >>> full_placements(4, 2)
    [(0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1, 0)]
    """
    if num_devices % devices_per_node:
        rule = f"must be a multiple of devices_per_node = {devices_per_node}, so that all nodes are full"
        raise PPModelError("stages", num_devices, rule, f"ask for {2 * devices_per_node} stages")
    ways = [()]
    for node in range(num_devices // devices_per_node):
        ways = [way + ((node, chosen),) for way in ways for chosen in _chosen(way, num_devices, devices_per_node)]
        if len(ways) > _MOST_PLACEMENTS:
            rule = f"has more than {_MOST_PLACEMENTS} placements on nodes of {devices_per_node}"
            raise PPModelError("stages", num_devices, rule, "ask for fewer stages")
    owners = ({device: node for node, chosen in way for device in chosen} for way in ways)
    return sorted(tuple(owner[device] for device in range(num_devices)) for owner in owners)


def _chosen(way, num_devices, devices_per_node):
    """Devices for the next node: the first that is free, and any of the others."""
    taken = {device for _, chosen in way for device in chosen}
    first, *others = (device for device in range(num_devices) if device not in taken)
    return [(first, *more) for more in combinations(others, devices_per_node - 1)]


def placement_search(model, system, num_stages, num_microbatches, cases, allreduces=("excluded", "blocking")):
    """The fastest of all placements of the devices on full nodes, beside blocked and the slowest.

    Parameters
    ----------
    model : ModelSpec
        The model.
    system : SystemSpec
        With nodes; its own placement and card are not looked at.
    num_stages, num_microbatches : int
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
        device in the first of the fastest, its time, T_sim / its time - 1 of blocked and of the slowest, and how
        many are as fast.

    Raises
    ------
    CostError
        If the model's batch does not divide.
    PPModelError
        If the system has no nodes, they cannot be full, or there are too many placements.
    """
    ways = full_placements(num_stages, placed(system, "blocked", shared_card=False).nodes.devices_per_node)
    rows = []
    for name, options, schedule in _possible(cases, model, num_stages, num_microbatches):
        for allreduce in allreduces if schedule.num_replicas > 1 else allreduces[:1]:
            size = ((name, tuple(options.items())), num_stages, num_microbatches, model)
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
    return pd.DataFrame(rows)


def card_study(model, system, name, num_stages, num_microbatches, options=None):
    """One iteration on a system's own nodes, with every message that goes from one node to another.

    Parameters
    ----------
    model : ModelSpec
        The model.
    system : SystemSpec
        With nodes.
    name : str
        The schedule.
    num_stages, num_microbatches : int
        Devices S and microbatches B.
    options : dict, optional
        Of the schedule.

    Returns
    -------
    timeline : Timeline
        In seconds.
    messages : DataFrame
        One row a message, by when it is sent; columns ``kind, microbatch, sender, receiver, node_out, node_in,
        ready_s, sent_s, entered_s, arrived_s, occupancy_s, waited_s``: its operation, devices and nodes; when its
        operation ended, when it began to leave, and to enter the other node, when it was there; how long it holds a
        card, and how long it waited at both.

    Raises
    ------
    CostError
        If the model does not fit the schedule.
    ScheduleError
        If the schedule is not defined at the size.
    """
    size = (name, num_stages, num_microbatches, tuple((options or {}).items()))
    schedule, nodes = built(*size), nodes_of(system, num_stages)
    costs, cards = model_costs(schedule, model, system), cards_of(system, num_stages)
    timeline = simulate(compiled(*size, "overlapped", "excluded", cards), costs)
    _, occupancy, latency = costs.by_class(schedule.num_replicas)
    consumer = np.flatnonzero(schedule.dependencies.remote)
    op = schedule.dependencies.source[consumer]
    messages = pd.DataFrame({
        "kind": schedule.kind[op], "microbatch": schedule.microbatch[op],
        "sender": schedule.device[op], "receiver": schedule.device[consumer],
        "node_out": nodes[schedule.device[op]], "node_in": nodes[schedule.device[consumer]],
        "ready_s": timeline.end_s[op], "sent_s": timeline.sent_s[op],
        "entered_s": timeline.arrived_s[op] - latency[schedule.cost_class[op]] - occupancy[schedule.cost_class[op]],
        "arrived_s": timeline.arrived_s[op], "occupancy_s": occupancy[schedule.cost_class[op]],
    })  # fmt: skip
    waited = messages.entered_s - messages.ready_s
    messages["waited_s"] = waited.where(waited > TIE * messages.occupancy_s, 0.0)
    between = messages[messages.node_out != messages.node_in]
    return timeline, between.sort_values(["sent_s", "sender", "microbatch"], ignore_index=True)


def waiting_facts(timeline, messages):
    """How long messages wait for a card, and how busy the busiest card is.

    Parameters
    ----------
    timeline : Timeline
        From `card_study`.
    messages : DataFrame
        From `card_study`; at least one.

    Returns
    -------
    dict
        ``messages``; ``waiting``, the share of them that waits; ``mean_wait``, in transfers, of those that do;
        ``longest_wait`` of all; ``busiest``, the largest share of the iteration that a card sends or receives.
    """
    waits = messages.waited_s / messages.occupancy_s
    waiting = waits > 0
    held = [messages.groupby(side).occupancy_s.sum().max() for side in ("node_out", "node_in")]
    return {
        "messages": len(messages), "waiting": float(waiting.mean()),
        "mean_wait": float(waits[waiting].mean()) if waiting.any() else 0.0, "longest_wait": float(waits.max()),
        "busiest": max(held) / timeline.makespan_s,
    }  # fmt: skip


def inside_study(case, num_stages, num_microbatches, devices_per_node, comm, insides, backward=2.0):
    """Time of one schedule on blocked nodes as their inner links become slower, in plain numbers.

    Parameters
    ----------
    case : str or (str, dict)
        As in `legal_schedules`.
    num_stages, num_microbatches : int
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
    size = (name, num_stages, num_microbatches, tuple(options.items()))
    schedule, nodes = built(*size), np.arange(num_stages) // devices_per_node
    many = [uniform_costs(schedule, 1.0, backward, comm, nodes=nodes, node_comm=comm * inside) for inside in insides]
    spans = {
        network: makespans(compiled(*size, "overlapped", "excluded", tuple(nodes.tolist()) if shared else None), many)
        for network, shared in NETWORKS.items()
    }
    return pd.DataFrame({"inside": insides} | spans)


def largest_loss(study):
    """The most that a faster link inside nodes costs on shared cards.

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
    >>> largest_loss(pd.DataFrame({"inside": [0.5, 0.0, 1.0], "shared card": [10.0, 11.0, 12.0]}))
    0.1
    """
    spans = study.sort_values("inside")["shared card"].to_numpy()
    return float(round((spans / np.minimum.accumulate(spans[::-1])[::-1]).max() - 1, 12))


def waiting_study(model, system, cases, num_stages, num_microbatches):
    """How messages wait for shared cards, schedule by schedule and placement by placement.

    Parameters
    ----------
    model : ModelSpec
        The model.
    system : SystemSpec
        With nodes, more than one; its own placement and card are not looked at.
    cases : iterable of str or (str, dict)
        As in `legal_schedules`.
    num_stages, num_microbatches : int
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
    for name, options, _ in _possible(cases, model, num_stages, num_microbatches):
        for placement, network, one in _networks(system, num_stages):
            if NETWORKS[network]:
                facts = waiting_facts(*card_study(model, one, name, num_stages, num_microbatches, options))
                rows.append({"schedule": label(name, options), "placement": placement} | facts)
    return pd.DataFrame(rows)


def most_waiting(model, system, cases, num_stages, num_microbatches):
    """Of some schedules the one whose messages wait longest for a system's cards, taken together.

    Parameters
    ----------
    model, system, cases, num_stages, num_microbatches
        As in `waiting_study`; of the system its own placement and card.

    Returns
    -------
    schedule : str
        Its label.
    timeline : Timeline
        As from `card_study`.
    messages : DataFrame
        As from `card_study`.

    Raises
    ------
    CostError
        If the model's batch does not divide.
    """
    studies = {
        label(name, options): card_study(model, system, name, num_stages, num_microbatches, options)
        for name, options, _ in _possible(cases, model, num_stages, num_microbatches)
    }
    most = max(studies, key=lambda name: studies[name][1].waited_s.sum())
    return most, *studies[most]


def longest_wait(messages, transfers=30.0):
    """A stretch of time around the message that waits longest.

    Parameters
    ----------
    messages : DataFrame
        From `card_study`; at least one.
    transfers : float
        How long the stretch is, in transfers.

    Returns
    -------
    begin_s, end_s : float
        In seconds.

    Examples
    --------
    >>> longest_wait(pd.DataFrame({"waited_s": [0.0, 2.0], "ready_s": [1.0, 9.0], "occupancy_s": [1.0, 1.0]}), 4)
    (8.0, 12.0)
    """
    message = messages.loc[messages.waited_s.idxmax()]
    length = transfers * message.occupancy_s
    begin = max(0.0, float(message.ready_s + message.waited_s / 2 - length / 2))
    return begin, begin + float(length)
