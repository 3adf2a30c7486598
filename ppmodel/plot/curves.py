"""Pictures of studies: a line or a bar a schedule, over microbatches or systems."""

import seaborn
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, PercentFormatter

from ppmodel.plot.style import microbatch_axis, style_of, titled


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
    microbatch_axis(axis, study)
    axis.set(ylabel="bubble ratio (idle / total)", ylim=(0, None))
    axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return titled(figure, title, context)


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
        microbatch_axis(lower, study)
    axes[0, 0].set_ylabel("T_sim (s)")
    axes[1, 0].set_ylabel("idle-time ratio")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return titled(figure, title, context)


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
        microbatch_axis(axis, study)
        axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axis.label_outer()
    for axis in axes.flat[len(systems) :]:
        axis.set_visible(False)
    figure.supylabel(f"T_sim relative to {base}", fontsize=9.5)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return titled(figure, title, context)


def plot_memory(study, title, context, capacity_bytes=None):
    """Peak activations of the fullest rank on a logarithmic axis, the persistent part dotted beside it.

    Parameters
    ----------
    study : DataFrame
        From `studies.memory_study`, in bytes; the axis is in TiB. One panel for each S.
    title, context : str
        The point of the figure, and what it shows; see `context`.
    capacity_bytes : float, optional
        Memory of one rank, drawn as a line.

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
        microbatch_axis(axis, study)
        if capacity_bytes:
            axis.axhline(capacity_bytes / 2**40, color="black", lw=0.9)
    axes[0, 0].set_ylabel("bytes on the fullest rank (TiB)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    handles.append(plt.Line2D([], [], color="#555555", ls=":", lw=1.2))
    labels.append("persistent part")
    if capacity_bytes:
        handles.append(plt.Line2D([], [], color="black", lw=0.9))
        labels.append("memory of one rank")
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return titled(figure, title, context)


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
    return titled(figure, title, context)
