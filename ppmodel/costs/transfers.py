"""What a transfer and an all-reduce cost: Hockney, V / BW + L, on the link that each really uses."""

import numpy as np

from ppmodel.costs.partition import microbatch_sequences
from ppmodel.ops import OpKind

_NUM_KINDS = len(OpKind)


def transfer_costs(schedule, nodes, between, inside):
    """Occupancy and latency of every transfer: without nodes one pair of seconds, by stage; else one of two.

    Where nothing is sent, 0.
    """
    if nodes is None:
        tables = np.empty((2, _NUM_KINDS, schedule.num_stages))
        tables[0], tables[1] = between
        return tables[0], tables[1]
    sender, receiver = schedule.placement, receivers(schedule)
    same = np.asarray(nodes)[receiver] == np.asarray(nodes)[sender]
    return tuple(np.where(receiver == sender, 0.0, np.where(same, *pair)) for pair in zip(inside, between, strict=True))


def receivers(schedule):
    """The rank that needs the result of an operation: of a forward the next stage's, of a gradient the previous.

    Parameters
    ----------
    schedule : Schedule
        Gives the placement of stages on ranks.

    Returns
    -------
    ndarray of int, shape (5, num_replicas, num_stages)
        By `OpKind`; the operation's own rank where nothing is sent.

    Examples
    --------
    >>> from ppmodel import build
    >>> receivers(build("gpipe", 3, 3))[:, 0].tolist()
    [[1, 2, 2], [0, 0, 1], [0, 0, 1], [0, 1, 2], [0, 1, 2]]
    """
    rank = np.tile(schedule.placement, (len(OpKind), 1, 1))
    rank[OpKind.F, :, :-1] = schedule.placement[:, 1:]
    rank[[OpKind.B, OpKind.I], :, 1:] = schedule.placement[:, :-1]
    return rank


def hockney_s(num_bytes, system, inside=False):
    """Occupancy and latency of one transfer: (V / BW, L).

    Parameters
    ----------
    num_bytes : float
        Bytes of the transfer, V.
    system : SystemSpec
        Gives bandwidth BW and latency L of one directed link.
    inside : bool
        Whether the link is one inside a node, of a system that has nodes.

    Returns
    -------
    occupancy_s, latency_s : float
        In seconds.

    Examples
    --------
    >>> from ppmodel.specs import load_system
    >>> hockney_s(50e9, load_system("mid_cp_mid_nw"))[0]
    1.0
    """
    if inside:
        return num_bytes / system.nodes.node_bandwidth_bytes_per_s, system.nodes.node_latency_s
    return num_bytes / system.network_bandwidth_bytes_per_s, system.network_latency_s


def message_bytes(schedule, model):
    """Bytes of one transfer: the activations, or their gradient, between two stages.

    Parameters
    ----------
    schedule : Schedule
        Gives the microbatches of the table.
    model : ModelSpec
        Gives global batch, sequence, hidden size and bytes of an element.

    Returns
    -------
    int
        Bytes for one microbatch of the table, b s h times those of an element.

    Raises
    ------
    CostError
        If the global batch does not divide into B microbatches of whole sequences.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.specs import load_model
    >>> model = load_model("paper")
    >>> message_bytes(build("gpipe", 4, 8), model) / message_bytes(build("gpipe", 4, 16), model)
    2.0
    """
    return microbatch_sequences(schedule, model) * model.sequence * model.hidden * model.element_bytes


def ring_s(volumes, schedule, system, nodes):
    """Seconds of every stage's all-reduce over its replicas: all links of the ring wait for its slowest."""

    def over(inside):
        occupancy, latency = hockney_s(volumes, system, inside)
        return occupancy + 2 * (schedule.num_replicas - 1) * latency

    if nodes is None:
        return over(inside=False)
    at = nodes[schedule.placement]
    inside = at == np.roll(at, 1, axis=0)
    return np.maximum(np.where(inside.any(axis=0), over(True), 0), np.where(inside.all(axis=0), 0, over(False)))
