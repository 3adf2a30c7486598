"""Fits that are made again without some rows."""

import numpy as np
import pytest

from ppbook.measured.refits import unseen
from ppmodel.clusters.specs import load_system
from tests.studies.measured.test_calibrate import STARTS, rows_of, write


def test_a_model_that_is_left_out_is_not_learned_from(tmp_path):
    """Its measurements touch the predictions of other models, not its own; folds cut at random mix the two."""
    pytest.importorskip("scipy")
    start, system = load_system(STARTS["b200_simumax"]), load_system("b200_simumax")
    rows = [{name: row[name] for name in row if name != "file"} for row in rows_of("b200_simumax")[::3]]
    slow = [
        row | {"iteration_s": str(2 * float(row["iteration_s"]))} if row["hidden"] == "8192" else row for row in rows
    ]
    files = [write(tmp_path / f"{name}.csv", *several) for name, several in (("as_run", rows), ("slow", slow))]
    own = np.array([row["hidden"] == "8192" for row in rows])
    assert 0 < own.sum() < len(own)
    for by, learns in ((("hidden", "layers"), False), ((), True)):
        usual, changed = (unseen([file], start, system, by=by, kinds=("time",))["time"].values for file in files)
        far = np.abs(changed / usual - 1)
        assert (far[~own] > 0.01).any()
        assert (far[own] > 0.01).any() == learns
        assert learns or far[own].max() == 0
