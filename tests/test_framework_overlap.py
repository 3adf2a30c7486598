"""What a framework hides: each schedule what it can, and what a layout's file states."""

import json
from dataclasses import replace

import pandas as pd
import pytest

import ppmodel
from ppmodel.analysis.overlap import FRAMEWORKS, OVERLAP, compare_overlapped, hides_in_backward, stated_overlap
from ppmodel.specs import load_layout


def test_a_layout_in_a_file_is_the_same_layout_in_words():
    """What one page says of GPUs and batch in a file, the other says in arguments: the same seconds."""
    words = {"global_batch": 1024, "zero": 1, "sequence_parallel": True}
    from_file = {"layout": replace(load_layout("gpus_64"), title="", pp=None, gpus=None)}
    frames = [
        compare_overlapped(
            ["1f1b", "dualpipev", "zb-v"], 8, tp=2, cp=4, dp=1, model="llama3_70b", system="h100", **given
        )
        for given in (words, from_file)
    ]
    columns = ["label", "iteration_s", "tensor_s", "peak_memory_bytes"]
    pd.testing.assert_frame_equal(*(frame[columns] for frame in frames))


def test_each_schedule_hides_what_a_framework_would():
    """The framework's is what a plain comparison has; without tensor parallelism there is nothing to hide."""
    given = {"model": "llama3_8b", "system": "h100", "global_batch": 16, "sequence_parallel": True}
    both = ["1f1b", "zb-v"]
    assert [hides_in_backward(name) for name in both] == [True, False]
    how = {way: compare_overlapped(both, 2, way, tp=2, **given).iteration_s.tolist() for way in OVERLAP}
    assert how[FRAMEWORKS] == ppmodel.compare(both, 2, tp=2, **given).iteration_s.tolist()
    switched = ppmodel.compare(both, 2, tp=2, overlap_backward=False, **given)
    assert how["nothing"] == switched.iteration_s.tolist()
    assert how["everything"][0] < how[FRAMEWORKS][0] < how["nothing"][0]
    alone = [compare_overlapped(both, 2, way, tp=1, **given).iteration_s.tolist() for way in OVERLAP]
    assert alone[0] == alone[1] == alone[2]


@pytest.mark.parametrize(
    ("stated", "overlap"),
    [({}, FRAMEWORKS), ({"overlap_backward": True}, FRAMEWORKS),
     ({"overlap_backward": False}, "nothing"),
     ({"overlap_tensor": True}, "everything")],
)  # fmt: skip
def test_what_a_layout_states_is_kept(tmp_path, stated, overlap):
    """What its file says of the overlap holds as it does in words; what it leaves open is what the framework hides."""
    values = {"tp": 2, "dp": 1, "global_batch": 16, "sequence_parallel": True} | stated
    document = {name: {"value": value, "kind": "our choice", "source": "a test"} for name, value in values.items()}
    (tmp_path / "mine.yaml").write_text(json.dumps({"title": "mine"} | document))
    layout = load_layout(tmp_path / "mine.yaml")
    given = {"tp": 2, "model": "llama3_8b", "system": "h100"}
    words = {"dp": 1, "global_batch": 16, "sequence_parallel": True}
    ours = compare_overlapped(["1f1b", "zb-v"], 2, stated_overlap(layout), layout=layout, **given).iteration_s.tolist()
    assert stated_overlap(layout) == overlap
    assert ours == ppmodel.compare(["1f1b", "zb-v"], 2, **words, **stated, **given).iteration_s.tolist()
