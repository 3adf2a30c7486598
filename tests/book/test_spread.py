"""The picture of how a model is spread over GPUs."""

from itertools import combinations

import pandas as pd
import pytest
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from ppbook.pages.spread import EDGE_COLOURS, plot_layout
from ppmodel.clusters.specs import LayoutSpec
from ppmodel.plot import redrawn


def boxes(axis):
    return [patch for patch in axis.patches if isinstance(patch, Rectangle) and patch.get_width() > 0]


def drawn_layout(ranks, tp, dp):
    """A layout of equal stages, with edges on every rank."""
    edges = [
        {"group": group, "rank": rank, "size": "9.99 GiB" if group == "data" else "999 MiB"}
        for group, size in {"tensor": tp, "pipeline": ranks, "data": dp}.items()
        for rank in range(ranks)
        if size > 1
    ]
    cuts = {"1F1B: 1 stage per rank": 1, "interleaved 1F1B: 2 chunks per rank": 2}
    stages = {name: [(16, stage % ranks) for stage in range(chunks * ranks)] for name, chunks in cuts.items()}
    words = {group: f"Between these, {group}: " + "many bytes per layer and microbatch, " * 4 for group in EDGE_COLOURS}
    layout, edges = LayoutSpec(pp=ranks, tp=tp, dp=dp), pd.DataFrame(edges)
    return plot_layout(layout, stages, edges, words, "title", "context", devices_per_node=8)


@pytest.mark.parametrize("size", [(4, 8, 2), (2, 1, 1), (8, 16, 128)])
@pytest.mark.parametrize("phone", [False, True])
def test_words_of_a_layout_have_room(size, phone):
    """None lies on another or leaves the figure; each box of a stage or GPU contains its own."""
    figure = drawn_layout(*size)
    figure = redrawn(figure, 3.7) if phone else figure
    figure.draw_without_rendering()
    (axis,) = figure.axes
    words = [(text.get_text(), Text.get_window_extent(text)) for text in axis.texts if text.get_text()]
    for (one, first), (other, second) in combinations(words, 2):
        assert not first.overlaps(second), (one, other)
    rectangles = [box.get_window_extent() for box in boxes(axis)]
    for said, extent in words:
        assert axis.bbox.x0 - 1 <= extent.x0 < extent.x1 <= axis.bbox.x1 + 1, said
        if said.isdigit() or said.startswith("stage"):
            centre = (extent.x0 + extent.x1) / 2, (extent.y0 + extent.y1) / 2
            around = min((box for box in rectangles if box.contains(*centre)), key=lambda box: box.width * box.height)
            assert around.x0 <= extent.x0 < extent.x1 <= around.x1, said


def test_a_layout_is_written_as_it_is_drawn(tmp_path):
    """Twice, without a warning that nothing lays it out, and in one place."""
    figure = drawn_layout(4, 8, 2)
    before = figure.axes[0].get_position().bounds
    for name in ("first.png", "second.svg"):
        figure.savefig(tmp_path / name, bbox_inches="tight")
    figure.draw_without_rendering()
    assert figure.axes[0].get_position().bounds == before


def test_a_layout_numbers_its_gpus():
    """As Megatron-LM does: tensor groups, then replicas, then ranks; a node of eight GPUs by its number."""
    words = [text.get_text() for text in drawn_layout(4, 8, 2).axes[0].texts]
    assert sorted(int(word) for word in words if word.isdigit()) == list(range(64))
    assert [word for word in words if word.startswith("node")] == [f"node {n}" for n in (0, 2, 4, 6, 1, 3, 5, 7)]
    assert sum(word == "999 MiB" for word in words) == 2 * 4 + 2 * 3
    assert sum(word == "9.99 GiB" for word in words) == 4
