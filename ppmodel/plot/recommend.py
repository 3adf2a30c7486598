"""Time against memory of the candidates for a recommendation."""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from ppmodel.plot.style import family_styles, titled

_GIB = 2**30
_LEAST_TICKS, _MOST_TICKS = 2, 4


def plot_candidates(candidates, recommended, limit_bytes, title, context):
    """Simulated time against memory of the fullest rank, a point a candidate, one panel for each S.

    Parameters
    ----------
    candidates : DataFrame
        From `studies.candidate_study`; at least one row.
    recommended : DataFrame
        From `studies.recommend_study`; what it takes is ringed.
    limit_bytes : float
        Drawn as a line; what lies to its right does not fit.
    title, context : str
        The point of the figure, and what it shows; see `context`.

    Returns
    -------
    matplotlib Figure
    """
    sizes = list(dict.fromkeys(candidates.stages))
    figure, axes = plt.subplots(1, len(sizes), figsize=(2.7 * len(sizes) + 0.6, 3.9), sharey=True, squeeze=False)
    for axis, size in zip(axes[0], sizes, strict=True):
        here = candidates[candidates.stages == size]
        for name, style in family_styles(candidates.family).items():
            rows = here[here.family == name]
            axis.plot(rows.total_bytes / _GIB, rows.t_sim_s, ls="none", alpha=0.8, **style)
        taken = recommended[recommended.stages == size]
        axis.plot(taken.take_total_bytes / _GIB, taken.take_t_sim_s, "o", ms=12, mfc="none", mec="black", mew=1.4)
        axis.axvline(limit_bytes / _GIB, color="black", lw=0.9)
        axis.set(title=f"S = {size}{_names(taken)}", xscale="log", xlabel="fullest rank (GiB)")
        axis.xaxis.set_major_locator(FixedLocator(_ticks(*axis.get_xlim())))
        axis.xaxis.set_minor_locator(NullLocator())  # a narrow range would get labels over one another
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    low, high = candidates.t_sim_s.min() / 1.15, candidates.t_sim_s.max() * 1.15
    axes[0, 0].set(ylabel="T_sim (s)", yscale="log", ylim=(low, high))
    axes[0, 0].yaxis.set_major_locator(FixedLocator(_ticks(low, high)))
    axes[0, 0].yaxis.set_minor_locator(NullLocator())
    axes[0, 0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    handles, labels = axes[0, 0].get_legend_handles_labels()
    handles.append(plt.Line2D([], [], color="black", lw=0.9))
    handles.append(plt.Line2D([], [], ls="none", marker="o", ms=10, mfc="none", mec="black", mew=1.4))
    figure.legend(handles, [*labels, "memory limit", "taken"], loc="outside lower center", ncols=4)
    return titled(figure, title, context)


def _names(taken):
    """What a panel's ring is around."""
    return "".join(
        f": {row.take_schedule}, B = {row.take_microbatches:g}"
        for row in taken.dropna(subset="take_t_sim_s").itertuples()
    )


def _ticks(low, high):
    """Two to four round numbers within a logarithmic axis, far enough apart for their labels."""
    decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = [digit * 10.0**decade for decade in decades for digit in digits if low <= digit * 10.0**decade <= high]
        if len(ticks) <= _MOST_TICKS:
            break
    if len(ticks) < _LEAST_TICKS:  # so narrow that a logarithmic axis is nearly a linear one
        ticks = [tick for tick in MaxNLocator(_MOST_TICKS - 1).tick_values(low, high) if low <= tick <= high]
    return ticks[:: -(-len(ticks) // _MOST_TICKS)]
