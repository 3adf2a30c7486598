"""Messages that ranks send."""

import numpy as np


def messages_by_node(schedule, nodes):
    """Count the messages of one iteration within nodes and between nodes.

    Parameters
    ----------
    schedule : Schedule
        The table.
    nodes : ndarray of int, shape (num_ranks,)
        The node of each rank.

    Returns
    -------
    inside, between : int
        Transfers of activations and gradients; gradient all-reduces of replicas are left out.

    Examples
    --------
    >>> from ppmodel import build
    >>> messages_by_node(build("gpipe", 4, 8), np.array([0, 0, 1, 1]))
    (32, 16)
    """
    dependencies = schedule.dependencies
    where = nodes[schedule.rank]
    same = where[dependencies.source[dependencies.remote]] == where[dependencies.remote]
    return int(same.sum()), int((~same).sum())


def messages_sent(schedule):
    """Count the point-to-point messages that each rank sends in one iteration.

    Parameters
    ----------
    schedule : Schedule
        The table.

    Returns
    -------
    ndarray of int, shape (num_ranks,)
        Multiply by `costs.message_bytes` to get bytes.

    Raises
    ------
    TableError
        If operations wait for each other in a cycle.

    Examples
    --------
    >>> from ppmodel import build
    >>> messages_sent(build("gpipe", 3, 4)).tolist()
    [4, 8, 4]
    """
    source, remote = schedule.dependencies.source, schedule.dependencies.remote
    return np.bincount(schedule.rank[source[remote]], minlength=schedule.num_ranks)
