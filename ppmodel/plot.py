"""Pictures of tables, timelines and studies. Colours are told apart without red and green (Okabe and Ito)."""

from itertools import pairwise

import numpy as np
import seaborn
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from ppmodel.ops import OpKind
from ppmodel.schedule import NO_OPERATION

_BLUE, _ORANGE, _GREEN, _VERMILION, _SKY, _PURPLE, _YELLOW, _GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442", "#7F7F7F",
)  # fmt: skip
_KIND_COLOURS = {OpKind.F: _SKY, OpKind.B: _ORANGE, OpKind.I: _YELLOW, OpKind.W: _PURPLE, OpKind.R: _GREY}
_KIND_NAMES = {OpKind.F: "forward", OpKind.B: "backward", OpKind.I: "input gradient", OpKind.W: "weight gradient",
               OpKind.R: "gradient all-reduce"}  # fmt: skip
_STYLES = [  # colour, marker, dash; where lines coincide the later, narrower one leaves the earlier visible
    (_BLUE, "o", "-"), (_VERMILION, "s", (0, (4, 2))), (_GREEN, "^", "-"), (_PURPLE, "D", (0, (1, 1.5))),
    (_ORANGE, "v", "-."), (_SKY, "P", "-"), (_GREY, "X", "--"),
]  # fmt: skip
_FIXED = ("GPipe", "1F1B", "Chimera", "Chimera forward-doubling", "Hanayo W = 2", "eager 1F1B")
_MIN_LABEL_SHARE = 0.016

plt.rcParams.update({
    "figure.dpi": 150, "savefig.dpi": 150, "svg.hashsalt": "ppmodel", "font.size": 9.5, "axes.titlesize": 10.5,
    "axes.titlelocation": "left", "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "axes.grid": True, "grid.color": "#e3e3e3", "grid.linewidth": 0.7, "legend.frameon": False,
    "figure.constrained_layout.use": True, "figure.facecolor": "white", "lines.linewidth": 1.8, "lines.markersize": 5,
})  # fmt: skip


def style_of(labels):
    """Line style of each label: one schedule looks the same in every figure.

    Parameters
    ----------
    labels : iterable of str
        Labels of schedules, in the order in which they are drawn; doubles count once.

    Returns
    -------
    dict of str to dict
        Keywords of matplotlib's ``plot``: colour, marker, dash, widths in points, label.

    Examples
    --------
    >>> style_of(["GPipe", "Chimera"])["Chimera"]["marker"], style_of(["Chimera"])["Chimera"]["marker"]
    ('^', '^')
    """
    labels = list(dict.fromkeys(labels))
    free = iter([n for n in range(len(_STYLES)) if n >= len(_FIXED) or _FIXED[n] not in labels] * 3)
    styles = {}
    for number, name in enumerate(labels):
        colour, marker, dash = _STYLES[_FIXED.index(name) if name in _FIXED else next(free)]
        wide = max(0, 2 - number)
        styles[name] = {
            "color": colour, "marker": marker, "ls": dash, "lw": 1.6 + 0.9 * wide, "ms": 5 + 1.6 * wide, "label": name,
        }  # fmt: skip
    return styles


def _titled(figure, title, context):
    """The point of a figure above it in bold; what it shows in small type below the title."""
    figure.suptitle(context, x=0.008, ha="left", fontsize=8.5, color="#555555")
    figure.text(0.008, 1.0, title, ha="left", va="bottom", fontsize=11.5, fontweight="bold")
    return figure


def context(model=None, p2p=None, allreduce=None, **sizes):
    """One line that says what a figure shows: sizes, model, semantics.

    Parameters
    ----------
    model, p2p, allreduce : str, optional
        Name of the model and of the communication semantics; what is not given is left out.
    **sizes
        Sizes under their symbols, such as S and B.

    Returns
    -------
    str

    Examples
    --------
    >>> context(p2p="overlapped", S=8, B=16)
    'S = 8, B = 16; transfers: overlapped'
    """
    parts = [", ".join(f"{key} = {value}" for key, value in sizes.items())] if sizes else []
    parts += [
        f"{name}: {value}" for name, value in (("model", model), ("transfers", p2p), ("all-reduce", allreduce)) if value
    ]
    return "; ".join(parts)


def _operation_legend(figure, schedule, extra=()):
    kinds = [kind for kind in OpKind if (schedule.kind == kind).any()]
    handles = [Patch(facecolor=_KIND_COLOURS[kind], edgecolor="#555555", label=_KIND_NAMES[kind]) for kind in kinds]
    if schedule.num_replicas > 1:
        handles.append(Patch(facecolor="white", hatch="////", edgecolor="#777777", label="second replica"))
    if schedule.chunks_per_device > 1:
        handles.append(Patch(facecolor="none", edgecolor="none", label="darker: deeper stage of the device"))
    figure.legend(handles=[*handles, *extra], loc="outside lower center", ncols=6, fontsize=8.5)


def _shade(colour, chunk, chunks):
    """A colour that darkens with the chunk, so that the stages of one device can be told apart."""
    share = 0.0 if chunks <= 1 else 0.45 * chunk / (chunks - 1)
    return tuple((1 - share) * channel for channel in to_rgb(colour))


def _draw_operations(axes, schedule, start, end, total, beside=False):
    """A box for each operation, its microbatch written in it where it fits.

    Reductions that run `beside` the computation are thin.
    """
    chunks = max(1, int(schedule.chunks_per_device))
    chunk = schedule.stage // schedule.num_devices
    cell = np.flatnonzero(~schedule.joined).tolist() + [schedule.num_operations]
    for first, last in pairwise(cell):
        begin, length = start[first], end[first] - start[first]
        if not length > 0:
            continue
        for lane, op in enumerate(range(first, last)):
            height = 0.84 / (last - first)
            bottom = schedule.device[op] - 0.42 + lane * height
            if beside and schedule.kind[op] == OpKind.R:
                height, bottom = 0.14, schedule.device[op] + 0.28
            colour = _shade(_KIND_COLOURS[OpKind(schedule.kind[op])], chunk[op], chunks)
            hatch = "////" if schedule.replica[op] else None
            style = {"facecolor": colour, "edgecolor": "#555555", "hatch": hatch, "lw": 0.5}
            axes.add_patch(Rectangle((begin, bottom), length, height, zorder=2 + (height < 0.2), **style))
            if schedule.microbatch[op] != NO_OPERATION and length > _MIN_LABEL_SHARE * total:
                box = {"boxstyle": "round,pad=0.12", "fc": (1, 1, 1, 0.75), "ec": "none"} if hatch else None
                dark = sum(colour) < 1.2
                axes.text(
                    begin + length / 2, bottom + height / 2, str(schedule.microbatch[op]), ha="center", va="center",
                    fontsize=7.5, color="white" if dark and not hatch else "black", bbox=box,
                )  # fmt: skip
    axes.set(ylim=(schedule.num_devices - 0.45, -0.55), xlim=(0, total), ylabel="device")
    axes.set_yticks(range(schedule.num_devices))
    axes.grid(axis="y", visible=False)


def plot_table(schedules, title, backward=2, note=""):
    """Idealised tables, one below the other on one axis of slots.

    Parameters
    ----------
    schedules : dict of str to Schedule
        Heading to schedule.
    title : str
        The point of the figure.
    backward : int
        Slots of a backward; a forward and a reduction take one.
    note : str
        Added to the line under the figure.

    Returns
    -------
    matplotlib Figure
    """
    slots = {name: schedule.slots(backward=backward, reduction=1) for name, schedule in schedules.items()}
    total = max(int(end.max()) for _, end in slots.values())
    heights = [schedule.num_devices for schedule in schedules.values()]
    figure, axes = plt.subplots(
        len(schedules), squeeze=False, sharex=True, height_ratios=heights,
        figsize=(7.8, 1.1 + 0.34 * sum(heights) + 0.35 * len(heights)),
    )  # fmt: skip
    for axis, (name, schedule) in zip(axes[:, 0], schedules.items(), strict=True):
        _draw_operations(axis, schedule, *slots[name], total)
        axis.set_title(name)
        axis.xaxis.grid(True)
    last = axes[-1, 0]
    last.set_xlabel("slot")
    last.xaxis.set_major_locator(MaxNLocator(20, integer=True))
    _operation_legend(figure, max(schedules.values(), key=lambda schedule: schedule.num_replicas))
    return _titled(figure, title, f"a forward takes 1 slot, a backward {backward}; numbers are microbatches. {note}")


def plot_timelines(timelines, title, context):
    """Simulated timelines, one below the other on one axis of seconds, with the transfers.

    Parameters
    ----------
    timelines : dict of str to Timeline
        Heading to timeline.
    title, context : str
        The point of the figure, and what it shows; see `context`.

    Returns
    -------
    matplotlib Figure
    """
    total = max(timeline.makespan_s for timeline in timelines.values())
    devices = [timeline.graph.schedule.num_devices for timeline in timelines.values()]
    figure, axes = plt.subplots(
        len(timelines), squeeze=False, sharex=True, height_ratios=devices,
        figsize=(7.8, 1.1 + 0.34 * sum(devices) + 0.35 * len(devices)),
    )  # fmt: skip
    for axis, (name, timeline) in zip(axes[:, 0], timelines.items(), strict=True):
        schedule = timeline.graph.schedule
        beside = timeline.graph.allreduce == "overlapped"
        _draw_operations(axis, schedule, timeline.start_s, timeline.end_s, total, beside)
        axis.set_title(f"{name}: {timeline.makespan_s:.4g} s")
        _draw_transfers(axis, timeline)
    last = axes[-1, 0]
    last.set_xlabel("time (s)")
    shown = max(
        (timeline.graph.schedule for timeline in timelines.values()), key=lambda schedule: schedule.num_replicas
    )
    line = plt.Line2D([], [], color="#333333", lw=0.8, label="transfer")
    _operation_legend(figure, shown, [line])
    return _titled(figure, title, f"{context}; numbers are microbatches")


def _draw_transfers(axis, timeline):
    dependencies, schedule = timeline.graph.schedule.dependencies, timeline.graph.schedule
    for consumer in np.flatnonzero(dependencies.remote):
        producer = dependencies.source[consumer]
        begin, end = schedule.device[producer], schedule.device[consumer]
        edge = 0.42 if end > begin else -0.42
        axis.plot(
            [timeline.sent_s[producer], timeline.arrived_s[producer]], [begin + edge, end - edge],
            color="#333333", lw=0.6, alpha=0.7, zorder=3,
        )  # fmt: skip


def plot_bubbles(study, title, context):
    """Bubble ratio over B: published formula (hollow, dashed) against the table (filled).

    Parameters
    ----------
    study : DataFrame
        From `studies.bubble_study`; ratios of the total time.
    title, context : str
        The point of the figure, and what it shows; see `context`.

    Returns
    -------
    matplotlib Figure
    """
    figure, axis = plt.subplots(figsize=(7.4, 3.9))
    for name, style in style_of(study.schedule).items():
        rows = study[study.schedule == name]
        axis.plot(rows.microbatches, rows.table, **{**style, "label": f"{name}, table"})
        hollow = {"mfc": "white", "ls": (0, (3, 2)), "lw": 1.0, "label": f"{name}, formula"}
        axis.plot(rows.microbatches, rows.formula, **{**style, **hollow})
    _microbatch_axis(axis, study)
    axis.set(ylabel="bubble ratio (idle / total)", ylim=(0, None))
    axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return _titled(figure, title, context)


def _microbatch_axis(axis, study):
    counts = sorted(study.microbatches.unique())
    axis.set_xscale("log", base=2)
    axis.set_xticks(counts, [str(count) for count in counts])
    axis.minorticks_off()
    axis.set_xlabel("microbatches B")


def plot_runtime(study, title, context):
    """Simulated time above idle-time ratio, one column a system, one line a schedule.

    Parameters
    ----------
    study : DataFrame
        From `studies.runtime_study`; times in seconds.
    title, context : str
        The point of the figure, and what it shows; see `context`.

    Returns
    -------
    matplotlib Figure
    """
    systems = list(dict.fromkeys(study.system))
    figure, axes = plt.subplots(2, len(systems), figsize=(2.5 * len(systems) + 0.4, 4.9), sharex=True, squeeze=False)
    for (upper, lower), system in zip(axes.T, systems, strict=True):
        for name, style in style_of(study.schedule).items():
            rows = study[(study.system == system) & (study.schedule == name)]
            upper.plot(rows.microbatches, rows.t_sim_s, **style)
            lower.plot(rows.microbatches, rows.idle_ratio, **style)
        upper.set(title=system, ylim=(0, 1.06 * study.loc[study.system == system, "t_sim_s"].max()))
        lower.set(ylim=(0, max(0.5, 1.05 * study.idle_ratio.max())))
        lower.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        _microbatch_axis(lower, study)
    axes[0, 0].set_ylabel("T_sim (s)")
    axes[1, 0].set_ylabel("idle-time ratio")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return _titled(figure, title, context)


def plot_grid(study, base, title, context):
    """Simulated time relative to a base schedule, one panel a system, three in a row.

    Parameters
    ----------
    study : DataFrame
        From `studies.relative_to`.
    base : str
        Label of the base schedule.
    title, context : str
        The point of the figure, and what it shows; see `context`.

    Returns
    -------
    matplotlib Figure
    """
    systems = list(dict.fromkeys(study.system))
    columns = min(3, len(systems))
    rows = -(-len(systems) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(2.6 * columns + 0.2, 2.0 * rows + 0.9), sharex=True, sharey=True, squeeze=False
    )
    for axis, system in zip(axes.flat, systems, strict=False):
        for name, style in style_of(study.schedule).items():
            points = study[(study.system == system) & (study.schedule == name)]
            axis.plot(points.microbatches, points.relative, **style)
        axis.axhline(0, color="black", lw=0.8)
        axis.set_title(system, fontsize=9.5)
        _microbatch_axis(axis, study)
        axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axis.label_outer()
    for axis in axes.flat[len(systems) :]:
        axis.set_visible(False)
    figure.supylabel(f"T_sim relative to {base}", fontsize=9.5)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return _titled(figure, title, context)


def plot_memory(study, title, context, capacity_bytes=None):
    """Peak activations of the fullest device on a logarithmic axis, the persistent part dotted beside it.

    Parameters
    ----------
    study : DataFrame
        From `studies.memory_study`, in bytes; the axis is in TiB. One panel for each S.
    title, context : str
        The point of the figure, and what it shows; see `context`.
    capacity_bytes : float, optional
        Memory of one device, drawn as a line.

    Returns
    -------
    matplotlib Figure
    """
    sizes = sorted(study.stages.unique())
    figure, axes = plt.subplots(1, len(sizes), figsize=(3.7 * len(sizes) + 0.4, 3.9), sharey=True, squeeze=False)
    for axis, size in zip(axes[0], sizes, strict=True):
        for name, style in style_of(study.schedule).items():
            rows = study[(study.stages == size) & (study.schedule == name)]
            axis.plot(rows.microbatches, rows.activations_bytes / 2**40, **style)
            axis.plot(rows.microbatches, rows.persistent_bytes / 2**40, color=style["color"], ls=":", lw=style["lw"])
        axis.set_title(f"S = {size}")
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        _microbatch_axis(axis, study)
        if capacity_bytes:
            axis.axhline(capacity_bytes / 2**40, color="black", lw=0.9)
    axes[0, 0].set_ylabel("bytes on the fullest device (TiB)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    handles.append(plt.Line2D([], [], color="#555555", ls=":", lw=1.2))
    labels.append("persistent part")
    if capacity_bytes:
        handles.append(plt.Line2D([], [], color="black", lw=0.9))
        labels.append("memory of one device")
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return _titled(figure, title, context)


def plot_bars(table, category, title, context, value="relative", ylabel="T_sim against the base"):
    """Grouped bars of a relative time, one group a system, one bar a value of `category`.

    Parameters
    ----------
    table : DataFrame
        With ``system`` and the columns `category` and `value`, as from `studies.relative_to`.
    category : str
        The column whose values are told apart by colour.
    title, context : str
        The point of the figure, and what it shows; see `context`.
    value : str
        The column that gives the height of a bar, a ratio; its axis is in percent.
    ylabel : str
        What the axis is called.

    Returns
    -------
    matplotlib Figure
    """
    figure, axis = plt.subplots(figsize=(7.8, 3.7))
    colours = {name: style["color"] for name, style in style_of(table[category]).items()}
    seaborn.barplot(table, x="system", y=value, hue=category, palette=colours, ax=axis, saturation=1, errorbar=None)
    axis.axhline(0, color="black", lw=0.8)
    axis.set(xlabel="", ylabel=ylabel)
    axis.set_xticks(axis.get_xticks(), [text.get_text().replace("_cp_", "_cp\n") for text in axis.get_xticklabels()])
    axis.grid(axis="x", visible=False)
    axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    handles, labels = axis.get_legend_handles_labels()
    axis.get_legend().remove()
    figure.legend(handles, labels, loc="outside lower center", ncols=max(4, len(labels)))
    return _titled(figure, title, context)
