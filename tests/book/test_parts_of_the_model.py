"""Parts of the model taken away, and the baseline: what each touches, and what it leaves alone."""

import numpy as np
import pytest
from test_calibrate import rows_of

from ppbook.measured.against import left_out, others
from ppbook.measured.baseline import constant_utilization, ideal_s, scaled_to_others
from ppbook.measured.refits import PARTS, Part, ablated
from ppmodel.clusters.specs import DATA, load_system
from ppmodel.studies.measured.batch import Batch
from ppmodel.studies.measured.constants import with_values

SOURCES = ["a100_bigscience", "a100_layouts", "h100_mlperf", "a100_selene"]


def timed(name):
    return [row for row in rows_of(name) if row["iteration_s"]]


def seconds(name, part=None):
    """Times of a source's rows without a part, its constants as they are."""
    system = load_system(name)
    part = part or Part()
    return Batch(timed(name), system, part.without).seconds([with_values(system, part.values)])[0]


@pytest.mark.parametrize("label", PARTS)
def test_without_a_part_no_run_takes_longer_and_some_take_less(label):
    """Every part stands for time; some source tells that it is there."""
    shares = [seconds(name, PARTS[label]) / seconds(name) for name in SOURCES]
    assert max(share.max() for share in shares) < 1 + 1e-9
    assert min(share.min() for share in shares) < 0.99


@pytest.mark.parametrize(
    ("label", "column", "without"),
    [
        ("recomputation", "recompute", "none"), ("tensor-parallel collectives", "tp", "1"),
        ("data-parallel collectives", "dp", "1"), ("transfers between stages", "pp", "1"),
        ("waiting in the pipeline", "pp", "1"),
    ],
)  # fmt: skip
def test_runs_without_a_part_do_not_miss_it(label, column, without):
    """What is not recomputed, not split over GPUs or not cut into stages takes as long as before."""
    checked = 0
    for name in SOURCES:
        alone = np.array([row[column] == without and row["cp"] == "1" for row in timed(name)])
        assert seconds(name, PARTS[label])[alone] == pytest.approx(seconds(name)[alone], rel=1e-12)
        checked += alone.sum()
    assert checked >= 2


def test_the_constants_make_up_for_a_part_as_well_as_they_can():
    """Fitted anew, errors are no larger than with constants that were fitted to the whole model."""
    pytest.importorskip("scipy")
    name, rows = "a100_bigscience", timed("a100_bigscience")
    start, measured = (
        load_system(DATA / "starts" / f"{name}.yaml"),
        np.array([float(row["iteration_s"]) for row in rows]),
    )
    part = PARTS["tensor-parallel collectives"]
    kept, refitted = ablated(rows, ["one"] * len(rows), start, load_system(name), part)
    assert kept.tolist() == seconds(name, part).tolist()
    assert np.abs(refitted / measured - 1).mean() < 0.8 * np.abs(kept / measured - 1).mean()


def test_a_constant_utilization_is_found_again():
    """Rows that it made are met exactly, by folds that had not seen them; a row that is far off moves no other."""
    system = load_system("a100_bigscience")
    rows = [row | {"iteration_s": str(float(ideal_s(row, system)) / 0.45)} for row in timed("a100_bigscience")]
    made = np.array([float(row["iteration_s"]) for row in rows])
    assert constant_utilization(rows, system) == pytest.approx(made, rel=1e-12)
    rows[0] = rows[0] | {"iteration_s": str(10 * made[0])}
    assert constant_utilization(rows, system) == pytest.approx(made, rel=1e-12)
    assert scaled_to_others(made / 3, rows) == pytest.approx(made, rel=1e-12)


def test_others_and_what_is_left_out_are_told_of_the_rows_that_are_here():
    """Errors of the other simulators are of the same rows; of what is not compared, each row has one reason."""
    pd = pytest.importorskip("pandas")
    rows = pd.DataFrame([row | {"runs": row["file"].removesuffix(".csv")} for row in rows_of("b200_simumax")])
    for column in ("iteration_s", "memory_gb"):
        rows[column] = rows[column].astype(float)
        rows[f"predicted_{column}"] = 1.1 * rows[column]
    found = others(rows.assign(error=0.1, memory_error=0.1))
    assert found.simulator.tolist() == ["SimuMax", "SimuMax"]
    assert found.ours.tolist() == pytest.approx([0.1, 0.1])
    assert found.rows.tolist() == [16, 16]
    assert (found.theirs < 0.06).all()
    assert left_out(rows.assign(memory_gb=np.nan)).set_index("what").rows.to_dict() == {"time": 16, "memory": 16}
