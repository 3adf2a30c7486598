"""Transfers that wait until both ends have posted them: ranks that stop for them, or streams of kernels.

Under ``streams``, sends and receives are kernels. A rank has a stream for computing and one for each peer, which both
directions share, and its host issues operations and both ends of transfers into one queue, in the order of
`issue.issue_order`. Both ends of a stream have its transfers in one order: by the planned ends of their producers, and
of two that end at once, by their producers' places in the table, rank by rank. So no two ranks wait for each other. A
kernel starts only once all that were issued before it on its rank have started, so that what is behind a waiting
transfer waits, too (head of line). An end of a transfer is posted when the operation issued before it has ended and its
stream is free; a sender's end on a link with a delay, that much later. The transfer starts when both ends are posted,
and occupies both streams from then on for its occupancy and latency, but no rank's computing. An operation also waits
for the one before it and for its inputs.

So a rank waits for a transfer that it does not need if its peer is late, or its link delayed: measured runs of
zero-bubble schedules over a delayed link behave like this, those of 1F1B in Megatron-LM like ``rendezvous``, and those
whose transfers host processes make like ``latency``. Where transfers are short and no link differs, all are alike.
"""

import numpy as np

from ppmodel.loops.rendezvous import rendezvous
from ppmodel.loops.streams import streams
from ppmodel.simulation.checks import durations, filled_timeline, group_lengths
from ppmodel.simulation.rendezvous import refuse_endless


def posted_timeline(graph, costs, factors=None):
    """Simulate a graph under ``rendezvous`` or ``streams``.

    Parameters
    ----------
    graph, costs, factors
        As in `run_graph`.

    Returns
    -------
    Timeline

    Raises
    ------
    TableError
        If ranks deadlock under ``rendezvous``; no table does under ``streams``.
    """
    compute, occupancy, latency = durations(graph, costs, factors)
    lengths = group_lengths(graph, costs, compute)
    if graph.p2p == "rendezvous":
        arrays = graph.consumers, graph.exchanges, (lengths, occupancy + latency)
        timeline = filled_timeline(graph, costs, factors, rendezvous, 2, *arrays)
        refuse_endless(timeline)
        return timeline
    delay = np.zeros(len(compute)) if costs.delay_s is None else costs.delay_s.ravel()[graph.cost_class]
    seconds = lengths, occupancy + (latency - delay), delay
    issued, pair, num_pairs = graph.issued
    sizes = num_pairs, 2 * graph.schedule.num_ranks
    arrays = issued, graph.consumers[0], pair, sizes, seconds
    return filled_timeline(graph, costs, factors, streams, 2, *arrays)
