"""Pictures of all schedules at once: a row a schedule, or a colour a family; no line for each."""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.colors import LogNorm, TwoSlopeNorm
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from ppmodel.plot.style import BLUE, GREY, ORANGE, PURPLE, SKY, VERMILION, family_styles, style_of, titled

_LEVELS = {
    "formula": {"marker": "o", "ms": 8, "mfc": "white", "mec": BLUE, "mew": 1.4, "label": "formula"},
    "table_bubble_ratio": {"marker": "o", "ms": 4.5, "color": BLUE, "label": "table"},
    "idle_without_network": {"marker": "D", "ms": 5, "color": ORANGE, "label": "simulated, without a network"},
    "idle_ratio": {"marker": "s", "ms": 5, "color": VERMILION, "label": "simulated, with the network"},
}
_MOST, _NEAR = 0.5, 1e-3
_SIZES = (BLUE, ORANGE, PURPLE, VERMILION, SKY, GREY)
_MULTIPLES = "o^sDvP"
_LEAST_OVERHEAD = 0.003
_ROOM = 1.7


def plot_levels(study, title, context):
    """Idle share of the time by formula, by table, and simulated without and with the network: a row a schedule.

    Parameters
    ----------
    study : DataFrame
        From `studies.field_study`, of one size and system.
    title, context : str
        The point of the figure, and what it shows; see `style.context`.

    Returns
    -------
    matplotlib Figure
    """
    rows = study.sort_values(["table_bubble_ratio", "idle_without_network"], ignore_index=True)
    figure, axis = plt.subplots(figsize=(6.4, 0.27 * len(rows) + 1.5))
    shares = rows[list(_LEVELS)]
    axis.hlines(rows.index, shares.min(axis=1), shares.max(axis=1), color="#bbbbbb", lw=1.2, zorder=1)
    for column, style in _LEVELS.items():
        axis.plot(rows[column], rows.index, ls="", **style)
    _schedule_axis(axis, rows.schedule)
    axis.set(xlabel="idle share of the total time", xlim=(0, None))
    axis.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return titled(figure, title, context)


def plot_places(table, headings, title, context):
    """The place of every schedule by each level and on each system, as numbers on colours.

    Parameters
    ----------
    table : DataFrame
        From `studies.level_rank_table`.
    headings : dict of str to str
        What the columns of systems are called.
    title, context : str
        The point of the figure, and what it shows; see `style.context`.

    Returns
    -------
    matplotlib Figure
    """
    columns = [name for name in table if name not in ("schedule", "family")]
    figure, axis = plt.subplots(figsize=(0.62 * len(columns) + 2.3, 0.25 * len(table) + 1.7))
    places = table[columns].to_numpy(dtype=float)
    picture = axis.pcolormesh(places, cmap="cividis_r", edgecolors="white", lw=0.8)
    for row, column in np.argwhere(~np.isnan(places)):
        _write(axis, picture, row, column, f"{places[row, column]:.0f}", places[row, column])
    _grid_axes(axis, table.schedule, [headings.get(name, name.replace(" ", "\n")) for name in columns])
    return titled(figure, title, context)


def plot_agreement(ranks, title, context):
    """Rank correlation of table and time over the length of a transfer, a mark a size and system.

    Parameters
    ----------
    ranks : DataFrame
        From `studies.level_rank_study`.
    title, context : str
        The point of the figure, and what it shows; see `style.context`.

    Returns
    -------
    matplotlib Figure
    """
    figure, axis = plt.subplots(figsize=(6.4, 3.9))
    multiples = sorted((ranks.microbatches // ranks.stages).unique())
    for colour, (size, of_size) in zip(_SIZES, ranks.groupby("stages"), strict=False):
        for marker, multiple in zip(_MULTIPLES, multiples, strict=False):
            rows = of_size[of_size.microbatches == multiple * size]
            axis.plot(rows.comm_over_forward, rows.table_time, ls="", marker=marker, color=colour, mec="white", mew=0.5)
    without = ranks.table_without_network.median()
    axis.axhline(without, color="black", lw=1.2, ls=(0, (4, 2)))
    axis.axhline(0, color="black", lw=0.8)
    axis.set(xscale="log", xlabel="one transfer over one forward, c / F", ylabel="Kendall's tau, table and time")
    axis.set_ylim(min(-0.3, ranks.table_time.min() - 0.05), 1.02)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    sizes = zip(_SIZES, sorted(ranks.stages.unique()), strict=False)
    handles = [plt.Line2D([], [], ls="", marker="o", color=colour, label=f"S = {size}") for colour, size in sizes]
    said = ["B = S" if multiple == 1 else f"B = {multiple} S" for multiple in multiples]
    marks = zip(_MULTIPLES, said, strict=False)
    handles += [plt.Line2D([], [], ls="", marker=mark, color="#555555", label=text) for mark, text in marks]
    handles.append(plt.Line2D([], [], color="black", lw=1.2, ls=(0, (4, 2)), label="without a network, median"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return titled(figure, title, context)


def plot_advantages(table, lost, headings, title, context):
    """Time relative to a base schedule: promised by the table, without a network, and on systems.

    Parameters
    ----------
    table, lost : DataFrame
        From `studies.advantage_table`.
    headings : dict of str to str
        What the columns of systems are called.
    title, context : str
        The point of the figure, and what it shows; see `style.context`.

    Returns
    -------
    matplotlib Figure
        Cells in which a smaller bubble is no shorter time have a frame.
    """
    columns = list(lost)
    figure, axis = plt.subplots(figsize=(0.72 * len(columns) + 2.2, 0.26 * len(table) + 2.0))
    values = table[columns].to_numpy(dtype=float)
    norm = TwoSlopeNorm(0, -_MOST, _MOST)
    picture = axis.pcolormesh(values, cmap="PuOr_r", norm=norm, edgecolors="white", lw=0.8)
    for row, column in np.ndindex(values.shape):
        number = values[row, column]
        _write(axis, picture, row, column, _signed(number), np.clip(number, -_MOST, _MOST))
        if lost[columns[column]].iat[row]:
            axis.add_patch(plt.Rectangle((column + 0.06, row + 0.08), 0.88, 0.84, fill=False, ec="black", lw=1.3))
    _grid_axes(axis, table.schedule, [headings.get(name, name.replace(" ", "\n")) for name in columns])
    handle = plt.Rectangle(
        (0, 0), 1, 1, fill=False, ec="black", lw=1.3, label="smaller bubble by the table, no shorter time"
    )
    figure.legend(handles=[handle], loc="outside lower center")
    return titled(figure, title, context)


def plot_fronts(fronts, headings, title, context):
    """Time against memory of every schedule and B, the front as a stepped line with names: one panel a system.

    Parameters
    ----------
    fronts : DataFrame
        From `studies.front_study`, of one S.
    headings : dict of str to str
        What the systems' panels are called.
    title, context : str
        The point of the figure, and what it shows; see `style.context`.

    Returns
    -------
    matplotlib Figure
    """
    systems = list(dict.fromkeys(fronts.system))
    figure, axes = plt.subplots(len(systems), 1, figsize=(6.6, 2.9 * len(systems) + 0.7), squeeze=False, sharex=True)
    styles = family_styles(fronts.family)
    for axis, system in zip(axes[:, 0], systems, strict=True):
        here = fronts[fronts.system == system]
        for name, style in styles.items():
            rows = here[here.family == name]
            axis.plot(rows.total_bytes / 2**40, rows.t_sim_s, ls="", **style | {"alpha": 0.75})
        best = here[here.front].sort_values(["total_bytes", "t_sim_s"])
        axis.step(best.total_bytes / 2**40, best.t_sim_s, where="post", color="black", lw=1.3, zorder=1)
        _name_front(axis, best)
        axis.set(xscale="log", yscale="log", title=headings.get(system, system), ylabel="T_sim (s)")
        held, seconds = here.total_bytes / 2**40, here.t_sim_s  # room for names, to the left and below
        axis.set(xlim=(held.min() / _ROOM, held.max() * 1.1), ylim=(seconds.min() / 1.15, seconds.max() * 1.1))
        for scale in (axis.xaxis, axis.yaxis):
            _plain_ticks(scale)
    axes[-1, 0].set_xlabel("bytes on the fullest rank (TiB)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    handles.append(plt.Line2D([], [], color="black", lw=1.3))
    figure.legend(handles, [*labels, "the front; a name and its B"], loc="outside lower center", ncols=2)
    return titled(figure, title, context)


def _name_front(axis, best):
    """A name at every point of the front; schedules that share a point share it."""
    for (held, seconds), rows in best.groupby([best.total_bytes.round(-6), best.t_sim_s.round(9)], sort=False):
        name = " = ".join(rows.schedule) + f", B = {rows.microbatches.iloc[0]}"
        at = (held / 2**40, seconds)
        axis.annotate(name, at, (-4, -4), textcoords="offset points", fontsize=7.5, ha="right", va="top")


def _plain_ticks(scale):
    """Ticks of a logarithmic axis at 1, 2 and 5, written as plain numbers."""
    scale.axes.margins(0.08)
    low, high = scale.get_view_interval()
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    scale.set_major_locator(
        FixedLocator(np.outer(decades, [1, 1.5, 2, 3, 5, 7] if high < 9 * low else [1, 2, 5]).ravel())
    )
    scale.set_minor_locator(NullLocator())
    scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def plot_front_map(best, headings, title, context):
    """How far each schedule stays behind the front at each S and system; a dot where it is on it.

    Parameters
    ----------
    best : DataFrame
        From `studies.nearest`.
    headings : dict of str to str
        What the systems are called.
    title, context : str
        The point of the figure, and what it shows; see `style.context`.

    Returns
    -------
    matplotlib Figure
    """
    columns = [(system, size) for system in dict.fromkeys(best.system) for size in sorted(best.stages.unique())]
    behind = best.pivot(index="schedule", columns=["system", "stages"], values="behind").reindex(columns=columns)
    there = best.pivot(index="schedule", columns=["system", "stages"], values="front").reindex(columns=columns)
    order = (there == True).sum(axis=1) - behind.mean(axis=1)  # noqa: E712 - missing ones are neither
    behind, there = (table.loc[order.sort_values(ascending=False, kind="stable").index] for table in (behind, there))
    figure, axis = plt.subplots(figsize=(0.5 * len(columns) + 2.2, 0.26 * len(behind) + 1.9))
    values = np.maximum(behind.to_numpy(dtype=float), _NEAR)
    picture = axis.pcolormesh(values, cmap="cividis_r", norm=LogNorm(0.01, 1, clip=True), edgecolors="white", lw=0.8)
    for row, column in np.argwhere(~np.isnan(values)):
        on_front = there.iat[row, column] == 1
        text = "●" if on_front else "<1%" if values[row, column] < 0.01 else f"{values[row, column]:.0%}"
        _write(axis, picture, row, column, text, np.clip(values[row, column], 0.01, 1))
    _grid_axes(axis, behind.index, [f"S = {size}" for _, size in columns], rotation=90)
    number = len(columns) // len(dict.fromkeys(best.system))
    for place, system in enumerate(dict.fromkeys(best.system)):
        axis.text((place + 0.5) * number, -2.3, headings.get(system, system), ha="center", va="bottom", fontsize=8.5)
        axis.axvline(place * number, color="black", lw=1)
    return titled(figure, title, context)


def plot_worth(relative, table, marks, title, context):
    """Time relative to a base over the length of a transfer: a strip a schedule, its bubble and messages beside it.

    Parameters
    ----------
    relative, table : DataFrame
        From `studies.message_study`.
    marks : sequence of float
        Values of c/F to mark, such as those of systems.
    title, context : str
        The point of the figure, and what it shows; see `style.context`.

    Returns
    -------
    matplotlib Figure
    """
    strips = relative.pivot(index="schedule", columns="comm_over_forward", values="relative").loc[table.schedule]
    figure, axis = plt.subplots(figsize=(6.8, 0.27 * len(table) + 1.9))
    logs = np.log(strips.columns.to_numpy())
    edges = np.exp(np.concatenate(([logs[0]], (logs[1:] + logs[:-1]) / 2, [logs[-1]])))
    rows = np.arange(len(strips) + 1)
    values = np.clip(strips.to_numpy(), -_MOST, _MOST)
    picture = axis.pcolormesh(edges, rows, values, cmap="PuOr_r", norm=TwoSlopeNorm(0, -_MOST, _MOST), rasterized=True)
    for row in range(1, len(strips)):
        axis.axhline(row, color="white", lw=1.5)
    for mark in marks:
        axis.axvline(mark, color="#444444", lw=0.7, ls=":")
    for row, until in enumerate(table.worth_until):
        if edges[0] <= until <= edges[-1]:
            axis.plot([until, until], [row, row + 1], color="black", lw=2)
    texts = [f"{one.schedule}  {one.bubble:.0%}, \u00d7{one.over_base:.3g}" for one in table.itertuples()]
    _schedule_axis(axis, texts, 0.5)
    axis.set(xscale="log", xlabel="one transfer over one forward, c / F", xlim=(edges[0], edges[-1]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bar = figure.colorbar(picture, ax=axis, location="bottom", shrink=0.6, aspect=40, extend="both")
    bar.ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    bar.set_label("time relative to the base", fontsize=8.5)
    return titled(figure, title, context)


def plot_convergence(study, headings, title, context):
    """Time over the computing time alone, less 1, over B: one row a family, one column a system.

    Parameters
    ----------
    study : DataFrame
        From `studies.field_study`, of one S.
    headings : dict of str to str
        What the systems' columns are called.
    title, context : str
        The point of the figure, and what it shows; see `style.context`.

    Returns
    -------
    matplotlib Figure
    """
    systems, families = list(dict.fromkeys(study.system)), list(family_styles(study.family))
    size = (2.0 * len(systems) + 1.9, 1.5 * len(families) + 0.9)
    figure, axes = plt.subplots(len(families), len(systems), figsize=size, sharex=True, sharey=True, squeeze=False)
    overhead = study.assign(overhead=(1 / (1 - study.idle_ratio) - 1).clip(lower=_LEAST_OVERHEAD))
    for row, name in enumerate(families):
        rows = overhead[overhead.family == name]
        for axis, system in zip(axes[row], systems, strict=True):
            for schedule, style in style_of(sorted(rows.schedule.unique())).items():
                points = rows[(rows.system == system) & (rows.schedule == schedule)]
                axis.plot(points.microbatches, points.overhead, **style | {"ms": 4})
            axis.set(xscale="log", yscale="log")
            axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            axis.tick_params(labelsize=7.5)
        axes[row, 0].set_ylabel(name.replace(", ", ",\n"), fontsize=8)
        handles, labels = axes[row, 0].get_legend_handles_labels()
        axes[row, -1].legend(handles, labels, loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=7.5)
    for axis, system in zip(axes[0], systems, strict=True):
        axis.set_title(headings.get(system, system), fontsize=9)
    for axis in axes[-1]:
        counts = sorted(study.microbatches.unique())
        axis.set_xticks(counts, [str(count) for count in counts])
        axis.minorticks_off()
        axis.set_xlabel("microbatches B", fontsize=8.5)
    return titled(figure, title, context)


def _write(axis, picture, row, column, text, value):
    """A text in the middle of a cell, black or white by what lies below it."""
    red, green, blue, _ = picture.cmap(picture.norm(value))
    colour = "black" if 0.3 * red + 0.6 * green + 0.1 * blue > 0.5 else "white"
    axis.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=8, color=colour)


def _signed(ratio):
    """A ratio in whole percent with its sign; none where it rounds to nothing."""
    text = f"{ratio:+.0%}"
    return "0%" if text in ("+0%", "-0%") else text.replace("-", "\u2212")


def _grid_axes(axis, rows, columns, rotation=0):
    axis.set_yticks(np.arange(len(rows)) + 0.5, rows, fontsize=8.5)
    axis.set_xticks(np.arange(len(columns)) + 0.5, columns, fontsize=8, rotation=rotation)
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)
    axis.invert_yaxis()


def _schedule_axis(axis, names, shift=0.0):
    axis.set_yticks(np.arange(len(names)) + shift, names, fontsize=8.5)
    axis.set_ylim(len(names) - 0.5 + shift, -0.5 + shift)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="y", visible=False)
    axis.spines["left"].set_visible(False)
