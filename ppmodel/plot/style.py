"""What all figures share: theme, sizes, titles, axes, legends."""

import re
import warnings
from contextvars import ContextVar, copy_context
from functools import cache, partial, wraps
from textwrap import fill, wrap

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from ppmodel.errors import PPModelError
from ppmodel.files import DATA
from ppmodel.studies.points import COLUMNS, HEADINGS

MARK = {"color": "black", "marker": "D", "ms": 5.5, "mfc": "white", "mew": 1.3, "ls": "", "zorder": 4}
"""The look of what others published, beside our lines and bars."""
_NARROW = 5.0  # inches below which panels stand below each other
_PAGE = ContextVar("inches", default=7.8)
SHORT = 15
"""Letters of a row's name that leave room beside it in a narrow figure; longer ones stand above."""

_TITLE_LETTER, _CONTEXT_LETTER, _PANEL_LETTER, AXIS_LETTER, _LEGEND_LETTER = 6.1, 4.35, 6.0, 5.4, 5.2
"""Points that a letter takes."""

DRAWN = 0.72
"""The share of a panel's place in which its axes are drawn, about."""

_NAME = re.compile(r"(?<![\w/.-])[A-Za-z0-9]+_\w+(?![\w/]|\.\w)")  # not of a file, nor in a path
_EXPONENT, _RAISED = re.compile(r"(\d[\d.]*)e([+-]\d+)"), str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_UNBROKEN = "\xa0"
_COLUMNS = {column.name: column for column in COLUMNS}

warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a box replaces it; tables have the full name
sns.set_theme(
    context="paper", style="whitegrid", palette="colorblind", font="DejaVu Sans",
    rc={
        "figure.dpi": 150, "savefig.dpi": 150, "savefig.bbox": "tight", "svg.hashsalt": "ppmodel",
        "figure.constrained_layout.use": True, "axes.spines.top": False, "axes.spines.right": False,
        "axes.edgecolor": ".6", "axes.titlelocation": "left", "axes.titlesize": 9.5, "grid.color": ".89",
        "grid.linewidth": 0.7, "legend.frameon": False, "text.parse_math": False,
    },
)  # fmt: skip


def is_narrow():
    """Whether figures are drawn with one panel per row, and shorter lines of text."""
    return page_width() < _NARROW


def page_width():
    """The width of a figure in inches: that of a page's text or, within `redrawn`, the one asked for."""
    return _PAGE.get()


def redrawable(plot):
    """Wrap a plot function so that its frame has words for names, and `redrawn` can draw its figures again."""

    @wraps(plot)
    def drawn(*args, **options):
        options |= {name: in_words(given) for name, given in options.items() if isinstance(given, pd.DataFrame)}
        figure = plot(*map(in_words, args), **options)
        figure.again = partial(drawn, *args, **options)
        return figure

    return drawn


def redrawn(figure, width):
    """Draw a figure again at another width; None if it was not drawn by one of our plot functions.

    Parameters
    ----------
    figure : matplotlib Figure
    width : float
        In inches.

    Returns
    -------
    matplotlib Figure or None

    Examples
    --------
    >>> import ppmodel as pp
    >>> from ppmodel.plot import plot_table
    >>> narrow = redrawn(plot_table({"1F1B": pp.build("1f1b", 2, 4)}, "title"), 3.7)
    >>> float(narrow.get_figwidth())
    3.7
    """
    if not hasattr(figure, "again"):
        return None
    context = copy_context()
    context.run(_PAGE.set, width)
    return context.run(figure.again)


def titled(figure, title, context):
    """Set a figure's message above it in bold, and what it shows below that in small type.

    The message is kept as ``figure.point``, for a page's alternative text.
    """
    letters, title = figure.get_figwidth() * 72, in_words(str(title).encode(errors="backslashreplace").decode())
    message, shown = fill(title, int(letters / _TITLE_LETTER)), fill(in_words(context), int(letters / _CONTEXT_LETTER))
    figure.suptitle(shown, x=0.008, ha="left", fontsize=8.5, color=".35")
    figure.text(0.008, 1.0, message, ha="left", va="bottom", fontsize=11.5, fontweight="bold")
    figure.point = title
    if "inline" in plt.get_backend():
        plt.close(figure)  # a notebook would show it twice
    return figure


def context(model=None, p2p=None, allreduce=None, system=None, **sizes):
    """Describe in one line what a figure shows: sizes, model, semantics.

    Parameters
    ----------
    model, p2p, allreduce, system : str, optional
        Names of the model, the communication semantics and the system; those not given are left out.
    **sizes
        Sizes by symbol, such as S and B.

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
    parts += [f"{name}: {in_words(value)}" for name, value in named.items() if value]
    return "; ".join(parts)


def in_words(given):
    """A text, or the texts of a frame, with words for names of systems, models and semantics, but not in paths.

    >>> in_words("at worst +9% on fast_cp_slow_nw"), in_words("systems/fast_cp_slow_nw.yaml"), in_words("h100")
    ('at worst +9% on fast compute, slow network', 'systems/fast_cp_slow_nw.yaml', 'H100')
    """
    if isinstance(given, pd.DataFrame):
        return given.assign(**given.select_dtypes(["object", "string"]).map(in_words).rename(columns=str))
    if not isinstance(given, str):
        return given
    words = _words()
    return words.get(given) or _NAME.sub(lambda name: words.get(name[0], name[0]), given)


@cache
def _words():
    return dict(re.findall(r"^(\w+): (.+)$", (DATA / "words.yaml").read_text(encoding="utf-8"), re.MULTILINE))


def typeset(text):
    """A number with an exponent as people write it; any other text as it is.

    >>> typeset("1.5e-06"), typeset("1e+06"), typeset("0.0e+00"), typeset("12")
    ('1.5·10⁻⁶', '10⁶', '0.0', '12')
    """

    def written(number):
        power = int(number[2])
        return (number[1] != "1") * f"{number[1]}·" + f"10{str(power).translate(_RAISED)}" if power else number[1]

    return _EXPONENT.sub(written, text)


def axis_label(column, labels=None):
    """The axis label of a column, with its unit: from `labels`, or as in `points.COLUMNS`; names need none.

    >>> axis_label("iteration_s"), axis_label("pp"), axis_label("label"), axis_label("bytes", {"bytes": "GiB"})
    ('iteration (s)', 'ranks of the pipeline, S', '', 'GiB')
    """
    if column in (labels or {}) or column not in _COLUMNS:
        return (labels or {}).get(column, column)
    _, kind, unit, heading, doc, _ = _COLUMNS[column]
    label = heading if len(heading) > 1 else f"{doc}, {heading}"
    return "" if kind is str else f"{label} ({unit})" if unit else label


def is_ratio(column):
    """Whether a column's numbers are usually written in percent."""
    return "ratio" in column.split("_") or column == "relative"


def percent_axis(axis):
    """Write the numbers of a matplotlib axis in percent."""
    axis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")


def log_axis(axis, ticks):
    """Plain numbers at these ticks of a logarithmic matplotlib axis, and no others."""
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: typeset(f"{value:g}"))


def log_ticks(low, high, most=4):
    """Between `most` / 2 and `most` round numbers on a logarithmic axis, far enough apart for their labels."""
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for digits in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [tick for tick in np.outer(decades, digits).ravel() if low <= tick <= high]
        if len(ticks) <= most:
            break
    if len(ticks) < most // 2:  # range so small that a logarithmic axis is nearly linear
        ticks = [tick for tick in MaxNLocator(most - 1).tick_values(low, high) if low <= tick <= high]
    return ticks[:: -(-len(ticks) // most)]


def require_values(frame, *columns):
    """Refuse rows without a value in the columns that name panels and lines; None is no column."""
    for column in filter(None, columns):
        if missing := int(frame[column].isna().sum()):
            remedy = f"fill them, as in frame.fillna({{{column!r}: ...}}), or leave them out"
            raise PPModelError("column", column, f"has no value in {missing} of {len(frame)} rows", remedy)


def require_points(frame, values, *places):
    """Refuse several rows that would be drawn at one place.

    Parameters
    ----------
    frame : DataFrame
    values : sequence of str
        Columns that are drawn.
    *places : str or None
        Columns that say where.

    Raises
    ------
    PPModelError
        Names the columns in which such rows differ.

    Examples
    --------
    >>> import ppmodel as pp
    >>> frame = pp.compare("1f1b", [2, 4], [4, 8], forward=1, backward=2)
    >>> require_points(frame, ["makespan_s"], "microbatches", "pp")
    """
    require_values(frame, *places[1:])
    places = [place for place in dict.fromkeys(places) if place is not None]
    double = frame[frame.duplicated(places, keep=False)]
    if not len(double):
        return
    rows = double[(double[places] == double[places].iloc[0]).all(axis=1)]
    inputs = frame.columns[: frame.columns.get_loc("makespan_s")] if "makespan_s" in frame else frame.columns
    differ = [name for name in inputs if name not in (*places, *values) and rows[name].map(str).nunique() > 1]
    given = f"{len(rows)} rows for {', '.join(f'{name} {value}' for name, value in rows[places].iloc[0].items())}"
    rule = f"must have one row per point, but these {'differ in ' + ', '.join(differ) if differ else 'are alike'}"
    remedy = "select one value of each, or draw panels by it" if differ else "drop all but one"
    raise PPModelError("frame", given, rule, remedy)


def panels_of(frame, panel):
    """The rows of each panel, by the value that names it; all rows under None if there is no such column."""
    return {None: frame} if panel is None else dict(list(frame.groupby(panel, sort=False, observed=True)))


def panel_title(axis, panel, name, labels=None):
    """Write a panel's title: a name as it is, a number with the heading of its column."""
    if name is not None:
        heading = (labels or {}).get(panel, HEADINGS.get(panel, panel))
        title = in_words(name) if isinstance(name, str) else f"{heading} = {name}"
        letters = max(12, int(0.8 * axis.figure.get_figwidth() * 72 / axis.get_gridspec().ncols / _PANEL_LETTER))
        parts = title.replace(" ", _UNBROKEN).replace(f",{_UNBROKEN}", ", ")  # broken after commas, if that is enough
        lines = [line for part in parts.split("\n") for line in wrap(part, letters, break_long_words=False)]
        if max(map(len, lines), default=0) > letters:
            lines = [line for part in title.split("\n") for line in wrap(part, letters)]
        axis.set_title("\n".join(lines).replace(_UNBROKEN, " "))


def name_above(axis, names, tops):
    """Write names of rows above them instead of beside, at the left edge of a panel, over lines but not over rows."""
    axis.set_yticks([])
    for name, top in zip(names, tops, strict=True):
        at = {"xycoords": axis.get_yaxis_transform(), "xytext": (0, 3), "textcoords": "offset points"}
        ground = {"facecolor": "white", "lw": 0, "pad": 0.5}
        axis.annotate(name, (0, top), fontsize=8.5, bbox=ground, zorder=2.5, **at)


def letters_across(axis):
    """About how many letters fit below a panel."""
    return int(DRAWN * axis.figure.get_figwidth() * 72 / axis.get_gridspec().ncols / AXIS_LETTER)


def wrapped(name, axis):
    """The name of a horizontal axis, on as many lines as its panel is narrow."""
    return fill(name, max(14, letters_across(axis)))


def panel_grid(count, in_row, *, width=None, height=None, **shared):
    """A figure with panels in rows, one per row where it is narrow; the last row may be incomplete.

    Parameters
    ----------
    count, in_row : int
        Number of panels, and at most how many are in a row.
    width, height : float, optional
        Size of a panel in inches; by default, panels in a single row are higher.
    **shared
        ``sharex`` and ``sharey`` of matplotlib's ``subplots``.

    Returns
    -------
    figure : matplotlib Figure
    axes : ndarray of Axes, shape (rows, columns)
    """
    columns = 1 if is_narrow() else min(in_row, count)
    rows = -(-count // columns)
    width = page_width() - 0.4 if is_narrow() else width or max(2.5, (page_width() - 0.6) / columns)
    height = height or (2.3 if rows > 1 else 2.9 if columns > 1 else 3.3) - 0.15 * is_narrow()
    size = (width * columns + 0.4, height * rows + 0.9)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, **shared)
    for axis in axes.flat[count:]:
        axis.set_visible(False)
    return figure, axes


def label_edges(axes, name):
    """Label panels on the left and at the bottom, above an empty place, and wherever a scale is not shared.

    Parameters
    ----------
    axes : ndarray of Axes, shape (rows, columns)
    name : str
        Label of the horizontal axis.
    """
    for axis in axes.flat:
        axis.label_outer()
        if is_narrow() or len(axis.get_shared_x_axes().get_siblings(axis)) == 1:
            axis.tick_params(labelbottom=True)
        if len(axis.get_shared_y_axes().get_siblings(axis)) == 1:
            axis.tick_params(labelleft=True)
    for above, below in zip(axes[:-1].flat, axes[1:].flat, strict=True):
        if not below.get_visible():
            above.set_xlabel(wrapped(name, above))
            above.tick_params(labelbottom=True)


def legend(figure, entries):
    """Draw one legend for the whole figure, below it, where it hides no data.

    Parameters
    ----------
    figure : matplotlib Figure
    entries : sequence of dict or matplotlib artists
        Looks of lines, or artists, with labels; without any, there is no legend.
    """
    handles = [plt.Line2D([], [], **entry) if isinstance(entry, dict) else entry for entry in entries]
    if handles:
        longest = max(len(handle.get_label()) for handle in handles)
        columns = max(1, int(figure.get_figwidth() * 72 / (_LEGEND_LETTER * longest + 42)))
        columns = -(-len(handles) // -(-len(handles) // columns))  # rows as even as possible
        figure.legend(handles=handles, loc="outside lower center", ncols=columns)
