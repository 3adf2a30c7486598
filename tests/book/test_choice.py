"""What is chosen is the fastest of what fits, and what stands beside it."""

import pandas as pd
import pytest

import ppmodel
from ppbook.claims import judge, load_claims
from ppbook.pages.field import FASTEST, LEAST, WITHIN, taken_of
from ppbook.parameters import load_setting
from ppmodel.cli import main
from ppmodel.clusters.costs import stages
from ppmodel.clusters.memory import memory
from ppmodel.clusters.specs import DATA, load_model, load_system

CASES = ["gpipe", "1f1b", "chimera", ("hanayo", {"waves": 2})]


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


def at_one_size(candidates, pp=4, microbatches=16):
    return candidates[(candidates.pp == pp) & (candidates.microbatches == microbatches)].dropna(subset="makespan_s")


@pytest.mark.parametrize("pp", [4, 8])
@pytest.mark.parametrize("microbatches", [8, 16])
def test_the_fastest_that_fits_is_taken(candidates, pp, microbatches):
    """By exhaustion, at every limit: nothing that fits is faster, and more memory is never slower."""
    rows, slower_s = at_one_size(candidates, pp, microbatches), float("inf")
    for limit in [0.0, *sorted(rows.peak_memory_bytes)]:
        taken, fits = taken_of(rows, limit).set_index("asked"), rows[rows.peak_memory_bytes <= limit]
        assert taken.makespan_s[FASTEST] == pytest.approx(rows.makespan_s.min(), rel=1e-9)
        assert taken.peak_memory_bytes[LEAST] == rows.peak_memory_bytes.min()
        assert (WITHIN in taken.index) == (not fits.empty)
        if not fits.empty:
            assert taken.makespan_s[WITHIN] == pytest.approx(fits.makespan_s.min(), rel=1e-9)
            assert taken.peak_memory_bytes[WITHIN] <= limit
            assert taken.makespan_s[WITHIN] <= slower_s * (1 + 1e-9)
            slower_s = taken.makespan_s[WITHIN]


def test_ties_go_to_fewer_bytes_then_to_the_name():
    """Rounding is no order; what is left is decided by the written rule."""
    rows = [("b", 1.0, 5), ("a", 1.0 + 1e-12, 5), ("c", 1.0 - 1e-12, 6)]
    table = pd.DataFrame(rows, columns=["label", "makespan_s", "peak_memory_bytes"])
    assert taken_of(table, 10).set_index("asked").label[[FASTEST, WITHIN]].tolist() == ["a", "a"]


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
