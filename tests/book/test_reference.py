"""Published numbers are as they were read, and as the model counts them where no other test compares the two."""

import csv
import hashlib

import pytest

from ppmodel import build
from ppmodel.clusters.specs import DATA, FrameworkSpec
from ppmodel.metrics import bubble_ratios
from ppmodel.simulation import compile_graph, run_graph, uniform_costs
from ppmodel.studies.measured import run_of
from ppmodel.studies.points import simulate

REFERENCE = DATA / "reference"
OURS = {"executed", "chimera_orders.csv", "peers.csv"}
"""What our own programs write, or print when run by us."""

SUMS = DATA.parent / "tests" / "golden" / "reference.sha256"


def rows_of(name):
    with open(REFERENCE / name, encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def test_published_numbers_are_as_they_were_read():
    """Whoever added a file compared it with its source once, and noted its SHA-256: see tests/golden/README.md."""
    noted = dict(line.split()[::-1] for line in SUMS.read_text().splitlines())
    files = [path.relative_to(REFERENCE) for path in REFERENCE.rglob("*.csv")]
    found = {path.as_posix(): (REFERENCE / path).read_bytes() for path in files if path.parts[0] not in OURS}
    assert {name: hashlib.sha256(content).hexdigest() for name, content in found.items()} == noted


@pytest.mark.parametrize("row", rows_of("measured/korthikanti_a100.csv"), ids=lambda row: row["id"])
def test_activations_are_those_that_korthikanti_et_al_count(row):
    """With dropout's masks, to 3 %: they leave out the loss."""
    if row["activation_gib"]:
        run = run_of(row, FrameworkSpec(dropout=True))
        given = {"model": run.model, "system": "a100", "layout": run.layout}
        held = simulate(run.case, run.layout.pp, run.num_microbatches, **given).to_dict()["activations_bytes"]
        assert held / 2**30 == pytest.approx(float(row["activation_gib"]), rel=0.03)


@pytest.mark.parametrize("row", rows_of("zero_bubble_bubble_rates.csv"))
def test_the_rate_of_interleaved_1f1b_is_above_the_published_one(row):
    """By 2 to 4.5 %, where those of three other schedules agree to four digits (tests/schedules)."""
    chunks = {one["model"]: int(one["interleaved_chunks"]) for one in rows_of("zero_bubble_models.csv")}
    table = build("interleaved-1f1b", int(row["devices"]), int(row["microbatches"]), chunks=chunks[row["model"]])
    forward, comm, *halves = (float(row[f"t_{name}_ms"]) for name in ("forward", "comm", "input_grad", "weight_grad"))
    costs = uniform_costs(table, forward, None, comm, input_grad=halves[0], weight_grad=halves[1])
    rate = bubble_ratios(run_graph(compile_graph(table, p2p="latency"), costs)).span
    assert 1.02 < rate / float(row["interleaved_1f1b"]) < 1.045
