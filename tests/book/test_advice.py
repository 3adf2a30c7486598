"""What two pages say to run: the same base, overlap and rule, and sentences that follow from them."""

import json
from dataclasses import replace
from pathlib import Path

import nbformat
import pandas as pd
import pytest

import ppmodel
from ppbook.advice import UNKNOWN, advise, certainty_on
from ppbook.certainty import EQUAL, LIKELY, TIE, WITHIN
from ppbook.overlap import MEGATRON, OVERLAP, command_switch, compared, hidden_by, hides_in_backward, in_words
from ppbook.parameters import declared
from ppmodel.schedules.cases import as_case
from ppmodel.specs import load_layout

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
ROW = {
    "pp": 4,
    "tp": 2,
    "cp": 1,
    "ep": 1,
    "dp": 1,
    "microbatch_size": 1,
    "recompute": "none",
    "peak_memory_bytes": 1,
    "room": "yes",
}


def defaults(name):
    """The parameters of a notebook."""
    own = declared(nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4))
    return {key: one.value for key, one in own.items()}


def test_both_pages_try_what_the_first_page_names():
    """One base; of the first page's layouts and schedules none is missing on the other."""
    take, own = defaults("take"), defaults("your-system")
    assert (take["base"], take["p2p"]) == (own["base"], own["p2p"])
    assert all(set(take[name]) <= set(own[name]) for name in ("pp", "tp", "cp"))
    tried = {as_case(one).name for one in [*ppmodel.names(), *own["more_schedules"]]}
    assert {as_case(one).name for one in take["schedules"]} <= tried
    asked = list(zip(take["models"], take["systems"], take["gpus"], take["global_batch"], strict=True))
    layout = load_layout(own["layout"])
    assert (own["model"], own["system"], layout.gpus, layout.global_batch) in asked
    assert (layout.zero, layout.sequence_parallel) == (take["zero"], True)


def test_a_layout_in_a_file_is_the_same_layout_in_words():
    """What one page says of GPUs and batch in a file, the other says in arguments: the same seconds."""
    words = {"global_batch": 1024, "zero": 1, "sequence_parallel": True}
    from_file = {"layout": replace(load_layout("gpus_64"), title="", pp=None, gpus=None)}
    found = [
        compared(["1f1b", "dualpipev", "zb-v"], 8, tp=2, cp=4, dp=1, model="llama3_70b", system="h100", **given)
        for given in (words, from_file)
    ]
    columns = ["label", "iteration_s", "tensor_s", "peak_memory_bytes"]
    pd.testing.assert_frame_equal(*(frame[columns] for frame in found))


def test_each_schedule_hides_what_a_framework_would():
    """Whole backwards do and split ones do not; without tensor parallelism there is nothing to hide."""
    given = {"model": "llama3_8b", "system": "h100", "global_batch": 16, "sequence_parallel": True}
    both = ["1f1b", "zb-v"]
    assert [hides_in_backward(name) for name in both] == [True, False]
    how = {way: compared(both, 2, way, tp=2, **given).iteration_s.tolist() for way in OVERLAP}
    assert how[MEGATRON] == [
        ppmodel.compare("1f1b", 2, tp=2, overlap_backward=True, **given).iteration_s[0], how["nothing"][1]
    ]  # fmt: skip
    assert how["everything"][0] < how[MEGATRON][0] < how["nothing"][0]
    alone = [compared(both, 2, way, tp=1, **given).iteration_s.tolist() for way in OVERLAP]
    assert alone[0] == alone[1] == alone[2]


@pytest.mark.parametrize(
    ("stated", "like", "assumed"),
    [({}, MEGATRON, True), ({"overlap_backward": True}, MEGATRON, False),
     ({"overlap_backward": False}, "nothing", False),
     ({"overlap_tensor": True}, "everything", False)],
)  # fmt: skip
def test_what_a_layout_states_is_kept(tmp_path, stated, like, assumed):
    """What its file says of the overlap holds; what it leaves open is assumed, and the words say so."""
    values = {"tp": 2, "dp": 1, "global_batch": 16, "sequence_parallel": True} | stated
    said = {name: {"value": value, "kind": "our choice", "source": "a test"} for name, value in values.items()}
    (tmp_path / "mine.yaml").write_text(json.dumps({"title": "mine"} | said))
    layout = load_layout(tmp_path / "mine.yaml")
    assert ("assumed" in in_words(layout), command_switch(layout) == " --overlap-backward") == (assumed, assumed)
    given = {"tp": 2, "model": "llama3_8b", "system": "h100"}
    words = {"dp": 1, "global_batch": 16, "sequence_parallel": True}
    ours = compared(["1f1b", "zb-v"], 2, hidden_by(layout), layout=layout, **given).iteration_s.tolist()
    assert ours == compared(["1f1b", "zb-v"], 2, like, **words, **given).iteration_s.tolist()


def frame(*rows):
    """Points that fit: schedule and seconds, and what differs from `ROW`."""
    return pd.DataFrame(
        [
            ROW | {"schedule": name, "label": as_case(name).label, "iteration_s": time} | other
            for name, time, other in rows
        ]
    )


@pytest.mark.parametrize(
    ("word", "today"),
    [(TIE, "Stay with 1F1B"), (WITHIN, "Stay with 1F1B"), (LIKELY, "Try ZB-V"), (UNKNOWN, "Try ZB-V")],
)
def test_only_a_sure_saving_is_worth_a_change(word, today):
    """What no framework runs is not for today, however fast; it is named with what it needs."""
    fits = frame(("1f1b", 10.0, {}), ("zb-v", 9.0, {}), ("dualpipev", 8.0, {}))
    now, fastest = advise(fits, ["1F1B"], lambda _: word)
    assert now.startswith(today)
    assert fastest.startswith("Fastest in the model is DualPipeV")
    assert "20.0 %" in fastest
    assert "hides the collectives" in fastest


def test_a_tight_base_has_another_beside_it_and_none_is_said():
    """The fastest base that is not tight; and nothing to say where no base fits."""
    fits = frame(("1f1b", 10.0, {"room": "tight"}), ("1f1b", 11.0, {"tp": 4, "ep": 8}))
    now, fastest = advise(fits, ["1F1B"], lambda _: TIE)
    assert "tight; 10 s), or, if that does not fit, 1F1B (pp 4, tp 4, dp 1, ep 8" in now
    assert fastest == "Nothing that fits is faster in the model."
    assert advise(fits, ["GPipe"], lambda _: TIE)[0].startswith("In none of the layouts")


def test_no_measured_runs_are_no_certainty():
    """A kind of GPU that no fit has seen: a small saving is a tie, a larger one is not judged."""
    assert certainty_on("mi300x")(2 * EQUAL) == UNKNOWN
    assert certainty_on("h100")(EQUAL / 2) == certainty_on("mi300x")(EQUAL / 2) == TIE
