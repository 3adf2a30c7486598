"""A picture of the messages that queue at the NICs of nodes."""

from itertools import product

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from ppmodel.plot import redrawable, titled
from ppmodel.plot.palette import VERMILION
from ppmodel.plot.style import page_width
from ppmodel.plot.themes import ON_LIGHT
from ppmodel.plot.timelines import KIND_COLOURS, draw_operations, operation_legend
from ppmodel.studies.analysis import messages_between_nodes

_MOMENTS = {"out": ("ready_s", "sent_s"), "in": ("sent_s", "entered_s")}
"""When a message comes to a NIC, and when it begins to hold it."""

_SHOWN = 30
"""Transfers that the picture shows, around the message that waits longest."""


def draw_queues(run, title, context=""):
    """Draw the ranks of a run above, and what each node's NIC sends and receives below, with the messages that wait.

    Parameters
    ----------
    run : Run
        As in `messages_between_nodes`.
    title, context : str
        As in `plot_lines`.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import ppmodel as pp
    >>> run = pp.simulate("1f1b", 8, 8, model="paper", system="slow_between_nodes")
    >>> [label.get_text() for label in draw_queues(run, "NICs").axes[1].get_yticklabels()][:2]
    ['node 0 out', 'node 0 in']
    """
    messages, window = messages_between_nodes(run), (0.0, run.makespan_s)
    if len(messages):
        longest = messages.loc[messages.waited_s.idxmax()]
        begin = max(0.0, longest.ready_s + longest.waited_s / 2 - _SHOWN / 2 * longest.occupancy_s)
        window = (begin, begin + _SHOWN * longest.occupancy_s)
    lanes = list(product(sorted({*messages.node_out, *messages.node_in}), _MOMENTS))
    heights = [0.3 * run.table.num_ranks, 0.42 * len(lanes) or 0.1]

    @redrawable
    def draw():
        size = (page_width(), 1.9 + sum(heights))
        figure, (above, below) = plt.subplots(2, sharex=True, height_ratios=heights, figsize=size)
        draw_operations(above, run.table, run.timeline.start_s, run.timeline.end_s, window)
        queues, edges = [], {"edgecolor": "#555555", "lw": 0.5}
        style = {"color": ON_LIGHT, "ha": "center", "va": "center", "fontsize": 7, "clip_on": True}
        for row, (node, side) in enumerate(lanes):
            comes, goes = _MOMENTS[side]
            lane = messages[messages[f"node_{side}"] == node]
            colours = lane.kind.map(KIND_COLOURS)
            below.broken_barh(lane[[goes, "occupancy_s"]].values, (row - 0.06, 0.46), facecolor=colours, **edges)
            middles = lane[goes] + lane.occupancy_s / 2
            for middle, microbatch in lane.microbatch.set_axis(middles)[middles.between(*window).values].items():
                below.text(middle, row + 0.17, microbatch, **style)
            late = lane[lane[goes] - lane[comes] > 1e-9 * lane.occupancy_s]
            changes = pd.concat([pd.Series(-1, late[goes]), pd.Series(1, late[comes])])
            queues.append(changes.sort_index(kind="stable").cumsum())
        most = max([1, *(waiting.max() for waiting in queues if len(waiting))])
        for row, waiting in enumerate(queues):
            top = row - 0.08 - 0.38 * waiting / most
            below.fill_between(waiting.index, row - 0.08, top, step="post", color=VERMILION, lw=0)
        below.set_yticks(range(len(lanes)), [f"node {node} {side}" for node, side in lanes])
        below.set(ylim=(len(lanes) - 0.4, -0.6), xlim=window, xlabel="time (s)", ylabel="NIC")
        below.grid(axis="y", visible=False)
        legend = Patch(facecolor=VERMILION, label=f"messages that wait (at most {most:g})")
        operation_legend(figure, [run.table], [legend])
        return titled(figure, title, context)

    return draw()
