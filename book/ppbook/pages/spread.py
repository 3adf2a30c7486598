"""A picture of a run's layout: the model's stages, the ranks that hold them, their GPUs, and the replicas."""

import re
from textwrap import fill

from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from ppmodel.plot import style
from ppmodel.plot.palette import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, YELLOW
from ppmodel.plot.themes import ON_LIGHT

EDGE_COLOURS = {"tensor": VERMILION, "pipeline": BLUE, "data": GREEN}
"""What passes inside a rank, between stages, and between replicas."""

_RANK_COLOURS = (SKY, YELLOW, PURPLE, ORANGE)
_UNIT = re.compile(r"(?<=\d) (?=[KMGTP]i?B)")  # stays on the line of its number
_MOST_RANKS, _MOST_GPUS, _MOST_REPLICAS = 4, 16, 2
_HEAD, _UNDER, _GAP, _LINE = 0.2, 0.27, 0.34, 0.13  # inches: a rank's name, its collectives, the way to the next; text
_SMALL, _TINY = 7.5, 6.8  # points of text
_LETTER, _NARROW_LETTER, _BOLD_LETTER, _DIGIT = 4.05, 3.7, 4.5, 0.66  # points of a letter; of a digit's size, its width
_LABELS = {
    "tensor": {"ha": "center", "va": "center", "bbox": {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none"}},
    "pipeline": {"va": "center", "xytext": (6.5, 0)},
    "data": {"ha": "center", "va": "bottom", "xytext": (0, 5)},
}


@style.redrawable
def plot_layout(layout, cuts, edges, captions, title, context="", *, devices_per_node=1):
    """Draw how a model is spread over GPUs, and what passes between them.

    Parameters
    ----------
    layout : LayoutSpec
        With its `pp`. Of more than four ranks the first three and the last are drawn, and of more than two replicas the
        first and the last.
    cuts : dict of str to sequence of (int, int)
        Ways to cut the model, by name: of each stage its layers, and the rank that holds it.
    edges : DataFrame
        What each rank exchanges: its ``group``, one of `EDGE_COLOURS`, its ``rank``, and the ``size`` as text. Those
        of group ``pipeline`` are on the way to the next rank.
    captions : dict of str to str
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
    >>> from ppmodel.clusters.specs import LayoutSpec
    >>> edges = pd.DataFrame({"group": ["pipeline"], "rank": [0], "size": ["128 MiB"]})
    >>> figure = plot_layout(LayoutSpec(pp=2), {"1F1B": [(16, 0), (16, 1)]}, edges, {}, "A rank is one GPU")
    >>> [text.get_text() for text in figure.axes[0].texts if "rank" in text.get_text()]
    ['rank 0', 'rank 1']
    """
    page = _Page(layout, cuts)
    letters = int((style.page_width() - 0.3) * 72 / _LETTER)
    below = {group: fill(_UNIT.sub("\u00a0", text), letters) for group, text in captions.items()}
    bottom = page.top + page.height + 0.17
    height = bottom + sum(_LINE * (text.count("\n") + 1) + 0.05 for text in below.values())
    above = 0.48 if style.is_narrow() else 0.32  # for the context
    figure = plt.figure(figsize=(style.page_width(), height + above))
    figure.set_layout_engine("none")  # not as an argument: files would then be laid out by the default
    page.axis = figure.add_axes((0, 0, 1, height / (height + above)), xlim=(0, style.page_width()), ylim=(height, 0))
    page.axis.axis("off")
    for column, (name, stages) in enumerate(cuts.items()):
        page.draw_cut(0.01 + column * page.cut_step, name, stages)
    sizes = {(edge.group, edge.rank): edge.size for edge in edges.itertuples()}
    for number, replica in enumerate(page.replicas):
        left = page.left + number * (page.width + page.between)
        gpus = f"{layout.replica_gpus} GPU{'s' * (layout.replica_gpus != 1)}"
        heading = f"replica {replica}:{chr(10) if style.is_narrow() else ' '}{gpus}"
        page.axis.text(left, page.top - 0.06, heading, fontsize=_SMALL, va="bottom", fontweight="bold")
        for rank, top in page.ranks.items():
            page.draw_rank(left, top, rank, page.gpus * (replica + layout.dp * rank), devices_per_node)
            page.draw_edges(left, top, rank, sizes, last=replica == page.replicas[-1])
    for group, text in below.items():
        page.axis.plot([0.02, 0.2], [bottom + 0.06] * 2, color=EDGE_COLOURS[group], lw=2.5, solid_capstyle="butt")
        page.axis.text(0.27, bottom, text, fontsize=_SMALL, va="top", linespacing=1.25)
        bottom += _LINE * (text.count("\n") + 1) + 0.05
    return style.titled(figure, title, context)


class _Page:
    """Where things are, in inches from the upper left corner, and how they are drawn there."""

    def __init__(self, layout, cuts):
        phone = style.is_narrow()
        self.gpus = layout.stage_gpus
        self.shown = min(self.gpus, _MOST_GPUS)
        self.columns = min(self.shown, 4 if phone else 8)
        self.replicas = [*range(min(layout.dp, _MOST_REPLICAS) - 1), layout.dp - 1]
        self.cut, self.cut_step, self.between = (0.55, 0.62, 0.52) if phone else (0.92, 1.06, 0.75)
        self.left = len(cuts) * self.cut_step + (0.06 if phone else 0.3)
        columns = len(self.replicas)
        self.width = min((style.page_width() - self.left - 0.02 - self.between * (columns - 1)) / columns, 2.6)
        self.square = min(0.3, (self.width - 0.12) / self.columns)
        under = _UNDER if self.gpus > 1 else 0.06
        self.box = _HEAD + 0.05 - (-self.shown // self.columns) * self.square + under
        self.names = {name: fill(name, int(self.cut * 72 / _NARROW_LETTER), break_long_words=False) for name in cuts}
        self.top = 0.1 + 0.11 * max(2, *(name.count("\n") + 1 for name in self.names.values()))
        ranks = [*range(min(layout.pp, _MOST_RANKS) - 1), layout.pp - 1]
        self.ranks = {rank: self.top + place * (self.box + _GAP) for place, rank in enumerate(ranks)}
        self.height = len(ranks) * self.box + (len(ranks) - 1) * _GAP

    def fill(self, left, top, width, height, colour, edge="#555555"):
        self.axis.add_patch(Rectangle((left, top), width, height, fc=colour, ec=edge, lw=0.7))

    def draw_cut(self, left, name, stages):
        """A column of stages, as high as they have layers, in the colours of their ranks."""
        self.axis.text(left, self.top - 0.06, self.names[name], fontsize=_TINY, va="bottom")
        total, top = sum(layers for layers, _ in stages), self.top
        for stage, (layers, rank) in enumerate(stages):
            high = self.height * layers / total
            self.fill(left, top, self.cut, high, _RANK_COLOURS[rank % len(_RANK_COLOURS)])
            lines = [f"stage {stage}", f"{layers} layer{'s' * (layers != 1)}"][: int(high / _LINE)]
            look = {"fontsize": _TINY, "ha": "center", "va": "center", "color": ON_LIGHT}
            self.axis.text(left + self.cut / 2, top + high / 2, "\n".join(lines), **look)
            top += high

    def draw_rank(self, left, top, rank, first, devices_per_node):
        """A rank's box: its name and node, and its GPUs with their numbers."""
        self.fill(left, top, self.width, self.box, "white")
        self.fill(left, top, self.width, _HEAD, _RANK_COLOURS[rank % len(_RANK_COLOURS)])
        look = {"va": "center_baseline", "color": ON_LIGHT}
        self.axis.text(left + 0.05, top + _HEAD / 2, f"rank {rank}", fontsize=_SMALL, fontweight="bold", **look)
        nodes = sorted({first // devices_per_node, (first + self.gpus - 1) // devices_per_node})
        node = f"node{'s' * (len(nodes) > 1)} {'–'.join(map(str, nodes))}"
        if devices_per_node > 1 and len(f"rank {rank} {node}") * _BOLD_LETTER < (self.width - 0.1) * 72:
            self.axis.text(left + self.width - 0.05, top + _HEAD / 2, node, fontsize=_TINY, ha="right", **look)
        inner, start = 0.88 * self.square, left + (self.width - self.columns * self.square) / 2
        for gpu in range(self.shown):
            row, column = divmod(gpu, self.columns)
            x, y = start + (column + 0.06) * self.square, top + _HEAD + 0.05 + row * self.square
            self.fill(x, y, inner, inner, "#ececec", "#777777")
            text = "…" if gpu == self.shown - 1 < self.gpus - 1 else str(first + gpu)
            size = min(_TINY, 72 * inner / (_DIGIT * len(text)))
            self.axis.text(x + inner / 2, y + inner / 2, text, fontsize=size, ha="center", va="center")

    def draw_edges(self, left, top, rank, sizes, last):
        """Arrows under the GPUs of a rank, to the next rank and, unless it is the last, to the next replica."""
        middle, right, bottom = left + self.width / 2, left + self.width, top + self.box
        half = self.columns * self.square / 2
        ends = {"tensor": ((middle - half, bottom - _UNDER / 2), (middle + half, bottom - _UNDER / 2))}
        if rank != max(self.ranks):
            ends["pipeline"] = ((middle, bottom), (middle, bottom + _GAP))
            if rank + 1 not in self.ranks:
                self.axis.text(middle - 0.09, bottom + _GAP / 2, "…", ha="right", va="center")
        if not last:
            ends["data"] = ((right, top + self.box / 2), (right + self.between, top + self.box / 2))
        for group, (start, end) in ends.items():
            if (group, rank) in sizes:
                arrow = {"arrowstyle": "<|-|>", "color": EDGE_COLOURS[group], "lw": 1.5, "shrinkA": 0, "shrinkB": 0}
                self.axis.annotate("", end, start, arrowprops=arrow | {"mutation_scale": 8})
                look = {"xytext": (0, 0), "textcoords": "offset points", "fontsize": _TINY} | _LABELS[group]
                self.axis.annotate(sizes[group, rank], ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2), **look)
