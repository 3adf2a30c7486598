"""The tables behind the figures: what their columns say is what the engine says."""

from dataclasses import replace

import pytest

from ppmodel import build, studies
from ppmodel.costs import model_costs
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
