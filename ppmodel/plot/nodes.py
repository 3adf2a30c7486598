"""Pictures of nodes: what placements cost, and how messages queue at NICs."""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ppmodel.plot.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, titled
from ppmodel.plot.timelines import KIND_COLOURS, MIN_LABEL_SHARE, draw_operations, operation_legend

_PLACEMENT_STYLES = [(BLUE, "o"), (VERMILION, "s"), (GREEN, "^"), (PURPLE, "D"), (ORANGE, "v"), (SKY, "P"), (GREY, "X")]
_STEP = 0.22
_WIDE_PANELS = 2
_MOMENTS = {"out": ("ready_s", "sent_s"), "in": ("sent_s", "entered_s")}
_ROUNDING = 1e-9


def plot_nodes(study, title, context):
    """Time against a flat network, one panel a system: full marks on own links, hollow ones on shared nics.

    Parameters
    ----------
    study : DataFrame
        From `studies.node_study`.
    title, context : str
        The point of the figure, and what it shows; see `style.context`.

    Returns
    -------
    matplotlib Figure
    """
    systems, schedules, placements, networks = (
        list(dict.fromkeys(study[column])) for column in ("system", "schedule", "placement", "network")
    )
    figure, axes = plt.subplots(
        1, len(systems), figsize=(7.8, 1.6 + 0.23 * len(schedules) * len(placements)), sharey=True, squeeze=False
    )
    styles = dict(zip(placements, _PLACEMENT_STYLES, strict=False))
    for axis, system in zip(axes[0], systems, strict=True):
        _draw_placements(axis, study[study.system == system], schedules, styles, networks)
        axis.axvline(0, color="black", lw=0.8)
        axis.set(title=system, xlabel="T_sim against a flat network")
        axis.xaxis.set_major_locator(MaxNLocator(_most_steps(len(systems))))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:+.3g} %".replace("+0 ", "0 ")))
        axis.grid(axis="y", visible=False)
    axes[0, 0].set_yticks(range(len(schedules)), schedules)
    axes[0, 0].invert_yaxis()
    handles = [_mark(colour, marker, colour, name) for name, (colour, marker) in styles.items()]
    faces = dict(zip(networks, ("#555555", "white"), strict=False))
    handles += [_mark("#555555", "o", face, name) for name, face in faces.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    return titled(figure, title, context)


def _most_steps(panels):
    """As many steps of an axis as its panel has room for labels."""
    return 5 if panels <= _WIDE_PANELS else 3


def _mark(colour, marker, face, name):
    return plt.Line2D([], [], ls="none", marker=marker, ms=6, color=colour, mfc=face, label=name)


def _draw_placements(axis, rows, schedules, styles, networks):
    """A row for each schedule and placement; a line from the first network's mark to the last one's."""
    middle = (len(styles) - 1) / 2
    for (schedule, placement), points in rows.groupby(["schedule", "placement"], sort=False):
        colour, marker = styles[placement]
        height = schedules.index(schedule) + _STEP * (list(styles).index(placement) - middle)
        relative = points.set_index("network").relative
        axis.plot(relative, [height] * len(relative), color=colour, lw=1.2, zorder=2)
        for network, face in zip(networks, (colour, "white"), strict=False):
            axis.plot(relative[network], height, marker, ms=6, color=colour, mfc=face, mew=1.3, zorder=3)


def plot_nics(timeline, messages, window, title, context):
    """A stretch of a timeline, and below it what each node's NIC sends and receives in it.

    Parameters
    ----------
    timeline : Timeline
        From `studies.nodes.nic_study`.
    messages : DataFrame
        From `studies.nodes.nic_study`, too.
    window : (float, float)
        Begin and end of the stretch, in seconds; where no message passes a nic all of the timeline is shown.
    title, context : str
        The point of the figure, and what it shows; see `style.context`.

    Returns
    -------
    matplotlib Figure
    """
    schedule = timeline.graph.schedule
    if messages.empty:
        return _draw_no_nics(timeline, title, context)
    nodes = sorted({*messages.node_out, *messages.node_in})
    lanes = [(side, node) for node in nodes for side in ("out", "in")]
    heights = [0.3 * schedule.num_ranks, 0.42 * len(lanes)]
    figure, (above, below) = plt.subplots(2, sharex=True, height_ratios=heights, figsize=(7.8, 1.9 + sum(heights)))
    draw_operations(above, schedule, timeline.start_s, timeline.end_s, window)
    at = [messages[messages[f"node_{side}"] == node] for side, node in lanes]
    queues = [_queue(of, *_MOMENTS[side]) for of, (side, _) in zip(at, lanes, strict=True)]
    most = max(1, *(length.max(initial=0) for _, length in queues))
    for row, (side, _) in enumerate(lanes):
        _draw_nic(below, at[row], _MOMENTS[side][1], row, window)
        time, length = queues[row]
        base = np.full(len(time), row - 0.08)
        below.fill_between(time, base, base - 0.38 * length / most, step="post", color=VERMILION, lw=0, zorder=2)
    below.set_yticks(range(len(lanes)), [f"node {node} {side}" for side, node in lanes])
    below.set(ylim=(len(lanes) - 0.4, -0.6), xlim=window, xlabel="time (s)", ylabel="NIC")
    below.grid(axis="y", visible=False)
    waiting = Patch(facecolor=VERMILION, label=f"messages that wait (at most {most:g})")
    operation_legend(figure, schedule, [waiting])
    return titled(figure, title, f"{context}; numbers are microbatches")


def _draw_no_nics(timeline, title, context):
    """The ranks alone, with a line that says why there is no nic."""
    schedule = timeline.graph.schedule
    figure, axis = plt.subplots(figsize=(7.8, 1.9 + 0.3 * schedule.num_ranks))
    draw_operations(axis, schedule, timeline.start_s, timeline.end_s, (0.0, timeline.makespan_s))
    axis.set_xlabel("time (s)")
    operation_legend(figure, schedule, [])
    return titled(figure, title, f"{context}; all ranks lie on one node, and no message passes a nic")


def _queue(messages, comes, goes):
    """How many messages wait for a nic: times, and the number from each time on; who goes makes room first."""
    waiting = messages[messages[goes] - messages[comes] > _ROUNDING * messages.occupancy_s]
    time = np.concatenate((waiting[goes], waiting[comes]))
    order = np.argsort(time, kind="stable")
    change = np.repeat([-1, 1], len(waiting))[order]
    return time[order], np.cumsum(change)


def _draw_nic(axis, messages, begins, row, window):
    """A box for each message while it holds a nic."""
    begin, end = window
    for one in messages[(messages.arrived_s > begin) & (messages.ready_s < end)].itertuples():
        start = getattr(one, begins)
        box = Rectangle((start, row - 0.06), one.occupancy_s, 0.46, fc=KIND_COLOURS[one.kind], ec="#555555", lw=0.5)
        axis.add_patch(box)
        middle = start + one.occupancy_s / 2
        if begin < middle < end and one.occupancy_s > MIN_LABEL_SHARE * (end - begin):
            axis.text(middle, row + 0.17, str(one.microbatch), ha="center", va="center", fontsize=7)
