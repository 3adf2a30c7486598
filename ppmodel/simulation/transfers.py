"""Transfers between ranks: who receives a result, and for how many seconds it occupies the link between them."""

from typing import NamedTuple

import numpy as np

from ppmodel.ops import OpKind
from ppmodel.tables.further import OF_SHARDS

_NUM_KINDS = len(OpKind)


class Links(NamedTuple):
    """Links between the ranks of a pipeline.

    Parameters
    ----------
    nodes : ndarray of int, shape (num_ranks,), or None
        Ranks with the same number are on the same node; None if all links are alike.
    between, inside : tuple of float
        Occupancy and latency of a transfer between nodes, and within a node, in seconds; occupancies are arrays like
        `delay_s` if links have bandwidths of their own.
    nics : tuple of int, length num_ranks, or None
        As in `OpCosts`.
    delay_s : ndarray of float, shape (10, num_replicas, num_stages), optional
        What each transfer takes longer because of its link.
    """

    nodes: np.ndarray | None
    between: tuple
    inside: tuple
    nics: tuple | None
    delay_s: np.ndarray | None = None


def link_values(links, senders, receivers):
    """The delays and bandwidths that `specs.Link` entries give some pairs of ranks.

    Parameters
    ----------
    links : sequence of Link
    senders, receivers : ndarray of int
        The pairs; the shape of the senders may be that of the last axes of the receivers.

    Returns
    -------
    delay_s, bandwidth : ndarray of float, shape of the receivers
        In seconds and bytes per second; 0 and NaN for pairs that have none.
    """
    delay_s, bandwidth = np.zeros(receivers.shape), np.full(receivers.shape, np.nan)
    for link in links:
        for sender, receiver in link.directions:
            on = (senders == sender) & (receivers == receiver)
            delay_s[on] = link.delay_s
            bandwidth[on] = np.nan if link.bandwidth_bytes_per_s is None else link.bandwidth_bytes_per_s
    return delay_s, bandwidth


def crossed(links, schedule):
    """Those of some `specs.Link` entries that messages of a schedule cross."""
    ends = receivers(schedule)[[OpKind.F, OpKind.B]]
    pairs = set(zip(np.broadcast_to(schedule.placement, ends.shape).flat, ends.flat, strict=True))
    return [link for link in links if pairs & {*link.directions}]


def transfer_costs(schedule, links):
    """Occupancy and latency of every transfer on `Links`; with nodes, 0 where nothing is sent.

    Collectives of shards take no time here; see `costs.stage_costs`.
    """
    if links.nodes is not None:
        occupancy, latency = over_links(*link_kinds(schedule, links.nodes), links.between, links.inside)
    else:
        shape = (_NUM_KINDS, schedule.num_stages) if links.delay_s is None else links.delay_s.shape
        occupancy, latency = (np.full(shape, seconds) for seconds in links.between)
    if schedule.has_shards:  # of collectives
        for table in (occupancy, latency):
            table[OF_SHARDS] = table[OpKind.F, ..., -1] = 0.0
    return occupancy, latency if links.delay_s is None else latency + links.delay_s


def link_kinds(schedule, nodes):
    """Masks of transfers that leave their rank, and that stay within a node: each (10, num_replicas, num_stages)."""
    sender, receiver = schedule.placement, receivers(schedule)
    return receiver != sender, np.asarray(nodes)[receiver] == np.asarray(nodes)[sender]


def over_links(leaves, within, between, inside):
    """Occupancy and latency of transfers, from those on both links; 0 for those that do not leave their rank."""
    return tuple(np.where(leaves, np.where(within, *pair), 0.0) for pair in zip(inside, between, strict=True))


def receivers(schedule):
    """The rank that needs the result of an operation: for a forward, the next stage's; for a gradient, the previous.

    Parameters
    ----------
    schedule : Schedule
        Provides the placement of stages on ranks.

    Returns
    -------
    ndarray of int, shape (10, num_replicas, num_stages)
        By `OpKind`; the operation's own rank if nothing is sent.

    Examples
    --------
    >>> from ppmodel import build
    >>> receivers(build("gpipe", 3, 3))[:4, 0].tolist()
    [[1, 2, 2], [0, 0, 1], [0, 0, 1], [0, 1, 2]]
    """
    rank = np.empty((_NUM_KINDS, *schedule.placement.shape), schedule.placement.dtype)
    rank[:] = schedule.placement
    rank[OpKind.F, :, :-1] = schedule.placement[:, 1:]
    rank[[OpKind.B, OpKind.I], :, 1:] = schedule.placement[:, :-1]
    return rank
