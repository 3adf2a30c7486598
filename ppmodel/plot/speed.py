"""Growth of the stages of the work: seconds, and nanoseconds per operation, over the number of operations."""

import numpy as np
from matplotlib import pyplot as plt

from ppmodel.plot.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, titled

_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, GREY)
_MARKERS = "os^DvPX"


def plot_growth(growth, slopes, title, context):
    """Seconds of a call with the fitted line of each stage; beside them nanoseconds per operation.

    Parameters
    ----------
    growth : DataFrame
        From `studies.growth_table`.
    slopes : DataFrame
        From `studies.slope_table`.
    title, context : str
        The point of the figure, and what it shows; see `context`.

    Returns
    -------
    matplotlib Figure
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.9), sharex=True)
    for one, colour, marker in zip(slopes.itertuples(), _COLOURS, _MARKERS, strict=False):
        rows = growth[growth.stage == one.stage]
        points = {"color": colour, "marker": marker, "ls": ""}
        left.plot(rows.operations, rows.median_s, **points)
        left.plot(rows.operations, _fitted(rows, one.slope), color=colour, lw=1.2)
        label = f"{one.stage}, slope {one.slope:.2f}, at the end {one.slope_of_large:.2f}"
        right.plot(rows.operations, rows.ns_per_operation, **{**points, "ls": "-"}, lw=1.2, label=label)
    left.set(xscale="log", yscale="log", xlabel="operations", ylabel="seconds of one call")
    right.set(yscale="log", xlabel="operations", ylabel="ns per operation (and system)")
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return titled(figure, title, context)


def _fitted(rows, slope):
    """The line of this slope through the middle of the points, as least squares has it."""
    size, seconds = np.log(rows.operations), np.log(rows.median_s)
    return np.exp(seconds.mean() + slope * (size - size.mean()))
