"""Time against memory: what splits and placements take, and which of them nothing beats on both."""

from matplotlib import pyplot as plt
from matplotlib.ticker import PercentFormatter

from ppmodel.plot.style import BLUE, GREY, VERMILION, YELLOW, titled

_FAMILIES = [  # the small families lie above the large ones, and both of the small can be seen
    {"c": VERMILION, "marker": "o", "s": 20, "edgecolors": "white", "zorder": 5},
    {"c": YELLOW, "marker": "D", "s": 58, "edgecolors": "#555555", "zorder": 4},
    {"c": BLUE, "marker": "v", "s": 20, "edgecolors": "white", "zorder": 3},
    {"c": GREY, "marker": ".", "s": 26, "edgecolors": "none", "zorder": 2},
]
_SLOWER, _HIGHER = 0.5, 0.3
_ROOM = 0.03


def plot_frontier(points, title, context):
    """Peak of activations over simulated time, both relative to symmetric Chimera, one panel an S.

    The stepped line is the frontier; the star, where two lines cross, symmetric Chimera. Points more than 50 %
    slower or 30 % higher than it are outside the panels.

    Parameters
    ----------
    points : DataFrame
        From `studies.frontier_study`.
    title, context : str
        The point of the figure, and what it shows; see `context`.

    Returns
    -------
    matplotlib Figure
    """
    sizes = list(dict.fromkeys(points.stages))
    shown = points[(points.relative_time <= _SLOWER) & (points.relative_peak <= _HIGHER)]
    figure, axes = plt.subplots(
        1, len(sizes), figsize=(2.9 * len(sizes) + 0.6, 4.2), sharex=True, sharey=True, squeeze=False
    )
    handles = {}
    for axis, size in zip(axes[0], sizes, strict=True):
        _panel(axis, shown[shown.stages == size], list(dict.fromkeys(points.family)))
        axis.set_title(f"S = {size}, B = {points[points.stages == size].microbatches.iloc[0]}")
        handles |= dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
    low = shown[["relative_time", "relative_peak"]].min().clip(upper=-0.1) - _ROOM
    axes[0, 0].set(xlim=(low.iloc[0], _SLOWER + _ROOM), ylim=(low.iloc[1], _HIGHER + _ROOM))
    axes[0, 0].set_ylabel("peak activations relative to\nsymmetric Chimera (%)")
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=3)
    return titled(figure, title, context)


def _panel(axis, points, families):
    """One S: its families, the frontier, and symmetric Chimera to read them against."""
    for family, style in zip(families, _FAMILIES, strict=False):
        rows = points[points.family == family]
        axis.scatter(rows.relative_time, rows.relative_peak, linewidths=0.4, label=family, **style)
    best = points[points.frontier].sort_values("relative_time")
    axis.step(best.relative_time, best.relative_peak, where="post", color="black", lw=1.5, zorder=2.5, label="frontier")
    axis.axhline(0, color="black", lw=0.7, zorder=1)
    axis.axvline(0, color="black", lw=0.7, zorder=1)
    axis.plot(0, 0, marker="*", ms=12, mfc="white", mec="black", ls="", zorder=6, label="symmetric Chimera")
    axis.set_xlabel("T_sim relative to\nsymmetric Chimera (%)")
    for scale in (axis.xaxis, axis.yaxis):
        scale.set_major_formatter(PercentFormatter(1, decimals=0))
