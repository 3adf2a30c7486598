"""How sure a predicted difference is: what is compared with what, and the words that follow."""

import numpy as np
import pandas as pd
import pytest

from ppbook.measured.against import timed_rows
from ppbook.measured.certainty import (
    CLEAR,
    LIKELY,
    SIZE,
    TIE,
    WITHIN,
    certainty_of,
    measured_pairs,
    savings,
    similar_pairs,
)
from ppbook.measured.unfitted import unfitted_runs
from ppmodel.clusters.specs import load_system
from ppmodel.studies.measured import predicted


@pytest.fixture
def runs():
    """Two models of three and two runs each, all predicted exactly."""
    size = dict.fromkeys(SIZE, 1) | {"runs": "one", "system": "a100_one", "error": 0.0}
    return pd.DataFrame([size | {"hidden": n // 3, "iteration_s": 1.0 + n} for n in range(5)])


def test_pairs_are_of_one_model_on_the_same_gpus_and_batch(runs):
    """Three runs are three pairs, two are one; another source, or another size, is no pair."""
    assert len(measured_pairs(runs)) == 3 + 1
    assert len(measured_pairs(runs.assign(gpus=range(5)))) == 0
    assert len(measured_pairs(runs.assign(runs=list("abcde")))) == 0


def test_exact_predictions_reverse_nothing_and_mirrored_ones_everything(runs):
    """What is reversed does not depend on the order of the runs, nor on an error that they share."""
    assert not measured_pairs(runs.assign(error=3.0))["reversed"].any()
    mirrored = runs.assign(error=1 / runs.iteration_s**2 - 1)
    assert measured_pairs(mirrored)["reversed"].all()
    for frame in (runs, mirrored):
        back = measured_pairs(frame[::-1])
        assert sorted(back.apart) == pytest.approx(sorted(measured_pairs(frame).apart))


def test_words_never_get_less_certain_as_a_difference_grows():
    """A tie, and then by the pairs that are like it; too few of them say nothing."""
    apart = np.linspace(0.001, 0.6, 200)
    pairs = pd.DataFrame({"apart": apart, "reversed": apart < 0.2})
    words = [certainty_of(saving, pairs) for saving in apart]
    assert list(dict.fromkeys(words)) == [TIE, WITHIN, LIKELY, CLEAR]
    assert {certainty_of(saving, pairs[::50]) for saving in apart} == {TIE, WITHIN}
    assert similar_pairs(pairs, 0.3).apart.between(0.2, 0.45).all()


def test_savings_are_of_the_cases_that_both_have():
    """The share of the other's time, judged by the pairs that are similar."""
    pairs = pd.DataFrame({"apart": np.linspace(0.01, 0.6, 200), "reversed": False})
    fast = pd.DataFrame({"label": ["a", "b"], "iteration_s": [8.0, 1.0]}, index=["one", "two"])
    rows = savings(fast, pd.DataFrame({"label": ["c"], "iteration_s": [10.0]}, index=["one"]), pairs)
    assert rows.index.tolist() == ["one"]
    assert rows.loc["one", ["label", "other", "sure"]].tolist() == ["a", "c", CLEAR]
    assert rows.apart["one"] == pytest.approx(0.2)


def test_errors_are_those_of_the_systems_that_are_not_fitted():
    """Each run is predicted by the packaged system of its device."""
    errors = unfitted_runs("simumax_b200").error.abs()
    plain = load_system("b200")
    alone = [
        predicted(row, plain)["predicted_iteration_s"] / float(row["iteration_s"]) for row in timed_rows("b200_simumax")
    ]
    assert errors.mean() == pytest.approx(np.abs(np.array(alone) - 1).mean())
