"""STP against what its authors measured (Qi et al., 2025, Table 6), from one constant that they state beside it."""

import csv
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from ppmodel import build
from ppmodel.clusters.costs import model_costs, stages
from ppmodel.clusters.specs import LayoutSpec, load_model, load_system
from ppmodel.clusters.specs.framework import FrameworkSpec
from ppmodel.simulation import compile_graph, run_graph

REFERENCE = Path(__file__).parents[2] / "data" / "reference"
SIZES = {"12.1B": (30, 5120, 40), "26.3B": (46, 7168, 56)}
"""Layers, hidden size and heads."""

SHARE = 0.275
"""Of a forward layer's time, what tensor-parallel collectives take at tp 8 and 6144 tokens (section 1 of the paper)."""

SCHEDULES = {"1f1b_i": ("interleaved-1f1b", {"chunks": 2}), "zb_v": ("zb-v", {}), "stp": ("stp", {})}


def measured():
    with open(REFERENCE / "stp_throughput.csv", newline="") as lines:
        return list(csv.DictReader(lines))


def model(name, sequence):
    """A model of the paper; the MLP's width, which it does not state, gives the number of parameters."""
    blocks, hidden, heads = SIZES[name]
    sizes = {"blocks": blocks, "hidden": hidden, "heads": heads, "mlp_hidden": 18944, "vocabulary": 152064}
    return replace(load_model("llama3_70b"), name=name, sequence=sequence, **sizes)


def system(efficiency, contention=1.0):
    """Nodes of A800 devices: A100 with NVLinks of 400 GB/s, half in each direction; collectives attain a part of it."""
    a100 = load_system("a100")
    nodes = replace(a100.nodes, node_bandwidth_bytes_per_s=200e9)
    collectives = replace(a100.collectives, node_efficiency=efficiency, contention=contention)
    return replace(a100, nodes=nodes, collectives=collectives, framework=FrameworkSpec(scatter_messages=True))


def share(efficiency):
    """What collectives take of a forward layer, as the paper states it."""
    bare, layout = replace(model("26.3B", 6144), vocabulary=0), LayoutSpec(pp=2, tp=8, layers="even")
    computing, tensor, *_ = stages(build("gpipe", 2, 1), bare, system(efficiency), layout=layout)[0].parts_s[0]
    return tensor / (computing + tensor)


@cache
def fitted():
    """The efficiency of collectives inside a node with which they take the stated share, by bisection."""
    low, high = 0.1, 2.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if share(middle) > SHARE else (low, middle)
    return middle


def samples_per_s(row, kind, on, hidden=True):
    """Throughput of a row's run; `hidden` tells whether collectives of input gradients run under weight gradients."""
    name, options = SCHEDULES[kind]
    pp, microbatches, given = int(row["pipeline"]), int(row["batch"]), model(row["model"], int(row["sequence"]))
    table = build(name, pp, microbatches, **options)
    chunk = (given.blocks + 2) // (2 * pp)  # the last has two layers less
    layers = (*[chunk] * (2 * pp - 1), chunk - 2)
    layout = LayoutSpec(pp=pp, tp=int(row["tensor"]), layers=layers, overlap_backward=hidden)
    return microbatches / run_graph(compile_graph(table), model_costs(table, given, on, layout=layout)).makespan_s


def misfits(kind, on, hidden=True):
    """Predicted over measured gain of STP, row by row, in points."""
    rows = measured()
    predicted = [samples_per_s(row, "stp", on) / samples_per_s(row, kind, on, hidden) for row in rows]
    gains = [float(row["stp"]) / float(row[kind]) for row in rows]
    return 100 * (np.array(predicted) - gains)


def test_the_gain_over_interleaved_1f1b_follows_from_one_stated_share():
    """Nothing is fitted to the measured throughput: within 2.5 points on every row, within 1.1 on average."""
    off = misfits("1f1b_i", system(fitted()))
    assert len(off) == 9
    assert np.abs(off).max() < 2.5
    assert np.abs(off).mean() < 1.1


def test_contention_of_the_other_table_keeps_the_gain_within_reach():
    """With the constant that meets both measurements of Table 11, too."""
    off = misfits("1f1b_i", system(fitted(), contention=1.17))
    assert np.abs(off).max() < 2.5
    assert -1.5 < off.mean() < 0


def test_zb_v_hides_its_all_reduces_in_table_6():
    """The paper's Table 1 exposes them; the measured gain is far nearer to the other reading."""
    on = system(fitted())
    hidden, exposed = misfits("zb_v", on), misfits("zb_v", on, hidden=False)
    assert np.abs(hidden).mean() < 2 < 6 < np.abs(exposed).mean()
    assert np.abs(hidden).max() < 3.5


@pytest.mark.parametrize("efficiency", [0.5, 2.0])
def test_another_share_would_not_do(efficiency):
    """Collectives twice as slow or fast miss the measured gain."""
    assert np.abs(misfits("1f1b_i", system(efficiency * fitted()))).max() > 4


if __name__ == "__main__":  # the table
    print(f"efficiency inside a node {fitted():.3f}")
    for row in measured():
        kinds = {kind: samples_per_s(row, kind, system(fitted())) for kind in SCHEDULES}
        gains = [(kinds["stp"] / kinds[kind], float(row["stp"]) / float(row[kind])) for kind in ("1f1b_i", "zb_v")]
        print(row["model"], row["tensor"], row["pipeline"], row["batch"], *(f"{a:.3f} ({b:.3f})" for a, b in gains))
