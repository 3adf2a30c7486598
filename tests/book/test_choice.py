"""What is chosen is the fastest of what fits, and what stands beside it."""

import pandas as pd
import pytest

import ppmodel
from ppbook.choice import recommended
from ppbook.claims import judge, load_claims
from ppbook.setting import load_setting
from ppmodel.cli import main
from ppmodel.costs import stages
from ppmodel.metrics import memory
from ppmodel.specs import DATA, load_model, load_system

CASES = ["gpipe", "1f1b", "chimera", ("hanayo", {"waves": 2})]
GIB = 2**30


@pytest.fixture(scope="module")
def candidates():
    return ppmodel.compare(CASES, [4, 8], [8, 16, 24], model="llama3_70b", system="dgx_h100", allreduce="blocking")


def test_bytes_are_those_of_the_most_loaded_rank(candidates):
    """Its total, and the part of its activations; sizes without a schedule have neither."""
    assert candidates.makespan_s.notna().sum() == 3 * 2 * 2 + 1  # B = 24 does not divide the batch, Hanayo has B = S
    row = candidates.query("label == 'Chimera' and pp == 8 and microbatches == 16").iloc[0]
    schedule, model = ppmodel.build("chimera", 8, 16), load_model("llama3_70b")
    held = memory(schedule, model, stages(schedule, model, load_system("dgx_h100")))
    assert row.peak_memory_bytes == held.total.max()
    assert row.activations_bytes == held.activations[held.total.argmax()]


@pytest.mark.parametrize("limit", [3000 * GIB, 5600 * GIB, 6000 * GIB, 50000 * GIB])
def test_the_fastest_that_fits_is_taken(candidates, limit):
    """By exhaustion: nothing that fits is faster, and nothing of another schedule than the next is."""
    chosen = recommended(candidates, limit)
    for pp, rows in chosen.groupby("pp"):
        row = rows.set_index("choice")
        here = candidates[candidates.pp == pp]
        fits = here[here.peak_memory_bytes <= limit]
        assert ("fastest that fits" in row.index) == (not fits.empty)
        assert row.makespan_s["fastest of all"] == pytest.approx(here.makespan_s.min(), rel=1e-9)
        assert row.peak_memory_bytes["least memory"] == here.peak_memory_bytes.min()
        if not fits.empty:
            take = row.loc["fastest that fits"]
            assert take.makespan_s == pytest.approx(fits.makespan_s.min(), rel=1e-9)
            assert take.peak_memory_bytes <= limit
            others = fits[fits.label != take.label].makespan_s
            assert ("next schedule that fits" in row.index) == (not others.empty)
            assert others.empty or row.makespan_s["next schedule that fits"] == pytest.approx(others.min(), rel=1e-9)


def test_without_a_limit_the_memory_of_the_system_is_one(candidates):
    """Nothing fits into 80 GiB, and all of it where a rank has as much as is asked for."""
    assert set(recommended(candidates).choice) == {"fastest of all", "least memory"}
    roomy = recommended(candidates.assign(memory_capacity_bytes=candidates.peak_memory_bytes.max()))
    assert (roomy.choice == "fastest that fits").sum() == 2


def test_more_memory_is_never_slower():
    """The time of what is taken falls, or stays, as the limit rises."""
    schedules = ["1f1b", ("interleaved-1f1b", {"chunks": 2}), ("interleaved-1f1b", {"chunks": 4}), "zb-h1"]
    candidates = ppmodel.compare(schedules, [4, 8], [8, 16], model="gpt3_175b", system="dgx_h100")
    limits = sorted(candidates.peak_memory_bytes.dropna())
    taken = [recommended(candidates, limit).query("choice == 'fastest that fits'") for limit in limits]
    times = pd.DataFrame([rows.set_index("pp").makespan_s for rows in taken], columns=[4, 8])
    assert (times.diff().fillna(0) <= 1e-6).all(axis=None)
    assert times.nunique().min() > 1


def test_ties_go_to_fewer_bytes_then_to_the_name():
    """Rounding is no order; what is left is decided by the written rule."""
    rows = [("b", 8, 1.0, 5), ("a", 16, 1.0, 5), ("a", 8, 1.0 + 1e-12, 5), ("c", 8, 1.0 - 1e-12, 6)]
    table = pd.DataFrame(rows, columns=["label", "microbatches", "makespan_s", "peak_memory_bytes"]).assign(pp=4)
    row = recommended(table, 10).set_index("choice")
    assert (row.label["fastest that fits"], row.microbatches["fastest that fits"]) == ("a", 8)
    assert row.label["next schedule that fits"] == "b"


def test_the_whole_iteration_may_decide():
    """Of points with a layout the column of the time is named; the makespan does not count then."""
    rows = [("a", 8, 1.0, 3.0, 5), ("b", 8, 2.0, 2.0, 6), ("c", 8, 1.5, 1.0, 20)]
    columns = ["label", "microbatches", "makespan_s", "iteration_s", "peak_memory_bytes"]
    row = recommended(pd.DataFrame(rows, columns=columns).assign(pp=4), 10, time="iteration_s").set_index("choice")
    assert row.label.tolist() == ["b", "a", "c", "a"]


def test_no_candidates_are_no_choice(candidates):
    """Nothing is defined: an empty frame with its columns."""
    assert list(recommended(candidates[:0])) == ["choice", *candidates]


def test_a_changed_system_is_never_answered_from_memory(tmp_path, capsys):
    """The same file name with other values gives other numbers, in one process."""
    path = tmp_path / "mine.yaml"
    text = (DATA / "systems" / "mid_cp_slow_nw.yaml").read_text()
    found = []
    for bandwidth in ("value: 5,", "value: 50,", "value: 5,"):
        path.write_text(text.replace("value: 5,", bandwidth))
        assert main(["simulate", "1f1b", "--pp", "4", "--microbatches", "8", "--model", "paper", "--system",
                     str(path), "--json"]) == 0  # fmt: skip
        found.append((
            ppmodel.compare("1f1b", 4, 8, model="llama3_70b", system=path).makespan_s[0],
            ppmodel.simulate("1f1b", 4, 8, model="llama3_70b", system=path).makespan_s,
            judge([load_claims()[4]], load_model("paper"), load_setting("default"), load_system(path))[0].measured,
            capsys.readouterr().out,
        ))  # fmt: skip
    slow, fast, again = found
    assert all(one != other for one, other in zip(slow, fast, strict=True))
    assert slow == again
