"""The tables behind the figures: what their columns say is what the engine says."""

from dataclasses import replace

import pandas as pd
import pytest

from ppmodel import build, studies
from ppmodel.artefact.claims import compare
from ppmodel.costs import model_costs
from ppmodel.errors import PPModelError
from ppmodel.metrics import idle_ratio
from ppmodel.simulation import compile_graph, run_graph
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
    timeline = run_graph(compile_graph(schedule, "blocking"), model_costs(schedule, model, systems[1]))
    assert row.t_sim_s == timeline.makespan_s
    assert row.idle_ratio == pytest.approx(idle_ratio(timeline), rel=1e-12)
    assert row.idle_ratio > row.table_bubble_ratio
    silent = runtime_without_network(schedule, model, systems[1])
    assert row.t_without_network_s == pytest.approx(silent)


def runtime_without_network(schedule, model, system):
    fast = replace(system, network_bandwidth_bytes_per_s=1e30, network_latency_s=0.0)
    return run_graph(compile_graph(schedule, "blocking"), model_costs(schedule, model, fast)).makespan_s


def test_reversals_are_pairs_in_opposite_order():
    """A smaller bubble with a longer time is one; equal bubbles or equal times are none."""
    rows = [("a", 0.1, 3.0), ("b", 0.2, 2.0), ("c", 0.2, 1.0), ("d", 0.3, 4.0), ("e", 0.05, 3.0)]
    study = pd.DataFrame(rows, columns=["schedule", "table_bubble_ratio", "t_sim_s"])
    study = study.assign(
        system="x", stages=4, microbatches=8, comm_over_forward=0.1, t_without_network_s=[1, 2, 0.5, 3, 1]
    )
    found = studies.reversal_study(study)
    pairs = {(row.smaller_bubble, row.faster): row.by_network for row in found.itertuples()}
    assert pairs == {("a", "b"): True, ("a", "c"): False, ("e", "b"): True, ("e", "c"): False}
    counts = studies.reversal_counts(study).iloc[0]
    assert (counts.points, counts.reversed, counts.reversed_by_network) == (1, 1, 1)
    assert studies.worst_reversals(found).time_lost.tolist() == [0.5]


def test_negations_count_where_a_smaller_bubble_is_not_faster(model, systems):
    """Points with a smaller bubble, and those of them that are not faster."""
    table = studies.negation_study(model, systems, 4, [4, 8], bases=["gpipe"]).set_index("allreduce")
    study = studies.runtime_study(model, systems, 4, [4, 8], ["gpipe", "chimera"], allreduce="blocking")
    relative = studies.relative_to(study, "GPipe").relative
    bubbles = studies.relative_to(study, "GPipe", "table_bubble_ratio").relative
    assert table.not_faster["blocking"] == ((relative >= 0) & (bubbles < 0)).sum() > 0


def test_comparisons_name_known_numbers_only():
    """An id that is not a published number is refused; the others keep their kind of source."""
    table = compare({"fig3_formula": 0.158})
    assert table.difference[0] == pytest.approx(-0.002)
    assert table.kind[0] == "digest"
    with pytest.raises(PPModelError, match="is not a published number"):
        compare({"fig9": 1})
