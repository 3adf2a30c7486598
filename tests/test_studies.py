"""The tables behind the figures: what their columns say is what the engine says."""

import pandas as pd
import pytest

from ppmodel import build, studies
from ppmodel.costs import model_costs
from ppmodel.engine import simulate
from ppmodel.errors import PPModelError, ScheduleError
from ppmodel.graph import compile
from ppmodel.report import record, show
from ppmodel.specs import load_model, load_system


@pytest.fixture(scope="module")
def model():
    return load_model("paper")


@pytest.fixture(scope="module")
def systems():
    return [load_system(name) for name in ("mid_cp_mid_nw", "fast_cp_slow_nw")]


def test_runtime_rows_are_single_simulations(model, systems):
    """Each row repeats what one simulation gives; illegal sizes are left out."""
    study = studies.runtime_study(model, systems, 4, [2, 4, 8], ["1f1b", "chimera"], p2p="blocking")
    assert len(study) == 2 * (3 + 2)
    row = study[(study.system == "fast_cp_slow_nw") & (study.schedule == "Chimera") & (study.microbatches == 8)].iloc[0]
    schedule = build("chimera", 4, 8)
    timeline = simulate(compile(schedule, "blocking"), model_costs(schedule, model, systems[1]))
    assert row.t_sim_s == timeline.makespan_s


def test_unknown_schedules_are_not_left_out(model, systems):
    """A misspelt name is an error, not an empty figure."""
    with pytest.raises(ScheduleError, match="did you mean chimera"):
        studies.runtime_study(model, systems, 4, [4], ["chimer"])


def test_relative_times_are_against_the_base(model, systems):
    """value / base - 1 on the same system and size; the base itself is not among the rows."""
    study = studies.runtime_study(model, systems, 4, [4, 8], ["gpipe", "chimera"])
    relative = studies.relative_to(study, "GPipe")
    assert set(relative.schedule) == {"Chimera"}
    assert ((relative.relative + 1) * relative.base).tolist() == pytest.approx(relative.t_sim_s.tolist())
    assert studies.largest_gain(relative, "Chimera", ["mid_cp_mid_nw"]) == pytest.approx(
        -relative[relative.system == "mid_cp_mid_nw"].relative.min()
    )


def test_reversals_are_pairs_in_opposite_order():
    """A smaller bubble with a longer time is one; equal bubbles or equal times are none."""
    rows = [("a", 0.1, 3.0), ("b", 0.2, 2.0), ("c", 0.2, 1.0), ("d", 0.3, 4.0), ("e", 0.05, 3.0)]
    study = pd.DataFrame(rows, columns=["schedule", "table_bubble_ratio", "t_sim_s"])
    study = study.assign(system="x", stages=4, microbatches=8, comm_over_forward=0.1)
    found = studies.reversal_study(study)
    pairs = set(zip(found.smaller_bubble, found.faster, strict=True))
    assert pairs == {("a", "b"), ("a", "c"), ("e", "b"), ("e", "c")}
    counts = studies.reversal_counts(study).iloc[0]
    assert (counts.reversals, counts.pairs) == (4, 9)
    assert studies.worst_reversals(found).time_lost.tolist() == [2.0]


def test_levels_agree_for_linear_schedules():
    """Formula, table and simulation without communication."""
    levels = studies.level_study(["gpipe", "1f1b", "chimera"], 4, 8).set_index("schedule")
    for name in ("GPipe", "1F1B"):
        assert levels.loc[name].tolist() == pytest.approx([3 / 11] * 3)
    assert levels.formula["Chimera"] < levels.table["Chimera"] == pytest.approx(levels.simulation["Chimera"])


def test_comparisons_name_known_numbers_only():
    """An id that is not a published number is refused; the others keep their kind of source."""
    table = studies.compare({"fig3_formula": 0.158})
    assert table.difference[0] == pytest.approx(-0.002)
    assert table.kind[0] == "digest"
    with pytest.raises(PPModelError, match="is not a published number"):
        studies.compare({"fig9": 1})


def test_records_are_the_same_bytes_every_time(tmp_path, model, systems):
    """Figure, table and facts written twice are equal, and the numbers keep all their digits."""
    from ppmodel.plot import plot_runtime

    study = studies.runtime_study(model, systems, 4, [4, 8])
    for folder in ("one", "two"):
        record("x", tmp_path / folder, plot_runtime(study, "title", "context"), study, answer=1 / 3)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["x.csv", "x.json", "x.png", "x.svg"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    again = pd.read_csv(tmp_path / "one" / "x.csv")
    assert again.t_sim_s.tolist() == study.t_sim_s.tolist()
    assert show(study).to_html() == show(study).to_html()
