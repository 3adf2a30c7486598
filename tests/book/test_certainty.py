"""How sure a predicted difference is: what is compared with what, and the words that follow."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from ppbook.against import SIZE, timed_rows, unfitted_runs, utilizations
from ppbook.certainty import CLEAR, LIKELY, TIE, WITHIN, errors_by_gpu, in_a_word, like, pairs_of
from ppmodel.measured import fitted_systems, predicted
from ppmodel.specs import load_system


@pytest.fixture
def runs():
    """Two models of three and two runs each, all predicted exactly."""
    size = dict.fromkeys(SIZE, 1) | {"runs": "one", "system": "a100_one", "error": 0.0}
    return pd.DataFrame([size | {"hidden": n // 3, "iteration_s": 1.0 + n} for n in range(5)])


def test_pairs_are_of_one_model_on_the_same_gpus_and_batch(runs):
    """Three runs are three pairs, two are one; another source, or another size, is no pair."""
    assert len(pairs_of(runs)) == 3 + 1
    assert len(pairs_of(runs.assign(gpus=range(5)))) == 0
    assert len(pairs_of(runs.assign(runs=list("abcde")))) == 0


def test_exact_predictions_reverse_nothing_and_mirrored_ones_everything(runs):
    """What is reversed does not depend on the order of the runs, nor on an error that they share."""
    assert not pairs_of(runs.assign(error=3.0))["reversed"].any()
    mirrored = runs.assign(error=1 / runs.iteration_s**2 - 1)
    assert pairs_of(mirrored)["reversed"].all()
    for frame in (runs, mirrored):
        back = pairs_of(frame[::-1])
        assert sorted(back.apart) == pytest.approx(sorted(pairs_of(frame).apart))


def test_words_never_get_less_certain_as_a_difference_grows():
    """A tie, and then by the pairs that are like it; too few of them say nothing."""
    apart = np.linspace(0.001, 0.6, 200)
    pairs = pd.DataFrame({"apart": apart, "reversed": apart < 0.2})
    words = [in_a_word(one, pairs) for one in apart]
    assert list(dict.fromkeys(words)) == [TIE, WITHIN, LIKELY, CLEAR]
    assert {in_a_word(one, pairs[::50]) for one in apart} == {TIE, WITHIN}
    assert like(pairs, 0.3).apart.between(0.2, 0.45).all()


def test_errors_are_those_of_the_systems_that_are_not_fitted():
    """By kind of GPU, over the runs of all systems on it; and what runs reach is below the peak."""
    runs = unfitted_runs(["a100_selene", "b200_simumax"])
    errors = errors_by_gpu(runs)
    assert set(errors.index) == {"a100", "b200"}
    plain = replace(load_system("b200"), framework=load_system("b200_simumax").framework)
    alone = [
        predicted(row, plain)["predicted_iteration_s"] / float(row["iteration_s"]) for row in timed_rows("b200_simumax")
    ]
    assert errors["b200"] == pytest.approx(np.abs(np.array(alone) - 1).mean())
    reached = utilizations(fitted_systems())
    assert set(reached[reached.fp8].system) == {"h100_mlperf"}
    assert reached.model_flops_utilization.between(0, 1).all()
