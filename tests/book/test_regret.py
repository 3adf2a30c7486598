"""Regret: the time of the layout that a rule would have chosen, over the best measured one."""

import numpy as np
import pandas as pd
import pytest

from ppbook.measured.against import fitted_rows
from ppbook.measured.refits import fitted_values
from ppbook.measured.regret import CELL, FITTING, choices, layouts_of, of_other_models, with_one_run
from ppmodel.clusters.specs import DATA, load_system
from ppmodel.clusters.specs.available import error_of_differences
from ppmodel.errors import PPModelError
from ppmodel.studies.measured import read_rows
from ppmodel.studies.measured.constants import TIME, value_of, with_values

MEASURED = DATA / "reference" / "measured"


def cell(seconds, **columns):
    """Layouts of one cell, all of which fit unless said otherwise."""
    table = dict.fromkeys(CELL, 1) | {"iteration_s": seconds, "fit": "fits"} | columns
    return pd.DataFrame(table).assign(id=lambda rows: rows.index.astype(str))


@pytest.mark.parametrize("seed", range(20))
def test_a_perfect_rule_loses_nothing_and_no_rule_gains(seed):
    """Random cells, of which some layouts failed."""
    rng = np.random.default_rng(seed)
    seconds = np.where(rng.random(8) < 0.4, np.nan, rng.lognormal(size=8))
    seconds[:3] = rng.lognormal(size=3)
    layouts = cell(seconds, right=seconds, wrong=-seconds, any=rng.random(8))
    rules = {name: [name] for name in ("right", "wrong", "any")}
    made = choices(layouts, rules).set_index("rule")
    assert made.regret["right"] == made.failed["right"] == 0
    assert made.regret["wrong"] == pytest.approx(np.nanmax(seconds) / np.nanmin(seconds) - 1)
    assert (made.regret >= made.best_of_three).all()
    assert (made.best_of_three >= 0).all()


def test_failures_are_counted_and_what_does_not_fit_is_not_chosen():
    """The next one down the list counts; the best measured layout may be one that we said would not fit."""
    layouts = cell([np.nan, 3.0, 2.0, 4.0], fit=["fits", "tight", "does not fit", "fits"], order=[0, 1, 0, 2])
    made = choices(layouts, {"listed": ["order"]}).loc[0]
    assert (made.chosen, made.failed, made.best) == ("1", 1, "2")
    assert made.regret == pytest.approx(0.5)


@pytest.mark.parametrize("without", [cell([1.0, 2.0]), cell([1.0, 2.0, 3.0], fit="may not fit")])
def test_cells_without_a_choice_are_left_out(without):
    """Too few measured layouts, or none that is predicted to fit; alone, they are refused."""
    both = pd.concat([without, cell([1.0, 2.0, 3.0]).assign(gpus=8)])
    assert choices(both, {"listed": ["id"]}).gpus.tolist() == [8]
    with pytest.raises(PPModelError) as refused:
        choices(without, {"listed": ["id"]})
    assert refused.value.field == "layouts"


def test_other_models_decide_what_a_model_is_predicted():
    """A fit that leaves a model out does not move with that model's times, and moves with the others'."""
    path = MEASURED / "bigscience_a100.csv"
    layouts = layouts_of(read_rows(path)[1], load_system("a100_bigscience"))
    start, system = load_system(DATA / "starts" / "a100_bigscience.yaml"), load_system("a100_bigscience")
    seconds = of_other_models(layouts, [path], start, system)
    assert seconds[layouts.fit == "fits"].notna().all()
    assert (seconds / layouts.predicted_s).dropna().between(0.7, 1.4).all()
    assert not np.allclose(seconds.dropna(), layouts.predicted_s[seconds.notna()], rtol=1e-3)


def test_what_was_seen_before_does_not_stay_in_a_fit_that_leaves_it_out(tmp_path):
    """It ends at the same constants from those of a fit to all models as from those that nobody fitted."""
    rows, start = fitted_rows("a100_layouts"), load_system(DATA / "starts" / "a100_layouts.yaml")
    rows = [row for row in rows if row["iteration_s"]][::7]
    pd.DataFrame(rows).drop(columns="runs").to_csv(tmp_path / "rows.csv", index=False)
    fitted, layouts = load_system("a100_layouts"), layouts_of(rows, load_system("a100"))
    anew = with_values(fitted, {name: value_of(start, name) for name in fitted_values(fitted, TIME)})
    from_all, from_start = (of_other_models(layouts, [tmp_path / "rows.csv"], start, each) for each in (fitted, anew))
    np.testing.assert_allclose(from_all, from_start, rtol=1e-3)


def test_the_run_that_is_known_has_its_measured_time():
    """And it is the one that the unfitted system would have chosen."""
    rows = [row for row in read_rows(MEASURED / "bigscience_a100.csv")[1] if row["hidden"] == "13824"]
    rows = [row for row in rows if row["layers"] == "78"]
    layouts = layouts_of(rows, load_system("a100"))
    seconds = with_one_run(layouts, load_system("a100"))
    first = layouts.predicted_s[layouts.fit.isin(["fits", "tight"])].idxmin()
    assert seconds[first] == layouts.iteration_s[first]
    others = seconds.drop(first).dropna() / layouts.predicted_s.drop(first)[seconds.drop(first).notna()]
    assert np.sign(others - 1).nunique() == 1  # all scaled the same way


def test_a_twin_of_the_run_that_is_known_is_no_faster():
    """Layouts that are predicted to take as long stay ties, however the constants were rounded."""
    rows = [row for row in fitted_rows("a100_layouts") if (row["gpus"], row["iteration_s"] > "") == ("32", True)]
    layouts = layouts_of(rows, load_system("a100"))
    twins = layouts.predicted_s == layouts.predicted_s.min()
    assert twins.sum() == 2
    assert with_one_run(layouts, load_system("a100"))[twins].nunique() == 1


def test_plans_call_a_tie_what_measured_differences_are_off_by():
    """The error that plans use is that of the unfitted system on the file of runs where it is larger.

    By how much the measured ratio of two layouts is off from the predicted one, in the median of those that fit and
    are predicted within a tenth of the best of their cell, of cells with two at least.
    """
    off = []
    for runs in ("a100_layouts", "a100_bigscience"):
        layouts, errors = layouts_of(fitted_rows(runs), load_system("a100")), []
        for _, ran in layouts[layouts.iteration_s.notna() & layouts.fit.isin(FITTING)].groupby(list(CELL)):
            near = ran[ran.predicted_s <= ran.predicted_s.min() * 1.1]
            logs = np.log(near.iteration_s / near.predicted_s).to_numpy()
            if len(logs) > 1:
                errors.append(np.median(np.abs(logs[:, None] - logs)[np.triu_indices(len(logs), 1)]))
        assert len(errors) > 4
        off.append(np.median(errors))
    assert error_of_differences() == pytest.approx(max(off), rel=0.15)
