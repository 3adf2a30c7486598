"""Scatter plots of a frame, with the Pareto front."""

from ppmodel.plot import style
from ppmodel.plot.names import BESIDE, name_ends, name_points
from ppmodel.plot.palette import style_of

_CROWD = 500
"""The most points that are drawn at full size."""


@style.redrawable
def plot_scatter(
    frame, x, y, title, context="", *, group=None, panel=None, name=None, front=None, labels=None, log=("x", "y"),
    limits=None,
):  # fmt: skip
    """Draw points by two numbers, with names and with the Pareto front as a stepped line.

    Parameters
    ----------
    frame : DataFrame
        One row per point.
    x, y : str
        Columns with the two numbers; lower is better.
    title, context : str
        The message of the figure, and what it shows; see `context`.
    group : str, optional
        Column that distinguishes points, by colour and marker. Groups of fewer points lie above larger ones.
    panel : str, optional
        Column that distinguishes the panels.
    name : str, optional
        Column with a name for each point, which may be empty. If the names of a single panel do not fit next to the
        points, they go into a column beside the panel.
    front : str, optional
        Boolean column that says which points are on the Pareto front; see `analysis.pareto_front`.
    labels, log
        As in `plot_lines`.
    limits : dict of str to float, optional
        Vertical reference lines, by their names in the legend.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import ppmodel as pp
    >>> frame = pp.compare(["gpipe", "1f1b"], 4, [4, 8], forward=1, backward=2)
    >>> len(plot_scatter(frame, "makespan_s", "peak_activations", "1F1B holds less", group="label").axes)
    1
    """
    style.require_values(frame, group, panel)
    frame = frame.assign(group="" if group is None else frame[group])
    panels, limits = style.panels_of(frame, panel), limits or {}
    log = [name for name, column in (("x", x), ("y", y)) if name in log and frame[column].min() < frame[column].max()]
    figure, axes = style.panel_grid(len(panels), 1, width=7.0, height=3.2, sharex=True)
    size = 6 if len(frame) <= _CROWD else 3.5
    styles = {label: look | {"ms": size} for label, look in style_of(frame.group).items()}
    layers = sorted(styles, key=lambda label: -(frame.group == label).sum())
    for axis, (panel_name, rows) in zip(axes.flat, panels.items(), strict=False):
        for label in layers:
            points, look = rows[rows.group == label], {name: styles[label][name] for name in ("color", "marker")}
            axis.scatter(points[x], points[y], size**2, lw=size / 12, ec="white", zorder=2, **look)
        if front:
            best = rows[rows[front].astype(bool)].sort_values([x, y])
            axis.plot(best[x], best[y], drawstyle="steps-post", color="black", lw=1.2, zorder=0.95)
        for limit in limits.values():
            axis.axvline(limit, color="black", lw=1.0, ls="--", zorder=0.9)
        _scales(axis, log)
        axis.set(xlabel=style.axis_label(x, labels), ylabel=style.axis_label(y, labels))
        style.panel_title(axis, panel, panel_name, labels)
    style.label_edges(axes, style.axis_label(x, labels))
    if name and front:
        low, high = axes[0, 0].get_xlim()  # of all panels: room for the names
        wider = low * (low / high) ** 0.2 if "x" in log else max(min(low, 0), low - 0.2 * (high - low))
        axes[0, 0].set_xlim(wider, high)
    entries = [look | {"ls": ""} for look in styles.values() if group]
    entries += [{"color": "black", "lw": 1.2, "label": "Pareto front"}] if front else []
    entries += [{"color": "black", "lw": 1.0, "ls": "--", "label": limit} for limit in limits]
    style.legend(figure, entries)
    style.titled(figure, title, context)
    if name:
        figure.draw_without_rendering()  # positions are known after layout
        order = BESIDE[::-1] if front else BESIDE
        for axis, rows in zip(axes.flat, panels.values(), strict=False):
            points = rows[rows[name] != ""].groupby([x, y])[name].agg(lambda names: " = ".join(names.unique()))
            free = name_points(axis, points.to_dict(), order)
            if panel is None and not free:
                for text in list(axis.texts):
                    text.remove()
                name_ends(axis, [(label, point) for point, label in points[::-1].items()])
    return figure


def _scales(axis, log):
    """Logarithmic axes with plain numbers."""
    axis.margins(0.12)
    for side, scale, most in (("x", axis.xaxis, 4), ("y", axis.yaxis, 7)):  # labels stand side by side, or in a column
        if side in log:
            axis.set(**{f"{side}scale": "log"})
            style.log_axis(scale, style.log_ticks(*scale.get_view_interval(), most))
