"""Predictions judged on rows of one's own: ``python -m ppbook.unseen``."""

import pandas as pd
import pytest
from click.testing import CliRunner

from ppbook.measured.unfitted import MEASURED
from ppbook.unseen import judged, main, regrets, summary

ROWS = pd.read_csv(MEASURED / "nemo.csv", dtype=str).fillna("").head(4)


def written(folder, rows, name="rows.csv"):
    rows.to_csv(folder / name, index=False)
    return str(folder / name)


def test_errors_and_coverage_are_those_of_the_rows(tmp_path):
    """A row within its range counts as covered, one three times as slow does not; names of rows may be missing."""
    rows = judged(written(tmp_path, ROWS.drop(columns="id"), "nemo.csv"))
    assert len(rows) == len(ROWS)
    errors = summary(rows)
    assert errors.rows.sum() == errors.ranged.sum() == len(ROWS)
    assert errors["mean"].max() < 0.2
    assert (summary(rows.assign(iteration_s=3 * rows.iteration_s)).covered == 0).all()


def test_a_first_choice_is_judged_within_a_precision(tmp_path):
    """A run in another precision is no layout to choose: three rows of two precisions leave none."""
    rows = pd.concat([ROWS.head(1)] * 3).assign(device="H100-80GB", iteration_s=["5", "4", "3"])
    same, mixed = (
        regrets(judged(written(tmp_path, rows.assign(precision=precisions), "nemo.csv")))
        for precisions in ("bf16", ["bf16", "bf16", "fp8"])
    )
    assert same.cases.tolist() == [1]
    assert mixed.empty


@pytest.mark.parametrize("lost", [["device"], ["iteration_s"], ["hidden"], list(ROWS)])
def test_a_file_without_what_is_needed_is_refused_in_one_line(lost, tmp_path):
    """With exit code 2, as commands of ppmodel do."""
    done = CliRunner().invoke(main, [written(tmp_path, ROWS.drop(columns=lost))])
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_a_row_of_an_unknown_device_is_refused(tmp_path):
    """It alone; the reason is printed, and others are judged."""
    rows = ROWS.assign(device=["TPU", *ROWS.device[1:]])
    done = CliRunner().invoke(main, [written(tmp_path, rows, "nemo.csv")])
    assert done.exit_code == 0
    assert "device = TPU: must be one of" in done.stdout
