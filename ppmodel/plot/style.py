"""What all figures share: colours that are told apart without red and green (Okabe and Ito), titles, axes."""

import warnings
from itertools import count

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.font_manager import fontManager
from matplotlib.ticker import FuncFormatter, MaxNLocator

BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, YELLOW, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442", "#7F7F7F",
)  # fmt: skip
_STYLES = [  # colour, marker, dash; where lines coincide the later, narrower one leaves the earlier visible
    (BLUE, "o", "-"), (VERMILION, "s", (0, (4, 2))), (GREEN, "^", "-"), (PURPLE, "D", (0, (1, 1.5))),
    (ORANGE, "v", "-."), (SKY, "P", "-"), (GREY, "X", "--"),
]  # fmt: skip
_FAMILIES = {  # of analysis.FAMILIES, so that a family looks the same in every figure
    "one chunk": (BLUE, "o"), "one chunk, split backward": (SKY, "P"), "loop": (ORANGE, "^"),
    "V or waves": (PURPLE, "D"), "two directions": (VERMILION, "s"),
}  # fmt: skip
_FIXED = ("GPipe", "1F1B", "Chimera", "Chimera forward-doubling", "Hanayo W = 2", "eager 1F1B")

_OTHER_SCRIPTS = (  # where one of these is installed, it draws what the font of the figures lacks
    "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans", "IPAexGothic", "IPAGothic", "Hiragino Sans", "Yu Gothic",
    "Microsoft YaHei", "PingFang SC", "WenQuanYi Zen Hei", "Droid Sans Fallback", "Arial Unicode MS", "Unifont",
)  # fmt: skip
_INSTALLED = {font.name for font in fontManager.ttflist}

warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a box stands for it; tables have the whole name
plt.rcParams.update({
    "font.family": ["sans-serif", *(font for font in _OTHER_SCRIPTS if font in _INSTALLED)],
    "figure.dpi": 150, "savefig.dpi": 150, "svg.hashsalt": "ppmodel", "font.size": 9.5, "axes.titlesize": 10.5,
    "axes.titlelocation": "left", "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "savefig.bbox": "tight", "axes.grid": True, "grid.color": "#e3e3e3", "grid.linewidth": 0.7, "legend.frameon": False,
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
    free = _free_styles({_FIXED.index(name) for name in labels if name in _FIXED})
    styles = {}
    for number, name in enumerate(labels):
        colour, marker, dash = _STYLES[_FIXED.index(name)] if name in _FIXED else next(free)
        wide = max(0, 2 - number)
        styles[name] = {
            "color": colour, "marker": marker, "ls": dash, "lw": 1.6 + 0.9 * wide, "ms": 5 + 1.6 * wide, "label": name,
        }  # fmt: skip
    return styles


def _free_styles(taken):
    """Styles without end, no two alike for as long as colours and markers allow; those that are taken come last."""
    markers = [marker for _, marker, _ in _STYLES]
    yield from (style for number, style in enumerate(_STYLES) if number not in taken)
    for step in count(1):
        for number, (colour, _, dash) in enumerate(_STYLES):
            yield colour, markers[(number + step) % len(markers)], dash


def family_styles(families):
    """Marker and colour of each family of schedules, for figures with too many schedules to tell apart.

    Parameters
    ----------
    families : iterable of str
        Of `analysis.FAMILIES`; doubles count once.

    Returns
    -------
    dict of str to dict
        Keywords of matplotlib's ``plot``, in a fixed order: colour, marker, size in points.

    Examples
    --------
    >>> list(family_styles(["loop", "one chunk", "loop"]))
    ['one chunk', 'loop']
    """
    there = [name for name in _FAMILIES if name in set(families)]
    return {name: dict(zip(("color", "marker"), _FAMILIES[name], strict=True)) | {"ms": 5.5} for name in there}


def titled(figure, title, context):
    """Set the point of a figure above it in bold, and what it shows in small type below the title.

    In a notebook the figure is taken from pyplot, which would show it a second time beside the cell's own value.
    """
    figure.suptitle(context, x=0.008, ha="left", fontsize=8.5, color="#555555")
    figure.text(0.008, 1.0, title, ha="left", va="bottom", fontsize=11.5, fontweight="bold")
    if "inline" in plt.get_backend():
        plt.close(figure)
    return figure


def context(model=None, p2p=None, allreduce=None, system=None, **sizes):
    """One line that says what a figure shows: sizes, model, semantics.

    Parameters
    ----------
    model, p2p, allreduce, system : str, optional
        Names of the model, the communication semantics and the system; what is not given is left out.
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
    named = {"model": model, "system": system, "transfers": p2p, "all-reduce": allreduce}
    parts += [f"{name}: {value}" for name, value in named.items() if value]
    return "; ".join(parts)


_LABELS = {
    "pp": "ranks S", "microbatches": "microbatches B", "makespan_s": "T_sim (s)", "busy_s": "computing time (s)",
    "idle_ratio": "idle share of the time", "bubble_ratio_total": "bubble ratio (idle / total)",
    "bubble_ratio_ideal": "bubble ratio (idle / computing)", "bubble_ratio_span": "bubble ratio (idle / longest span)",
    "table_bubble_ratio": "bubble ratio of the table", "peak_activations": "peak activations (microbatches)",
    "peak_memory_bytes": "memory of the most loaded rank (bytes)", "messages": "messages", "comm": "transfer (s)",
    "relative": "T_sim against the base", "system": "", "label": "",
}  # fmt: skip


def axis_label(column, labels=None):
    """The name of a column on an axis, with its unit: from `labels`, a usual one, or the column's own."""
    return (labels or {}).get(column, _LABELS.get(column, column))


def percent_axis(axis):
    """Write a matplotlib axis's numbers in percent."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g}%"))


def panels_of(frame, panel):
    """The rows of each panel, by the value that names it; all rows under None where there is no column of panels."""
    return {None: frame} if panel is None else dict(list(frame.groupby(panel, sort=False, observed=True)))


def panel_title(axis, panel, name, labels=None):
    """Write above a panel what it shows: a name as it is, a number with the name of its column."""
    if name is not None:
        axis.set_title(name if isinstance(name, str) else f"{axis_label(panel, labels)} = {name}", fontsize=9.5)


def log_ticks(low, high, most=4):
    """Round numbers within a logarithmic axis, half of `most` to `most`, far enough apart for their labels."""
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for digits in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [tick for tick in np.outer(decades, digits).ravel() if low <= tick <= high]
        if len(ticks) <= most:
            break
    if len(ticks) < most // 2:  # so narrow that a logarithmic axis is nearly a linear one
        ticks = [tick for tick in MaxNLocator(most - 1).tick_values(low, high) if low <= tick <= high]
    return ticks[:: -(-len(ticks) // most)]


def panel_grid(count, in_row, *, width=None, height=None, share_y=True, share_x=True):
    """A figure of panels in rows, as wide as a page; what is left of the last row stays empty.

    Parameters
    ----------
    count, in_row : int
        Panels, and how many stand in a row at most.
    width, height : float, optional
        Of a panel, in inches; by default those of a single row are higher.
    share_y, share_x : bool or str
        As in matplotlib's ``subplots``.

    Returns
    -------
    figure : matplotlib Figure
    axes : ndarray of Axes, shape (rows, columns)
    """
    columns = min(in_row, count)
    rows = -(-count // columns)
    width = width or max(2.5, 7.2 / columns)
    height = height or (2.3 if rows > 1 else 2.9 if columns > 1 else 3.3)
    size = (width * columns + 0.4, height * rows + 0.9)
    figure, axes = plt.subplots(rows, columns, figsize=size, sharex=share_x, sharey=share_y, squeeze=False)
    for axis in axes.flat[count:]:
        axis.set_visible(False)
    return figure, axes
