"""A picture of a run's layout: the model's stages, the ranks that hold them, their GPUs, and the replicas."""

import re
from textwrap import fill

from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from ppmodel.errors import PPModelError
from ppmodel.plot.palette import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, YELLOW
from ppmodel.plot.style import on_phone, page_width, redrawn, titled
from ppmodel.plot.themes import ON_LIGHT

EDGE_COLOURS = {"tensor": VERMILION, "pipeline": BLUE, "data": GREEN}
"""What passes inside a rank, between stages, and between replicas."""

_HELD = (SKY, YELLOW, PURPLE, ORANGE)  # by rank, for its stages
_UNIT = re.compile(r"(?<=\d) (?=[KMGTP]i?B)")  # stays on the line of its number
_MOST_RANKS, _MOST_GPUS, _MOST_REPLICAS = 4, 16, 2
_HEAD, _UNDER, _GAP = 0.2, 0.27, 0.34  # inches: a rank's name, its collectives, the way to the next
_LINE, _LETTER = 0.13, 4.05  # inches and points, of the words below
_SMALL, _TINY, _NARROW_LETTER, _BOLD_LETTER = 7.5, 6.8, 3.7, 4.5  # points
_DIGIT = 0.66  # of a digit's size, its width with some room
_TWO_LINES, _ONE_LINE = 0.26, 0.125  # inches that a stage needs for its name and layers


@redrawn
def plot_layout(layout, cuts, edges, words, title, context="", *, devices_per_node=1):
    """Draw how a model is spread over GPUs, and what passes between them.

    Parameters
    ----------
    layout : LayoutSpec
        With its `pp`. Of more than four ranks the first three and the last are drawn, and of more than two replicas the
        first and the last.
    cuts : dict of str to sequence of (int, int)
        Ways to cut the model, by name: of each stage its layers, and the rank that holds it.
    edges : DataFrame
        What each rank exchanges: its ``group``, one of `EDGE_COLOURS`, its ``rank``, and the ``size`` in words. Those
        of group ``pipeline`` are on the way to the next rank.
    words : dict of str to str
        What passes in each group, below the picture.
    title, context : str
        As in `plot_lines`.
    devices_per_node : int
        GPUs on a node, which are numbered as in Megatron-LM.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import pandas as pd
    >>> from ppmodel.specs import LayoutSpec
    >>> edges = pd.DataFrame({"group": ["pipeline"], "rank": [0], "size": ["128 MiB"]})
    >>> figure = plot_layout(LayoutSpec(pp=2), {"1F1B": [(16, 0), (16, 1)]}, edges, {}, "A rank is one GPU")
    >>> [text.get_text() for text in figure.axes[0].texts if "rank" in text.get_text()]
    ['rank 0', 'rank 1']
    """
    if not cuts:
        raise PPModelError("cuts", cuts, "must have at least one way to cut the model", "give the stages of a schedule")
    place = _Places(layout, cuts)
    letters = int((page_width() - 0.3) * 72 / _LETTER)
    below = [(group, fill(_UNIT.sub("\u00a0", text), letters)) for group, text in words.items()]
    height = place.top + place.height + 0.17 + sum(_LINE * (text.count("\n") + 1) + 0.05 for _, text in below)
    above = 0.48 if on_phone() else 0.32  # for the context
    figure = plt.figure(figsize=(page_width(), height + above))
    figure.set_layout_engine("none")  # not as an argument: files would then be laid out by the default
    axis = figure.add_axes((0, 0, 1, height / (height + above)), xlim=(0, page_width()), ylim=(height, 0))
    axis.axis("off")
    for column, stages in enumerate(cuts.values()):
        _draw_cut(axis, place, column, stages)
    labels = {(row.group, row.rank): row.size for row in edges.itertuples()}
    for replica in place.replicas:
        _draw_replica(axis, place, layout, replica, labels, devices_per_node)
    _draw_data(axis, place, labels)
    _write_below(axis, below, place.top + place.height + 0.17)
    return titled(figure, title, context)


class _Places:
    """Where things are, in inches from the upper left corner."""

    def __init__(self, layout, cuts):
        phone, gpus = on_phone(), min(layout.tp * layout.cp, _MOST_GPUS)
        self.ranks = _shown(layout.pp, _MOST_RANKS)
        self.replicas = _shown(layout.dp, _MOST_REPLICAS)
        self.columns = min(gpus, 4 if phone else 8)
        self.rows = -(-gpus // self.columns)
        self.cut, self.cut_gap = (0.55, 0.07) if phone else (0.92, 0.14)
        self.left = len(cuts) * (self.cut + self.cut_gap) + (0.06 if phone else 0.3)
        self.between = 0.52 if phone else 0.75
        count = len(self.replicas)
        width = (page_width() - self.left - 0.02 - self.between * (count - 1)) / count
        self.width = min(width, 2.6)
        self.square = min(0.3, (self.width - 0.12) / self.columns)
        self.box = _HEAD + 0.05 + self.rows * self.square + _UNDER * (gpus > 1) + 0.06 * (gpus == 1)
        letters = int(self.cut * 72 / _NARROW_LETTER)
        self.names = [fill(name, letters, break_long_words=False) for name in cuts]
        self.top = 0.1 + 0.11 * max(2, *(name.count("\n") + 1 for name in self.names))
        self.height = len(self.ranks) * self.box + (len(self.ranks) - 1) * _GAP

    def of_replica(self, replica):
        return self.left + self.replicas.index(replica) * (self.width + self.between)

    def of_rank(self, rank):
        return self.top + self.ranks.index(rank) * (self.box + _GAP)


def _shown(count, most):
    """The first of so many, and the last."""
    return [*range(min(count, most) - 1), count - 1]


def _counted(number, word):
    return f"{number} {word}{'s' * (number != 1)}"


def _held(rank):
    return _HELD[rank % len(_HELD)]


def _draw_cut(axis, place, column, stages):
    """A column of stages, as high as they have layers, in the colours of their ranks."""
    left, top = 0.01 + column * (place.cut + place.cut_gap), place.top
    axis.text(left, top - 0.06, place.names[column], fontsize=_TINY, va="bottom")
    total = sum(layers for layers, _ in stages)
    for number, (layers, rank) in enumerate(stages):
        high = place.height * layers / total
        axis.add_patch(Rectangle((left, top), place.cut, high, fc=_held(rank), ec="#555555", lw=0.7))
        lines = [f"stage {number}", _counted(layers, "layer")][: (high >= _ONE_LINE) + (high >= _TWO_LINES)]
        if lines:
            centre = left + place.cut / 2, top + high / 2
            axis.text(*centre, "\n".join(lines), fontsize=_TINY, ha="center", va="center", color=ON_LIGHT)
        top += high


def _draw_replica(axis, place, layout, replica, labels, room):
    """A column of ranks, each with its GPUs, and what passes inside and between them."""
    left, middle = place.of_replica(replica), place.of_replica(replica) + place.width / 2
    named = f"replica {replica}:{chr(10) if on_phone() else ' '}{_counted(layout.replica_gpus, 'GPU')}"
    axis.text(left, place.top - 0.06, named, fontsize=_SMALL, va="bottom", fontweight="bold")
    for one, rank in enumerate(place.ranks):
        first = layout.tp * layout.cp * (replica + layout.dp * rank)
        _draw_rank(axis, place, (left, place.of_rank(rank)), rank, (first, layout.tp * layout.cp, room))
        if ("tensor", rank) in labels:
            _arrow(axis, "tensor", *_inside(place, left, rank), labels["tensor", rank])
        if rank != place.ranks[-1] and ("pipeline", rank) in labels:
            end = place.of_rank(rank) + place.box
            _arrow(axis, "pipeline", (middle, end), (middle, end + _GAP), labels["pipeline", rank])
            if place.ranks[one + 1] != rank + 1:
                axis.text(middle - 0.09, end + _GAP / 2, "…", ha="right", va="center")


def _inside(place, left, rank):
    """Where an arrow under all GPUs of a rank begins and ends."""
    bottom, wide = place.of_rank(rank) + place.box - _UNDER / 2, place.columns * place.square
    start = left + (place.width - wide) / 2
    return (start, bottom), (start + wide, bottom)


def _draw_rank(axis, place, corner, rank, gpus):
    """A rank's box: its name and node, and its numbered GPUs."""
    (left, top), (first, count, room) = corner, gpus
    nodes = sorted({first // room, (first + count - 1) // room})
    axis.add_patch(Rectangle(corner, place.width, place.box, fc="white", ec="#555555", lw=0.9))
    axis.add_patch(Rectangle(corner, place.width, _HEAD, fc=_held(rank), ec="#555555", lw=0.9))
    style = {"va": "center_baseline", "color": ON_LIGHT}
    axis.text(left + 0.05, top + _HEAD / 2, f"rank {rank}", fontsize=_SMALL, fontweight="bold", **style)
    at = f"node{'s' * (len(nodes) > 1)} {'–'.join(map(str, nodes))}"
    if room > 1 and len(f"rank {rank} {at}") * _BOLD_LETTER < (place.width - 0.1) * 72:
        axis.text(left + place.width - 0.05, top + _HEAD / 2, at, fontsize=_TINY, ha="right", **style)
    start = left + (place.width - place.columns * place.square) / 2
    for number in range(min(count, _MOST_GPUS)):
        row, column = divmod(number, place.columns)
        x, y = start + column * place.square, top + _HEAD + 0.05 + row * place.square
        inner = 0.88 * place.square
        axis.add_patch(Rectangle((x + 0.06 * place.square, y), inner, inner, fc="#ececec", ec="#777777", lw=0.7))
        said = "…" if number == _MOST_GPUS - 1 < count - 1 else str(first + number)
        centre = x + place.square / 2, y + inner / 2
        fits = 72 * inner / (_DIGIT * len(said))
        axis.text(*centre, said, fontsize=min(_TINY, fits), ha="center", va="center")


def _draw_data(axis, place, labels):
    """The gradients' way between replicas, for each rank."""
    for rank in place.ranks:
        if ("data", rank) in labels and len(place.replicas) > 1:
            start, height = place.left + place.width, place.of_rank(rank) + place.box / 2
            _arrow(axis, "data", (start, height), (start + place.between, height), labels["data", rank])


def _arrow(axis, group, start, end, label):
    """An arrow in both directions, with a size on it or beside it."""
    style = {"arrowstyle": "<|-|>", "color": EDGE_COLOURS[group], "lw": 1.5, "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", end, start, arrowprops=style | {"mutation_scale": 8})
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    look = {
        "tensor": {"ha": "center", "va": "center", "bbox": {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none"}},
        "pipeline": {"va": "center"},
        "data": {"ha": "center", "va": "bottom"},
    }[group]
    axis.text(x + 0.09 * (group == "pipeline"), y - 0.07 * (group == "data"), label, fontsize=_TINY, **look)


def _write_below(axis, below, top):
    """What passes in each group, beside a stroke of its colour."""
    for group, text in below:
        axis.plot([0.02, 0.2], [top + 0.06] * 2, color=EDGE_COLOURS[group], lw=2.5, solid_capstyle="butt")
        axis.text(0.27, top, text, fontsize=_SMALL, va="top", linespacing=1.25)
        top += _LINE * (text.count("\n") + 1) + 0.05
