"""What remains of the errors on measured runs, and what it costs to share constants."""

import numpy as np
import pandas as pd
import pytest

from ppbook.measured.against import fitted_together
from ppbook.measured.remaining import FAR, remaining
from ppmodel.clusters.specs import DATA, load_system
from ppmodel.studies.measured import COLUMNS, read_rows


def frame_of(stem, error):
    rows = pd.DataFrame(read_rows(DATA / "reference" / "measured" / f"{stem}.csv")[1]).assign(runs=stem)
    for column in ("iteration_s", "memory_gb"):
        rows[column] = pd.to_numeric(rows[column])
    return rows.assign(predicted_iteration_s=rows.iteration_s * (1 + error), predicted_memory_gb=rows.memory_gb)


def test_the_parts_add_up():
    """The far ones and the others give the mean; who predicts exactly has nothing left."""
    rows = frame_of("bigscience_a100", np.linspace(-0.3, 0.3, 47))
    found = remaining(rows).iloc[0]
    rest = found["mean"] * found.rows * (1 - found.far_share) / (found.rows - found.far)
    assert rest == pytest.approx(found.rest)
    assert found.rest < FAR < 0.3
    assert remaining(frame_of("bigscience_a100", 0.0)).iloc[0]["mean"] == 0


def test_equal_runs_bound_what_can_be_reached():
    """BigScience repeats runs: their memory differs by several percent where nothing that is said differs."""
    found = remaining(frame_of("bigscience_a100", 0.0), "memory_gb", "predicted_memory_gb").iloc[0]
    rows = frame_of("bigscience_a100", 0.0).dropna(subset="memory_gb")
    assert found.equal == rows.duplicated(list(COLUMNS), keep=False).sum() > 4
    assert 0.02 < found.floor < 0.1


def test_one_constant_for_two_sources_costs_some_accuracy():
    """Shared by two clusters the efficiency of products lies between theirs, and both are missed by more."""
    pytest.importorskip("scipy")
    names = ["a100_selene", "a100_bigscience"]
    errors, values = fitted_together(names, ["compute_efficiency"])
    low, high = sorted(load_system(name).compute_efficiency for name in names)
    assert low < values["compute_efficiency"] < high
    assert errors.runs.tolist() == ["korthikanti_a100", "bigscience_a100"]
    assert errors.together.sum() > errors.own.sum()
    assert (errors.own < 0.05).all()
