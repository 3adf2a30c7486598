"""Pictures of noisy runs: where they lie, who is ahead, and what a slow rank costs by its place."""

from matplotlib import pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from ppmodel.plot.style import style_of, titled

_HEIGHT = 0.18
_TIE = 1e-9


def plot_noise(study, title, context):
    """Where the runs of each schedule lie against its own noiseless time: one panel a system and B.

    Parameters
    ----------
    study : DataFrame
        From `studies.noise_study`, with at most two noises: the first is drawn full, the second hollow.
    title, context : str
        The point of the figure, and what it shows; see `style.context`.

    Returns
    -------
    matplotlib Figure
    """
    names = list(style_of(study.schedule))
    figure, axes = _panels(study, "a run's T_sim against the noiseless", 0.28 * len(names) + 0.55)
    noises = list(dict.fromkeys(study[["jitter", "straggling", "slowdown"]].itertuples(index=False, name=None)))
    for axis, point in axes:
        for row in point.itertuples():
            second = noises.index((row.jitter, row.straggling, row.slowdown))
            _draw_runs(axis, row, names.index(row.schedule) + 2 * _HEIGHT * (second - 0.5), style_of(names), second)
        axis.axvline(0, color="black", lw=0.8)
        axis.set_yticks(range(len(names)), names, fontsize=7.5)
        axis.set_ylim(len(names) - 0.4, -0.6)
        axis.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axis.grid(axis="y", visible=False)
    handles = [
        plt.Line2D([], [], **_marker("#444444", n), lw=2.6 - n, label=_said(*noise)) for n, noise in enumerate(noises)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=8)
    return titled(figure, title, context)


def _draw_runs(axis, row, height, styles, second):
    """5 to 95 percent as a thin line, 25 to 75 as a thick one, the median as a marker."""
    base, colour = row.t_sim_s, styles[row.schedule]["color"]
    axis.plot([row.q5_s / base - 1, row.q95_s / base - 1], [height] * 2, color=colour, lw=1.0)
    axis.plot([row.q25_s / base - 1, row.q75_s / base - 1], [height] * 2, color=colour, lw=3.4 - 1.2 * second)
    axis.plot([row.q50_s / base - 1], [height], **_marker(colour, second))


def _marker(colour, second):
    return {"color": colour, "marker": "o", "ms": 4.5, "mfc": "white" if second else colour}


def _said(jitter, straggling, slowdown):
    stragglers = f"; each rank slow by {slowdown:g} in {straggling:.0%} of the runs" if straggling else ""
    return f"jitter {jitter:.0%}{stragglers}"


def plot_ranking(study, title, context):
    """How often each schedule beats the noiseless winner as jitter grows: one panel a system and B.

    Parameters
    ----------
    study : DataFrame
        From `studies.noise_study`, one noise for each jitter. Bands are the intervals.
    title, context : str
        The point of the figure, and what it shows; see `style.context`.

    Returns
    -------
    matplotlib Figure
    """
    figure, axes = _panels(study, "jitter of an operation (percent)")
    jitters = sorted(study.jitter.unique())
    for axis, point in axes:
        for name, style in style_of(study.schedule).items():
            rows = point[(point.schedule == name) & (point.schedule != point.winner)]
            axis.fill_between(rows.jitter, rows.low, rows.high, color=style["color"], alpha=0.18, lw=0)
            axis.plot(rows.jitter, rows.beats_winner, **style | {"ms": 4, "lw": 1.5})
        axis.axhline(0.5, color="black", lw=0.8)
        axis.set_title(f"B = {point.microbatches.iloc[0]}, first: {_first(point)}", fontsize=8.5)
        axis.set(xscale="log", ylim=(-0.04, 1.04))
        axis.xaxis.set_major_locator(FixedLocator(jitters))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}"))
        axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    _legend(figure, study)
    return titled(figure, title, context)


def _first(point):
    """The winner, and those that take as long as it does."""
    return " = ".join(dict.fromkeys([point.winner.iloc[0], *point.schedule[point.over_winner <= _TIE]]))


def plot_slow_ranks(study, title, context):
    """The share of one rank's slowdown that the iteration feels, over the rank: one panel a system and B.

    Parameters
    ----------
    study : DataFrame
        From `studies.slow_rank_study`.
    title, context : str
        The point of the figure, and what it shows; see `style.context`.

    Returns
    -------
    matplotlib Figure
    """
    figure, axes = _panels(study, "the slow rank")
    for axis, point in axes:
        for name, style in style_of(study.schedule).items():
            rows = point[point.schedule == name]
            axis.plot(rows.rank, rows.passed_on, **style | {"ms": 3.5, "lw": 1.5})
        axis.set(ylim=(-0.04, 1.04))
        axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axis.xaxis.get_major_locator().set_params(integer=True)
    _legend(figure, study)
    return titled(figure, title, context)


def _panels(study, xlabel, row_height=1.55):
    """A figure with one row a system and one column a B, and its axes with the rows of the study that belong there."""
    systems, counts = list(dict.fromkeys(study.system)), sorted(study.microbatches.unique())
    size = (2.55 * len(counts) + 0.4, row_height * len(systems) + 1.2)
    figure, grid = plt.subplots(len(systems), len(counts), figsize=size, sharex=True, sharey=True, squeeze=False)
    axes = []
    for (row, system), (column, count) in ((r, c) for r in enumerate(systems) for c in enumerate(counts)):
        axis = grid[row, column]
        axis.set_title(f"B = {count}", fontsize=8.5)
        axis.tick_params(labelsize=7.5)
        if column == 0:
            axis.set_ylabel(system, fontsize=8)
        if row == len(systems) - 1:
            axis.set_xlabel(xlabel, fontsize=8)
        point = study[(study.system == system) & (study.microbatches == count)]
        if point.empty:
            axis.set_visible(False)
        else:
            axes.append((axis, point))
    return figure, axes


def _legend(figure, study):
    handles = [plt.Line2D([], [], **style | {"ms": 4, "lw": 1.5}) for style in style_of(study.schedule).values()]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=8)
