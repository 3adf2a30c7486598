"""Pictures of tables and timelines, with one box per operation."""

from itertools import pairwise

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from ppmodel.ops import OpKind
from ppmodel.plot import style
from ppmodel.plot.themes import ON_DARK, ink_on
from ppmodel.tables import NO_OPERATION
from ppmodel.tables.kinds import KINDS

PATH_COLOUR = "#D0104C"
_DIGIT, _ROOM = 4.2, 0.8  # points of a digit, and around a number: narrower boxes have none
_SIZES = {False: 7.5, True: 6.5}  # points of a number, in a narrow figure or not
_LEAST_EDGED_PT = 4.5  # narrower boxes have no edge: it would cover their colour
_LEAST_LINKED_PT = 2.0  # the transfers of narrower boxes have no line
_DARKENED, _DARKENED_NARROW = 0.45, 0.3  # narrow boxes of many colours would look muddy
_HIGH = 0.84  # of a rank's row, its boxes


def operation_legend(figure, schedules, extra=()):
    """Draw a legend below a figure for the kinds of operations in its schedules.

    Parameters
    ----------
    figure : matplotlib Figure
    schedules : collection of Schedule
        If a schedule has several replicas or chunks, these have entries too.
    extra : sequence of matplotlib Artist
        Further entries, with labels.
    """
    drawn = [look for kind, look in KINDS.items() if any((schedule.kind == kind).any() for schedule in schedules)]
    handles = [Patch(facecolor=look.colour, edgecolor="#555555", label=look.words) for look in drawn]
    if any(schedule.num_replicas > 1 for schedule in schedules):
        handles.append(Patch(facecolor="white", hatch="////", edgecolor="#777777", label="second replica"))
    if any(schedule.chunks_per_rank > 1 for schedule in schedules):
        handles.append(Patch(facecolor="none", edgecolor="none", label="darker: deeper stage of the rank"))
    style.legend(figure, [*handles, *extra])


def shade(colour, chunk, schedule, most=_DARKENED):
    """Darken a colour with the chunk, to distinguish the stages of one rank.

    Parameters
    ----------
    colour : str
    chunk : int
        Index of a stage among those of its rank.
    schedule : Schedule
        Gives the number of chunks.
    most : float
        By which share the last chunk is darker.

    Returns
    -------
    tuple of float
        Red, green and blue.
    """
    share = most * chunk / max(1, schedule.chunks_per_rank - 1)
    return tuple((1 - share) * channel for channel in to_rgb(colour))


def lanes(schedule):
    """Where operations lie in their cells, which those of a pair share: their upper edges and heights, as shares.

    Examples
    --------
    >>> import ppmodel as pp
    >>> upper, heights = lanes(pp.build("dualpipe", 4, 8))
    >>> sorted(set(upper.tolist())), sorted(set(heights.tolist()))
    ([0.0, 0.5], [0.5, 1.0])
    """
    heights, cell = 1 / np.bincount(schedule.cell)[schedule.cell], schedule.cell
    return (np.arange(len(cell)) - np.flatnonzero(~schedule.joined)[cell]) * heights, heights


def draw_operations(axes, schedule, start, end, window, beside=False):
    """Draw a box for each operation in a window of time, with its microbatch written inside if it fits.

    Parameters
    ----------
    axes : matplotlib Axes
    schedule : Schedule
    start, end : ndarray of float, shape (num_operations,)
        Start and end of each operation, in the unit of the window.
    window : (float, float)
        Start and end.
    beside : bool
        Whether reductions overlap the computation, and are drawn thin.
    """
    left, right = window
    digits = len(schedule.named(0, 0, schedule.num_microbatches * schedule.slices - 1, 0).unit)
    least = (_DIGIT * digits + _ROOM) / 72 / style.page_width() * (right - left)
    edge = 0.5 if _points(start, end, window) >= _LEAST_EDGED_PT else 0.0
    chunk, (upper, heights) = schedule.stage // schedule.num_ranks, lanes(schedule)
    for op in np.flatnonzero((end > start) & (start < right) & (end > left)):
        length, middle = end[op] - start[op], (start[op] + end[op]) / 2
        bottom, height = schedule.rank[op] + _HIGH * (upper[op] - 0.5), _HIGH * heights[op]
        if thin := schedule.kind[op] in ((OpKind.R, OpKind.G) if beside else (OpKind.G,)):
            bottom, height = schedule.rank[op] + 0.28, 0.14
        drawn, hatch = KINDS[schedule.kind[op]].colour, "////" if schedule.replica[op] else None
        colour = shade(drawn, chunk[op], schedule, _DARKENED if edge else _DARKENED_NARROW)
        look = {"facecolor": colour, "edgecolor": "#555555", "hatch": hatch, "lw": edge, "zorder": 2 + thin}
        axes.add_patch(Rectangle((start[op], bottom), length, height, **look))
        if schedule.microbatch[op] != NO_OPERATION and left < middle < right and length > least:
            box = {"boxstyle": "round,pad=0.12", "fc": to_rgba(ON_DARK, 0.75), "ec": "none"} if hatch else None
            look = {"fontsize": _SIZES[style.is_narrow()], "color": ink_on("white" if hatch else colour), "bbox": box}
            axes.text(middle, bottom + height / 2, schedule.op(op).unit, ha="center", va="center", **look)
    axes.set(ylim=(schedule.num_ranks - 0.45, -0.55), xlim=window, ylabel="rank")
    axes.set_yticks(range(schedule.num_ranks))
    axes.grid(axis="y", visible=False)


def _points(start, end, window):
    """About how wide the operations are drawn, in points: the median of them."""
    return np.nanmedian(end - start) / (window[1] - window[0]) * style.page_width() * 72


@style.redrawable
def plot_table(schedules, title, backward=2, note=""):
    """Draw idealised tables below each other, on a shared axis of slots.

    Parameters
    ----------
    schedules : dict of str to Schedule
        Heading to schedule.
    title : str
        The message of the figure.
    backward : int
        Slots per backward; all others take one each.
    note : str
        Added to the line below the title.

    Returns
    -------
    matplotlib Figure
    """
    slots = {name: schedule.slots(backward=backward, gather=1) for name, schedule in schedules.items()}
    total = max(int(end.max()) for _, end in slots.values())
    figure, axes = _panels([schedule.num_ranks for schedule in schedules.values()])
    for axis, (name, schedule) in zip(axes[:, 0], schedules.items(), strict=True):
        draw_operations(axis, schedule, *slots[name], (0, total))
        axis.set_title(name)
        axis.xaxis.grid(True)
    axes[-1, 0].set_xlabel("slot")
    axes[-1, 0].xaxis.set_major_locator(MaxNLocator(9 if style.is_narrow() else 20, integer=True))
    operation_legend(figure, schedules.values())
    shown = f"a forward takes 1 slot, a backward {backward}; {_numbers(schedules.values())}. {note}"
    return style.titled(figure, title, shown)


@style.redrawable
def plot_timelines(timelines, title, context, paths=None, unit="s"):
    """Draw simulated timelines with their transfers below each other, on a shared axis of seconds.

    Parameters
    ----------
    timelines : dict of str to Timeline or Run
        Heading to timeline.
    title, context : str
        The message of the figure, and what it shows; see `context`.
    paths : dict of str to list of int, optional
        Heading to the operations to outline in bold, as from `metrics.critical_path`.
    unit : str
        The unit of the times.

    Returns
    -------
    matplotlib Figure
    """
    timelines = {name: getattr(run, "timeline", run) for name, run in timelines.items()}
    window = 0, max(timeline.makespan_s for timeline in timelines.values())
    schedules = [timeline.graph.schedule for timeline in timelines.values()]
    figure, axes = _panels([schedule.num_ranks for schedule in schedules])
    for axis, (name, timeline) in zip(axes.flat, timelines.items(), strict=True):
        schedule = timeline.graph.schedule
        beside = timeline.graph.allreduce.startswith("overlapped")
        times = timeline.start_s, timeline.end_s
        draw_operations(axis, schedule, *times, window, beside)
        axis.set_title(f"{name}: {timeline.makespan_s:.4g} {unit}")
        if _points(*times, window) >= _LEAST_LINKED_PT:
            thin = {"color": "#333333", "lw": 0.6, "alpha": 0.7, "zorder": 3}
            _draw_transfers(axis, timeline, range(schedule.num_operations), **thin)
        if paths:
            path, look = paths[name], {"ec": PATH_COLOUR, "lw": 2, "zorder": 4}
            for op in path:
                corner, length = (times[0][op], schedule.rank[op] - _HIGH / 2), times[1][op] - times[0][op]
                axis.add_patch(Rectangle(corner, length, _HIGH, fill=False, **look))
            sent = [after for before, after in pairwise(path) if schedule.dependencies.source[after] == before]
            _draw_transfers(axis, timeline, sent, color=PATH_COLOUR, lw=2, zorder=4)
    axes[-1, 0].set_xlabel(f"time ({unit})")
    line = plt.Line2D([], [], color="#333333", lw=0.8, label="transfer")
    bold = [Patch(facecolor="none", edgecolor=PATH_COLOUR, lw=2, label="critical path")] if paths else []
    operation_legend(figure, schedules, [line, *bold])
    return style.titled(figure, title, f"{context}; {_numbers(schedules)}")


def _numbers(schedules):
    """What the numbers in operations are."""
    return "numbers are microbatches" + " and their slices" * any(schedule.slices > 1 for schedule in schedules)


def _panels(ranks):
    """A figure with a panel for each of these numbers of ranks, as high as they need, and its axes."""
    size = (style.page_width(), 1.1 + 0.34 * sum(ranks) + 0.35 * len(ranks))
    return plt.subplots(len(ranks), squeeze=False, sharex=True, height_ratios=ranks, figsize=size)


def _draw_transfers(axis, timeline, consumers, **look):
    """A line between ranks for each of these operations with an input from another rank."""
    schedule, consumers = timeline.graph.schedule, np.array(consumers, dtype=int)
    consumers = consumers[schedule.dependencies.remote[consumers].astype(bool)]
    producers = schedule.dependencies.source[consumers]
    begin, end = schedule.rank[producers], schedule.rank[consumers]
    edge = np.where(end > begin, _HIGH / 2, -_HIGH / 2)
    axis.plot((timeline.sent_s[producers], timeline.arrived_s[producers]), (begin + edge, end - edge), **look)
