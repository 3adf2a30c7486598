"""Rankings under noise: rows are runs of their seeds, and a first place holds where its interval says so."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from refusals import refused

from ppbook.uncertainty import VERDICTS, compare_runs, first_places
from ppmodel import build
from ppmodel.costs import model_costs
from ppmodel.errors import PPModelError
from ppmodel.noise import Noise, noisy_makespans, probability_faster
from ppmodel.simulation import compile_graph
from ppmodel.specs import load_model, load_system

SCHEDULES = ["gpipe", "1f1b", "eager-1f1b", "chimera", ("hanayo", {"waves": 2})]
POINTS = {"pp": 4, "microbatches": [4, 8], "model": "paper", "system": ["mid_cp_slow_nw", "slow_cp_fast_nw"]}


@pytest.fixture(scope="module")
def compared():
    return compare_runs(SCHEDULES, noises=[Noise(0.05), Noise(0.3), Noise(0.3, 0.2, 1.5)], seeds=range(30), **POINTS)


def test_a_study_without_runs_is_refused():
    """There is nothing to count."""
    with refused(PPModelError, "seeds", "at least one"):
        compare_runs(SCHEDULES, noises=Noise(0.1), seeds=[], **POINTS)


def test_rows_are_runs_of_their_seeds(compared):
    """A row holds what its runs give; the winner is the fastest without noise, and illegal sizes are left out."""
    assert len(compared) == 3 * 2 * (5 + 4)
    keys = ["system", "microbatches", "jitter", "straggling", "label"]
    row = compared.set_index(keys).loc["mid_cp_slow_nw", 8, 0.3, 0.2, "1F1B"]
    spans = {}
    for name in ("1f1b", row.winner.lower()):
        table = build(name, 4, 8)
        costs = model_costs(table, load_model("paper"), load_system("mid_cp_slow_nw"))
        spans[name] = noisy_makespans(compile_graph(table), costs, Noise(0.3, 0.2, 1.5), range(30))
    runs = pd.Series(spans["1f1b"])
    assert (row.mean_s, row.standard_error_s) == pytest.approx((runs.mean(), runs.sem()))
    quantiles = runs.quantile([0.05, 0.25, 0.5, 0.75, 0.95])
    assert row[["q5_s", "q25_s", "q50_s", "q75_s", "q95_s"]].tolist() == pytest.approx(quantiles.tolist())
    assert (row.beats_winner, row.low, row.high) == probability_faster(
        spans["1f1b"], spans[row.winner.lower()], 1 - 0.05 / 3
    )
    for _, group in compared.groupby(keys[:-1]):
        assert group.makespan_s.min() == group.makespan_s[group.label == group.winner].item()


@pytest.mark.parametrize(
    ("over_winner", "low", "high", "verdict"),
    [
        (0.1, 0.1, 0.4, "holds"),
        (0.1, 0.4, 0.6, "open"),
        (0.1, 0.6, 0.7, "reversed"),
        (0.0, 0.6, 0.7, "tie decided"),
        (0.0, 0.3, 0.4, "holds"),
    ],
)
def test_a_first_place_holds_where_its_interval_says_so(over_winner, low, high, verdict):
    """The challenger is who beats the winner most often; what is counted is where its interval lies."""
    point = {"system": "x", "pp": 4, "microbatches": 8, "jitter": 0.1, "straggling": 0.0, "slowdown": 1.0}
    rows = [("a", 0, np.nan, np.nan, np.nan), ("b", over_winner, (low + high) / 2, low, high), ("c", 0.2, 0, 0, 0.05)]
    names = ["label", "over_winner", "beats_winner", "low", "high"]
    verdicts = first_places(pd.DataFrame(rows, columns=names).assign(**point, winner="a"))
    assert (verdicts.challenger.item(), verdicts.verdict.item()) == ("b", verdict)
    assert verdict in VERDICTS


def test_a_ranking_of_one_is_refused(compared):
    """A first place needs somebody to hold it against; no points at all are no ranking and no error."""
    with refused(PPModelError, "schedules", "meet no other"):
        first_places(compared[compared.label == compared.winner])
    assert first_places(compared[:0]).empty


def test_a_slow_rank_passes_on_a_share():
    """Between none and all of the slowdown; Chimera is the same from both ends, and GPipe from everywhere."""
    runs = [
        compare_runs(SCHEDULES, noises=Noise(slowdown=1.5, slow_ranks=(rank,)), seeds=[0], **POINTS)
        for rank in range(4)
    ]
    slow = pd.concat(runs)
    slow["passed_on"] = (slow.mean_s / slow.makespan_s - 1) / 0.5
    assert slow.passed_on.between(0, 1).all()
    shares = slow.query("microbatches == 8 and system == 'slow_cp_fast_nw'").groupby("label").passed_on.agg(list)
    assert shares["Chimera"] == pytest.approx(shares["Chimera"][::-1])
    assert shares["GPipe"] == pytest.approx([8 / 11] * 4, abs=1e-3)


def test_schedules_with_more_stages_than_blocks_are_left_out():
    """As in `levels`, so that a page about several schedules holds for a small model, too."""
    small = replace(load_model("paper"), blocks=16)
    schedules = ["gpipe", "1f1b", ("hanayo", {"waves": 2})]
    frame = compare_runs(schedules, 8, 8, Noise(0.1), range(9), model=small, system="dgx_a100")
    assert frame.label.tolist() == ["GPipe", "1F1B"]
