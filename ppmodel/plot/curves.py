"""Pictures of studies: a line or a bar a schedule, over microbatches or systems."""

from matplotlib import pyplot as plt
from matplotlib.ticker import PercentFormatter

from ppmodel.plot.style import microbatch_axis, style_of, titled


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
